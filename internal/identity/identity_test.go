package identity_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// bed is a directory over a real store.
type bed struct {
	*identity.Service
	store *countingStore
	dir   string
	admin hub.Principal
}

// countingStore counts the lookups that reach the store.
type countingStore struct {
	hub.Store
	tokens, addresses atomic.Int64
}

func (s *countingStore) TokenByHash(ctx context.Context, h [32]byte) (*hub.Token, error) {
	s.tokens.Add(1)
	return s.Store.TokenByHash(ctx, h)
}

func (s *countingStore) Address(ctx context.Context, ref string) (*hub.Address, error) {
	s.addresses.Add(1)
	return s.Store.Address(ctx, ref)
}

func setup(t testing.TB, change ...func(*identity.Options)) *bed {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &bed{store: &countingStore{Store: store}, dir: dir}
	opt := identity.Options{Store: b.store}
	for _, f := range change {
		f(&opt)
	}
	b.Service = identity.New(opt)
	if _, _, err := b.EnsureAdmin(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	a, err := b.store.Address(t.Context(), hub.AdminHandle)
	if err != nil {
		t.Fatal(err)
	}
	b.admin = hub.Principal{Address: a.ID, Handle: a.Handle, Role: hub.RoleAdmin}
	return b
}

func anonymous(o *identity.Options) { o.Anonymous = true }

// agent creates an address and gives it as a principal.
func (b *bed) agent(t testing.TB, handle, access string) (hub.Principal, *hub.Address) {
	t.Helper()
	a, err := b.CreateAgent(context.WithoutCancel(t.Context()), b.admin, identity.AgentSpec{Handle: handle, Access: &access})
	if err != nil {
		t.Fatal(err)
	}
	return hub.Principal{Address: a.ID, Handle: a.Handle, Role: hub.RoleAgent}, a
}

// token makes a token of an address.
func (b *bed) token(t testing.TB, handle string, expiresIn *int64) (hub.Token, string) {
	t.Helper()
	tok, secret, err := b.CreateToken(context.WithoutCancel(t.Context()), b.admin, handle, identity.TokenSpec{Name: "test", ExpiresIn: expiresIn})
	if err != nil {
		t.Fatal(err)
	}
	return tok, secret
}

func wantKind(t *testing.T, what string, err error, kind hub.Kind) {
	t.Helper()
	if e := (*hub.Error)(nil); !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("%s: got %v, want an error of kind %d", what, err, kind)
	}
}

func ptr[T any](v T) *T { return &v }

func TestMayCall(t *testing.T) {
	b := setup(t)
	alice, openAddr := b.agent(t, "alice", "open")
	bob, closedAddr := b.agent(t, "bob", "approved")
	hubAddr, err := b.Resolve(t.Context(), hub.AnonymousHandle)
	if err != nil {
		t.Fatal(err)
	}
	nobody := hub.Principal{Address: hubAddr.ID, Role: hub.RoleAnonymous}
	for _, c := range []struct {
		name string
		p    hub.Principal
		a    *hub.Address
		want bool
	}{
		{"agent to open", bob, openAddr, true},
		{"agent to approved", alice, closedAddr, false},
		{"agent to itself", bob, closedAddr, true},
		{"anonymous to open", nobody, openAddr, true},
		{"anonymous to approved", nobody, closedAddr, false},
		{"admin to approved", b.admin, closedAddr, true},
		{"admin to the hub's own", b.admin, hubAddr, false},
		{"anonymous to itself", nobody, hubAddr, false},
		{"no principal to open", hub.Principal{}, openAddr, false},
	} {
		if got := b.MayCall(c.p, c.a); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestUnknownAddressLooksLikeOneThatMayNotBeCalled(t *testing.T) {
	b := setup(t)
	alice, _ := b.agent(t, "alice", "open")
	b.agent(t, "bob", "approved")
	_, err := b.Resolve(t.Context(), "nobody")
	wantKind(t, "resolve", err, hub.NotPermitted)
	_, unknown := b.Agent(t.Context(), alice, "nobody")
	_, forbidden := b.Agent(t.Context(), alice, "bob")
	wantKind(t, "agent", unknown, hub.NotPermitted)
	if unknown.Error() != forbidden.Error() {
		t.Errorf("they differ: %q and %q", unknown, forbidden)
	}
	_, err = b.Agent(t.Context(), b.admin, "nobody")
	wantKind(t, "admin", err, hub.NotFound)
}

func TestOwnWritesAreSeenAtOnce(t *testing.T) {
	b := setup(t)
	ctx := t.Context()
	alice, _ := b.agent(t, "alice", "open")
	bob, _ := b.agent(t, "bob", "approved")
	may := func() bool {
		a, err := b.Resolve(ctx, "bob")
		if err != nil {
			t.Fatal(err)
		}
		return b.MayCall(alice, a)
	}
	if may() {
		t.Error("an approved address lets anybody in")
	}
	if _, err := b.UpdateAgent(ctx, b.admin, "bob", identity.AgentSpec{Access: ptr("open")}); err != nil {
		t.Fatal(err)
	}
	if !may() {
		t.Error("the change to open was not seen")
	}
	if err := b.DeleteAgent(ctx, b.admin, bob.Address); err != nil {
		t.Fatal(err)
	}
	_, err := b.Resolve(ctx, "bob")
	wantKind(t, "resolve after the delete", err, hub.NotPermitted)
	if _, created := b.agent(t, "bob", "open"); created.ID == bob.Address {
		t.Error("the new bob is the old one")
	}
}

func TestAddressesAreReadOnceInFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.agent(t, "alice", "open")
		read := func() int64 {
			before := b.store.addresses.Load()
			for range 10 {
				if _, err := b.Resolve(t.Context(), "alice"); err != nil {
					t.Fatal(err)
				}
			}
			return b.store.addresses.Load() - before
		}
		if n := read(); n != 1 {
			t.Errorf("%d reads at first, want 1", n)
		}
		time.Sleep(6 * time.Second)
		if n := read(); n != 1 {
			t.Errorf("%d reads after 6 s, want 1", n)
		}
	})
}

