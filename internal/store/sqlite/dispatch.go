package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// dispatchColumns are those of a dispatch, with what is needed of its task.
const dispatchColumns = `d.k, d.attempt, d.address, d.kind, d.instance, d.remote_task, d.remote_context, d.begun_at, d.ended_at,
	d.sent, d.outcome, d.took_us, d.status, d.detail, t.id, iif(d.untold_at IS NULL, t.ended_at, NULL) `

// scanDispatch reads dispatchColumns.
func (s *Store) scanDispatch(r row) (hub.Dispatch, int64) {
	d := hub.Dispatch{
		Task: r.text(14), Attempt: int(r.int(1)), Address: s.parties.party(r.int(2)).ID, Kind: r.text(3), Instance: r.text(4),
		RemoteTask: r.text(5), RemoteContext: r.text(6), BegunAt: r.time(7), EndedAt: r.time(8),
		Sent: r.flag(9), Outcome: r.text(10), Took: time.Duration(r.int(11)) * time.Microsecond, Status: int(r.int(12)), Detail: r.text(13),
	}
	d.EndWithTask(r.time(15), s.opt.Now())
	return d, r.int(0)
}

// BeginDispatch implements hub.Dispatches.
func (s *Store) BeginDispatch(ctx context.Context, d hub.Dispatch) (*hub.Dispatch, error) {
	return write(ctx, s, func(t *tx) (*hub.Dispatch, error) {
		h, err := t.heldBy(d.Task, d.Address, d.Attempt)
		if err != nil {
			return nil, err
		}
		if err := t.noteDispatch(h, &d); err != nil {
			return nil, err
		}
		if h.Handouts() < 2 {
			return nil, nil //nolint:nilnil // there is no earlier one, as the interface says
		}
		return t.earlierDispatch(h)
	})
}

// noteDispatch writes a dispatch of the claim that holds a task.
func (t *tx) noteDispatch(h *head, d *hub.Dispatch) error {
	_, err := t.exec(`INSERT INTO dispatch (k, attempt, address, kind, instance, begun_at, sent, took_us, status) VALUES (?,?,?,?,?,?,?,0,0)
		ON CONFLICT DO UPDATE SET kind = excluded.kind, instance = excluded.instance, sent = sent OR excluded.sent`,
		attemptKey(h.n, h.Attempt), h.Attempt, h.callee, d.Kind, optional(d.Instance), t.now, d.Sent)
	return err
}

// earlierDispatch ends the dispatches of a task's earlier claims, and gives the newest of
// those that may have reached its callee.
func (t *tx) earlierDispatch(h *head) (earlier *hub.Dispatch, err error) {
	from, to := key(h.n, 0), attemptKey(h.n, h.Attempt)
	if _, err := t.exec("UPDATE dispatch SET "+endDispatch+" WHERE k > ?2 AND k < ?3 AND ended_at IS NULL", t.now, from, to); err != nil {
		return nil, err
	}
	r, err := t.one("SELECT "+dispatchColumns+`FROM dispatch d JOIN task t ON t.n = d.k >> 20
		WHERE d.k > ? AND d.k < ? AND (d.sent OR d.remote_task IS NOT NULL) ORDER BY d.k DESC LIMIT 1`, from, to)
	if err != nil || r == nil {
		return nil, err
	}
	d, _ := t.s.scanDispatch(r)
	return &d, nil
}

// endDispatch ends a dispatch at ?1. Who was at it and did not say what became of it may
// have sent it.
const endDispatch = "sent = sent OR outcome IS NULL, outcome = coalesce(outcome, '" + hub.DispatchLost + "'), ended_at = ?1, untold_at = NULL"

// dispatch gives the key of a dispatch, NotFound if there is none.
func (t *tx) dispatch(task string, attempt int) (int64, error) {
	r, err := t.one("SELECT d.k FROM task t JOIN dispatch d ON d.k = (t.n << 20 | ?2) WHERE t.id = ?1 AND d.attempt = ?3", task, hub.Handouts(attempt), attempt)
	if err != nil {
		return 0, err
	}
	if r == nil {
		return 0, hub.ErrDispatchNotFound()
	}
	return r.int(0), nil
}

// LinkDispatch implements hub.Dispatches.
func (s *Store) LinkDispatch(ctx context.Context, task string, attempt int, remoteTask, remoteContext string) error {
	return s.write(ctx, func(t *tx) error {
		k, err := t.dispatch(task, attempt)
		if err != nil {
			return err
		}
		_, err = t.exec("UPDATE dispatch SET remote_task = ?, remote_context = ?, sent = 1 WHERE k = ?", optional(remoteTask), optional(remoteContext), k)
		return err
	})
}

// EndDispatch implements hub.Dispatches.
func (s *Store) EndDispatch(ctx context.Context, e hub.DispatchEnd) error {
	return s.write(ctx, func(t *tx) error {
		k, err := t.dispatch(e.Task, e.Attempt)
		if err != nil {
			return err
		}
		_, err = t.exec(`UPDATE dispatch SET outcome = ?, took_us = ?, sent = (? OR remote_task IS NOT NULL), status = ?, detail = ?,
			ended_at = iif(?6, ended_at, ?7), untold_at = iif(?6, untold_at, NULL),
			remote_context = iif(remote_task IS NULL, ?9, remote_context), remote_task = coalesce(remote_task, ?8) WHERE k = ?10`,
			e.Outcome, e.Took.Microseconds(), e.Sent, e.Status, optional(e.Detail), e.Keep, t.now, optional(e.RemoteTask), optional(e.RemoteContext), k)
		return err
	})
}

