package engine

import "github.com/holdfast-hub/holdfast/internal/hub"

// Heed wakes those who wait for what another replica has changed. It waits for nothing.
func (e *Engine) Heed(c hub.Change) {
	if c.Pushes {
		e.wakePusher()
	}
	if c.Everything {
		e.tasks.tellAll(hint{look: true})
		e.pollers.wakeAll()
		e.feed.notifyAll()
		return
	}
	for _, id := range c.Tasks {
		e.tasks.notify(id, hint{look: true})
	}
	for _, callee := range c.Ready {
		e.pollers.wake(callee)
	}
	if len(c.Tasks)+len(c.Ready) > 0 {
		e.feed.notifyAll() // whose tasks they are is not known
	}
}

// wakeAll makes all pollers look.
func (ps *pollers) wakeAll() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, b := range ps.m {
		for p := ps.pop(b); p != nil; p = ps.pop(b) {
			p.offer(nil)
		}
		b.epoch++
	}
}
