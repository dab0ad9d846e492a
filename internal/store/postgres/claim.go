package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// readyList is the head of a callee's ready order, locked: what was there when the
// transaction began, and what has become ready in it.
type readyList struct {
	list []*head
	// front: from the very front of the order.
	front bool
	// full: there may be more behind the last that was read, at rank and n.
	full    bool
	rank, n int64
}

// readySQL reads and locks the first ready tasks of a callee ($1), $2 of them, that
// nobody else has locked. Both rows are locked, so that both are as they were committed
// last. None stands below the floor, unless somebody else had it locked or another replica
// accepted it meanwhile, which is why $4 begins somewhat lower; to begin there skips what is
// left of those that were claimed and not yet cleaned away. $3 begins at the very front.
const readySQL = "SELECT " + headColumns + ", NULL::bytea" + floorColumn + `FROM queue q JOIN task t ON t.id = q.task
	WHERE q.callee = $1 AND q.rank IS NOT NULL AND
		q.rank >= CASE WHEN $3::boolean THEN 0 ELSE coalesce((SELECT m.floor FROM mailbox m WHERE m.callee = $1), 0) - $4::bigint END
	ORDER BY q.rank, q.n LIMIT $2 FOR UPDATE OF q, t SKIP LOCKED`

// replicaSlack is by how many ranks the floor may rise while another replica accepts a
// task, which then stands below it.
const replicaSlack = 128

func (s *Store) floorSlack() int64 {
	if s.peers.Load() {
		return replicaSlack
	}
	return 0
}

// readReady has the first n ready tasks of a callee read.
func (t *tx) readReady(callee int64, n int, front bool) {
	l := &readyList{front: front}
	t.ready[callee] = l
	if front {
		t.s.lookedInFront(callee, 0)
	}
	t.later(readySQL, []any{callee, n, front, t.s.floorSlack()}, func(r row) error {
		h := t.know(r)
		h.locked = true
		l.list = append(l.list, h)
		l.full, l.rank, l.n = len(l.list) == n, h.rank, h.n
		return nil
	})
}

// front is when and at what cost a callee's order was last looked at from the very front.
type front struct {
	at   time.Time
	took time.Duration
}

const (
	// frontEvery is how often that is done at least, if anybody claims.
	frontEvery = time.Second
	// frontShare bounds what of the time is spent on it: one part in so many.
	frontShare = 20
)

// fromFront reports whether it is time to look at a callee's order from the front.
func (s *Store) fromFront(callee int64, every time.Duration) bool {
	last, ok := s.fronts.Load(callee)
	if !ok {
		return true
	}
	f := last.(front)
	return time.Since(f.at) >= max(every, frontShare*f.took)
}

// lookedInFront notes such a look, and what it took if that is known.
func (s *Store) lookedInFront(callee int64, took time.Duration) {
	if last, ok := s.fronts.Load(callee); ok && took == 0 {
		took = last.(front).took
	}
	s.fronts.Store(callee, front{time.Now(), took})
}

// becameReady notes that a task is ready since a transition of this transaction.
func (t *tx) becameReady(h *head) {
	t.changed.mailbox(h.Callee.ID)
	if l := t.ready[h.callee]; l != nil {
		l.list = append(l.list, h)
	}
}

// before orders ready tasks.
func before(a, b *head) bool {
	return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.n, b.n)) < 0
}

// first is the first task of the list that is ready; nil if there is none, or if one
// that was not read may stand before it.
func (l *readyList) first() (first *head) {
	for _, h := range l.list {
		if h.ranked && h.Phase == hub.Ready && (first == nil || before(h, first)) {
			first = h
		}
	}
	if first != nil && l.full && before(&head{rank: l.rank, n: l.n}, first) {
		return nil
	}
	return first
}

func (t *tx) firstReady(callee int64) (*head, error) {
	l := t.ready[callee]
	if l == nil || (l.first() == nil && l.full) {
		t.readReady(callee, 1, t.s.fromFront(callee, frontEvery))
		t.readClock(false)
		if err := t.flush(); err != nil {
			return nil, err
		}
		l = t.ready[callee]
	}
	if l.first() == nil && !l.front && t.s.fromFront(callee, 0) {
		began := time.Now()
		t.readReady(callee, 1, true)
		t.readClock(false)
		if err := t.flush(); err != nil {
			return nil, err
		}
		l = t.ready[callee]
		t.s.lookedInFront(callee, time.Since(began))
	}
	return l.first(), t.nameAll()
}

// Claim implements hub.Transitions.
func (s *Store) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (hub.Claimed, error) {
	n, err := s.parties.n(ctx, callee)
	if err != nil {
		return hub.Claimed{}, storeError(ctx, err)
	}
	return write(ctx, s, needs{claim: n}, func(t *tx) (hub.Claimed, error) { return t.claim(n, c) })
}

