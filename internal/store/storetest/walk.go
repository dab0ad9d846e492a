package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// seed is the seed of a random test: the one asked for, or a new one. It is printed
// if the test fails.
func seed(t testing.TB) uint64 {
	n := uint64(time.Now().UnixNano())
	if s := os.Getenv("HOLDFAST_STORETEST_SEED"); s != "" {
		var err error
		if n, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("HOLDFAST_STORETEST_SEED: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with HOLDFAST_STORETEST_SEED=%d", n)
		}
	})
	return n
}

// budget is how long a random test may go on.
func budget(t testing.TB, usual time.Duration) time.Duration {
	s := os.Getenv("HOLDFAST_STORETEST_TIME")
	if s == "" {
		return usual
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatalf("HOLDFAST_STORETEST_TIME: %v", err)
	}
	return d
}

func walkTests(run runner) {
	for i := range 2 {
		run("a random walk does to the store what it does to the model, "+strconv.Itoa(i+1), func(b *bed) {
			n := seed(b) + uint64(i)
			w := newWalk(b, rand.New(rand.NewPCG(n, n)))
			end := time.Now().Add(budget(b, 6*time.Second))
			for !b.Failed() && time.Now().Before(end) {
				w.step()
				if w.steps%200 == 0 {
					w.compareAll()
				}
			}
			w.compareAll()
			b.Logf("%d steps, %d tasks", w.steps, len(w.tasks))
		})
	}
	run("a random walk goes on when the store is opened again", func(b *bed) {
		if b.h.Reopen == nil {
			b.Skip("this store cannot be opened again")
		}
		n := seed(b)
		w := newWalk(b, rand.New(rand.NewPCG(n, n)))
		for end := time.Now().Add(budget(b, 6*time.Second)); !b.Failed() && time.Now().Before(end); {
			for range 100 + w.r.IntN(200) {
				w.step()
			}
			w.reopen()
			w.compareAll()
		}
		b.Logf("%d steps, %d tasks", w.steps, len(w.tasks))
	})
}

// WalkOn takes random steps on a store that is opened again, or in another place, now and
// then: the last test of Run.
func WalkOn(t *testing.T, open func(t testing.TB) Harness) {
	walkTests(func(name string, f func(b *bed)) {
		if strings.HasSuffix(name, "opened again") {
			f(newBed(t, open(t)))
		}
	})
}

// reopen opens the store again, as a hub does that starts.
func (w *walk) reopen() {
	w.Helper()
	w.s = w.h.Reopen(w.TB)
	w.both("start", "", func(s hub.Store) (any, error) { return nil, s.ReleasePushes(w.ctx) })
}

// walk takes random steps, each on a store and on a model.
type walk struct {
	*bed
	m       *model
	r       *rand.Rand
	steps   int
	trace   []string // the last steps, for a failure
	tasks   []string // ids of all tasks, also of those long gone
	taken   []string // ids of tasks in the order of their claims
	claims  map[string]*hub.Task
	replies []hub.Report
	loans   []loanPair
}

