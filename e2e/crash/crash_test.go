// Package crash hurts the real hub at random moments under load, many times, and
// checks from the outside that nothing that it acknowledged was lost, done twice or
// undone: in the database after each fault, through the API at the end, and by the
// history of all answers. A hub on SQLite is killed; of replicas on PostgreSQL all parts
// are killed, stopped and cut off from each other. Where the hub itself delivers, agents and
// their tunnels are killed too, and what they saw is compared with what the hub says.
//
// FAULTS is the number of faults (30 on SQLite, 20 on PostgreSQL and 10 during deliveries if
// not set), SEED makes the choices of a run the same again as far as timing allows, and
// RACE=1 builds the hub with the race detector.
package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

func TestMain(m *testing.M) {
	if os.Getenv(agentKind) != "" {
		agentMain()
	}
	os.Exit(hubproc.Main(m))
}

// setting reads a number from the environment.
func setting(t *testing.T, name string, def uint64) uint64 {
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s=%s is no number", name, text)
	}
	return n
}

func TestCrash(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	faults := setting(t, "FAULTS", 30)
	seed := setting(t, "SEED", uint64(time.Now().UnixNano()))
	t.Logf("FAULTS=%d SEED=%d", faults, seed)
	w := newWorld(t, seed, hubproc.Options{})
	w.startActors()
	r := w.random(0)
	only := w.hubs[0]
	for n := range faults {
		w.pause(200*time.Millisecond + time.Duration(r.Int64N(int64(1800*time.Millisecond))))
		acked := w.ledger.snapshot()
		only.Kill()
		if problems := checkCopy(t, only.Dir, acked, false); len(problems) > 0 {
			w.report(fmt.Sprintf("after kill %d", n+1), problems)
		}
		if w.ctx.Err() != nil || t.Failed() {
			break
		}
		only.Start()
	}
	w.finish()
	w.report("at the end", checkCopy(t, only.Dir, w.ledger.snapshot(), true))
	w.summary(fmt.Sprintf("%d kills", faults))
}

// finish lets everything come to its end, checks what the hubs say then, and ends them.
func (w *world) finish() {
	w.drain()
	w.checkAPI()
	for _, h := range w.hubs {
		if _, err := h.Terminate(15 * time.Second); err != nil {
			w.t.Errorf("the hub did not end well: %v", err)
		}
	}
	w.checkHistory()
}

// world is a hub or replicas of one, those who use it, and what it has acknowledged to
// them.
type world struct {
	t       *testing.T
	hubs    []*hubproc.Hub
	seed    uint64
	ledger  *ledger
	history *history
	ctx     context.Context // of the whole run; ends when it is given up
	cancel  context.CancelFunc
	// quiet is closed when nothing new is to be begun, and over when all is done.
	quiet, over chan struct{}
	callers     map[string]*hubproc.Client
	callees     map[string]*hubproc.Client
	admin       *hubproc.Client
	streams     sync.WaitGroup // callers and subscribers, which end after quiet
	workers     sync.WaitGroup // which end after over
	feed        feed
	seen        seen
	crew        []*worker
}

const (
	steady = "steady" // a callee whose tasks are redelivered as often as it takes
	frail  = "frail"  // one whose tasks fail when they are lost twice
)

// newWorld starts a hub for each of the options, with two callees that pull.
func newWorld(t *testing.T, seed uint64, replicas ...hubproc.Options) *world {
	w := newHubs(t, seed, replicas...)
	w.callees[steady] = w.balanced(w.hubs[0].Agent(steady, map[string]any{"max_redeliveries": 1000}))
	w.callees[frail] = w.balanced(w.hubs[0].Agent(frail, map[string]any{"max_redeliveries": 1}))
	return w
}

// newHubs starts a hub for each of the options, with callers and without callees.
func newHubs(t *testing.T, seed uint64, replicas ...hubproc.Options) *world {
	w := &world{
		t: t, seed: seed, ledger: newLedger(), history: newHistory(), quiet: make(chan struct{}), over: make(chan struct{}),
		callers: map[string]*hubproc.Client{}, callees: map[string]*hubproc.Client{},
	}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	t.Cleanup(w.cancel)
	for _, opt := range replicas {
		opt.Args = append(opt.Args, "--lease", "1s", "--log-level", "warn")
		w.hubs = append(w.hubs, hubproc.New(t, opt))
	}
	for _, h := range w.hubs {
		h.Launch()
	}
	for _, h := range w.hubs {
		h.Await()
	}
	one := w.hubs[0]
	w.admin = w.balanced(one.Admin())
	for _, name := range []string{"ann", "bob", "cat"} {
		w.callers[name] = w.balanced(one.Agent(name))
	}
	return w
}

