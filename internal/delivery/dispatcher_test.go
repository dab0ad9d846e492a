package delivery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What a Deliverer and the dispatcher do together is tested by deliverytest. Here is
// what no deliverer can bring about.

const patience = 30 * time.Second

type directory struct{}

func (directory) Resolve(_ context.Context, ref string) (*hub.Address, error) {
	return &hub.Address{ID: ref, Handle: ref, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1}, nil
}

func (directory) MayCall(hub.Principal, *hub.Address) bool { return true }

// deliverer delivers by a function.
type deliverer func(ctx context.Context, d delivery.Delivery) delivery.Outcome

func (f deliverer) Deliver(ctx context.Context, d delivery.Delivery) delivery.Outcome {
	return f(ctx, d)
}

// done answers that a task is completed.
func done() delivery.Outcome {
	return delivery.Outcome{Kind: delivery.Answered, Report: hub.Report{State: hub.Completed}}
}

// ill is a store that refuses what it is told to.
type ill struct {
	hub.Store
	claims, reports, reads, owns atomic.Int64 // how many more are refused
}

func refuse(n *atomic.Int64) error {
	if n.Add(-1) >= 0 {
		return hub.Errorf(hub.Unavailable, "the disk is full")
	}
	return nil
}

func (s *ill) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (hub.Claimed, error) {
	if err := refuse(&s.claims); err != nil {
		return hub.Claimed{}, err
	}
	return s.Store.Claim(ctx, callee, c)
}

func (s *ill) Report(ctx context.Context, r hub.Report) (hub.Reported, error) {
	if err := refuse(&s.reports); err != nil {
		return hub.Reported{}, err
	}
	return s.Store.Report(ctx, r)
}

func (s *ill) Addresses(ctx context.Context) ([]hub.Address, error) {
	if err := refuse(&s.reads); err != nil {
		return nil, err
	}
	return s.Store.Addresses(ctx)
}

func (s *ill) Address(ctx context.Context, ref string) (*hub.Address, error) {
	if err := refuse(&s.reads); err != nil {
		return nil, err
	}
	return s.Store.Address(ctx, ref)
}

func (s *ill) Own(ctx context.Context, addresses []string) ([]string, error) {
	if err := refuse(&s.owns); err != nil {
		return nil, err
	}
	return s.Store.Own(ctx, addresses)
}

// bed is a hub with a deliverer.
type bed struct {
	*testing.T
	store  *ill
	engine *engine.Engine
	d      *delivery.Dispatcher
}

func open(t *testing.T, f delivery.Deliverer, change ...func(*delivery.Options)) *bed {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "OFF"})
	if err != nil {
		t.Fatal(err)
	}
	return openOn(t, s, f, change...)
}

// openOn opens a hub on a store, which it closes.
func openOn(t *testing.T, s hub.Store, f delivery.Deliverer, change ...func(*delivery.Options)) *bed {
	t.Helper()
	b := &bed{T: t, store: &ill{Store: s}}
	l := hub.DefaultLimits()
	l.BackoffMin, l.BackoffMax, l.Redeliveries = 10*time.Millisecond, 20*time.Millisecond, 100
	opt := delivery.Options{
		Store: b.store, Deliverers: map[string]delivery.Deliverer{hub.WebhookDelivery: f},
		PauseMin: 5 * time.Millisecond, PauseMax: 20 * time.Millisecond,
	}
	for _, f := range change {
		f(&opt)
	}
	b.d = delivery.New(opt)
	b.engine = engine.New(engine.Options{Store: b.store, Directory: directory{}, Limits: l, Deliveries: b.d})
	b.engine.Start()
	b.address("caller")
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		b.d.Stop(ctx)
		b.engine.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bed) address(handle string) {
	b.Helper()
	a := hub.Address{ID: handle, Handle: handle, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1, CreatedAt: time.Now()}
	if err := b.store.CreateAddress(b.Context(), a); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) endpoint(handle string) {
	b.Helper()
	if err := b.store.SetEndpoint(b.Context(), handle, &hub.Endpoint{Kind: hub.WebhookDelivery, URL: "http://x.example/", Sealed: []byte("s")}); err != nil {
		b.Fatal(err)
	}
}

func (b *bed) send(to string, n int) *hub.Task {
	b.Helper()
	sent, err := b.engine.Send(b.Context(), hub.Principal{Address: "caller", Handle: "caller", Role: hub.RoleAgent}, engine.SendRequest{
		To: to, Message: canon.TextMessage(fmt.Sprint("m", n), false, "hi"),
	})
	if err != nil {
		b.Fatal(err)
	}
	return sent.Task
}

func (b *bed) settled(t *hub.Task) *hub.Task {
	b.Helper()
	got, err := b.engine.Wait(b.Context(), hub.Principal{Address: "caller", Role: hub.RoleAgent}, engine.Ref{Callee: t.Callee.ID, Task: t.ID}, patience, hub.Load{})
	if err != nil {
		b.Fatal(err)
	}
	if !got.State.Settled() {
		b.Fatalf("the task is still %s: %+v", got.State, got)
	}
	return got
}