func newWalk(b *bed, r *rand.Rand) *walk {
	w := &walk{bed: b, r: r, m: newModel(b.clock.Now), claims: map[string]*hub.Task{}}
	for handle, id := range map[string]string{"ann": b.ann, "bob": b.bob, "eve": b.eve, "dev": b.dev, "ops": b.ops} {
		a, err := b.s.Address(b.ctx, id)
		b.ok(err)
		if handle == "ops" {
			a.MaxRedeliveries = 1
			b.ok(b.s.UpdateAddress(b.ctx, *a))
		}
		b.ok(w.m.CreateAddress(b.ctx, *a))
	}
	return w
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

// recent is a task that is worth doing something to: mostly one claimed of late,
// else one sent of late, now and then any.
func (w *walk) recent() string {
	from, n := w.taken, 6
	switch w.r.IntN(10) {
	case 0:
		n = 1 << 20
	case 1, 2:
		from, n = w.tasks, 12
	}
	if len(from) == 0 {
		return newID()
	}
	return from[len(from)-1-w.r.IntN(min(n, len(from)))]
}

// sameRefusal reports whether two answers refuse alike. What is both wrong and too
// large may be refused for either.
func sameRefusal(a, b error) bool {
	size := func(err error) bool {
		return err != nil && (hub.KindOf(err) == hub.Invalid || hub.KindOf(err) == hub.TooLarge)
	}
	return kindOf(a) == kindOf(b) || size(a) && size(b)
}

// both runs an operation on store and model and compares what they answer.
func (w *walk) both(what string, task string, op func(s hub.Store) (any, error)) {
	w.Helper()
	w.trace = append(w.trace, what)
	w.trace = w.trace[max(0, len(w.trace)-40):]
	want, wantErr := op(w.m)
	got, gotErr := op(w.s)
	if d := cmp.Diff(want, got, lenient); d != "" || !sameRefusal(wantErr, gotErr) {
		w.fail("step %d: %s\nerrors: want %v, got %v\n(-want +got)\n%s", w.steps, what, wantErr, gotErr, d)
	}
	if task != "" {
		w.compare(task)
	}
}

func (w *walk) fail(format string, args ...any) {
	w.Helper()
	for _, s := range w.trace {
		w.Log(s)
	}
	w.Fatalf(format, args...)
}

func kindOf(err error) string {
	if err == nil {
		return "none"
	}
	return fmt.Sprint(hub.KindOf(err))
}

// lenient ignores what the definition leaves open: what the hub says in its own
// words.
var lenient = cmp.Options{
	cmpopts.EquateEmpty(),
	cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(func(a, b []byte) bool {
		return bytes.Equal(a, b) || bytes.Equal(a, anything) || bytes.Equal(b, anything)
	})),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Actor" },
		cmp.Comparer(func(a, b string) bool { return a == b || a+b == "hubadmin" || a+b == "adminhub" })),
	cmpopts.IgnoreFields(hub.Activity{}, "Cursor", "Detail"),
	cmpopts.IgnoreFields(hub.PushJob{}, "Loan"),
	cmpopts.IgnoreFields(hub.PushFailure{}, "ID"),
	cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Error" },
		cmp.Comparer(func(a, b string) bool { return (a == "") == (b == "") })),
}

func (w *walk) compare(id string) {
	w.Helper()
	ref := hub.TaskRef{ID: id}
	want, wantErr := w.m.Task(w.ctx, ref, everything(), whole())
	got, gotErr := w.s.Task(w.ctx, ref, everything(), whole())
	if d := cmp.Diff(want, got, lenient); d != "" || kindOf(wantErr) != kindOf(gotErr) {
		w.fail("step %d: task %s differs; errors: want %v, got %v\n(-want +got)\n%s", w.steps, id, wantErr, gotErr, d)
	}
	if want == nil {
		return
	}
	pushes, _ := w.m.TaskPushes(w.ctx, ref, everything())
	kept, err := w.s.TaskPushes(w.ctx, ref, everything())
	w.ok(err)
	if d := cmp.Diff(pushes, kept, lenient); d != "" {
		w.fail("step %d: the push-notification configurations of %s differ (-want +got)\n%s", w.steps, id, d)
	}
	w.compareAsOf(ref, want.Seq)
	w.compareDispatchesOf(id)
	events, _ := w.m.Events(w.ctx, ref, everything(), 0, 1000)
	stored, err := w.s.Events(w.ctx, ref, everything(), 0, 1000)
	w.ok(err)
	if d := cmp.Diff(events, stored, lenient); d != "" {
		w.fail("step %d: the events of %s differ (-want +got)\n%s", w.steps, id, d)
	}
}

