// Package httpx holds what every HTTP face shares: request ids, access logs, body
// limits and server-sent events.
package httpx

import "context"

type ctxKey struct{}

// RequestID is the id that the request's log lines and X-Request-Id header carry.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(ctxKey{}).(string)
	return id
}
