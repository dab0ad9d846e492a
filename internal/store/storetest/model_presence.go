package storetest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Own implements hub.Presence.
func (m *model) Own(ctx context.Context, addresses []string) ([]string, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return addresses, nil
}

// Connect implements hub.Presence.
func (m *model) Connect(ctx context.Context, i hub.Instance) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if !slices.ContainsFunc(m.addrs, func(a *hub.Address) bool { return a.ID == i.Address }) {
		return hub.Errorf(hub.NotFound, "there is no such address")
	}
	m.gone(i.Address, i.Name)
	i.Replica = ""
	m.instances = append(m.instances, i)
	return nil
}

func (m *model) gone(address, name string) {
	m.instances = slices.DeleteFunc(m.instances, func(i hub.Instance) bool { return i.Address == address && i.Name == name })
}

// Disconnect implements hub.Presence.
func (m *model) Disconnect(ctx context.Context, address, name string) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	m.gone(address, name)
	return nil
}

// Moved implements hub.Presence.
func (m *model) Moved(ctx context.Context, _ []hub.Instance) ([]hub.Instance, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	unlock()
	return nil, nil
}

// Instances implements hub.Presence.
func (m *model) Instances(ctx context.Context, address string) (out []hub.Instance, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	for _, i := range m.instances {
		if address == "" || i.Address == address {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b hub.Instance) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}