// compareAll compares all that can be read.
func (w *walk) compareAll() {
	w.Helper()
	w.compareDispatches()
	on := func(s hub.Store) world { b := *w.bed; b.s = s; return b.world() }
	want, got := on(w.m), on(w.s)
	for _, x := range []*world{&want, &got} {
		// After a claim was lost, what counts as waiting is left open.
		x.Stats.OldestReady = 0
		x.Activity = slices.DeleteFunc(x.Activity, func(l hub.Activity) bool { return l.Kind == hub.ActProgress })
	}
	if d := cmp.Diff(want, got, lenient); d != "" {
		w.fail("step %d: the stores differ (-want +got)\n%s", w.steps, d)
	}
}

// step takes one random step. Time moves by amounts that never meet the end of
// anything exactly.
func (w *walk) step() {
	w.steps++
	switch n := w.r.IntN(134); {
	case n < 16:
		w.sendNew()
	case n < 26:
		w.sendMore()
	case n < 42:
		w.claimOne()
	case n < 68:
		w.reportOne()
	case n < 76:
		w.beatOne()
	case n < 80:
		w.cancelOne()
	case n < 83:
		w.releaseOne()
	case n < 84:
		w.loseOne()
	case n < 86:
		w.requeueOne()
	case n < 96:
		w.passTime()
	case n < 98:
		w.mark()
	case n < 100:
		w.prune()
	case n < 118:
		w.pushStep()
	default:
		w.dispatchStep()
	}
}

func (w *walk) maybeSpec() *hub.ClaimSpec {
	if w.r.IntN(4) > 0 {
		return nil
	}
	return w.spec()
}

func (w *walk) spec() *hub.ClaimSpec {
	spec := &hub.ClaimSpec{
		Lease: pick(w.r, 10*time.Second, time.Minute, 10*time.Minute),
		Ack:   pick(w.r, 0, 0, 5*time.Second),
	}
	if w.r.IntN(4) == 0 {
		spec.Dispatch = &hub.Dispatch{Kind: hub.RemoteDelivery, Instance: pick(w.r, "", "laptop"), Sent: w.r.IntN(3) > 0}
	}
	return spec
}

func (w *walk) maybeKey() *hub.Key {
	if w.r.IntN(3) > 0 {
		return nil
	}
	return &hub.Key{Hash: hash(number("k", w.r.IntN(40))), Fingerprint: hash(number("f", w.r.IntN(10)/8))}
}

func (w *walk) limits() hub.Limits {
	l := hub.DefaultLimits()
	l.Events, l.Messages, l.OpenTasks, l.Pushes = 12, 6, 8, 2
	return l
}

// take remembers what a claim gave.
func (w *walk) take(t *hub.Task) {
	if t != nil {
		w.claims[t.ID] = t
		w.taken = append(w.taken, t.ID)
	}
}

func (w *walk) doSend(what string, s hub.Send, task string) {
	w.Helper()
	w.both(what, task, func(st hub.Store) (any, error) {
		got, err := st.Send(w.ctx, s)
		w.take(got.Claimed)
		return got, err
	})
}

func (w *walk) sendNew() {
	s := newSend(pick(w.r, w.ann, w.bob, w.eve), pick(w.r, w.dev, w.ops), withMessage(number("n", w.steps)))
	s.Key, s.Claim, s.Limits = w.maybeKey(), w.maybeSpec(), w.limits()
	if w.r.IntN(3) == 0 {
		s.ContextID, s.ContextGiven = number("c", w.steps), true
	}
	if w.r.IntN(6) == 0 {
		s.Deadline = w.clock.Now().Add(time.Duration(1+w.r.IntN(600)) * time.Second)
	}
	if w.r.IntN(4) == 0 {
		s.Push = w.config()
	}
	w.tasks = append(w.tasks, s.TaskID)
	w.doSend("send "+s.TaskID, s, s.TaskID)
}

