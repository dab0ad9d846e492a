package storetest

import (
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func cancelTests(run runner) {
	phases := map[string]struct {
		begin func(b *bed) *hub.Task
		want  hub.CancelOutcome
	}{
		"ready":                   {func(b *bed) *hub.Task { return b.ask(b.ann, b.dev) }, hub.CancelConfirmed},
		"leased":                  {func(b *bed) *hub.Task { return b.held() }, hub.CancelUnconfirmed},
		"leased to a dead callee": {func(b *bed) *hub.Task { t := b.held(); b.clock.Advance(2 * lease); return t }, hub.CancelUnconfirmed},
		"parked":                  {func(b *bed) *hub.Task { return b.parked() }, hub.CancelConfirmed},
		"answered":                {func(b *bed) *hub.Task { t := b.parked(); b.follow(t, "m2"); return t }, hub.CancelConfirmed},
	}
	for phase, c := range phases {
		run("a cancel ends a task at once that is "+phase, func(b *bed) {
			t := c.begin(b)
			before := b.events(t.ID)
			b.clock.Advance(time.Second)
			got := b.cancel(t)
			b.is("state, phase, outcome, ended, at", []any{got.State, got.Phase, got.CancelOutcome, got.EndedAt, got.StateAt},
				[]any{hub.Canceled, hub.Done, c.want, b.clock.Now(), b.clock.Now()})
			after := b.events(t.ID)
			b.is("one more event", len(after), len(before)+1)
			b.is("its state", after[len(before)].State, hub.Canceled)
			b.is("canceled lines", b.count(t.ID, hub.ActCanceled), 1)
			b.nothingReady(b.dev)
			b.is("a sweep cannot undo it", b.pass(24*time.Hour).Changed, 0)
			b.is("state", b.task(t.ID).State, hub.Canceled)
		})
	}
	run("a cancel in backoff is final and unconfirmed: the claim could still have reported", func(b *bed) {
		t := b.held()
		b.expire()
		b.is("outcome", b.cancel(t).CancelOutcome, hub.CancelUnconfirmed)
		b.is("changed", b.pass(time.Hour).Changed, 0)
		b.nothingReady(b.dev)
	})
	run("a cancel names who did it", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.cancel(t)
		lines := b.acts(t.ID)
		b.is("actor", lines[1].Actor, "ann")
	})
	run("the administrator may cancel any task", func(b *bed) {
		t := b.held()
		got, err := b.s.Cancel(b.ctx, refOf(t), hub.Viewer{Address: b.eve, All: true})
		b.ok(err)
		b.is("state", got.State, hub.Canceled)
	})
	run("a second cancel gives the task unchanged", func(b *bed) {
		t := b.held()
		first := b.cancel(t)
		b.clock.Advance(time.Second)
		var got *hub.Task
		b.unchanged("a second cancel", func() (err error) {
			got, err = b.s.Cancel(b.ctx, refOf(t), only(b.ann))
			return err
		})
		b.is("task", got, first)
	})
	run("a task that ended otherwise is not cancelable", func(b *bed) {
		for _, state := range []hub.State{hub.Completed, hub.Failed, hub.Rejected} {
			t := b.held()
			b.report(says(t, state))
			b.refused("a cancel after "+state.String(), hub.NotCancelable, b.tryCancel(t))
		}
	})
	run("the holder's heartbeat learns of the cancel and confirms it", func(b *bed) {
		t := b.held()
		b.cancel(t)
		for range 3 {
			got := b.beat(beatOf(t))
			b.is("state, cancel requested", []any{got.State, got.CancelRequested}, []any{hub.Canceled, true})
		}
		b.is("outcome", b.task(t.ID).CancelOutcome, hub.CancelConfirmed)
		b.is("cancel seen lines", b.count(t.ID, hub.ActCancelSeen), 1)
		b.expire()
		b.is("cancel requested ever after", b.beat(beatOf(t)).CancelRequested, true)
	})
	run("a heartbeat before the cancel is not told of one", func(b *bed) {
		b.is("cancel requested", b.beat(beatOf(b.held())).CancelRequested, false)
	})
	run("an older claim is not told of the cancel", func(b *bed) {
		old := b.held()
		b.expire()
		b.pass(time.Minute)
		c := b.claimTask(old)
		b.cancel(c)
		b.refused("the old claim's heartbeat", hub.Conflict, b.tryBeat(beatOf(old)))
		b.is("cancel requested", b.beat(beatOf(c)).CancelRequested, true)
	})
	run("a result after an unconfirmed cancel shows that the work was done", func(b *bed) {
		t := b.held()
		b.cancel(t)
		before := b.events(t.ID)
		b.kind("the late result", b.tryReport(says(t, hub.Completed, withEvents(put("a", "1"))))(), hub.Conflict)
		got := b.task(t.ID)
		b.is("state, outcome", []any{got.State, got.CancelOutcome}, []any{hub.Canceled, hub.CancelAlreadyFinished})
		b.is("artifacts", got.Artifacts, nil)
		b.is("events", b.events(t.ID), before)
		b.is("late replies", b.count(t.ID, hub.ActLateReply), 1)
		b.is("cancel requested", b.beat(beatOf(t)).CancelRequested, true)
		b.is("the outcome stays", b.task(t.ID).CancelOutcome, hub.CancelAlreadyFinished)
	})
	run("a result after a confirmed cancel leaves the outcome", func(b *bed) {
		t := b.held()
		b.cancel(t)
		b.beat(beatOf(t))
		b.kind("the late result", b.tryReport(says(t, hub.Completed))(), hub.Conflict)
		b.is("outcome", b.task(t.ID).CancelOutcome, hub.CancelConfirmed)
		b.is("late replies", b.count(t.ID, hub.ActLateReply), 1)
	})
	run("events after a cancel are refused and change no outcome", func(b *bed) {
		t := b.held()
		b.cancel(t)
		before := b.view(t.ID)
		b.kind("an artifact", b.tryReport(reports(t, put("a", "1")))(), hub.Conflict)
		b.kind("progress", b.tryReport(says(t, hub.Working))(), hub.Conflict)
		b.is("task and events", b.view(t.ID), before)
	})
	run("cancel against complete on 300 tasks: one end each, the loser is told", func(b *bed) {
		const n = 300
		b.askMany(n, b.ann, b.dev)
		held := make([]*hub.Task, n)
		together(n, func(i int) {
			got, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
			b.okAll(err)
			held[i] = got.Task
		})
		b.noFailure()
		cancels, reports := make([]error, n), make([]error, n)
		together(2*n, func(i int) {
			if t := held[i/2]; i%2 == 0 {
				cancels[i/2] = b.tryCancel(t)()
			} else {
				reports[i/2] = b.tryReport(says(t, hub.Completed))()
			}
		})
		var canceled atomic.Int64
		together(n, func(i int) {
			end, lost, kind := hub.Completed, cancels[i], hub.NotCancelable
			if cancels[i] == nil {
				end, lost, kind = hub.Canceled, reports[i], hub.Conflict
				canceled.Add(1)
			}
			b.kind("the loser", lost, kind)
			b.is("states", b.states(held[i].ID), []hub.State{hub.Submitted, hub.Working, end})
			b.is("history", len(b.task(held[i].ID).History), 1)
		})
		b.Logf("%d of %d were canceled", canceled.Load(), n)
	})
	run("cancel against claim leaves no claim of a canceled task open to results", func(b *bed) {
		for range 30 {
			t := b.ask(b.ann, b.dev)
			var c *hub.Task
			crowd(2, 2, func(i int) {
				if i == 0 {
					b.okAll(b.tryCancel(t)())
					return
				}
				got, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
				b.okAll(err)
				c = got.Task
			})
			if c != nil {
				b.kind("a result", b.tryReport(says(c, hub.Completed))(), hub.Conflict)
			}
			b.is("state", b.task(t.ID).State, hub.Canceled)
		}
	})
	run("cancel against answer: the task is canceled in the end", func(b *bed) {
		for range 20 {
			t := b.parked()
			crowd(2, 2, func(i int) {
				if i == 0 {
					b.okAll(b.tryCancel(t)())
				} else if _, err := b.s.Send(b.ctx, newSend(b.ann, b.dev, to(t))); err != nil {
					b.kind("the answer", err, hub.Ended)
				}
			})
			b.is("state", b.task(t.ID).State, hub.Canceled)
			b.nothingReady(b.dev)
		}
	})
}