func TestAnAnswerIsKeptForAStoreThatTakesNone(t *testing.T) {
	var n atomic.Int64
	b := open(t, deliverer(func(context.Context, delivery.Delivery) delivery.Outcome { n.Add(1); return done() }))
	b.address("dev")
	b.endpoint("dev")
	b.store.reports.Store(2)
	b.d.Start(b.engine)
	if got := b.settled(b.send("dev", 1)); got.State != hub.Completed || got.Attempt != 1 || n.Load() != 1 {
		t.Errorf("after %d deliveries the task is %+v", n.Load(), got)
	}
}

func TestAMailboxThatCannotBeReadIsTriedAgain(t *testing.T) {
	b := open(t, deliverer(func(context.Context, delivery.Delivery) delivery.Outcome { return done() }))
	b.address("dev")
	b.endpoint("dev")
	b.store.reads.Store(1)
	b.store.claims.Store(1)
	b.d.Start(b.engine)
	if got := b.settled(b.send("dev", 1)); got.State != hub.Completed {
		t.Errorf("the task is %+v", got)
	}
	// And so is an endpoint that is set while the store cannot be read.
	b.address("other")
	b.endpoint("other")
	b.store.reads.Store(2)
	b.d.Refresh(t.Context(), "other")
	if got := b.settled(b.send("other", 2)); got.State != hub.Completed {
		t.Errorf("the task is %+v", got)
	}
}

func TestAnAnswerThatDoesNotFitFailsTheTask(t *testing.T) {
	b := open(t, deliverer(func(context.Context, delivery.Delivery) delivery.Outcome {
		out := done()
		out.Report.Events = []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", Append: true, Body: []byte(`{"artifactId":"a","parts":[{"text":"x"}]}`)}}
		return out
	}))
	b.address("dev")
	b.endpoint("dev")
	b.d.Start(b.engine)
	if got := b.settled(b.send("dev", 1)); got.State != hub.Failed || got.Error == "" || got.Attempt != 1 {
		t.Errorf("the task is %+v", got)
	}
}

// Whatever becomes of each delivery, every task ends, no address has more under way than
// it has slots, and each attempt is a delivery or was given back before it came to that.
func TestEveryTaskEndsWhateverHappens(t *testing.T) {
	const addresses, tasks, slots = 8, 12, 4
	var mu sync.Mutex
	now, calls, unsent := map[string]int{}, map[string]int{}, map[string]int{}
	b := open(t, deliverer(func(_ context.Context, d delivery.Delivery) delivery.Outcome {
		mu.Lock()
		now[d.Task.Callee.ID]++
		calls[d.Task.ID]++
		if n := now[d.Task.Callee.ID]; n > slots {
			t.Errorf("%d tasks of %s are delivered at once", n, d.Task.Callee.ID)
		}
		mu.Unlock()
		defer func() {
			mu.Lock()
			now[d.Task.Callee.ID]--
			mu.Unlock()
		}()
		switch rand.IntN(10) {
		case 0, 1:
			mu.Lock()
			unsent[d.Task.ID]++
			mu.Unlock()
			return delivery.Outcome{Kind: delivery.Unsent, Reason: "away", Busy: rand.IntN(16) == 0}
		case 2:
			return delivery.Outcome{Kind: delivery.Lost, Reason: "it broke"}
		case 3:
			return delivery.Outcome{Kind: delivery.Lost, Reason: "not now", After: 10 * time.Millisecond}
		case 4:
			return delivery.Outcome{Kind: delivery.Refused, Reason: "it will not"}
		}
		return done()
	}))
	b.d.Start(b.engine)
	var sent []*hub.Task
	for i := range addresses {
		b.address(fmt.Sprint("dev", i))
	}
	for n := range tasks {
		for i := range addresses {
			sent = append(sent, b.send(fmt.Sprint("dev", i), n))
			if n == i%tasks { // some of the tasks wait already, and some do not
				b.endpoint(fmt.Sprint("dev", i))
				b.d.Refresh(t.Context(), fmt.Sprint("dev", i))
			}
		}
	}
	var ended []*hub.Task
	for _, task := range sent {
		ended = append(ended, b.settled(task))
	}
	released := b.released()
	mu.Lock()
	defer mu.Unlock()
	for _, got := range ended {
		// A claim that came to a poll which was just being left was given back unseen.
		unseen := released[got.ID] - unsent[got.ID]
		if !got.State.Terminal() || unseen < 0 || got.Attempt != calls[got.ID]+unseen {
			t.Errorf("after %d deliveries, and %d claims given back before, the task is %+v", calls[got.ID], unseen, got)
		}
	}
}

// released counts the claims of each task that were given back.
func (b *bed) released() map[string]int {
	b.Helper()
	n := map[string]int{}
	for after := ""; ; {
		page, err := b.store.Activity(b.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, After: after, Limit: 100})
		if err != nil {
			b.Fatal(err)
		}
		if len(page.Lines) == 0 {
			return n
		}
		for _, l := range page.Lines {
			if l.Kind == hub.ActReleased {
				n[l.Task]++
			}
		}
		after = page.Next
	}
}
