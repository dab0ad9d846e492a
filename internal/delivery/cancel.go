package delivery

import (
	"context"
	"maps"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// cancelPatience is how long it is tried to tell an agent of a cancel.
	cancelPatience = 24 * time.Hour
	// cancelLimit bounds one try, which begins with finding out what state the task has.
	cancelLimit = 30 * time.Second
	// cancelAge is how old a dispatch is at least whose agent is told of a cancel by
	// somebody who does not deliver it.
	cancelAge = time.Second
	// cancelBatch is how many cancels are looked at together.
	cancelBatch = 1000
)

// cancels is what a route still has to tell of cancels.
type cancels struct {
	telling bool
	tries   map[string]retry // by task
}

// retry is when something is tried again.
type retry struct {
	n     int
	until time.Time
}

// canceler is who can tell the agent of a flight; nil if nobody can.
func (f *flight) canceler() Canceler {
	by, _ := f.way()
	c, _ := by.(Canceler)
	return c
}

// hasLeft reports whether some of the task left before its last try.
func (f *flight) hasLeft() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent
}

// canceled tells the agent that its task was canceled while it was delivered. An answer
// that came at the same time is noted as one that was too late.
func (d *Dispatcher) canceled(f *flight, out *Outcome, took time.Duration) {
	if out.Kind == Answered {
		d.settle(f.x, out)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.sending), cancelLimit)
	defer cancel()
	by, now := f.canceler(), f.soFar()
	outcome, told := hub.CancelUnconfirmed, true
	switch {
	case out.Kind == Unsent && !f.hasLeft() && f.x.Earlier == nil:
		outcome = hub.CancelConfirmed // no agent has it
	case out.Kind == Answered:
		outcome = hub.CancelAlreadyFinished
	case by != nil && now.RemoteTask != "":
		var err error
		if outcome, err = by.Cancel(ctx, f.x.Endpoint, *now); err != nil {
			d.opt.Log.Info("an agent could not be told of a cancel; that is tried again", "task", now.Task, "address", now.Address, "error", err)
			told = false
		}
	}
	d.conclude(f, out, took, !told)
	if told {
		d.settleCancel(ctx, now, outcome)
	}
}

// settleCancel notes the outcome of a cancel.
func (d *Dispatcher) settleCancel(ctx context.Context, x *hub.Dispatch, o hub.CancelOutcome) {
	err := d.opt.Store.SettleCancel(context.WithoutCancel(ctx), x.Task, x.Attempt, o)
	if err != nil && hub.KindOf(err) != hub.NotFound && hub.KindOf(err) != hub.Conflict {
		d.opt.Log.Warn("the outcome of a cancel could not be noted", "task", x.Task, "error", err)
	}
}

// cancelLoop tells agents of cancels that they could not be told of at once: those of
// tasks with an open question, those that failed, and those of a hub that was killed.
func (d *Dispatcher) cancelLoop() {
	for pause(d.open, cancelEvery) {
		if err := d.tellCancels(); err != nil && d.open.Err() == nil {
			d.opt.Log.Warn("the agents that are to be told of cancels could not be read", "error", err)
		}
	}
}