// sendMore sends a message to a task, now and then with a wrong caller or context.
func (w *walk) sendMore() {
	id := w.recent()
	s := newSend(w.ann, w.dev, withMessage(number("m", w.steps)))
	if t := w.m.find(id); t != nil && w.r.IntN(10) > 0 {
		s.Caller, s.Callee = t.Caller.ID, t.Callee.ID
		if w.r.IntN(3) == 0 {
			s.ContextID, s.ContextGiven = pick(w.r, t.ContextID, t.ContextID, "wrong"), true
		}
	}
	s.FollowUp, s.Key, s.Claim, s.Limits = id, w.maybeKey(), w.maybeSpec(), w.limits()
	if s.ContextGiven && s.Key == nil && w.r.IntN(2) == 0 {
		s.FollowUp, s.AnswerContext = "", true
		w.tasks = append(w.tasks, s.TaskID)
	}
	if w.r.IntN(6) == 0 {
		s.Push = w.config()
	}
	w.doSend("message to "+id, s, id)
}

func (w *walk) claimOne() {
	callee, spec := pick(w.r, w.dev, w.ops), *w.spec()
	var got *hub.Task
	w.both("claim", "", func(s hub.Store) (any, error) {
		c, err := s.Claim(w.ctx, callee, spec)
		got = c.Task
		w.take(got)
		return c, err
	})
	if got != nil {
		w.compare(got.ID)
	}
}

// claimOf is a claim of a task to act under: mostly its newest.
func (w *walk) claimOf(id string) *hub.Task {
	t := &hub.Task{ID: id, Callee: hub.Party{ID: w.dev}}
	if c := w.claims[id]; c != nil {
		t.Callee, t.Attempt = c.Callee, c.Attempt
	}
	switch w.r.IntN(12) {
	case 0:
		t.Attempt = max(0, t.Attempt-1)
	case 1:
		t.Attempt++
	case 2:
		t.Attempt = 0
	case 3:
		t.Callee.ID = pick(w.r, w.dev, w.ops)
	}
	return t
}

// open says that the definition leaves open what happens: what an unnamed claim
// stands for once the task has ended.
func (w *walk) open(attempt int, task string) bool {
	t := w.m.find(task)
	return attempt == 0 && t != nil && t.lapsed && t.Phase == hub.Done
}

func (w *walk) reportOne() {
	if len(w.replies) > 0 && w.r.IntN(8) == 0 { // a settling report once more
		w.doReport(w.replies[len(w.replies)-1-w.r.IntN(min(8, len(w.replies)))])
		return
	}
	t := w.claimOf(w.recent())
	state := pick(w.r, 0, hub.Working, hub.Completed, hub.Completed, hub.Failed, hub.Rejected, hub.InputRequired, hub.InputRequired, hub.AuthRequired)
	r := says(t, state, func(r *hub.Report) {
		for i := range w.r.IntN(3) {
			r.Events = append(r.Events, w.event(i))
		}
		if r.State != 0 {
			r.Message = agentMsg(number("r", w.steps))
			if w.r.IntN(5) == 0 && !r.State.Interrupted() {
				r.Message = nil
			}
		}
	})
	r.Next, r.Limits = w.maybeSpec(), w.limits()
	if !w.open(r.Attempt, r.Task) {
		w.doReport(r)
	}
}

func (w *walk) event(i int) hub.Event {
	id, text := pick(w.r, "a", "a", "b"), fmt.Sprint(w.steps, ".", i)
	switch w.r.IntN(4) {
	case 0:
		return progress("p" + text)
	case 1:
		return put(id, text)
	}
	return more(id, text)
}

func (w *walk) doReport(r hub.Report) {
	w.Helper()
	w.both(fmt.Sprintf("report %v with %d events on %s under %d", r.State, len(r.Events), r.Task, r.Attempt), r.Task,
		func(s hub.Store) (any, error) {
			got, err := s.Report(w.ctx, r)
			w.take(got.Next)
			if err == nil && r.State.Settled() && r.Attempt > 0 && s == w.s {
				w.replies = append(w.replies, r)
			}
			return got, err
		})
}

