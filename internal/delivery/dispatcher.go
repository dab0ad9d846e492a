package delivery

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// again is how long after something of the hub's own failed it is tried again.
	again = time.Second
	// reportLimit is how long an answer is kept for a store that takes none.
	reportLimit = time.Minute
	// ownEvery is how often it is asked which endpoints are this replica's, and read what
	// other replicas have made of them.
	ownEvery = 3 * time.Second
	// cancelEvery is how often it is looked for agents that have to be told of a cancel.
	cancelEvery = 2 * time.Second
	// readLimit bounds one reading of the directory.
	readLimit = 10 * time.Second
)

// Store is the part of hub.Store that a dispatcher needs beside the engine: it keeps what
// was sent, says which endpoints are this replica's, and is told of connections.
type Store interface {
	hub.Dispatches
	hub.Presence
	Address(ctx context.Context, ref string) (*hub.Address, error)
	Addresses(ctx context.Context) ([]hub.Address, error)
}

// Options are the settings of a Dispatcher. What is zero has the default named with it.
type Options struct {
	Store Store
	// Shared: other replicas may change addresses, so these are read again every 3 s.
	Shared bool
	// URL is where the other replicas reach this one; empty if they do not.
	URL string
	// Deliverers are those there are, by kind of endpoint.
	Deliverers map[string]Deliverer
	// Slots is how many tasks are delivered to one endpoint at once, where its Deliverer
	// is no Capacity. Default: 4.
	Slots int
	// Hold is how long a claim lasts without the dispatcher, which renews it three times
	// in that time: a hub that was killed delivers again after it. Default: 15 s.
	Hold time.Duration
	// Lease is how long a callee that reports by itself may be silent where its address
	// does not say. Default: that of hub.DefaultLimits.
	Lease time.Duration
	// Comeback is how long an instance that went away is waited for: its tasks stay its
	// own, and answers and redeliveries are kept for it. Default: 45 s.
	Comeback time.Duration
	// PauseMin and PauseMax bound how long an address rests that cannot be reached; the
	// time doubles with each try. Defaults: 1 s and 5 min.
	PauseMin, PauseMax time.Duration
	// Room bounds the memory that large tasks take while they are delivered. Default:
	// nothing does.
	Room *hub.Room
	// Log gets what went wrong. Default: nothing is logged.
	Log *slog.Logger
	// Observe learns of each delivery; it must not block. Default: nobody does.
	Observe func(endpoint string, k Kind, took time.Duration)
}

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Observe == nil {
		o.Observe = func(string, Kind, time.Duration) {}
	}
	if o.Room == nil {
		o.Room = hub.NewRoom(1 << 60)
	}
	o.Slots = cmp.Or(o.Slots, 4)
	o.Hold = cmp.Or(o.Hold, 15*time.Second)
	o.Lease = cmp.Or(o.Lease, hub.DefaultLimits().Lease)
	o.Comeback = cmp.Or(o.Comeback, 45*time.Second)
	o.PauseMin = cmp.Or(o.PauseMin, time.Second)
	o.PauseMax = cmp.Or(o.PauseMax, 5*time.Minute)
	return o
}

// Dispatcher delivers the tasks of all addresses that have an endpoint. Make one with
// New, Start it, and Stop it. It implements hub.Deliveries.
type Dispatcher struct {
	opt    Options
	engine *engine.Engine

	// open is the context of looking for tasks, sending that of delivering them.
	open, sending context.Context
	close, cut    context.CancelFunc
	running       sync.WaitGroup // one for each poll and delivery, and one for the loop

	announcing sync.Mutex    // one connection comes or goes at a time, as others are told
	refreshing sync.Mutex    // one reads the directory at a time
	owning     sync.Mutex    // and one asks what is owned
	stale      chan struct{} // holds a hint that the directory has to be read again

	mu     sync.Mutex
	posts  map[string]*post // by address id
	busy   int              // deliveries under way
	aboard map[string]bool  // the tasks that they are of
	// yielded is when tasks were left to another replica.
	yielded map[string]time.Time
	unsure  bool // the last time it could not be told which endpoints are its own
}

