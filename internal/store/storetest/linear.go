package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const linearLease = 10 * time.Second

func linearLimits() hub.Limits {
	l := hub.DefaultLimits()
	l.Redeliveries, l.BackoffMin = 2, 2*time.Second
	return l
}

func linearTests(run runner) {
	run("concurrent histories are those of one operation after another", func(b *bed) {
		n := seed(b)
		end := time.Now().Add(budget(b, 5*time.Second))
		rounds, ops := 0, 0
		for !b.Failed() && time.Now().Before(end) {
			h := newHistory(b, b.s, n+uint64(rounds))
			h.play()
			h.check()
			rounds, ops = rounds+1, ops+len(h.ops)
		}
		b.Logf("%d histories, %d operations", rounds, ops)
	})
}

// history is one short and busy time of two callees.
type history struct {
	*bed
	s      hub.Store
	seed   uint64
	boxes  [2]string // handles
	callee [2]string
	ids    [2][linearTasks]string
	index  map[string]int
	known  [2][linearTasks]atomic.Int32 // the newest attempt that a client has seen
	sent   [2]atomic.Int32
	began  time.Time
	// unnamed: some reports name no claim. What such a one stands for after a claim
	// lapsed and the task ended is left open, so no lease runs out then.
	unnamed bool
	// still keeps the clock from moving while an operation is under way: a store may
	// read it at any moment before it commits.
	still sync.RWMutex

	mu  sync.Mutex
	ops []porcupine.Operation
}

// newHistory prepares two new callees, so that the store's past does not matter.
func newHistory(b *bed, s hub.Store, n uint64) *history {
	h := &history{bed: b, s: s, seed: n, unnamed: n%2 == 0, index: map[string]int{}, began: time.Now()}
	for i := range h.boxes {
		h.boxes[i] = fmt.Sprintf("box-%d-%s", i, newID())
		h.callee[i] = b.address(h.boxes[i])
		for j := range h.ids[i] {
			h.ids[i][j] = newID()
			h.index[h.ids[i][j]] = j
		}
	}
	return h
}

const (
	linearClients = 6
	linearSteps   = 16 // of each client
)

func (h *history) play() {
	h.Helper()
	crowd(linearClients, linearClients, func(client int) {
		r := rand.New(rand.NewPCG(h.seed, uint64(client)))
		for range linearSteps {
			h.step(client, r)
		}
	})
	for i := range h.callee {
		_, err := h.s.CancelQueued(h.ctx, h.callee[i], 100)
		h.ok(err)
	}
}

// did records one operation.
func (h *history) did(client int, in linearIn, f func() linearOut) {
	h.still.RLock()
	defer h.still.RUnlock()
	call := time.Since(h.began).Nanoseconds()
	out := f()
	end := time.Since(h.began).Nanoseconds()
	h.record(client, in, out, call, end)
}

func (h *history) record(client int, in linearIn, out linearOut, call, end int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: in, Output: out, Call: call, Return: end})
}

// onBoth records an operation that concerns both callees.
func (h *history) onBoth(client int, in linearIn, f func()) {
	call := time.Since(h.began).Nanoseconds()
	f()
	end := time.Since(h.began).Nanoseconds()
	for _, box := range h.boxes {
		in.box = box
		h.record(client, in, linearOut{}, call, end)
	}
}

func (h *history) step(client int, r *rand.Rand) {
	box := r.IntN(2)
	in := linearIn{box: h.boxes[box], more: r.IntN(4) == 0}
	in.task = r.IntN(int(min(h.sent[box].Load()+1, linearTasks)))
	in.attempt = h.guess(box, in.task, r)
	in.caller = int8(in.task % 2)
	in.state = pick(r, hub.Working, hub.Completed, hub.Completed, hub.Rejected, hub.InputRequired)
	switch n := r.IntN(100); {
	case n < 20:
		in.task = int(min(h.sent[box].Add(int32(r.IntN(3)/2+1)), linearTasks)) - 1
		in.caller = int8(in.task % 2)
		h.send(client, box, in)
	case n < 26:
		h.follow(client, box, in)
	case n < 46:
		h.claim(client, box, in)
	case n < 64:
		h.report(client, box, in)
	case n < 70:
		h.heartbeat(client, box, in)
	case n < 75:
		h.cancelOne(client, box, in)
	case n < 79:
		h.release(client, box, in)
	case n < 86:
		in.op, in.by = opAdvance, h.leap(r)
		h.still.Lock()
		h.onBoth(client, in, func() { h.clock.Advance(in.by) })
		h.still.Unlock()
	case n < 92:
		in.op = opSweep
		h.still.RLock()
		h.onBoth(client, in, func() {
			_, err := h.s.Sweep(h.ctx, 10_000, true, linearLimits())
			h.okAll(err)
		})
		h.still.RUnlock()
	default:
		h.read(client, box, in)
	}
}

// leap is how far the clock moves.
func (h *history) leap(r *rand.Rand) time.Duration {
	if h.unnamed {
		return time.Millisecond
	}
	return pick(r, 2501*time.Millisecond, 5*time.Second, 11*time.Second)
}

// guess names a claim: mostly the newest one known.
func (h *history) guess(box, task int, r *rand.Rand) int {
	n := int(h.known[box][task].Load())
	switch r.IntN(10) {
	case 0:
		n--
	case 1:
		n++
	case 2:
		n = 0
	}
	if h.unnamed {
		return max(0, n)
	}
	return max(1, n)
}

