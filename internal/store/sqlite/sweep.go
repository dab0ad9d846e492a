package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Sweep implements hub.Transitions.
func (s *Store) Sweep(ctx context.Context, limit int, leases bool, l hub.Limits) (hub.Swept, error) {
	return write(ctx, s, func(t *tx) (hub.Swept, error) {
		if s.health() != nil {
			// Find out whether the disk takes writes again, on an idle hub, too: 256 KiB,
			// since a disk that has room for a page or two is still full.
			if _, err := t.exec("INSERT INTO meta VALUES ('probe', hex(randomblob(131072))) ON CONFLICT DO UPDATE SET value = excluded.value"); err != nil {
				return hub.Swept{}, err
			}
			t.probe = true
		}
		list, err := t.heads("SELECT "+headColumns+`FROM queue q JOIN task t ON t.n = q.task
			WHERE q.due_at <= ?1 AND (?2 OR q.phase <> ?3 OR q.deadline <= ?1) ORDER BY q.due_at, q.task LIMIT ?4`,
			t.now, leases, hub.Leased, limit)
		out := hub.Swept{Changed: len(list), More: len(list) == limit}
		if err != nil {
			return out, err
		}
		for _, h := range list {
			if err := t.sweepOne(h, l, &out); err != nil {
				return out, err
			}
		}
		out.Next, err = t.nextDue()
		return out, err
	})
}

// nextDue is how long until something is due that is not yet; negative for never.
func (t *tx) nextDue() (time.Duration, error) {
	r, err := t.one("SELECT min(due_at) FROM queue WHERE due_at > ?", t.now)
	if err != nil || r.null(0) {
		return -1, err
	}
	return r.time(0).Sub(t.now), nil
}

func (t *tx) sweepOne(h *head, l hub.Limits, out *hub.Swept) error {
	switch {
	case !h.Deadline.IsZero() && !t.now.Before(h.Deadline):
		out.Tasks = append(out.Tasks, h.ID)
		return t.fail(h, "the task did not end by its deadline, "+h.Deadline.Format(time.RFC3339))
	case h.Phase == hub.Leased && h.provisional:
		out.Ready = append(out.Ready, h.Callee.ID)
		return t.takeUnconfirmed(h)
	case h.Phase == hub.Leased:
		return t.leaseLost(h, l, out)
	}
	out.Ready = append(out.Ready, h.Callee.ID)
	if err := t.offer(h); err != nil {
		return err
	}
	return t.saveQueue(h)
}

// takeUnconfirmed offers a task again whose hand-out nobody confirmed.
func (t *tx) takeUnconfirmed(h *head) error {
	h.lapse = true
	if err := t.closeAttempt(h, attemptUnconfirmed, nil); err != nil {
		return err
	}
	if err := t.offer(h); err != nil {
		return err
	}
	if err := t.saveQueue(h); err != nil {
		return err
	}
	return t.log(h, hub.ActUnconfirmed, actorHub, "")
}

// leaseLost deals with a claim whose lease ran out.
func (t *tx) leaseLost(h *head, l hub.Limits, out *hub.Swept) error {
	err := t.lost(h, l, loss{outcome: attemptExpired, kind: hub.ActLeaseExpired, end: func() string {
		return fmt.Sprintf("the task was delivered %d times and each time its callee went silent before the lease of %s ran out",
			h.Failures, h.leaseFor)
	}})
	if h.Phase == hub.Done {
		out.Tasks = append(out.Tasks, h.ID)
	}
	return err
}

// loss is how a delivery was lost.
type loss struct {
	outcome int // of the attempt
	kind    hub.ActivityKind
	detail  string        // for the activity; may be empty
	after   time.Duration // the least wait before it is offered again
	end     func() string // why the task fails if this was once too often
}

// lost counts a failure, and offers the task again after a backoff or, when it has been
// redelivered often enough, fails it.
func (t *tx) lost(h *head, l hub.Limits, x loss) error {
	redeliveries, err := t.redeliveries(h, l)
	if err != nil {
		return err
	}
	h.lapse = true
	h.Failures++
	if err := t.closeAttempt(h, x.outcome, nil); err != nil {
		return err
	}
	if h.Failures > redeliveries {
		return t.fail(h, x.end())
	}
	h.Phase, h.ranked, h.Due = hub.Ready, false, t.now.Add(max(l.Backoff(h.Failures), x.after))
	h.provisional = false
	if !h.Deadline.IsZero() && h.Deadline.Before(h.Due) {
		h.Due = h.Deadline
	}
	if err := t.saveQueue(h); err != nil {
		return err
	}
	detail := fmt.Sprintf("failure %d of at most %d", h.Failures, redeliveries+1)
	if x.detail != "" {
		detail += ": " + x.detail
	}
	return t.log(h, x.kind, actorHub, detail)
}

