package sqlite

import (
	"context"
	"errors"
	"fmt"
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
	// saved: this transition has its savepoint, which it gets with its first write.
	saved bool
	// keep what was written although the transition was refused.
	keep bool
}

// exec and insert shadow conn's to open the savepoint first.
func (t *tx) exec(sql string, args ...any) (int, error) {
	if err := t.save(); err != nil {
		return 0, err
	}
	return t.conn.exec(sql, args...)
}

func (t *tx) insert(sql string, args ...any) (int64, error) {
	if err := t.save(); err != nil {
		return 0, err
	}
	return t.conn.insert(sql, args...)
}

func (t *tx) save() error {
	if t.saved {
		return nil
	}
	t.saved = true
	_, err := t.conn.exec("SAVEPOINT op")
	return err
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
		err := s.commit(batch)
		s.unhealthy.Store(errorBox{err})
		for _, o := range batch {
			if err != nil {
				o.err = err
			}
			close(o.done)
		}
		if s.opt.Observe != nil {
			s.opt.Observe(len(batch), time.Since(began))
		}
	}
}

// gather adds what else waits already.
func (s *Store) gather(batch []*op) []*op {
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

// commit runs a batch in one transaction. Its error concerns the whole batch, of
// which then nothing was kept.
func (s *Store) commit(batch []*op) (err error) {
	defer func() {
		if err != nil {
			// The transaction may be gone already; either way none is left open.
			_, _ = s.w.exec("ROLLBACK")
			err = hub.Wrap(hub.Unavailable, fmt.Errorf("transaction of %d transitions: %w", len(batch), err), unavailableMessage)
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
		if err := s.runOne(o); err != nil {
			return err
		}
	}
	_, err = s.w.exec("COMMIT")
	return err
}

// runOne runs one transition in its savepoint. Its own failure is the
// transition's; only a transaction that cannot go on is an error here.
func (s *Store) runOne(o *op) error {
	t := &tx{conn: s.w, s: s, now: s.opt.Now().Truncate(time.Millisecond).UTC()}
	o.err = protect(o.run, t)
	if broken(o.err) {
		return o.err
	}
	if s.w.c.AutocommitEnabled() {
		return errors.Join(o.err, errors.New("SQLite has undone the whole transaction by itself"))
	}
	if !t.saved {
		return nil
	}
	if o.err != nil && !t.keep {
		if _, err := s.w.exec("ROLLBACK TO op"); err != nil {
			return errors.Join(o.err, err)
		}
	}
	_, err := s.w.exec("RELEASE op")
	return err
}

// protect keeps a bug in one transition from taking the writer down with it.
func protect(f func(*tx) error, t *tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a transition: %v", p)
		}
	}()
	return f(t)
}

// errorBox lets an atomic.Value hold a nil error.
type errorBox struct{ err error }
