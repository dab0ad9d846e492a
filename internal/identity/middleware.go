package identity

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// maxSecret bounds the length of a credential; the hub's own have 47 characters.
const maxSecret = 512

type ctxKey struct{}

// outcome is what a request's credential came to.
type outcome struct {
	p   hub.Principal
	err error
}

// grant is a token that was looked up: whom it stands for and until when.
type grant struct {
	p       hub.Principal
	token   string
	hash    [32]byte
	expires time.Time // zero for never
}

func (g grant) expired(now time.Time) bool {
	return !g.expires.IsZero() && !now.Before(g.expires)
}

// Require gives the principal of a request that passed Service.Middleware, or the
// Unauthenticated error to answer with.
func Require(ctx context.Context) (hub.Principal, error) {
	o, ok := ctx.Value(ctxKey{}).(*outcome)
	if !ok {
		return hub.Principal{}, errMissing()
	}
	return o.p, o.err
}

// With puts a principal into a context, as the middleware does.
func With(ctx context.Context, p hub.Principal) context.Context {
	return context.WithValue(ctx, ctxKey{}, &outcome{p: p})
}

// Middleware finds out who makes each request and puts the outcome into its
// context, for Require; it refuses nothing by itself. The context of a request
// that came with a token ends, with an Unauthenticated error as its cause, when
// the token is revoked or expires.
func (s *Service) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret, err := bearer(r.Header)
		switch {
		case err != nil:
			next.ServeHTTP(w, withOutcome(r, &outcome{err: err}))
		case secret == "":
			next.ServeHTTP(w, withOutcome(r, s.unnamed()))
		default:
			s.serveToken(w, r, secret, next)
		}
	})
}

// serveToken serves a request that came with a secret.
func (s *Service) serveToken(w http.ResponseWriter, r *http.Request, secret string, next http.Handler) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	req := &request{cancel: cancel}
	g, err := s.enter(ctx, secret, req)
	if err != nil {
		req.err = err
	} else {
		req.p = g.p
		defer s.open.remove(g.token, req)
	}
	next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, ctxKey{}, &req.outcome)))
}

// Follow has end called when the token that the request of ctx came with is revoked or
// expires, also once the request itself is over, until stop is called. It is for a
// request that goes on elsewhere, and to be called while that is still open. end may be
// called more than once, and must not block.
func (s *Service) Follow(ctx context.Context, end func()) (stop func()) {
	o, ok := ctx.Value(ctxKey{}).(*outcome)
	if !ok || o.p.Token == "" {
		return func() {}
	}
	token := o.p.Token // o would keep all of the context
	req := &request{cancel: func(error) { end() }}
	if !s.open.join(token, req) || ctx.Err() != nil {
		end()
	}
	return func() { s.open.remove(token, req) }
}

// enter looks the secret up and registers the request, again if anything was
// written in between: a revocation either is seen by the lookup or sees the request.
func (s *Service) enter(ctx context.Context, secret string, req *request) (grant, error) {
	hash := sha256.Sum256([]byte(secret))
	for {
		g, generation, err := s.lookup(ctx, hash)
		if err != nil {
			return grant{}, err
		}
		s.open.add(g, req)
		if s.tokens.current(generation) {
			return g, nil
		}
		s.open.remove(g.token, req)
	}
}

// lookup finds the living token with a hash, and the generation that this is true
// for. The lookup is by a 256-bit hash, so its timing tells nothing about secrets.
func (s *Service) lookup(ctx context.Context, hash [32]byte) (grant, uint64, error) {
	g, generation, ok := s.tokens.get(hash)
	if !ok {
		t, err := s.opt.Store.TokenByHash(ctx, hash)
		switch {
		case hub.KindOf(err) == hub.NotFound:
			return grant{}, 0, errUnknown()
		case err != nil:
			return grant{}, 0, err
		}
		g = grantOf(t)
		s.tokens.put(hash, g, generation)
	}
	if g.expired(s.opt.Now()) {
		return grant{}, 0, errUnknown()
	}
	return g, generation, nil
}

func grantOf(t *hub.Token) grant {
	return grant{
		p:     hub.Principal{Address: t.Address, Handle: t.Handle, Role: t.Role, Token: t.ID},
		token: t.ID, hash: t.Hash, expires: t.ExpiresAt,
	}
}

// unnamed is the outcome of a request without a credential.
func (s *Service) unnamed() *outcome {
	if o := s.anonymous.Load(); o != nil {
		return o
	}
	return &outcome{err: errMissing()}
}

// watch ends the open requests of tokens that expire, or that vanished without this
// process having a hand in it.
func (s *Service) watch(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.recheck(ctx)
		}
	}
}

// recheck looks at every token with open requests once.
func (s *Service) recheck(ctx context.Context) {
	for _, g := range s.open.grants() {
		if g.expired(s.opt.Now()) {
			s.cutToken(g.token)
			continue
		}
		_, err := s.opt.Store.TokenByHash(ctx, g.hash)
		switch {
		case err == nil || ctx.Err() != nil:
		case hub.KindOf(err) == hub.NotFound:
			s.cutToken(g.token)
		default:
			// The store is down: it will be asked again on the next round.
			s.opt.Log.Warn("cannot check the token of an open request", "token", g.token, "err", err)
		}
	}
}

func (s *Service) cutToken(id string) {
	s.open.cut(func(g grant) bool { return g.token == id }, errEnded())
}

// bearer reads the one credential of a request; empty when there is none.
func bearer(h http.Header) (string, error) {
	values := h["Authorization"]
	switch len(values) {
	case 0:
		return "", nil
	case 1:
	default:
		return "", hub.Errorf(hub.Unauthenticated, "more than one Authorization header came with the request; send exactly one")
	}
	scheme, secret, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || !plausible(secret) {
		return "", hub.Errorf(hub.Unauthenticated, "the Authorization header is not a bearer token; send Authorization: Bearer {token}")
	}
	return secret, nil
}

// plausible reports whether a secret has the characters of RFC 6750's b64token.
func plausible(secret string) bool {
	if secret == "" || len(secret) > maxSecret {
		return false
	}
	for _, c := range []byte(secret) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !('0' <= c && c <= '9') && strings.IndexByte("-._~+/=", c) < 0 {
			return false
		}
	}
	return true
}

func withOutcome(r *http.Request, o *outcome) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), ctxKey{}, o))
}

func errMissing() *hub.Error {
	return hub.Errorf(hub.Unauthenticated, "no credential came with the request; send Authorization: Bearer {token}")
}

func errUnknown() *hub.Error {
	return hub.Errorf(hub.Unauthenticated, "the token is unknown, expired or revoked; ask the hub's administrator for a new one")
}

func errEnded() *hub.Error {
	return hub.Errorf(hub.Unauthenticated, "the token was revoked or expired while the request was open; ask the hub's administrator for a new one")
}