// claim gives the first ready task of a callee to it, if there is one. One that was
// handed out too often, to be given back each time, fails instead.
func (t *tx) claim(callee int64, c hub.ClaimSpec) (out hub.Claimed, err error) {
	for {
		h, err := t.firstReady(callee)
		if err != nil || h == nil {
			return out, err
		}
		if c.Attempts <= 0 || h.Handouts() < c.Attempts {
			out.Task, err = t.take(h, c)
			return out, err
		}
		if err := t.fail(h, fmt.Sprintf("the task was handed out %d times and nobody did it", h.Handouts())); err != nil {
			return out, err
		}
		out.Failed = append(out.Failed, h.ID)
	}
}

// take gives a ready task to its callee.
func (t *tx) take(h *head, c hub.ClaimSpec) (*hub.Task, error) {
	f, err := t.floor(h.callee)
	if err != nil {
		return nil, err
	}
	if h.rank > f.at {
		f.at, f.dirty = h.rank, true
	}
	h.leaseFor, h.provisional = c.Lease, c.Ack > 0
	if h.provisional {
		h.lease(t.now, c.Ack)
	} else {
		h.lease(t.now, c.Lease)
	}
	h.Attempt++
	h.open, h.seen, h.ClaimedAt = true, h.Messages, t.now
	if h.State != hub.Working {
		t.setStatus(h, hub.Event{State: hub.Working})
	}
	t.save(h)
	t.saveQueue(h)
	t.log(h, hub.ActClaimed, h.callee, "")
	out := t.whole(h)
	if c.Dispatch != nil && h.Handouts() == 1 {
		asked := t.asked
		t.noteDispatch(h, c.Dispatch, &out.Dispatched)
		t.asked = asked // who has claimed it can begin the dispatch once more
	}
	return out, nil
}

// whole is the task with all that is its, for its holder; it is complete once the
// transaction is committed.
func (t *tx) whole(h *head) *hub.Task {
	asked := t.asked
	out := t.view(h)
	switch {
	case h.Messages == 1 && h.first != nil:
		out.History = []hub.Message{{N: 1, Body: h.first}}
	case h.Messages == 1: // most tasks, most of the time
		t.firsts[h.id] = append(t.firsts[h.id], out)
	default:
		loadHistory(t.conn, h, out, -1)
	}
	fold := loadArtifacts(t.conn, h, out)
	t.folds = append(t.folds, fold)
	t.wholes = append(t.wholes, claimedWhole{h, out})
	t.asked = asked // readWholes can ask again
	return out
}

// claimedWhole is a task that was claimed, which is read with the commit.
type claimedWhole struct {
	h   *head
	out *hub.Task
}

// readWholes reads what was claimed once more, because what came with the commit is lost.
func (s *Store) readWholes(ctx context.Context, claimed []claimedWhole) error {
	if len(claimed) == 0 {
		return nil
	}
	return s.read(ctx, func(c *conn) error {
		var folds []func() error
		for _, w := range claimed {
			w.out.History = nil
			loadStatus(c, w.h, w.out)
			loadHistory(c, w.h, w.out, -1)
			folds = append(folds, loadArtifacts(c, w.h, w.out))
		}
		err := c.flush()
		for _, fold := range folds {
			err = errors.Join(err, fold())
		}
		return err
	})
}

// Release implements hub.Transitions.
func (s *Store) Release(ctx context.Context, callee, task string, attempt int) error {
	return s.write(ctx, needs{tasks: []string{task}}, func(t *tx) error {
		h, err := t.heldBy(task, callee, attempt)
		if err != nil {
			return err
		}
		if err := t.offer(h); err != nil {
			return err
		}
		t.closeAttempt(h, attemptReleased, nil)
		t.saveQueue(h)
		t.log(h, hub.ActReleased, actorHub, "")
		return nil
	})
}

// heldBy gives the task that a claim of the callee holds, for a change.
func (t *tx) heldBy(task, callee string, attempt int) (*head, error) {
	h, err := t.findFor(task, callee)
	switch {
	case err != nil:
		return nil, err
	case h == nil:
		return nil, hub.ErrTaskNotFound()
	case attempt < 1 || attempt > h.Attempt:
		return nil, hub.ErrNoSuchClaim()
	case h.Phase != hub.Leased || h.Attempt != attempt || !h.open:
		return nil, hub.ErrClaimLapsed()
	}
	return h, nil
}

// Lose implements hub.Transitions.
func (s *Store) Lose(ctx context.Context, l hub.Loss) (*hub.Task, error) {
	return write(ctx, s, needs{tasks: []string{l.Task}}, func(t *tx) (*hub.Task, error) {
		h, err := t.heldBy(l.Task, l.Callee, l.Attempt)
		if err != nil {
			return nil, err
		}
		err = t.lost(h, l.Limits, loss{
			outcome: attemptLost, kind: hub.ActLost, detail: l.Reason, after: l.After,
			end: func() string {
				return fmt.Sprintf("the task was delivered %d times in vain; the last time, %s", h.Failures, l.Reason)
			},
		})
		if err != nil {
			return nil, err
		}
		return t.view(h), nil
	})
}

// newest is the number of a task that was accepted just now: later than all that were
// read.
func (t *tx) newest() int64 {
	t.accepted++
	return math.MaxInt64 - 1<<32 + t.accepted
}