func TestAgentsListsWhatThePrincipalMayCall(t *testing.T) {
	b := setup(t)
	_, _ = b.agent(t, "alice", "open")
	bob, _ := b.agent(t, "bob", "approved")
	b.agent(t, "carol", "approved")
	for _, c := range []struct {
		p    hub.Principal
		want []string
	}{
		{b.admin, []string{"alice", "bob", "carol"}},
		{bob, []string{"alice", "bob"}},
		{hub.Principal{Address: "x", Role: hub.RoleAnonymous}, []string{"alice"}},
	} {
		all, err := b.Agents(t.Context(), c.p)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range all {
			got = append(got, a.Handle)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%v sees (-want +got):\n%s", c.p.Role, diff)
		}
	}
	if a, err := b.Agent(t.Context(), bob, "me"); err != nil || a.Handle != "bob" {
		t.Errorf("me: %v, %v", a, err)
	}
}

func TestOnlyTheAdminAdministers(t *testing.T) {
	b := setup(t)
	ctx := t.Context()
	alice, _ := b.agent(t, "alice", "open")
	for _, p := range []hub.Principal{alice, {}, {Address: "x", Role: hub.RoleAnonymous}} {
		_, err := b.CreateAgent(ctx, p, identity.AgentSpec{Handle: "dora"})
		wantKind(t, "CreateAgent", err, hub.NotPermitted)
		_, err = b.UpdateAgent(ctx, p, "alice", identity.AgentSpec{Access: ptr("open")})
		wantKind(t, "UpdateAgent", err, hub.NotPermitted)
		wantKind(t, "DeleteAgent", b.DeleteAgent(ctx, p, "alice"), hub.NotPermitted)
		_, _, err = b.CreateToken(ctx, p, "alice", identity.TokenSpec{})
		wantKind(t, "CreateToken", err, hub.NotPermitted)
		_, err = b.Tokens(ctx, p, "alice")
		wantKind(t, "Tokens", err, hub.NotPermitted)
		_, err = b.AllTokens(ctx, p)
		wantKind(t, "AllTokens", err, hub.NotPermitted)
		wantKind(t, "RevokeToken", b.RevokeToken(ctx, p, "x"), hub.NotPermitted)
	}
	// Nobody may change or enter the hub's own addresses.
	wantKind(t, "delete admin", b.DeleteAgent(ctx, b.admin, "admin"), hub.Invalid)
	_, err := b.UpdateAgent(ctx, b.admin, "anonymous", identity.AgentSpec{Access: ptr("open")})
	wantKind(t, "update anonymous", err, hub.Invalid)
	_, _, err = b.CreateToken(ctx, b.admin, "anonymous", identity.TokenSpec{})
	wantKind(t, "token for anonymous", err, hub.Invalid)
}

