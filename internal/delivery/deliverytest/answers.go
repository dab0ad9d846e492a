package deliverytest

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// runner runs one named test on a hub of its own.
type runner func(name string, f func(b *bed))

func answerTests(run runner) {
	run("a task is delivered, and its answer is the end", func(b *bed) {
		s := scripted(Act{Deed: Complete, Text: "done"})
		b.agent("dev", s.do)
		got := b.settled(b.send("dev"))
		is(b, "state", got.State, hub.Completed)
		if len(got.Artifacts) != 1 || !strings.Contains(string(got.Artifacts[0]), `"done"`) {
			b.Errorf("the artifacts are %s", got.Artifacts)
		}
		is(b, "attempts", got.Attempt, 1)
		is(b, "calls", s.calls(), 1)
		standing, ok := b.dispatcher.Standing("dev")
		if !ok || standing.Last == nil || standing.Last.Outcome != "answered" || standing.Last.Task != got.ID {
			b.becomes("the last delivery is shown", func() bool {
				s, _ := b.dispatcher.Standing("dev")
				return s.Last != nil && s.Last.Outcome == "answered" && s.Last.Task == got.ID && s.Trouble == ""
			})
		}
	})
	run("what waited before there was an endpoint is delivered", func(b *bed) {
		b.address("dev")
		var tasks []*hub.Task
		for range 3 * b.slots {
			tasks = append(tasks, b.send("dev"))
		}
		r := b.h.Start(b.TB, "dev", scripted(Act{Deed: Complete, Text: "done"}).do)
		b.reach("dev", &r)
		for _, t := range tasks {
			is(b, "state", b.settled(t).State, hub.Completed)
		}
	})
	run("a question is put, and its answer goes to the same task", func(b *bed) {
		s := scripted(Act{Deed: Ask, Text: "which?"}, Act{Deed: Complete, Text: "that"})
		b.agent("dev", s.do)
		asked := b.settled(b.send("dev"))
		is(b, "state", asked.State, hub.InputRequired)
		if !strings.Contains(string(asked.StatusMessage), "which?") {
			b.Errorf("the question is %s", asked.StatusMessage)
		}
		is(b, "same task", b.say("dev", asked.ID).ID, asked.ID)
		got := b.settled(asked)
		is(b, "state, in the end", got.State, hub.Completed)
		is(b, "calls", s.calls(), 2)
	})
	run("a failure is the end, in the agent's words", func(b *bed) {
		b.agent("dev", scripted(Act{Deed: Fail, Text: "no idea"}).do)
		got := b.settled(b.send("dev"))
		is(b, "state", got.State, hub.Failed)
		is(b, "error", got.Error, "no idea")
	})
	run("a task that was accepted is the agent's until it reports", func(b *bed) {
		if !b.h.Accepts {
			return
		}
		s := scripted(Act{Deed: Accept})
		b.agent("dev", s.do)
		t := b.send("dev")
		b.becomes("the agent has the task for its own lease", func() bool {
			return b.task(t).LeaseUntil.After(time.Now().Add(5 * time.Minute))
		})
		b.becomes("the delivery is over", func() bool { return b.dispatcher.Busy() == 0 })
		_, err := b.engine.Report(b.Context(), principal("dev"), engine.ReportRequest{
			Task: t.ID, Claim: hub.ClaimID(t.ID, 1), State: hub.Completed,
		})
		b.ok(err)
		is(b, "state", b.settled(t).State, hub.Completed)
		is(b, "calls", s.calls(), 1)
	})
	run("a message that comes during a delivery is seen by who passes it on alone", func(b *bed) {
		said, begun := make(chan struct{}), make(chan struct{})
		b.agent("dev", func(context.Context, string) Act {
			close(begun)
			<-said
			return Act{Deed: Complete, Text: "done"}
		})
		t := b.send("dev")
		<-begun
		b.say("dev", t.ID)
		want := 1
		if b.h.Listens {
			want = 0
			b.becomes("the message was passed on", func() bool { return !b.unseen(t) })
		}
		close(said)
		is(b, "state", b.settled(t).State, hub.Completed)
		is(b, "undelivered", b.count(t, hub.ActUndelivered), want)
	})
	run("what an agent says while it works is reported at once", func(b *bed) {
		if !b.h.Streams {
			return
		}
		then := make(chan struct{})
		b.agent("dev", scripted(Act{Deed: Complete, Text: "done", Steps: []string{"one", "two"}, Then: then}).do)
		t := b.send("dev")
		b.becomes("the second step is reported", func() bool {
			got := b.task(t)
			return got.State == hub.Working && strings.Contains(string(got.StatusMessage), "two")
		})
		close(then)
		got := b.settled(t)
		is(b, "state", got.State, hub.Completed)
		is(b, "attempts", got.Attempt, 1)
	})
}

// unseen reports whether the holder of a task has messages to see.
func (b *bed) unseen(t *hub.Task) bool {
	b.Helper()
	beat, err := b.engine.Hold(b.Context(), b.task(t), 0)
	b.ok(err)
	return beat.Unseen
}
