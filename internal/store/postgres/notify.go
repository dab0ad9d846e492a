package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// changed is what transactions changed that others may wait for.
type changed struct {
	Tasks     []string `json:"t,omitempty"`
	Mailboxes []string `json:"m,omitempty"` // ids of the callees of tasks that became ready, once for each
	Pushes    bool     `json:"p,omitempty"`
	All       bool     `json:"a,omitempty"`
}

func (c *changed) task(id string) {
	if n := len(c.Tasks); n == 0 || c.Tasks[n-1] != id {
		c.Tasks = append(c.Tasks, id)
	}
}

func (c *changed) mailbox(id string) {
	c.Mailboxes = append(c.Mailboxes, id)
}

func (c *changed) empty() bool {
	return len(c.Tasks)+len(c.Mailboxes) == 0 && !c.Pushes && !c.All
}

const (
	channel = "holdfast"
	// notifyGapMin and notifyGapMax bound the time between two notifications of a replica:
	// at commit they take a lock that all of the server's share. In between it is
	// notifyShare times what the last one took, so that a busy server has fewer of them and
	// an idle one tells at once.
	notifyGapMin = time.Millisecond
	notifyGapMax = 10 * time.Millisecond
	notifyShare  = 4
	// notifyMax bounds a notification's text; PostgreSQL takes 8,000 bytes.
	notifyMax = 7_900
	// keepMax is how many tasks are remembered between two notifications; of more than
	// fit into one, nothing is told but that they are many.
	keepMax = 200
	// lookEvery is how often a replica looks for what it was not told.
	lookEvery = time.Second
	// aliveEvery is after how much silence the connection that listens is tested.
	aliveEvery = 10 * time.Second
	// lookMax bounds what it finds then.
	lookMax = 2_000
)

// changes collects what other replicas have to be told.
type changes struct {
	mu      sync.Mutex
	waiting changed
	signal  chan struct{}
}

func (c *changes) add(more *changed) {
	if more.empty() {
		return
	}
	c.mu.Lock()
	w := &c.waiting
	w.Pushes, w.All = w.Pushes || more.Pushes, w.All || more.All || len(w.Tasks)+len(more.Tasks) > keepMax
	if w.All {
		w.Tasks, w.Mailboxes = nil, nil
	} else {
		w.Tasks = append(w.Tasks, more.Tasks...)
		w.Mailboxes = append(w.Mailboxes, more.Mailboxes...)
	}
	c.mu.Unlock()
	select {
	case c.signal <- struct{}{}:
	default:
	}
}

func (c *changes) take() (w changed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w, c.waiting = c.waiting, w
	return w
}

// notice is a notification as it is sent.
type notice struct {
	Replica int64 `json:"r"`
	changed
}

// tell tells the other replicas what this one commits, until ctx ends.
func (s *Store) tell(ctx context.Context) {
	for {
		select {
		case <-s.changes.signal:
		case <-ctx.Done():
			return
		}
		began := time.Now()
		if w := s.changes.take(); !w.empty() && s.peers.Load() {
			if err := s.notify(ctx, w); err != nil && ctx.Err() == nil {
				s.opt.Log.Warn("cannot tell the other replicas what has changed; they find out within a second", "error", err)
			}
		}
		select {
		case <-time.After(min(max(notifyShare*time.Since(began), notifyGapMin), notifyGapMax)):
		case <-ctx.Done():
			return
		}
	}
}

func (s *Store) notify(ctx context.Context, w changed) error {
	text, err := json.Marshal(notice{s.replica, w})
	if err == nil && len(text) > notifyMax {
		text, err = json.Marshal(notice{s.replica, changed{All: true, Pushes: w.Pushes}})
	}
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	// There is nothing to keep, so nothing to wait for the disk for.
	_, err = s.pool.Exec(limited, "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)", channel, string(text))
	return err
}

// listen hears what other replicas tell, until ctx ends, and comes back after its
// connection is lost.
func (s *Store) listen(ctx context.Context) {
	for failed := false; ctx.Err() == nil; {
		err := s.listenOnce(ctx, func() {
			if failed {
				s.opt.Log.Info("hearing from the other replicas again")
				s.opt.Changed(hub.Change{Everything: true, Pushes: true})
			}
			failed = false
		})
		if ctx.Err() != nil {
			return
		}
		if !failed {
			s.opt.Log.Warn("cannot hear from the other replicas; looking for changes once a second", "error", err)
		}
		failed = true
		select {
		case <-time.After(lookEvery / 2):
		case <-ctx.Done():
		}
	}
}

