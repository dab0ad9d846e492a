package storetest

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// provisional claims Dev's first task for 5 s until it is confirmed.
func (b *bed) provisional() *hub.Task {
	b.Helper()
	got, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease, Ack: 5 * time.Second})
	b.ok(err)
	if got.Task == nil {
		b.Fatal("nothing was ready to be claimed")
	}
	return got.Task
}

// sweepBy sweeps with other arguments than sweep.
func (b *bed) sweepBy(limit int, leases bool) hub.Swept {
	b.Helper()
	got, err := b.s.Sweep(b.ctx, limit, leases, hub.DefaultLimits())
	b.ok(err)
	return got
}

func sweepTests(run runner) {
	run("a lease is never swept early", func(b *bed) {
		t := b.held()
		got := b.pass(lease - time.Second)
		b.is("changed", got.Changed, 0)
		b.is("next", got.Next, time.Second)
		b.is("phase", b.task(t.ID).Phase, hub.Leased)
	})
	run("an expired lease waits out a backoff and is then ready at the floor", func(b *bed) {
		t := b.held()
		b.askMany(3, b.bob, b.dev)
		got := b.pass(lease + time.Second)
		b.is("changed", got.Changed, 1)
		now := b.task(t.ID)
		b.is("phase, state, failures, attempt", []any{now.Phase, now.State, now.Failures, now.Attempt}, []any{hub.Ready, hub.Working, 1, 1})
		b.is("due", now.Due, b.clock.Now().Add(hub.DefaultLimits().BackoffMin))
		b.is("next", got.Next, hub.DefaultLimits().BackoffMin)
		b.is("claimed meanwhile", b.claim(b.dev).Caller.Handle, "bob")
		got = b.pass(hub.DefaultLimits().BackoffMin + time.Millisecond)
		b.is("changed, ready", []any{got.Changed, got.Ready}, []any{1, []string{b.dev}})
		b.is("due", b.task(t.ID).Due.IsZero(), true)
		b.claimTask(t)
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed, hub.ActLeaseExpired, hub.ActClaimed})
		b.is("actor", b.acts(t.ID)[2].Actor, "hub")
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working})
	})
	run("the backoff doubles up to its maximum", func(b *bed) {
		l := hub.DefaultLimits()
		l.BackoffMin, l.BackoffMax = 10*time.Second, 35*time.Second
		t := b.ask(b.ann, b.dev)
		for _, want := range []time.Duration{10 * time.Second, 20 * time.Second, 35 * time.Second, 35 * time.Second} {
			b.claimTask(t)
			b.clock.Advance(lease + time.Second)
			_, err := b.s.Sweep(b.ctx, 10, true, l)
			b.ok(err)
			b.is("backoff", b.task(t.ID).Due.Sub(b.clock.Now()), want)
			b.pass(want - time.Millisecond)
			b.nothingReady(b.dev)
			b.pass(2 * time.Millisecond)
		}
	})
	run("after 5 redeliveries the task fails and says why", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		for i := range 6 {
			c := b.claimTask(t)
			b.is("attempt", c.Attempt, i+1)
			b.clock.Advance(lease + time.Second)
			got := b.sweep()
			if i == 5 {
				b.is("tasks with news", got.Tasks, []string{t.ID})
				b.is("next", got.Next, time.Duration(-1))
				break
			}
			b.pass(time.Minute)
		}
		now := b.task(t.ID)
		b.is("state, phase, ended", []any{now.State, now.Phase, now.EndedAt}, []any{hub.Failed, hub.Done, b.clock.Now()})
		if len(now.Error) < 20 {
			b.Errorf("the task says too little of why it failed: %q", now.Error)
		}
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working, hub.Failed})
		b.is("lost leases and the end", []int{b.count(t.ID, hub.ActLeaseExpired), b.count(t.ID, hub.ActFailed)}, []int{5, 1})
		b.nothingReady(b.dev)
		b.kind("a late result", b.tryReport(says(&hub.Task{ID: t.ID, Callee: t.Callee, Attempt: 6}, hub.Completed))(), hub.Conflict)
		b.is("late replies", b.count(t.ID, hub.ActLateReply), 1)
	})
	run("an address decides its own redeliveries", func(b *bed) {
		for n, handle := range []string{"zero", "one"} {
			callee := b.address(handle, func(a *hub.Address) { a.MaxRedeliveries = n })
			t := b.ask(b.ann, callee)
			for range n {
				b.claimTask(t)
				b.expire()
				b.is("state", b.task(t.ID).State, hub.Working)
				b.pass(time.Minute)
			}
			b.claimTask(t)
			b.expire()
			b.is("state", b.task(t.ID).State, hub.Failed)
		}
	})
	run("the limit given to the sweep counts where the address has none", func(b *bed) {
		t := b.held()
		l := hub.DefaultLimits()
		l.Redeliveries = 0
		b.clock.Advance(lease + time.Second)
		_, err := b.s.Sweep(b.ctx, 10, true, l)
		b.ok(err)
		b.is("state", b.task(t.ID).State, hub.Failed)
	})
	run("a question starts the count of failures anew", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		for range 3 {
			for range 3 {
				b.claimTask(t)
				b.expire()
				b.pass(time.Minute)
			}
			b.report(says(b.claimTask(t), hub.InputRequired))
			b.follow(t, "m")
		}
		now := b.task(t.ID)
		b.is("phase, failures", []any{now.Phase, now.Failures}, []any{hub.Ready, 0})
	})
	run("tasks in backoff never block the head", func(b *bed) {
		const n = 200
		b.askMany(n, b.ann, b.dev)
		together(n, func(int) {
			_, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
			b.okAll(err)
		})
		b.expire()
		t := b.ask(b.bob, b.dev)
		b.claimTask(t)
		b.nothingReady(b.dev)
	})
	run("a sweep does the oldest first, up to its limit, and says that there is more", func(b *bed) {
		var order []string
		for range 5 {
			order = append(order, b.held().ID)
			b.clock.Advance(time.Second)
		}
		b.clock.Advance(lease)
		got := b.sweepBy(2, true)
		b.is("changed, more", []any{got.Changed, got.More}, []any{2, true})
		for i, id := range order {
			b.is(number("failures of task ", i), b.task(id).Failures, map[bool]int{true: 1, false: 0}[i < 2])
		}
		got = b.sweepBy(10, true)
		b.is("changed, more", []any{got.Changed, got.More}, []any{3, false})
	})
	run("one sweep gets past a full batch of tasks that cannot be offered again", func(b *bed) {
		const batch = 50
		none := b.address("none", func(a *hub.Address) { a.MaxRedeliveries = 0 })
		b.askMany(batch, b.ann, none)
		for range batch {
			b.claim(none)
		}
		b.clock.Advance(time.Millisecond)
		t := b.held()
		b.clock.Advance(lease + time.Second)
		got := b.sweepBy(batch, true)
		b.is("changed, more", []any{got.Changed, got.More}, []any{batch, true})
		got = b.sweepBy(batch, true)
		b.is("changed", got.Changed, 1)
		b.pass(time.Minute)
		b.claimTask(t)
	})
	run("with leases false expired leases are left alone, the rest is done", func(b *bed) {
		back := b.held()
		b.expire() // back is in backoff now
		t := b.held()
		dead := b.ask(b.ann, b.ops, withDeadline(b.clock.Now().Add(time.Second)))
		b.clock.Advance(lease + time.Minute)
		got := b.sweepBy(10, false)
		b.is("changed", got.Changed, 2)
		b.is("phases", []hub.Phase{b.task(back.ID).Phase, b.task(t.ID).Phase, b.task(dead.ID).Phase}, []hub.Phase{hub.Ready, hub.Leased, hub.Done})
		b.is("due", b.task(back.ID).Due.IsZero(), true)
		b.is("failures", b.task(t.ID).Failures, 0)
		b.is("changed with leases", b.sweepBy(10, true).Changed, 1)
		b.is("failures", b.task(t.ID).Failures, 1)
	})
	run("expired leases left alone do not block what comes after them", func(b *bed) {
		for range 5 {
			b.held()
		}
		b.clock.Advance(lease + time.Second)
		dead := b.ask(b.ann, b.dev, withDeadline(b.clock.Now().Add(time.Second)))
		b.clock.Advance(2 * time.Second)
		for range 3 {
			b.sweepBy(2, false)
		}
		b.is("state", b.task(dead.ID).State, hub.Failed)
	})
	run("a provisional claim not taken up is offered again at once and is no failure", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.is("attempt", b.provisional().Attempt, 1)
		b.is("changed early", b.pass(4*time.Second).Changed, 0)
		got := b.pass(2 * time.Second)
		b.is("changed, ready", []any{got.Changed, got.Ready}, []any{1, []string{b.dev}})
		now := b.task(t.ID)
		b.is("phase, failures, due", []any{now.Phase, now.Failures, now.Due.IsZero()}, []any{hub.Ready, 0, true})
		b.is("attempt", b.claimTask(t).Attempt, 2)
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed, hub.ActUnconfirmed, hub.ActClaimed})
	})
	run("a hundred unconfirmed hand-outs never fail a task", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		for range 100 {
			b.provisional()
			b.pass(6 * time.Second)
		}
		b.is("attempt", b.claimTask(t).Attempt, 101)
	})
	run("a heartbeat or a report confirms a provisional claim", func(b *bed) {
		confirm := map[string]func(t *hub.Task){
			"heartbeat": func(t *hub.Task) { b.beat(beatOf(t)) },
			"progress":  func(t *hub.Task) { b.report(says(t, hub.Working)) },
			"artifact":  func(t *hub.Task) { b.report(reports(t, put("a", "1"))) },
		}
		for what, f := range confirm {
			b.ask(b.ann, b.dev)
			t := b.provisional()
			f(t)
			until := b.clock.Now().Add(lease)
			b.is("changed after "+what, b.pass(time.Minute).Changed, 0)
			b.is("lease after "+what, b.task(t.ID).LeaseUntil, until)
			b.expire()
			b.is("failures after "+what, b.task(t.ID).Failures, 1)
			b.cancel(t)
		}
	})
	run("a provisional claim can come with a send or a report", func(b *bed) {
		ack := &hub.ClaimSpec{Lease: lease, Ack: 5 * time.Second}
		got := b.send(newSend(b.ann, b.dev, func(s *hub.Send) { s.Claim = ack }))
		b.ask(b.ann, b.dev)
		next := b.report(says(got.Claimed, hub.Completed, func(r *hub.Report) { r.Next = ack })).Next
		b.is("changed", b.pass(6*time.Second).Changed, 1)
		b.claimTask(next)
	})
	run("what a sweep says of the time is when something is due", func(b *bed) {
		b.is("next on an idle hub", b.sweep().Next < 0, true)
		b.held()
		b.parked()
		b.ask(b.ann, b.dev, withDeadline(b.clock.Now().Add(time.Hour)))
		b.ask(b.ann, b.ops)
		for range 12 {
			got := b.sweep()
			if got.Next < 0 {
				break
			}
			b.is("changed just before", b.pass(got.Next-time.Millisecond).Changed, 0)
			if got := b.pass(time.Millisecond); got.Changed == 0 {
				b.Fatal("nothing was due when it was said to be")
			}
			if t := b.maybeClaim(b.dev); t != nil {
				b.report(says(t, hub.Working))
			}
		}
	})
	run("a sweep names the callee of each task that became ready", func(b *bed) {
		for range 2 {
			b.held()
			b.heldByOps()
		}
		b.expire()
		got := b.pass(time.Minute)
		slices.Sort(got.Ready)
		want := []string{b.dev, b.dev, b.ops, b.ops}
		slices.Sort(want)
		b.is("ready", got.Ready, want)
		b.is("changed", got.Changed, 4)
		b.is("tasks with news", got.Tasks, nil)
	})
	run("an idle sweep changes nothing", func(b *bed) {
		b.held()
		b.parked()
		b.ask(b.ann, b.dev)
		b.unchanged("a sweep", func() error {
			got, err := b.s.Sweep(b.ctx, 100, true, hub.DefaultLimits())
			b.is("changed, more, tasks, ready", []any{got.Changed, got.More, len(got.Tasks), len(got.Ready)}, []any{0, false, 0, 0})
			return err
		})
	})
	run("parallel sweeps expire each lease once", func(b *bed) {
		for range 20 {
			b.held()
		}
		b.clock.Advance(lease + time.Second)
		total := make([]int, 8)
		crowd(8, 8, func(i int) {
			got, err := b.s.Sweep(context.WithoutCancel(b.ctx), 5, true, hub.DefaultLimits())
			b.okAll(err)
			total[i] = got.Changed
		})
		n := 0
		for _, x := range total {
			n += x
		}
		b.is("changed", n, 20)
		for _, t := range b.list(hub.TaskFilter{By: everything()}) {
			b.is("failures", t.Failures, 1)
		}
	})
}

