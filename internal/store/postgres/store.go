package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Options configure a Store.
type Options struct {
	// URL is that of the database: postgres://user:password@host:port/name. It may lead
	// through PgBouncer; see the package's comment.
	URL string
	// DirectURL leads to the database itself, for what PgBouncer cannot do: listening
	// for other replicas. URL if empty.
	DirectURL string
	// Log gets what no caller is told; discarded if nil.
	Log *slog.Logger
	// Now is the clock of tests; nil for that of the database, which alone all replicas
	// have in common.
	Now func() time.Time
	// Existing has a database refused that no hub has used (NotFound), in which tables
	// would be made otherwise.
	Existing bool
	// Conns bounds the connections to the database; 0 for 16.
	Conns int
	// Patience bounds how long a transition or a read waits for the database; 0 for 10 s.
	Patience time.Duration
	// Changed, if not nil, is called with what other replicas have changed, by one or two
	// goroutines that have nothing else to do. It must not wait for the store.
	Changed func(hub.Change)
	// Observe, if not nil, is called by the writer after each transaction.
	Observe func(batch int, took time.Duration)
}

const (
	connsDefault    = 16
	patienceDefault = 10 * time.Second
)

// Store is a hub.Store in a PostgreSQL database. Several of them, of several processes,
// may use one database.
type Store struct {
	opt  Options
	pool *pgxpool.Pool

	ops     chan *op
	written chan struct{}
	// closing guards closed, so that nothing is sent to ops after it is closed.
	closing sync.RWMutex
	closed  bool
	solos   sync.WaitGroup // transitions and reads apart from the writer

	unhealthy atomic.Pointer[hub.Error] // see health
	parties   parties
	weeks     weeks
	lanes     sync.Map    // laneKey of those that are known to have a row
	fronts    sync.Map    // by callee, when its ready order was last looked at from the front
	epoch     int64       // of the activity
	replica   int64       // replica.n
	peers     atomic.Bool // there are other replicas
	clock     atomic.Pointer[reading]
	era       atomic.Int64 // see doubt.go; 0 if not known
	// horizonPatience is that of the constant; shorter in tests.
	horizonPatience time.Duration
	changes         changes
	stop            context.CancelFunc // ends what runs beside
	beside          sync.WaitGroup
}

// Open opens the store in a database, creating or migrating its tables as needed. Its
// errors say in one line what to do: hub.Invalid if something has to be set up in
// another way, hub.Unavailable if the database cannot be reached just now.
func Open(ctx context.Context, opt Options) (*Store, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Conns <= 0 {
		opt.Conns = connsDefault
	}
	if opt.Patience <= 0 {
		opt.Patience = patienceDefault
	}
	if opt.DirectURL == "" {
		opt.DirectURL = opt.URL
	}
	cfg, err := poolConfig(&opt)
	if err != nil {
		return nil, err
	}
	direct, err := poolConfig(&Options{URL: opt.DirectURL, Conns: 1})
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, direct.ConnConfig, opt.Existing); err != nil {
		return nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, connectError(cfg.ConnConfig, err)
	}
	s := &Store{horizonPatience: horizonPatience, opt: opt, pool: pool, ops: make(chan *op, batchMax), written: make(chan struct{}), parties: parties{pool: pool}, changes: changes{signal: make(chan struct{}, 1)}}
	if err := s.prepare(ctx); err != nil {
		pool.Close()
		return nil, connectError(cfg.ConnConfig, err)
	}
	background, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.beside.Go(func() { s.stayAlive(background) })
	s.beside.Go(func() { s.tell(background) })
	s.beside.Go(func() { s.tend(background) })
	if opt.Changed != nil {
		s.beside.Go(func() { s.listen(background) })
		s.beside.Go(func() { s.look(background) })
	}
	go s.writeLoop()
	return s, nil
}

// prepare reads what the store has to know, and registers this replica.
func (s *Store) prepare(ctx context.Context) error {
	if err := mustBeWhole(ctx, s.pool); err != nil {
		return err
	}
	if err := s.parties.load(ctx); err != nil {
		return err
	}
	if err := s.openActivity(ctx); err != nil {
		return err
	}
	if err := s.pool.QueryRow(ctx, "INSERT INTO replica (seen_at) VALUES (clock_timestamp()) RETURNING n").Scan(&s.replica); err != nil {
		return err
	}
	if err := s.countPeers(ctx); err != nil {
		return err
	}
	s.keepPartitions(ctx)
	return nil
}

