package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// parkedCallers is enough for the unfinished tasks that one caller may have.
const parkedCallers = 16

// parked measures what tasks cost the hub that wait for an answer, and how soon a
// hub that was killed with all of them serves again.
func parked(ctx context.Context, r *run) error {
	h, t, err := r.hubTarget(ctx, parkedCallers)
	if err != nil {
		return err
	}
	defer func() { h.stop() }()
	t.next = true
	// A hub that has had work before: what the work itself leaves behind, such as
	// buffers, is there before and after.
	if _, err := t.closedLoop(ctx, r.Callers, r.Workers, 0, 2*r.Duration/3); err != nil {
		return err
	}
	before, err := h.state(ctx)
	if err != nil {
		return err
	}
	if err := r.park(ctx, h, t); err != nil {
		return err
	}
	after, err := h.state(ctx)
	if err != nil {
		return err
	}
	r.progress("%d tasks parked: %+v before, %+v after", r.Parked, before, after)
	what := fmt.Sprintf("%d parked tasks, growth of ", r.Parked)
	r.add(Row{What: what + "goroutines", Measured: max(0, after.goroutines-before.goroutines), Unit: "goroutines", Bar: 10, Less: true})
	r.add(Row{What: what + "memory", Measured: max(0, after.rss-before.rss), Unit: "MB", Bar: 50, Less: true})
	return r.restarts(ctx, h, t)
}

// idleState is what a hub takes while nobody talks to it.
type idleState struct{ goroutines, rss float64 }

func (h *hubProcess) state(ctx context.Context) (s idleState, err error) {
	if err := h.settle(ctx, `holdfast_http_open{kind="all"}`, func(v float64) bool { return v <= 1 }); err != nil {
		return s, err
	}
	// Connections that were closed just now take a moment to go.
	pause(ctx, time.Second)
	if s.goroutines, err = h.metric(ctx, "go_goroutines"); err != nil {
		return s, err
	}
	s.rss, err = h.rss()
	return s, err
}

// park sends tasks whose worker asks a question that nobody answers.
func (r *run) park(ctx context.Context, h *hubProcess, t *target) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop, err := t.startWorkers(ctx, cancel, r.Workers, askBody, nil)
	if err != nil {
		return err
	}
	defer stop()
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range r.Callers {
		l, err := dialLean(t.addr)
		if err != nil {
			return err
		}
		defer l.close()
		wg.Go(func() {
			req := t.sendRequest(i, "", sendBody)
			key := keyPlace(req)
			for n := next.Add(1); n <= int64(r.Parked) && ctx.Err() == nil; n = next.Add(1) {
				setKey(key, int(n))
				status, body, err := l.do(req)
				if err == nil && status != 200 && status != 201 {
					err = unexpected("send a task to park", status, body)
				}
				if err != nil {
					cancel(err)
				}
				if n%20_000 == 0 {
					r.progress("sent %d of %d tasks to park", n, r.Parked)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	all := float64(r.Parked)
	return h.settle(ctx, `holdfast_queue_tasks{phase="parked"}`, func(v float64) bool { return v >= all })
}

// restarts kills the hub under load and starts it again, a few times.
func (r *run) restarts(ctx context.Context, h *hubProcess, t *target) error {
	var took []float64
	for range r.Rounds {
		t.process = h.process
		loaded := make(chan struct{})
		go func() { // fails when the hub dies
			defer close(loaded)
			_, _ = t.closedLoop(ctx, r.Callers, r.Workers, 0, time.Minute)
		}()
		pause(ctx, time.Second)
		h.kill()
		<-loaded
		if err := r.serve(ctx, h); err != nil {
			return err
		}
		r.progress("serving %.2f s after a kill with %d unfinished tasks", h.ready.Seconds(), r.Parked)
		took = append(took, h.ready.Seconds())
	}
	r.add(Row{What: fmt.Sprintf("from kill -9 with %d unfinished tasks to serving", r.Parked), Measured: median(took), Unit: "s", Bar: 2, Less: true})
	return nil
}

// pollAddresses is how many callees share the open polls.
const pollAddresses = 100

// polls measures the memory of a hub that many workers wait at.
func polls(ctx context.Context, r *run) error {
	h, err := r.startHub(ctx)
	if err != nil {
		return err
	}
	defer h.stop()
	tokens, err := h.agents(ctx, "worker", min(pollAddresses, r.Polls))
	if err != nil {
		return err
	}
	before, err := h.rss()
	if err != nil {
		return err
	}
	var open []*lean
	defer func() {
		for _, l := range open {
			l.close()
		}
	}()
	for i := range r.Polls {
		l, err := dialLean(h.addr)
		if err != nil {
			return fmt.Errorf("open poll %d (a limit of open files, ulimit -n, may be too low): %w", i+1, err)
		}
		open = append(open, l)
		poll := request("GET", "/v1/agents/me/tasks/next?wait=60&lease=60&ack=5", tokens[i%len(tokens)], "", "")
		if err := l.write(poll); err != nil {
			return err
		}
	}
	all := float64(r.Polls)
	if err := h.settle(ctx, `holdfast_http_open{kind="poll"}`, func(v float64) bool { return v >= all }); err != nil {
		return err
	}
	after, err := h.rss()
	if err != nil {
		return err
	}
	stacks, err := h.metric(ctx, "go_memstats_stack_inuse_bytes")
	if err != nil {
		return err
	}
	heap, err := h.metric(ctx, "go_memstats_heap_inuse_bytes")
	if err != nil {
		return err
	}
	r.progress("%d polls: %.0f MB, %.1f KB each; stacks have %.0f MB, the heap %.0f MB",
		r.Polls, after, (after-before)*1024/all, stacks/(1<<20), heap/(1<<20))
	r.add(Row{What: fmt.Sprintf("%d open long polls", r.Polls), Measured: after, Unit: "MB", Baseline: before, Against: "without", Bar: 200, Stretch: 60, Less: true})
	return nil
}