func deadlineTests(run runner) {
	phases := map[string]func(b *bed, at time.Time) *hub.Task{
		"ready": func(b *bed, at time.Time) *hub.Task { return b.ask(b.ann, b.dev, withDeadline(at)) },
		"leased": func(b *bed, at time.Time) *hub.Task {
			return b.held(withDeadline(at))
		},
		"parked": func(b *bed, at time.Time) *hub.Task {
			return b.report(says(b.held(withDeadline(at)), hub.InputRequired)).Task
		},
		"in backoff": func(b *bed, at time.Time) *hub.Task {
			t := b.held(withDeadline(at))
			b.expire()
			return t
		},
	}
	for phase, begin := range phases {
		run("a task beyond its deadline fails when it is "+phase, func(b *bed) {
			at := b.clock.Now().Add(lease + 1500*time.Millisecond)
			t := begin(b, at)
			if phase == "leased" {
				b.clock.Advance(time.Minute)
				b.beat(beatOf(t)) // the lease now ends after the deadline
			}
			b.pass(at.Sub(b.clock.Now()) - time.Millisecond)
			b.is("state before", b.task(t.ID).State.Terminal(), false)
			got := b.pass(2 * time.Millisecond)
			b.is("tasks with news", got.Tasks, []string{t.ID})
			now := b.task(t.ID)
			b.is("state, phase, ended", []any{now.State, now.Phase, now.EndedAt}, []any{hub.Failed, hub.Done, b.clock.Now()})
			if len(now.Error) < 10 {
				b.Errorf("the task says too little of why it failed: %q", now.Error)
			}
			b.is("terminal lines", b.count(t.ID, hub.ActFailed), 1)
			b.nothingReady(b.dev)
			b.is("changed much later", b.pass(24*time.Hour).Changed, 0)
		})
	}
	run("a task that ended in time stays as it ended", func(b *bed) {
		t := b.held(withDeadline(b.clock.Now().Add(time.Minute)))
		b.report(says(t, hub.Completed))
		b.is("changed", b.pass(time.Hour).Changed, 0)
		b.is("state", b.task(t.ID).State, hub.Completed)
	})
	run("a heartbeat does not move the deadline", func(b *bed) {
		t := b.held(withDeadline(b.clock.Now().Add(time.Minute)))
		for range 5 {
			b.beat(beatOf(t))
			b.pass(10 * time.Second)
		}
		b.beat(beatOf(t))
		b.pass(11 * time.Second)
		b.is("state", b.task(t.ID).State, hub.Failed)
	})
	run("a result after the deadline is late", func(b *bed) {
		t := b.held(withDeadline(b.clock.Now().Add(time.Minute)))
		b.pass(time.Minute + time.Second)
		b.kind("a late result", b.tryReport(says(t, hub.Completed))(), hub.Conflict)
		b.is("late replies", b.count(t.ID, hub.ActLateReply), 1)
		b.refused("a heartbeat", hub.Conflict, b.tryBeat(beatOf(t)))
	})
	run("answers and claims keep the deadline", func(b *bed) {
		at := b.clock.Now().Add(time.Hour)
		t := b.report(says(b.held(withDeadline(at)), hub.InputRequired)).Task
		b.follow(t, "m2")
		b.claimTask(t)
		b.ok(b.s.Release(b.ctx, b.dev, t.ID, 2))
		b.is("deadline", b.task(t.ID).Deadline, at)
		b.pass(time.Hour + time.Second)
		b.is("state", b.task(t.ID).State, hub.Failed)
	})
}
