package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// The callee of every load, and the body of what it is sent and answers.
const (
	workerHandle = "worker"
	sendBody     = `{"message":{"role":"user","parts":[{"text":"hello"}]}}`
	resultBody   = `{"state":"completed","artifacts":[{"parts":[{"text":"done"}]}]}`
	askBody      = `{"state":"input_required","message":{"role":"agent","parts":[{"text":"which?"}]}}`
	nextTarget   = "/v1/agents/me/tasks/next?wait=30&lease=60&ack=5"
)

// keyMark is where a caller's request has its idempotency key.
const keyMark = "????????????????????????"

// target is a server to put a load on.
type target struct {
	name string
	*process
	// callersAt and workersAt are the replicas that callers and workers talk to, in
	// turns; the process alone if empty.
	callersAt, workersAt []*process
	callers              []string // tokens of the callers' addresses, used in turns
	worker               string   // token of the callee
	// next makes the workers take their next task from the reply to a result.
	next bool
	// workers is how many there are, if not zero, in place of Options.Workers.
	workers int
	// rpc is the path at which callers call by JSON-RPC, and there are no workers; empty
	// for a hub's /v1.
	rpc string
	// webhook is a function behind a URL, which callers call as a hub does.
	webhook bool
}

// turn is where the i-th of those goes that share some replicas.
func (t *target) turn(replicas []*process, i int) string {
	if len(replicas) == 0 {
		return t.addr
	}
	return replicas[i%len(replicas)].addr
}

// spent is the processor time that the target has used.
func (t *target) spent() (all time.Duration) {
	if len(t.callersAt) == 0 {
		return t.cpu()
	}
	for _, p := range t.callersAt {
		all += p.cpu()
	}
	return all
}

// sample is what one measurement of a target came to.
type sample struct {
	rate     float64 // tasks per second
	p50, p99 float64 // ms, of the caller's wait
	cpu      float64 // µs of the server's processor time per task
}

// closedLoop has callers that send a task, wait for its end and send the next, and
// workers that take and complete them, and counts for a while after a warm-up.
func (t *target) closedLoop(ctx context.Context, callers, workers int, warm, measure time.Duration) (sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if t.rpc != "" {
		workers = 0
	}
	stopWorkers, err := t.startWorkers(ctx, cancel, workers, resultBody, nil)
	if err != nil {
		return sample{}, err
	}
	defer stopWorkers()
	var counting atomic.Bool
	var stopped atomic.Bool
	waits := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	for i := range callers {
		l, err := dialLean(t.turn(t.callersAt, i))
		if err != nil {
			return sample{}, err
		}
		defer l.close()
		wg.Go(func() {
			if err := t.callAway(l, i, &counting, &stopped, &waits[i]); err != nil {
				cancel(err)
			}
		})
	}
	pause(ctx, warm)
	began, cpu := time.Now(), t.spent()
	counting.Store(true)
	pause(ctx, measure)
	counting.Store(false)
	took, cpu := time.Since(began), t.spent()-cpu
	stopped.Store(true)
	wg.Wait()
	return summarise(waits, took, cpu), context.Cause(ctx)
}

func summarise(waits [][]time.Duration, took, cpu time.Duration) sample {
	var all []time.Duration
	for _, w := range waits {
		all = append(all, w...)
	}
	return sample{
		rate: float64(len(all)) / took.Seconds(), p50: percentile(all, .50), p99: percentile(all, .99),
		cpu: float64(cpu.Microseconds()) / float64(max(1, len(all))),
	}
}

// callAway is one caller.
func (t *target) callAway(l *lean, i int, counting, stopped *atomic.Bool, waits *[]time.Duration) error {
	c := t.caller(l, i)
	for n := 0; !stopped.Load(); n++ {
		took, err := c.call(n)
		if err != nil {
			return err
		}
		if counting.Load() {
			*waits = append(*waits, took)
		}
	}
	return nil
}

// caller calls a target, one call after the other.
type caller struct {
	target    string
	l         *lean
	req, key  []byte
	completed []byte // is in the answer
}

