package storetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// loanPair is the same loan from the model and from the store.
type loanPair struct{ model, store hub.PushJob }

func (p loanPair) of(w *walk, s hub.Store) hub.PushJob {
	if s == w.s {
		return p.store
	}
	return p.model
}

// compareAsOf compares a task as it was at some earlier event.
func (w *walk) compareAsOf(ref hub.TaskRef, seq int64) {
	w.Helper()
	load := whole()
	load.AsOf = 1 + w.r.Int64N(seq)
	want, wantErr := w.m.Task(w.ctx, ref, everything(), load)
	got, gotErr := w.s.Task(w.ctx, ref, everything(), load)
	if d := cmp.Diff(want, got, lenient); d != "" || kindOf(wantErr) != kindOf(gotErr) {
		w.fail("step %d: task %s as of event %d differs; errors: want %v, got %v\n(-want +got)\n%s", w.steps, ref.ID, load.AsOf, wantErr, gotErr, d)
	}
}

// config is a new configuration with an id that may be taken.
func (w *walk) config() *hub.PushConfig {
	c := config(pick(w.r, "a", "b", "c"))
	c.URL += fmt.Sprint("/", w.steps)
	if w.r.IntN(3) == 0 {
		c.Sealed = nil
	}
	return &c
}

// pushStep takes one random step that has to do with push notifications.
func (w *walk) pushStep() {
	switch n := w.r.IntN(20); {
	case n < 3:
		id, by, c := w.whose()
		w.both("put configuration "+c.ID+" of "+id, id, func(s hub.Store) (any, error) {
			return s.PutPush(w.ctx, hub.TaskRef{ID: id}, by, *c, w.limits())
		})
	case n < 4:
		id, by, c := w.whose()
		w.both("delete configuration "+c.ID+" of "+id, id, func(s hub.Store) (any, error) {
			return s.DeletePush(w.ctx, hub.TaskRef{ID: id}, by, c.ID)
		})
	case n < 10:
		w.lend()
	case n < 18:
		w.settle()
	case n < 19:
		w.redeliver()
	default:
		if w.r.IntN(10) == 0 {
			w.both("release the loans", "", func(s hub.Store) (any, error) { return nil, s.ReleasePushes(w.ctx) })
		}
	}
}

// whose gives a task, mostly with who sent it, and a configuration.
func (w *walk) whose() (id string, by hub.Viewer, c *hub.PushConfig) {
	id, by = w.recent(), only(w.eve)
	if t := w.m.find(id); t != nil && w.r.IntN(6) > 0 {
		by.Address = pick(w.r, t.Caller.ID, t.Caller.ID, t.Caller.ID, t.Caller.ID, t.Callee.ID)
	}
	return id, by, w.config()
}

func (w *walk) lend() {
	loan := pick(w.r, 5*time.Second, time.Minute, time.Hour)
	jobs := map[bool][]hub.PushJob{}
	w.both("lend", "", func(s hub.Store) (any, error) {
		list, next, err := s.LendPushes(w.ctx, 1000, loan)
		slices.SortFunc(list, func(a, b hub.PushJob) int {
			return strings.Compare(a.Config.Task+a.Config.ID, b.Config.Task+b.Config.ID)
		})
		jobs[s == w.s] = list
		return []any{list, next}, err
	})
	for i, j := range jobs[false] {
		w.loans = append(w.loans, loanPair{j, jobs[true][i]})
	}
}

// settle settles a loan, mostly one of late.
func (w *walk) settle() {
	if len(w.loans) == 0 {
		return
	}
	i := len(w.loans) - 1 - w.r.IntN(min(10, len(w.loans)))
	pair := w.loans[i]
	if w.r.IntN(4) > 0 {
		w.loans = slices.Delete(w.loans, i, i+1)
	}
	events := pair.model.Events
	o := hub.PushOutcome{}
	if n := w.r.IntN(len(events) + 1); n > 0 {
		o.Done = events[n-1].Seq
	}
	if w.r.IntN(3) == 0 {
		o.Error, o.GiveUp = fmt.Sprint("refused ", w.steps), w.r.IntN(2) == 0
	}
	if w.r.IntN(3) > 0 {
		o.Retry = pick(w.r, time.Second, 20*time.Second, 10*time.Minute)
	}
	task := pair.model.Config.Task
	w.both(fmt.Sprintf("settle %s of %s: %+v", pair.model.Config.ID, task, o), task, func(s hub.Store) (any, error) {
		return nil, s.SettlePush(w.ctx, pair.of(w, s), o)
	})
}

// redeliver takes up a failed notification, now and then for a stranger.
func (w *walk) redeliver() {
	at, by := w.r.IntN(8), everything()
	if w.r.IntN(3) == 0 {
		by = only(pick(w.r, w.ann, w.bob, w.eve))
	}
	w.both(fmt.Sprint("redeliver failure ", at), "", func(s hub.Store) (any, error) {
		list, _, err := s.PushFailures(w.ctx, everything(), "", "", 8)
		if err != nil || at >= len(list) {
			return len(list), err
		}
		return s.Redeliver(w.ctx, by, list[at].ID)
	})
}
