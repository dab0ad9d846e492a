package identity_test

import (
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// fresh is a directory over an empty store.
func fresh(t *testing.T) *identity.Service {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return identity.New(identity.Options{Store: store})
}

func TestAdminTokenIsMadeOnce(t *testing.T) {
	s := fresh(t)
	secret, created, err := s.EnsureAdmin(t.Context(), "")
	if err != nil || !created || !strings.HasPrefix(secret, "hfa_") || len(secret) != 47 {
		t.Fatalf("first start: %d characters, created %v, %v", len(secret), created, err)
	}
	wantRole(t, s, secret, hub.RoleAdmin)
	again, created, err := s.EnsureAdmin(t.Context(), "")
	if err != nil || created || again != "" {
		t.Errorf("second start: created %v, %v", created, err)
	}
	wantRole(t, s, secret, hub.RoleAdmin)
}

func TestAdminTokenFromTheEnvironment(t *testing.T) {
	s := fresh(t)
	first, second := strings.Repeat("a", 24), strings.Repeat("b", 24)
	for _, token := range []string{first, first, second} {
		secret, created, err := s.EnsureAdmin(t.Context(), token)
		if err != nil || created || secret != "" {
			t.Fatalf("EnsureAdmin: created %v, %v", created, err)
		}
		wantRole(t, s, token, hub.RoleAdmin)
	}
	wantRole(t, s, first, 0)
	_, _, err := s.EnsureAdmin(t.Context(), first)
	wantKind(t, "a value that was replaced", err, hub.Invalid)
	for _, bad := range []string{strings.Repeat("a", 23), strings.Repeat("a", 24) + " ", strings.Repeat("é", 24), strings.Repeat("a", 513)} {
		_, _, err := s.EnsureAdmin(t.Context(), bad)
		wantKind(t, bad, err, hub.Invalid)
	}
}

func TestAnAgentsTokenDoesNotBecomeTheAdmins(t *testing.T) {
	b := setup(t)
	b.agent(t, "alice", "open")
	_, secret := b.token(t, "alice", nil)
	_, _, err := b.EnsureAdmin(t.Context(), secret)
	wantKind(t, "an agent's token as HOLDFAST_ADMIN_TOKEN", err, hub.Invalid)
	wantRole(t, b.Service, secret, hub.RoleAgent)
}

func TestReplaceAdminRevokesTheOldTokens(t *testing.T) {
	s := fresh(t)
	env := strings.Repeat("e", 30)
	first, _, err := s.EnsureAdmin(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.EnsureAdmin(t.Context(), env); err != nil {
		t.Fatal(err)
	}
	wantRole(t, s, first, hub.RoleAdmin)
	secret, err := s.ReplaceAdmin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wantRole(t, s, secret, hub.RoleAdmin)
	wantRole(t, s, first, 0)
	wantRole(t, s, env, 0)
	if _, created, err := s.EnsureAdmin(t.Context(), ""); created || err != nil {
		t.Errorf("the next start: created %v, %v", created, err)
	}
}
