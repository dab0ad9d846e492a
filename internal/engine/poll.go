package engine

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Next gives p's next task, nil when there was none within r.Wait. The claim is
// durable when it returns; if the answer cannot reach the callee, Release it.
func (e *Engine) Next(ctx context.Context, p hub.Principal, r NextRequest) (*hub.Task, error) {
	poll, err := e.Poll(ctx, p, r)
	if err != nil {
		return nil, err
	}
	defer poll.Leave()
	return poll.Wait(ctx)
}

// Poll is a worker's wait for its next task, for those whose wait must not keep a
// goroutine: between Look and Wait there may be any time, in which Notify says when
// there is a reason to go on. It is for one goroutine at a time, and ends with Leave.
type Poll struct {
	poller
	e     *Engine
	until time.Time
	// waits says that it stands in its mailbox, or that something from there is or
	// comes in given.
	waits bool
	left  bool
	// inside says that the hub itself waits, and no request of a worker.
	inside bool
}

// Poll begins a poll of p, with the errors of Next. It must be left.
func (e *Engine) Poll(ctx context.Context, p hub.Principal, r NextRequest) (*Poll, error) {
	if p.Role == hub.RoleAnonymous {
		return nil, hub.ErrNotPermitted()
	}
	spec, err := e.claimSpec(ctx, p, r)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	e.seen.Store(p.Address, now)
	e.open.polls.Add(1)
	poll := &Poll{e: e, until: now.Add(r.Wait)}
	poll.callee, poll.spec, poll.given = p.Address, spec, make(chan *hub.Task, 1)
	e.pollers.join(&poll.poller)
	return poll, nil
}

// Of reports whether it is a poll of p.
func (p *Poll) Of(who hub.Principal) bool { return p.callee == who.Address }

// Until is when its wait ends.
func (p *Poll) Until() time.Time { return p.until }

// Look gives a task that is there already. Without one, waits says whether one may
// still come: then Wait goes on.
func (p *Poll) Look(ctx context.Context) (t *hub.Task, waits bool, err error) {
	for {
		if !p.waits {
			t, err := p.claim(ctx)
			if t != nil || err != nil || p.over(ctx) {
				return t, false, err
			}
			p.waits = p.e.pollers.park(&p.poller)
			continue
		}
		select {
		case t := <-p.given:
			p.waits = false
			if t != nil {
				t, err := p.handOver(ctx, t)
				return t, false, err
			}
		default:
			if !p.over(ctx) {
				return nil, true, nil
			}
			t, err := p.handOver(ctx, p.withdraw())
			return t, false, err
		}
	}
}

// claim takes a task that is ready in the store.
func (p *Poll) claim(ctx context.Context) (*hub.Task, error) {
	got, err := p.e.store.Claim(context.WithoutCancel(ctx), p.callee, p.spec)
	if err != nil {
		return nil, err
	}
	p.e.failed(got.Failed)
	if got.Task != nil {
		p.e.changed(got.Task, hint{state: got.Task.State})
	}
	return p.handOver(ctx, got.Task)
}

// over reports whether there is nothing more to wait for.
func (p *Poll) over(ctx context.Context) bool {
	return ctx.Err() != nil || !time.Now().Before(p.until) || p.e.drains()
}

// Wait gives the poll's task, nil when there is none within its time. The claim is
// durable when it returns.
func (p *Poll) Wait(ctx context.Context) (*hub.Task, error) {
	deadline := time.NewTimer(time.Until(p.until))
	defer deadline.Stop()
	for {
		t, waits, err := p.Look(ctx)
		if err != nil || !waits {
			return t, err
		}
		select {
		case t := <-p.given:
			p.waits = false
			if t != nil {
				return p.handOver(ctx, t)
			}
		case <-deadline.C: // as Look will see
		case <-ctx.Done():
		case <-p.e.draining:
		}
	}
}

// withdraw takes a poll out of its mailbox, with the task that has come to it meanwhile.
func (p *Poll) withdraw() *hub.Task {
	p.waits = false
	if p.e.pollers.unpark(&p.poller) {
		return nil
	}
	// Somebody has turned to it: take what they bring, or let the next one look instead.
	t := <-p.given
	if t == nil {
		p.e.pollers.wake(p.callee)
	}
	return t
}

// Notify has ready called, at once or later and perhaps more than once, when there is
// a reason to Wait before the poll's time is over: something has come to it, or the
// engine is draining. ready must not block.
func (p *Poll) Notify(ready func()) {
	p.notify.Store(&ready)
	if len(p.given) > 0 || p.e.drains() {
		ready()
	}
}

// Leave ends a poll. If a task has come to it that Wait has not given out, that is
// offered to others at once, and it is no failure.
func (p *Poll) Leave() {
	if p.left {
		return
	}
	p.left = true
	if p.waits {
		if t := p.withdraw(); t != nil {
			p.e.Withdraw(context.Background(), t)
		}
	}
	p.e.pollers.leave(&p.poller)
	if !p.inside {
		p.e.open.polls.Add(-1)
	}
}

// handOver gives a claimed task to its callee, unless that has gone already.
func (p *Poll) handOver(ctx context.Context, t *hub.Task) (*hub.Task, error) {
	if t != nil && ctx.Err() != nil {
		p.e.Withdraw(ctx, t)
		t = nil
	}
	return t, context.Cause(ctx)
}
