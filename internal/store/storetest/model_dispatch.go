package storetest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// modelDispatch is a dispatch and what is kept beside it.
type modelDispatch struct {
	hub.Dispatch
	open   bool
	untold bool // its task was canceled, and its callee does not know
	n      int  // of all dispatches
}

// end ends a dispatch that is open.
func (d *modelDispatch) end(now time.Time) {
	if !d.open {
		return
	}
	d.open, d.untold, d.EndedAt = false, false, now
	if d.Outcome == "" {
		d.Outcome, d.Sent = "lost", true
	}
}

// read is the dispatch as a reader sees it.
func (d *modelDispatch) read(t *modelTask, now time.Time) hub.Dispatch {
	out := d.Dispatch
	if d.open && !d.untold && t.Phase == hub.Done && now.Sub(t.EndedAt) > time.Minute {
		out.EndedAt = t.EndedAt
		if out.Outcome == "" {
			out.Outcome, out.Sent = "lost", true
		}
	}
	return out
}

// dispatch is the dispatch of a claim; nil if there is none.
func (t *modelTask) dispatch(attempt int) *modelDispatch {
	for _, d := range t.dispatches {
		if d.Attempt == attempt {
			return d
		}
	}
	return nil
}

// untold notes that whoever has the task is to be told of its cancel, if somebody has.
func (t *modelTask) untold() (any bool) {
	for _, d := range t.dispatches {
		if d.open {
			d.untold, any = true, true
		}
	}
	return any
}

// BeginDispatch implements hub.Dispatches.
func (m *model) BeginDispatch(ctx context.Context, d hub.Dispatch) (earlier *hub.Dispatch, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t := m.find(d.Task)
	switch {
	case t == nil || t.Callee.ID != d.Address:
		return nil, hub.ErrTaskNotFound()
	case t.Phase != hub.Leased || t.Attempt != d.Attempt:
		return nil, hub.ErrClaimLapsed()
	}
	for _, x := range t.dispatches {
		if x.Attempt == d.Attempt {
			continue
		}
		x.end(m.now())
		if x.Sent || x.RemoteTask != "" {
			found := x.read(t, m.now())
			earlier = &found
		}
	}
	m.noteDispatch(t, &d)
	return earlier, nil
}

// noteDispatch notes a dispatch of the claim that holds a task.
func (m *model) noteDispatch(t *modelTask, d *hub.Dispatch) {
	if x := t.dispatch(t.Attempt); x != nil {
		x.Kind, x.Instance, x.Sent = d.Kind, d.Instance, x.Sent || d.Sent
		return
	}
	m.dispatched++
	t.dispatches = append(t.dispatches, &modelDispatch{open: true, n: m.dispatched, Dispatch: hub.Dispatch{
		Task: t.ID, Attempt: t.Attempt, Address: t.Callee.ID, Kind: d.Kind, Instance: d.Instance, BegunAt: m.now(), Sent: d.Sent,
	}})
}

// change finds a dispatch, to be changed.
func (m *model) change(ctx context.Context, task string, attempt int, f func(t *modelTask, d *modelDispatch) error) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	t := m.find(task)
	if t == nil || t.dispatch(attempt) == nil {
		return hub.ErrDispatchNotFound()
	}
	return f(t, t.dispatch(attempt))
}

// LinkDispatch implements hub.Dispatches.
func (m *model) LinkDispatch(ctx context.Context, task string, attempt int, remoteTask, remoteContext string) error {
	return m.change(ctx, task, attempt, func(_ *modelTask, d *modelDispatch) error {
		d.RemoteTask, d.RemoteContext, d.Sent = remoteTask, remoteContext, true
		return nil
	})
}

// EndDispatch implements hub.Dispatches.
func (m *model) EndDispatch(ctx context.Context, e hub.DispatchEnd) error {
	return m.change(ctx, e.Task, e.Attempt, func(_ *modelTask, d *modelDispatch) error {
		d.Outcome, d.Took, d.Sent, d.Status, d.Detail = e.Outcome, e.Took, e.Sent || d.RemoteTask != "", e.Status, e.Detail
		if d.RemoteTask == "" {
			d.RemoteTask, d.RemoteContext = e.RemoteTask, e.RemoteContext
		}
		if !e.Keep {
			d.open, d.untold, d.EndedAt = false, false, m.now()
		}
		return nil
	})
}

// ListDispatches implements hub.Dispatches.
func (m *model) ListDispatches(ctx context.Context, f hub.DispatchFilter) (p hub.DispatchPage, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return p, err
	}
	defer unlock()
	before := m.dispatched + 1
	if f.Cursor != "" {
		n, ok := strings.CutPrefix(f.Cursor, "d")
		if before, err = strconv.Atoi(n); err != nil || !ok {
			return p, hub.InvalidField("cursor", "this hub did not make that cursor")
		}
	}
	var all []*modelDispatch
	for _, t := range m.tasks {
		for _, d := range t.dispatches {
			if d.n < before && (f.Task != "" || f.Address != "") && (f.Task == "" || d.Task == f.Task) && (f.Address == "" || d.Address == f.Address) {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(a, b *modelDispatch) int { return cmp.Compare(b.n, a.n) })
	for _, d := range all {
		if len(p.Dispatches) == cmp.Or(f.Limit, 50) {
			break
		}
		p.Dispatches = append(p.Dispatches, d.read(m.find(d.Task), m.now()))
		p.Next = "d" + strconv.Itoa(d.n)
	}
	if len(p.Dispatches) == len(all) {
		p.Next = ""
	}
	return p, nil
}

// CanceledDispatches implements hub.Dispatches.
func (m *model) CanceledDispatches(ctx context.Context, addresses []string, after time.Duration, limit int) (out []hub.Dispatch, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	var all []*modelDispatch
	for _, t := range m.tasks {
		for _, d := range t.dispatches {
			if d.untold && m.now().Sub(d.BegunAt) >= after {
				all = append(all, d)
			}
		}
	}
	slices.SortFunc(all, func(a, b *modelDispatch) int { return cmp.Compare(a.n, b.n) })
	for _, a := range addresses {
		n := 0
		for _, d := range all {
			if d.Address == a && n < limit {
				out = append(out, d.Dispatch)
				n++
			}
		}
	}
	return out, nil
}

// SettleCancel implements hub.Dispatches.
func (m *model) SettleCancel(ctx context.Context, task string, attempt int, o hub.CancelOutcome) error {
	return m.change(ctx, task, attempt, func(t *modelTask, d *modelDispatch) error {
		if t.State != hub.Canceled {
			return hub.Errorf(hub.Conflict, "the task was not canceled")
		}
		d.end(m.now())
		if t.CancelOutcome == hub.CancelUnconfirmed && o != hub.CancelUnconfirmed {
			t.CancelOutcome = o
			m.note(t, hub.ActCancelSeen, t.Callee.Handle, "")
		}
		return nil
	})
}
