package postgres

import (
	"context"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// parties maps addresses between their public ids and the small numbers that rows
// use. None of a party ever changes, so what is known stays known; what another replica
// has added is looked up when it is met.
type parties struct {
	pool *pgxpool.Pool
	mu   sync.RWMutex
	byN  map[int64]hub.Party
	ns   map[string]int64
}

// load learns all that there are.
func (p *parties) load(ctx context.Context) error { return p.query(ctx, "true") }

// query learns those that a condition is true of.
func (p *parties) query(ctx context.Context, where string, args ...any) error {
	rows, err := p.pool.Query(ctx, "SELECT n, id, handle, kind FROM address WHERE "+where, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		r := row(rows.RawValues())
		p.add(r.int(0), hub.Party{ID: r.text(1), Handle: r.text(2), Kind: hub.AddressKind(r.int(3))})
	}
	return rows.Err()
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
func (p *parties) n(ctx context.Context, id string) (int64, error) {
	if n := p.knownN(id); n != 0 || !isText(id) || id == "" {
		return n, nil
	}
	err := p.query(ctx, "id = $1", id)
	return p.knownN(id), err
}

func (p *parties) knownN(id string) int64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.ns[id]
}

// party is who has a number.
func (p *parties) party(ctx context.Context, n int64) (hub.Party, error) {
	if a, ok := p.known(n); ok || n == 0 {
		return a, nil
	}
	err := p.query(ctx, "n = $1", n)
	a, _ := p.known(n)
	return a, err
}

func (p *parties) known(n int64) (hub.Party, bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	a, ok := p.byN[n]
	return a, ok
}

// isText reports whether PostgreSQL could hold s as text; what it could not is the name
// of nothing.
func isText(s string) bool { return utf8.ValidString(s) && !strings.Contains(s, "\x00") }
