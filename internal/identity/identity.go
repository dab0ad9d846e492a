// Package identity knows addresses and tokens, and decides who may do what.
package identity

import (
	"context"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

type ctxKey struct{}

type outcome struct {
	p   hub.Principal
	err error
}

// Require gives the principal of a request that passed Service.Middleware, or the
// Unauthenticated error to answer with.
func Require(ctx context.Context) (hub.Principal, error) {
	o, ok := ctx.Value(ctxKey{}).(outcome)
	if !ok {
		return hub.Principal{}, hub.Errorf(hub.Unauthenticated, "no credential came with the request; send Authorization: Bearer {token}")
	}
	return o.p, o.err
}

// With puts a principal into a context, as the middleware does.
func With(ctx context.Context, p hub.Principal) context.Context {
	return context.WithValue(ctx, ctxKey{}, outcome{p: p})
}