// listenOnce listens on one connection until that is lost.
func (s *Store) listenOnce(ctx context.Context, begun func()) error {
	cfg, err := pgx.ParseConfig(s.opt.DirectURL)
	if err != nil {
		return err
	}
	cfg.ConnectTimeout = connectTime
	cfg.RuntimeParams["application_name"] = "holdfast listener"
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = c.Close(limited)
	}()
	if _, err := c.Exec(ctx, "LISTEN "+channel); err != nil {
		return err
	}
	if err := s.notify(ctx, changed{All: true}); err != nil { // the others have a peer from now on
		return err
	}
	begun()
	for {
		limited, cancel := context.WithTimeout(ctx, aliveEvery)
		n, err := c.WaitForNotification(limited)
		cancel()
		switch {
		case err == nil:
			s.heard(n.Payload)
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		default:
			// A connection that was cut is silent for ever.
			limited, cancel := context.WithTimeout(ctx, connectTime)
			err := c.Ping(limited)
			cancel()
			if err != nil {
				return err
			}
		}
	}
}

// heard passes on what another replica told.
func (s *Store) heard(text string) {
	var n notice
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		s.opt.Log.Warn("a notification that is not a replica's", "error", err)
		return
	}
	if n.Replica == s.replica {
		return
	}
	s.peers.Store(true)
	s.opt.Changed(hub.Change{Tasks: n.Tasks, Ready: n.Mailboxes, Pushes: n.Pushes, Everything: n.All})
}

// look finds out what this replica was not told, since a replica may die after a commit
// and before it has told the others, until ctx ends.
func (s *Store) look(ctx context.Context) {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	var since place
	for {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
		if !s.peers.Load() {
			since = place{}
			continue
		}
		limited, cancel := context.WithTimeout(ctx, s.opt.Patience)
		change, next, err := s.lookOnce(limited, since)
		cancel()
		if err != nil {
			if ctx.Err() == nil {
				s.opt.Log.Warn("cannot look for what other replicas have changed", "error", err)
			}
			continue // it will be made up for: since stays
		}
		if since != (place{}) {
			s.opt.Changed(change)
		}
		since = next
	}
}

// lookOnce reads what has happened since, and who has something ready.
func (s *Store) lookOnce(ctx context.Context, since place) (change hub.Change, next place, err error) {
	next = since
	err = s.read(ctx, func(c *conn) error {
		var horizon int64
		scanned, tasks := 0, make(map[uuid.UUID]bool)
		c.later("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint", nil, func(r row) error {
			horizon = r.int(0)
			return nil
		})
		if since != (place{}) {
			c.later(`SELECT a.xid, a.id, a.task FROM activity a WHERE (a.xid, a.id) > ($1::bigint::text::xid8, $2)
				AND a.xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY a.xid, a.id LIMIT $3`, []any{since.xid, since.id, lookMax}, func(r row) error {
				next = place{r.int(0), r.int(1)}
				scanned++
				tasks[r.id(2)] = true
				return nil
			})
		}
		// One step through the index for each address, however many tasks it has.
		var ready []int64
		c.later(`WITH RECURSIVE able AS (
				(SELECT callee FROM queue WHERE rank IS NOT NULL ORDER BY callee LIMIT 1)
				UNION ALL SELECT (SELECT q.callee FROM queue q WHERE q.rank IS NOT NULL AND q.callee > s.callee ORDER BY q.callee LIMIT 1)
				FROM able s WHERE s.callee IS NOT NULL
			) SELECT callee FROM able WHERE callee IS NOT NULL LIMIT $1`, []any{lookMax}, func(r row) error {
			ready = append(ready, r.int(0))
			return nil
		})
		if err := c.flush(); err != nil {
			return err
		}
		if scanned >= lookMax || len(ready) >= lookMax {
			change.Everything = true
		}
		if scanned < lookMax {
			next = place{horizon - 1, 1<<63 - 1}
		}
		for id := range tasks {
			change.Tasks = append(change.Tasks, id.String())
		}
		change.Pushes = true
		return s.nameReady(ctx, ready, &change)
	})
	return change, next, err
}

func (s *Store) nameReady(ctx context.Context, ready []int64, change *hub.Change) error {
	for _, n := range ready {
		p, err := s.parties.party(ctx, n)
		if err != nil {
			return err
		}
		if p != (hub.Party{}) {
			change.Ready = append(change.Ready, p.ID)
		}
	}
	return nil
}
