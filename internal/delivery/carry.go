package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// carry delivers a claimed task and settles what came of it.
func (d *Dispatcher) carry(f *flight) {
	out, lost := f.fly()
	t, took := f.x.Task, time.Since(f.begun)
	switch {
	case errors.Is(lost, ErrCanceled):
		d.canceled(f, &out, took)
	case lost != nil && out.Kind != Answered:
		// No longer held: nothing is to be said of it. An answer is tried all the same,
		// so that it is noted as one that came too late.
		d.conclude(f, &out, took, d.hasIt(f))
	case out.Kind == Lost && d.cutOff(f):
		d.conclude(f, &out, took, d.hasIt(f))
		d.engine.Release(d.sending, t) // cut off by this hub, which is nobody's failure
	case out.Kind == Lost || out.Kind == Unsent:
		// What may have left has to be known before the task is claimed again.
		d.conclude(f, &out, took, d.hasIt(f))
		d.settle(f.x, &out)
	default:
		if !out.Report.State.Terminal() {
			f.name() // an answer is for whom the agent calls so
		}
		d.settle(f.x, &out)
		// An agent that asks still has the task, and is told if that is canceled.
		d.conclude(f, &out, took, out.Report.State.Interrupted() && f.canceler() != nil)
	}
	d.opt.Observe(f.x.Endpoint.Kind, out.Kind, took)
	d.opt.Log.Debug("a task was delivered", "task", t.ID, "attempt", t.Attempt, "address", t.Callee.ID,
		"outcome", out.Kind.String(), "status", out.Status, "took", took)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.arrive(f)
	f.r.note(t, out, took)
	d.weigh(f.r, f.x, out, lost)
	d.attend(f.r)
}

// hasIt reports whether an agent may still be at a task that can be told if it is canceled
// before it is delivered again. Its dispatch stays open then, with what the agent calls it.
func (d *Dispatcher) hasIt(f *flight) bool {
	return f.canceler() != nil && f.soFar().RemoteTask != ""
}