func (d *Dispatcher) tellCancels() error {
	addresses := d.cancelable()
	if len(addresses) == 0 {
		return nil
	}
	list, err := d.opt.Store.CanceledDispatches(d.open, addresses, cancelAge, cancelBatch)
	if err != nil {
		return err
	}
	var stray []hub.Dispatch
	defer func() { d.giveUp(stray) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	due, open := make(map[*route][]hub.Dispatch), make(map[string]bool, len(list))
	for _, x := range list {
		open[x.Task] = true
		r := d.routeOf(x.Address, x.Instance)
		if r == nil {
			stray = append(stray, x)
		}
		if r == nil || !r.open() || r.cancels.telling || d.aboard[x.Task] || time.Now().Before(r.cancels.tries[x.Task].until) {
			continue
		}
		due[r] = append(due[r], x)
	}
	d.forgetTries(open)
	for r, list := range due {
		r.cancels.telling = true
		by, able := r.deliverer.(Canceler) // a webhook beside a tunnel, for one, is not
		e := r.endpoint
		d.running.Go(func() {
			for i := range list {
				if able {
					d.tell(r, by, e, &list[i])
				} else {
					d.settleCancel(d.open, &list[i], hub.CancelUnconfirmed)
				}
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			r.cancels.telling = false
		})
	}
	return nil
}

// giveUp ends the cancels that an agent which is connected nowhere can be told of no more.
func (d *Dispatcher) giveUp(list []hub.Dispatch) {
	for i := range list {
		x := &list[i]
		if time.Since(x.BegunAt) > cancelPatience && d.overdue(d.open, x) {
			d.settleCancel(d.open, x, hub.CancelUnconfirmed)
		}
	}
}

// overdue reports whether it has been tried for long enough to tell of a cancel.
func (d *Dispatcher) overdue(ctx context.Context, x *hub.Dispatch) bool {
	at, err := d.engine.CanceledAt(ctx, x.Task)
	return err == nil && time.Since(at) > cancelPatience
}

// forgetTries forgets those of cancels that are open no more. mu is held.
func (d *Dispatcher) forgetTries(open map[string]bool) {
	for _, p := range d.posts {
		for _, r := range p.routes() {
			maps.DeleteFunc(r.cancels.tries, func(task string, _ retry) bool { return !open[task] })
		}
	}
}

// cancelable are the addresses whose agents can be told of cancels by this replica.
func (d *Dispatcher) cancelable() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ids []string
	for id, p := range d.posts {
		for _, r := range p.routes() {
			if _, ok := r.deliverer.(Canceler); ok && r.open() {
				ids = append(ids, id)
				break
			}
		}
	}
	return ids
}

// tell tells one agent of a cancel, or notes when that is tried again. It ends after a
// day.
func (d *Dispatcher) tell(r *route, by Canceler, e hub.Endpoint, x *hub.Dispatch) {
	ctx, cancel := context.WithTimeout(d.open, cancelLimit)
	defer cancel()
	if ctx.Err() != nil {
		return
	}
	known, err := d.named(ctx, x)
	if err != nil {
		return // the store cannot be read, and is asked again
	}
	if known.RemoteTask == "" {
		d.settleCancel(ctx, x, hub.CancelUnconfirmed)
		return
	}
	o, err := by.Cancel(ctx, e, known)
	if err != nil && d.overdue(ctx, x) {
		o, err = hub.CancelUnconfirmed, nil
	}
	d.mu.Lock()
	if err != nil {
		r.putOff(x.Task, d.opt.PauseMin, d.opt.PauseMax)
	} else {
		delete(r.cancels.tries, x.Task)
	}
	d.mu.Unlock()
	if err == nil {
		d.settleCancel(ctx, x, o)
	}
}

// named is a dispatch with what the agent calls the task, if that or an earlier one to
// the same agent knows.
func (d *Dispatcher) named(ctx context.Context, x *hub.Dispatch) (hub.Dispatch, error) {
	known := *x
	if known.RemoteTask != "" {
		return known, nil
	}
	page, err := d.opt.Store.ListDispatches(ctx, hub.DispatchFilter{Task: x.Task, Address: x.Address, Limit: 100})
	for _, before := range page.Dispatches {
		if before.RemoteTask != "" && before.Instance == x.Instance {
			known.RemoteTask, known.RemoteContext = before.RemoteTask, before.RemoteContext
			break
		}
	}
	return known, err
}

// putOff notes that a cancel is tried again, after growing pauses. mu is held.
func (r *route) putOff(task string, least, most time.Duration) {
	if r.cancels.tries == nil {
		r.cancels.tries = make(map[string]retry)
	}
	n := r.cancels.tries[task].n
	wait := least
	for range min(n, 30) {
		wait = min(2*wait, most)
	}
	r.cancels.tries[task] = retry{n: n + 1, until: time.Now().Add(wait)}
}