// replicaBeat is how often a replica shows that it is alive, and replicaSilence after
// how long it is taken for dead.
const (
	replicaBeat    = 3 * time.Second
	replicaSilence = "interval '15 seconds'"
)

// stayAlive keeps this replica's row fresh until ctx ends, and removes those of the
// long dead.
func (s *Store) stayAlive(ctx context.Context) {
	beat := time.NewTicker(replicaBeat)
	defer beat.Stop()
	for {
		select {
		case <-beat.C:
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(ctx, s.opt.Patience)
		_, err := s.pool.Exec(limited, beatSQL, s.replica)
		if err == nil {
			err = s.countPeers(limited)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			s.opt.Log.Warn("cannot note that this replica is alive", "error", err)
		}
	}
}

// countPeers finds out whether there are other replicas, and removes the rows of those
// that are long dead.
func (s *Store) countPeers(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, "DELETE FROM replica WHERE seen_at < clock_timestamp() - interval '1 day'"); err != nil {
		return err
	}
	var peers bool
	var now time.Time
	var era int64
	began := time.Now()
	err := s.pool.QueryRow(ctx, "SELECT clock_timestamp(), EXISTS (SELECT 1 FROM replica WHERE n <> $1 AND seen_at > clock_timestamp() - "+replicaSilence+"), coalesce("+eraSQL+", 0)", s.replica).Scan(&now, &peers, &era)
	if err == nil {
		s.era.Store(era)
		s.peers.Store(peers)
		s.clock.Store(&reading{now, began.Add(time.Since(began) / 2)})
	}
	return err
}

// reading is what the database's clock said at a moment of this process.
type reading struct{ said, at time.Time }

// Time is the time by the database's clock, which all replicas have in common: as it was
// last read, and what has passed since. Whether this machine's clock is right does not
// matter.
func (s *Store) Time() time.Time {
	if s.opt.Now != nil {
		return s.opt.Now()
	}
	r := s.clock.Load()
	return r.said.Add(time.Since(r.at))
}

// Ping implements hub.Store.
func (s *Store) Ping(ctx context.Context) error {
	if e := s.unhealthy.Load(); e != nil {
		return e
	}
	return s.read(ctx, func(c *conn) error {
		_, err := c.one("SELECT 1 FROM meta LIMIT 1")
		return err
	})
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
	s.stop()
	s.beside.Wait()
	s.solos.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// A replica that says goodbye need not be waited for.
	if _, err := s.pool.Exec(ctx, "DELETE FROM replica WHERE n = $1", s.replica); err != nil {
		s.opt.Log.Warn("cannot note that this replica stops", "error", err)
	}
	s.pool.Close()
	return nil
}

// Alone runs f while no other replica runs its own: for what is to be done once, when
// several start together.
func (s *Store) Alone(ctx context.Context, f func() error) error {
	return s.apart(ctx, "BEGIN", func(c *conn) error {
		c.exec("SELECT pg_advisory_xact_lock($1)", int64(aloneLock))
		if err := c.flush(); err != nil {
			return err
		}
		return f()
	})
}

// aloneLock is the advisory lock of Alone.
const aloneLock = migrateLock + 1

// enter notes that something begins that Close has to wait for.
func (s *Store) enter() (leave func(), err error) {
	s.closing.RLock()
	defer s.closing.RUnlock()
	if s.closed {
		return nil, errClosed()
	}
	s.solos.Add(1)
	return s.solos.Done, nil
}

// read runs f on a connection in one snapshot.
func (s *Store) read(ctx context.Context, f func(c *conn) error) error {
	return s.apart(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", f)
}

// apart runs f in a transaction of its own, with the request's context.
func (s *Store) apart(ctx context.Context, begin string, f func(c *conn) error) (err error) {
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	limited, cancel := context.WithTimeout(ctx, s.opt.Patience)
	defer cancel()
	pc, err := s.pool.Acquire(limited)
	if err != nil {
		return storeError(ctx, err)
	}
	defer pc.Release()
	c := newConn(limited, pc.Conn())
	c.exec(begin)
	if err := f(c); err != nil {
		s.rollback(pc.Conn())
		return storeError(ctx, err)
	}
	c.exec("COMMIT")
	if err := c.flush(); err != nil {
		s.rollback(pc.Conn())
		return storeError(ctx, err)
	}
	return nil
}

// rollback ends a transaction that failed; a connection on which that fails too is of no
// more use.
func (s *Store) rollback(c *pgx.Conn) {
	if c.IsClosed() || c.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := c.Exec(ctx, "ROLLBACK"); err != nil {
		_ = c.Close(ctx)
	}
}

var _ hub.Store = (*Store)(nil)
