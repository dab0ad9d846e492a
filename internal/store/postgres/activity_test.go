package postgres

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// old begins a transaction of a replica that has locked a task already, so that its number
// is older than those of all that begin after it.
func old(t *testing.T, s *Store, task string) *tx {
	t.Helper()
	c, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Release)
	x := newTx(t.Context(), s, c.Conn())
	if err := x.prefetch(&plan{tasks: []uuid.UUID{uuid.MustParse(task)}}); err != nil {
		t.Fatal(err)
	}
	return x
}

// linesOf gives what the feed tells of a task.
func linesOf(t *testing.T, s *Store, task string) (lines []string) {
	t.Helper()
	for _, l := range feed(t, s, "") {
		if l.Task == task {
			lines = append(lines, fmt.Sprint(l.Kind, " ", l.Seq))
		}
	}
	return lines
}

// Whichever transaction began first: what happened to a task later stands later.
func TestTheFeedTellsOfATaskInTheOrderInWhichItHappened(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	ann, dev, ops := address(t, s, "ann"), address(t, s, "dev"), address(t, s, "ops")
	send := func(callee string) string {
		t.Helper()
		sent, err := s.Send(t.Context(), newSend(ann, callee))
		if err != nil {
			t.Fatal(err)
		}
		return sent.Task.ID
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	callee, err := s.parties.n(t.Context(), dev)
	must(err)
	// The older a transaction is, the later it does something to the task.
	ends, claims := old(t, s, send(ops)), old(t, s, send(ops))
	task := send(dev)
	got, err := claims.claim(callee, hub.ClaimSpec{Lease: time.Minute})
	must(err)
	if got.Task == nil || got.Task.ID != task {
		t.Fatalf("the claim got %+v", got.Task)
	}
	must(claims.commit())
	report := completed(got.Task)
	_, err = ends.report(&report)
	must(err)
	must(ends.commit())
	if lines, want := linesOf(t, s, task), []string{"sent 1", "claimed 2", "completed 3"}; !slices.Equal(lines, want) {
		t.Errorf("the feed tells %q, want %q", lines, want)
	}
}

// stepper writes lines of a few tasks in transactions of any age, as fast as it can.
type stepper struct {
	s     *Store
	tasks []string // in the order in which they are locked
	r     *rand.Rand
}

var errGivenUp = errors.New("given up")

// step adds a line to each of two tasks, after a pause in between, or to none.
func (w *stepper) step(t *testing.T) error {
	c, err := w.s.pool.Acquire(t.Context())
	if err != nil {
		return err
	}
	defer c.Release()
	defer w.s.rollback(c.Conn())
	x := newTx(t.Context(), w.s, c.Conn())
	if err := x.prefetch(&plan{}); err != nil {
		return err
	}
	first := w.r.IntN(len(w.tasks) - 1)
	for i, id := range []string{w.tasks[first], w.tasks[first+1+w.r.IntN(len(w.tasks)-first-1)]} {
		h, err := x.head(id)
		if err != nil {
			return err
		}
		h.Seq++
		x.save(h)
		x.log(h, "step", actorHub, "")
		if i == 0 || w.r.IntN(2) == 0 {
			x.exec("SELECT pg_sleep($1::bigint / 1000.0)", w.r.IntN(5))
		}
		if w.r.IntN(10) == 0 {
			return errGivenUp
		}
	}
	return x.commit()
}

// A follower sees each line once, and those of a task in their order, whatever else goes on.
func TestAFollowerSeesEachLineOnceAndInOrder(t *testing.T) {
	s := replicas(t, 1, Options{})[0]
	s.horizonPatience = 0 // it follows as closely as it can
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	var tasks []string
	for range 5 {
		sent, err := s.Send(t.Context(), newSend(ann, dev))
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, sent.Task.ID)
	}
	var writers sync.WaitGroup
	for i := range 8 {
		w := &stepper{s: s, tasks: tasks, r: rand.New(rand.NewPCG(uint64(i), 1))}
		writers.Go(func() {
			for range 50 {
				if err := w.step(t); err != nil && !errors.Is(err, errGivenUp) {
					t.Errorf("write: %v", err)
					return
				}
			}
		})
	}
	written := make(chan struct{})
	go func() {
		writers.Wait()
		close(written)
	}()
	seen, after := map[string]int64{}, ""
	read := func(limit int) (more bool) {
		p, err := s.Activity(t.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, After: after, Limit: limit})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range p.Lines {
			if l.Seq != seen[l.Task]+1 {
				t.Errorf("line %d of %s comes after line %d", l.Seq, l.Task, seen[l.Task])
			}
			seen[l.Task] = l.Seq
		}
		after = p.Next
		return len(p.Lines) > 0
	}
	for busy := true; busy && !t.Failed(); {
		select {
		case <-written:
			busy = false
		default:
			read(7)
		}
	}
	<-written
	s.horizonPatience = time.Second
	for read(100) {
	}
	for _, id := range tasks {
		k, err := s.Task(t.Context(), hub.TaskRef{ID: id}, hub.Viewer{All: true}, hub.Load{})
		if err != nil || k.Seq != seen[id] || k.Seq < 10 {
			t.Errorf("the follower saw %d lines of a task that has %+v, error %v", seen[id], k, err)
		}
	}
}
