package delivery_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// canceler is a deliverer whose agents can be told of cancels.
type canceler struct {
	deliverer
	cancel func(d hub.Dispatch) (hub.CancelOutcome, error)
}

func (c canceler) Cancel(_ context.Context, _ hub.Endpoint, d hub.Dispatch) (hub.CancelOutcome, error) {
	return c.cancel(d)
}

// dispatching is a hub whose deliverer begins with a task, which is given.
func dispatching(t *testing.T, c canceler) (*bed, *hub.Task) {
	t.Helper()
	begun := make(chan struct{}, 1)
	deliver := c.deliverer
	c.deliverer = func(ctx context.Context, d delivery.Delivery) delivery.Outcome {
		begun <- struct{}{}
		return deliver(ctx, d)
	}
	b := open(t, c)
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	within(b, "the delivery", begun)
	return b, task
}

func (b *bed) cancel(t *hub.Task) {
	b.Helper()
	if _, err := b.engine.Cancel(b.Context(), caller(), engine.Ref{Task: t.ID}); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) isTold(t *hub.Task, want hub.CancelOutcome) {
	b.Helper()
	b.becomes("the outcome of the cancel is "+want.String(), func() bool { return b.canceled(t) == want })
}

func TestAnAgentIsToldOfACancelByWhatItCallsTheTask(t *testing.T) {
	var tries atomic.Int64
	b, task := dispatching(t, canceler{
		deliverer: func(ctx context.Context, d delivery.Delivery) delivery.Outcome {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), delivery.ErrCanceled) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			d.Link("remote-"+d.Task.ID, "") // found out only now
			return delivery.Outcome{Kind: delivery.Lost, Reason: "it was canceled"}
		},
		cancel: func(d hub.Dispatch) (hub.CancelOutcome, error) {
			if d.RemoteTask != "remote-"+d.Task {
				t.Errorf("the dispatch is %+v", d)
			}
			if tries.Add(1) < 3 {
				return 0, errors.New("it cannot be reached")
			}
			return hub.CancelConfirmed, nil
		},
	})
	b.cancel(task)
	b.isTold(task, hub.CancelConfirmed)
	if n := tries.Load(); n != 3 {
		t.Errorf("it was tried %d times", n)
	}
}

func TestAnAgentThatAskedIsToldOfACancel(t *testing.T) {
	b, task := dispatching(t, canceler{
		deliverer: func(_ context.Context, d delivery.Delivery) delivery.Outcome {
			d.Link("remote", "")
			return delivery.Outcome{Kind: delivery.Answered, Report: hub.Report{State: hub.InputRequired, Message: canon.TextMessage("q", true, "which?")}}
		},
		cancel: func(hub.Dispatch) (hub.CancelOutcome, error) { return hub.CancelAlreadyFinished, nil },
	})
	b.cancel(b.settled(task))
	b.isTold(task, hub.CancelAlreadyFinished)
}

func TestACancelOfWhatNobodyCanNameIsUnconfirmed(t *testing.T) {
	b, task := dispatching(t, canceler{
		deliverer: func(ctx context.Context, _ delivery.Delivery) delivery.Outcome {
			<-ctx.Done()
			return delivery.Outcome{Kind: delivery.Lost, Reason: "it broke"}
		},
		cancel: func(hub.Dispatch) (hub.CancelOutcome, error) {
			t.Error("it was asked")
			return hub.CancelConfirmed, nil
		},
	})
	b.cancel(task)
	b.isTold(task, hub.CancelUnconfirmed)
}

func TestACancelOfWhatWasNotSentIsConfirmed(t *testing.T) {
	b, task := dispatching(t, canceler{
		deliverer: func(ctx context.Context, _ delivery.Delivery) delivery.Outcome {
			<-ctx.Done()
			return delivery.Outcome{Kind: delivery.Unsent, Reason: "there was no time"}
		},
		cancel: func(hub.Dispatch) (hub.CancelOutcome, error) {
			t.Error("it was asked")
			return hub.CancelUnconfirmed, nil
		},
	})
	b.cancel(task)
	b.isTold(task, hub.CancelConfirmed)
}

// A deliverer that learns of a cancel by a report which is refused may return before
// anybody says so.
func TestACancelThatAReportRunsIntoIsTold(t *testing.T) {
	canceled := make(chan struct{})
	b, task := dispatching(t, canceler{
		deliverer: func(_ context.Context, d delivery.Delivery) delivery.Outcome {
			d.Link("remote", "")
			<-canceled
			if err := d.Progress(hub.Report{State: hub.Working}); err == nil {
				t.Error("a report of a canceled task was taken")
			}
			return delivery.Outcome{Kind: delivery.Lost, Reason: "the report was refused"}
		},
		cancel: func(hub.Dispatch) (hub.CancelOutcome, error) { return hub.CancelConfirmed, nil },
	})
	b.cancel(task)
	close(canceled)
	b.isTold(task, hub.CancelConfirmed)
}