// dispatchOrder is the order of lists of dispatches.
const dispatchOrder = "d"

// ListDispatches implements hub.Dispatches.
func (s *Store) ListDispatches(ctx context.Context, f hub.DispatchFilter) (page hub.DispatchPage, err error) {
	if f.Limit <= 0 {
		f.Limit = defaultPageLimit
	}
	var at, before int64
	if f.Cursor != "" {
		if at, before, err = parseCursor(dispatchOrder, f.Cursor); err != nil {
			return page, err
		}
	}
	if f.Task == "" && f.Address == "" {
		return page, nil
	}
	err = s.read(ctx, func(c *conn) error {
		where, order, err := s.whichDispatches(c, &f, at, before)
		if err != nil {
			return err
		}
		var last int64
		return c.each("SELECT "+dispatchColumns+"FROM dispatch d JOIN task t ON t.n = d.k >> 20 WHERE "+where.sql()+order, append(where.args, f.Limit+1), func(r row) (bool, error) {
			if n := len(page.Dispatches); n == f.Limit {
				page.Next = makeCursor(dispatchOrder, page.Dispatches[n-1].BegunAt.UnixMilli(), last)
				return false, nil
			}
			d, k := s.scanDispatch(r)
			page.Dispatches, last = append(page.Dispatches, d), k
			return true, nil
		})
	})
	if err != nil {
		return hub.DispatchPage{}, err
	}
	return page, nil
}

// whichDispatches turns a filter into a condition that an index serves, and the order of
// the list: what comes after a place in it, if before is not 0.
func (s *Store) whichDispatches(c *conn, f *hub.DispatchFilter, at, before int64) (where condition, order string, err error) {
	if f.Task == "" {
		where.and("d.address = ?", s.refN(f.Address))
		if before != 0 {
			where.and("(d.begun_at, d.k) < (?, ?)", at, before)
		}
		return where, " ORDER BY d.begun_at DESC, d.k DESC LIMIT ?", nil
	}
	r, err := c.one("SELECT n FROM task WHERE id = ?", f.Task)
	if err != nil {
		return where, "", err
	}
	var task int64 // 0 is none's
	if r != nil {
		task = r.int(0)
	}
	to := key(task, maxNumber)
	if before != 0 {
		to = min(to, before-1)
	}
	where.and("d.k > ? AND d.k <= ?", key(task, 0), to)
	if f.Address != "" {
		where.and("+d.address = ?", s.refN(f.Address))
	}
	return where, " ORDER BY d.k DESC LIMIT ?", nil
}

// CanceledDispatches implements hub.Dispatches.
func (s *Store) CanceledDispatches(ctx context.Context, addresses []string, after time.Duration, limit int) (list []hub.Dispatch, err error) {
	until := s.opt.Now().Add(-after)
	err = s.read(ctx, func(c *conn) error {
		for _, a := range addresses {
			err := c.each("SELECT "+dispatchColumns+`FROM dispatch d JOIN task t ON t.n = d.k >> 20
				WHERE d.address = ? AND d.untold_at IS NOT NULL AND d.begun_at <= ? ORDER BY d.begun_at, d.k LIMIT ?`,
				[]any{s.refN(a), until, limit}, func(r row) (bool, error) {
					d, _ := s.scanDispatch(r)
					list = append(list, d)
					return true, nil
				})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, nil
}

// untold notes that the callee of a task has to be told of its cancel, if the task has an
// open dispatch; false if not.
func (t *tx) untold(h *head) (bool, error) {
	if h.Handouts() == 0 {
		return false, nil
	}
	n, err := t.exec("UPDATE dispatch SET untold_at = ? WHERE k > ? AND k <= ? AND ended_at IS NULL", t.now, key(h.n, 0), key(h.n, maxNumber))
	return n > 0, err
}

// SettleCancel implements hub.Dispatches.
func (s *Store) SettleCancel(ctx context.Context, task string, attempt int, o hub.CancelOutcome) error {
	return s.write(ctx, func(t *tx) error {
		k, err := t.dispatch(task, attempt)
		if err != nil {
			return err
		}
		h, err := s.find(t.conn, hub.TaskRef{ID: task}, hub.Viewer{All: true})
		if err != nil {
			return err
		}
		if h == nil || h.State != hub.Canceled {
			return errNotCanceled()
		}
		if _, err := t.exec("UPDATE dispatch SET "+endDispatch+" WHERE k = ?2 AND ended_at IS NULL", t.now, k); err != nil {
			return err
		}
		if h.CancelOutcome != hub.CancelUnconfirmed || o == hub.CancelUnconfirmed {
			return nil
		}
		if err := t.setOutcome(h, o); err != nil {
			return err
		}
		return t.log(h, hub.ActCancelSeen, h.callee, hub.SettledCancel(o))
	})
}

func errNotCanceled() error {
	return hub.Errorf(hub.Conflict, "the task was not canceled, so there is no cancel to settle")
}
