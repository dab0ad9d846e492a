package push_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery/push"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// What is deleted sends nothing once the delete has returned, whatever the sender was
// about to do.
func TestNothingIsSentAfterDeleteReturns(t *testing.T) {
	b := open(t)
	var deleted atomic.Bool
	var late atomic.Int64
	rc := receive(t, func(int64, http.ResponseWriter, *http.Request) {
		if deleted.Load() {
			late.Add(1)
		}
	})
	other := receive(t, nil)
	sent := 0
	for i := range 200 {
		deleted.Store(false)
		task := b.send(hook("h", rc.URL))
		done := make(chan error, 1)
		go func() {
			<-time.After(time.Duration(i%25) * 500 * time.Microsecond) // so that it meets the sender at many points
			err := b.engine.DeletePush(t.Context(), principal("caller"), engine.Ref{Task: task.ID}, "h")
			deleted.Store(true)
			done <- err
		}()
		b.work(2)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		// A whole other task is delivered meanwhile, so the sender has looked again.
		if i%20 == 0 {
			b.send(hook("o", other.URL))
			b.work(0)
			for range 3 {
				b.next(other)
			}
		}
		sent += len(rc.got)
		for len(rc.got) > 0 {
			<-rc.got
		}
	}
	if n := late.Load(); n > 0 {
		t.Errorf("%d notifications came after their configuration was deleted", n)
	}
	if sent == 0 {
		t.Error("nothing was sent at all, so the test shows nothing")
	}
}

