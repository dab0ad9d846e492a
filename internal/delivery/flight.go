package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// flight is a claimed task on its way to its agent.
type flight struct {
	d     *Dispatcher
	r     *route // guarded by mu of the dispatcher until the flight is under way
	x     Delivery
	begun time.Time
	noted bool // the dispatch was begun with the claim
	// said has a hint that the caller has added something, messages what that is.
	said     chan struct{}
	messages chan hub.Message

	mu      sync.Mutex
	sent    bool  // some of the task has or may have left
	bad     error // of a report that the task cannot take
	refused bool  // a report was, since the claim is of no use any more
	// remoteTask and remoteContext are what the agent calls the task.
	remoteTask, remoteContext string
	naming                    naming
}

// depart makes a claimed task one that is under way on a route. mu is held.
func (d *Dispatcher) depart(r *route, t *hub.Task) *flight {
	f := &flight{d: d, r: r, begun: time.Now(), said: make(chan struct{}, 1), messages: make(chan hub.Message)}
	f.x = Delivery{
		Task: t, Endpoint: r.endpoint, Lease: r.post.lease, OnUnknown: r.post.onUnknown,
		Sent: f.left, Link: f.link, Progress: f.progress, Messages: f.messages,
	}
	r.busy++
	d.busy++
	d.aboard[t.ID] = true
	return f
}

// arrive ends a flight. mu is held.
func (d *Dispatcher) arrive(f *flight) {
	f.r.busy--
	d.busy--
	delete(d.aboard, f.x.Task.ID)
	f.r.signal()
}

// fly has the task delivered, and keeps its claim meanwhile. lost is why the claim is of
// no use any more, if so; the delivery was cut off then.
func (f *flight) fly() (out Outcome, lost error) {
	ctx, cut := context.WithCancelCause(f.d.sending)
	defer cut(nil)
	kept := make(chan error, 1)
	go func() {
		err := f.d.engine.Keep(ctx, f.x.Task, f.d.opt.Hold, f.heard)
		if errors.Is(err, engine.ErrCanceled) {
			err = ErrCanceled
		}
		if err != nil {
			cut(err)
		}
		kept <- err
	}()
	out = f.send(ctx)
	cut(nil)
	if lost = <-kept; lost == nil && f.doubtful(out) {
		if beat, _ := f.d.engine.Hold(f.d.sending, f.x.Task, 0); beat.CancelRequested {
			lost = ErrCanceled
		}
	}
	return out, lost
}

// send notes that the task leaves, and has it delivered: followed further through an
// instance each time that this has come back.
func (f *flight) send(ctx context.Context) Outcome {
	if f.prefer(ctx) {
		return Outcome{Kind: Unsent, Busy: true, Reason: "the agent that had the task before is connected to another replica"}
	}
	if out, ok := f.note(ctx); !ok {
		return out
	}
	ctx, enough := context.WithCancel(ctx)
	talk := sync.WaitGroup{}
	talk.Go(func() { f.talk(ctx) })
	defer talk.Wait()
	defer enough()
	inRoom, leave := f.d.opt.Room.Enter(ctx)
	defer leave()
	out := Outcome{Kind: Unsent, Reason: "its agent is not connected"}
	for {
		by, link := f.way()
		if by == nil {
			return f.judged(out)
		}
		out = by.Deliver(inRoom, f.x)
		if link == nil || ctx.Err() != nil || !f.broken(out) || !f.d.returned(ctx, f.r, link) {
			return f.judged(out)
		}
		f.x.Earlier = f.soFar()
	}
}

// way gives who delivers just now, and through which connection; nil if an instance is
// away.
func (f *flight) way() (Deliverer, *link) {
	f.d.mu.Lock()
	defer f.d.mu.Unlock()
	if f.r.instance != "" && f.r.link == nil {
		return nil, nil
	}
	if f.r.instance != "" {
		f.x.Endpoint = f.r.endpoint // which its connection brings along
	}
	return f.r.deliverer, f.r.link
}

