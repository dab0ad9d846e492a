package delivery

import (
	"bytes"
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// again is how long after something of the hub's own failed it is tried again.
	again = time.Second
	// reportLimit is how long an answer is kept for a store that takes none.
	reportLimit = time.Minute
)

// Addresses is the part of hub.Directory that a dispatcher needs.
type Addresses interface {
	Address(ctx context.Context, ref string) (*hub.Address, error)
	Addresses(ctx context.Context) ([]hub.Address, error)
}

// Options are the settings of a Dispatcher. What is zero has the default named with it.
type Options struct {
	Addresses Addresses
	// Deliverers are those there are, by kind of endpoint.
	Deliverers map[string]Deliverer
	// Slots is how many tasks of one address are delivered at once. Default: 4.
	Slots int
	// Hold is how long a claim lasts without the dispatcher, which renews it three times
	// in that time: a hub that was killed delivers again after it. Default: 15 s.
	Hold time.Duration
	// Lease is how long a callee that reports by itself may be silent where its address
	// does not say. Default: that of hub.DefaultLimits.
	Lease time.Duration
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

	refreshing sync.Mutex    // one reads the directory at a time
	stale      chan struct{} // holds a hint that the directory has to be read again

	mu     sync.Mutex
	routes map[string]*route // by address id
	busy   int               // deliveries under way
}

// route is an address that the dispatcher delivers to, guarded by the dispatcher's mu.
type route struct {
	id, handle string
	endpoint   hub.Endpoint
	lease      time.Duration
	gone       bool

	watch *watch // the one poll of the address; nil if there is none
	busy  int    // deliveries under way
	rest  rest
	last  *hub.LastDelivery
}

// watch is an open poll of an address. It belongs to who has it: a goroutine that looks
// or, while parked, to whoever takes parked back.
type watch struct {
	route  *route
	poll   *engine.Poll
	parked atomic.Bool
}

// New makes a dispatcher that does not deliver yet.
func New(opt Options) *Dispatcher {
	d := &Dispatcher{opt: opt.withDefaults(), stale: make(chan struct{}, 1), routes: make(map[string]*route)}
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
}

