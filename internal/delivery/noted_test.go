package delivery_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// What a dispatch is noted with, and how often.

// notes counts what is noted of dispatches while they last.
type notes struct {
	hub.Store
	begun, linked atomic.Int64
}

// BeginDispatch implements hub.Dispatches.
func (s *notes) BeginDispatch(ctx context.Context, d hub.Dispatch) (*hub.Dispatch, error) {
	s.begun.Add(1)
	return s.Store.BeginDispatch(ctx, d)
}

// LinkDispatch implements hub.Dispatches.
func (s *notes) LinkDispatch(ctx context.Context, task string, attempt int, remoteTask, remoteContext string) error {
	s.linked.Add(1)
	return s.Store.LinkDispatch(ctx, task, attempt, remoteTask, remoteContext)
}

// count has what is noted of dispatches counted.
func count(n **notes) func(*delivery.Options) {
	return func(o *delivery.Options) {
		*n = &notes{Store: o.Store.(*ill).Store}
		o.Store = *n
	}
}

// A call that is answered at once costs no commits but those of its task and of its end.
func TestACallThatIsAnsweredAtOnceIsNotedOnce(t *testing.T) {
	var n *notes
	b := open(t, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		d.Link("remote", "context")
		return done()
	}), count(&n))
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	b.settled(task)
	b.becomes("it is noted", func() bool { return b.d.Busy() == 0 })
	x := b.attempts(task)
	if len(x) != 1 || x[0].RemoteTask != "remote" || x[0].RemoteContext != "context" || !x[0].Sent || x[0].Outcome != "answered" || x[0].Kind != hub.WebhookDelivery {
		t.Errorf("the attempts are %+v", x)
	}
	if n.begun.Load() != 0 || n.linked.Load() > 1 { // one where the machine took more than a moment
		t.Errorf("a dispatch was begun %d times and linked %d times on its own", n.begun.Load(), n.linked.Load())
	}
}

// A hub that is killed while an agent is at a task knows what it calls it.
func TestTheNameOfATaskIsNotedWhileItsAgentIsAtIt(t *testing.T) {
	noted := make(chan struct{})
	b := open(t, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		d.Link("early", "")
		d.Link("remote", "context")
		<-noted
		d.Link("remote", "another")
		return done()
	}))
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	b.becomes("it is noted", func() bool {
		x := b.attempts(task)
		return len(x) == 1 && x[0].RemoteTask == "remote" && x[0].RemoteContext == "context" && x[0].EndedAt.IsZero()
	})
	close(noted)
	b.settled(task)
	b.becomes("its end is noted", func() bool { return b.d.Busy() == 0 })
	if x := b.attempts(task); len(x) != 1 || x[0].RemoteContext != "another" {
		t.Errorf("the attempts are %+v", x)
	}
}

// What an agent calls a task that it asks about is noted before the caller can answer.
func TestTheNameOfATaskIsKnownToTheAnswerOfAQuestion(t *testing.T) {
	var n atomic.Int64
	b := open(t, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		if n.Add(1) == 1 {
			d.Link("remote", "context")
			return delivery.Outcome{Kind: delivery.Answered, Report: hub.Report{State: hub.InputRequired}}
		}
		if d.Earlier == nil || d.Earlier.RemoteTask != "remote" {
			t.Errorf("the earlier dispatch is %+v", d.Earlier)
		}
		return done()
	}))
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	if got := b.settled(task); got.State != hub.InputRequired {
		t.Fatalf("the task is %+v", got)
	}
	if x := b.attempts(task); len(x) != 1 || x[0].RemoteTask != "remote" {
		t.Errorf("the attempts are %+v", x)
	}
	b.say(task, "answer", "blue")
	b.becomes("it is done", func() bool { return b.settled(task).State == hub.Completed })
}

// A name that was noted while an agent was at a task is not noted once more when it asks.
func TestANameIsNotedOnce(t *testing.T) {
	var n *notes
	noted := make(chan struct{})
	b := open(t, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		d.Link("remote", "context")
		<-noted
		return delivery.Outcome{Kind: delivery.Answered, Report: hub.Report{State: hub.InputRequired}}
	}), count(&n))
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	b.becomes("it is noted", func() bool {
		x := b.attempts(task)
		return len(x) == 1 && x[0].RemoteTask == "remote"
	})
	close(noted)
	b.settled(task)
	b.becomes("its end is noted", func() bool { return b.d.Busy() == 0 })
	if got := n.linked.Load(); got != 1 {
		t.Errorf("the name was noted %d times, want once", got)
	}
}

// A task that came to a way just as that went away was not sent anywhere.
func TestAClaimThatIsNotDeliveredWasNotSent(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	by := hub.Dispatch{Kind: hub.TunnelDelivery, Instance: "one", Sent: true}
	poll := b.engine.Attend("dev", time.Minute, by)
	if _, waits, err := poll.Look(t.Context()); err != nil || !waits {
		t.Fatal(waits, err)
	}
	task := b.send("dev", 1) // which is claimed for the poll
	poll.Leave()
	x := b.attempts(task)
	if len(x) != 1 || x[0].Outcome != "unsent" || x[0].Sent || x[0].EndedAt.IsZero() || x[0].Instance != "one" {
		t.Errorf("the attempts are %+v", x)
	}
	claimed, err := b.store.Claim(t.Context(), "dev", hub.ClaimSpec{Lease: time.Minute, Dispatch: &by})
	if err != nil || claimed.Task == nil || claimed.Task.Dispatched {
		t.Fatal(claimed.Task, err)
	}
	earlier, err := b.store.BeginDispatch(t.Context(), hub.Dispatch{Task: task.ID, Attempt: claimed.Task.Attempt, Address: "dev", Kind: by.Kind, Sent: true})
	if err != nil || earlier != nil {
		t.Errorf("the earlier dispatch is %+v, error %v", earlier, err)
	}
}

// The poll of an endpoint that became another one begins the dispatch of the old one.
func TestADispatchIsThatOfTheEndpointAsItIs(t *testing.T) {
	b := open(t, deliverer(none), func(o *delivery.Options) {
		o.Deliverers[hub.RemoteDelivery] = deliverer(well)
	})
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	b.becomes("it is looked for tasks", func() bool { s, ok := b.d.Standing("dev"); return ok && s.Slots > 0 })
	if err := b.store.SetEndpoint(t.Context(), "dev", &hub.Endpoint{Kind: hub.RemoteDelivery, URL: "http://x.example/", Sealed: []byte("t")}); err != nil {
		t.Fatal(err)
	}
	b.d.Refresh(t.Context(), "dev")
	task := b.send("dev", 1)
	if got := b.settled(task); got.State != hub.Completed {
		t.Errorf("the task is %+v", got)
	}
	if x := b.attempts(task); len(x) != 1 || x[0].Kind != hub.RemoteDelivery {
		t.Errorf("the attempts are %+v", x)
	}
}
