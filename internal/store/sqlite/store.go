package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// The files in a data directory.
const (
	FileName     = "holdfast.db"
	LockFileName = "holdfast.lock"
)

// Options configure a Store.
type Options struct {
	// Dir is the data directory; it is made, 0700, if it does not exist.
	Dir string
	// Now is the store's clock; time.Now if nil.
	Now func() time.Time
	// Log gets what no caller is told; discarded if nil.
	Log *slog.Logger
	// Observe, if not nil, is called by the writer after each transaction.
	Observe func(batch int, took time.Duration)
	// Synchronous is SQLite's setting of that name, FULL if empty. Anything less
	// breaks the promise that what is acknowledged is durable: for tests of tests.
	Synchronous string
	// leaving opens a hub that is, or was, moved to another store; see OpenExport.
	leaving bool
}

// Store is a hub.Store in one SQLite file.
type Store struct {
	opt  Options
	lock *os.File

	w       *conn
	ops     chan *op
	written chan struct{}
	// lastLine is the id of the newest line of activity; the writer's alone.
	lastLine int64
	// lastLoan is the number of the newest loan of a push-notification configuration;
	// the writer's, too.
	lastLoan int64
	// closing guards closed, so that nothing is sent to ops after it is closed.
	closing   sync.RWMutex
	closed    bool
	unhealthy atomic.Value // errorBox: see health

	readers chan *conn    // those that are free
	reading int           // how many there are
	gone    chan struct{} // closed when no read may begin any more

	parties   parties
	presence  presence
	keyMemory keys // the writer's
}

// Open opens the store in a data directory, creating or migrating it as needed.
// It fails with a hub.Error of kind Exists when another hub uses the directory.
func Open(ctx context.Context, opt Options) (_ *Store, err error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Synchronous == "" {
		opt.Synchronous = "FULL"
	}
	if err := os.MkdirAll(opt.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	s := &Store{opt: opt, ops: make(chan *op, batchMax), written: make(chan struct{}), gone: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeFiles())
		}
	}()
	if s.lock, err = lockDir(ctx, opt.Dir); err != nil {
		return nil, err
	}
	path := filepath.Join(opt.Dir, FileName)
	if err := createPrivate(path); err != nil {
		return nil, err
	}
	if err := migrate(ctx, path); err != nil {
		return nil, err
	}
	if s.w, err = openConn(path, opt.Synchronous, false); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := s.stays(); err != nil {
		return nil, err
	}
	if err := s.openReaders(path); err != nil {
		return nil, err
	}
	if err := s.parties.load(s.w); err != nil {
		return nil, fmt.Errorf("read the addresses: %w", err)
	}
	if err := s.keyMemory.load(s.w); err != nil {
		return nil, fmt.Errorf("read the idempotency keys: %w", err)
	}
	if s.lastLine, err = lastLine(s.w); err != nil {
		return nil, fmt.Errorf("read the activity: %w", err)
	}
	if s.lastLoan, err = lastLoan(s.w); err != nil {
		return nil, fmt.Errorf("read the push notifications: %w", err)
	}
	s.unhealthy.Store(errorBox{})
	go s.writeLoop()
	return s, nil
}

// lastLine is the highest id that a line of activity ever had.
func lastLine(c *conn) (int64, error) {
	r, err := c.one("SELECT max((SELECT coalesce(max(id), 0) FROM activity), CAST(value AS INTEGER)) FROM meta WHERE key = 'activity_pruned'")
	if err != nil || r == nil {
		return 0, err
	}
	return r.int(0), nil
}

func (s *Store) openReaders(path string) error {
	n := max(4, runtime.GOMAXPROCS(0))
	s.readers = make(chan *conn, n)
	for range n {
		c, err := openConn(path, s.opt.Synchronous, true)
		if err != nil {
			return fmt.Errorf("open the database for reading: %w", err)
		}
		s.readers <- c
		s.reading++
	}
	return nil
}

// lockDir takes the data directory for this process. The lock ends with the
// process, however that ends.
func lockDir(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, LockFileName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
			return nil, hub.Wrap(hub.Unavailable, err, "the data directory %s cannot be written to; give the hub's user write access to it or choose another with --data", dir)
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err := flock(ctx, f); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, hub.Errorf(hub.Exists, "another hub is using the data directory %s; stop it first, or choose another directory with --data", dir)
		}
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	return f, nil
}

// lockPatience is how long a start waits for a hub that is just going: one that was
// killed holds its lock for a moment after the kill has returned.
const lockPatience = 2 * time.Second

// flock takes the lock of a file, EWOULDBLOCK if another process has it.
func flock(ctx context.Context, f *os.File) error {
	for until := time.Now().Add(lockPatience); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(until) {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// createPrivate makes the database file, for its owner alone, if it does not exist;
// SQLite gives its other files the same rights.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return hub.Wrap(hub.Unavailable, err, "the database %s cannot be written to; check the disk, and that the hub's user may write to it", path)
	}
	return f.Close()
}

// Ping implements hub.Store.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.health(); err != nil {
		return err
	}
	return s.read(ctx, func(c *conn) error {
		_, err := c.one("SELECT 1 FROM meta LIMIT 1")
		return err
	})
}

// health is the error of the last transaction that failed, until a sweep has found out
// that the disk takes writes again.
func (s *Store) health() error {
	box, _ := s.unhealthy.Load().(errorBox)
	return box.err
}

// Close implements hub.Store: what was sent to the writer is finished first.
func (s *Store) Close() error {
	s.closing.Lock()
	if s.closed {
		s.closing.Unlock()
		return nil
	}
	s.closed = true
	close(s.ops)
	s.closing.Unlock()
	<-s.written
	return s.closeFiles()
}

// closeTime is how long closing waits for reads that are under way.
const closeTime = time.Second

func (s *Store) closeFiles() error {
	close(s.gone)
	var errs []error
	late := time.After(closeTime)
	for range s.reading {
		select {
		case c := <-s.readers:
			errs = append(errs, c.close())
		case <-late:
			// The process is about to end, and with it the read.
			return errors.Join(append(errs, errors.New("a read did not end in time"))...)
		}
	}
	if s.w != nil {
		errs = append(errs, s.w.close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// read runs f on a reading connection in one snapshot.
func (s *Store) read(ctx context.Context, f func(c *conn) error) error {
	var c *conn
	select {
	case c = <-s.readers:
	case <-s.gone:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		if !c.c.AutocommitEnabled() {
			// An old snapshot would be all that this connection ever sees again.
			_, _ = c.exec("ROLLBACK")
		}
		s.readers <- c
	}()
	if _, err := c.exec("BEGIN"); err != nil {
		return storeError(err)
	}
	err := f(c)
	if _, end := c.exec("COMMIT"); err == nil {
		err = end
	}
	return storeError(err)
}