func requeueTests(run runner) {
	run("a leased task is offered again at once, no failure", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.askMany(3, b.bob, b.dev)
		b.claimTask(t)
		id := newID()
		got, err := b.s.Requeue(b.ctx, t.ID, id)
		b.ok(err)
		b.is("id, phase, state, failures", []any{got.ID, got.Phase, got.State, got.Failures}, []any{t.ID, hub.Ready, hub.Working, 0})
		b.is("no backoff", got.Due.IsZero(), true)
		b.is("attempt", b.claimTask(t).Attempt, 2)
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed, hub.ActRequeued, hub.ActClaimed})
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working})
		_, err = b.s.Task(b.ctx, hub.TaskRef{ID: id}, everything(), hub.Load{})
		b.kind("a copy", err, hub.NotFound)
	})
	run("a claim taken by hand is over at once", func(b *bed) {
		t := b.held()
		_, err := b.s.Requeue(b.ctx, t.ID, newID())
		b.ok(err)
		b.refused("its heartbeat", hub.Conflict, b.tryBeat(beatOf(t)))
		b.refused("its artifact", hub.Conflict, b.tryReport(reports(t, put("a", "1"))))
		b.refused("its result", hub.Conflict, b.tryReport(says(t, hub.Completed)))
		b.refused("its result under no name", hub.Conflict, b.tryReport(says(t, hub.Completed, underAttempt(0))))
		c := b.claimTask(t)
		b.refused("an unnamed result after the next claim", hub.Conflict, b.tryReport(says(t, hub.Completed, underAttempt(0))))
		b.report(says(c, hub.Completed))
	})
	run("a failed task is sent again as a copy and stays as it ended", func(b *bed) {
		s := newSend(b.ann, b.dev, inContext("ctx-1"))
		s.Tags, s.Metadata = []byte(`{"k":"v"}`), []byte(`{"n":1}`)
		s.Run, s.ParentTask, s.ParentCall, s.Trace = newID(), newID(), newID(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		b.send(s)
		t := b.claim(b.dev)
		b.follow(t, "m2")
		b.report(says(t, hub.Failed, withEvents(put("a", "1"))))
		before := b.view(t.ID)
		b.clock.Advance(time.Hour)
		id := newID()
		got, err := b.s.Requeue(b.ctx, t.ID, id)
		b.ok(err)
		b.is("the failed task", b.view(t.ID), before)
		want := &hub.Task{
			ID: id, ContextID: "ctx-1", Caller: t.Caller, Callee: t.Callee, State: hub.Submitted,
			StateAt: b.clock.Now(), Phase: hub.Ready, Seq: 1, Messages: 1, Tags: s.Tags, ParentTask: s.ParentTask,
			ParentCall: s.ParentCall, Run: s.Run, Trace: s.Trace, RequeueOf: t.ID, CreatedAt: b.clock.Now(),
		}
		want.Metadata = got.Metadata // the definition does not say
		b.is("the copy", got, want)
		want.History = []hub.Message{{N: 1, Body: msg("m1")}}
		b.is("the copy as read", b.task(id), want)
		b.claimTask(got)
		b.report(says(&hub.Task{ID: id, Callee: t.Callee, Attempt: 1}, hub.Completed))
	})
	run("a requeue ends a backoff, and leaves what is ready as it is", func(b *bed) {
		t := b.held()
		b.expire()
		got, err := b.s.Requeue(b.ctx, t.ID, newID())
		b.ok(err)
		b.is("phase, due, failures", []any{got.Phase, got.Due, got.Failures}, []any{hub.Ready, time.Time{}, 1})
		again, err := b.s.Requeue(b.ctx, t.ID, newID())
		b.ok(err)
		b.is("the second time", again, got)
		b.is("lines", b.count(t.ID, hub.ActRequeued), 1)
		b.is("attempt", b.claimTask(t).Attempt, 2)
	})
	run("what has ended well, or waits for its caller, cannot be requeued", func(b *bed) {
		tasks := map[string]*hub.Task{"parked": b.parked()}
		for _, state := range []hub.State{hub.Completed, hub.Rejected} {
			tasks[state.String()] = b.report(says(b.held(), state)).Task
		}
		tasks["canceled"] = b.cancel(b.held())
		for phase, t := range tasks {
			b.refused("a requeue of a task that is "+phase, hub.Conflict, func() error {
				_, err := b.s.Requeue(b.ctx, t.ID, newID())
				return err
			})
		}
	})
	run("a failed task is not repeated without an id for its copy", func(b *bed) {
		t := b.report(says(b.held(), hub.Failed)).Task
		b.refused("a requeue", hub.Conflict, func() error { _, err := b.s.Requeue(b.ctx, t.ID, ""); return err })
		b.is("lines", b.count(t.ID, hub.ActRequeued), 0)
	})
	run("a requeue of no task is not found", func(b *bed) {
		b.refused("a requeue", hub.NotFound, func() error { _, err := b.s.Requeue(b.ctx, newID(), newID()); return err })
	})
	run("a requeued task that failed can fail and be requeued again", func(b *bed) {
		first := b.report(says(b.held(), hub.Failed)).Task
		second, err := b.s.Requeue(b.ctx, first.ID, newID())
		b.ok(err)
		b.report(says(b.claimTask(second), hub.Failed))
		third, err := b.s.Requeue(b.ctx, second.ID, newID())
		b.ok(err)
		b.is("origin", third.RequeueOf, second.ID)
	})
}

