package engine_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// next claims a task for callee, which must be ready within wait.
func next(t *testing.T, e *engine.Engine, wait, lease time.Duration) *hub.Task {
	t.Helper()
	got, err := e.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: wait, Lease: lease})
	if err != nil || got == nil {
		t.Fatalf("Next gave %v, %v; want a task", got, err)
	}
	return got
}

func mustSend(t *testing.T, e *engine.Engine, r engine.SendRequest) *hub.Task {
	t.Helper()
	out, err := e.Send(t.Context(), principal("caller"), r)
	if err != nil {
		t.Fatal(err)
	}
	return out.Task
}

func get(t *testing.T, e *engine.Engine, id string) *hub.Task {
	t.Helper()
	got, err := e.Task(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: id}, hub.Load{History: -1, Artifacts: true})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestALostLeaseIsRedeliveredWithBackoffAndFailsInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{})
		time.Sleep(11 * time.Second) // past the grace after a start
		sent := mustSend(t, e, send("callee", "hi"))
		var gaps []time.Duration
		for i := 1; i <= 6; i++ {
			began := time.Now()
			got := next(t, e, time.Minute, 2*time.Second)
			gaps = append(gaps, time.Since(began).Round(time.Second))
			if got.ID != sent.ID || got.Attempt != i {
				t.Fatalf("delivery %d gave task %s attempt %d", i, got.ID, got.Attempt)
			}
		}
		if gaps[0] != 0 || gaps[1] < 2*time.Second || gaps[2] <= gaps[1] || gaps[5] <= gaps[2] {
			t.Errorf("waits between deliveries were %v; want lease + a growing backoff", gaps)
		}
		end, err := e.Wait(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: sent.ID}, time.Minute, hub.Load{})
		if err != nil || end.State != hub.Failed || !strings.Contains(end.Error, "6 times") {
			t.Errorf("ended as %v (%q), %v; want failed after 6 deliveries", end.State, end.Error, err)
		}
	})
}

func TestLeasesAreLeftAloneForAWhileAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, store := open(t, engine.Options{})
		mustSend(t, e, send("callee", "hi"))
		first := next(t, e, 0, time.Second)
		e.Close()
		time.Sleep(time.Minute) // the hub is away and the lease runs out
		again := engine.New(engine.Options{Store: store, Directory: directory{addresses: map[string]*hub.Address{"callee": {ID: "callee", MaxRedeliveries: -1}}}})
		again.Start()
		defer again.Close()
		time.Sleep(9 * time.Second)
		if _, err := again.Report(t.Context(), principal("callee"), report(first, hub.Completed)); err != nil {
			t.Errorf("a report 9 s after the restart was refused: %v", err)
		}
	})
}

func TestAProvisionalClaimThatIsNotConfirmedIsOfferedAgainWithoutAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{})
		time.Sleep(11 * time.Second)
		mustSend(t, e, send("callee", "hi"))
		if _, err := e.Next(t.Context(), principal("callee"), engine.NextRequest{Lease: time.Minute, Ack: 5 * time.Second}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		again := next(t, e, time.Minute, time.Minute)
		if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("offered again after %s, want about 5 s", took)
		}
		if again.Attempt != 2 || again.Failures != 0 {
			t.Errorf("attempt %d with %d failures, want 2 with none", again.Attempt, again.Failures)
		}
	})
}

func TestATaskFailsAtItsDeadlineWhereverItIs(t *testing.T) {
	for _, where := range []string{"ready", "leased", "parked"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := open(t, engine.Options{})
				r := send("callee", "hi")
				r.Deadline = time.Now().Add(30 * time.Second)
				sent := mustSend(t, e, r)
				if where != "ready" {
					got := next(t, e, 0, time.Hour)
					if where == "parked" {
						if _, err := e.Report(t.Context(), principal("callee"), engine.ReportRequest{Task: got.ID, Claim: got.ClaimID(), State: hub.InputRequired}); err != nil {
							t.Fatal(err)
						}
					}
				}
				time.Sleep(32 * time.Second)
				if got := get(t, e, sent.ID); got.State != hub.Failed || !strings.Contains(got.Error, "deadline") {
					t.Errorf("after its deadline the task is %v (%q)", got.State, got.Error)
				}
			})
		})
	}
}

func TestALongPollEndsEmptyAfterItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{})
		began := time.Now()
		got, err := e.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: 20 * time.Second})
		if got != nil || err != nil || time.Since(began) != 20*time.Second {
			t.Errorf("got %v, %v after %s; want nothing after 20 s", got, err, time.Since(began))
		}
	})
}

