package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"time"
)

// Handler does the work of one task. Its context ends when the task is canceled, its
// lease is lost or its deadline passes; context.Cause says which. What it returns is
// the result:
//
//   - nil: completed, without an artifact
//   - a string, parts, or bytes: completed, with one artifact named "response"
//   - a map, struct or other value: the same, as one data part
//   - an Artifact or []Artifact: completed, with these
//   - a Message: completed, with this closing message
//   - a Result: as it says
//   - an error: failed, with its text
//
// A handler that panics fails its task, and nothing else. One that has settled the
// task by hand, with [Task.Done], [Task.Ask], [Task.Fail] or [Task.Reject], should
// return; what it returns does not count any more.
//
// Sends with the handler's context become part of the task by themselves.
type Handler func(ctx context.Context, t *Task) (any, error)

// WorkOption adds to Serve and Next.
type WorkOption func(*work)

type work struct {
	concurrency int
	maxTasks    int
	lease       time.Duration
	leaseGiven  bool
	wait        time.Duration
	drain       time.Duration
	log         *slog.Logger
	onError     func(*Task, error)
}

// Concurrency is how many tasks Serve works on at once, 4 by default.
func Concurrency(n int) WorkOption { return func(w *work) { w.concurrency = max(n, 1) } }

// MaxTasks makes Serve return once it has handled n tasks; 0, the default, is no
// limit.
func MaxTasks(n int) WorkOption { return func(w *work) { w.maxTasks = max(n, 0) } }

// Lease is how long the hub waits for a sign of life before it offers a task to
// others, a second or more. Serve asks for 60 s and sends a heartbeat every third of it; Next asks for
// what the address has.
func Lease(d time.Duration) WorkOption {
	return func(w *work) { w.lease, w.leaseGiven = d, true }
}

// Wait is how long one request waits for a task, 30 s by default and at most 60 s.
func Wait(d time.Duration) WorkOption { return func(w *work) { w.wait = max(0, min(d, maxWait)) } }

// Drain is how long running handlers may take to finish once Serve is told to stop,
// 10 s by default. Then their contexts end, with ErrShutdown.
func Drain(d time.Duration) WorkOption { return func(w *work) { w.drain = d } }

// Logger is where Serve logs panics, lost leases and a hub that is away; the
// client's logger by default.
func Logger(l *slog.Logger) WorkOption { return func(w *work) { w.log = l } }

// OnError has f called for every error of a task: what its handler returned, a
// [*PanicError], or why its result was not delivered (ErrLeaseLost, ErrCanceled, …).
// It may be called from several goroutines at once.
func OnError(f func(t *Task, err error)) WorkOption { return func(w *work) { w.onError = f } }

// PanicError is the panic of a handler.
type PanicError struct {
	Value any
	Stack []byte
}

// Error implements error; it leaves out the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.Value) }

const (
	// ackTime is how soon the hub offers a task again if it hears nothing of the one
	// who claimed it.
	ackTime = 5 * time.Second
	// minServeWait keeps Serve from asking all the time.
	minServeWait = 100 * time.Millisecond
	// minLease is the shortest lease that an address can have.
	minLease = time.Second
	// firstBeat confirms a claim well within ackTime; most tasks are done before.
	firstBeat = time.Second
	// lastGrace is how long handlers may take to return once their contexts have
	// ended.
	lastGrace = 5 * time.Second
)

func (c *Client) newWork(opts []WorkOption) work {
	w := work{concurrency: 4, lease: time.Minute, wait: pollWait, drain: 10 * time.Second, log: c.log, onError: func(*Task, error) {}}
	for _, o := range opts {
		o(&w)
	}
	return w
}

// hold is how to ask the hub for a task. The acknowledgement must be due within the
// lease, which may be as short as a second.
func (w *work) hold() url.Values {
	return url.Values{"lease": {seconds(w.lease)}, "ack": {seconds(min(ackTime, w.lease))}}
}

// Next takes the next task of this address, to be worked on by hand: report with
// [Task.Reply] or its kin, and send [Task.Heartbeat] if it takes longer than the
// lease. It waits as Wait says; ErrNoTask if none came. Of the options only Lease and
// Wait count.
func (c *Client) Next(ctx context.Context, opts ...WorkOption) (*Task, error) {
	w := c.newWork(opts)
	q := w.hold()
	if !w.leaseGiven {
		q.Del("lease")
		q.Set("ack", seconds(minLease))
	}
	deadline := time.Now().Add(w.wait)
	for {
		t, err := c.next(ctx, q, max(time.Until(deadline), 0), bounded)
		switch {
		case err != nil:
			return nil, err
		case t == nil:
			return nil, ErrNoTask
		}
		// The heartbeat tells the hub that the task has arrived.
		b, err := t.Heartbeat(ctx)
		switch {
		case err == nil:
			for _, m := range b.Messages {
				t.History = append(t.History, m.Message)
			}
			t.LeaseExpiresAt = b.LeaseExpiresAt
			return t, nil
		case !errors.Is(err, ErrLeaseLost) && !errors.Is(err, ErrCanceled):
			return nil, err
		}
	}
}

