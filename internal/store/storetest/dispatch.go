package storetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// dispatchOf is a dispatch of the claim t, to an endpoint.
func dispatchOf(t *hub.Task, change ...func(*hub.Dispatch)) hub.Dispatch {
	d := hub.Dispatch{Task: t.ID, Attempt: t.Attempt, Address: t.Callee.ID, Kind: hub.RemoteDelivery, Sent: true}
	for _, f := range change {
		f(&d)
	}
	return d
}

func unsent(d *hub.Dispatch) { d.Sent = false }

// begin begins a dispatch, which must succeed, and gives the earlier one.
func (b *bed) begin(d hub.Dispatch) *hub.Dispatch {
	b.Helper()
	earlier, err := b.s.BeginDispatch(b.ctx, d)
	b.ok(err)
	return earlier
}

func (b *bed) tryBegin(d hub.Dispatch) func() error {
	return func() error { _, err := b.s.BeginDispatch(b.ctx, d); return err }
}

func (b *bed) link(t *hub.Task, remote string) {
	b.Helper()
	b.ok(b.s.LinkDispatch(b.ctx, t.ID, t.Attempt, remote, "context of "+remote))
}

// endOf is the end of the dispatch of the claim t.
func endOf(t *hub.Task, outcome string, change ...func(*hub.DispatchEnd)) hub.DispatchEnd {
	e := hub.DispatchEnd{Task: t.ID, Attempt: t.Attempt, Outcome: outcome, Sent: true}
	for _, f := range change {
		f(&e)
	}
	return e
}

func keep(e *hub.DispatchEnd) { e.Keep = true }

func (b *bed) endDispatch(e hub.DispatchEnd) {
	b.Helper()
	b.ok(b.s.EndDispatch(b.ctx, e))
}

// redelivered has the claim t lost, and claims its task once it is offered again.
func (b *bed) redelivered(t *hub.Task) *hub.Task {
	b.Helper()
	b.lose(t)
	b.pass(time.Hour)
	return b.claimTask(t)
}

// dispatches reads all pages of a list of dispatches.
func (b *bed) dispatches(f hub.DispatchFilter) (all []hub.Dispatch) {
	b.Helper()
	for {
		p, err := b.s.ListDispatches(b.ctx, f)
		b.ok(err)
		all = append(all, p.Dispatches...)
		if p.Next == "" {
			return all
		}
		if p.Next == f.Cursor || len(all) > 10_000 {
			b.Fatal("the pages do not come to an end")
		}
		f.Cursor = p.Next
	}
}

// dispatch is the newest dispatch of a task.
func (b *bed) dispatch(t *hub.Task) hub.Dispatch {
	b.Helper()
	list := b.dispatches(hub.DispatchFilter{Task: t.ID, Limit: 1})
	if len(list) == 0 {
		b.Fatal("the task has no dispatch")
	}
	return list[0]
}

// untold is the ids of the tasks whose agents have not been told of their cancel.
func (b *bed) untold(addresses ...string) (ids []string) {
	b.Helper()
	list, err := b.s.CanceledDispatches(b.ctx, addresses, 0, 100)
	b.ok(err)
	for _, d := range list {
		ids = append(ids, d.Task)
	}
	return ids
}

func (b *bed) settleCancel(t *hub.Task, o hub.CancelOutcome) {
	b.Helper()
	b.ok(b.s.SettleCancel(b.ctx, t.ID, t.Attempt, o))
}

