package identity_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

// who sends a request with these Authorization headers through the middleware.
func who(s *identity.Service, authorization ...string) (p hub.Principal, err error) {
	h := s.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p, err = identity.Require(r.Context())
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header["Authorization"] = authorization
	if len(authorization) == 0 {
		delete(r.Header, "Authorization")
	}
	h.ServeHTTP(httptest.NewRecorder(), r)
	return p, err
}

// wantRole checks what a secret is good for; role 0 for nothing.
func wantRole(t *testing.T, s *identity.Service, secret string, role hub.Role) {
	t.Helper()
	p, err := who(s, "Bearer "+secret)
	if role == 0 {
		wantKind(t, "a secret that should be dead", err, hub.Unauthenticated)
		return
	}
	if err != nil || p.Role != role {
		t.Errorf("role %v, %v; want %v", p.Role, err, role)
	}
}

func TestMiddlewareReadsTheCredential(t *testing.T) {
	b := setup(t)
	alice, _ := b.agent(t, "alice", "open")
	tok, secret := b.token(t, "alice", nil)
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER "} {
		p, err := who(b.Service, scheme+secret)
		if err != nil || p.Address != alice.Address || p.Handle != "alice" || p.Role != hub.RoleAgent || p.Token != tok.ID {
			t.Errorf("%q: %+v, %v", scheme, p, err)
		}
	}
	for _, bad := range [][]string{
		nil, {""}, {"Bearer"}, {"Bearer "}, {secret}, {"Basic " + secret}, {"Bearer  " + secret}, {"Bearer " + secret + " "},
		{"Bearer " + secret + "x"}, {"Bearer " + secret[:45]}, {"Bearer a,b"}, {"Bearer " + strings.Repeat("a", 513)},
		{"Bearer " + secret, "Bearer " + secret}, {"Bearer " + secret, ""},
	} {
		p, err := who(b.Service, bad...)
		wantKind(t, fmt.Sprint(len(bad)), err, hub.Unauthenticated)
		if p != (hub.Principal{}) {
			t.Errorf("a refused request has the principal %+v", p)
		}
	}
}

func TestWithoutMiddlewareNobodyIsAnybody(t *testing.T) {
	_, err := identity.Require(t.Context())
	wantKind(t, "bare context", err, hub.Unauthenticated)
	want := hub.Principal{Address: "x", Role: hub.RoleAgent}
	if p, err := identity.Require(identity.With(t.Context(), want)); p != want || err != nil {
		t.Errorf("With: %+v, %v", p, err)
	}
}

func TestAnonymous(t *testing.T) {
	b := setup(t, anonymous)
	p, err := who(b.Service)
	if err != nil || p.Role != hub.RoleAnonymous || p.Handle != "anonymous" || p.Token != "" {
		t.Errorf("without a credential: %+v, %v", p, err)
	}
	_, err = who(b.Service, "Bearer wrong")
	wantKind(t, "a wrong token does not fall back to anonymous", err, hub.Unauthenticated)
}

func TestTokensAreLookedUpOnceInFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.agent(t, "alice", "open")
		_, secret := b.token(t, "alice", nil)
		lookups := func() int64 {
			before := b.store.tokens.Load()
			for range 10 {
				wantRole(t, b.Service, secret, hub.RoleAgent)
			}
			return b.store.tokens.Load() - before
		}
		if n := lookups(); n != 1 {
			t.Errorf("%d lookups at first, want 1", n)
		}
		time.Sleep(6 * time.Second)
		if n := lookups(); n != 1 {
			t.Errorf("%d lookups after 6 s, want 1", n)
		}
	})
}

// openRequest starts a request that waits for its context to end, and gives the
// reason once it has.
func openRequest(t *testing.T, s *identity.Service, secret string) (ended <-chan error) {
	t.Helper()
	entered, cause := make(chan error, 1), make(chan error, 1)
	h := s.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := identity.Require(r.Context())
		entered <- err
		<-r.Context().Done()
		cause <- context.Cause(r.Context())
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	go h.ServeHTTP(httptest.NewRecorder(), r)
	if err := <-entered; err != nil {
		t.Fatal(err)
	}
	return cause
}

func TestRevocationEndsOpenRequestsAtOnce(t *testing.T) {
	b := setup(t)
	ctx := t.Context()
	b.agent(t, "alice", "open")
	tok, secret := b.token(t, "alice", nil)
	_, other := b.token(t, "alice", nil)
	first, second, unrelated := openRequest(t, b.Service, secret), openRequest(t, b.Service, secret), openRequest(t, b.Service, other)

	if err := b.RevokeToken(ctx, b.admin, tok.ID); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "first", <-first, hub.Unauthenticated)
	wantKind(t, "second", <-second, hub.Unauthenticated)
	wantRole(t, b.Service, secret, 0)
	select {
	case err := <-unrelated:
		t.Errorf("another token's request ended: %v", err)
	default:
	}
	wantKind(t, "again", b.RevokeToken(ctx, b.admin, tok.ID), hub.NotFound)

	if err := b.DeleteAgent(ctx, b.admin, "alice"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "deleted address", <-unrelated, hub.Unauthenticated)
	wantRole(t, b.Service, other, 0)
}

func TestExpiryEndsOpenRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Start()
		defer b.Close()
		b.agent(t, "alice", "open")
		_, secret := b.token(t, "alice", ptr(int64(60)))
		start := time.Now()
		wantKind(t, "open request", <-openRequest(t, b.Service, secret), hub.Unauthenticated)
		if after := time.Since(start); after < 60*time.Second || after > 90*time.Second {
			t.Errorf("it ended after %v, want 60 to 90 s", after)
		}
		wantRole(t, b.Service, secret, 0)
	})
}

func TestExpiryIsCheckedOnEveryUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.agent(t, "alice", "open")
		_, secret := b.token(t, "alice", ptr(int64(2)))
		time.Sleep(time.Second)
		wantRole(t, b.Service, secret, hub.RoleAgent) // cached now, for longer than it lives
		time.Sleep(time.Second)
		wantRole(t, b.Service, secret, 0)
	})
}

func TestRevocationBehindTheServicesBackIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.Start()
		defer b.Close()
		b.agent(t, "alice", "open")
		tok, secret := b.token(t, "alice", nil)
		ended := openRequest(t, b.Service, secret)
		if err := b.store.RevokeToken(context.WithoutCancel(t.Context()), tok.ID); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		wantKind(t, "open request", <-ended, hub.Unauthenticated)
		if after := time.Since(start); after > 30*time.Second {
			t.Errorf("it took %v, want at most 30 s", after)
		}
	})
}

// A request either does not get in, or its context ends: no revocation slips in
// between its lookup and its registration.
func TestRevocationRacesWithNewRequests(t *testing.T) {
	b := setup(t)
	b.agent(t, "alice", "open")
	for range 20 {
		tok, secret := b.token(t, "alice", nil)
		var wg sync.WaitGroup
		h := b.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := identity.Require(r.Context()); err == nil {
				<-r.Context().Done()
			}
		}))
		for range 16 {
			wg.Go(func() {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.Header.Set("Authorization", "Bearer "+secret)
				h.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		if err := b.RevokeToken(t.Context(), b.admin, tok.ID); err != nil {
			t.Fatal(err)
		}
		wg.Wait() // hangs, and so fails, if a request was forgotten
	}
}

func FuzzMiddleware(f *testing.F) {
	b := setup(f)
	b.agent(f, "alice", "open")
	_, secret := b.token(f, "alice", nil)
	for _, seed := range []string{"", "Bearer " + secret, "bearer x", "Basic YTpi", "Bearer \x00", "Bearer é", "Bearer a b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		p, err := who(b.Service, header)
		good := len(header) > 7 && strings.EqualFold(header[:7], "bearer ") && header[7:] == secret
		if good != (err == nil) || good != (p.Handle == "alice") {
			t.Errorf("%q: %+v, %v", header, p, err)
		}
	})
}

func BenchmarkMiddleware(b *testing.B) {
	bed := setup(b)
	bed.agent(b, "alice", "open")
	_, secret := bed.token(b, "alice", nil)
	h := bed.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		w := httptest.NewRecorder()
		for pb.Next() {
			h.ServeHTTP(w, r)
		}
	})
}

func TestWhatFollowsARequestLearnsOfTheTokensEnd(t *testing.T) {
	b := setup(t)
	b.agent(t, "alice", "open")
	tok, secret := b.token(t, "alice", nil)
	ended := make(chan string, 8)
	var stopped, late func()
	var ctx context.Context
	h := b.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b.Follow(r.Context(), func() { ended <- "followed" })
		stopped = b.Follow(r.Context(), func() { ended <- "stopped" })
		late = func() { b.Follow(r.Context(), func() { ended <- "late" })() }
		ctx = r.Context()
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer "+secret)
	h.ServeHTTP(httptest.NewRecorder(), r)
	if ctx.Err() == nil || len(ended) != 0 {
		t.Fatalf("the request is not over, or that was taken for the token's end: %d", len(ended))
	}
	stopped()
	if err := b.RevokeToken(t.Context(), b.admin, tok.ID); err != nil {
		t.Fatal(err)
	}
	if got := <-ended; got != "followed" || len(ended) != 0 {
		t.Errorf("%q ended, and %d more", got, len(ended))
	}
	late() // after a revocation it ends at once
	if got := <-ended; got != "late" {
		t.Errorf("%q ended", got)
	}
	b.Follow(identity.With(t.Context(), hub.Principal{}), func() { ended <- "nobody" })()
	if len(ended) != 0 {
		t.Error("a request without a token ended")
	}
}
