package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// pollers are the long polls that wait, by callee, first come first served.
//
// A poller looks in the store, and parks if nothing was ready. Whoever makes a task
// ready either reserves a parked poller beforehand, so that accept and claim commit
// together, or wakes one afterwards. If none was parked the callee's epoch grows,
// and a poller that looked before that looks again instead of parking: no ready
// task is ever left beside a parked poller.
type pollers struct {
	mu sync.Mutex
	m  map[string]*mailbox
}

// mailbox is the pollers of one callee.
type mailbox struct {
	members int
	epoch   uint64
	parked  []*poller
}

type poller struct {
	callee string
	spec   hub.ClaimSpec
	epoch  uint64
	parked bool
	// given has what a send claimed for a poller that it had reserved; nil says "look".
	given chan *hub.Task
	// notify is called beside what comes to given.
	notify atomic.Pointer[func()]
}

// offer gives a poller that was taken from its mailbox a claimed task, or nil to have
// it look.
func (p *poller) offer(t *hub.Task) {
	p.given <- t
	p.alert()
}

func (p *poller) alert() {
	if f := p.notify.Load(); f != nil {
		(*f)()
	}
}

func (ps *pollers) join(p *poller) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.m == nil {
		ps.m = make(map[string]*mailbox)
	}
	b := ps.m[p.callee]
	if b == nil {
		b = &mailbox{}
		ps.m[p.callee] = b
	}
	b.members++
	p.epoch = b.epoch
}

// alert has every parked poller told that its wait ends.
func (ps *pollers) alert() {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for _, b := range ps.m {
		for _, p := range b.parked {
			p.alert()
		}
	}
}

func (ps *pollers) leave(p *poller) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	b := ps.m[p.callee]
	if b.members--; b.members == 0 {
		delete(ps.m, p.callee)
	}
}

// park makes p wait, unless something became ready since it joined or last parked.
func (ps *pollers) park(p *poller) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	b := ps.m[p.callee]
	if p.epoch != b.epoch {
		p.epoch = b.epoch
		return false
	}
	p.parked = true
	b.parked = append(b.parked, p)
	return true
}

// unpark takes p back; false if it was reserved or woken before.
func (ps *pollers) unpark(p *poller) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if !p.parked {
		return false
	}
	p.parked = false
	b := ps.m[p.callee]
	for i, x := range b.parked {
		if x == p {
			b.parked = append(b.parked[:i], b.parked[i+1:]...)
			break
		}
	}
	return true
}

// reserve takes the poller that has waited longest, nil if none waits. It must be
// settled with an offer.
func (ps *pollers) reserve(callee string) *poller {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.pop(ps.m[callee])
}

func (ps *pollers) pop(b *mailbox) *poller {
	if b == nil || len(b.parked) == 0 {
		return nil
	}
	p := b.parked[0]
	b.parked[0] = nil
	b.parked = b.parked[1:]
	p.parked = false
	p.epoch = b.epoch
	return p
}

// wake makes one poller of the callee look for a task that has become ready.
func (ps *pollers) wake(callee string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	b := ps.m[callee]
	if b == nil {
		return
	}
	if p := ps.pop(b); p != nil {
		p.offer(nil)
		return
	}
	b.epoch++
}

// GiveBack undoes a claim that its holder will not work on: the task is offered again
// at once, and it is no failure. Refused as hub.Transitions says unless that claim
// still holds it.
func (e *Engine) GiveBack(ctx context.Context, p hub.Principal, task, claim string) error {
	attempt, err := attemptOf(task, claim)
	if err != nil {
		return err
	}
	if attempt == 0 {
		return hub.InvalidField("X-Claim", "say which claim to give back")
	}
	if err := e.store.Release(context.WithoutCancel(ctx), p.Address, task, attempt); err != nil {
		return err
	}
	e.line(p.Address)
	e.line(everyone)
	e.pollers.wake(p.Address)
	return nil
}

// Release undoes a claim whose answer could not be written: the task is offered
// again at once, and it is no failure.
func (e *Engine) Release(ctx context.Context, t *hub.Task) {
	err := e.store.Release(context.WithoutCancel(ctx), t.Callee.ID, t.ID, t.Attempt)
	if kind := hub.KindOf(err); kind == hub.Conflict || kind == hub.NotFound {
		return // canceled or lapsed meanwhile, so there is nothing to undo
	}
	if err != nil {
		// The lease will end it.
		e.opt.Log.WarnContext(ctx, "a claim could not be released", "task", t.ID, "error", err)
		return
	}
	e.changed(t, hint{state: t.State})
	e.pollers.wake(t.Callee.ID)
}

// claimSpec fills in what the callee left open.
func (e *Engine) claimSpec(ctx context.Context, p hub.Principal, r NextRequest) (hub.ClaimSpec, error) {
	spec := hub.ClaimSpec{Lease: r.Lease, Ack: r.Ack, Attempts: e.opt.Limits.Attempts}
	if spec.Lease == 0 {
		a, err := e.opt.Directory.Resolve(ctx, p.Address)
		if err != nil {
			return spec, err
		}
		if spec.Lease = a.Lease; spec.Lease == 0 {
			spec.Lease = e.opt.Limits.Lease
		}
		spec.Lease = min(spec.Lease, e.opt.Limits.LeaseMax)
	}
	switch {
	case spec.Lease < time.Second || spec.Lease > e.opt.Limits.LeaseMax:
		return spec, hub.InvalidField("lease", "a lease lasts from 1 second to %s", e.opt.Limits.LeaseMax)
	case spec.Ack < 0:
		return spec, hub.InvalidField("ack", "a claim is confirmed after it was made")
	case r.Wait < 0 || r.Wait > time.Minute:
		return spec, hub.InvalidField("wait", "a poll waits from 0 to 60 seconds")
	}
	spec.Ack = min(spec.Ack, spec.Lease)
	return spec, nil
}

// LastSeen is when a worker last asked for a task of the address (its id), zero if
// none has since the start.
func (e *Engine) LastSeen(address string) time.Time {
	at, _ := e.seen.Load(address)
	t, _ := at.(time.Time)
	return t
}