func dispatchTests(run runner) {
	run("a dispatch that has begun is open", func(b *bed) {
		t := b.held()
		b.is("earlier", b.begin(dispatchOf(t, func(d *hub.Dispatch) { d.Instance = "laptop" })) == nil, true)
		b.is("dispatch", b.dispatch(t), hub.Dispatch{
			Task: t.ID, Attempt: 1, Address: b.dev, Kind: hub.RemoteDelivery, Instance: "laptop", BegunAt: b.clock.Now(), Sent: true,
		})
	})
	run("what became of it is kept", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		begun := b.clock.Now()
		b.clock.Advance(time.Second)
		b.endDispatch(hub.DispatchEnd{Task: t.ID, Attempt: 1, Outcome: "refused", Took: 1500 * time.Microsecond, Sent: true, Status: 404, Detail: "there is no \x00 such page"})
		b.is("dispatch", b.dispatch(t), hub.Dispatch{
			Task: t.ID, Attempt: 1, Address: b.dev, Kind: hub.RemoteDelivery, BegunAt: begun, EndedAt: b.clock.Now(),
			Sent: true, Outcome: "refused", Took: 1500 * time.Microsecond, Status: 404, Detail: "there is no \x00 such page",
		})
	})
	run("a dispatch changes nothing of its task", func(b *bed) {
		t := b.held()
		b.unchanged("a dispatch", func() error {
			b.begin(dispatchOf(t))
			b.link(t, "r")
			b.endDispatch(endOf(t, "answered"))
			return nil
		})
	})
	run("only who holds a task may dispatch it, to its callee", func(b *bed) {
		t := b.held()
		wrong := dispatchOf(t)
		wrong.Address = b.ops
		b.kind("to another address", b.tryBegin(wrong)(), hub.NotFound)
		wrong.Address = newID()
		b.kind("to no address", b.tryBegin(wrong)(), hub.NotFound)
		wrong = dispatchOf(t)
		wrong.Task = newID()
		b.kind("of no task", b.tryBegin(wrong)(), hub.NotFound)
		wrong = dispatchOf(t)
		wrong.Attempt = 2
		b.kind("under a claim that is yet to come", b.tryBegin(wrong)(), hub.Conflict)
		b.ok(b.s.Release(b.ctx, b.dev, t.ID, 1))
		b.kind("under a claim that was given back", b.tryBegin(dispatchOf(t))(), hub.Conflict)
		again := b.claimTask(t)
		b.kind("under an earlier claim", b.tryBegin(dispatchOf(t))(), hub.Conflict)
		b.cancel(again)
		b.kind("of a canceled task", b.tryBegin(dispatchOf(again))(), hub.Conflict)
		b.is("dispatches", b.dispatches(hub.DispatchFilter{Task: t.ID}), nil)
	})
	run("one that is begun again under its claim goes on", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.link(t, "r")
		b.is("earlier", b.begin(dispatchOf(t, unsent)) == nil, true)
		list := b.dispatches(hub.DispatchFilter{Task: t.ID})
		b.is("dispatches", len(list), 1)
		b.is("remote task, sent", []any{list[0].RemoteTask, list[0].Sent}, []any{"r", true})
	})
	run("there is nothing to link, end or settle where nothing was begun", func(b *bed) {
		t := b.held()
		for _, id := range []string{t.ID, newID(), "no id"} {
			for attempt := range 3 {
				b.kind("link", b.s.LinkDispatch(b.ctx, id, attempt, "r", "c"), hub.NotFound)
				b.kind("end", b.s.EndDispatch(b.ctx, hub.DispatchEnd{Task: id, Attempt: attempt, Outcome: "lost"}), hub.NotFound)
				b.kind("settle", b.s.SettleCancel(b.ctx, id, attempt, hub.CancelConfirmed), hub.NotFound)
			}
		}
	})
}

func claimedDispatchTests(run runner) {
	spec := hub.ClaimSpec{Lease: lease, Dispatch: &hub.Dispatch{Kind: hub.TunnelDelivery, Instance: "laptop", Sent: true}}
	begun := func(b *bed, t *hub.Task) {
		b.Helper()
		b.is("dispatched", t.Dispatched, true)
		b.is("dispatch", b.dispatch(t), hub.Dispatch{
			Task: t.ID, Attempt: 1, Address: b.dev, Kind: hub.TunnelDelivery, Instance: "laptop", BegunAt: b.clock.Now(), Sent: true,
		})
	}
	run("a first claim begins the dispatch that it is for", func(b *bed) {
		b.ask(b.ann, b.dev)
		got, err := b.s.Claim(b.ctx, b.dev, spec)
		b.ok(err)
		begun(b, got.Task)
		b.is("earlier", b.begin(dispatchOf(got.Task)) == nil, true)
		b.is("kind, once it is begun again", b.dispatch(got.Task).Kind, hub.RemoteDelivery)
		b.is("dispatches", len(b.dispatches(hub.DispatchFilter{Task: got.Task.ID})), 1)
	})
	run("one that comes with a send does", func(b *bed) {
		begun(b, b.send(newSend(b.ann, b.dev, func(s *hub.Send) { s.Claim = &spec })).Claimed)
	})
	run("one that comes with a report does", func(b *bed) {
		t := b.held()
		b.ask(b.ann, b.dev)
		begun(b, b.report(says(t, hub.Completed, func(r *hub.Report) { r.Next = &spec })).Next)
	})
	run("a later one does not, for there may be an earlier dispatch", func(b *bed) {
		t := b.held()
		b.ok(b.s.Release(b.ctx, b.dev, t.ID, t.Attempt))
		got, err := b.s.Claim(b.ctx, b.dev, spec)
		b.ok(err)
		b.is("dispatched", got.Task.Dispatched, false)
		b.is("dispatches", b.dispatches(hub.DispatchFilter{Task: t.ID}), nil)
	})
	run("a claim for nobody's dispatch begins none", func(b *bed) {
		t := b.held()
		b.is("dispatched", t.Dispatched, false)
		b.is("dispatches", b.dispatches(hub.DispatchFilter{Task: t.ID}), nil)
	})
}

