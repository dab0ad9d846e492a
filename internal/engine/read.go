package engine

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Bounds of one read of a stream or feed.
const (
	eventsPerRead = 500
	linesPerRead  = 200
)

// feedPause is how long a feed lets lines gather after the first, so that following
// costs little however much happens.
const feedPause = 20 * time.Millisecond

// Task gives a task to its caller, its callee or the administrator.
func (e *Engine) Task(ctx context.Context, p hub.Principal, r Ref, load hub.Load) (*hub.Task, error) {
	ref, err := e.ref(ctx, p, r)
	if err != nil {
		return nil, err
	}
	t, err := e.store.Task(ctx, ref, p.Viewer(), load)
	if err != nil {
		return nil, err
	}
	e.looked(p, t, 1)
	return t, nil
}

// Wait gives a task once it has ended or asks its caller something, or as it is when
// limit has passed or the hub shuts down. The end of ctx is an error.
func (e *Engine) Wait(ctx context.Context, p hub.Principal, r Ref, limit time.Duration, load hub.Load) (*hub.Task, error) {
	ref, err := e.ref(ctx, p, r)
	if err != nil {
		return nil, err
	}
	return e.wait(ctx, p, ref, limit, load)
}

func (e *Engine) wait(ctx context.Context, p hub.Principal, ref hub.TaskRef, limit time.Duration, load hub.Load) (*hub.Task, error) {
	w := e.tasks.join(ref.ID)
	defer e.tasks.leave(ref.ID, w)
	return e.await(ctx, p, ref, w, nil, limit, load)
}

// await waits with a waiter that was there before the caller knew of the task's
// state. It looks first, unless the task is known to be new: then fresh is the one
// message of it.
func (e *Engine) await(ctx context.Context, p hub.Principal, ref hub.TaskRef, w *waiter, fresh []byte, limit time.Duration, load hub.Load) (*hub.Task, error) {
	e.open.sends.Add(1)
	defer e.open.sends.Add(-1)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	over := limit <= 0
	for look := fresh == nil; ; look = true {
		if look || over {
			t, err := e.store.Task(ctx, ref, p.Viewer(), load)
			if err != nil {
				return nil, err
			}
			if over || t.State.Settled() {
				e.looked(p, t, 1)
				return t, nil
			}
			hub.GiveBack(ctx) // it is dropped, and read again
		}
		h, err := e.waitSettled(ctx, w, timer)
		if err != nil {
			return nil, err
		}
		over = !h.final()
		if h.whole != nil && fresh != nil && h.whole.Messages == 1 && load.Artifacts {
			t := *h.whole
			if load.History != 0 {
				t.History = []hub.Message{{N: 1, Body: fresh}}
			}
			e.looked(p, &t, 1)
			return &t, nil
		}
	}
}

// waitSettled waits until a hint says that the task has settled. It gives another
// one, or none, when the wait is over.
func (e *Engine) waitSettled(ctx context.Context, w *waiter, timer *time.Timer) (hint, error) {
	for {
		select {
		case h := <-w.c:
			if h.final() {
				return h, nil
			}
		case <-timer.C:
			return hint{}, nil
		case <-e.draining:
			return hint{}, nil
		case <-ctx.Done():
			return hint{}, context.Cause(ctx)
		}
	}
}

// Tasks lists tasks that p sent or was sent: at one address if callee is not empty.
func (e *Engine) Tasks(ctx context.Context, p hub.Principal, callee string, f hub.TaskFilter) (hub.TaskPage, error) {
	f.By = p.Viewer()
	if callee != "" {
		a, err := e.callable(ctx, p, callee)
		if hub.KindOf(err) == hub.NotPermitted {
			a, err = e.former(ctx, p, callee) // as in ref
		}
		if err != nil {
			return hub.TaskPage{}, err
		}
		f.Callee = a.ID
	}
	if f.Pending {
		// What was read a moment ago is pending no more.
		if err := e.flushMarks(ctx); err != nil {
			return hub.TaskPage{}, err
		}
	}
	return e.store.Tasks(ctx, f)
}

// Stream follows one task.
type Stream struct {
	e        *Engine
	p        hub.Principal
	ref      hub.TaskRef
	snapshot *hub.Task
	context  string
	caller   string // address id
	after    int64
	ended    bool
}

// Subscribe follows a task: from a snapshot if after is negative, which a task that
// has ended does not allow (Ended); else with exactly the events after that number.
func (e *Engine) Subscribe(ctx context.Context, p hub.Principal, r Ref, after int64, load hub.Load) (*Stream, error) {
	if err := e.streams.check(p.Address); err != nil {
		return nil, err
	}
	ref, err := e.ref(ctx, p, r)
	if err != nil {
		return nil, err
	}
	t, err := e.store.Task(ctx, ref, p.Viewer(), load)
	if err != nil {
		return nil, err
	}
	s := &Stream{e: e, p: p, ref: ref, context: t.ContextID, caller: t.Caller.ID, after: after}
	switch {
	case after > t.Seq:
		return nil, hub.InvalidField("Last-Event-ID", "the task has %d events, so none was numbered %d", t.Seq, after)
	case after >= 0:
		return s, nil
	case t.State.Terminal():
		e.looked(p, t, 1)
		return nil, hub.Errorf(hub.Ended, "the task has ended as %s; read it, or resume after the last event you have", t.State)
	}
	s.snapshot, s.after = t, t.Seq
	return s, nil
}

