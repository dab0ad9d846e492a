package postgres

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// isAlive is true of a replica r that is not taken for dead.
	isAlive = "r.seen_at > clock_timestamp() - " + replicaSilence
	// beatSQL shows that the replica $1 is alive.
	beatSQL = `INSERT INTO replica (n, seen_at) OVERRIDING SYSTEM VALUE VALUES ($1, clock_timestamp())
		ON CONFLICT (n) DO UPDATE SET seen_at = excluded.seen_at`
	// ownLock is the advisory lock of whoever changes which replica owns what.
	ownLock = migrateLock + 3
	// ownTime is how long what a replica owns stays its own without a further sign of life.
	// It is a good deal less than replicaSilence, after which another may take it.
	ownTime = 10 * time.Second
)

// all gives the numbers of addresses, each once, without those that there are not.
func (p *parties) all(ctx context.Context, ids []string) ([]int64, error) {
	numbers := make([]int64, 0, len(ids))
	for _, id := range ids {
		n, err := p.n(ctx, id)
		if err != nil {
			return nil, err
		}
		if n != 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

// Own implements hub.Presence. It is a sign of life, too, so that what it gives is owned
// for a known time from its beginning on.
func (s *Store) Own(ctx context.Context, addresses []string) (mine []string, err error) {
	began := time.Now()
	wanted, err := s.parties.all(ctx, addresses)
	if err != nil {
		return nil, storeError(ctx, err)
	}
	owned, err := solo(ctx, s, func(t *tx) (map[int64]bool, error) {
		t.exec(beatSQL, s.replica)
		owned, settled, err := t.owned(wanted)
		if err != nil || settled {
			return owned, err
		}
		t.takeOwnership(wanted)
		owned, _, err = t.owned(wanted)
		return owned, err
	})
	switch {
	case err != nil:
		return nil, err
	case time.Since(began) > ownTime:
		return nil, hub.Errorf(hub.Unavailable, "the database took too long to tell which addresses this replica delivers to; try again")
	}
	for _, id := range addresses {
		if owned[s.parties.knownN(id)] {
			mine = append(mine, id)
		}
	}
	return mine, nil
}

// owned gives which of some addresses are this replica's. It is settled if each is
// somebody's who is alive, and this replica has no others.
func (t *tx) owned(wanted []int64) (owned map[int64]bool, settled bool, err error) {
	owned, settled = make(map[int64]bool), true
	taken := 0
	err = t.each(`SELECT o.address, o.replica = $1, o.address = ANY($2::bigint[]), `+isAlive+`
		FROM owner o JOIN replica r ON r.n = o.replica WHERE o.replica = $1 OR o.address = ANY($2::bigint[])`,
		[]any{t.s.replica, wanted}, func(r row) error {
			mine, want := r.flag(1), r.flag(2)
			switch {
			case mine && want:
				owned[r.int(0)] = true
			case mine:
				settled = false
			case r.flag(3):
				taken++
			}
			return nil
		})
	return owned, settled && len(owned)+taken == len(wanted), err
}

// takeOwnership gives up what is not wanted any more, and takes what nobody has who is
// alive. One replica does so at a time.
func (t *tx) takeOwnership(wanted []int64) {
	t.exec("SELECT pg_advisory_xact_lock($1)", int64(ownLock))
	t.exec("DELETE FROM owner WHERE replica = $1 AND NOT address = ANY($2::bigint[])", t.s.replica, wanted)
	t.exec(`INSERT INTO owner (address, replica) SELECT a.n, $1 FROM unnest($2::bigint[]) a(n)
		WHERE NOT EXISTS (SELECT 1 FROM owner o JOIN replica r ON r.n = o.replica WHERE o.address = a.n AND `+isAlive+`)
		ON CONFLICT (address) DO UPDATE SET replica = excluded.replica`, t.s.replica, wanted)
}

// Connect implements hub.Presence.
func (s *Store) Connect(ctx context.Context, i hub.Instance) error {
	n, err := s.parties.n(ctx, i.Address)
	if err != nil {
		return storeError(ctx, err)
	}
	if n == 0 {
		return hub.Errorf(hub.NotFound, "there is no address that this could be an instance of")
	}
	return s.solo(ctx, func(t *tx) error {
		// The row of a replica that could not show for a day that it is alive is gone.
		t.exec("INSERT INTO replica (n, seen_at) OVERRIDING SYSTEM VALUE VALUES ($1, clock_timestamp()) ON CONFLICT DO NOTHING", s.replica)
		t.exec(`INSERT INTO instance (address, name, replica, slots, since, url, relay) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (address, name) DO UPDATE SET replica = excluded.replica, slots = excluded.slots, since = excluded.since, url = excluded.url, relay = excluded.relay`,
			n, i.Name, s.replica, i.Slots, i.Since.UnixMilli(), optional(i.URL), optional(hub.EncodeList(i.Relay)))
		return nil
	})
}

// Disconnect implements hub.Presence.
func (s *Store) Disconnect(ctx context.Context, address, name string) error {
	n, err := s.parties.n(ctx, address)
	if err != nil {
		return storeError(ctx, err)
	}
	return s.solo(ctx, func(t *tx) error {
		t.exec("DELETE FROM instance WHERE address = $1 AND name = $2 AND replica = $3", n, name, s.replica)
		return nil
	})
}

// Moved implements hub.Presence.
func (s *Store) Moved(ctx context.Context, of []hub.Instance) (moved []hub.Instance, err error) {
	ids := make([]string, len(of))
	for i := range of {
		ids[i] = of[i].Address
	}
	if _, err := s.parties.all(ctx, ids); err != nil {
		return nil, storeError(ctx, err)
	}
	numbers, names := make([]int64, len(of)), make([][]byte, len(of))
	for i := range of {
		numbers[i], names[i] = s.parties.knownN(of[i].Address), []byte(of[i].Name)
	}
	err = s.read(ctx, func(c *conn) error {
		return c.each(`SELECT m.at, i.replica FROM unnest($1::bigint[], $2::bytea[]) WITH ORDINALITY m(address, name, at)
			JOIN instance i ON i.address = m.address AND i.name = m.name JOIN replica r ON r.n = i.replica
			WHERE i.replica <> $3 AND `+isAlive, []any{numbers, names, s.replica}, func(r row) error {
			i := of[r.int(0)-1]
			i.Replica = strconv.FormatInt(r.int(1), 10)
			moved = append(moved, i)
			return nil
		})
	})
	return moved, err
}

// Instances implements hub.Presence.
func (s *Store) Instances(ctx context.Context, address string) (list []hub.Instance, err error) {
	where, args := isAlive, []any{}
	if address != "" {
		n, err := s.parties.n(ctx, address)
		if err != nil {
			return nil, storeError(ctx, err)
		}
		where, args = where+" AND i.address = $1", append(args, n)
	}
	err = s.read(ctx, func(c *conn) error {
		var of []int64
		err := c.each(`SELECT i.address, i.name, i.slots, i.since, i.replica, i.url, i.relay FROM instance i JOIN replica r ON r.n = i.replica
			WHERE `+where+" ORDER BY i.since, i.name, i.address", args, func(r row) error {
			of = append(of, r.int(0))
			list = append(list, hub.Instance{
				Name: r.text(1), Slots: int(r.int(2)), Since: r.time(3), Replica: strconv.FormatInt(r.int(4), 10), URL: r.text(5), Relay: hub.DecodeList(r.text(6)),
			})
			return nil
		})
		if err != nil {
			return err
		}
		for i := range list {
			p, err := s.parties.party(c.ctx, of[i])
			if err != nil {
				return err
			}
			list[i].Address = p.ID
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}
