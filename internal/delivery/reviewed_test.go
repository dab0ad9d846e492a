package delivery_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// An agent that has a task learns of its cancel in a backoff, too.
func TestACancelBetweenDeliveriesIsTold(t *testing.T) {
	told, lost := make(chan struct{}, 10), make(chan struct{}, 10)
	c := canceler{
		deliverer: func(_ context.Context, d delivery.Delivery) delivery.Outcome {
			if d.Earlier != nil {
				return done()
			}
			d.Link("remote", "")
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

// An agent that was connected, and never is again, cannot be told of a cancel for ever.
func TestACancelOfAnInstanceThatNeverComesBackEnds(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{
		Dir: t.TempDir(), Synchronous: "OFF", Now: func() time.Time { return time.Now().Add(-25 * time.Hour) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b := openOn(t, s, canceler{deliverer: well, cancel: func(hub.Dispatch) (hub.CancelOutcome, error) {
		return 0, errors.New("another agent is told")
	}})
	b.address("dev")
	task := b.send("dev", 1)
	claimed, err := b.store.Claim(t.Context(), "dev", hub.ClaimSpec{Lease: time.Minute})
	if err != nil || claimed.Task == nil {
		t.Fatal(claimed, err)
	}
	_, err = b.store.BeginDispatch(t.Context(), hub.Dispatch{
		Task: task.ID, Attempt: claimed.Task.Attempt, Address: "dev", Kind: hub.TunnelDelivery, Instance: "gone", Sent: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.cancel(task)
	b.endpoint("dev")
	b.d.Start(b.engine)
	b.becomes("the dispatch is ended", func() bool {
		page, err := b.store.ListDispatches(t.Context(), hub.DispatchFilter{Task: task.ID, Limit: 1})
		return err == nil && len(page.Dispatches) == 1 && !page.Dispatches[0].EndedAt.IsZero()
	})
}

// away is a store that does not say what is owned, and then is slow to take connections.
type away struct {
	hub.Store
	owns     atomic.Bool
	failures atomic.Int64
}

// Own implements hub.Presence.
func (s *away) Own(ctx context.Context, addresses []string) ([]string, error) {
	if !s.owns.Load() {
		return nil, hub.Errorf(hub.Unavailable, "the store is away")
	}
	return s.Store.Own(ctx, addresses)
}

// Connect implements hub.Presence.
func (s *away) Connect(ctx context.Context, i hub.Instance) error {
	if s.failures.Add(-1) >= 0 {
		return hub.Errorf(hub.Unavailable, "the store is away still")
	}
	return s.Store.Connect(ctx, i)
}

// A replica that the others may have taken for dead shows its connections again, however
// often that takes.
func TestConnectionsAreShownAgainUntilThatWorks(t *testing.T) {
	var s *away
	b := open(t, deliverer(none), func(o *delivery.Options) {
		s = &away{Store: o.Store.(*ill).Store}
		o.Store = s
	})
	b.address("dev")
	b.d.Start(b.engine)
	defer b.connect("dev", "one", 1, deliverer(well))()
	b.d.Refresh(t.Context(), "dev")
	if err := s.Disconnect(t.Context(), "dev", "one"); err != nil { // as another replica's sweep does
		t.Fatal(err)
	}
	s.failures.Store(2)
	s.owns.Store(true)
	b.d.Refresh(t.Context(), "dev")
	b.becomes("it is shown", func() bool {
		list, err := s.Instances(t.Context(), "dev")
		return err == nil && len(list) == 1
	})
}
