package sqlite

import (
	"context"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Claim implements hub.Transitions.
func (s *Store) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (*hub.Task, error) {
	return write(ctx, s, func(t *tx) (*hub.Task, error) { return t.claim(s.parties.n(callee), c) })
}

// claim gives the first ready task of a callee to it, nil if there is none.
func (t *tx) claim(callee int64, c hub.ClaimSpec) (*hub.Task, error) {
	r, err := t.one("SELECT "+headColumns+`FROM queue q JOIN task t ON t.n = q.task
		WHERE q.callee = ? AND q.rank IS NOT NULL ORDER BY q.rank, q.task LIMIT 1`, callee)
	if err != nil || r == nil {
		return nil, err
	}
	h := t.s.scanHead(r)
	if _, err := t.exec(`INSERT INTO mailbox (callee, floor) VALUES (?, ?)
		ON CONFLICT DO UPDATE SET floor = excluded.floor WHERE excluded.floor > floor`, callee, h.rank); err != nil {
		return nil, err
	}
	h.leaseFor, h.provisional = c.Lease, c.Ack > 0
	if h.provisional {
		h.lease(t.now, c.Ack)
	} else {
		h.lease(t.now, c.Lease)
	}
	h.Attempt++
	h.open, h.seen, h.ClaimedAt = true, h.Messages, t.now
	if h.State == hub.Working {
		err = t.saveProgress(h)
	} else {
		if err = t.setStatus(h, hub.Event{State: hub.Working}); err == nil {
			err = t.saveStatus(h)
		}
	}
	if err != nil {
		return nil, err
	}
	if err := t.saveQueue(h); err != nil {
		return nil, err
	}
	if err := t.log(h, hub.ActClaimed, callee, ""); err != nil {
		return nil, err
	}
	return &h.Task, t.s.load(t.conn, h, hub.Load{History: -1, Artifacts: true})
}

// Release implements hub.Transitions.
func (s *Store) Release(ctx context.Context, callee, task string, attempt int) error {
	return s.write(ctx, func(t *tx) error {
		h, err := t.findFor(task, callee)
		if err != nil || h == nil || h.Phase != hub.Leased || h.Attempt != attempt || !h.open {
			return err
		}
		if err := t.offer(h); err != nil {
			return err
		}
		if err := t.closeAttempt(h, attemptReleased, nil); err != nil {
			return err
		}
		if err := t.saveQueue(h); err != nil {
			return err
		}
		return t.log(h, hub.ActReleased, actorHub, "")
	})
}
