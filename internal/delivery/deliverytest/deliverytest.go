// Package deliverytest is what a delivery.Deliverer promises, in executable form. One is
// right when Run passes on it:
//
//	func TestDeliverer(t *testing.T) {
//		deliverytest.Run(t, func(t testing.TB, sealer hub.Sealer) deliverytest.Harness { … })
//	}
//
// The tests run a real store, engine and dispatcher, and agents that are really there.
package deliverytest

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/vault"
)

// Deed is what an agent does with a delivery.
type Deed uint8

// The deeds.
const (
	Complete Deed = iota + 1 // the task is done; Text is its artifact
	Ask                      // Text is a question to the caller
	Fail                     // the agent failed, and Text says why
	Accept                   // the agent has the task and reports later
	Refuse                   // it is of no use to try again
	Drop                     // the delivery is lost: its connection breaks
	Later                    // it was at the wrong time; it may be tried again
	Hang                     // nothing, until the hub hangs up
)

// Act is a deed and its words.
type Act struct {
	Deed Deed
	Text string
	// Steps is what the agent says before that, while it works; for a Harness that has
	// Streams. The deed follows once Then is closed, at once if it is nil.
	Steps []string
	Then  <-chan struct{}
}

// Agent says what is done with a delivery of a task. It may be called from several
// goroutines. ctx ends when the hub has hung up.
type Agent func(ctx context.Context, task string) Act

// Remote is an agent that is there.
type Remote struct {
	// Endpoint is where it is, unless it is connected.
	Endpoint hub.Endpoint
	// Connection is how it is connected: with Address, Instance and Deliverer; nil for an
	// endpoint.
	Connection *delivery.Connection
	// Down has nothing take connections there any more; Up ends that.
	Down, Up func()
}

// Harness is a deliverer and the agents that it can reach.
type Harness struct {
	// Kind is that of the endpoints or connections. Default: hub.WebhookDelivery.
	Kind string
	// Deliverer is that of the endpoints; nil if the agents are connected.
	Deliverer delivery.Deliverer
	// Start starts an agent for an address (its id). It ends with its test.
	Start func(t testing.TB, address string, a Agent) Remote
	// Slots is how many tasks of an address are delivered at once, if the Deliverer says
	// so itself. Default: 2.
	Slots int

	// Accepts: an agent can take a task and report later by itself.
	Accepts bool
	// Streams: what the agent says while it works is reported.
	Streams bool
	// Cancels: the agent is told of a cancel, and its context ends then.
	Cancels bool
	// Listens: what the caller adds to a task is passed on while it is delivered.
	Listens bool
	// Follows: an agent that still has a task is not sent it again.
	Follows bool
}

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// usualSlots is how many tasks of an address are delivered at once here.
const usualSlots = 2

// Run tests a deliverer with the store in a file; open makes a new one for each test,
// which opens the secrets of endpoints with the sealer.
func Run(t *testing.T, open func(t testing.TB, sealer hub.Sealer) Harness) {
	runOn(t, inFile, open)
}

// RunOnPostgreSQL is Run with the store in PostgreSQL, on a server of its own. It is
// skipped where there is none.
func RunOnPostgreSQL(t *testing.T, open func(t testing.TB, sealer hub.Sealer) Harness) {
	runOn(t, inPostgreSQL(t), open)
}

func runOn(t *testing.T, store func(t testing.TB) hub.Store, open func(t testing.TB, sealer hub.Sealer) Harness) {
	run := func(name string, f func(b *bed)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(newBed(t, store(t), open))
		})
	}
	answerTests(run)
	failureTests(run)
	orderTests(run)
}

// directory lets everybody call everybody; ids are handles.
type directory struct{}

// Resolve implements engine.Directory.
func (directory) Resolve(_ context.Context, ref string) (*hub.Address, error) {
	return &hub.Address{ID: ref, Handle: ref, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1}, nil
}

// MayCall implements engine.Directory.
func (directory) MayCall(hub.Principal, *hub.Address) bool { return true }

func principal(handle string) hub.Principal {
	return hub.Principal{Address: handle, Handle: handle, Role: hub.RoleAgent}
}

// bed is a hub without faces.
type bed struct {
	testing.TB
	h          Harness
	store      hub.Store
	engine     *engine.Engine
	dispatcher *delivery.Dispatcher
	standing   switchboard
	slots      int
	connected  map[string]*delivery.Connection
	leave      map[string]func()
}

// switchboard leads to the dispatcher that runs just now.
type switchboard struct {
	mu sync.Mutex
	d  *delivery.Dispatcher
}

func (s *switchboard) use(d *delivery.Dispatcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.d = d
}

func (s *switchboard) now() *delivery.Dispatcher {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.d
}

// Refresh implements hub.Deliveries.
func (s *switchboard) Refresh(ctx context.Context, address string) { s.now().Refresh(ctx, address) }

// Standing implements hub.Deliveries.
func (s *switchboard) Standing(address string) (hub.Standing, bool) { return s.now().Standing(address) }

// Probe implements hub.Deliveries.
func (s *switchboard) Probe(address string) { s.now().Probe(address) }

