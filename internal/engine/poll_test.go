package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// waiting begins a poll of callee that has nothing to take yet, and gives what Notify
// says of it.
func waiting(t *testing.T, e *engine.Engine, wait time.Duration) (*engine.Poll, <-chan struct{}) {
	t.Helper()
	poll, err := e.Poll(t.Context(), principal("callee"), engine.NextRequest{Wait: wait})
	if err != nil {
		t.Fatal(err)
	}
	if task, waits, err := poll.Look(t.Context()); task != nil || !waits || err != nil {
		t.Fatalf("at first it gives %v, %v, %v", task, waits, err)
	}
	ready := make(chan struct{}, 4)
	poll.Notify(func() { ready <- struct{}{} })
	return poll, ready
}

// claims counts the claims that are made on their own.
type claims struct {
	hub.Store
	n atomic.Int64
}

func (c *claims) Claim(ctx context.Context, callee string, s hub.ClaimSpec) (hub.Claimed, error) {
	c.n.Add(1)
	return c.Store.Claim(ctx, callee, s)
}

func TestAPollIsToldOfItsTaskWhichIsAcceptedAndClaimedAtOnce(t *testing.T) {
	_, store := open(t, engine.Options{})
	counted := &claims{Store: store}
	e := engine.New(engine.Options{Store: counted, Directory: directory{addresses: map[string]*hub.Address{
		"callee": {ID: "callee", Handle: "callee"}, "caller": {ID: "caller", Handle: "caller"},
	}}})
	poll, ready := waiting(t, e, time.Minute)
	sent := mustSend(t, e, send("callee", "hi"))
	<-ready
	task, waits, err := poll.Look(t.Context())
	if err != nil || waits || task == nil || task.ID != sent.ID {
		t.Fatalf("it gives %v, %v, %v, want %s", task, waits, err, sent.ID)
	}
	if n := counted.n.Load(); n != 1 {
		t.Errorf("%d claims, want only the one of the first look", n)
	}
	poll.Leave()
	if w := e.Waiting(); w.Polls != 0 {
		t.Errorf("%d polls are open", w.Polls)
	}
}

func TestAPollThatIsLeftLosesNoTask(t *testing.T) {
	e, _ := open(t, engine.Options{})
	first, ready := waiting(t, e, time.Minute)
	second, readyToo := waiting(t, e, time.Minute)
	sent := mustSend(t, e, send("callee", "hi"))
	<-ready
	first.Leave()
	first.Leave() // it is left already
	<-readyToo
	task, err := second.Wait(t.Context())
	second.Leave()
	if err != nil || task == nil || task.ID != sent.ID || task.Attempt != 2 || task.Failures != 0 {
		t.Errorf("the other poll gives %+v, %v", task, err)
	}
}

func TestAPollThatIsWokenForNothingGoesOnWaiting(t *testing.T) {
	e, _ := open(t, engine.Options{})
	first := send("callee", "hi")
	sent := mustSend(t, e, first)
	if got := next(t, e, 0, time.Minute); got == nil || got.ID != sent.ID {
		t.Fatalf("got %v", got)
	}
	poll, ready := waiting(t, e, time.Minute)
	defer poll.Leave()
	mustSend(t, e, first) // again: there is nothing to claim
	<-ready
	if task, waits, err := poll.Look(t.Context()); task != nil || !waits || err != nil {
		t.Errorf("it gives %v, %v, %v", task, waits, err)
	}
	second := mustSend(t, e, send("callee", "ho"))
	<-ready
	if task, err := poll.Wait(t.Context()); err != nil || task == nil || task.ID != second.ID {
		t.Errorf("then it gives %v, %v", task, err)
	}
}

func TestDrainingTellsEveryPoll(t *testing.T) {
	e, _ := open(t, engine.Options{})
	before, ready := waiting(t, e, time.Minute)
	after, err := e.Poll(t.Context(), principal("callee"), engine.NextRequest{Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, waits, _ := after.Look(t.Context()); !waits {
		t.Fatal("it does not wait")
	}
	e.Drain()
	<-ready
	after.Notify(func() { ready = nil })
	if ready != nil {
		t.Error("who came late was not told")
	}
	for _, poll := range []*engine.Poll{before, after} {
		if task, err := poll.Wait(t.Context()); task != nil || err != nil {
			t.Errorf("it gives %v, %v", task, err)
		}
		poll.Leave()
	}
}

func TestAPollWhoseTimeIsOverIsNotBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{})
		poll, _ := waiting(t, e, 20*time.Second)
		defer poll.Leave()
		time.Sleep(time.Until(poll.Until()))
		if task, waits, err := poll.Look(t.Context()); task != nil || waits || err != nil {
			t.Errorf("it gives %v, %v, %v", task, waits, err)
		}
	})
}
