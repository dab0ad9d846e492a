package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func number(n int) string { return strconv.Itoa(n) }

// Sweep implements hub.Transitions. Several replicas may sweep at once: each takes what
// no other has.
func (s *Store) Sweep(ctx context.Context, limit int, leases bool, l hub.Limits) (hub.Swept, error) {
	return write(ctx, s, needs{}, func(t *tx) (hub.Swept, error) {
		list, err := t.lockSome("due_at <= $1 AND ($2::boolean OR phase <> $3 OR deadline <= $1)", "due_at, n", limit, t.now, leases, hub.Leased)
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
	r, err := t.one("SELECT min(due_at) FROM queue WHERE due_at > $1", t.now)
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
	t.saveQueue(h)
	return nil
}

// takeUnconfirmed offers a task again whose hand-out nobody confirmed.
func (t *tx) takeUnconfirmed(h *head) error {
	h.lapse = true
	t.closeAttempt(h, attemptUnconfirmed, nil)
	if err := t.offer(h); err != nil {
		return err
	}
	t.saveQueue(h)
	t.log(h, hub.ActUnconfirmed, actorHub, "")
	return nil
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
	t.closeAttempt(h, x.outcome, nil)
	if h.Failures > redeliveries {
		return t.fail(h, x.end())
	}
	h.Phase, h.ranked, h.Due = hub.Ready, false, t.now.Add(max(l.Backoff(h.Failures), x.after))
	h.provisional = false
	if !h.Deadline.IsZero() && h.Deadline.Before(h.Due) {
		h.Due = h.Deadline
	}
	t.saveQueue(h)
	detail := fmt.Sprintf("failure %d of at most %d", h.Failures, redeliveries+1)
	if x.detail != "" {
		detail += ": " + x.detail
	}
	t.log(h, x.kind, actorHub, detail)
	return nil
}

// redeliveries is how often the callee's tasks are redelivered.
func (t *tx) redeliveries(h *head, l hub.Limits) (int, error) {
	n, known := t.redelivery[h.callee]
	if !known {
		r, err := t.one("SELECT max_redeliveries FROM address WHERE n = $1", h.callee)
		if err != nil {
			return 0, err
		}
		n = -1
		if r != nil {
			n = int(r.int(0))
		}
		if t.redelivery == nil {
			t.redelivery = map[int64]int{}
		}
		t.redelivery[h.callee] = n
	}
	if n < 0 {
		return l.Redeliveries, nil
	}
	return n, nil
}

// pruneRowsMax is about how many rows one prune removes of each kind, so that the
// transitions of others do not wait long.
const pruneRowsMax = 4_000

// Prune implements hub.Transitions.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (hub.Pruned, error) {
	return solo(ctx, s, func(t *tx) (hub.Pruned, error) {
		var tasks []uuid.UUID
		var rows int64
		err := t.each(`SELECT id, seq * (1 + pushes) + messages + (attempt & 1048575) FROM task t WHERE ended_at < $1 AND
			(ended_at <= $2 OR NOT EXISTS (SELECT 1 FROM idempotency i WHERE i.task = t.id)) AND
			(pushes = 0 OR NOT EXISTS (SELECT 1 FROM push p WHERE p.task = t.id AND p.due_at > $4))
			ORDER BY ended_at LIMIT $3 FOR UPDATE SKIP LOCKED`,
			[]any{before, t.now.Add(-keyLife), limit, t.now.Add(-hub.PushPatience)}, func(r row) error {
				if rows < pruneRowsMax {
					tasks = append(tasks, r.id(0))
				}
				rows += r.int(1)
				return nil
			})
		out := hub.Pruned{Tasks: len(tasks), More: len(tasks) == limit || rows >= pruneRowsMax}
		if err != nil {
			return out, err
		}
		left := s.weeks.toDelete(tasks, before)
		if len(tasks) > 0 {
			t.remove(tasks, left)
		}
		lines, err := t.execNow(`DELETE FROM activity WHERE ctid = ANY(ARRAY(SELECT ctid FROM activity ORDER BY xid, id LIMIT $1)) AND at < $2`, pruneRowsMax, before)
		out.More = out.More || lines == pruneRowsMax
		return out, err
	})
}

// remove deletes tasks with all that is theirs, but of what is partitioned only that of
// those in left: the rest goes with its partition.
func (t *tx) remove(tasks, left []uuid.UUID) {
	if len(left) > 0 {
		for _, p := range partitioned {
			t.exec("DELETE FROM "+p.name+" WHERE task = ANY($1::uuid[])", left)
		}
	}
	// Who looks for cancels to tell of looks for these alone, and not at the tasks.
	t.exec("DELETE FROM dispatch WHERE task = ANY($1::uuid[]) AND untold_at IS NOT NULL", tasks)
	for _, table := range []string{"idempotency", "push_failure", "push"} {
		t.exec("DELETE FROM "+table+" WHERE task = ANY($1::uuid[])", tasks)
	}
	t.exec("DELETE FROM task WHERE id = ANY($1::uuid[])", tasks)
}

// MarkRead implements hub.Transitions.
func (s *Store) MarkRead(ctx context.Context, marks []hub.ReadMark) error {
	if len(marks) == 0 {
		return ctx.Err()
	}
	return s.solo(ctx, func(t *tx) error {
		var ids []uuid.UUID
		var polls []int64
		var ends []bool
		for _, m := range marks {
			if id, ok := parseID(m.Task); ok {
				ids, polls, ends = append(ids, id), append(polls, int64(m.Polls)), append(ends, m.End)
			}
		}
		t.exec("SET LOCAL synchronous_commit = off") // may be lost in a crash
		t.lockTasks(&plan{tasks: ids})
		t.exec(`UPDATE task t SET polls = t.polls + x.polls, polled_at = CASE WHEN x.polls > 0 THEN $4 ELSE t.polled_at END,
				read_at = CASE WHEN x.ended AND t.read_at IS NULL AND t.ended_at IS NOT NULL THEN $4 ELSE t.read_at END
			FROM (SELECT id, sum(polls) AS polls, bool_or(ended) AS ended FROM unnest($1::uuid[], $2::bigint[], $3::boolean[]) x(id, polls, ended) GROUP BY id) x
			WHERE t.id = x.id`, ids, polls, ends, t.now)
		return nil
	})
}
