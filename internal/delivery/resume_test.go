package delivery_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// attempts are the dispatches of a task, the newest first.
func (b *bed) attempts(t *hub.Task) []hub.Dispatch {
	b.Helper()
	page, err := b.store.ListDispatches(b.Context(), hub.DispatchFilter{Task: t.ID, Limit: 1000})
	if err != nil {
		b.Fatal(err)
	}
	return page.Dispatches
}

// untold is a cancel that arrives nowhere.
func untold(hub.Dispatch) (hub.CancelOutcome, error) { return 0, errors.New("it is away") }

// An agent that has the task and is away for a while is asked for it now and then, and not
// all the time; what was not sent does not say that it was, and what the agent calls the
// task is not forgotten.
func TestAnAgentThatIsAwayWithItsTaskIsLeftAlone(t *testing.T) {
	var n atomic.Int64
	b := open(t, canceler{cancel: untold, deliverer: func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		if n.Add(1) == 1 {
			d.Link("remote", "context")
			return delivery.Outcome{Kind: delivery.Lost, Reason: "it broke"}
		}
		if x := d.Earlier; x == nil || x.RemoteTask != "remote" || x.RemoteContext != "context" {
			t.Errorf("the earlier dispatch is %+v", x)
		}
		return delivery.Outcome{Kind: delivery.Unsent, Reason: "nothing takes connections there"}
	}}, func(o *delivery.Options) { o.PauseMin, o.PauseMax = time.Hour, time.Hour })
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	var list []hub.Dispatch
	b.becomes("the address rests", func() bool {
		s, _ := b.d.Standing("dev")
		list = b.attempts(task)
		return s.Trouble != "" && s.InFlight == 0 && len(list) > 1 && list[0].Outcome != ""
	})
	for _, x := range list[:len(list)-1] {
		if x.Outcome != "unsent" || x.Sent || x.RemoteTask != "remote" {
			t.Errorf("an attempt is %+v", x)
		}
	}
	// Some may have been under way when the first found that nobody is there.
	if most := int64(1 + 4 + 4); n.Load() > most {
		t.Errorf("the agent was tried %d times, want at most %d", n.Load(), most)
	}
}

// killed is an attempt of a hub that was killed in the middle of it.
func (b *bed) killed(t *hub.Task, name string) {
	b.Helper()
	claimed, err := b.store.Claim(b.Context(), t.Callee.ID, hub.ClaimSpec{Lease: time.Minute})
	if err != nil || claimed.Task == nil {
		b.Fatal(claimed, err)
	}
	attempt := claimed.Task.Attempt
	_, err = b.store.BeginDispatch(b.Context(), hub.Dispatch{
		Task: t.ID, Attempt: attempt, Address: t.Callee.ID, Kind: hub.WebhookDelivery, Sent: true,
	})
	if err == nil && name != "" {
		err = b.store.LinkDispatch(b.Context(), t.ID, attempt, name, "")
	}
	if err == nil {
		err = b.store.Release(b.Context(), t.Callee.ID, t.ID, attempt) // as if its lease had ended
	}
	if err != nil {
		b.Fatal(err)
	}
}

// What the agent calls a task is known still when a hub was killed that had just begun to
// ask for it.
func TestANameOutlivesAHubThatWasKilledTwice(t *testing.T) {
	seen := make(chan delivery.Delivery, 1)
	b := open(t, canceler{cancel: untold, deliverer: func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		seen <- d
		return done()
	}})
	b.address("dev")
	task := b.send("dev", 1)
	b.killed(task, "remote")
	b.killed(task, "")
	b.endpoint("dev")
	b.d.Start(b.engine)
	d := within(b, "the delivery", seen)
	if d.Earlier == nil || d.Earlier.RemoteTask != "remote" || !d.Unsure {
		t.Errorf("the earlier dispatch is %+v, unsure: %v", d.Earlier, d.Unsure)
	}
	b.settled(task)
}

// What was sent, and cannot be asked for after its connection broke, counts as a lost
// delivery, or a task that ends its own agent would be sent for ever.
func TestWhatWasSentIsNotUnsentLater(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.d.Start(b.engine)
	begun, broken := make(chan struct{}, 1), make(chan struct{})
	leave := b.connect("dev", "one", 1, b.breaking(begun, broken))
	task := b.send("dev", 1)
	within(b, "the delivery", begun)
	leave()
	close(broken)
	var n atomic.Int64
	defer b.connect("dev", "one", 1, deliverer(func(context.Context, delivery.Delivery) delivery.Outcome {
		if n.Add(1) == 1 {
			return delivery.Outcome{Kind: delivery.Unsent, Reason: "its server at 127.0.0.1 is down"}
		}
		return done()
	}))()
	if got := b.settled(task); got.State != hub.Completed || got.Failures != 1 {
		t.Errorf("the task is %+v, want one failure", got)
	}
	if x := b.attempts(task); len(x) != 2 || x[1].Outcome != "lost" || !x[1].Sent {
		t.Errorf("the attempts are %+v", x)
	}
}

// A cancel is not confirmed by an agent that was not reached, if it may have the task from
// an attempt before.
func TestACancelOfWhatMayHaveBeenSentBeforeIsUnconfirmed(t *testing.T) {
	begun := make(chan struct{})
	b := open(t, deliverer(func(ctx context.Context, _ delivery.Delivery) delivery.Outcome {
		close(begun)
		<-ctx.Done()
		return delivery.Outcome{Kind: delivery.Unsent, Busy: true, Reason: "the hub has no room"}
	}))
	b.address("dev")
	task := b.send("dev", 1)
	b.killed(task, "")
	b.endpoint("dev")
	b.d.Start(b.engine)
	within(b, "the delivery", begun)
	b.cancel(task)
	b.becomes("the delivery is over", func() bool { return b.d.Busy() == 0 })
	if got := b.canceled(task); got != hub.CancelUnconfirmed {
		t.Errorf("the outcome of the cancel is %v", got)
	}
}