// Snapshot is the task as it was when the stream began; nil when resumed, and once
// Next was called.
func (s *Stream) Snapshot() *hub.Task { return s.snapshot }

// ContextID is the context of the followed task.
func (s *Stream) ContextID() string { return s.context }

// Next waits for events after the last ones given; more is false once the terminal
// event has been given (events may be empty then, for a task that had ended). It
// returns io.EOF when the hub shuts down.
func (s *Stream) Next(ctx context.Context) (events []hub.Event, more bool, err error) {
	if s.ended {
		return nil, false, nil
	}
	if s.snapshot != nil {
		s.snapshot = nil // it has been shown
		hub.GiveBack(ctx)
	}
	s.e.streams.enter(s.p.Address)
	defer s.e.streams.leave(s.p.Address)
	w := s.e.tasks.join(s.ref.ID)
	defer s.e.tasks.leave(s.ref.ID, w)
	for {
		page, err := s.e.store.Events(ctx, s.ref, s.p.Viewer(), s.after, eventsPerRead)
		if err != nil {
			return nil, false, err
		}
		if n := len(page.Events); n > 0 {
			s.after = page.Events[n-1].Seq
		}
		if page.State.Terminal() && s.after >= page.Last {
			s.ended = true
			s.e.lookedAt(s)
			return page.Events, false, nil
		}
		if len(page.Events) > 0 {
			return page.Events, true, nil
		}
		select {
		case <-w.c:
		case <-s.e.draining:
			return nil, true, io.EOF
		case <-ctx.Done():
			return nil, true, context.Cause(ctx)
		}
	}
}

// Activity gives a page of the hub's feed: all of it to the administrator, to
// others what concerns their own tasks.
func (e *Engine) Activity(ctx context.Context, p hub.Principal, q hub.ActivityQuery) (hub.ActivityPage, error) {
	q.By = p.Viewer()
	return e.store.Activity(ctx, q)
}

// Feed follows the hub's activity.
type Feed struct {
	e     *Engine
	p     hub.Principal
	after string
}

// FollowActivity follows the feed after a cursor; empty means from now on.
func (e *Engine) FollowActivity(ctx context.Context, p hub.Principal, after string) (*Feed, error) {
	if err := e.streams.check(p.Address); err != nil {
		return nil, err
	}
	page, err := e.store.Activity(ctx, hub.ActivityQuery{By: p.Viewer(), After: after, Tail: after == "", Limit: 1})
	if err != nil {
		return nil, err
	}
	if after == "" {
		after = page.Next
	}
	return &Feed{e: e, p: p, after: after}, nil
}

// Next waits for lines after the last ones given; io.EOF when the hub shuts down.
func (f *Feed) Next(ctx context.Context) ([]hub.Activity, error) {
	f.e.streams.enter(f.p.Address)
	defer f.e.streams.leave(f.p.Address)
	key := f.p.Address
	if f.p.Admin() {
		key = everyone
	}
	w := f.e.feed.join(key)
	defer f.e.feed.leave(key, w)
	for {
		page, err := f.e.store.Activity(ctx, hub.ActivityQuery{By: f.p.Viewer(), After: f.after, Limit: linesPerRead})
		if err != nil {
			return nil, err
		}
		moved := page.Next != f.after
		f.after = page.Next
		if len(page.Lines) > 0 {
			return page.Lines, nil
		}
		if moved {
			continue
		}
		select {
		case <-w.c:
			// Many lines come at once; one look is for all of them.
			if !sleep(ctx, feedPause) {
				return nil, context.Cause(ctx)
			}
		case <-f.e.draining:
			return nil, io.EOF
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Hint says to p in words why an unfinished task waits, empty if it does not.
func (e *Engine) Hint(p hub.Principal, t *hub.Task) string {
	switch t.Phase {
	case hub.Parked:
		return "waits for an answer from @" + t.Caller.Handle
	case hub.Ready:
		if !t.Due.IsZero() {
			return fmt.Sprintf("its last delivery was lost; it is offered again at %s", clock(t.Due))
		}
		if s, ok := e.Standing(t.Callee.ID); ok {
			return deliveryHint(t.Callee.Handle, s, p.Admin() || p.Address == t.Callee.ID)
		}
		seen := e.LastSeen(t.Callee.ID)
		if seen.IsZero() {
			return fmt.Sprintf("no worker has asked for @%s since the hub started", t.Callee.Handle)
		}
		return fmt.Sprintf("no worker has asked for @%s since %s", t.Callee.Handle, clock(seen))
	case hub.Leased, hub.Done:
	}
	return ""
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }
