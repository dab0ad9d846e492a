package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// A task that was handed out too often ends in the store, by whatever would have handed
// it out once more. Who waits for it is told at that moment.
func TestWhoWaitsIsToldWhenATaskWasHandedOutTooOften(t *testing.T) {
	for name, handOut := range map[string]func(t *testing.T, e *engine.Engine, offer func()){
		"by a poll": func(t *testing.T, e *engine.Engine, offer func()) {
			offer()
			if got, err := e.Next(t.Context(), principal("callee"), engine.NextRequest{}); got != nil || err != nil {
				t.Errorf("the poll gave %v, %v; want nothing", got, err)
			}
		},
		"by a report that takes the next task along": func(t *testing.T, e *engine.Engine, offer func()) {
			mustSend(t, e, send("callee", "another"))
			r := report(next(t, e, 0, time.Hour), hub.Completed)
			r.Next = &engine.NextRequest{}
			offer()
			if got, err := e.Report(t.Context(), principal("callee"), r); err != nil || got.Next != nil {
				t.Errorf("the report gave %v, %v; want no next task", got.Next, err)
			}
		},
		"by a send to a waiting poll": func(t *testing.T, e *engine.Engine, offer func()) {
			polled := make(chan *hub.Task, 1)
			go func() {
				got, _ := e.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: time.Minute})
				polled <- got
			}()
			synctest.Wait()
			offer()
			sent := mustSend(t, e, send("callee", "another"))
			if got := <-polled; got == nil || got.ID != sent.ID {
				t.Errorf("the poll gave %v, want the task just sent", got)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := hub.DefaultLimits()
				limits.Attempts = 2
				e, store := open(t, engine.Options{Limits: limits})
				ended := follow(t, e)
				released(t, e, store)
				second := next(t, e, 0, time.Hour)
				began := time.Now()
				handOut(t, e, func() { release(t, store, second) })
				for _, who := range []string{"who sent it", "who follows it", "who follows the feed"} {
					select {
					case state := <-ended:
						if state != hub.Failed || time.Since(began) > time.Second {
							t.Errorf("%s (or another) was told %s after %s", who, state, time.Since(began))
						}
					case <-time.After(time.Minute):
						t.Fatalf("%s (or another) was not told within a minute", who)
					}
				}
			})
		})
	}
}

// follow sends a task, waits for its end, follows it, and follows the feed, and gives
// the state in which each of the three learns that it ended.
func follow(t *testing.T, e *engine.Engine) <-chan hub.State {
	t.Helper()
	feed, err := e.FollowActivity(t.Context(), principal("caller"), "")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan hub.State, 3)
	go func() {
		out, err := e.SendAndWait(t.Context(), principal("caller"), send("callee", "never done"), 10*time.Minute, hub.Load{})
		if err != nil {
			t.Error(err)
			return
		}
		ended <- out.Task.State
	}()
	synctest.Wait()
	page, err := e.Tasks(t.Context(), principal("caller"), "callee", hub.TaskFilter{})
	if err != nil || len(page.Tasks) != 1 {
		t.Fatalf("the list has %d tasks, %v", len(page.Tasks), err)
	}
	stream, err := e.Subscribe(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: page.Tasks[0].ID}, 0, hub.Load{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			events, more, err := stream.Next(t.Context())
			if err != nil {
				return // the test has waited long enough
			}
			if !more {
				ended <- events[len(events)-1].State
				return
			}
		}
	}()
	go func() {
		for {
			lines, err := feed.Next(t.Context())
			if err != nil {
				return
			}
			for _, line := range lines {
				if line.Kind == hub.ActFailed {
					ended <- hub.Failed
					return
				}
			}
		}
	}()
	synctest.Wait()
	return ended
}

// released claims the first task and gives it back, behind the engine's back.
func released(t *testing.T, e *engine.Engine, store *sqlite.Store) {
	t.Helper()
	release(t, store, next(t, e, 0, time.Hour))
}

func release(t *testing.T, store *sqlite.Store, got *hub.Task) {
	t.Helper()
	if err := store.Release(t.Context(), got.Callee.ID, got.ID, got.Attempt); err != nil {
		t.Fatal(err)
	}
}