func earlierDispatchTests(run runner) {
	run("what the agent calls the task is known to the next dispatch", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t, unsent))
		b.link(t, "r\x00é")
		b.endDispatch(endOf(t, "lost"))
		earlier := b.begin(dispatchOf(b.redelivered(t)))
		b.is("remote task, context, sent", []any{earlier.RemoteTask, earlier.RemoteContext, earlier.Sent}, []any{"r\x00é", "context of r\x00é", true})
		b.is("earlier", *earlier, b.dispatches(hub.DispatchFilter{Task: t.ID})[1])
	})
	run("one of which nothing was heard has been sent and is lost", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t, unsent))
		b.expire()
		b.pass(time.Hour)
		earlier := b.begin(dispatchOf(b.claimTask(t)))
		b.is("outcome, sent, ended", []any{earlier.Outcome, earlier.Sent, earlier.EndedAt}, []any{"lost", true, b.clock.Now()})
	})
	run("one that never left is no earlier one", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.endDispatch(endOf(t, "unsent", func(e *hub.DispatchEnd) { e.Sent = false }))
		b.ok(b.s.Release(b.ctx, b.dev, t.ID, t.Attempt))
		b.is("earlier", b.begin(dispatchOf(b.claimTask(t))) == nil, true)
	})
	run("of several earlier ones the newest that may have been sent counts", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.link(t, "first")
		for range 2 { // the second was sent, the third was not
			t = b.redelivered(t)
			b.begin(dispatchOf(t))
			b.endDispatch(endOf(t, "unsent", func(e *hub.DispatchEnd) { e.Sent = t.Attempt == 2 }))
		}
		b.is("attempt of the earlier one", b.begin(dispatchOf(b.redelivered(t))).Attempt, 2)
	})
	run("one that was linked was sent, whatever its end says", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.link(t, "r")
		b.endDispatch(endOf(t, "unsent", func(e *hub.DispatchEnd) { e.Sent = false }))
		b.is("sent", b.dispatch(t).Sent, true)
	})
	run("what an earlier one knew goes along, and says nothing of being sent", func(b *bed) {
		t := b.held()
		old := func(e *hub.DispatchEnd) { e.Sent, e.RemoteTask, e.RemoteContext = false, "old", "context of old" }
		b.begin(dispatchOf(t))
		b.endDispatch(endOf(t, "unsent", old))
		t = b.redelivered(t)
		earlier := b.begin(dispatchOf(t))
		b.is("remote task, context, sent", []any{earlier.RemoteTask, earlier.RemoteContext, earlier.Sent}, []any{"old", "context of old", false})
		b.ok(b.s.LinkDispatch(b.ctx, t.ID, t.Attempt, "new", ""))
		b.endDispatch(endOf(t, "lost", old))
		d := b.dispatch(t)
		b.is("remote task, context, sent", []any{d.RemoteTask, d.RemoteContext, d.Sent}, []any{"new", "", true})
	})
	run("one that was kept open ends with the next, and keeps its outcome", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.link(t, "r")
		b.report(says(t, hub.InputRequired))
		b.endDispatch(endOf(t, "answered", keep))
		b.is("outcome, ended", []any{b.dispatch(t).Outcome, b.dispatch(t).EndedAt}, []any{"answered", time.Time{}})
		b.follow(t, "m2")
		earlier := b.begin(dispatchOf(b.claimTask(t)))
		b.is("outcome, ended, remote task", []any{earlier.Outcome, earlier.EndedAt, earlier.RemoteTask}, []any{"answered", b.clock.Now(), "r"})
	})
	run("one that has ended since its task was dispatched again stays so", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		again := b.redelivered(t)
		b.begin(dispatchOf(again))
		b.endDispatch(endOf(t, "accepted", keep))
		first := b.dispatches(hub.DispatchFilter{Task: t.ID})[1]
		b.is("outcome, ended", []any{first.Outcome, first.EndedAt.IsZero()}, []any{"accepted", false})
		b.cancel(again)
		list, err := b.s.CanceledDispatches(b.ctx, []string{b.dev}, 0, 10)
		b.ok(err)
		b.is("untold", len(list), 1)
		b.is("the newest is", list[0].Attempt, 2)
	})
	run("one whose hub died as its task ended is given as lost after a minute", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t, unsent))
		b.report(says(t, hub.Completed))
		ended := b.clock.Now()
		b.clock.Advance(time.Minute)
		b.is("after a minute", b.dispatch(t).Outcome, "")
		b.clock.Advance(time.Millisecond)
		d := b.dispatch(t)
		b.is("then", []any{d.Outcome, d.Sent, d.EndedAt}, []any{"lost", true, ended})
		b.endDispatch(endOf(t, "answered")) // it was only slow
		b.is("its own word", b.dispatch(t).Outcome, "answered")
	})
	run("dispatches are there when the store is opened again", func(b *bed) {
		if b.h.Reopen == nil {
			b.Skip("this store cannot be opened again")
		}
		t := b.held()
		b.begin(dispatchOf(t))
		b.link(t, "r")
		other := b.held()
		b.begin(dispatchOf(other))
		b.cancel(other)
		before := b.dispatches(hub.DispatchFilter{Address: b.dev})
		b.s = b.h.Reopen(b.TB)
		b.is("dispatches", b.dispatches(hub.DispatchFilter{Address: b.dev}), before)
		b.is("untold", b.untold(b.dev), []string{other.ID})
	})
}

