package sqlite

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// presence is the instances that are connected. A database in a file has one hub, so
// they end with it.
type presence struct {
	mu        sync.Mutex
	instances map[instanceKey]hub.Instance
}

type instanceKey struct{ address, name string }

// present reports whether what asks of presence may be answered.
func (s *Store) present(ctx context.Context) error {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return errClosed
	}
	return ctx.Err()
}

// Own implements hub.Presence: there is no other replica.
func (s *Store) Own(ctx context.Context, addresses []string) ([]string, error) {
	if err := s.present(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(addresses), nil
}

// Connect implements hub.Presence.
func (s *Store) Connect(ctx context.Context, i hub.Instance) error {
	if err := s.present(ctx); err != nil {
		return err
	}
	if s.parties.n(i.Address) == 0 {
		return hub.Errorf(hub.NotFound, "there is no address that this could be an instance of")
	}
	i.Replica, i.Since = "", i.Since.Truncate(time.Millisecond).UTC()
	p := &s.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.instances == nil {
		p.instances = make(map[instanceKey]hub.Instance)
	}
	p.instances[instanceKey{i.Address, i.Name}] = i
	return nil
}

// Disconnect implements hub.Presence.
func (s *Store) Disconnect(ctx context.Context, address, name string) error {
	if err := s.present(ctx); err != nil {
		return err
	}
	p := &s.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.instances, instanceKey{address, name})
	return nil
}

// Moved implements hub.Presence: there is no other replica.
func (s *Store) Moved(ctx context.Context, _ []hub.Instance) ([]hub.Instance, error) {
	return nil, s.present(ctx)
}

// Instances implements hub.Presence.
func (s *Store) Instances(ctx context.Context, address string) (list []hub.Instance, err error) {
	if err := s.present(ctx); err != nil {
		return nil, err
	}
	p := &s.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.instances {
		if address == "" || i.Address == address {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b hub.Instance) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Address, b.Address))
	})
	return list, nil
}
