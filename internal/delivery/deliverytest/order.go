package deliverytest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

func refOf(t *hub.Task) engine.Ref { return engine.Ref{Callee: t.Callee.ID, Task: t.ID} }

func orderTests(run runner) {
	run("no more tasks are delivered at once than there are slots", func(b *bed) {
		var now, most atomic.Int64
		full, free := make(chan struct{}, 100), make(chan struct{})
		b.agent("dev", func(context.Context, string) Act {
			n := now.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			full <- struct{}{}
			<-free
			now.Add(-1)
			return Act{Deed: Complete, Text: "done"}
		})
		var tasks []*hub.Task
		for range 5 * b.slots {
			tasks = append(tasks, b.send("dev"))
		}
		for range b.slots {
			<-full
		}
		last := tasks[len(tasks)-1]
		is(b, "state of one that waits", b.task(last).State, hub.Submitted)
		is(b, "its hint", b.engine.Hint(principal("caller"), b.task(last)), "@dev is busy with other tasks")
		close(free)
		for _, t := range tasks {
			is(b, "state", b.settled(t).State, hub.Completed)
		}
		is(b, "most at once", most.Load(), int64(b.slots))
	})
	run("an agent that hangs delays nobody else", func(b *bed) {
		begun := make(chan struct{}, 10)
		b.agent("slow", func(ctx context.Context, _ string) Act {
			begun <- struct{}{}
			<-ctx.Done()
			return Act{Deed: Hang}
		})
		r := b.agent("away", scripted(Act{Deed: Complete, Text: "done"}).do)
		r.Down()
		b.agent("dev", scripted(Act{Deed: Complete, Text: "done"}).do)
		for range 3 * b.slots {
			b.send("slow")
			b.send("away")
		}
		for range b.slots {
			<-begun
		}
		at := time.Now()
		for range 20 {
			is(b, "state", b.settled(b.send("dev")).State, hub.Completed)
		}
		if took := time.Since(at); took > 5*time.Second {
			b.Errorf("20 tasks of another agent took %v", took)
		}
	})
	run("what is under way when the hub stops is delivered again, and that is no failure", func(b *bed) {
		if b.h.Follows {
			b.follows()
			return
		}
		begun := make(chan struct{}, 10)
		var n atomic.Int64
		b.agent("dev", func(ctx context.Context, _ string) Act {
			if n.Add(1) > 1 {
				return Act{Deed: Complete, Text: "done"}
			}
			begun <- struct{}{}
			<-ctx.Done()
			return Act{Deed: Hang}
		})
		t := b.send("dev")
		<-begun
		b.stop()
		is(b, "phase", b.task(t).Phase, hub.Ready)
		b.dispatch()
		got := b.settled(t)
		is(b, "state", got.State, hub.Completed)
		is(b, "failures", got.Failures, 0)
		is(b, "attempts", got.Attempt, 2)
		is(b, "calls", n.Load(), 2)
	})
	run("without its endpoint an address pulls again", func(b *bed) {
		s := scripted(Act{Deed: Complete, Text: "done"})
		b.agent("dev", s.do)
		is(b, "state", b.settled(b.send("dev")).State, hub.Completed)
		is(b, "delivery", b.engine.Delivery(hub.Party{ID: "dev", Kind: hub.KindAgent}), b.h.Kind)
		b.reach("dev", nil)
		is(b, "delivery", b.engine.Delivery(hub.Party{ID: "dev", Kind: hub.KindAgent}), "pull")
		t := b.send("dev")
		got, err := b.engine.Next(b.Context(), principal("dev"), engine.NextRequest{Wait: time.Minute, Lease: time.Minute})
		b.ok(err)
		if got == nil || got.ID != t.ID {
			b.Errorf("its worker got %v", got)
		}
		is(b, "calls", s.calls(), 1)
	})
	run("a deleted address is delivered to no more", func(b *bed) {
		s := scripted(Act{Deed: Complete, Text: "done"})
		r := b.agent("dev", s.do)
		r.Down()
		t := b.send("dev")
		b.becomes("it was tried", func() bool { return b.count(t, hub.ActReleased) > 0 })
		b.ok(b.store.DeleteAddress(b.Context(), "dev"))
		b.dispatcher.Refresh(b.Context(), "dev")
		b.becomes("nothing is under way", func() bool { return b.dispatcher.Busy() == 0 })
		r.Up()
		if _, ok := b.dispatcher.Standing("dev"); ok {
			b.Error("it still has a standing")
		}
		b.becomes("it waits", func() bool { return b.task(t).Phase == hub.Ready }) // a poll may just have had it
		is(b, "calls", s.calls(), 0)
	})
}

// follows is what a Deliverer does that follows a task which its agent still has.
func (b *bed) follows() {
	begun, free := make(chan struct{}, 10), make(chan struct{})
	var n atomic.Int64
	b.agent("dev", func(ctx context.Context, _ string) Act {
		n.Add(1)
		begun <- struct{}{}
		select {
		case <-free:
		case <-ctx.Done():
		}
		return Act{Deed: Complete, Text: "done"}
	})
	t := b.send("dev")
	<-begun
	b.stop()
	is(b, "phase", b.task(t).Phase, hub.Ready)
	b.dispatch()
	close(free)
	got := b.settled(t)
	is(b, "state", got.State, hub.Completed)
	is(b, "failures", got.Failures, 0)
	is(b, "attempts", got.Attempt, 2)
	is(b, "calls", n.Load(), 1)
}