func dispatchListTests(run runner) {
	run("lists are of a task, an address or both, the newest first, in pages", func(b *bed) {
		var tasks []*hub.Task
		for i := range 4 {
			t := b.held()
			tasks = append(tasks, t)
			for range i { // of the same millisecond, too
				b.begin(dispatchOf(t))
				b.ok(b.s.Release(b.ctx, b.dev, t.ID, t.Attempt))
				t = b.claimTask(t)
			}
			b.begin(dispatchOf(t))
			b.clock.Advance(time.Millisecond)
		}
		other := b.claimTask(b.ask(b.ann, b.ops))
		b.begin(dispatchOf(other))
		all := b.dispatches(hub.DispatchFilter{Address: b.dev})
		b.is("how many", len(all), 10)
		b.is("newest first", slices.IsSortedFunc(all, func(x, y hub.Dispatch) int { return y.BegunAt.Compare(x.BegunAt) }), true)
		for limit := 1; limit <= 10; limit += 3 {
			b.is(fmt.Sprint("of the address, ", limit, " at a time"), b.dispatches(hub.DispatchFilter{Address: b.dev, Limit: limit}), all)
			of := b.dispatches(hub.DispatchFilter{Task: tasks[3].ID, Limit: limit})
			b.is("attempts of the task", []int{of[0].Attempt, of[1].Attempt, of[2].Attempt, of[3].Attempt}, []int{4, 3, 2, 1})
			b.is("of the task at its address", b.dispatches(hub.DispatchFilter{Task: tasks[3].ID, Address: b.dev, Limit: limit}), of)
		}
		b.is("of the other address", len(b.dispatches(hub.DispatchFilter{Address: b.ops})), 1)
		for what, f := range map[string]hub.DispatchFilter{
			"of the task at another address": {Task: other.ID, Address: b.dev}, "of no task": {Task: newID()}, "of what is no id": {Task: "x"},
			"of no address": {Address: newID()}, "of nothing": {},
		} {
			b.is(what, b.dispatches(f), nil)
		}
		_, err := b.s.ListDispatches(b.ctx, hub.DispatchFilter{Address: b.dev, Cursor: "nonsense"})
		b.kind("a cursor of nobody's", err, hub.Invalid)
	})
	run("a list without a limit has 50", func(b *bed) {
		t := b.held()
		for range 51 {
			b.begin(dispatchOf(t))
			b.ok(b.s.Release(b.ctx, b.dev, t.ID, t.Attempt))
			t = b.claimTask(t)
		}
		p, err := b.s.ListDispatches(b.ctx, hub.DispatchFilter{Task: t.ID})
		b.ok(err)
		b.is("dispatches, more", []any{len(p.Dispatches), p.Next != ""}, []any{50, true})
	})
	run("dispatches go with their task", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.cancel(t)
		b.clock.Advance(48 * time.Hour)
		p, err := b.s.Prune(b.ctx, b.clock.Now(), 10)
		b.ok(err)
		b.is("pruned", p.Tasks, 1)
		b.is("of the task", b.dispatches(hub.DispatchFilter{Task: t.ID}), nil)
		b.is("of the address", b.dispatches(hub.DispatchFilter{Address: b.dev}), nil)
		b.is("untold", b.untold(b.dev), nil)
	})
}