func TestDeleteWaitsForWhatIsUnderWay(t *testing.T) {
	b := open(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	rc := receive(t, func(int64, http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	})
	task := b.send(hook("h", rc.URL))
	<-entered
	ref := engine.Ref{Task: task.ID}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	deleted := make(chan error, 1)
	go func() { deleted <- b.engine.DeletePush(t.Context(), principal("caller"), ref, "h") }()
	<-short.Done()
	select {
	case err := <-deleted:
		t.Fatalf("delete returned %v while a request was under way", err)
	default:
	}
	close(release)
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	if _, err := b.engine.Push(t.Context(), principal("caller"), ref, "h"); hub.KindOf(err) != hub.NotFound {
		t.Errorf("a deleted configuration gave %v", err)
	}
	if err := b.engine.DeletePush(t.Context(), principal("caller"), ref, "h"); err != nil {
		t.Errorf("deleting it again gave %v", err)
	}
}

func TestDeleteCutsOffAReceiverThatNeverAnswers(t *testing.T) {
	b := open(t)
	entered := make(chan struct{}, 1)
	rc := receive(t, func(_ int64, _ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	})
	task := b.send(hook("h", rc.URL))
	<-entered
	if err := b.engine.DeletePush(t.Context(), principal("caller"), engine.Ref{Task: task.ID}, "h"); err != nil {
		t.Fatal(err)
	}
	b.next(rc) // the handler has seen its connection end
	if n := b.sender.Busy(); n != 0 {
		b.until("the job to end", func() bool { return b.sender.Busy() == 0 })
	}
}

func TestNothingGoesToAReplacedURL(t *testing.T) {
	b := open(t)
	before := receive(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	after := receive(t, nil)
	task := b.send(hook("h", before.URL))
	b.next(before)
	if _, err := b.engine.SetPush(t.Context(), principal("caller"), engine.Ref{Task: task.ID}, *hook("h", after.URL)); err != nil {
		t.Fatal(err)
	}
	n := before.count.Load()
	b.work(0)
	for _, want := range b.wanted(task) {
		if got := b.next(after); got.body != want {
			t.Fatalf("came\n%s\nwant\n%s", got.body, want)
		}
	}
	if m := before.count.Load(); m != n {
		t.Errorf("the old URL had %d more requests", m-n)
	}
}

func TestAnOrderlyStopSendsNothingTwice(t *testing.T) {
	b := open(t)
	entered, release := make(chan struct{}, 1), make(chan struct{})
	rc := receive(t, func(n int64, _ http.ResponseWriter, _ *http.Request) {
		if n == 2 {
			entered <- struct{}{}
			<-release
		}
	})
	task := b.send(hook("h", rc.URL))
	b.work(5)
	<-entered
	stopped := make(chan struct{})
	go func() {
		b.restart()
		close(stopped)
	}()
	close(release)
	<-stopped
	for i, want := range b.wanted(task) {
		if got := b.next(rc); got.body != want {
			t.Fatalf("notification %d was\n%s\nwant\n%s", i, got.body, want)
		}
	}
	b.until("the end to be noted", func() bool { return b.config(task, "h").Cursor == 8 })
	if n := rc.count.Load(); n != 8 {
		t.Errorf("%d requests for 8 events", n)
	}
}

// deaf is an outbox that hears of no settlement, as if the hub were killed before it.
type deaf struct{ push.Outbox }

func (deaf) SettlePush(context.Context, hub.PushJob, hub.PushOutcome) error { return nil }

func TestAKilledHubGoesOnWhereItWas(t *testing.T) {
	b := open(t, func(b *bed) { b.outbox = func(o push.Outbox) push.Outbox { return deaf{o} } })
	rc := receive(t, nil)
	task := b.send(hook("h", rc.URL))
	first := b.next(rc)
	b.close(false)
	b.outbox = nil
	b.start()
	b.work(3)
	again := b.next(rc)
	if again.body != first.body || again.header.Get("Webhook-Id") != first.header.Get("Webhook-Id") {
		t.Errorf("what was not settled came as %s, the first time as %s", again.body, first.body)
	}
	for i, want := range b.wanted(task)[1:] {
		if got := b.next(rc); got.body != want {
			t.Fatalf("notification %d was\n%s\nwant\n%s", i+2, got.body, want)
		}
	}
}

func TestAHardStopLosesNothing(t *testing.T) {
	b := open(t)
	var stuck atomic.Bool
	stuck.Store(true)
	entered := make(chan struct{}, 100)
	rc := receive(t, func(_ int64, _ http.ResponseWriter, r *http.Request) {
		if stuck.Load() {
			entered <- struct{}{}
			<-r.Context().Done()
		}
	})
	task := b.send(hook("h", rc.URL))
	<-entered
	b.close(false) // cuts off
	b.next(rc)
	stuck.Store(false)
	b.start()
	b.work(1)
	for i, want := range b.wanted(task) {
		if got := b.next(rc); got.body != want {
			t.Fatalf("notification %d was\n%s\nwant\n%s", i+1, got.body, want)
		}
	}
	if c := b.config(task, "h"); c.Tries != 0 {
		t.Errorf("being cut off counts as %d tries", c.Tries)
	}
}

// eager is an outbox whose settlement returns only once the configuration has been lent
// again.
type eager struct {
	push.Outbox
	lent chan struct{}
}

func (e eager) LendPushes(ctx context.Context, limit int, loan time.Duration) ([]hub.PushJob, time.Duration, error) {
	jobs, next, err := e.Outbox.LendPushes(ctx, limit, loan)
	if len(jobs) > 0 {
		e.lent <- struct{}{}
	}
	return jobs, next, err
}

func (e eager) SettlePush(ctx context.Context, j hub.PushJob, o hub.PushOutcome) error {
	err := e.Outbox.SettlePush(ctx, j, o)
	if o.Done == 1 {
		<-e.lent
	}
	return err
}

func TestWhatIsLentAgainAtOnceIsNotForgotten(t *testing.T) {
	lent := make(chan struct{}, 10)
	b := open(t, func(b *bed) { b.outbox = func(o push.Outbox) push.Outbox { return eager{o, lent} } })
	entered, release := make(chan struct{}, 3), make(chan struct{})
	rc := receive(t, func(int64, http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-release
	})
	b.send(hook("h", rc.URL))
	<-entered
	<-lent
	b.work(0)
	close(release)
	for range 3 {
		b.next(rc)
	}
}

// halting is an outbox that keeps what it lent to itself for a while.
type halting struct {
	push.Outbox
	lent chan struct{}
	goOn chan struct{}
}

func (h halting) LendPushes(ctx context.Context, limit int, loan time.Duration) ([]hub.PushJob, time.Duration, error) {
	jobs, next, err := h.Outbox.LendPushes(ctx, limit, loan)
	if len(jobs) > 0 {
		h.lent <- struct{}{}
		<-h.goOn
	}
	return jobs, next, err
}

// What was lent before the delete, and is about to be sent, counts as under way.
func TestDeleteWaitsForWhatIsBeingLent(t *testing.T) {
	h := halting{lent: make(chan struct{}, 1), goOn: make(chan struct{})}
	b := open(t, func(b *bed) {
		b.outbox = func(o push.Outbox) push.Outbox { h.Outbox = o; return h }
	})
	var deleted atomic.Bool
	rc := receive(t, func(int64, http.ResponseWriter, *http.Request) {
		if deleted.Load() {
			t.Error("a notification came after its configuration was deleted")
		}
	})
	task := b.send(hook("h", rc.URL))
	<-h.lent
	done := make(chan error, 1)
	go func() {
		err := b.engine.DeletePush(t.Context(), principal("caller"), engine.Ref{Task: task.ID}, "h")
		deleted.Store(true)
		done <- err
	}()
	b.until("the configuration to be gone", func() bool {
		list, err := b.engine.Pushes(t.Context(), principal("caller"), engine.Ref{Task: task.ID})
		return err == nil && len(list) == 0
	})
	select {
	case err := <-done:
		close(h.goOn)
		t.Fatalf("delete returned %v while the configuration was being lent", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(h.goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}
