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
	d.serve(owned, err != nil)
}

// announceAgain tells the other replicas of connections that they may have forgotten, each
// as long as it lasts until that has worked.
func (d *Dispatcher) announceAgain(list []*link) {
	for _, l := range list {
		for {
			err := d.renew(l)
			if err == nil || d.open.Err() != nil {
				break
			}
			d.opt.Log.Warn("a connection could not be shown to the other replicas; that is tried again", "address", l.Address, "instance", l.Instance, "error", err)
			if !pause(d.open, again) {
				return
			}
		}
	}
}

// renew tells the other replicas of a connection, if it lasts.
func (d *Dispatcher) renew(l *link) error {
	d.announcing.Lock()
	defer d.announcing.Unlock()
	d.mu.Lock()
	r := d.routeOf(l.Address, l.Instance)
	lasts := r != nil && r.link == l
	d.mu.Unlock()
	if !lasts {
		return nil
	}
	if moved, err := d.drop([]*link{l}); moved > 0 || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.open, presenceLimit)
	defer cancel()
	return d.announce(ctx, l)
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

// serve takes tasks for the endpoints that are owned, and no more for the others. The
// other replicas are told of the connections again if this one may have been taken for
// dead.
func (d *Dispatcher) serve(owned map[string]bool, unsure bool) {
	d.mu.Lock()
	var idle []*watch
	var forgotten []*link
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
				forgotten = append(forgotten, r.link)
			}
		}
	}
	d.unsure = unsure
	if len(forgotten) > 0 && d.open.Err() == nil {
		d.running.Go(func() { d.announceAgain(forgotten) })
	}
	d.mu.Unlock()
	d.leave(idle)
}

var _ hub.Deliveries = (*Dispatcher)(nil)
