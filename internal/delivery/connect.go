package delivery

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// notice is how long after a delivery has broken its connection may be found gone.
	notice = 500 * time.Millisecond
	// presenceLimit bounds what is noted of an instance in the store.
	presenceLimit = 10 * time.Second
	// finishLimit bounds how long a connection that takes no more tasks is waited for.
	finishLimit = 24 * time.Hour
)

// Connection is a connected copy of an address's agent.
type Connection struct {
	// Address is the id of the address.
	Address string
	// Instance tells the copies of an address apart. It is the same when a copy connects
	// again, and takes the place of the connection before then.
	Instance string
	// Slots is how many tasks it works on at once, at least 1.
	Slots int
	// Deliverer delivers through this connection alone. It may be a Canceler.
	Deliverer Deliverer
	// Endpoint is what Deliverer gets as Delivery.Endpoint; its Kind is TunnelDelivery.
	Endpoint hub.Endpoint
	// Relay are the prefixes of the paths that outside services may reach through it.
	Relay []string
	// Replaced is called once the instance has connected to another replica of the hub: to
	// end this connection. nil is for one that cannot be ended.
	Replaced func()
}

// link is a connection of an instance while it lasts.
type link struct {
	Connection
	since time.Time
	left  chan struct{} // closed when it is gone
	// finishing: it takes no more tasks. It is guarded by mu.
	finishing bool
}

// Connect adds a connected copy of an address's agent, which takes up to Slots tasks at
// once, until leave is called: as soon as the connection is gone, at best before what
// goes through it fails. Tasks that are under way then stay the instance's for 45 s, in
// case it connects again, and are delivered through its new connection. NotFound if there
// is no such address, Invalid for what makes no sense, Unavailable while the hub stops.
//
// finish takes no more tasks through it, and waits until those that are under way have
// ended, or there is no more to wait for.
func (d *Dispatcher) Connect(c Connection) (leave func(), finish func(context.Context), err error) {
	if c.Instance == "" || c.Slots < 1 || c.Deliverer == nil || c.Endpoint.Kind == "" {
		return nil, nil, hub.Errorf(hub.Invalid, "a connection needs an instance, at least one slot, and somebody to deliver through it")
	}
	ctx, cancel := context.WithTimeout(d.open, presenceLimit)
	defer cancel()
	l := &link{Connection: c, since: time.Now(), left: make(chan struct{})}
	if err := d.enter(ctx, l); err != nil {
		return nil, nil, err
	}
	var once sync.Once
	return func() { once.Do(func() { d.part(l) }) }, func(ctx context.Context) { d.finish(ctx, l) }, nil
}

// enter makes a connection known, here and to the other replicas.
func (d *Dispatcher) enter(ctx context.Context, l *link) error {
	d.announcing.Lock() // or the end of the one before would take this one's place away
	defer d.announcing.Unlock()
	if err := d.announce(ctx, l); err != nil {
		return err
	}
	if err := d.join(ctx, l); err != nil {
		d.withdraw(l)
		return err
	}
	return nil
}

// announce tells the other replicas of a connection.
func (d *Dispatcher) announce(ctx context.Context, l *link) error {
	return d.opt.Store.Connect(ctx, hub.Instance{
		Address: l.Address, Name: l.Instance, Slots: l.Slots, Since: l.since, URL: d.opt.URL, Relay: l.Relay,
	})
}

// withdraw tells the other replicas that a connection is gone.
func (d *Dispatcher) withdraw(l *link) {
	ctx, cancel := context.WithTimeout(context.Background(), presenceLimit)
	defer cancel()
	if err := d.opt.Store.Disconnect(ctx, l.Address, l.Instance); err != nil {
		d.opt.Log.Warn("a connection that is gone is still shown", "address", l.Address, "instance", l.Instance, "error", err)
	}
}

// join makes a connection the one of its instance.
func (d *Dispatcher) join(ctx context.Context, l *link) error {
	d.refreshing.Lock() // so that the address is not deleted meanwhile
	defer d.refreshing.Unlock()
	a, err := d.opt.Store.Address(ctx, l.Address)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open.Err() != nil {
		return hub.Errorf(hub.Unavailable, "the hub is about to stop; connect again in a moment")
	}
	p := d.post(a)
	r := p.tunnels[l.Instance]
	if r == nil {
		r = &route{post: p, instance: l.Instance}
		p.tunnels[l.Instance] = r
	}
	r.connect(l)
	d.attend(r)
	return nil
}

// connect makes l the connection of an instance. mu is held.
func (r *route) connect(l *link) {
	if r.link != nil {
		close(r.link.left)
	}
	if r.forget != nil {
		r.forget.Stop()
	}
	r.rest.end()
	r.link, r.deliverer, r.endpoint, r.capacity = l, l.Deliverer, l.Endpoint, l.Slots
	r.signal()
}

// part ends a connection.
func (d *Dispatcher) part(l *link) {
	d.mu.Lock()
	var idle []*watch
	r := d.routeOf(l.Address, l.Instance)
	current := r != nil && r.link == l
	if current {
		close(l.left)
		idle = r.unwatch()
		r.rest.stop()
		r.link = nil
		r.forget = time.AfterFunc(d.opt.Comeback, func() { d.forget(r) })
		r.signal()
	}
	d.mu.Unlock()
	d.leave(idle)
	d.announcing.Lock()
	defer d.announcing.Unlock()
	d.mu.Lock()
	now := d.routeOf(l.Address, l.Instance)
	followed := now != nil && now.link != nil
	d.mu.Unlock()
	if !followed {
		d.withdraw(l)
	}
}

// finish ends the taking of tasks through a connection, and waits for those under way.
func (d *Dispatcher) finish(ctx context.Context, l *link) {
	d.mu.Lock()
	r := d.routeOf(l.Address, l.Instance)
	if r == nil || r.link != l {
		d.mu.Unlock()
		return
	}
	l.finishing = true
	idle := r.unwatch()
	d.mu.Unlock()
	d.leave(idle)
	d.until(ctx, finishLimit, func() (done, ok bool, change <-chan struct{}) {
		if r.link != l || r.busy == 0 {
			return true, true, nil
		}
		return false, false, r.changes()
	})
}

// forget ends the wait for an instance that has not come back.
func (d *Dispatcher) forget(r *route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.link != nil || r.post.tunnels[r.instance] != r {
		return
	}
	r.gone = true
	delete(r.post.tunnels, r.instance)
	d.tidy(r.post)
	r.signal()
}

// returned waits until an instance whose connection has broken is connected again; false
// if it is not, or if it was never away.
func (d *Dispatcher) returned(ctx context.Context, r *route, broken *link) bool {
	select {
	case <-broken.left:
	case <-time.After(notice):
		return false
	case <-ctx.Done():
		return false
	}
	return d.until(ctx, d.opt.Comeback, func() (done, ok bool, change <-chan struct{}) {
		if r.link != nil {
			return true, true, nil
		}
		return r.gone, false, r.changes()
	})
}

// until waits until look says that it is done, looking again after each change that it
// named, for some time at the most and not beyond the dispatcher's own end. look is called
// with mu held.
func (d *Dispatcher) until(ctx context.Context, limit time.Duration, look func() (done, ok bool, change <-chan struct{})) bool {
	end := time.NewTimer(limit)
	defer end.Stop()
	for {
		d.mu.Lock()
		done, ok, change := look()
		d.mu.Unlock()
		if done {
			return ok
		}
		select {
		case <-change:
		case <-end.C:
			return false
		case <-ctx.Done():
			return false
		case <-d.open.Done():
			return false
		}
	}
}