// random is the choices of one actor.
func (w *world) random(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, actor)) }

func (w *world) startActors() {
	n := uint64(0)
	for name := range w.callers {
		for range 2 {
			n++
			c := &caller{w: w, name: name, api: w.callers[name], r: w.random(n), prefix: fmt.Sprintf("%s-%d", name, n)}
			w.streams.Go(c.run)
		}
	}
	for i := range 8 {
		n++
		name := steady
		if i%4 == 0 {
			name = frail
		}
		k := &worker{w: w, name: name, api: w.callees[name], r: w.random(n)}
		w.crew = append(w.crew, k)
		w.workers.Go(k.run)
	}
	for range 4 {
		n++
		s := &subscriber{w: w, r: w.random(n)}
		w.streams.Go(s.run)
	}
	w.workers.Go(w.followActivity)
}

// drain lets everything come to its end: nothing new is begun, workers complete all,
// questions are answered.
func (w *world) drain() {
	close(w.quiet)
	deadline := time.Now().Add(2 * time.Minute)
	w.streams.Wait()
	for {
		left, err := w.unfinished()
		if err == nil && left == 0 {
			break
		}
		if time.Now().After(deadline) {
			w.t.Errorf("stuck: %d tasks have not ended two minutes after the last fault (%v)", left, err)
			break
		}
		w.answerAll()
		w.pause(100 * time.Millisecond)
	}
	w.awaitFeed()
	close(w.over)
	w.workers.Wait()
}

func (w *world) unfinished() (int, error) {
	var info struct{ Ready, Leased, Parked int }
	err := w.admin.Call(w.ctx, "GET", "/v1/admin/info", nil, &info)
	return info.Ready + info.Leased + info.Parked, err
}

// answerAll answers the open questions of all callers.
func (w *world) answerAll() {
	for name, api := range w.callers {
		for callee := range w.callees {
			var open struct{ Data []struct{ ID string } }
			if api.Call(w.ctx, "GET", "/v1/agents/"+callee+"/tasks?state=input_required&limit=100", nil, &open) != nil {
				continue // next time
			}
			for i, t := range open.Data {
				c := &caller{w: w, name: name, api: api, prefix: fmt.Sprintf("answer-%s-%s-%d", name, t.ID, i)}
				c.message(t.ID, callee)
			}
		}
	}
}

// insist makes a request until there is a definite answer: the hub may be dead, or
// about to die, and then the outcome is unknown. ok is false if whoever asks was killed.
func (w *world) insist(asking context.Context, api *hubproc.Client, method, path string, body any, header ...string) (a hubproc.Answer, ok bool) {
	for asking.Err() == nil {
		ctx, cancel := context.WithTimeout(asking, 20*time.Second)
		a, err := api.Do(ctx, method, path, body, header...)
		cancel()
		switch {
		case err != nil || a.Status == 429 || a.Status == 502 || a.Status == 503:
			w.ledger.count("repeated")
			w.pause(10 * time.Millisecond)
		case a.Status >= 500:
			w.problem("%s %s: %d %s", method, path, a.Status, a.Body)
			return a, true
		default:
			return a, true
		}
	}
	return a, false
}

// pause waits, unless the run is given up.
func (w *world) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

func (w *world) isQuiet() bool {
	select {
	case <-w.quiet:
		return true
	case <-w.ctx.Done():
		return true
	default:
		return false
	}
}

func (w *world) isOver() bool {
	select {
	case <-w.over:
		return true
	case <-w.ctx.Done():
		return true
	default:
		return false
	}
}

// problem notes that an invariant does not hold.
func (w *world) problem(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf(format, args...)
}

func (w *world) report(when string, problems []string) {
	w.t.Helper()
	const most = 20
	for i, p := range problems {
		if i == most {
			w.t.Errorf("%s: and %d more", when, len(problems)-most)
			break
		}
		w.t.Errorf("%s: %s", when, p)
	}
}

func (w *world) summary(faults string) {
	w.t.Logf("%s, seed %d: %s, %d operations in the history", faults, w.seed, w.ledger.summary(), w.history.len())
}
