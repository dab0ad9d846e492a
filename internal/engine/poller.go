package engine

import (
	"context"
	"sync"
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
	// given has what a send claimed for a poller that it had reserved (nil for
	// nothing); woken says "look".
	given chan *hub.Task
	woken chan struct{}
}

func (ps *pollers) join(callee string, spec hub.ClaimSpec) *poller {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.m == nil {
		ps.m = make(map[string]*mailbox)
	}
	b := ps.m[callee]
	if b == nil {
		b = &mailbox{}
		ps.m[callee] = b
	}
	b.members++
	return &poller{callee: callee, spec: spec, epoch: b.epoch, given: make(chan *hub.Task, 1), woken: make(chan struct{}, 1)}
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
// settled with a send to given.
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
		p.woken <- struct{}{}
		return
	}
	b.epoch++
}

// Next gives p's next task, nil when there was none within r.Wait. The claim is
// durable when it returns; if the answer cannot reach the callee, Release it.
func (e *Engine) Next(ctx context.Context, p hub.Principal, r NextRequest) (*hub.Task, error) {
	if p.Role == hub.RoleAnonymous {
		return nil, hub.ErrNotPermitted()
	}
	spec, err := e.claimSpec(ctx, p, r)
	if err != nil {
		return nil, err
	}
	e.seen.Store(p.Address, time.Now())
	e.open.polls.Add(1)
	defer e.open.polls.Add(-1)
	pl := e.pollers.join(p.Address, spec)
	defer e.pollers.leave(pl)
	deadline := time.NewTimer(r.Wait)
	defer deadline.Stop()
	for {
		got, err := e.store.Claim(context.WithoutCancel(ctx), pl.callee, spec)
		if err != nil {
			return nil, err
		}
		e.failed(got.Failed)
		if got.Task != nil {
			e.changed(got.Task, hint{state: got.Task.State})
			return e.handOver(ctx, got.Task)
		}
		if r.Wait <= 0 || ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if !e.pollers.park(pl) {
			continue
		}
		t, again := e.waitParked(ctx, pl, deadline)
		if t != nil || !again {
			return e.handOver(ctx, t)
		}
	}
}

// waitParked waits for what comes to a parked poller: a task, a reason to look
// again, or the end of its wait.
func (e *Engine) waitParked(ctx context.Context, pl *poller, deadline *time.Timer) (t *hub.Task, again bool) {
	select {
	case t := <-pl.given:
		return t, true
	case <-pl.woken:
		return nil, true
	case <-deadline.C:
	case <-ctx.Done():
	case <-e.draining:
	}
	if e.pollers.unpark(pl) {
		return nil, false
	}
	// Somebody has turned to this poller meanwhile: take what they bring, or let
	// the next one look instead.
	select {
	case t := <-pl.given:
		return t, false
	case <-pl.woken:
		e.pollers.wake(pl.callee)
		return nil, false
	}
}

// handOver gives a claimed task to its callee, unless that has gone already.
func (e *Engine) handOver(ctx context.Context, t *hub.Task) (*hub.Task, error) {
	if t != nil && ctx.Err() != nil {
		e.Release(ctx, t)
		t = nil
	}
	return t, context.Cause(ctx)
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