// next makes one long poll; nil if there was no task.
func (c *Client) next(ctx context.Context, hold url.Values, wait time.Duration, how repeat) (*Task, error) {
	q := url.Values{"wait": {seconds(wait)}}
	for k, v := range hold {
		q[k] = v
	}
	t := new(Task)
	err := c.do(ctx, call{
		method: http.MethodGet, path: agentPath("me", "tasks", "next"), query: q, out: t, wait: wait, repeat: how,
	})
	if err != nil || t.ID == "" {
		return nil, err
	}
	return newHold(c, t, func(error) {}), nil
}

// Serve works on the tasks of this address until ctx ends, and then lets running
// handlers finish (see [Drain]). It returns how many tasks its handlers have worked
// on, and an error only if it could not go on, such as after its token was revoked.
//
// A hub that is away is waited for. Heartbeats, redelivery and the fencing of lost
// claims are taken care of.
func (c *Client) Serve(ctx context.Context, h Handler, opts ...WorkOption) (handled int, err error) {
	s := &server{c: c, handle: h, work: c.newWork(opts)}
	s.wait = max(s.wait, minServeWait)
	s.slots = newSlots(s.concurrency, s.maxTasks)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Handlers outlive ctx by the drain time, and reports outlive the handlers.
	s.handlers, s.abort = context.WithCancelCause(context.WithoutCancel(ctx))
	var quit context.CancelFunc
	s.reports, quit = context.WithCancel(context.WithoutCancel(ctx))
	defer quit()
	defer s.abort(nil)

	err = s.poll(ctx)
	if err != nil {
		stop()
	}
	return s.finish(ctx, err)
}

// server is one run of Serve.
type server struct {
	work
	c        *Client
	handle   Handler
	slots    *slots
	handlers context.Context // parent of the handlers' contexts
	abort    context.CancelCauseFunc
	reports  context.Context // of the reports about finished handlers
	running  sync.WaitGroup
	away     bool // the hub did not answer the last poll
}

// poll asks for tasks and has them worked on while there are free slots.
func (s *server) poll(ctx context.Context) error {
	for failures := 0; s.slots.take(ctx); {
		start := time.Now()
		t, err := s.c.next(ctx, s.work.hold(), s.wait, never)
		if t != nil {
			s.note(ctx, nil)
			failures = 0
			if ctx.Err() == nil {
				s.begin(ctx, t)
				continue
			}
			s.giveBack(ctx, t)
		}
		s.slots.putBack()
		if err != nil && ctx.Err() == nil {
			if !temporary(err) {
				return fmt.Errorf("the hub hands out no tasks: %w", err)
			}
			s.note(ctx, err)
		} else if time.Since(start) > s.wait/2 {
			s.note(ctx, nil)
			failures = 0
			continue
		}
		// The hub failed, or answered before its time because it is about to stop.
		failures++
		pause(ctx, s.c.delay(failures, err))
	}
	return nil
}

// note logs when the hub goes away and when it is back.
func (s *server) note(ctx context.Context, err error) {
	switch {
	case err != nil && !s.away:
		s.log.WarnContext(ctx, "the hub does not hand out tasks; trying on", "hub", s.c.base, "err", err)
	case err == nil && s.away:
		s.log.InfoContext(ctx, "the hub hands out tasks again", "hub", s.c.base)
	}
	s.away = err != nil
}

// begin works on a task in its slot, and on those that come with the reports.
func (s *server) begin(ctx context.Context, t *Task) {
	s.slots.filled()
	s.running.Go(func() {
		defer s.slots.free()
		for t != nil {
			t = s.one(ctx, t)
		}
	})
}

// one works on one task. It gives the next, if one came with the report.
func (s *server) one(ctx context.Context, t *Task) (next *Task) {
	hctx, cancel := s.handlerContext(t)
	defer cancel(nil)
	t.hold.cancel = cancel
	stopBeats := s.beats(hctx, t.hold)
	v, err := s.call(hctx, t)
	stopBeats()
	s.slots.handled()
	return s.report(ctx, hctx, t, v, err)
}

func (s *server) handlerContext(t *Task) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ContextWithTask(s.handlers, t))
	if t.Deadline == nil {
		return ctx, cancel
	}
	ctx, stop := context.WithDeadline(ctx, t.Deadline.Time)
	return ctx, func(cause error) { cancel(cause); stop() }
}

