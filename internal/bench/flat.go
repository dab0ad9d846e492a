package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

const (
	fewTasks  = 1_000
	sliceSize = 256 // transitions of a kind in one slice, which share a few commits
)

// flat measures the store alone: what it costs to accept, claim and complete a task
// with a million ready ones against a thousand. The thousand came through the store's
// own Send, and the million are copies of such.
func flat(ctx context.Context, r *run) (err error) {
	few, err := r.openLoaded(ctx, fewTasks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, few.close()) }()
	many, err := r.openLoaded(ctx, r.Tasks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, many.close()) }()
	return r.compareBeds(ctx, few, many, "")
}

// compareBeds measures slices on two stores in turns.
func (r *run) compareBeds(ctx context.Context, few, many *storeBed, on string) error {
	beds := []*storeBed{few, many}
	var costs [2][3][]float64 // µs per transition
	slices := r.slices()
	for n := -1; n < slices; n++ { // one to warm up
		for k := range beds {
			i := (n + 1 + k) % 2 // who begins takes turns
			cost, err := beds[i].slice(ctx)
			if err != nil {
				return err
			}
			if n < 0 {
				continue
			}
			for kind, c := range cost {
				costs[i][kind] = append(costs[i][kind], c)
			}
		}
	}
	for kind, what := range []string{"accept", "claim", "reply"} {
		row := Row{
			What: fmt.Sprintf("%s%s with %d ready tasks (store, groups of %d)", on, what, r.Tasks, sliceSize), Unit: "µs",
			Measured: median(costs[1][kind]), Baseline: median(costs[0][kind]), Against: fmt.Sprintf("with %d", fewTasks),
			Ratio: true, Bar: 1.2, Stretch: 1.05, Less: true,
		}
		r.add(row)
	}
	return nil
}

func (r *run) slices() int {
	if r.Short {
		return 10
	}
	return 100
}

// storeBed is a store with one callee and a few callers.
type storeBed struct {
	dir     string
	s       hub.Store
	callee  string
	callers []string
	sent    atomic.Int64
}

// openLoaded opens a new store with n ready tasks.
func (r *run) openLoaded(ctx context.Context, n int) (*storeBed, error) {
	dir, err := os.MkdirTemp(r.Dir, "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	b := &storeBed{dir: dir}
	if err := b.open(ctx, r, n); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *storeBed) open(ctx context.Context, r *run, n int) (err error) {
	data := filepath.Join(b.dir, "data")
	if b.s, err = sqlite.Open(ctx, sqlite.Options{Dir: data}); err != nil {
		return err
	}
	if err := b.load(ctx, min(n, fewTasks)); err != nil || n <= fewTasks {
		return err
	}
	r.progress("loading %d tasks", n)
	if err := b.s.Close(); err != nil {
		return err
	}
	if err := multiply(data, n); err != nil {
		return fmt.Errorf("load %d tasks: %w", n, err)
	}
	b.s, err = sqlite.Open(ctx, sqlite.Options{Dir: data})
	return err
}

func (b *storeBed) close() error {
	var err error
	if b.s != nil {
		err = b.s.Close()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// load makes the addresses and sends n tasks.
func (b *storeBed) load(ctx context.Context, n int) error {
	for i := range 1 + callerAddresses {
		a := hub.Address{
			ID: newID(), Handle: "agent-" + strconv.Itoa(i), Kind: hub.KindAgent, Access: hub.Open,
			MaxRedeliveries: -1, OnUnknown: "resend", CreatedAt: time.Now(),
		}
		if err := b.s.CreateAddress(ctx, a); err != nil {
			return err
		}
		b.callers = append(b.callers, a.ID)
	}
	b.callee, b.callers = b.callers[0], b.callers[1:]
	return atOnce(n, sliceSize, b.send(ctx))
}

// slice accepts, claims and completes some tasks, and gives the cost of each of the
// three in µs. The number of ready tasks is the same afterwards.
func (b *storeBed) slice(ctx context.Context) (cost [3]float64, err error) {
	claimed := make([]*hub.Task, sliceSize)
	claim := func(i int) error {
		got, err := b.s.Claim(ctx, b.callee, hub.ClaimSpec{Lease: time.Hour})
		if claimed[i] = got.Task; err == nil && got.Task == nil {
			err = errors.New("nothing was ready")
		}
		return err
	}
	for kind, f := range []func(int) error{b.send(ctx), claim, b.complete(ctx, claimed)} {
		began := time.Now()
		if err := atOnce(sliceSize, sliceSize, f); err != nil {
			return cost, err
		}
		cost[kind] = float64(time.Since(began).Nanoseconds()) / 1e3 / sliceSize
	}
	return cost, nil
}

func (b *storeBed) send(ctx context.Context) func(int) error {
	limits := hub.DefaultLimits()
	limits.OpenTasks = 1 << 30
	return func(int) error {
		n := b.sent.Add(1)
		text := strconv.FormatInt(n, 10)
		_, err := b.s.Send(ctx, hub.Send{
			Caller: b.callers[n%int64(len(b.callers))], Callee: b.callee, TaskID: newID(), ContextID: newID(),
			Message: []byte(`{"messageId":"` + text + `","role":"ROLE_USER","parts":[{"text":"hello"}]}`),
			Key:     &hub.Key{Hash: sha256.Sum256([]byte(text)), Fingerprint: sha256.Sum256([]byte("f" + text))},
			Limits:  limits,
		})
		return err
	}
}

func (b *storeBed) complete(ctx context.Context, claimed []*hub.Task) func(int) error {
	return func(i int) error {
		_, err := b.s.Report(ctx, hub.Report{
			Callee: b.callee, Task: claimed[i].ID, Attempt: claimed[i].Attempt, State: hub.Completed,
			Events: []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", Body: []byte(`{"artifactId":"a","parts":[{"text":"done"}]}`)}},
			Digest: sha256.Sum256([]byte(claimed[i].ID)), Limits: hub.DefaultLimits(),
		})
		return err
	}
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// atOnce calls f with 0 to n-1, width of them at a time.
func atOnce(n, width int, f func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Value
	var wg sync.WaitGroup
	for range min(n, width) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() == nil; i = next.Add(1) - 1 {
				if err := f(int(i)); err != nil {
					failed.Store(err)
				}
			}
		})
	}
	wg.Wait()
	err, _ := failed.Load().(error)
	return err
}
