package delivery

import (
	"bytes"
	"cmp"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// post is an address that the dispatcher delivers to, guarded by the dispatcher's mu.
type post struct {
	id, handle string
	lease      time.Duration
	onUnknown  string
	endpoint   *route            // nil if the address has none
	tunnels    map[string]*route // by instance; those that went away a moment ago, too
}

// route is one way to an agent of an address: its endpoint, or a connected instance. It
// is guarded by the dispatcher's mu.
type route struct {
	post      *post
	instance  string // empty for the endpoint
	deliverer Deliverer
	endpoint  hub.Endpoint
	// capacity is how many tasks an instance takes at once.
	capacity int
	// owned: this replica is the one that delivers to the endpoint.
	owned bool
	// link is the connection of an instance; nil while it is away.
	link   *link
	forget *time.Timer // ends the wait for one that is away
	gone   bool        // for good
	moved  bool        // gone because the instance is connected to another replica

	watches map[*watch]bool // the polls of the route
	busy    int             // deliveries under way
	rest    rest
	last    *hub.LastDelivery

	changed chan struct{} // closed by signal; nil while nobody waits for that
	cancels cancels
}

// watch is an open poll of an address. It belongs to who has it: a goroutine that looks
// or, while parked, to whoever takes parked back.
type watch struct {
	route  *route
	poll   *engine.Poll
	kind   string // of the endpoint when it began
	parked atomic.Bool
}

// post gives the post of an address as it is now, made if there is none. mu is held.
func (d *Dispatcher) post(a *hub.Address) *post {
	p := d.posts[a.ID]
	if p == nil {
		p = &post{id: a.ID, tunnels: make(map[string]*route)}
		d.posts[a.ID] = p
	}
	p.handle, p.onUnknown, p.lease = a.Handle, cmp.Or(a.OnUnknown, "resend"), cmp.Or(a.Lease, d.opt.Lease)
	return p
}

// routeOf gives the way to an address or to an instance of it, nil if there is none. mu
// is held.
func (d *Dispatcher) routeOf(address, instance string) *route {
	p := d.posts[address]
	switch {
	case p == nil:
		return nil
	case instance == "":
		return p.endpoint
	}
	return p.tunnels[instance]
}

// tidy removes a post that leads nowhere. mu is held.
func (d *Dispatcher) tidy(p *post) {
	if p.endpoint == nil && len(p.tunnels) == 0 && d.posts[p.id] == p {
		delete(d.posts, p.id)
	}
}

// routes are the ways to an address.
func (p *post) routes() []*route {
	all := make([]*route, 0, len(p.tunnels)+1)
	if p.endpoint != nil {
		all = append(all, p.endpoint)
	}
	for _, r := range p.tunnels {
		all = append(all, r)
	}
	return all
}

// tunnelsOrNone are the instances of an address; none of no post.
func (p *post) tunnelsOrNone() map[string]*route {
	if p == nil {
		return nil
	}
	return p.tunnels
}

// set makes the ways to an address what the address says; none if it is nil.
func (d *Dispatcher) set(id string, a *hub.Address) {
	d.mu.Lock()
	var idle []*watch
	p := d.posts[id]
	switch {
	case a == nil && p != nil:
		delete(d.posts, id)
		for _, r := range p.routes() {
			idle = append(idle, r.end()...)
		}
	case a != nil && (p != nil || a.Endpoint != nil):
		p = d.post(a)
		idle = d.setEndpoint(p, a.Endpoint)
		d.tidy(p)
	}
	d.mu.Unlock()
	d.leave(idle)
}

// setEndpoint makes the endpoint of an address another one, or takes it away, and gives
// the poll that is to be left. mu is held.
func (d *Dispatcher) setEndpoint(p *post, e *hub.Endpoint) (idle []*watch) {
	if e == nil || d.opt.Deliverers[e.Kind] == nil {
		if p.endpoint != nil {
			idle = p.endpoint.end()
			p.endpoint = nil
		}
		return idle
	}
	r := p.endpoint
	if r == nil {
		r = &route{post: p}
		p.endpoint = r
	}
	if !bytes.Equal(r.endpoint.Sealed, e.Sealed) {
		r.rest.end() // it was set anew, so perhaps it works now
	}
	r.endpoint, r.deliverer = *e, d.opt.Deliverers[e.Kind]
	d.attend(r)
	return nil
}

// end ends a route for good, and gives its poll, which is to be left.
func (r *route) end() []*watch {
	r.gone = true
	r.rest.stop()
	if r.forget != nil {
		r.forget.Stop()
	}
	r.signal()
	return r.unwatch()
}

// open reports whether a route leads anywhere just now, for more tasks than are under way.
func (r *route) open() bool {
	return !r.gone && (r.owned || r.link != nil && !r.link.finishing)
}

// looksMax is how many polls a busy route has at once, and looksPer how many deliveries
// under way make for one more. Each claim is a commit of its own: one after the other they
// would bound what a route takes, side by side they share commits. An idle route has one
// poll, so that the instances of an address take turns.
const looksMax, looksPer = 8, 2

// attend looks for tasks if the route can take more. mu is held.
func (d *Dispatcher) attend(r *route) {
	if d.engine == nil || d.open.Err() != nil || !r.open() || r.rest.on() {
		return
	}
	want := min(1+r.busy/looksPer, looksMax, d.slots(r)-r.busy)
	for len(r.watches) < want {
		by := hub.Dispatch{Kind: r.endpoint.Kind, Instance: r.instance, Sent: true} // as far as anybody will know if this hub is killed
		w := &watch{route: r, kind: by.Kind, poll: d.engine.Attend(r.post.id, d.opt.Hold, by)}
		if r.watches == nil {
			r.watches = make(map[*watch]bool)
		}
		r.watches[w] = true
		d.running.Add(1)
		go d.look(w)
	}
}

// slots is how many tasks may be delivered at once: one alone while it is not known
// whether any arrives.
func (d *Dispatcher) slots(r *route) int {
	if r.rest.tries > 0 {
		return 1
	}
	return d.capacity(r)
}

// capacity is how many tasks may be delivered at once where nothing is wrong.
func (d *Dispatcher) capacity(r *route) int {
	if r.instance != "" {
		return r.capacity
	}
	if c, ok := r.deliverer.(Capacity); ok {
		return cmp.Or(c.Slots(r.endpoint), d.opt.Slots)
	}
	return d.opt.Slots
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
	delete(r.watches, w)
	var f *flight
	var idle []*watch
	switch {
	case t != nil && r.open() && r.busy < d.capacity(r): // which another's task may have filled
		f = d.depart(r, t)
		f.noted = t.Dispatched && w.kind == r.endpoint.Kind
	case t == nil && !waits && d.open.Err() == nil:
		r.rest.pause(again, func() { d.wake(r) })
		idle = r.unwatch()
	}
	d.attend(r)
	d.mu.Unlock()
	d.leave(idle)
	if err != nil && d.open.Err() == nil {
		d.opt.Log.Error("a task could not be taken for an agent; that is tried again", "address", r.post.id, "error", err)
	}
	switch {
	case f != nil:
		d.carry(f)
	case t != nil:
		d.engine.Withdraw(d.sending, t)
	}
}

// park leaves a poll to wait by itself, unless nothing is to be taken just now.
func (d *Dispatcher) park(w *watch) bool {
	d.mu.Lock()
	ok := d.open.Err() == nil && w.route.open() && !w.route.rest.on()
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

// unwatch takes back the polls that wait, to be left without mu.
func (r *route) unwatch() (list []*watch) {
	for w := range r.watches {
		if w.parked.CompareAndSwap(true, false) {
			delete(r.watches, w)
			list = append(list, w)
		}
	}
	return list
}

// leave ends polls that were taken back.
func (d *Dispatcher) leave(list []*watch) {
	for _, w := range list {
		w.poll.Leave()
		d.running.Done()
	}
}

// wake looks for tasks for a route that has rested.
func (d *Dispatcher) wake(r *route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.attend(r)
}

// Probe implements hub.Deliveries.
func (d *Dispatcher) Probe(address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p := d.posts[address]; p != nil {
		for _, r := range p.routes() {
			r.rest.until = time.Time{}
			d.attend(r)
		}
	}
}

// changes is closed once something of the route has changed: its connection, or a slot
// that has become free. mu is held.
func (r *route) changes() <-chan struct{} {
	if r.changed == nil {
		r.changed = make(chan struct{})
	}
	return r.changed
}

// signal says that something has changed. mu is held.
func (r *route) signal() {
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// Standing implements hub.Deliveries.
func (d *Dispatcher) Standing(address string) (hub.Standing, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.posts[address]
	if p == nil {
		return hub.Standing{}, false
	}
	s, resting, ways := hub.Standing{Busy: make(map[string]int)}, []*rest(nil), 0
	for _, r := range p.routes() {
		if r.instance != "" && r.link == nil {
			continue
		}
		ways++
		s.Kind = r.endpoint.Kind
		s.Slots += d.capacity(r)
		s.InFlight += r.busy
		if r.instance != "" {
			s.Busy[r.instance] = r.busy
		}
		if r.last != nil && (s.Last == nil || r.last.At.After(s.Last.At)) {
			s.Last = r.last
		}
		if r.rest.why != "" {
			resting = append(resting, &r.rest)
		}
	}
	if ways > 0 && len(resting) == ways {
		s.Trouble, s.Since, s.NextTry = resting[0].why, resting[0].since, resting[0].until
	}
	return s, ways > 0
}