// caller is the i-th caller.
func (t *target) caller(l *lean, i int) *caller {
	c := &caller{target: t.name, l: l}
	token := "none"
	if len(t.callers) > 0 {
		token = t.callers[i%len(t.callers)]
	}
	switch {
	case t.webhook:
		c.req = request("POST", "/", token, "", `{"task_id":"`+keyMark+`","message":{"role":"user","parts":[{"text":"hello"}]}}`)
		c.completed = []byte("done")
	case t.rpc != "":
		c.req = request("POST", t.rpc, token, "A2A-Version: 1.0", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"`+keyMark+`","role":"ROLE_USER","parts":[{"text":"hello"}]}}}`)
		c.completed = []byte(`"state":"TASK_STATE_COMPLETED"`)
	default:
		c.req = t.sendRequest(i, "?wait=60", sendBody)
		c.completed = []byte(`"state":"completed"`)
	}
	c.key = keyPlace(c.req)
	return c
}

// call makes the n-th call, and says how long it took.
func (c *caller) call(n int) (time.Duration, error) {
	setKey(c.key, n)
	began := time.Now()
	status, body, err := c.l.do(c.req)
	took := time.Since(began)
	if err != nil {
		return took, fmt.Errorf("call the %s: %w", c.target, err)
	}
	if status != 200 || !bytes.Contains(body, c.completed) {
		return took, unexpected("call the "+c.target, status, body)
	}
	return took, nil
}

// sendRequest is a request of the i-th caller, with a key to be set.
func (t *target) sendRequest(i int, query, body string) []byte {
	token := t.callers[i%len(t.callers)]
	return request("POST", "/v1/agents/"+workerHandle+"/tasks"+query, token, "Idempotency-Key: "+keyMark, body)
}

// keyPlace finds the key in a request, and makes its beginning one that no other
// request has.
func keyPlace(req []byte) []byte {
	at := bytes.Index(req, []byte(keyMark))
	key := req[at : at+len(keyMark)]
	setHex(key[:16], rand.Uint64())
	return key
}

func setKey(key []byte, n int) { setHex(key[16:], uint64(n)) }

func setHex(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = "0123456789abcdef"[v&15]
		v >>= 4
	}
}

// startWorkers starts workers that wait for tasks and answer each with body, until
// the function that it gives is called. got, if not nil, learns of each task that a
// worker has, as JSON.
func (t *target) startWorkers(ctx context.Context, fail context.CancelCauseFunc, n int, body string, got func(task []byte)) (stop func(), err error) {
	var wg sync.WaitGroup
	var conns []*lean
	var stopped atomic.Bool
	stop = sync.OnceFunc(func() {
		stopped.Store(true)
		for _, l := range conns {
			l.close()
		}
		wg.Wait()
	})
	for i := range n {
		l, err := dialLean(t.turn(t.workersAt, i))
		if err != nil {
			stop()
			return nil, err
		}
		conns = append(conns, l)
		w := &worker{t: t, l: l, result: body, got: got}
		wg.Go(func() {
			if err := w.work(ctx); err != nil && !stopped.Load() && ctx.Err() == nil {
				fail(fmt.Errorf("a worker of the %s: %w", t.name, err))
			}
		})
	}
	return stop, nil
}

// worker takes tasks and completes them.
type worker struct {
	t      *target
	l      *lean
	result string
	got    func(task []byte)
	id     []byte
	claim  []byte
	req    []byte
}

func (w *worker) work(ctx context.Context) error {
	poll := request("GET", nextTarget, w.t.worker, "", "")
	for ctx.Err() == nil {
		status, body, err := w.l.do(poll)
		if err != nil {
			return err
		}
		switch status {
		case 200:
			if err := w.finish(body); err != nil {
				return err
			}
		case 204:
		default:
			return unexpected("ask for a task", status, body)
		}
	}
	return nil
}

// finish completes a task and, as the target has it, those that come with the
// replies.
func (w *worker) finish(task []byte) error {
	for task != nil {
		if w.got != nil {
			w.got(task)
		}
		status, body, err := w.l.do(w.resultRequest(task))
		if err != nil {
			return err
		}
		if status != 200 {
			return unexpected("complete a task", status, body)
		}
		task = nil
		if at := bytes.LastIndex(body, []byte(`,"next":{`)); w.t.next && at >= 0 {
			task = body[at+len(`,"next":`):]
		}
	}
	return nil
}

func (w *worker) resultRequest(task []byte) []byte {
	w.id = append(w.id[:0], member(task, "id")...)
	w.claim = append(w.claim[:0], member(task, "claim_id")...)
	b := append(append(w.req[:0], "POST /v1/agents/me/tasks/"...), w.id...)
	b = append(b, "/result"...)
	if w.t.next {
		b = append(b, "?next=1&lease=60&ack=5"...)
	}
	b = append(append(b, " HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer "...), w.t.worker...)
	b = append(append(b, "\r\nX-Claim: "...), w.claim...)
	b = append(b, "\r\nPrefer: return=minimal"...) // as the SDK does
	b = fmt.Appendf(b, "\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", len(w.result))
	w.req = append(b, w.result...)
	return w.req
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
