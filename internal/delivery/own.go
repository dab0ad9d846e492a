package delivery

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// ownLimit bounds one question of which endpoints are this replica's. After it the answer
// may be too old.
const ownLimit = 5 * time.Second

// own asks which endpoints are this replica's, and delivers to these alone from now on.
// What is under way to others may end.
func (d *Dispatcher) own() {
	if d.open.Err() != nil {
		return
	}
	d.owning.Lock() // so that no older answer overtakes a newer one
	defer d.owning.Unlock()
	ctx, cancel := context.WithTimeout(d.open, ownLimit)
	defer cancel()
	mine, err := d.opt.Store.Own(ctx, d.endpoints())
	if err != nil && d.open.Err() == nil {
		d.opt.Log.Warn("it could not be told which endpoints are this replica's; it delivers to none until that is known", "error", err)
	}
	owned := make(map[string]bool, len(mine))
	for _, id := range mine {
		owned[id] = true
	}
	again := d.serve(owned, err != nil)
	for _, l := range again {
		if err := d.announce(ctx, l); err != nil {
			d.opt.Log.Warn("a connection could not be shown to the other replicas", "address", l.Address, "instance", l.Instance, "error", err)
		}
	}
}

// endpoints are the addresses that have one.
func (d *Dispatcher) endpoints() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id, p := range d.posts {
		if p.endpoint != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// serve takes tasks for the endpoints that are owned, and no more for the others. It
// gives the connections that the other replicas have to be told of again, since this one
// may have been taken for dead.
func (d *Dispatcher) serve(owned map[string]bool, unsure bool) (again []*link) {
	d.mu.Lock()
	var idle []*watch
	for id, p := range d.posts {
		if r := p.endpoint; r != nil && r.owned != owned[id] {
			r.owned = owned[id]
			if r.owned {
				d.attend(r)
			} else {
				idle = append(idle, r.unwatch()...)
			}
		}
		for _, r := range p.tunnels {
			if d.unsure && !unsure && r.link != nil {
				again = append(again, r.link)
			}
		}
	}
	d.unsure = unsure
	d.mu.Unlock()
	d.leave(idle)
	return again
}

var _ hub.Deliveries = (*Dispatcher)(nil)