// cutOff reports whether a delivery was lost because this hub stops, or has ended the
// connection of an instance that went to another replica.
func (d *Dispatcher) cutOff(f *flight) bool {
	if d.sending.Err() != nil || f.r.instance != "" && d.open.Err() != nil {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return f.r.moved
}

// conclude notes what became of a dispatch.
func (d *Dispatcher) conclude(f *flight, out *Outcome, took time.Duration, keep bool) {
	t := f.x.Task
	remoteTask, remoteContext := f.lastName()
	end := hub.DispatchEnd{
		Task: t.ID, Attempt: t.Attempt, Outcome: out.Kind.String(), Took: took,
		Sent: out.Kind != Unsent || f.hasLeft(), Status: out.Status, Detail: out.Reason, Keep: keep,
		RemoteTask: remoteTask, RemoteContext: remoteContext,
	}
	if keep {
		now := f.soFar()
		end.RemoteTask, end.RemoteContext = now.RemoteTask, now.RemoteContext
	}
	err := d.opt.Store.EndDispatch(context.WithoutCancel(d.sending), end)
	if err != nil && hub.KindOf(err) != hub.NotFound { // which it is if nothing was begun, or the task is gone
		d.opt.Log.Warn("what became of a delivery could not be noted", "task", t.ID, "error", err)
	}
}

// reached ends the rest of a route whose agent can be reached again.
func (d *Dispatcher) reached(r *route, url string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !r.gone && url == r.endpoint.URL && r.rest.tries > 0 {
		r.rest.end()
		d.attend(r)
	}
}

// note keeps what the owner is shown of the last delivery.
func (r *route) note(t *hub.Task, out Outcome, took time.Duration) {
	r.last = &hub.LastDelivery{
		Task: t.ID, Attempt: t.Handouts(), At: time.Now(), Took: took,
		Outcome: out.Kind.String(), Status: out.Status, Detail: out.Reason,
	}
}

// weigh lets an address rest, or ends its rest, as the outcome of a delivery says. mu is
// held.
func (d *Dispatcher) weigh(r *route, x Delivery, out Outcome, lost error) {
	wake := func() { d.wake(r) }
	switch {
	case !r.open() || d.open.Err() != nil || lost != nil && out.Kind != Answered || x.Endpoint.URL != r.endpoint.URL:
		// It says nothing of the endpoint as it is.
		return
	case out.Kind == Unsent && out.Busy:
		r.rest.pause(again, wake)
	case out.Kind == Unsent:
		r.rest.fail(out.Reason, d.opt.PauseMin, d.opt.PauseMax, wake)
	case out.After > 0:
		r.rest.tries = 0
		r.rest.ask(out.Reason, min(out.After, d.opt.PauseMax), wake)
	default:
		r.rest.end()
		return
	}
	// Nothing is to come to the poll that may wait just now.
	go d.leave(r.unwatch())
}

// settle reports to the engine what came of a delivery.
func (d *Dispatcher) settle(x Delivery, out *Outcome) {
	t := x.Task
	switch out.Kind {
	case Answered:
		d.report(t, out)
	case Accepted:
		if _, err := d.engine.Hold(d.sending, t, x.Lease); err != nil {
			d.unsettled(t, err)
		}
		if len(out.Report.Events) > 0 || out.Report.Message != nil {
			d.report(t, out)
		}
	case Refused:
		d.fail(t, out.Reason)
	case Unsent:
		d.engine.Release(d.sending, t)
	case Lost:
		if _, err := d.engine.Lose(d.sending, t, out.Reason, out.After); err != nil {
			d.unsettled(t, err)
		}
	}
}

// report hands in the callee's report. One that the task cannot take fails it.
func (d *Dispatcher) report(t *hub.Task, out *Outcome) {
	err := d.try(t, out.Report)
	if kind := hub.KindOf(err); err == nil || kind != hub.Invalid && kind != hub.TooLarge {
		d.unsettled(t, err)
		return
	}
	out.Kind, out.Reason = Refused, "its answer could not be taken: "+words(err)
	d.fail(t, out.Reason)
}

// fail ends a task with a reason.
func (d *Dispatcher) fail(t *hub.Task, reason string) {
	why := "@" + t.Callee.Handle + " could not do the task: " + reason
	d.unsettled(t, d.try(t, hub.Report{
		State: hub.Failed, Error: why, Message: canon.TextMessage(uuid.Must(uuid.NewV7()).String(), true, why),
	}))
}

// try hands in a report, for some time if the store takes nothing.
func (d *Dispatcher) try(t *hub.Task, r hub.Report) error {
	end := time.Now().Add(reportLimit)
	for {
		_, err := d.engine.Report(d.sending, hub.Principal{Address: t.Callee.ID, Handle: t.Callee.Handle, Role: hub.RoleAgent}, engine.ReportRequest{
			Task: t.ID, Claim: t.ClaimID(), Events: r.Events, State: r.State, Message: r.Message, Error: r.Error, Digest: r.Digest,
		})
		if hub.KindOf(err) != hub.Unavailable || time.Now().After(end) || !pause(d.sending, again) {
			return err
		}
	}
}

// unsettled notes that the engine did not take what came of a delivery. Where the task
// has ended or has another holder that is as it should be; else the claim lapses, and
// the task is delivered again.
func (d *Dispatcher) unsettled(t *hub.Task, err error) {
	if kind := hub.KindOf(err); err == nil || kind == hub.Conflict || kind == hub.NotFound {
		return
	}
	d.opt.Log.Error("what came of a delivery could not be noted; the task will be delivered again", "task", t.ID, "error", err)
}

// words is what a client may see of an error.
func words(err error) string {
	if e, ok := errors.AsType[*hub.Error](err); ok {
		if e.Field != "" {
			return e.Field + ": " + e.Message
		}
		return e.Message
	}
	return "it is not valid"
}