func newBed(t testing.TB, store hub.Store, open func(testing.TB, hub.Sealer) Harness) *bed {
	b := &bed{TB: t, store: store, connected: make(map[string]*delivery.Connection), leave: make(map[string]func())}
	sealer, err := vault.Open(t.Context(), vault.Options{Secrets: b.store, File: filepath.Join(t.TempDir(), "master.key"), Make: true})
	if err != nil {
		t.Fatal(err)
	}
	b.h = open(t, sealer)
	b.h.Kind = cmp.Or(b.h.Kind, hub.WebhookDelivery)
	b.slots = cmp.Or(b.h.Slots, usualSlots)
	l := hub.DefaultLimits()
	l.BackoffMin, l.BackoffMax = 20*time.Millisecond, 40*time.Millisecond
	b.engine = engine.New(engine.Options{Store: b.store, Directory: directory{}, Limits: l, Deliveries: &b.standing})
	b.engine.Start()
	b.dispatch()
	b.address("caller")
	t.Cleanup(b.close)
	return b
}

// dispatch starts a dispatcher.
func (b *bed) dispatch() {
	opt := delivery.Options{
		Store: b.store, Slots: b.slots, PauseMin: 20 * time.Millisecond, PauseMax: 100 * time.Millisecond,
	}
	if b.h.Deliverer != nil {
		opt.Deliverers = map[string]delivery.Deliverer{b.h.Kind: b.h.Deliverer}
	}
	b.dispatcher = delivery.New(opt)
	b.standing.use(b.dispatcher)
	b.dispatcher.Start(b.engine)
	for address := range b.connected {
		b.connect(address)
	}
}

// connect connects the agent of an address.
func (b *bed) connect(address string) {
	b.Helper()
	leave, _, err := b.dispatcher.Connect(*b.connected[address])
	b.ok(err)
	b.leave[address] = leave
}

// stop ends the dispatcher, and cuts off what is under way.
func (b *bed) stop() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b.dispatcher.Stop(ctx)
	if n := b.dispatcher.Busy(); n != 0 {
		b.Errorf("%d deliveries are left", n)
	}
}

func (b *bed) close() {
	b.stop()
	b.engine.Close()
	if err := b.store.Close(); err != nil {
		b.Error(err)
	}
}

func (b *bed) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) address(handle string) {
	b.Helper()
	b.ok(b.store.CreateAddress(b.Context(), hub.Address{
		ID: handle, Handle: handle, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1, CreatedAt: time.Now(),
	}))
}

// agent makes an address whose tasks go to an agent.
func (b *bed) agent(handle string, a Agent) Remote {
	b.Helper()
	b.address(handle)
	r := b.h.Start(b.TB, handle, a)
	b.reach(handle, &r)
	return r
}

// reach has the tasks of an address brought to an agent; to none if it is nil.
func (b *bed) reach(handle string, r *Remote) {
	b.Helper()
	switch {
	case r == nil && b.connected[handle] != nil:
		b.leave[handle]()
		delete(b.connected, handle)
	case r == nil:
		b.endpoint(handle, nil)
	case r.Connection != nil:
		c := *r.Connection
		c.Slots, c.Endpoint.Kind = b.slots, b.h.Kind
		b.connected[handle] = &c
		b.connect(handle)
	default:
		b.endpoint(handle, &r.Endpoint)
	}
}

func (b *bed) endpoint(handle string, e *hub.Endpoint) {
	b.Helper()
	b.ok(b.store.SetEndpoint(b.Context(), handle, e))
	b.dispatcher.Refresh(b.Context(), handle)
}

func (b *bed) send(to string) *hub.Task {
	b.Helper()
	return b.say(to, "")
}

// say sends a message, to a task if it is named.
func (b *bed) say(to, task string) *hub.Task {
	b.Helper()
	sent, err := b.engine.Send(b.Context(), principal("caller"), engine.SendRequest{
		To: to, TaskID: task, Message: canon.TextMessage(fmt.Sprintf("m%d", time.Now().UnixNano()), false, "hello"),
	})
	b.ok(err)
	return sent.Task
}

// settled waits until a task has ended or asks.
func (b *bed) settled(t *hub.Task) *hub.Task {
	b.Helper()
	got, err := b.engine.Wait(b.Context(), principal("caller"), engine.Ref{Callee: t.Callee.ID, Task: t.ID}, patience, hub.Load{History: -1, Artifacts: true})
	b.ok(err)
	if !got.State.Settled() {
		b.Fatalf("the task is %s after %v: %+v", got.State, patience, got)
	}
	return got
}

func (b *bed) task(t *hub.Task) *hub.Task {
	b.Helper()
	got, err := b.store.Task(b.Context(), hub.TaskRef{ID: t.ID}, hub.Viewer{All: true}, hub.Load{})
	b.ok(err)
	return got
}

// becomes waits until something is so.
func (b *bed) becomes(what string, so func() bool) {
	b.Helper()
	for end := time.Now().Add(patience); !so(); {
		if time.Now().After(end) {
			b.Fatalf("it never came to be that %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// is compares.
func is[T comparable](b *bed, what string, got, want T) {
	b.Helper()
	if got != want {
		b.Errorf("%s is %v, want %v", what, got, want)
	}
}

// count counts lines of the activity of a task.
func (b *bed) count(t *hub.Task, kind hub.ActivityKind) (n int) {
	b.Helper()
	page, err := b.store.Activity(b.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, Limit: 1000})
	b.ok(err)
	for _, l := range page.Lines {
		if l.Task == t.ID && l.Kind == kind {
			n++
		}
	}
	return n
}

// script is an agent that does one thing after another, the last again and again, and
// counts.
type script struct {
	mu   sync.Mutex
	acts []Act
	n    int
}

func scripted(acts ...Act) *script { return &script{acts: acts} }

// do is the Agent.
func (s *script) do(context.Context, string) Act {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.acts[min(s.n, len(s.acts)-1)]
	s.n++
	return a
}

func (s *script) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n
}
