package sqlite

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// batchMax bounds how many transitions share a transaction, so that the first of
// them does not wait long for the last.
const batchMax = 256

var errClosed = hub.Errorf(hub.Unavailable, "the hub is shutting down; try again")

// tx is a transition's view of the writer's transaction.
type tx struct {
	*conn
	s   *Store
	now time.Time
	// wrote: there is something to undo if the transition fails.
	wrote bool
	// keep what was written although the transition was refused.
	keep bool
	// probe: it wrote enough to know that the disk takes writes again.
	probe bool
}

// exec and insert shadow conn's to note that something was written.
func (t *tx) exec(sql string, args ...any) (int, error) {
	t.wrote = true
	return t.conn.exec(sql, args...)
}

func (t *tx) insert(sql string, args ...any) (int64, error) {
	t.wrote = true
	return t.conn.insert(sql, args...)
}

// op is one transition on its way through the writer.
type op struct {
	run  func(*tx) error
	err  error
	done chan struct{}
	// gone: nobody waits for it any more; it is dropped unless it has begun.
	gone atomic.Bool
}

// write runs f in the writer's next transaction and waits for the commit.
func (s *Store) write(ctx context.Context, f func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	o := &op{run: f, done: make(chan struct{})}
	s.closing.RLock()
	if s.closed {
		s.closing.RUnlock()
		return errClosed
	}
	select {
	case s.ops <- o:
		s.closing.RUnlock()
	case <-ctx.Done():
		s.closing.RUnlock()
		return ctx.Err()
	}
	select {
	case <-o.done:
		return storeError(o.err)
	case <-ctx.Done():
		o.gone.Store(true)
		return ctx.Err()
	}
}

// write runs a transition that gives something. What it gives is its own until the
// commit is known: a caller that stops waiting shares nothing with it.
func write[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (T, error) {
	var out, none T
	err := s.write(ctx, func(t *tx) (err error) {
		out, err = f(t)
		return err
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

// writeLoop is the writer. It ends when ops is closed and drained.
func (s *Store) writeLoop() {
	defer close(s.written)
	batch := make([]*op, 0, batchMax)
	for o := range s.ops {
		batch = append(batch[:0], o)
		batch = s.gather(batch)
		began := time.Now()
		s.commit(batch)
		for _, o := range batch {
			close(o.done)
		}
		if s.opt.Observe != nil {
			s.opt.Observe(len(batch), time.Since(began))
		}
	}
}

// gather adds what else waits already, and what comes from those who are just about
// to run: whom the last commit woke.
func (s *Store) gather(batch []*op) []*op {
	runtime.Gosched()
	for len(batch) < batchMax {
		select {
		case o, ok := <-s.ops:
			if !ok {
				return batch
			}
			batch = append(batch, o)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch in one transaction, and leaves with each transition what
// became of it.
//
// Transitions refuse before they write, so that a refusal leaves nothing to undo.
// One that fails later than that, which takes a bug or a failing database, undoes the
// whole transaction; then each gets one of its own. That is rare, whereas a savepoint
// around each costs 15 % of all that the writer does (measured).
func (s *Store) commit(batch []*op) {
	if errors.Is(s.transact(batch), errUndo) {
		for i := range batch {
			_ = s.transact(batch[i : i+1]) // the transition has its error
		}
	}
}

// errUndo says that a transition failed after it had written.
var errUndo = errors.New("a transition has to be undone")

// transact runs transitions in one transaction and says what became of it. With an
// error nothing was kept; each transition has that error then, unless it is errUndo.
func (s *Store) transact(batch []*op) (err error) {
	probed := false
	defer func() {
		if err == nil {
			if probed {
				s.unhealthy.Store(errorBox{})
			}
			return
		}
		// The transaction may be gone already; either way none is left open.
		_, _ = s.w.exec("ROLLBACK")
		s.keyMemory.undone()
		if !errors.Is(err, errUndo) {
			err = hub.Wrap(hub.Unavailable, fmt.Errorf("transaction of %d transitions: %w", len(batch), err), unavailableMessage)
			s.unhealthy.Store(errorBox{err})
			for _, o := range batch {
				o.err = err
			}
		}
	}()
	if _, err := s.w.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	for _, o := range batch {
		if o.gone.Load() {
			o.err = context.Canceled
			continue
		}
		t := &tx{conn: s.w, s: s, now: s.opt.Now().Truncate(time.Millisecond).UTC()}
		o.err = protect(o.run, t)
		probed = probed || t.probe
		switch {
		case broken(o.err):
			return o.err
		case s.w.c.AutocommitEnabled():
			return errors.Join(o.err, errors.New("SQLite has undone the whole transaction by itself"))
		case o.err != nil && t.wrote && !t.keep:
			return errUndo
		}
	}
	if err := s.keyMemory.move(s.w, len(batch)); err != nil {
		return err
	}
	if _, err := s.w.exec("COMMIT"); err != nil {
		return err
	}
	s.keyMemory.committed()
	return nil
}

// protect keeps a bug in one transition from taking the writer down with it.
func protect(f func(*tx) error, t *tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a transition: %v\n%s", p, debug.Stack())
		}
	}()
	return f(t)
}

// errorBox lets an atomic.Value hold a nil error.
type errorBox struct{ err error }