func cancelDispatchTests(run runner) {
	run("the agent of a canceled task that was dispatched is to be told", func(b *bed) {
		t, other, quiet := b.held(), b.claimTask(b.ask(b.ann, b.ops)), b.held()
		b.begin(dispatchOf(t))
		b.link(t, "r")
		b.begin(dispatchOf(other))
		b.cancel(t)
		b.cancel(other)
		b.cancel(quiet) // it was not dispatched
		list, err := b.s.CanceledDispatches(b.ctx, []string{b.dev, newID()}, 0, 10)
		b.ok(err)
		want := dispatchOf(t)
		want.RemoteTask, want.RemoteContext = "r", "context of r"
		if d := cmp.Diff([]hub.Dispatch{want}, list, cmpopts.IgnoreFields(hub.Dispatch{}, "BegunAt")); d != "" {
			b.Errorf("untold (-want +got):\n%s", d)
		}
		b.is("of both addresses", b.untold(b.dev, b.ops), []string{t.ID, other.ID})
		b.is("of none", b.untold(), nil)
	})
	run("a dispatch that has ended is not told of a cancel", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.endDispatch(endOf(t, "lost"))
		b.cancel(t)
		b.is("untold", b.untold(b.dev), nil)
	})
	run("a dispatch that ends is not told of a cancel any more, one that is kept is", func(b *bed) {
		t, kept := b.held(), b.held()
		for _, x := range []*hub.Task{t, kept} {
			b.begin(dispatchOf(x))
			b.cancel(x)
		}
		b.endDispatch(endOf(t, "answered"))
		b.endDispatch(endOf(kept, "lost", keep))
		b.is("untold", b.untold(b.dev), []string{kept.ID})
		b.clock.Advance(2 * time.Minute)
		b.is("it stays open", b.dispatch(kept).EndedAt, time.Time{})
	})
	run("the agent that asked is to be told, and until then the cancel is unconfirmed", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.report(says(t, hub.InputRequired))
		b.endDispatch(endOf(t, "answered", keep))
		b.is("outcome", b.cancel(t).CancelOutcome, hub.CancelUnconfirmed)
		b.is("as read", b.task(t.ID).CancelOutcome, hub.CancelUnconfirmed)
		b.is("untold", b.untold(b.dev), []string{t.ID})
		b.settleCancel(t, hub.CancelConfirmed)
		b.is("outcome", b.task(t.ID).CancelOutcome, hub.CancelConfirmed)
		d := b.dispatch(t)
		b.is("untold", b.untold(b.dev), nil)
		b.is("its own outcome, ended", []any{d.Outcome, d.EndedAt.IsZero()}, []any{"answered", false})
	})
	run("the agent of a task that its hub lost, or somebody took, is to be told", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.expire()
		b.cancel(t)
		taken := b.held()
		b.begin(dispatchOf(taken))
		_, err := b.s.Requeue(b.ctx, taken.ID, newID())
		b.ok(err)
		b.is("outcome", b.cancel(taken).CancelOutcome, hub.CancelUnconfirmed)
		b.is("untold", b.untold(b.dev), []string{t.ID, taken.ID})
	})
	run("the tasks of a deleted address are canceled at its agent, too", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.ok(b.s.DeleteAddress(b.ctx, b.dev))
		_, err := b.s.CancelQueued(b.ctx, b.dev, 10)
		b.ok(err)
		b.is("untold", b.untold(b.dev), []string{t.ID})
	})
	run("who was begun a moment ago is left out", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.cancel(t)
		for _, x := range []struct{ wait, want int }{{999, 0}, {1, 1}} {
			b.clock.Advance(time.Duration(x.wait) * time.Millisecond)
			list, err := b.s.CanceledDispatches(b.ctx, []string{b.dev}, time.Second, 10)
			b.ok(err)
			b.is("untold", len(list), x.want)
		}
	})
	run("of each address the oldest are told, a limited number", func(b *bed) {
		var want []string
		for _, callee := range []string{b.dev, b.ops} {
			for i := range 3 {
				t := b.claimTask(b.ask(b.ann, callee))
				b.begin(dispatchOf(t))
				b.cancel(t)
				b.clock.Advance(time.Millisecond)
				if i < 2 {
					want = append(want, t.ID)
				}
			}
		}
		list, err := b.s.CanceledDispatches(b.ctx, []string{b.dev, b.ops}, 0, 2)
		b.ok(err)
		var got []string
		for _, d := range list {
			got = append(got, d.Task)
		}
		b.is("untold", got, want)
	})
	for _, x := range []struct {
		o     hub.CancelOutcome
		lines int
	}{{hub.CancelConfirmed, 1}, {hub.CancelAlreadyFinished, 1}, {hub.CancelUnconfirmed, 0}} {
		run(fmt.Sprint("a cancel is settled once: ", x.o), func(b *bed) {
			t := b.held()
			b.begin(dispatchOf(t))
			b.cancel(t)
			for range 2 {
				b.settleCancel(t, x.o)
				b.is("outcome", b.task(t.ID).CancelOutcome, x.o)
				b.is("cancel seen lines", b.count(t.ID, hub.ActCancelSeen), x.lines)
			}
			b.is("untold", b.untold(b.dev), nil)
			d := b.dispatch(t)
			b.is("outcome, sent, ended", []any{d.Outcome, d.Sent, d.EndedAt}, []any{"lost", true, b.clock.Now()})
		})
	}
	run("what was confirmed or already finished stays so", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.cancel(t)
		b.beat(beatOf(t)) // confirms it
		b.settleCancel(t, hub.CancelAlreadyFinished)
		b.is("outcome", b.task(t.ID).CancelOutcome, hub.CancelConfirmed)
		late := b.held()
		b.begin(dispatchOf(late))
		b.cancel(late)
		b.kind("a late report", b.tryReport(says(late, hub.Completed))(), hub.Conflict)
		b.settleCancel(late, hub.CancelConfirmed)
		b.is("outcome", b.task(late.ID).CancelOutcome, hub.CancelAlreadyFinished)
	})
	run("there is no cancel to settle of a task that was not canceled", func(b *bed) {
		t := b.held()
		b.begin(dispatchOf(t))
		b.refused("a settled cancel", hub.Conflict, func() error { return b.s.SettleCancel(b.ctx, t.ID, t.Attempt, hub.CancelConfirmed) })
		b.report(says(t, hub.Completed))
		b.refused("a settled cancel", hub.Conflict, func() error { return b.s.SettleCancel(b.ctx, t.ID, t.Attempt, hub.CancelConfirmed) })
		b.is("outcome", b.dispatch(t).Outcome, "")
	})
	run("cancels against dispatches: each task that was dispatched is told, no other", func(b *bed) {
		const n = 100
		tasks, begun := make([]*hub.Task, n), make([]error, n)
		for i := range tasks {
			tasks[i] = b.held()
		}
		crowd(16, 2*n, func(i int) {
			if i%2 == 0 {
				begun[i/2] = b.tryBegin(dispatchOf(tasks[i/2]))()
			} else {
				b.okAll(b.tryCancel(tasks[i/2])())
			}
		})
		list, err := b.s.CanceledDispatches(b.ctx, []string{b.dev}, 0, n)
		b.ok(err)
		told := map[string]bool{}
		for _, d := range list {
			told[d.Task] = true
		}
		for i, t := range tasks {
			b.is("dispatched and told of", told[t.ID], begun[i] == nil)
			if begun[i] != nil {
				b.kind("a dispatch of a canceled task", begun[i], hub.Conflict)
			}
		}
	})
}