func TestDrainEndsEveryWaitWithItsOrdinaryEmptyAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{})
		sent := mustSend(t, e, send("callee", "hi"))
		held := next(t, e, 0, time.Hour)
		stream, err := e.Subscribe(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: sent.ID}, -1, hub.Load{})
		if err != nil {
			t.Fatal(err)
		}
		feed, err := e.FollowActivity(t.Context(), principal("caller"), "")
		if err != nil {
			t.Fatal(err)
		}
		ends := make(chan error, 4)
		go func() {
			got, err := e.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: time.Minute})
			if got != nil {
				err = errors.New("a task out of nowhere")
			}
			ends <- err
		}()
		go func() {
			got, err := e.Wait(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: sent.ID}, time.Hour, hub.Load{})
			if err == nil && got.State != hub.Working {
				err = errors.New("the wait gave " + got.State.String())
			}
			ends <- err
		}()
		go func() {
			if _, _, err := stream.Next(t.Context()); !errors.Is(err, io.EOF) {
				ends <- errors.Join(errors.New("the stream did not end with EOF"), err)
			}
			ends <- nil
		}()
		go func() {
			if _, err := feed.Next(t.Context()); !errors.Is(err, io.EOF) {
				ends <- errors.Join(errors.New("the feed did not end with EOF"), err)
			}
			ends <- nil
		}()
		synctest.Wait()
		began := time.Now()
		e.Drain()
		for range 4 {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		if time.Since(began) != 0 {
			t.Errorf("draining took %s", time.Since(began))
		}
		if got := get(t, e, held.ID); got.Phase != hub.Leased {
			t.Errorf("the held task is %v after the drain", got.Phase)
		}
	})
}

func TestAPollerThatGoesAwayLeavesTheTaskToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{})
		gone, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := e.Next(gone, principal("callee"), engine.NextRequest{Wait: time.Minute})
			ended <- err
		}()
		synctest.Wait()
		leave()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatalf("the poll ended with %v", err)
		}
		sent := mustSend(t, e, send("callee", "hi"))
		if got := next(t, e, 0, time.Minute); got.ID != sent.ID || got.Failures != 0 {
			t.Errorf("the next poll got %s with %d failures", got.ID, got.Failures)
		}
	})
}

func TestAReleasedClaimIsOfferedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{})
		mustSend(t, e, send("callee", "hi"))
		got := next(t, e, 0, time.Hour)
		second := make(chan *hub.Task, 1)
		go func() {
			x, _ := e.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: time.Minute})
			second <- x
		}()
		synctest.Wait()
		began := time.Now()
		e.Release(t.Context(), got)
		if x := <-second; x == nil || x.Attempt != 2 || x.Failures != 0 || time.Since(began) != 0 {
			t.Errorf("after the release the waiting poll got %v after %s", x, time.Since(began))
		}
	})
}

func TestWhatEndedLongAgoIsPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{Retain: 10 * time.Minute})
		r := send("callee", "hi")
		r.IdempotencyKey = "" // a key would keep it for 24 hours
		sent := mustSend(t, e, r)
		if _, err := e.Report(t.Context(), principal("callee"), report(next(t, e, 0, time.Minute), hub.Completed)); err != nil {
			t.Fatal(err)
		}
		open := mustSend(t, e, send("callee", "still waiting"))
		time.Sleep(9 * time.Minute)
		get(t, e, sent.ID)
		time.Sleep(3 * time.Minute)
		_, err := e.Task(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: sent.ID}, hub.Load{})
		if hub.KindOf(err) != hub.NotFound {
			t.Errorf("12 minutes later the task that ended gives %v, want not found", err)
		}
		get(t, e, open.ID)
	})
}

func TestSendsBeyondTheRateAreRefusedWithAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := open(t, engine.Options{Rate: 10, Burst: 2})
		mustSend(t, e, send("callee", "1"))
		mustSend(t, e, send("callee", "2"))
		_, err := e.Send(t.Context(), principal("caller"), send("callee", "3"))
		var refused *hub.Error
		if !errors.As(err, &refused) || refused.Kind != hub.RateLimited || refused.RetryAfter <= 0 {
			t.Fatalf("the third send gave %v", err)
		}
		if _, err := e.Send(t.Context(), principal("other"), send("callee", "mine")); err != nil {
			t.Errorf("another caller was refused too: %v", err)
		}
		time.Sleep(refused.RetryAfter)
		mustSend(t, e, send("callee", "3"))
	})
}