// New makes a dispatcher that does not deliver yet.
func New(opt Options) *Dispatcher {
	d := &Dispatcher{opt: opt.withDefaults(), stale: make(chan struct{}, 1), posts: make(map[string]*post), aboard: make(map[string]bool), yielded: make(map[string]time.Time)}
	d.open, d.close = context.WithCancel(context.Background())
	d.sending, d.cut = context.WithCancel(context.Background())
	return d
}

// Start begins to deliver what waits in e.
func (d *Dispatcher) Start(e *engine.Engine) {
	d.mu.Lock()
	d.engine = e
	d.mu.Unlock()
	d.readLater()
	d.running.Go(d.loop)
	d.running.Go(d.cancelLoop)
	if d.opt.Shared {
		d.running.Go(d.movedLoop)
	}
}

// Drain ends the looking for tasks. Deliveries under way go on.
func (d *Dispatcher) Drain() {
	d.close()
	d.mu.Lock()
	var idle []*watch
	for _, p := range d.posts {
		for _, r := range p.routes() {
			idle = append(idle, r.unwatch()...)
			r.rest.stop()
			if r.forget != nil {
				r.forget.Stop()
			}
		}
	}
	d.mu.Unlock()
	d.leave(idle)
}

// Stop ends the dispatcher: nothing more begins, and what is under way may finish until
// ctx ends and is cut off then. What was cut off is given back, and delivered again by
// the next dispatcher.
func (d *Dispatcher) Stop(ctx context.Context) {
	d.Drain()
	done := make(chan struct{})
	go func() { d.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
	d.cut()
	<-done
}

// Busy is how many tasks are being delivered just now.
func (d *Dispatcher) Busy() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.busy
}

// loop reads the directory when that is to be done, and asks what of it is this
// replica's, until the dispatcher stops.
func (d *Dispatcher) loop() {
	tick := time.NewTicker(ownEvery)
	defer tick.Stop()
	for {
		select {
		case <-d.stale:
		case <-tick.C:
			if !d.opt.Shared {
				d.own()
				continue
			}
		case <-d.open.Done():
			return
		}
		if err := d.refreshAll(); err != nil {
			d.opt.Log.Error("the endpoints could not be read; that is tried again", "error", err)
			d.readLater()
			if !pause(d.open, again) {
				return
			}
		}
	}
}

// readLater has the directory read again.
func (d *Dispatcher) readLater() {
	select {
	case d.stale <- struct{}{}:
	default:
	}
}

func (d *Dispatcher) refreshAll() error {
	d.refreshing.Lock()
	defer d.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(d.open, readLimit)
	defer cancel()
	all, err := d.opt.Store.Addresses(ctx)
	if err != nil {
		d.own() // or it would deliver what others have taken over by now
		return err
	}
	known := make(map[string]bool, len(all))
	for i := range all {
		known[all[i].ID] = true
		d.set(all[i].ID, &all[i])
	}
	d.mu.Lock()
	var gone []string
	for id := range d.posts {
		if !known[id] {
			gone = append(gone, id)
		}
	}
	d.mu.Unlock()
	for _, id := range gone {
		d.set(id, nil)
	}
	d.own()
	return nil
}

// Refresh implements hub.Deliveries.
func (d *Dispatcher) Refresh(ctx context.Context, address string) {
	d.refreshing.Lock()
	defer d.refreshing.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
	defer cancel()
	a, err := d.opt.Store.Address(ctx, address)
	switch {
	case hub.KindOf(err) == hub.NotFound:
		a = nil
	case err != nil:
		d.opt.Log.ErrorContext(ctx, "an endpoint could not be read; that is tried again", "address", address, "error", err)
		d.readLater()
		return
	}
	d.set(address, a)
	d.own()
}

// pause waits; false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
