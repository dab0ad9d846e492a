package engine_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// complete works as callee until n tasks are done.
func complete(t *testing.T, e *engine.Engine, workers, n int) {
	t.Helper()
	var wg sync.WaitGroup
	todo := make(chan struct{}, n)
	for range n {
		todo <- struct{}{}
	}
	close(todo)
	for range workers {
		wg.Go(func() {
			for range todo {
				got, err := e.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: 30 * time.Second})
				if err != nil || got == nil {
					t.Errorf("a worker was left without a task: %v", err)
					return
				}
				if _, err := e.Report(t.Context(), principal("callee"), report(got, hub.Completed)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestNoTaskIsLeftBesideAWaitingPoller(t *testing.T) {
	const callers, each = 8, 60
	e, _ := open(t, engine.Options{})
	var wg sync.WaitGroup
	wg.Go(func() { complete(t, e, 6, callers*each) })
	for range callers {
		wg.Go(func() {
			for range each {
				out, err := e.SendAndWait(t.Context(), principal("caller"), send("callee", "hi"), 30*time.Second, hub.Load{})
				if err != nil || out.Task.State != hub.Completed {
					t.Errorf("sent and got %v, %v", out.Task, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestASubscriptionThatRacesTheEndSeesItOrIsTold(t *testing.T) {
	e, _ := open(t, engine.Options{})
	for range 200 {
		sent := mustSend(t, e, send("callee", "hi"))
		got := next(t, e, 0, time.Minute)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := e.Report(t.Context(), principal("callee"), report(got, hub.Completed)); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := followToEnd(t, e, sent.ID, -1); err != nil && hub.KindOf(err) != hub.Ended {
				t.Error(err)
			}
		})
		wg.Wait()
	}
}

// followToEnd subscribes and checks that what comes is dense and ends terminally.
func followToEnd(t *testing.T, e *engine.Engine, id string, after int64) error {
	s, err := e.Subscribe(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: id}, after, hub.Load{History: -1, Artifacts: true})
	if err != nil {
		return err
	}
	seq := after
	if snap := s.Snapshot(); snap != nil {
		seq = snap.Seq
	}
	for {
		events, more, err := s.Next(t.Context())
		if err != nil {
			return err
		}
		for _, ev := range events {
			if ev.Seq != seq+1 {
				return fmt.Errorf("event %d follows %d", ev.Seq, seq)
			}
			seq = ev.Seq
			if last := ev.Kind == hub.StatusEvent && ev.State.Terminal(); last == more && &ev == &events[len(events)-1] {
				return fmt.Errorf("more=%v after %+v", more, ev)
			}
		}
		if !more {
			return nil
		}
	}
}

func TestEverySubscriberSeesTheSameEventsInOrder(t *testing.T) {
	e, _ := open(t, engine.Options{})
	sent := mustSend(t, e, send("callee", "hi"))
	got := next(t, e, 0, time.Minute)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			if err := followToEnd(t, e, sent.ID, int64(i-1)); err != nil {
				t.Errorf("subscriber %d: %v", i, err)
			}
		})
	}
	for i := range 50 {
		r := engine.ReportRequest{Task: got.ID, Claim: got.ClaimID(), Events: []hub.Event{
			{Kind: hub.ArtifactEvent, ArtifactID: "a", Append: i > 0, Body: fmt.Appendf(nil, `{"artifactId":"a","parts":[{"text":"%d "}]}`, i)},
		}}
		if _, err := e.Report(t.Context(), principal("callee"), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Report(t.Context(), principal("callee"), report(got, hub.Completed)); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

func TestTwentyIdenticalSendsAreOneTask(t *testing.T) {
	e, _ := open(t, engine.Options{})
	r := send("callee", "hi")
	r.MessageID, r.Message = "", []byte(`{"role":"ROLE_USER","parts":[{"text":"hi"}]}`)
	ids := make(chan string, 20)
	for range cap(ids) {
		go func() {
			out, err := e.Send(t.Context(), principal("caller"), r)
			if err != nil {
				t.Error(err)
				ids <- ""
				return
			}
			ids <- out.Task.ID
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("one send gave %s, another %s", first, id)
		}
	}
	page, err := e.Tasks(t.Context(), principal("caller"), "callee", hub.TaskFilter{Total: true})
	if err != nil || page.Total != 1 {
		t.Errorf("there are %d tasks, %v; want one", page.Total, err)
	}
}

func TestStreamsOfOneAddressAreBounded(t *testing.T) {
	e, _ := open(t, engine.Options{})
	ctx, end := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	follow := func(by string) error {
		feed, err := e.FollowActivity(ctx, principal(by), "")
		if err != nil {
			return err
		}
		wg.Go(func() { _, _ = feed.Next(ctx) })
		return nil
	}
	var err error
	for range 1100 { // what has not begun to wait yet does not count
		if err = follow("caller"); err != nil {
			break
		}
		runtime.Gosched()
	}
	for hub.KindOf(err) != hub.RateLimited {
		if err = follow("caller"); t.Context().Err() != nil {
			t.Fatalf("beyond the limit: %v", err)
		}
	}
	if err := follow("other"); err != nil {
		t.Errorf("another address is refused too: %v", err)
	}
}