func TestInvalidAgentsNameTheField(t *testing.T) {
	b := setup(t)
	b.agent(t, "taken", "open")
	for name, c := range map[string]struct {
		spec  identity.AgentSpec
		field string
	}{
		"no handle":         {identity.AgentSpec{}, "handle"},
		"upper case":        {identity.AgentSpec{Handle: "Alice"}, "handle"},
		"path":              {identity.AgentSpec{Handle: "a/b"}, "handle"},
		"leading dash":      {identity.AgentSpec{Handle: "-a"}, "handle"},
		"line end":          {identity.AgentSpec{Handle: "alice\n"}, "handle"},
		"64 characters":     {identity.AgentSpec{Handle: strings.Repeat("a", 64)}, "handle"},
		"reserved":          {identity.AgentSpec{Handle: "me"}, "handle"},
		"hub's own":         {identity.AgentSpec{Handle: "admin"}, "handle"},
		"an id":             {identity.AgentSpec{Handle: "0190a1b2-0000-7000-8000-000000000000"}, "handle"},
		"kind":              {identity.AgentSpec{Handle: "a1", Kind: "hub"}, "kind"},
		"access":            {identity.AgentSpec{Handle: "a1", Access: ptr("everyone")}, "access"},
		"long description":  {identity.AgentSpec{Handle: "a1", Description: ptr(strings.Repeat("x", 4001))}, "description"},
		"broken text":       {identity.AgentSpec{Handle: "a1", Description: ptr("\xff")}, "description"},
		"card":              {identity.AgentSpec{Handle: "a1", Card: bytes.Repeat([]byte(" "), 64<<10+1)}, "card"},
		"negative lease":    {identity.AgentSpec{Handle: "a1", LeaseS: ptr(-1)}, "lease_s"},
		"endless lease":     {identity.AgentSpec{Handle: "a1", LeaseS: ptr(86401)}, "lease_s"},
		"many redeliveries": {identity.AgentSpec{Handle: "a1", MaxRedeliveries: ptr(1001)}, "max_redeliveries"},
		"on_unknown":        {identity.AgentSpec{Handle: "a1", OnUnknown: ptr("guess")}, "on_unknown"},
		"no path":           {identity.AgentSpec{Handle: "a1", RelayPaths: &[]string{"/hooks/", "hooks"}}, "relay_paths"},
		"a path with dots":  {identity.AgentSpec{Handle: "a1", RelayPaths: &[]string{"/hooks/../"}}, "relay_paths"},
		"many paths":        {identity.AgentSpec{Handle: "a1", RelayPaths: ptr(slices.Repeat([]string{"/"}, 33))}, "relay_paths"},
	} {
		_, err := b.CreateAgent(t.Context(), b.admin, c.spec)
		if e := (*hub.Error)(nil); !errors.As(err, &e) || e.Kind != hub.Invalid || e.Field != c.field {
			t.Errorf("%s: %v, want an error about the field %s", name, err, c.field)
		}
	}
	_, err := b.CreateAgent(t.Context(), b.admin, identity.AgentSpec{Handle: "taken"})
	wantKind(t, "taken", err, hub.Exists)
	for _, seconds := range []int64{0, -1, 1 << 62} {
		_, _, err := b.CreateToken(t.Context(), b.admin, "taken", identity.TokenSpec{ExpiresIn: &seconds})
		wantKind(t, "expires_in", err, hub.Invalid)
	}
}

func TestUpdateAgentChangesOnlyWhatIsGiven(t *testing.T) {
	b := setup(t)
	ctx := t.Context()
	made, err := b.CreateAgent(ctx, b.admin, identity.AgentSpec{
		Handle: "alice", Description: ptr("does sums"), Card: []byte(`{"name":"Alice"}`), LeaseS: ptr(30), MaxRedeliveries: ptr(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.UpdateAgent(ctx, b.admin, "alice", identity.AgentSpec{OnUnknown: ptr("fail"), Card: []byte("null")}); err != nil {
		t.Fatal(err)
	}
	got, err := b.Agent(ctx, b.admin, made.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := *made
	want.OnUnknown, want.Card = "fail", nil
	got.CreatedAt, want.CreatedAt = time.Time{}, time.Time{} // the store keeps milliseconds
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = b.UpdateAgent(ctx, b.admin, "alice", identity.AgentSpec{Handle: "alicia"})
	wantKind(t, "new handle", err, hub.Invalid)
}

func TestSecretsAreNowhereOnDisk(t *testing.T) {
	b := setup(t)
	b.agent(t, "alice", "open")
	_, secret := b.token(t, "alice", nil)
	if !strings.HasPrefix(secret, "hf_") || len(secret) != 46 {
		t.Errorf("secret of %d characters begins with %.3s", len(secret), secret)
	}
	if _, other := b.token(t, "alice", nil); other == secret {
		t.Error("two tokens have one secret")
	}
	if _, admin := b.token(t, "admin", nil); !strings.HasPrefix(admin, "hfa_") {
		t.Errorf("an admin's secret begins with %.4s", admin)
	}
	files, err := filepath.Glob(filepath.Join(b.dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(data, []byte(secret[3:])) {
			t.Errorf("%s holds the secret", f)
		}
	}
}
