package postgres

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// batchMax bounds how many transitions share a transaction, so that the first of
// them does not wait long for the last.
const batchMax = 256

// op is one transition on its way through the writer.
type op struct {
	needs needs
	run   func(*tx) error
	err   error
	done  chan struct{}
	// gone: nobody waits for it any more; it is dropped unless it has begun.
	gone atomic.Bool
	// asked is before which round trip something was asked for last that its answer needs,
	// and is not in that without it; 0 if nothing was.
	asked int
}

// write runs f in the writer's next transaction and waits for the commit.
func (s *Store) write(ctx context.Context, n needs, f func(*tx) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o := &op{needs: n, run: f, done: make(chan struct{})}
	s.closing.RLock()
	if s.closed {
		s.closing.RUnlock()
		return errClosed()
	}
	select {
	case s.ops <- o:
		s.closing.RUnlock()
	case <-ctx.Done():
		s.closing.RUnlock()
		return gone(ctx)
	}
	select {
	case <-o.done:
		return storeError(context.Background(), o.err)
	case <-ctx.Done():
		o.gone.Store(true)
		return gone(ctx)
	}
}

// write runs a transition that gives something. What it gives is its own until the
// commit is known: a caller that stops waiting shares nothing with it.
func write[T any](ctx context.Context, s *Store, n needs, f func(*tx) (T, error)) (T, error) {
	var out, none T
	err := s.write(ctx, n, func(t *tx) (err error) {
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
		batch = s.gather(append(batch[:0], o))
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

// triesMax is how often a transition is tried that meets others.
const triesMax = 5

// commit runs a batch in one transaction, and leaves with each transition what
// became of it. If the transaction fails for what one of them did, or met, each gets
// one of its own: savepoints around them would cost a round trip each.
func (s *Store) commit(batch []*op) {
	err := s.transact(batch)
	if !again(err) {
		settle(batch, err)
		return
	}
	for i := range batch {
		one := batch[i : i+1]
		err := s.transact(one)
		for try := 1; conflicted(err) && try < triesMax; try++ {
			err = s.transact(one)
		}
		settle(one, err)
	}
}

// settle gives the error of a transaction to its transitions; one that failed by itself
// keeps its own.
func settle(batch []*op, err error) {
	if err == nil || errors.Is(err, errUndo) {
		return
	}
	for _, o := range batch {
		o.err = err
	}
}

// errUndo says that a transition failed after it had written.
var errUndo = errors.New("a transition has to be undone")

// again reports whether what failed together may succeed apart.
func again(err error) bool {
	return err != nil && (errors.Is(err, errUndo) || conflicted(err) || !broken(err))
}

// transact runs transitions in one transaction and says what became of it. With an
// error nothing was kept, or nobody knows: see unknown.
func (s *Store) transact(batch []*op) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.opt.Patience)
	defer cancel()
	pc, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.noteHealth(unavailable(err))
	}
	defer pc.Release()
	t := newTx(ctx, s, pc.Conn())
	t.until, _ = ctx.Deadline()
	if err := t.all(batch); err != nil {
		s.rollback(pc.Conn())
		if broken(err) && !conflicted(err) {
			return s.noteHealth(unavailable(err))
		}
		return err
	}
	if err := t.commit(); err != nil {
		s.rollback(pc.Conn())
		if !rejected(err) {
			pc.Release() // there may be no other
			err = s.afterCommit(t, batch, err)
		}
		if err != nil {
			return s.noteHealth(err)
		}
	}
	_ = s.noteHealth(nil)
	s.changes.add(&t.changed)
	return nil
}

// noteHealth remembers whether the last transaction found the database well: an error that
// is not the hub's own says nothing about that.
func (s *Store) noteHealth(err error) error {
	var e *hub.Error
	if err != nil {
		errors.As(err, &e)
	}
	s.unhealthy.Store(e)
	return err
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

// solo runs a transition in a transaction of its own, beside the writer: what takes
// long, or locks nothing that the writer locks.
func (s *Store) solo(ctx context.Context, f func(*tx) error) (err error) {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer leave()
		o := &op{run: f, needs: needs{writes: true}}
		batch := []*op{o}
		err := s.transact(batch)
		for try := 1; conflicted(err) && try < triesMax; try++ {
			err = s.transact(batch)
		}
		settle(batch, err)
		done <- o.err
	}()
	select {
	case err := <-done:
		return storeError(context.Background(), err)
	case <-ctx.Done():
		return gone(ctx)
	}
}

// solo runs a transition that gives something, as the method does.
func solo[T any](ctx context.Context, s *Store, f func(*tx) (T, error)) (T, error) {
	var out, none T
	err := s.solo(ctx, func(t *tx) (err error) {
		out, err = f(t)
		return err
	})
	if err != nil {
		return none, err
	}
	return out, nil
}

// plansSQL has every statement of a transaction go by an index, as all of them can, and by
// the plan that it has already. Left to itself, the database takes tables for small that
// were small when it last looked at them, and reads them whole: a fresh hub would be slow
// for its first minutes. And it plans statements anew each time that get few rows, in the
// hope of a better plan, which takes about as long as running them.
const plansSQL = "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), " +
	"set_config('plan_cache_mode', 'force_generic_plan', true)"

// newTx begins a transaction, with the next flush.
func newTx(ctx context.Context, s *Store, c *pgx.Conn) *tx {
	t := &tx{conn: newConn(ctx, c), s: s, era: s.era.Load()}
	t.conn.exec("BEGIN ISOLATION LEVEL READ COMMITTED") // whatever the database has been told to default to
	t.conn.exec(plansSQL)
	return t
}
