package engine

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// How the background loops pace themselves.
const (
	sweepBatch    = 200
	sweepMin      = 10 * time.Millisecond
	sweepMax      = time.Second
	expiryGrace   = 10 * time.Second
	pruneBatch    = 200
	pruneInterval = time.Minute
	markInterval  = 200 * time.Millisecond
	markMax       = 10_000
)

func now() time.Time { return time.Now() }

// sleep waits; false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sweepLoop promotes what is due. After a start, and after the store was away,
// leases are left alone for a while: their holders had no hub to report to.
func (e *Engine) sweepLoop(ctx context.Context) {
	grace := min(e.opt.Limits.Lease, expiryGrace)
	leasesFrom := now().Add(grace)
	for wait := sweepMin; sleep(ctx, wait); {
		out, err := e.store.Sweep(ctx, sweepBatch, !now().Before(leasesFrom), e.opt.Limits)
		if err != nil {
			if ctx.Err() == nil {
				e.opt.Log.ErrorContext(ctx, "the sweep failed and is tried again", "error", err)
			}
			leasesFrom, wait = now().Add(grace+sweepMax), sweepMax
			continue
		}
		e.swept(out)
		switch {
		case out.More:
			wait = sweepMin
		case out.Next >= 0:
			wait = max(sweepMin, min(out.Next+time.Millisecond, sweepMax))
		default:
			wait = sweepMax
		}
	}
}

func (e *Engine) swept(out hub.Swept) {
	e.failed(out.Tasks)
	for _, callee := range out.Ready {
		e.pollers.wake(callee)
	}
	if out.Changed > 0 {
		e.feed.notifyAll()
	}
}

// failed gives the hints for tasks that the store has ended by itself; whose they are
// is not known, so every feed is to look.
func (e *Engine) failed(ids []string) {
	for _, id := range ids {
		e.tasks.notify(id, hint{state: hub.Failed})
	}
	if len(ids) > 0 {
		e.feed.notifyAll()
		e.wakePusher() // theirs may have configurations
	}
}

// retainLoop prunes what ended long ago, in small batches, and ends what waits for
// addresses that are gone.
func (e *Engine) retainLoop(ctx context.Context) {
	for wait := time.Second; sleep(ctx, wait); {
		more, err := e.retain(ctx)
		if err != nil && ctx.Err() == nil {
			e.opt.Log.ErrorContext(ctx, "retention failed and is tried again", "error", err)
		}
		wait = pruneInterval
		if more && err == nil {
			wait = sweepMin
		}
	}
}

func (e *Engine) retain(ctx context.Context) (more bool, err error) {
	if e.opt.Retain > 0 {
		out, err := e.store.Prune(ctx, e.opt.Now().Add(-e.opt.Retain), pruneBatch)
		if err != nil {
			return false, err
		}
		more = out.More
	}
	gone, err := e.store.DeletedAddresses(ctx, e.opt.Now().Add(-e.opt.DeleteGrace))
	if err != nil {
		return false, err
	}
	for _, callee := range gone {
		out, err := e.store.CancelQueued(ctx, callee, pruneBatch)
		if err != nil {
			return false, err
		}
		e.swept(out)
		more = more || out.More
	}
	e.rates.forget()
	return more, nil
}

// marks collects the polls and reads of callers, which are written in bulk: nobody
// is told that they are durable.
type marks struct {
	mu      sync.Mutex
	pending map[string]hub.ReadMark
	// writing serialises flushes, so that one that returns has written all before it.
	writing sync.Mutex
}

// looked notes that p has seen a task, if it is its caller.
func (e *Engine) looked(p hub.Principal, t *hub.Task, polls int) {
	if t.Caller.ID != p.Address {
		return
	}
	e.mark(hub.ReadMark{Task: t.ID, Polls: polls, End: t.State.Terminal() && t.ReadAt.IsZero()})
}

// lookedAt notes that a task has been followed to its end.
func (e *Engine) lookedAt(s *Stream) {
	if s.caller == s.p.Address {
		e.mark(hub.ReadMark{Task: s.ref.ID, End: true})
	}
}

func (e *Engine) mark(m hub.ReadMark) {
	e.marks.mu.Lock()
	defer e.marks.mu.Unlock()
	if e.marks.pending == nil {
		e.marks.pending = make(map[string]hub.ReadMark)
	}
	old, ok := e.marks.pending[m.Task]
	if !ok && len(e.marks.pending) >= markMax {
		return // a store that stands still; marks may be lost
	}
	m.Polls += old.Polls
	m.End = m.End || old.End
	e.marks.pending[m.Task] = m
}

func (e *Engine) markLoop(ctx context.Context) {
	for sleep(ctx, markInterval) {
		if err := e.flushMarks(ctx); err != nil && ctx.Err() == nil {
			e.opt.Log.WarnContext(ctx, "read marks could not be written and are tried again", "error", err)
		}
	}
	// One last time, for what was read just before the end.
	if err := e.flushMarks(context.WithoutCancel(ctx)); err != nil {
		e.opt.Log.WarnContext(ctx, "read marks were lost", "error", err)
	}
}

func (e *Engine) flushMarks(ctx context.Context) error {
	e.marks.writing.Lock()
	defer e.marks.writing.Unlock()
	e.marks.mu.Lock()
	list := make([]hub.ReadMark, 0, len(e.marks.pending))
	for _, m := range e.marks.pending {
		list = append(list, m)
	}
	clear(e.marks.pending)
	e.marks.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	err := e.store.MarkRead(ctx, list)
	if err != nil {
		for _, m := range list {
			e.mark(m) // for the next time
		}
	}
	return err
}

// rates bounds how fast one caller sends to one address.
type rates struct {
	perSecond float64
	burst     int
	mu        sync.Mutex
	m         map[[2]string]*rate.Limiter
}

func (r *rates) allow(caller, callee string) error {
	if r.perSecond <= 0 {
		return nil
	}
	key := [2]string{caller, callee}
	r.mu.Lock()
	if r.m == nil {
		r.m = make(map[[2]string]*rate.Limiter)
	}
	l := r.m[key]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(r.perSecond), max(r.burst, 1))
		r.m[key] = l
	}
	r.mu.Unlock()
	if l.Allow() {
		return nil
	}
	e := hub.Errorf(hub.RateLimited, "this caller sends to that address faster than %g times a second; slow down", r.perSecond)
	e.RetryAfter = time.Second
	return e
}

// forget drops the limiters that have long been idle.
func (r *rates) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, l := range r.m {
		if l.Tokens() >= float64(l.Burst()) {
			delete(r.m, key)
		}
	}
}