// note writes the dispatch down before anything leaves, unless that was done with the
// claim; false with the outcome if it cannot be.
func (f *flight) note(ctx context.Context) (Outcome, bool) {
	if f.noted {
		return Outcome{}, true
	}
	t := f.x.Task
	earlier, err := f.d.opt.Store.BeginDispatch(context.WithoutCancel(ctx), hub.Dispatch{
		Task: t.ID, Attempt: t.Attempt, Address: t.Callee.ID, Kind: f.x.Endpoint.Kind, Instance: f.r.instance, BegunAt: f.begun,
		Sent: true, // as far as anybody will know if this hub is killed
	})
	if err != nil {
		if kind := hub.KindOf(err); kind != hub.Conflict && kind != hub.NotFound {
			f.d.opt.Log.Error("a delivery could not be noted; the task is delivered later", "task", t.ID, "error", err)
		}
		return Outcome{Kind: Unsent, Busy: true, Reason: "the hub could not note the delivery"}, false
	}
	f.x.Earlier = earlier
	if err := f.recall(context.WithoutCancel(ctx)); err != nil {
		return Outcome{Kind: Unsent, Busy: true, Reason: "the hub could not read its earlier deliveries"}, false
	}
	return Outcome{}, true
}

// recall finds what the agent calls the task where a hub was killed before it had noted
// that with its own attempt.
func (f *flight) recall(ctx context.Context) error {
	if f.x.Earlier == nil || f.x.Earlier.RemoteTask != "" || f.canceler() == nil {
		return nil
	}
	known, err := f.d.named(ctx, f.x.Earlier)
	if err == nil && known.RemoteTask != "" {
		f.x.Earlier, f.x.Unsure = &known, true
	}
	return err
}

// broken reports whether an outcome may be that of a connection that broke while the
// agent had the task, which can be asked for then. An attempt is sent once: without a name
// to ask for, the next one sends it again.
func (f *flight) broken(out Outcome) bool {
	named := f.soFar().RemoteTask != ""
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = f.sent || out.Kind != Unsent
	return f.bad == nil && (out.Kind == Lost && named || out.Kind == Unsent && f.remoteTask != "")
}

// judged is an outcome, or that the agent reported what cannot be taken.
func (f *flight) judged(out Outcome) Outcome {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.bad != nil:
		return Outcome{Kind: Refused, Reason: "its answer could not be taken: " + words(f.bad), Status: out.Status}
	case f.sent && out.Kind == Unsent: // which is said of the last try alone
		return Outcome{Kind: Lost, Reason: "the connection to it broke, and it could not be asked for the task since"}
	}
	return out
}

// soFar is the dispatch as the next connection has to know it.
func (f *flight) soFar() *hub.Dispatch {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.x.Task
	now := &hub.Dispatch{
		Task: t.ID, Attempt: t.Attempt, Address: t.Callee.ID, Kind: f.x.Endpoint.Kind, Instance: f.r.instance,
		RemoteTask: f.remoteTask, RemoteContext: f.remoteContext, BegunAt: f.begun, Sent: true,
	}
	if now.RemoteTask == "" && f.x.Earlier != nil {
		now.RemoteTask, now.RemoteContext = f.x.Earlier.RemoteTask, f.x.Earlier.RemoteContext
	}
	return now
}

// left is Delivery.Sent.
func (f *flight) left() {
	f.d.reached(f.r, f.x.Endpoint.URL)
}

// link is Delivery.Link.
func (f *flight) link(remoteTask, remoteContext string) {
	f.mu.Lock()
	f.sent, f.remoteTask, f.remoteContext = true, remoteTask, remoteContext
	f.mu.Unlock()
	f.left() // which nobody can tell before, of what goes through a tunnel
	f.nameSoon()
}

// progress is Delivery.Progress.
func (f *flight) progress(r hub.Report) error {
	err := f.d.try(f.x.Task, r)
	if err == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if kind := hub.KindOf(err); kind == hub.Invalid || kind == hub.TooLarge {
		f.bad = err
	} else {
		f.refused = true
	}
	return err
}

// doubtful reports whether the claim may have ended although nobody has said so yet.
func (f *flight) doubtful(out Outcome) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused || out.Kind == Lost
}

// heard notes that the caller may have added something.
func (f *flight) heard() {
	select {
	case f.said <- struct{}{}:
	default:
	}
}

// talk passes on what the caller adds, until ctx ends. A message counts as seen once the
// deliverer has taken it.
func (f *flight) talk(ctx context.Context) {
	t, last := f.x.Task, f.x.Task.Messages
	for {
		select {
		case <-f.said:
		case <-ctx.Done():
			return
		}
		more, err := f.d.engine.Unseen(ctx, t, last)
		if err != nil {
			continue // the next renewal of the claim says so again
		}
		for _, m := range more {
			select {
			case f.messages <- m:
			case <-ctx.Done():
				return
			}
			last = m.N
			if err := f.d.engine.Seen(ctx, t, last); err != nil {
				f.d.opt.Log.Warn("it could not be noted that a message was passed on", "task", t.ID, "error", err)
			}
		}
	}
}
