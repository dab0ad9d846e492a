package storetest

import (
	"context"
	"maps"
	"slices"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Secret implements hub.Secrets.
func (m *model) Secret(ctx context.Context, name string) ([]byte, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	sealed, ok := m.secrets[name]
	if !ok {
		return nil, hub.Errorf(hub.NotFound, "there is no such secret")
	}
	return slices.Clone(sealed), nil
}

// AddSecret implements hub.Secrets.
func (m *model) AddSecret(ctx context.Context, name string, sealed []byte) ([]byte, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if _, ok := m.secrets[name]; !ok {
		m.secrets[name] = slices.Clone(sealed)
	}
	return slices.Clone(m.secrets[name]), nil
}

// Reseal implements hub.Secrets.
func (m *model) Reseal(ctx context.Context, f func(sealed []byte, about string) ([]byte, error), name string, value []byte) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	fresh := maps.Clone(m.secrets)
	for n, sealed := range m.secrets {
		if f == nil || n == name {
			continue
		}
		if fresh[n], err = f(slices.Clone(sealed), n); err != nil {
			return err
		}
		if len(fresh[n]) == 0 {
			delete(fresh, n)
		}
	}
	if f != nil {
		if err := m.resealPushes(f); err != nil {
			return err
		}
		if err := m.resealEndpoints(f); err != nil {
			return err
		}
	}
	fresh[name] = slices.Clone(value)
	m.secrets = fresh
	return nil
}