func finalityTests(run runner) {
	ends := map[hub.State]func(b *bed) *hub.Task{
		hub.Completed: func(b *bed) *hub.Task { t := b.held(); b.report(says(t, hub.Completed)); return t },
		hub.Failed:    func(b *bed) *hub.Task { t := b.held(); b.report(says(t, hub.Failed)); return t },
		hub.Rejected:  func(b *bed) *hub.Task { t := b.held(); b.report(says(t, hub.Rejected)); return t },
		hub.Canceled: func(b *bed) *hub.Task {
			t := b.held()
			b.cancel(t)
			b.beat(beatOf(t)) // the outcome is settled
			return t
		},
	}
	for end, begin := range ends {
		run("nothing changes a task that is "+end.String(), func(b *bed) {
			t := begin(b)
			before := b.view(t.ID)
			still := func(what string) { b.is("the task after "+what, b.view(t.ID), before) }
			b.refused("a message", hub.Ended, b.trySend(newSend(b.ann, b.dev, to(t))))
			b.refused("a message with a key", hub.Ended, b.trySend(newSend(b.ann, b.dev, to(t), withKey("k", "f"))))
			for state := hub.Working; state <= hub.AuthRequired; state++ {
				if state != hub.Canceled {
					b.kind("a report of "+state.String(), b.tryReport(says(t, state, withEvents(put("z", "1"))))(), hub.Conflict)
				}
			}
			b.kind("events", b.tryReport(reports(t, put("a", "1")))(), hub.Conflict)
			b.kind("a report under the next attempt", b.tryReport(says(t, hub.Completed, underAttempt(2)))(), hub.Conflict)
			still("reports")
			if end == hub.Canceled {
				b.unchanged("a heartbeat", b.tryBeat(beatOf(t)))
				b.unchanged("a cancel", b.tryCancel(t))
			} else {
				b.refused("a heartbeat", hub.Conflict, b.tryBeat(beatOf(t)))
				b.refused("a cancel", hub.NotCancelable, b.tryCancel(t))
			}
			b.refused("a release", hub.Conflict, func() error { return b.s.Release(b.ctx, b.dev, t.ID, t.Attempt) })
			_, err := b.s.Requeue(b.ctx, t.ID, newID())
			if end == hub.Failed {
				b.ok(err)
				b.claim(b.dev) // the copy
			} else {
				b.kind("a requeue", err, hub.Conflict)
			}
			_, err = b.s.CancelQueued(b.ctx, b.ops, 100)
			b.ok(err)
			b.pass(48 * time.Hour)
			b.pass(48 * time.Hour)
			still("everything")
		})
	}
}