// redeliveries is how often the callee's tasks are redelivered.
func (t *tx) redeliveries(h *head, l hub.Limits) (int, error) {
	r, err := t.one("SELECT max_redeliveries FROM address WHERE n = ?", h.callee)
	if err != nil || r == nil || r.int(0) < 0 {
		return l.Redeliveries, err
	}
	return int(r.int(0)), nil
}

// Prune implements hub.Transitions.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (hub.Pruned, error) {
	return write(ctx, s, func(t *tx) (hub.Pruned, error) {
		var tasks []int64
		var rows int64
		err := t.each(`SELECT n, seq * (1 + pushes) + messages + (attempt & 0xFFFFF) FROM task WHERE ended_at < ?1 AND
			(ended_at <= ?2 OR NOT EXISTS (SELECT 1 FROM idempotency WHERE k >= task.n << 20 AND k < (task.n + 1) << 20)) AND
			(pushes = 0 OR NOT EXISTS (SELECT 1 FROM push WHERE k >= task.n << 20 AND k < (task.n + 1) << 20 AND due_at > ?4)) ORDER BY ended_at LIMIT ?3`,
			[]any{before, t.now.Add(-keyLife), limit, t.now.Add(-hub.PushPatience)}, func(r row) (bool, error) {
				tasks = append(tasks, r.int(0))
				rows += r.int(1)
				return rows < pruneRowsMax, nil
			})
		out := hub.Pruned{Tasks: len(tasks), More: len(tasks) == limit || rows >= pruneRowsMax}
		if err != nil {
			return out, err
		}
		for _, task := range tasks {
			if err := t.remove(task); err != nil {
				return out, err
			}
		}
		lines, err := t.exec("DELETE FROM activity WHERE id IN (SELECT id FROM activity ORDER BY id LIMIT ?) AND at < ?", pruneRowsMax, before)
		if err != nil || lines == 0 {
			return out, err
		}
		out.More = out.More || lines == pruneRowsMax
		_, err = t.exec("UPDATE meta SET value = ? WHERE key = 'activity_pruned'", strconv.FormatInt(t.s.lastLine, 10))
		return out, err
	})
}

// pruneRowsMax is about how many rows one prune removes of each kind, so that the
// transitions of others do not wait long.
const pruneRowsMax = 4_000

// remove deletes a task with all that is its.
func (t *tx) remove(task int64) error {
	for _, table := range []string{"event", "message", "attempt", "dispatch"} {
		if _, err := t.exec("DELETE FROM "+table+" WHERE k >= ? AND k <= ?", key(task, 0), key(task, maxNumber)); err != nil {
			return err
		}
	}
	if _, err := t.exec("DELETE FROM push WHERE k >= ? AND k <= ?", key(task, 0), key(task, maxNumber)); err != nil {
		return err
	}
	if err := t.dropKeys(task); err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM artifact WHERE task = ?", task); err != nil {
		return err
	}
	_, err := t.exec("DELETE FROM task WHERE n = ?", task)
	return err
}

// MarkRead implements hub.Transitions.
func (s *Store) MarkRead(ctx context.Context, marks []hub.ReadMark) error {
	return s.write(ctx, func(t *tx) error {
		for _, m := range marks {
			// Most marks are of an end that was read; others leave its index alone.
			sql := "UPDATE task SET polls = polls + ?1, polled_at = iif(?1 > 0, ?2, polled_at) WHERE id = ?3"
			if m.End {
				sql = `UPDATE task SET polls = polls + ?1, polled_at = iif(?1 > 0, ?2, polled_at),
					read_at = iif(read_at IS NULL AND ended_at IS NOT NULL, ?2, read_at) WHERE id = ?3`
			}
			if _, err := t.exec(sql, m.Polls, t.now, m.Task); err != nil {
				return err
			}
		}
		return nil
	})
}
