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
		s := scripted(Act{Complete, "done"})
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
		for range 3 * slots {
			tasks = append(tasks, b.send("dev"))
		}
		r := b.h.Start(b.TB, "dev", scripted(Act{Complete, "done"}).do)
		b.endpoint("dev", &r.Endpoint)
		for _, t := range tasks {
			is(b, "state", b.settled(t).State, hub.Completed)
		}
	})
	run("a question is put, and its answer goes to the same task", func(b *bed) {
		s := scripted(Act{Ask, "which?"}, Act{Complete, "that"})
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
		b.agent("dev", scripted(Act{Fail, "no idea"}).do)
		got := b.settled(b.send("dev"))
		is(b, "state", got.State, hub.Failed)
		is(b, "error", got.Error, "no idea")
	})
	run("a task that was accepted is the agent's until it reports", func(b *bed) {
		s := scripted(Act{Accept, ""})
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
	run("a message that comes during a delivery is not taken for seen", func(b *bed) {
		said, begun := make(chan struct{}), make(chan struct{})
		b.agent("dev", func(context.Context, string) Act {
			close(begun)
			<-said
			return Act{Complete, "done"}
		})
		t := b.send("dev")
		<-begun
		b.say("dev", t.ID)
		close(said)
		is(b, "state", b.settled(t).State, hub.Completed)
		is(b, "undelivered", b.count(t, hub.ActUndelivered), 1)
	})
}
