package delivery_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// An agent that has a task learns of its cancel in a backoff, too.
func TestACancelBetweenDeliveriesIsTold(t *testing.T) {
	told, lost := make(chan struct{}, 10), make(chan struct{}, 10)
	c := canceler{
		deliverer: func(_ context.Context, d delivery.Delivery) delivery.Outcome {
			if d.Earlier != nil {
				return done()
			}
			if err := d.Link("remote", ""); err != nil {
				t.Error(err)
			}
			lost <- struct{}{}
			return delivery.Outcome{Kind: delivery.Lost, Reason: "it broke", After: time.Minute}
		},
		cancel: func(d hub.Dispatch) (hub.CancelOutcome, error) {
			if d.RemoteTask != "remote" {
				t.Errorf("told of %+v", d)
			}
			told <- struct{}{}
			return hub.CancelConfirmed, nil
		},
	}
	b := open(t, c)
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	task := b.send("dev", 1)
	within(b, "lost", lost)
	b.becomes("idle", func() bool { return b.d.Busy() == 0 })
	b.cancel(task)
	within(b, "the agent is told", told)
	b.becomes("that is noted", func() bool {
		got, err := b.store.Task(t.Context(), hub.TaskRef{ID: task.ID}, hub.Viewer{All: true}, hub.Load{})
		return err == nil && got.CancelOutcome == hub.CancelConfirmed
	})
}

// A dispatch to a webhook that a killed hub left, of an address that has a tunnel by now
// whose agent could be told: there is nobody to tell.
func TestACancelThatNobodyCanBeToldOf(t *testing.T) {
	b := open(t, deliverer(none))
	b.address("dev")
	b.endpoint("dev")
	task := b.send("dev", 1)
	claimed, err := b.store.Claim(t.Context(), "dev", hub.ClaimSpec{Lease: time.Minute})
	if err != nil || claimed.Task == nil {
		t.Fatal(claimed, err)
	}
	_, err = b.store.BeginDispatch(t.Context(), hub.Dispatch{Task: task.ID, Attempt: claimed.Task.Attempt, Address: "dev", Kind: hub.WebhookDelivery, Sent: true})
	if err != nil {
		t.Fatal(err)
	}
	b.cancel(task)
	b.d.Start(b.engine)
	defer b.connect("dev", "one", 1, canceler{deliverer: well, cancel: func(hub.Dispatch) (hub.CancelOutcome, error) {
		return hub.CancelConfirmed, nil
	}})()
	b.becomes("the dispatch is ended", func() bool {
		page, err := b.store.ListDispatches(t.Context(), hub.DispatchFilter{Task: task.ID, Limit: 1})
		return err == nil && len(page.Dispatches) == 1 && !page.Dispatches[0].EndedAt.IsZero()
	})
}

// slow is a presence that is slow to note a second connection.
type slow struct {
	hub.Store
	noted chan struct{}
	free  chan struct{}
	n     int
}

// Connect implements hub.Presence.
func (p *slow) Connect(ctx context.Context, i hub.Instance) error {
	err := p.Store.Connect(ctx, i)
	if p.n++; p.n == 2 {
		close(p.noted)
		<-p.free
	}
	return err
}

// The end of a connection takes nothing from the one that has replaced it.
func TestAnInstanceThatWasReplacedIsShown(t *testing.T) {
	var p *slow
	b := open(t, deliverer(none), func(o *delivery.Options) {
		p = &slow{Store: o.Store.(*ill).Store, noted: make(chan struct{}), free: make(chan struct{})}
		o.Store = p
	})
	b.address("dev")
	b.d.Start(b.engine)
	leave := b.connect("dev", "one", 1, deliverer(well))
	left := make(chan struct{})
	go func() {
		<-p.noted
		close(p.free)
		leave()
		close(left)
	}()
	defer b.connect("dev", "one", 1, deliverer(well))()
	<-left
	list, err := p.Instances(t.Context(), "dev")
	if err != nil || len(list) != 1 {
		t.Errorf("shown: %v, error %v", list, err)
	}
}
