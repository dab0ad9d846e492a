package postgres

import (
	"context"
	"encoding/binary"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// dispatchColumns are those of a dispatch, with what is needed of its task.
const dispatchColumns = `d.task, d.n, d.address, d.kind, d.instance, d.remote_task, d.remote_context, d.begun_at, d.ended_at,
	d.sent, d.outcome, d.took_us, d.status, d.detail, CASE WHEN d.untold_at IS NULL THEN t.ended_at END `

// dispatch is a dispatch as it is read.
type dispatch struct {
	hub.Dispatch
	address   int64
	taskEnded time.Time // if nothing is left to be said
}

// scanDispatch reads dispatchColumns.
func scanDispatch(r row) dispatch {
	return dispatch{
		Dispatch: hub.Dispatch{
			Task: r.id(0).String(), Attempt: int(r.int(1)), Kind: r.text(3), Instance: r.text(4),
			RemoteTask: r.text(5), RemoteContext: r.text(6), BegunAt: r.time(7), EndedAt: r.time(8),
			Sent: r.flag(9), Outcome: r.text(10), Took: time.Duration(r.int(11)) * time.Microsecond, Status: int(r.int(12)), Detail: r.text(13),
		},
		address: r.int(2), taskEnded: r.time(14),
	}
}

// finish makes of dispatches that were read what is given.
func (s *Store) finish(ctx context.Context, list []dispatch, now time.Time) ([]hub.Dispatch, error) {
	out := make([]hub.Dispatch, len(list))
	for i := range list {
		d := &list[i]
		p, err := s.parties.party(ctx, d.address)
		if err != nil {
			return nil, err
		}
		d.Address = p.ID
		d.EndWithTask(d.taskEnded, now)
		out[i] = d.Dispatch
	}
	return out, nil
}

// aside has a query sent with the next flush, which then calls f for each of its rows. It
// leaves the rows that wait to be written waiting, for it has nothing to do with them.
func (t *tx) aside(sql string, args []any, f func(r row) error) {
	t.wrote, t.asked = true, t.asked || f != nil
	t.batch.Queue(sql, bind(args)...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := f(rows.RawValues()); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// begun is what became of the beginning of a dispatch, once its transaction is committed.
type begun struct {
	noted   bool
	earlier []dispatch
	now     time.Time
}

// BeginDispatch implements hub.Dispatches.
func (s *Store) BeginDispatch(ctx context.Context, d hub.Dispatch) (*hub.Dispatch, error) {
	out, err := write(ctx, s, needs{tasks: []string{d.Task}}, func(t *tx) (*begun, error) {
		h, err := t.heldBy(d.Task, d.Address, d.Attempt)
		if err != nil {
			return nil, err
		}
		out := &begun{now: t.now}
		t.noteDispatch(h, &d, &out.noted)
		if h.Handouts() > 1 {
			t.earlierDispatch(h, out)
		}
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	if !out.noted {
		return nil, hub.Errorf(hub.Conflict, "another replica of the hub delivers to this address by now")
	}
	list, err := s.finish(ctx, out.earlier, out.now)
	if err != nil || len(list) == 0 {
		return nil, storeError(ctx, err)
	}
	return &list[0], nil
}

// noteDispatch writes a dispatch of the claim that holds a task, unless it goes to an
// endpoint that another replica has taken over: this one was taken for dead then, and may
// not know it yet.
func (t *tx) noteDispatch(h *head, d *hub.Dispatch, noted *bool) {
	t.aside(`INSERT INTO dispatch (task, n, address, kind, instance, begun_at, sent, took_us, status)
		SELECT $1::uuid, $2::bigint, $3::bigint, $4::text, $5::bytea, $6::bigint, $7::boolean, 0, 0 WHERE $5::bytea IS NOT NULL OR NOT EXISTS
			(SELECT 1 FROM owner o JOIN replica r ON r.n = o.replica WHERE o.address = $3 AND o.replica <> $8 AND `+isAlive+`)
		ON CONFLICT (task, n) DO UPDATE SET kind = excluded.kind, instance = excluded.instance, sent = dispatch.sent OR excluded.sent
		RETURNING true`,
		[]any{h.id, h.Attempt, h.callee, d.Kind, optional(d.Instance), t.now, d.Sent, t.s.replica}, func(row) error {
			*noted = true
			return nil
		})
}

// earlierDispatch ends the dispatches of a task's earlier claims if the one of this claim
// was noted, and has the newest read of those that may have reached its callee.
func (t *tx) earlierDispatch(h *head, out *begun) {
	t.aside("UPDATE dispatch SET "+endDispatch+` WHERE task = $2 AND n < $3 AND ended_at IS NULL
		AND EXISTS (SELECT 1 FROM dispatch x WHERE x.task = $2 AND x.n = $3)`, []any{t.now, h.id, h.Attempt}, nil)
	t.aside("SELECT "+dispatchColumns+`FROM dispatch d JOIN task t ON t.id = d.task
		WHERE d.task = $1 AND d.n < $2 AND (d.sent OR d.remote_task IS NOT NULL) ORDER BY d.n DESC LIMIT 1`, []any{h.id, h.Attempt}, func(r row) error {
		out.earlier = append(out.earlier, scanDispatch(r))
		return nil
	})
}

// endDispatch ends a dispatch at $1. Who was at it and did not say what became of it may
// have sent it.
const endDispatch = "sent = sent OR outcome IS NULL, outcome = coalesce(outcome, '" + hub.DispatchLost + "'), ended_at = $1, untold_at = NULL"

// changeDispatch changes a dispatch; NotFound if there is none. The first two arguments
// are its key.
func (s *Store) changeDispatch(ctx context.Context, task string, attempt int, set string, args func(t *tx) []any) error {
	found, err := write(ctx, s, needs{tasks: []string{task}}, func(t *tx) (*bool, error) {
		found := new(bool)
		h, err := t.head(task)
		if err != nil || h == nil {
			return found, err
		}
		t.aside("UPDATE dispatch SET "+set+" WHERE task = $1 AND n = $2 RETURNING true", append([]any{h.id, attempt}, args(t)...), func(row) error {
			*found = true
			return nil
		})
		return found, nil
	})
	if err == nil && !*found {
		err = hub.ErrDispatchNotFound()
	}
	return err
}

// LinkDispatch implements hub.Dispatches.
func (s *Store) LinkDispatch(ctx context.Context, task string, attempt int, remoteTask, remoteContext string) error {
	return s.changeDispatch(ctx, task, attempt, "remote_task = $3, remote_context = $4, sent = true", func(*tx) []any {
		return []any{optional(remoteTask), optional(remoteContext)}
	})
}

// EndDispatch implements hub.Dispatches.
func (s *Store) EndDispatch(ctx context.Context, e hub.DispatchEnd) error {
	return s.changeDispatch(ctx, e.Task, e.Attempt, `outcome = $3, took_us = $4, sent = ($5 OR remote_task IS NOT NULL), status = $6, detail = $7,
		ended_at = CASE WHEN $8 THEN ended_at ELSE $9 END, untold_at = CASE WHEN $8 THEN untold_at END,
		remote_context = CASE WHEN remote_task IS NULL THEN $11 ELSE remote_context END, remote_task = coalesce(remote_task, $10)`, func(t *tx) []any {
		return []any{e.Outcome, e.Took.Microseconds(), e.Sent, e.Status, optional(e.Detail), e.Keep, t.now, optional(e.RemoteTask), optional(e.RemoteContext)}
	})
}

// dispatchOrder is the order of lists of dispatches.
const dispatchOrder = "d"

// ListDispatches implements hub.Dispatches.
func (s *Store) ListDispatches(ctx context.Context, f hub.DispatchFilter) (page hub.DispatchPage, err error) {
	if f.Limit <= 0 {
		f.Limit = defaultPageLimit
	}
	where, err := s.whichDispatches(ctx, &f)
	if err != nil || len(where.terms) == 0 {
		return page, storeError(ctx, err)
	}
	order := " ORDER BY d.begun_at DESC, d.task DESC, d.n DESC LIMIT ?"
	if f.Task != "" {
		order = " ORDER BY d.n DESC LIMIT ?"
	}
	list, err := s.dispatches(ctx, numbered("SELECT "+dispatchColumns+"FROM dispatch d JOIN task t ON t.id = d.task WHERE "+where.sql()+order), append(where.args, f.Limit+1)...)
	if err != nil {
		return page, err
	}
	if len(list) > f.Limit {
		list = list[:f.Limit]
		page.Next = dispatchPlace(&list[f.Limit-1])
	}
	page.Dispatches = list
	return page, nil
}

// dispatches runs a query for dispatchColumns.
func (s *Store) dispatches(ctx context.Context, sql string, args ...any) (out []hub.Dispatch, err error) {
	err = s.read(ctx, func(c *conn) error {
		var list []dispatch
		err := c.each(sql, args, func(r row) error {
			list = append(list, scanDispatch(r))
			return nil
		})
		if err != nil {
			return err
		}
		out, err = s.finish(c.ctx, list, s.Time())
		return err
	})
	return out, err
}

// dispatchPlace is the cursor of what comes after a dispatch in a list.
func dispatchPlace(d *hub.Dispatch) string {
	id, _ := parseID(d.Task)
	return makeCursor(dispatchOrder, d.BegunAt.UnixMilli(), int64(binary.BigEndian.Uint64(id[:8])), int64(binary.BigEndian.Uint64(id[8:])), int64(d.Attempt))
}

// placeTask is the task in such a cursor.
func placeTask(place []int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(place[1]))
	binary.BigEndian.PutUint64(id[8:], uint64(place[2]))
	return id
}

// whichDispatches turns a filter into a condition that an index serves; none if there is
// nothing to look for.
func (s *Store) whichDispatches(ctx context.Context, f *hub.DispatchFilter) (where condition, err error) {
	var place []int64
	if f.Cursor != "" {
		if place, err = cursorNumbers(dispatchOrder, f.Cursor, 4); err != nil {
			return where, err
		}
	}
	task, ok := parseID(f.Task)
	switch {
	case f.Task == "" && f.Address == "", f.Task != "" && !ok:
		return where, nil
	case f.Task != "":
		where.and("d.task = ?", task)
		if place != nil {
			where.and("d.n < ?", place[3])
		}
	case place != nil:
		where.and("(d.begun_at, d.task, d.n) < (?, ?, ?)", place[0], placeTask(place), place[3])
	}
	if f.Address == "" {
		return where, nil
	}
	n, err := s.parties.n(ctx, f.Address)
	where.and("d.address = ?", n)
	return where, err
}

// CanceledDispatches implements hub.Dispatches.
func (s *Store) CanceledDispatches(ctx context.Context, addresses []string, after time.Duration, limit int) ([]hub.Dispatch, error) {
	numbers, err := s.parties.all(ctx, addresses)
	if err != nil || len(numbers) == 0 {
		return nil, storeError(ctx, err)
	}
	return s.dispatches(ctx, "SELECT "+dispatchColumns+`FROM unnest($1::bigint[]) a(n) CROSS JOIN LATERAL
			(SELECT * FROM dispatch WHERE address = a.n AND untold_at IS NOT NULL AND begun_at <= $2 ORDER BY begun_at LIMIT $3) d
		JOIN task t ON t.id = d.task ORDER BY d.begun_at, d.task`, numbers, s.Time().Add(-after), limit)
}

// untold notes that the callee of a task has to be told of its cancel, if the task has an
// open dispatch, and reports whether it has. That is not asked for where it makes no
// difference to who cancels, for it takes a round trip.
func (t *tx) untold(h *head) (bool, error) {
	const sql = "UPDATE dispatch SET untold_at = $2 WHERE task = $1 AND ended_at IS NULL"
	switch {
	case h.Handouts() == 0:
		return false, nil
	case h.open:
		t.aside(sql, []any{h.id, t.now}, nil)
		return true, nil
	}
	n, err := t.execNow(sql, h.id, t.now)
	return n > 0, err
}

// SettleCancel implements hub.Dispatches.
func (s *Store) SettleCancel(ctx context.Context, task string, attempt int, o hub.CancelOutcome) error {
	return s.write(ctx, needs{tasks: []string{task}}, func(t *tx) error {
		h, err := t.head(task)
		if err != nil {
			return err
		}
		if h == nil {
			return hub.ErrDispatchNotFound()
		}
		r, err := t.one("SELECT 1 FROM dispatch WHERE task = $1 AND n = $2", h.id, attempt)
		switch {
		case err != nil:
			return err
		case r == nil:
			return hub.ErrDispatchNotFound()
		case h.State != hub.Canceled:
			return hub.Errorf(hub.Conflict, "the task was not canceled, so there is no cancel to settle")
		}
		t.exec("UPDATE dispatch SET "+endDispatch+" WHERE task = $2 AND n = $3 AND ended_at IS NULL", t.now, h.id, attempt)
		if h.CancelOutcome == hub.CancelUnconfirmed && o != hub.CancelUnconfirmed {
			t.setOutcome(h, o)
			t.log(h, hub.ActCancelSeen, h.callee, hub.SettledCancel(o))
		}
		return nil
	})
}
