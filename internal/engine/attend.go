package engine

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// attendance is how long the poll of an address lasts that the hub itself delivers to:
// for as long as anybody can tell.
const attendance = 100 * 365 * 24 * time.Hour

// Attend begins a poll without an end, for an address that the hub itself delivers to:
// to the engine it is a worker like any other. Each claim lasts for lease unless it is
// kept, and begins the dispatch by which the task is to be delivered if it is the first
// one: see hub.ClaimSpec. It must be left.
func (e *Engine) Attend(address string, lease time.Duration, by hub.Dispatch) *Poll {
	poll := &Poll{e: e, until: time.Now().Add(attendance), inside: true}
	poll.callee, poll.given = address, make(chan *hub.Task, 1)
	poll.spec = hub.ClaimSpec{Lease: lease, Attempts: e.opt.Limits.Attempts, Dispatch: &by}
	e.pollers.join(&poll.poller)
	return poll
}

// Keep renews the claim of t, which the hub itself holds, until ctx ends, and then gives
// nil. It gives an error as soon as the claim is of no use any more: ErrCanceled when the
// task was canceled, and another when it has ended otherwise or is no longer this
// holder's. said, which must not block, is called when the caller may have added to the
// task: see Unseen.
func (e *Engine) Keep(ctx context.Context, t *hub.Task, lease time.Duration, said func()) error {
	w := e.tasks.join(t.ID)
	defer e.tasks.leave(t.ID, w)
	tick := time.NewTicker(lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case h := <-w.c:
			if h.said {
				said()
			}
			if !h.final() {
				continue
			}
		case <-tick.C:
		}
		beat, err := e.Hold(ctx, t, 0)
		switch {
		case beat.CancelRequested:
			return ErrCanceled
		case err == nil && beat.Unseen:
			said()
		case err == nil:
		case hub.KindOf(err) == hub.Conflict || hub.KindOf(err) == hub.NotFound:
			return err
		default:
			e.opt.Log.WarnContext(ctx, "a claim of the hub's own could not be renewed; that is tried again", "task", t.ID, "error", err)
		}
	}
}

// ErrCanceled says of a claim of the hub's own that its task was canceled.
var ErrCanceled = errors.New("the task was canceled")

// Hold renews the claim of t once; with a lease other than 0, for that long from now on.
// The caller's messages are left for who can pass them on, and so is a cancel.
func (e *Engine) Hold(ctx context.Context, t *hub.Task, lease time.Duration) (hub.Beat, error) {
	return e.hold(ctx, t, lease, -1)
}

func (e *Engine) hold(ctx context.Context, t *hub.Task, lease time.Duration, after int) (hub.Beat, error) {
	return e.store.Heartbeat(context.WithoutCancel(ctx), hub.Heartbeat{
		Callee: t.Callee.ID, Task: t.ID, Attempt: t.Attempt, After: after, Lease: lease, Unread: true,
	})
}

// Unseen gives what the caller has added to t, which the hub itself holds, after its
// message with a number. It counts as seen once Seen says so.
func (e *Engine) Unseen(ctx context.Context, t *hub.Task, after int) ([]hub.Message, error) {
	now, err := e.store.Task(ctx, hub.TaskRef{Callee: t.Callee.ID, ID: t.ID}, hub.Viewer{Address: t.Callee.ID}, hub.Load{History: -1})
	if err != nil {
		return nil, err
	}
	var list []hub.Message
	for _, m := range now.History {
		if m.N > after && !m.FromCallee {
			list = append(list, m)
		}
	}
	return list, nil
}

// Seen says that the agent at which t is has the caller's messages up to a number.
func (e *Engine) Seen(ctx context.Context, t *hub.Task, upTo int) error {
	_, err := e.hold(ctx, t, 0, upTo)
	return err
}

// CanceledAt is when a task was canceled, zero if it was not; for the hub itself.
func (e *Engine) CanceledAt(ctx context.Context, task string) (time.Time, error) {
	t, err := e.store.Task(ctx, hub.TaskRef{ID: task}, hub.Viewer{All: true}, hub.Load{})
	if err != nil || t.State != hub.Canceled {
		return time.Time{}, err
	}
	return t.StateAt, nil
}

// Lose says that the delivery of t was lost: see hub.Transitions. What was lost is
// delivered again after a backoff, not before after has passed, or fails the task.
func (e *Engine) Lose(ctx context.Context, t *hub.Task, reason string, after time.Duration) (*hub.Task, error) {
	now, err := e.store.Lose(context.WithoutCancel(ctx), hub.Loss{
		Callee: t.Callee.ID, Task: t.ID, Attempt: t.Attempt, Reason: reason, After: after, Limits: e.opt.Limits,
	})
	if err != nil {
		return nil, err
	}
	e.changed(now, hint{state: now.State})
	return now, nil
}

// Withdraw is Release for a claim that has come to nobody: a dispatch that was begun with it
// has sent nothing, which has to be known before the task is claimed again.
func (e *Engine) Withdraw(ctx context.Context, t *hub.Task) {
	if t.Dispatched {
		err := e.store.EndDispatch(context.WithoutCancel(ctx), hub.DispatchEnd{Task: t.ID, Attempt: t.Attempt, Outcome: hub.DispatchUnsent})
		if err != nil && hub.KindOf(err) != hub.NotFound { // which it is if the task is gone
			e.opt.Log.WarnContext(ctx, "it could not be noted that a task was not delivered", "task", t.ID, "error", err)
			return // the lease will end it
		}
	}
	e.Release(ctx, t)
}

// Delivery is how a task reaches a party just now, in /v1's words.
func (e *Engine) Delivery(p hub.Party) string {
	if s, ok := e.Standing(p.ID); ok {
		return s.Kind
	}
	return p.Kind.Delivery()
}

// Standing says how the hub's deliveries to an address stand; false if it makes none.
func (e *Engine) Standing(address string) (hub.Standing, bool) {
	if e.opt.Deliveries == nil {
		return hub.Standing{}, false
	}
	return e.opt.Deliveries.Standing(address)
}

// deliveryHint says why a ready task of an address that the hub delivers to waits.
// Only who owns the address learns what is wrong there.
func deliveryHint(handle string, s hub.Standing, owner bool) string {
	switch {
	case s.Trouble != "":
		hint := "@" + handle + " cannot be reached since " + clock(s.Since) + "; the next try is at " + clock(s.NextTry)
		if owner {
			hint += ": " + s.Trouble
		}
		return hint
	case s.InFlight >= s.Slots:
		return "@" + handle + " is busy with other tasks"
	}
	return "is about to be delivered to @" + handle
}
