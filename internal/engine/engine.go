// Package engine is the life of a task: it accepts, hands out, renews, redelivers
// and ends tasks on a hub.Store, and wakes whoever waits for that. It decides who
// may do what before it touches data. Its clients are the faces; nothing in here
// knows a protocol.
//
// Waiting costs the hub nothing but the waiter's own goroutine: a parked task is a
// row. Wake-ups are hints in memory, given after the commit by whoever committed;
// the store alone says what happened.
package engine

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Directory is what the engine needs to know of addresses; identity implements it.
type Directory interface {
	// Resolve finds a living address by handle or id; NotPermitted if there is none,
	// the same answer as for one that may not be called.
	Resolve(ctx context.Context, ref string) (*hub.Address, error)
	// MayCall reports whether p may send to a (and read its own tasks there).
	MayCall(p hub.Principal, a *hub.Address) bool
}

// Options configure an Engine.
type Options struct {
	Store     hub.Store
	Directory Directory
	// Limits are DefaultLimits where zero.
	Limits hub.Limits
	Log    *slog.Logger
	// Retain is how long ended tasks are kept; 0 for ever.
	Retain time.Duration
	// DeleteGrace is how long a deleted address's queued tasks wait before they are
	// canceled.
	DeleteGrace time.Duration
	// Rate and Burst bound the sends of one caller to one address, per second; a
	// Rate of 0 bounds nothing.
	Rate  float64
	Burst int
	// Pusher sends push notifications, and Sealer seals the secrets of their
	// configurations. If one is nil, push is not supported: see Engine.PushSupported.
	Pusher hub.Pusher
	Sealer hub.Sealer
	// CheckPushURL judges where notifications are to go when a configuration is saved,
	// with an Invalid error about the field "url"; nil for no such rule.
	CheckPushURL func(ctx context.Context, url string) error
	// Deliveries is who brings tasks to endpoints; nil if the hub has none.
	Deliveries hub.Deliveries
	// NewID makes task and context ids; UUIDv7 if nil.
	NewID func() string
	// Now is the clock that what the store holds is compared with; time.Now if nil. Where
	// replicas share a store it must be the store's.
	Now func() time.Time
}

// Engine runs tasks. Make one with New, Start it, and Close it.
type Engine struct {
	opt   Options
	store hub.Store

	tasks   topic   // by task id
	feed    topic   // by address id, whose feeds they are
	pollers pollers // by callee id
	marks   marks
	rates   rates
	seen    sync.Map // callee id -> time.Time of the last poll
	open    gauges
	streams streams

	draining  chan struct{}
	drainOnce sync.Once
	stop      context.CancelFunc
	running   sync.WaitGroup
}

// New makes an engine that does not run yet: it serves requests, but nothing
// expires until Start.
func New(opt Options) *Engine {
	if opt.Limits == (hub.Limits{}) {
		opt.Limits = hub.DefaultLimits()
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.NewID == nil {
		opt.NewID = newUUID
	}
	return &Engine{
		opt: opt, store: opt.Store, draining: make(chan struct{}),
		rates: rates{perSecond: opt.Rate, burst: opt.Burst},
	}
}

// newUUID makes a UUIDv7: ids made later sort later.
func newUUID() string { return uuid.Must(uuid.NewV7()).String() }

// Start begins the background work: expiry, retention and read marks.
func (e *Engine) Start() {
	ctx, stop := context.WithCancel(context.Background())
	e.stop = stop
	for _, loop := range []func(context.Context){e.sweepLoop, e.retainLoop, e.markLoop} {
		e.running.Go(func() { loop(ctx) })
	}
}

// Close ends the background work and every open wait. The store stays open.
func (e *Engine) Close() {
	e.Drain()
	if e.stop != nil {
		e.stop()
	}
	e.running.Wait()
}

// Drain ends every open wait (long polls, blocking sends, streams, feeds) at once,
// each with its ordinary "nothing more" answer, so that a server can shut down.
// Later waits do not wait.
func (e *Engine) Drain() {
	e.drainOnce.Do(func() {
		close(e.draining)
		e.pollers.alert()
	})
}

func (e *Engine) drains() bool {
	select {
	case <-e.draining:
		return true
	default:
		return false
	}
}

// callable resolves the address that p wants to call, NotPermitted if it may not.
func (e *Engine) callable(ctx context.Context, p hub.Principal, ref string) (*hub.Address, error) {
	a, err := e.opt.Directory.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !e.opt.Directory.MayCall(p, a) {
		return nil, hub.ErrNotPermitted()
	}
	return a, nil
}

// ref resolves a reference to a task at an address that p may call, or at any.
func (e *Engine) ref(ctx context.Context, p hub.Principal, r Ref) (hub.TaskRef, error) {
	if r.Callee == "" {
		return hub.TaskRef{ID: r.Task}, nil
	}
	a, err := e.callable(ctx, p, r.Callee)
	if err == nil {
		return hub.TaskRef{Callee: a.ID, ID: r.Task}, nil
	}
	if hub.KindOf(err) != hub.NotPermitted {
		return hub.TaskRef{}, err
	}
	// What p sent stays p's, although the address is gone or lets p in no more.
	t, lookErr := e.store.Task(ctx, hub.TaskRef{ID: r.Task}, p.Viewer(), hub.Load{})
	if lookErr != nil || (t.Callee.ID != r.Callee && t.Callee.Handle != r.Callee) {
		return hub.TaskRef{}, err
	}
	return hub.TaskRef{Callee: t.Callee.ID, ID: t.ID}, nil
}

// Former finds an address that p may not call, or that was deleted, and has once sent a
// task to, for what concerns those tasks: they stay p's. NotPermitted, like callable,
// for every other. Its ID is what was asked for, since several may have had a handle.
func (e *Engine) Former(ctx context.Context, p hub.Principal, ref string) (*hub.Address, error) {
	a, err := e.former(ctx, p, ref)
	if err != nil {
		return nil, err
	}
	a.ID = ref
	return a, nil
}

func (e *Engine) former(ctx context.Context, p hub.Principal, ref string) (*hub.Address, error) {
	a, err := e.store.FormerAddress(ctx, ref, p.Viewer())
	if hub.KindOf(err) == hub.NotFound {
		return nil, hub.ErrNotPermitted()
	}
	return a, err
}

// changed gives the hints of a committed transition.
func (e *Engine) changed(t *hub.Task, h hint) {
	e.tasks.notify(t.ID, h)
	if t.Pushes > 0 {
		e.wakePusher()
	}
	e.line(t.Caller.ID)
	if t.Callee.ID != t.Caller.ID {
		e.line(t.Callee.ID)
	}
	e.line(everyone)
}

// everyone is the key under which feeds of the whole hub wait.
const everyone = ""

// line wakes the feeds that an address follows.
func (e *Engine) line(address string) { e.feed.notify(address, hint{}) }

// Waiting counts those who wait: workers for a task, callers for the end of one.
type Waiting struct{ Polls, Sends int64 }

// Waiting says how many requests wait just now.
func (e *Engine) Waiting() Waiting {
	return Waiting{Polls: e.open.polls.Load(), Sends: e.open.sends.Load()}
}
