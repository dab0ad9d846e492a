package storetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func (m *model) living(ref string) *hub.Address {
	for _, a := range m.addrs {
		if a.DeletedAt.IsZero() && (a.ID == ref || a.Handle == ref) {
			return a
		}
	}
	return nil
}

func noAddress() error { return hub.Errorf(hub.NotFound, "there is no such address") }

// CreateAddress implements hub.Directory.
func (m *model) CreateAddress(ctx context.Context, a hub.Address) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if m.living(a.Handle) != nil {
		return hub.Errorf(hub.Exists, "the handle %s is taken", a.Handle)
	}
	m.addrs = append(m.addrs, &a)
	return nil
}

// Address implements hub.Directory.
func (m *model) Address(ctx context.Context, ref string) (*hub.Address, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	a := m.living(ref)
	if a == nil {
		return nil, noAddress()
	}
	c := *a
	return &c, nil
}

// FormerAddress implements hub.Directory.
func (m *model) FormerAddress(ctx context.Context, ref string, by hub.Viewer) (*hub.Address, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, a := range slices.Backward(m.addrs) {
		_, sent := m.box(a.ID).last[by.Address]
		if (a.ID == ref || a.Handle == ref) && a.Kind != hub.KindHub && (sent || by.All && len(m.box(a.ID).last) > 0) {
			c := *a
			return &c, nil
		}
	}
	return nil, noAddress()
}

// Addresses implements hub.Directory.
func (m *model) Addresses(ctx context.Context) ([]hub.Address, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []hub.Address
	for _, a := range m.addrs {
		if a.DeletedAt.IsZero() && a.Kind != hub.KindHub {
			all = append(all, *a)
		}
	}
	slices.SortFunc(all, func(a, b hub.Address) int { return strings.Compare(a.Handle, b.Handle) })
	return all, nil
}

// UpdateAddress implements hub.Directory.
func (m *model) UpdateAddress(ctx context.Context, a hub.Address) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	old := m.living(a.ID)
	if old == nil {
		return noAddress()
	}
	a.Handle, a.Kind, a.CreatedAt, a.DeletedAt, a.Endpoint = old.Handle, old.Kind, old.CreatedAt, old.DeletedAt, old.Endpoint
	*old = a
	return nil
}

// SetEndpoint implements hub.Directory.
func (m *model) SetEndpoint(ctx context.Context, address string, e *hub.Endpoint) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	a := m.living(address)
	if a == nil || a.ID != address {
		return noAddress()
	}
	if a.Endpoint = nil; e != nil {
		c := *e
		a.Endpoint = &c
	}
	return nil
}

// resealEndpoints replaces the secrets of all endpoints, and drops the endpoints whose
// secrets are dropped. Nothing changes with an error.
func (m *model) resealEndpoints(f func(sealed []byte, about string) ([]byte, error)) error {
	fresh := map[*hub.Address]*hub.Endpoint{}
	for _, a := range m.addrs {
		if a.Endpoint == nil {
			continue
		}
		sealed, err := f(slices.Clone(a.Endpoint.Sealed), hub.EndpointAbout(a.ID))
		if err != nil {
			return err
		}
		if fresh[a] = nil; len(sealed) > 0 {
			c := *a.Endpoint
			c.Sealed, fresh[a] = sealed, &c
		}
	}
	for a, e := range fresh {
		a.Endpoint = e
	}
	return nil
}

// DeleteAddress implements hub.Directory.
func (m *model) DeleteAddress(ctx context.Context, id string) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	a := m.living(id)
	if a == nil {
		return noAddress()
	}
	a.DeletedAt, a.Endpoint = m.now(), nil
	for _, t := range m.tokens {
		if t.Address == id && t.RevokedAt.IsZero() {
			t.RevokedAt = m.now()
		}
	}
	return nil
}

// DeletedAddresses implements hub.Directory.
func (m *model) DeletedAddresses(ctx context.Context, before time.Time) ([]string, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []string
	for _, a := range m.addrs {
		unfinished := slices.ContainsFunc(m.tasks, func(t *modelTask) bool {
			return t.Callee.ID == a.ID && t.Phase != hub.Done
		})
		if unfinished && !a.DeletedAt.IsZero() && a.DeletedAt.Before(before) {
			all = append(all, a.ID)
		}
	}
	return all, nil
}

// CreateToken implements hub.Directory.
func (m *model) CreateToken(ctx context.Context, t hub.Token) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if slices.ContainsFunc(m.tokens, func(x *hub.Token) bool { return x.Hash == t.Hash }) {
		return hub.Errorf(hub.Exists, "another token has that hash")
	}
	t.Handle = m.party(t.Address).Handle
	m.tokens = append(m.tokens, &t)
	return nil
}

// TokenByHash implements hub.Directory.
func (m *model) TokenByHash(ctx context.Context, hash [32]byte) (*hub.Token, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, t := range m.tokens {
		if t.Hash == hash && t.RevokedAt.IsZero() && (t.ExpiresAt.IsZero() || m.now().Before(t.ExpiresAt)) {
			c := *t
			return &c, nil
		}
	}
	return nil, hub.Errorf(hub.NotFound, "there is no such token")
}

// Tokens implements hub.Directory.
func (m *model) Tokens(ctx context.Context, address string) ([]hub.Token, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []hub.Token
	for _, t := range m.tokens {
		if (address == "" || t.Address == address) && t.RevokedAt.IsZero() {
			all = append(all, *t)
		}
	}
	return all, nil
}

// RevokeToken implements hub.Directory.
func (m *model) RevokeToken(ctx context.Context, id string) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, t := range m.tokens {
		if t.ID == id && t.RevokedAt.IsZero() {
			t.RevokedAt = m.now()
			return nil
		}
	}
	return hub.Errorf(hub.NotFound, "there is no such token")
}
