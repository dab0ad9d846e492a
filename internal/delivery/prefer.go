package delivery

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// prefer moves the flight to the instance that has had the task before, if that is
// connected here or comes back soon. The claim is kept meanwhile. It reports whether the
// task is left to another replica, which has that instance.
func (f *flight) prefer(ctx context.Context) bool {
	t := f.x.Task
	if f.r.instance == "" || t.Handouts() < 2 {
		return false
	}
	page, err := f.d.opt.Store.ListDispatches(ctx, hub.DispatchFilter{Task: t.ID, Address: t.Callee.ID, Limit: 10})
	if err != nil {
		return false
	}
	before := lastSent(page.Dispatches)
	if before == "" || before == f.r.instance {
		return false
	}
	if f.d.elsewhere(ctx, t.Callee.ID, before) && f.d.yield(t) {
		return true
	}
	f.d.move(ctx, f, before)
	return false
}

// lastSent is the instance that has or may have got a task last; empty if none has.
func lastSent(list []hub.Dispatch) string {
	for _, x := range list { // the newest first
		if x.Sent {
			return x.Instance
		}
	}
	return ""
}

// elsewhere reports whether an instance is connected to another replica.
func (d *Dispatcher) elsewhere(ctx context.Context, address, instance string) bool {
	d.mu.Lock()
	here := d.routeOf(address, instance) != nil
	d.mu.Unlock()
	if here {
		return false
	}
	all, err := d.opt.Store.Instances(ctx, address)
	return err == nil && slices.ContainsFunc(all, func(i hub.Instance) bool { return i.Name == instance })
}

// yield has nothing taken for the address of a task for a moment, so that another replica
// can take it; but once alone, since that may have no slot free for long.
func (d *Dispatcher) yield(t *hub.Task) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.yielded, func(_ string, at time.Time) bool { return time.Since(at) > d.opt.Comeback })
	if _, done := d.yielded[t.ID]; done {
		return false
	}
	d.yielded[t.ID] = time.Now()
	for _, r := range d.posts[t.Callee.ID].tunnelsOrNone() {
		if !r.rest.on() {
			r.rest.pause(again, func() { d.wake(r) })
			go d.leave(r.unwatch())
		}
	}
	return true
}

// move moves a flight to another instance of its address as soon as that has a slot.
func (d *Dispatcher) move(ctx context.Context, f *flight, instance string) {
	d.until(ctx, d.opt.Comeback, func() (done, ok bool, change <-chan struct{}) {
		r := d.routeOf(f.x.Task.Callee.ID, instance)
		switch {
		case r == nil || r.gone || r.rest.on() || r.link != nil && r.link.finishing:
			return true, false, nil
		case r.link == nil || r.busy >= d.slots(r):
			return false, false, r.changes()
		}
		from := f.r
		f.r, f.x.Endpoint = r, r.endpoint
		r.busy++
		from.busy--
		from.signal()
		d.attend(from)
		return true, true, nil
	})
}