func (w *walk) beatOne() {
	h := beatOf(w.claimOf(w.recent()))
	if w.open(h.Attempt, h.Task) {
		return
	}
	if w.r.IntN(3) == 0 {
		h.After = w.r.IntN(5)
	}
	if w.r.IntN(4) == 0 {
		h.Unread, h.Lease = true, pick(w.r, 0, 10*time.Second, 10*time.Minute)
	}
	w.both(fmt.Sprintf("heartbeat of %s under %d after %d", h.Task, h.Attempt, h.After), h.Task,
		func(s hub.Store) (any, error) {
			b, err := s.Heartbeat(w.ctx, h)
			if b.CancelRequested {
				b.LeaseUntil = time.Time{}
			}
			return b, err
		})
}

func (w *walk) cancelOne() {
	id := w.recent()
	ref, by := hub.TaskRef{Callee: w.dev, ID: id}, only(w.ann)
	if t := w.m.find(id); t != nil && w.r.IntN(5) > 0 {
		ref.Callee, by.Address = t.Callee.ID, pick(w.r, t.Caller.ID, t.Caller.ID, t.Callee.ID)
	}
	w.both("cancel "+id, id, func(s hub.Store) (any, error) { return s.Cancel(w.ctx, ref, by) })
}

func (w *walk) releaseOne() {
	t := w.claimOf(w.recent())
	w.both("release "+t.ID, t.ID, func(s hub.Store) (any, error) {
		return nil, s.Release(w.ctx, t.Callee.ID, t.ID, t.Attempt)
	})
}

func (w *walk) loseOne() {
	t := w.claimOf(w.recent())
	l := lossOf(t, "it answered 503")
	l.After = pick(w.r, 0, 0, 20*time.Second)
	w.both("lose "+t.ID, t.ID, func(s hub.Store) (any, error) { return s.Lose(w.ctx, l) })
}

func (w *walk) requeueOne() {
	id, copied := w.recent(), newID()
	w.tasks = append(w.tasks, copied)
	w.both("requeue "+id, id, func(s hub.Store) (any, error) { return s.Requeue(w.ctx, id, copied) })
	w.compare(copied)
}

func (w *walk) passTime() {
	d := pick(w.r, 0, time.Second, 10*time.Second, 30*time.Second, 5*time.Minute, 11*time.Minute)
	if w.r.IntN(60) == 0 {
		d = 20 * time.Hour
	}
	limit := pick(w.r, 1, 3, 100, 100)
	w.clock.Advance(d + time.Millisecond)
	w.both(fmt.Sprintf("sweep %d after %v", limit, d), "", func(s hub.Store) (any, error) {
		got, err := s.Sweep(w.ctx, limit, true, hub.DefaultLimits())
		if limit < 100 { // which of those due at once come first is left open
			for range 100 {
				if more, err := s.Sweep(w.ctx, 100, true, hub.DefaultLimits()); err != nil || more.Changed == 0 {
					break
				}
			}
			return got.Changed, err
		}
		slices.Sort(got.Tasks)
		slices.Sort(got.Ready)
		return got, err
	})
}

func (w *walk) mark() {
	m := hub.ReadMark{Task: w.recent(), Polls: 1 + w.r.IntN(3)}
	if t := w.m.find(m.Task); t != nil {
		m.End = t.Phase == hub.Done && t.ReadAt.IsZero()
	}
	w.both("mark "+m.Task, m.Task, func(s hub.Store) (any, error) {
		return nil, s.MarkRead(w.ctx, []hub.ReadMark{m})
	})
}

func (w *walk) prune() {
	before := w.clock.Now().Add(-time.Duration(w.r.IntN(60)) * time.Minute)
	w.both("prune", "", func(s hub.Store) (any, error) {
		// Where a batch ends is the store's choice: go on to the end.
		for n := 0; ; {
			out, err := s.Prune(context.WithoutCancel(w.ctx), before, 1000)
			if n += out.Tasks; err != nil || !out.More {
				return n, err
			}
		}
	})
}
