package deliverytest

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func failureTests(run runner) {
	run("a refusal fails the task, and says why", func(b *bed) {
		s := scripted(Act{Deed: Refuse})
		b.agent("dev", s.do)
		got := b.settled(b.send("dev"))
		is(b, "state", got.State, hub.Failed)
		is(b, "calls", s.calls(), 1)
		if len(got.Error) < 20 || !strings.Contains(got.Error, "@dev") {
			b.Errorf("the task says too little of why it failed: %q", got.Error)
		}
	})
	for name, loss := range map[string]Deed{"whose connection broke": Drop, "that came at the wrong time": Later} {
		run("a delivery "+name+" is repeated", func(b *bed) {
			s := scripted(Act{Deed: loss}, Act{Deed: Complete, Text: "done"})
			b.agent("dev", s.do)
			got := b.settled(b.send("dev"))
			is(b, "state", got.State, hub.Completed)
			is(b, "attempts", got.Attempt, 2)
			is(b, "failures", got.Failures, 1)
			is(b, "calls", s.calls(), 2)
			is(b, "lines", b.count(got, hub.ActLost), 1)
		})
		run("a delivery "+name+" is sent six times at the most", func(b *bed) {
			s := scripted(Act{Deed: loss})
			b.agent("dev", s.do)
			got := b.settled(b.send("dev"))
			is(b, "state", got.State, hub.Failed)
			is(b, "attempts", got.Attempt, 6)
			is(b, "calls", s.calls(), 6)
			if !strings.Contains(got.Error, "6 times") {
				b.Errorf("the error is %q", got.Error)
			}
		})
	}
	run("what cannot be sent is no failure, and goes once it can", func(b *bed) {
		s := scripted(Act{Deed: Complete, Text: "done"})
		r := b.agent("dev", s.do)
		r.Down()
		first, second := b.send("dev"), b.send("dev")
		b.becomes("the owner sees what is wrong", func() bool {
			s, _ := b.dispatcher.Standing("dev")
			return s.Trouble != "" && !s.Since.IsZero() && s.NextTry.After(s.Since)
		})
		b.becomes("it was tried more than once", func() bool { return b.count(first, hub.ActReleased) > 2 })
		r.Up()
		for _, t := range []*hub.Task{first, second} {
			got := b.settled(t)
			is(b, "state", got.State, hub.Completed)
			is(b, "failures", got.Failures, 0)
		}
		is(b, "calls", s.calls(), 2)
		b.becomes("nothing is wrong any more", func() bool {
			s, _ := b.dispatcher.Standing("dev")
			return s.Trouble == ""
		})
	})
	run("an agent that is back gets more while it still works on the first", func(b *bed) {
		working, free := make(chan struct{}, 10), make(chan struct{})
		r := b.agent("dev", func(context.Context, string) Act {
			working <- struct{}{}
			<-free
			return Act{Deed: Complete, Text: "done"}
		})
		r.Down()
		tasks := []*hub.Task{b.send("dev"), b.send("dev")}
		b.becomes("the owner sees what is wrong", func() bool {
			s, _ := b.dispatcher.Standing("dev")
			return s.Trouble != ""
		})
		r.Up()
		for range b.slots {
			select {
			case <-working:
			case <-time.After(patience):
				b.Fatal("it gets no more")
			}
		}
		close(free)
		for _, t := range tasks {
			is(b, "state", b.settled(t).State, hub.Completed)
		}
	})
	run("only the owner is told in a hint where it fails", func(b *bed) {
		r := b.agent("dev", scripted(Act{Deed: Complete, Text: "done"}).do)
		r.Down()
		t := b.send("dev")
		var trouble string
		b.becomes("there is a hint", func() bool {
			s, _ := b.dispatcher.Standing("dev")
			trouble = s.Trouble
			return trouble != "" && b.engine.Hint(principal("caller"), b.task(t)) != "" && b.task(t).Phase == hub.Ready
		})
		if hint := b.engine.Hint(principal("caller"), b.task(t)); strings.Contains(hint, trouble) {
			b.Errorf("the caller is told %q", hint)
		}
		b.becomes("the owner is told", func() bool {
			return strings.Contains(b.engine.Hint(principal("dev"), b.task(t)), "cannot be reached")
		})
	})
	run("a cancel hangs up", func(b *bed) {
		begun, ended := make(chan struct{}, 10), make(chan struct{}, 10)
		b.agent("dev", func(ctx context.Context, _ string) Act {
			begun <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			return Act{Deed: Hang}
		})
		t := b.send("dev")
		<-begun
		_, err := b.engine.Cancel(b.Context(), principal("caller"), refOf(t))
		b.ok(err)
		select {
		case <-ended:
		case <-time.After(patience):
			b.Fatal("the hub did not hang up")
		}
		b.becomes("the delivery is over", func() bool { return b.dispatcher.Busy() == 0 })
		got := b.task(t)
		is(b, "state", got.State, hub.Canceled)
		want := hub.CancelUnconfirmed // it was hung up on, and has said nothing
		if b.h.Cancels {
			want = hub.CancelConfirmed
		}
		is(b, "outcome", got.CancelOutcome, want)
		is(b, "attempts", got.Attempt, 1)
		is(b, "deliveries begun after it", len(begun), 0)
	})
}
