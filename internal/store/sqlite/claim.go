package sqlite

import (
	"context"
	"fmt"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Claim implements hub.Transitions.
func (s *Store) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (hub.Claimed, error) {
	return write(ctx, s, func(t *tx) (hub.Claimed, error) { return t.claim(s.parties.n(callee), c) })
}

// claim gives the first ready task of a callee to it, if there is one. One that was
// handed out too often, to be given back each time, fails instead.
func (t *tx) claim(callee int64, c hub.ClaimSpec) (out hub.Claimed, err error) {
	for {
		h, err := t.firstReady(callee)
		if err != nil || h == nil {
			return out, err
		}
		if c.Attempts <= 0 || h.Handouts() < c.Attempts {
			out.Task, err = t.take(h, c)
			return out, err
		}
		if err := t.fail(h, fmt.Sprintf("the task was handed out %d times and nobody did it", h.Handouts())); err != nil {
			return out, err
		}
		out.Failed = append(out.Failed, h.ID)
	}
}

func (t *tx) firstReady(callee int64) (*head, error) {
	r, err := t.one("SELECT "+headColumns+`FROM queue q JOIN task t ON t.n = q.task
		WHERE q.callee = ? AND q.rank IS NOT NULL ORDER BY q.rank, q.task LIMIT 1`, callee)
	if err != nil || r == nil {
		return nil, err
	}
	return t.s.scanHead(r), nil
}

// take gives a ready task to its callee.
func (t *tx) take(h *head, c hub.ClaimSpec) (*hub.Task, error) {
	if _, err := t.exec(`INSERT INTO mailbox (callee, floor) VALUES (?, ?)
		ON CONFLICT DO UPDATE SET floor = excluded.floor WHERE excluded.floor > floor`, h.callee, h.rank); err != nil {
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
	if err := t.saveClaimed(h); err != nil {
		return nil, err
	}
	if err := t.saveQueue(h); err != nil {
		return nil, err
	}
	if err := t.log(h, hub.ActClaimed, h.callee, ""); err != nil {
		return nil, err
	}
	if c.Dispatch != nil && h.Handouts() == 1 {
		if err := t.noteDispatch(h, c.Dispatch); err != nil {
			return nil, err
		}
		h.Dispatched = true
	}
	return &h.Task, t.s.load(t.conn, h, hub.Load{History: -1, Artifacts: true})
}

// saveClaimed writes the row of a task that was claimed, which is working from now on
// if it was not before.
func (t *tx) saveClaimed(h *head) error {
	if h.State == hub.Working {
		return t.saveProgress(h)
	}
	if err := t.setStatus(h, hub.Event{State: hub.Working}); err != nil {
		return err
	}
	return t.saveStatus(h)
}

// Release implements hub.Transitions.
func (s *Store) Release(ctx context.Context, callee, task string, attempt int) error {
	return s.write(ctx, func(t *tx) error {
		h, err := t.heldBy(task, callee, attempt)
		if err != nil {
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

// heldBy gives the task that a claim of the callee holds, for a change.
func (t *tx) heldBy(task, callee string, attempt int) (*head, error) {
	h, err := t.findFor(task, callee)
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, hub.ErrTaskNotFound()
	case attempt < 1 || attempt > h.Attempt:
		return nil, hub.ErrNoSuchClaim()
	case h.Phase != hub.Leased || h.Attempt != attempt || !h.open:
		return nil, hub.ErrClaimLapsed()
	}
	return h, nil
}

// Lose implements hub.Transitions.
func (s *Store) Lose(ctx context.Context, l hub.Loss) (*hub.Task, error) {
	return write(ctx, s, func(t *tx) (*hub.Task, error) {
		h, err := t.heldBy(l.Task, l.Callee, l.Attempt)
		if err != nil {
			return nil, err
		}
		err = t.lost(h, l.Limits, loss{
			outcome: attemptLost, kind: hub.ActLost, detail: l.Reason, after: l.After,
			end: func() string {
				return fmt.Sprintf("the task was delivered %d times in vain; the last time, %s", h.Failures, l.Reason)
			},
		})
		if err != nil {
			return nil, err
		}
		return &h.Task, t.s.load(t.conn, h, hub.Load{})
	})
}
