package storetest

import (
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func claimTests(run runner) {
	run("a claim leases the task and sets it to work", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.clock.Advance(time.Second)
		c := b.claimTask(t)
		want := *t
		want.State, want.StateAt, want.Phase, want.Seq, want.Attempt = hub.Working, b.clock.Now(), hub.Leased, 2, 1
		want.ClaimedAt, want.LeaseUntil = b.clock.Now(), b.clock.Now().Add(lease)
		want.History = []hub.Message{{N: 1, Body: msg("m1")}}
		b.is("the claimed task", c, &want)
		b.is("the task as read", b.task(t.ID), &want)
		b.is("events", b.events(t.ID)[1], hub.Event{Seq: 2, Kind: hub.StatusEvent, At: b.clock.Now(), State: hub.Working})
		line := b.acts(t.ID)[1]
		b.is("activity", []any{line.Kind, line.Actor, line.Attempt, line.Seq}, []any{hub.ActClaimed, "dev", 1, int64(2)})
	})
	run("nothing ready is nil and no error", func(b *bed) {
		b.ask(b.ann, b.ops)
		b.unchanged("a claim of nothing", func() error {
			got, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
			b.is("claimed", got, hub.Claimed{})
			return err
		})
	})
	run("leased, parked and ended tasks are not claimed again", func(b *bed) {
		b.held()
		b.nothingReady(b.dev)
		b.parked()
		b.nothingReady(b.dev)
		b.report(says(b.held(), hub.Completed))
		b.nothingReady(b.dev)
	})
	run("a second claim raises the attempt and adds no WORKING event", func(b *bed) {
		t := b.held()
		b.expire()
		b.pass(time.Minute)
		c := b.claimTask(t)
		b.is("attempt", c.Attempt, 2)
		b.is("failures", c.Failures, 1)
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working})
	})
	run("one caller's tasks come in the order of their acceptance", func(b *bed) {
		var want, got []string
		for range 20 {
			want = append(want, b.ask(b.ann, b.dev).ID)
			b.clock.Advance(time.Millisecond)
		}
		for range 20 {
			got = append(got, b.claim(b.dev).ID)
		}
		b.is("order", got, want)
	})
	run("many claimers get each task exactly once", func(b *bed) {
		const n = 200
		sent := b.askMany(n, b.ann, b.dev)
		var mu sync.Mutex
		claims := map[string]int{}
		together(n+50, func(int) {
			got, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
			b.okAll(err)
			if got.Task != nil {
				mu.Lock()
				claims[got.Task.ID]++
				mu.Unlock()
			}
		})
		for _, id := range sent {
			if claims[id] != 1 {
				b.Errorf("task %s was claimed %d times", id, claims[id])
			}
		}
		b.is("claims", len(claims), n)
	})
	run("claims by every way in stay exclusive together", func(b *bed) {
		const n = 60
		var mu sync.Mutex
		claims := map[string]int{}
		got := func(t *hub.Task) {
			if t != nil {
				mu.Lock()
				claims[t.ID]++
				mu.Unlock()
			}
		}
		together(n, func(i int) {
			sent, err := b.s.Send(b.ctx, newSend(b.ann, b.dev, withClaim))
			b.okAll(err)
			got(sent.Claimed)
			if sent.Claimed != nil {
				r, err := b.s.Report(b.ctx, says(sent.Claimed, hub.Completed, withNext))
				b.okAll(err)
				got(r.Next)
			}
			c, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
			b.okAll(err)
			got(c.Task)
		})
		for id, c := range claims {
			if c != 1 {
				b.Errorf("task %s was claimed %d times", id, c)
			}
		}
		b.is("claims", len(claims), n)
	})
	run("a released claim is offered again at once and is no failure", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		later := b.ask(b.ann, b.dev)
		c := b.claimTask(t)
		b.ok(b.s.Release(b.ctx, b.dev, t.ID, c.Attempt))
		got := b.task(t.ID)
		b.is("phase, state, failures, attempt", []any{got.Phase, got.State, got.Failures, got.Attempt}, []any{hub.Ready, hub.Working, 0, 1})
		b.is("no backoff", got.Due.IsZero(), true)
		b.is("attempt", b.claimTask(t).Attempt, 2)
		b.claimTask(later)
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed, hub.ActReleased, hub.ActClaimed})
	})
	run("a release is refused unless that very claim holds the task", func(b *bed) {
		t := b.held()
		release := func(callee, task string, attempt int) func() error {
			return func() error { return b.s.Release(b.ctx, callee, task, attempt) }
		}
		b.refused("a release by another callee", hub.NotFound, release(b.ops, t.ID, 1))
		b.refused("a release by the caller", hub.NotFound, release(b.ann, t.ID, 1))
		b.refused("a release of no task", hub.NotFound, release(b.dev, newID(), 1))
		b.refused("a release of another attempt", hub.Conflict, release(b.dev, t.ID, 2))
		b.refused("a release of no attempt", hub.Conflict, release(b.dev, t.ID, 0))
		b.ok(release(b.dev, t.ID, 1)())
		b.refused("a second release", hub.Conflict, release(b.dev, t.ID, 1))
		b.claimTask(t)
		b.refused("a release of the older attempt", hub.Conflict, release(b.dev, t.ID, 1))
		p := b.parked()
		b.refused("a release of a parked task", hub.Conflict, release(b.dev, p.ID, 1))
		d := b.held()
		b.report(says(d, hub.Completed))
		b.refused("a release of an ended task", hub.Conflict, release(b.dev, d.ID, 1))
	})
	run("a task that was handed out too often fails where it would be claimed again, and is named", func(b *bed) {
		spec := &hub.ClaimSpec{Lease: lease, Attempts: 2}
		held := b.held()
		ways := map[string]func() (*hub.Task, []string){
			"claim": func() (*hub.Task, []string) {
				got, err := b.s.Claim(b.ctx, b.dev, *spec)
				b.ok(err)
				return got.Task, got.Failed
			},
			"send": func() (*hub.Task, []string) {
				s := newSend(b.ann, b.dev)
				s.Claim = spec
				got := b.send(s)
				return got.Claimed, got.Failed
			},
			"report": func() (*hub.Task, []string) {
				r := says(held, hub.Completed)
				r.Next = spec
				got := b.report(r)
				return got.Next, got.Failed
			},
		}
		for _, name := range []string{"claim", "report", "send"} {
			one, two := b.ask(b.ann, b.dev), b.ask(b.ann, b.dev)
			for attempt := 1; attempt <= 2; attempt++ {
				b.claimTask(one)
				b.claimTask(two)
				b.ok(b.s.Release(b.ctx, b.dev, one.ID, attempt))
				b.ok(b.s.Release(b.ctx, b.dev, two.ID, attempt))
			}
			_, failed := ways[name]()
			b.is("failed by a "+name, failed, []string{one.ID, two.ID})
			for _, t := range []*hub.Task{one, two} {
				got := b.task(t.ID)
				b.is("state, attempt, phase", []any{got.State, got.Attempt, got.Phase}, []any{hub.Failed, 2, hub.Done})
				b.is("says why", got.Error != "", true)
			}
		}
	})
	run("a claim hands out no more than the task, whatever its history", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "1"), progress("p")))
		b.ok(b.s.Release(b.ctx, b.dev, t.ID, 1))
		c := b.claimTask(t)
		b.is("status message", string(c.StatusMessage), string(agentMsg("p")))
		b.is("seq", c.Seq, int64(4))
	})
}