// beats starts the heartbeats once the handler takes longer than most. The function
// that it gives stops them.
func (s *server) beats(ctx context.Context, h *hold) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	h.messages = make(chan Message)
	ended := make(chan struct{})
	every := max(s.lease/3, 10*time.Millisecond)
	timer := time.AfterFunc(min(firstBeat, every), func() {
		defer close(ended)
		h.keep(ctx, every)
	})
	return func() {
		cancel()
		if timer.Stop() {
			close(h.messages)
			return
		}
		<-ended
	}
}

// call runs the handler and turns a panic into an error.
func (s *server) call(ctx context.Context, t *Task) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			e := &PanicError{Value: p, Stack: debug.Stack()}
			s.log.ErrorContext(ctx, "a handler panicked; its task fails", "task", t.ID, "panic", fmt.Sprint(p), "stack", string(e.Stack))
			v, err = nil, e
		}
	}()
	return s.handle(ctx, t)
}

// report settles the task as the handler meant it, unless that is done or pointless.
func (s *server) report(ctx, hctx context.Context, t *Task, v any, err error) (next *Task) {
	if err != nil {
		s.onError(t, err)
	}
	intent, open := t.hold.unsettled()
	if !open {
		s.lost(hctx, t)
		return nil
	}
	if err != nil && intent == nil && errors.Is(context.Cause(hctx), ErrShutdown) {
		s.giveBack(ctx, t) // not the task's fault
		return nil
	}
	r := publicResult(v, err)
	if intent != nil {
		r = *intent
	}
	// As long as the lease might live, the report is worth repeating.
	rctx, cancel := context.WithTimeout(s.reports, max(s.lease, 30*time.Second))
	defer cancel()
	q, more := s.chain(ctx)
	reply, err := t.hold.settle(rctx, report{Result: r, how: patient, next: q})
	if err != nil {
		s.undelivered(hctx, t, err)
	}
	if reply.Next == nil || reply.Next.ID == "" {
		if more {
			s.slots.unchain()
		}
		return nil
	}
	next = newHold(s.c, &Task{Task: *reply.Next}, func(error) {})
	if ctx.Err() != nil {
		s.giveBack(ctx, next) // came too late
		return nil
	}
	return next
}

// giveBack returns a task that this worker will not work on because it stops. If the
// hub does not hear of it, the claim ends by itself in its time.
func (s *server) giveBack(ctx context.Context, t *Task) {
	rctx, cancel := context.WithTimeout(s.reports, ackTime)
	defer cancel()
	if err := t.Release(rctx); err != nil {
		s.log.WarnContext(ctx, "a task could not be given back; the hub offers it again when its claim ends", "task", t.ID, "err", err)
	}
}

// chain decides whether a report asks for the next task along with it: when all
// slots are busy, so that no poll is waiting for it.
func (s *server) chain(ctx context.Context) (q url.Values, more bool) {
	if ctx.Err() != nil || !s.slots.chain() {
		return nil, false
	}
	q = s.work.hold()
	q.Set("next", "1")
	return q, true
}

// publicResult is resultOf, but a panic's value is for the log alone.
func publicResult(v any, err error) Result {
	if _, ok := errors.AsType[*PanicError](err); ok {
		return failed("the callee's program failed while it worked on this task; its log says why")
	}
	return resultOf(v, err)
}

// lost tells of a task that was taken away from its handler.
func (s *server) lost(ctx context.Context, t *Task) {
	t.hold.mu.Lock()
	why := t.hold.lost
	t.hold.mu.Unlock()
	if why != nil {
		s.undelivered(ctx, t, why)
	}
}

func (s *server) undelivered(ctx context.Context, t *Task, err error) {
	if errors.Is(err, ErrCanceled) {
		s.log.InfoContext(ctx, "a task was canceled while it was worked on", "task", t.ID)
	} else {
		s.log.WarnContext(ctx, "the result of a task was not delivered", "task", t.ID, "err", err)
	}
	s.onError(t, err)
}

// finish waits for the handlers that run: without limit if all tasks were taken, and
// for the drain time if Serve was told to stop.
func (s *server) finish(ctx context.Context, cause error) (int, error) {
	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
		return s.slots.count(), cause
	case <-ctx.Done():
	}
	if !within(done, s.drain) {
		s.abort(ErrShutdown)
		if !within(done, lastGrace) {
			cause = errors.Join(cause, fmt.Errorf("%d handlers have not returned although their contexts have ended; the hub offers their tasks again", s.slots.busy()))
		}
	}
	return s.slots.count(), cause
}

// within reports whether done was closed within d.
func within(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}
