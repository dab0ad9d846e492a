package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// MustBeAlone refuses (Exists) to go on while replicas of the hub run, or ran a moment ago.
func (s *Store) MustBeAlone(ctx context.Context) error {
	if err := s.countPeers(ctx); err != nil {
		return storeError(ctx, err)
	}
	if s.peers.Load() {
		return hub.Errorf(hub.Exists, "replicas of the hub run on this database, or one was killed less than 15 seconds ago; stop them all, run this again, and start them")
	}
	return nil
}

// Fence sets a hub apart whose database was restored from a dump or to an earlier point in
// time, and gives how many claims were open and are taken back.
//
// What the hub did since is forgotten, but others may remember it. Workers may hold claims
// with the numbers that it would give out next, to others. So every unfinished task counts
// its claims on from a number that has the time of this in its upper bits
// (hub.AfterRestore), no claim from before may report, and what was held is taken back.
// Readers of the activity may have cursors behind the newest line: all from before are
// refused. Ids of push-notification failures go on from the same number.
func (s *Store) Fence(ctx context.Context) (takenBack int, err error) {
	if err := s.MustBeAlone(ctx); err != nil {
		return 0, err
	}
	return solo(ctx, s, func(t *tx) (takenBack int, err error) {
		if takenBack, err = t.takeAllBack(); err != nil {
			return 0, err
		}
		r, err := t.one("SELECT coalesce(max(attempt), 0) FROM queue")
		if err != nil {
			return 0, err
		}
		line := int64(hub.AfterRestore(0, t.now, int(r.int(0))))
		t.exec("UPDATE queue SET attempt = (attempt & $1) | $2, lapsed = true", int64(hub.Handouts(-1)), line)
		t.exec("UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'activity_epoch'")
		t.exec("SELECT setval(pg_get_serial_sequence('push_failure', 'id'), greatest($1, (SELECT coalesce(max(id), 0) FROM push_failure) + 1))", line)
		return takenBack, t.flush()
	})
}

// takePage is how many held tasks are in memory at a time.
const takePage = 500

// takeAllBack takes every task from its holder.
func (t *tx) takeAllBack() (n int, err error) {
	for {
		page, err := t.lockSome("phase = $1", "task", takePage, hub.Leased)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for _, h := range page {
			t.closeAttempt(h, attemptTaken, nil)
			h.open, h.lapse = false, true
			if err := t.offer(h); err != nil {
				return n, err
			}
			t.saveQueue(h)
			t.log(h, hub.ActRequeued, actorHub, "taken from its holder, since the hub was restored from a backup")
		}
		if err := t.flush(); err != nil {
			return n, err
		}
		t.heads = map[uuid.UUID]*head{}
		n += len(page)
	}
}