func (h *history) caller(in linearIn) string { return []string{h.ann, h.bob}[in.caller] }

// see is what an answer says of a task.
func (h *history) see(box int, t *hub.Task) seen {
	if t == nil {
		return seen{}
	}
	i := h.index[t.ID]
	if n := int32(t.Attempt); n > h.known[box][i].Load() {
		h.known[box][i].Store(n)
	}
	return seen{true, i, t.State, t.Phase, t.CancelOutcome, int8(t.Attempt), int8(t.Failures), int8(t.Seq)}
}

// out is the answer of an operation, or its refusal.
func (h *history) out(err error, f func() linearOut) linearOut {
	if err == nil {
		return f()
	}
	if k := hub.KindOf(err); k != hub.Internal && k != hub.Unavailable {
		return refuse(k)
	}
	h.okAll(err)
	return refuse(hub.Internal)
}

func (h *history) spec(in linearIn) *hub.ClaimSpec {
	if in.more {
		return &hub.ClaimSpec{Lease: linearLease}
	}
	return nil
}

func (h *history) send(client, box int, in linearIn) {
	in.op = opSend
	s := newSend(h.caller(in), h.callee[box], withKey(h.ids[box][in.task], "f"))
	s.TaskID, s.Claim = h.ids[box][in.task], h.spec(in)
	h.did(client, in, func() linearOut {
		got, err := h.s.Send(h.ctx, s)
		return h.out(err, func() linearOut {
			return linearOut{task: h.see(box, got.Task), flag: got.Created, next: h.see(box, got.Claimed)}
		})
	})
}

func (h *history) follow(client, box int, in linearIn) {
	in.op = opFollow
	s := newSend(h.caller(in), h.callee[box])
	s.FollowUp = h.ids[box][in.task]
	h.did(client, in, func() linearOut {
		got, err := h.s.Send(h.ctx, s)
		return h.out(err, func() linearOut { return linearOut{task: h.see(box, got.Task), flag: got.Answered} })
	})
}

func (h *history) claim(client, box int, in linearIn) {
	in.op = opClaim
	h.did(client, in, func() linearOut {
		got, err := h.s.Claim(h.ctx, h.callee[box], hub.ClaimSpec{Lease: linearLease})
		return h.out(err, func() linearOut { return linearOut{task: h.see(box, got.Task)} })
	})
}

func (h *history) report(client, box int, in linearIn) {
	in.op = opReport
	r := hub.Report{
		Callee: h.callee[box], Task: h.ids[box][in.task], Attempt: in.attempt, State: in.state,
		Message: agentMsg("r"), Digest: hash(in.state.String()), Next: h.spec(in), Limits: hub.DefaultLimits(),
	}
	h.did(client, in, func() linearOut {
		got, err := h.s.Report(h.ctx, r)
		return h.out(err, func() linearOut {
			return linearOut{task: h.see(box, got.Task), flag: got.Replayed, next: h.see(box, got.Next)}
		})
	})
}

func (h *history) heartbeat(client, box int, in linearIn) {
	in.op = opBeat
	beat := hub.Heartbeat{Callee: h.callee[box], Task: h.ids[box][in.task], Attempt: in.attempt, After: -1}
	h.did(client, in, func() linearOut {
		got, err := h.s.Heartbeat(h.ctx, beat)
		return h.out(err, func() linearOut {
			return linearOut{flag: got.CancelRequested, task: seen{some: true, index: in.task, state: got.State}}
		})
	})
}

func (h *history) cancelOne(client, box int, in linearIn) {
	in.op = opCancel
	h.did(client, in, func() linearOut {
		t, err := h.s.Cancel(h.ctx, hub.TaskRef{Callee: h.callee[box], ID: h.ids[box][in.task]}, only(h.caller(in)))
		return h.out(err, func() linearOut { return linearOut{task: h.see(box, t)} })
	})
}

func (h *history) release(client, box int, in linearIn) {
	in.op = opRelease
	h.did(client, in, func() linearOut {
		err := h.s.Release(h.ctx, h.callee[box], h.ids[box][in.task], in.attempt)
		return h.out(err, func() linearOut { return linearOut{} })
	})
}

func (h *history) read(client, box int, in linearIn) {
	in.op = opRead
	h.did(client, in, func() linearOut {
		t, err := h.s.Task(h.ctx, hub.TaskRef{Callee: h.callee[box], ID: h.ids[box][in.task]}, only(h.caller(in)), hub.Load{})
		return h.out(err, func() linearOut { return linearOut{task: h.see(box, t)} })
	})
}

// linearizable looks for one order of the operations that explains all answers.
func (h *history) linearizable() (porcupine.CheckResult, porcupine.LinearizationInfo) {
	return porcupine.CheckOperationsVerbose(linearModel(), h.ops, 20*time.Second)
}

// check fails the test, with a picture of the history, when there is no such order.
func (h *history) check() {
	h.Helper()
	result, info := h.linearizable()
	if result == porcupine.Unknown {
		h.Logf("a history of %d operations took too long to check", len(h.ops))
	}
	if result == porcupine.Illegal {
		h.Errorf("a history is not linearizable (round seed %d); see %s", h.seed, picture(h.TB, info))
	}
}

// picture draws a history into a file, which stays, and names it.
func picture(t testing.TB, info porcupine.LinearizationInfo) string {
	f, err := os.CreateTemp("", "history-*.html")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := porcupine.Visualize(linearModel(), info, f); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}
