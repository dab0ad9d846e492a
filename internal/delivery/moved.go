package delivery

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// movedEvery is how often it is asked which instances have moved.
const movedEvery = 3 * time.Second

// movedLoop asks that until the dispatcher stops.
func (d *Dispatcher) movedLoop() {
	for pause(d.open, movedEvery) {
		d.dropMoved()
	}
}

// dropMoved ends the connections of instances that have connected to another replica
// since: their agents may not have noticed that the connection to this one is lost.
func (d *Dispatcher) dropMoved() {
	d.announcing.Lock() // so that none of those that are asked about comes or goes meanwhile
	defer d.announcing.Unlock()
	if _, err := d.drop(d.links()); err != nil && d.open.Err() == nil {
		d.opt.Log.Warn("it could not be told which connections have moved to other replicas; that is tried again", "error", err)
	}
}

// drop ends those of some connections whose instances have moved, and gives how many.
// announcing is held.
func (d *Dispatcher) drop(links []*link) (moved int, err error) {
	if len(links) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(d.open, presenceLimit)
	defer cancel()
	asked := make([]hub.Instance, len(links))
	for i, l := range links {
		asked[i] = hub.Instance{Address: l.Address, Name: l.Instance}
	}
	gone, err := d.opt.Store.Moved(ctx, asked)
	for _, i := range gone {
		d.leaveTo(i)
	}
	return len(gone), err
}

// links are the connections that there are.
func (d *Dispatcher) links() (list []*link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.posts {
		for _, r := range p.tunnels {
			if r.link != nil {
				list = append(list, r.link)
			}
		}
	}
	return list
}

// leaveTo leaves an instance to the replica that it is connected to now. What is under way
// to it is put back, for that one to ask the agent about.
func (d *Dispatcher) leaveTo(i hub.Instance) {
	d.mu.Lock()
	r := d.routeOf(i.Address, i.Name)
	if r == nil || r.link == nil {
		d.mu.Unlock()
		return
	}
	l := r.link
	close(l.left)
	r.link, r.moved = nil, true
	idle := r.end()
	delete(r.post.tunnels, r.instance)
	d.tidy(r.post)
	d.mu.Unlock()
	d.leave(idle)
	d.opt.Log.Info("a connection ends whose instance is connected to another replica", "address", i.Address, "instance", i.Name, "replica", i.Replica)
	if l.Replaced != nil {
		go l.Replaced()
	}
}