// Drain ends the looking for tasks. Deliveries under way go on.
func (d *Dispatcher) Drain() {
	d.close()
	d.mu.Lock()
	var idle []*watch
	for _, r := range d.routes {
		idle = append(idle, r.unwatch()...)
		r.rest.stop()
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

// loop reads the directory when that is to be done, until the dispatcher stops.
func (d *Dispatcher) loop() {
	for {
		select {
		case <-d.stale:
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
	all, err := d.opt.Addresses.Addresses(d.open)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(all))
	for i := range all {
		known[all[i].ID] = true
		d.set(all[i].ID, &all[i])
	}
	d.mu.Lock()
	var gone []string
	for id := range d.routes {
		if !known[id] {
			gone = append(gone, id)
		}
	}
	d.mu.Unlock()
	for _, id := range gone {
		d.set(id, nil)
	}
	return nil
}

// Refresh implements hub.Deliveries.
func (d *Dispatcher) Refresh(ctx context.Context, address string) {
	d.refreshing.Lock()
	defer d.refreshing.Unlock()
	a, err := d.opt.Addresses.Address(context.WithoutCancel(ctx), address)
	switch {
	case hub.KindOf(err) == hub.NotFound:
		a = nil
	case err != nil:
		d.opt.Log.ErrorContext(ctx, "an endpoint could not be read; that is tried again", "address", address, "error", err)
		d.readLater()
		return
	}
	d.set(address, a)
}

// set makes the route of an address what the address says; none if it is nil.
func (d *Dispatcher) set(id string, a *hub.Address) {
	d.mu.Lock()
	r := d.routes[id]
	var idle []*watch
	switch {
	case a == nil || a.Endpoint == nil || d.opt.Deliverers[a.Endpoint.Kind] == nil:
		if r != nil {
			r.gone = true
			r.rest.stop()
			idle = r.unwatch()
			delete(d.routes, id)
		}
	case r == nil:
		r = &route{id: id}
		d.routes[id] = r
		fallthrough
	default:
		if !bytes.Equal(r.endpoint.Sealed, a.Endpoint.Sealed) {
			r.rest.end() // it was set anew, so perhaps it works now
		}
		r.handle, r.endpoint, r.lease = a.Handle, *a.Endpoint, cmp.Or(a.Lease, d.opt.Lease)
		d.attend(r)
	}
	d.mu.Unlock()
	d.leave(idle)
}

// attend begins to look for a task if the address can take one more. mu is held.
func (d *Dispatcher) attend(r *route) {
	if d.engine == nil || d.open.Err() != nil || r.gone || r.watch != nil || r.busy >= r.slots(d.opt.Slots) || r.rest.on() {
		return
	}
	w := &watch{route: r, poll: d.engine.Attend(r.id, d.opt.Hold)}
	r.watch = w
	d.running.Add(1)
	go d.look(w)
}

// slots is how many tasks may be delivered at once: one alone while it is not known
// whether any arrives.
func (r *route) slots(usual int) int {
	if r.rest.tries > 0 {
		return 1
	}
	return usual
}

// look takes what there is for an address, and delivers it. Where there is nothing it
// parks the poll, which goes on with look once something has come.
func (d *Dispatcher) look(w *watch) {
	t, waits, err := w.poll.Look(d.open)
	if waits && d.park(w) {
		return
	}
	defer d.running.Done()
	w.poll.Leave()
	r := w.route
	d.mu.Lock()
	r.watch = nil
	x := Delivery{Task: t, Endpoint: r.endpoint, Lease: r.lease}
	gone := r.gone
	switch {
	case t != nil && !gone:
		r.busy++
		d.busy++
	case t == nil && !waits && d.open.Err() == nil:
		r.rest.pause(again, func() { d.wake(r) })
	}
	d.attend(r)
	d.mu.Unlock()
	if err != nil && d.open.Err() == nil {
		d.opt.Log.Error("a task could not be taken for an endpoint; that is tried again", "address", r.id, "error", err)
	}
	switch {
	case t != nil && gone:
		d.engine.Release(d.sending, t)
	case t != nil:
		d.carry(r, x)
	}
}

// park leaves a poll to wait by itself, unless nothing is to be taken just now.
func (d *Dispatcher) park(w *watch) bool {
	d.mu.Lock()
	ok := d.open.Err() == nil && !w.route.gone && !w.route.rest.on()
	if ok {
		w.parked.Store(true)
	}
	d.mu.Unlock()
	if ok {
		w.poll.Notify(func() { // which must not wait for anything, nor for mu
			if w.parked.CompareAndSwap(true, false) {
				go d.look(w)
			}
		})
	}
	return ok
}

// unwatch takes back a poll that waits, to be left without mu.
func (r *route) unwatch() []*watch {
	if r.watch == nil || !r.watch.parked.CompareAndSwap(true, false) {
		return nil
	}
	w := r.watch
	r.watch = nil
	return []*watch{w}
}

// leave ends polls that were taken back.
func (d *Dispatcher) leave(list []*watch) {
	for _, w := range list {
		w.poll.Leave()
		d.running.Done()
	}
}

// wake looks for tasks of an address that has rested.
func (d *Dispatcher) wake(r *route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attend(r)
}

// Standing implements hub.Deliveries.
func (d *Dispatcher) Standing(address string) (hub.Standing, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.routes[address]
	if r == nil {
		return hub.Standing{}, false
	}
	s := hub.Standing{Kind: r.endpoint.Kind, Slots: d.opt.Slots, InFlight: r.busy, Last: r.last}
	if r.rest.why != "" {
		s.Trouble, s.Since, s.NextTry = r.rest.why, r.rest.since, r.rest.until
	}
	return s, true
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