func fairnessTests(run runner) {
	// position claims until it meets a task and says how many claims that took.
	position := func(b *bed, id string) int {
		b.Helper()
		for n := 1; ; n++ {
			if b.claim(b.dev).ID == id {
				return n
			}
		}
	}
	run("a backlog of 1,000 does not starve another caller's first task", func(b *bed) {
		b.askMany(1000, b.ann, b.dev)
		t := b.ask(b.bob, b.dev)
		if n := position(b, t.ID); n > 10 {
			b.Errorf("bob's only task was claimed as number %d", n)
		}
	})
	run("nor does it in the middle of the backlog", func(b *bed) {
		b.askMany(100, b.ann, b.dev)
		for range 50 {
			b.claim(b.dev)
		}
		if n := position(b, b.ask(b.bob, b.dev).ID); n > 3 {
			b.Errorf("bob's only task was claimed as number %d", n)
		}
	})
	run("a caller's long history of finished tasks does not set it back", func(b *bed) {
		const n = 1000
		b.askMany(n, b.ann, b.dev)
		together(n, func(int) {
			got, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
			b.okAll(err)
			_, err = b.s.Report(b.ctx, says(got.Task, hub.Completed))
			b.okAll(err)
		})
		b.noFailure()
		b.askMany(50, b.bob, b.dev)
		if n := position(b, b.ask(b.ann, b.dev).ID); n > 3 {
			b.Errorf("ann's task was claimed as number %d although she had nothing waiting", n)
		}
	})
	run("a newcomer does not get ahead of those who wait", func(b *bed) {
		b.askMany(30, b.ann, b.dev)
		for range 20 {
			b.claim(b.dev)
		}
		b.askMany(30, b.bob, b.dev)
		counts := map[string]int{}
		for range 10 {
			counts[b.claim(b.dev).Caller.Handle]++
		}
		b.is("claims of each", counts, map[string]int{"ann": 5, "bob": 5})
	})
	run("three callers advance at the same pace", func(b *bed) {
		callers := []string{b.ann, b.bob, b.eve}
		for i, caller := range callers {
			b.askMany(40-10*i, caller, b.dev)
		}
		counts := map[string]int{}
		for range 60 {
			counts[b.claim(b.dev).Caller.ID]++
			low, high := 60, 0
			for _, caller := range callers {
				low, high = min(low, counts[caller]), max(high, counts[caller])
			}
			if high-low > 1 {
				b.Fatalf("the callers have drifted apart: %v", counts)
			}
		}
	})
	run("callees have orders of their own", func(b *bed) {
		b.askMany(50, b.ann, b.dev)
		for range 50 {
			b.claim(b.dev)
		}
		b.ask(b.ann, b.ops)
		first := b.ask(b.bob, b.ops)
		b.claim(b.ops)
		b.is("claimed", b.claim(b.ops).ID, first.ID)
	})
	run("tasks that come back go first, oldest first", func(b *bed) {
		one, two := b.ask(b.ann, b.dev), b.ask(b.bob, b.dev)
		b.askMany(5, b.eve, b.dev)
		c1, c2 := b.claim(b.dev), b.claim(b.dev)
		b.is("claimed", []string{c1.ID, c2.ID}, []string{one.ID, two.ID})
		if c1.ID != one.ID {
			return
		}
		b.claim(b.dev)
		b.ok(b.s.Release(b.ctx, b.dev, two.ID, 1))
		b.ok(b.s.Release(b.ctx, b.dev, one.ID, 1))
		b.claimTask(one)
		b.claimTask(two)
	})
	run("a task that always comes back does not starve the rest", func(b *bed) {
		bad := b.ask(b.ann, b.dev)
		b.askMany(5, b.bob, b.dev)
		b.claimTask(bad)
		for range 5 {
			b.expire()
			b.is("the failing task waits out its backoff", b.claim(b.dev).Caller.Handle, "bob")
			b.pass(time.Minute)
			b.claimTask(bad)
		}
	})
}
