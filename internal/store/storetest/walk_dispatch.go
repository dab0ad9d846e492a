package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// dispatchStep takes one random step that has to do with the hub's own deliveries.
func (w *walk) dispatchStep() {
	t := w.claimOf(w.recent())
	switch n := w.r.IntN(20); {
	case n < 9:
		d := dispatchOf(t)
		d.Sent, d.Instance = w.r.IntN(3) > 0, pick(w.r, "", "laptop")
		w.both("dispatch "+t.ID, t.ID, func(s hub.Store) (any, error) { return s.BeginDispatch(w.ctx, d) })
	case n < 12:
		remote, context := number("r", w.steps), pick(w.r, "", "c")
		w.both("link "+t.ID, t.ID, func(s hub.Store) (any, error) {
			return nil, s.LinkDispatch(w.ctx, t.ID, t.Attempt, remote, context)
		})
	case n < 17:
		e := endOf(t, pick(w.r, "answered", "lost", "unsent"))
		e.Sent, e.Keep, e.Took, e.Status = w.r.IntN(2) == 0, w.r.IntN(3) == 0, time.Duration(w.steps)*time.Microsecond, w.r.IntN(600)
		if w.r.IntN(3) == 0 {
			e.RemoteTask, e.RemoteContext = number("old", w.steps), pick(w.r, "", "c")
		}
		w.both(fmt.Sprintf("end dispatch %s, keep %v", t.ID, e.Keep), t.ID, func(s hub.Store) (any, error) { return nil, s.EndDispatch(w.ctx, e) })
	case n < 19:
		o := pick(w.r, hub.CancelConfirmed, hub.CancelAlreadyFinished, hub.CancelUnconfirmed)
		w.both("settle the cancel of "+t.ID, t.ID, func(s hub.Store) (any, error) { return nil, s.SettleCancel(w.ctx, t.ID, t.Attempt, o) })
	default:
		w.compareDispatches()
	}
}

// byTask brings dispatches into an order that leaves open which of one moment is first.
func byTask(list []hub.Dispatch) []hub.Dispatch {
	slices.SortFunc(list, func(a, b hub.Dispatch) int {
		return strings.Compare(hub.ClaimID(a.Task, a.Attempt), hub.ClaimID(b.Task, b.Attempt))
	})
	return list
}

// compareDispatches compares those of all addresses.
func (w *walk) compareDispatches() {
	w.Helper()
	read := func(s hub.Store) any {
		untold, err := s.CanceledDispatches(w.ctx, []string{w.dev, w.ops}, time.Second, 10_000)
		w.ok(err)
		b := *w.bed
		b.s = s
		return [][]hub.Dispatch{
			byTask(untold), byTask(b.dispatches(hub.DispatchFilter{Address: w.dev, Limit: 7})), byTask(b.dispatches(hub.DispatchFilter{Address: w.ops})),
		}
	}
	if d := cmp.Diff(read(w.m), read(w.s), lenient); d != "" {
		w.fail("step %d: the dispatches differ (-want +got)\n%s", w.steps, d)
	}
}

// compareDispatchesOf compares those of one task.
func (w *walk) compareDispatchesOf(id string) {
	w.Helper()
	f := hub.DispatchFilter{Task: id}
	want, _ := w.m.ListDispatches(w.ctx, f)
	got, err := w.s.ListDispatches(w.ctx, f)
	w.ok(err)
	if d := cmp.Diff(want.Dispatches, got.Dispatches, lenient); d != "" {
		w.fail("step %d: the dispatches of %s differ (-want +got)\n%s", w.steps, id, d)
	}
}
