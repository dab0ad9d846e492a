package sqlite

import (
	"sync"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// parties maps addresses between their public ids and the small numbers that rows
// use. None of a party ever changes, so the map only grows.
type parties struct {
	mu  sync.RWMutex
	byN map[int64]hub.Party
	ns  map[string]int64
}

func (p *parties) load(c *conn) error {
	return c.each("SELECT n, id, handle, kind FROM address", nil, func(r row) (bool, error) {
		p.add(r.int(0), hub.Party{ID: r.text(1), Handle: r.text(2), Kind: hub.AddressKind(r.int(3))})
		return true, nil
	})
}

func (p *parties) add(n int64, a hub.Party) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byN == nil {
		p.byN, p.ns = make(map[int64]hub.Party), make(map[string]int64)
	}
	p.byN[n], p.ns[a.ID] = a, n
}

// n is the number of an address id, 0 (which no row has) if there is none.
func (p *parties) n(id string) int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.ns[id]
}

func (p *parties) party(n int64) hub.Party {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.byN[n]
}
