package crash

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// Three replicas on one PostgreSQL lose nothing and do nothing twice, whichever part dies,
// stops or is cut off, and all goes on by itself.
func TestCrashOfReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	faults := setting(t, "FAULTS", 20)
	seed := setting(t, "SEED", uint64(time.Now().UnixNano()))
	t.Logf("FAULTS=%d SEED=%d", faults, seed)
	s := newSite(t)
	s.world = newWorld(t, seed, s.options(t)...)
	s.r = s.random(0)
	s.startActors()
	checkEvery := 1 + faults/50 // a look at everything takes ever longer
	for n := range faults {
		s.pause(200*time.Millisecond + s.upTo(800*time.Millisecond))
		acked := s.ledger.snapshot()
		what := s.fault()
		if n%checkEvery == 0 {
			s.report(fmt.Sprintf("after fault %d, %s", n+1, what), s.checkDatabase(acked, false))
		}
		if s.ctx.Err() != nil || t.Failed() {
			break
		}
	}
	s.finish()
	s.report("at the end", s.checkDatabase(s.ledger.snapshot(), true))
	var kinds []string
	for _, what := range slices.Sorted(maps.Keys(s.done)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", s.done[what], what))
	}
	s.summary(fmt.Sprintf("%d faults (%s)", faults, strings.Join(kinds, ", ")))
}

// replicaCount is how many replicas there are.
const replicaCount = 3

// site is three replicas on one database, with a network in between that breaks.
type site struct {
	*world
	server *pgtest.Server
	links  []*hubproc.Link
	db     *sql.DB
	r      *rand.Rand
	done   map[string]int // faults, by kind
}

func newSite(t *testing.T) *site {
	server, err := pgtest.Start(t.Context(), pgtest.Options{Durable: true})
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the database's log:\n%s", lastLines(server.Log(), 100))
		}
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Create(t.Context(), "hub", ""); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", server.URL("hub"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &site{server: server, db: db, done: map[string]int{}}
}

func lastLines(text string, n int) string {
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// options are those of the replicas; each has a link of its own to the database.
func (s *site) options(t *testing.T) (list []hubproc.Options) {
	key := hubproc.MasterKey(t)
	for range replicaCount {
		link := hubproc.NewLink(t, fmt.Sprintf("127.0.0.1:%d", s.server.Port()))
		s.links = append(s.links, link)
		list = append(list, hubproc.On(link.URL(s.server.URL("hub")), key))
	}
	return list
}

// balanced makes a client one that asks any of the replicas, each time another, as
// behind a load balancer that notices nothing.
func (w *world) balanced(c *hubproc.Client) *hubproc.Client {
	if len(w.hubs) > 1 {
		c.HTTP = &http.Client{Transport: &balancer{hubs: w.hubs, to: c.HTTP.Transport}}
	}
	return c
}

type balancer struct {
	hubs []*hubproc.Hub
	to   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b *balancer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host = b.hubs[rand.IntN(len(b.hubs))].Addr
	return b.to.RoundTrip(r)
}

// upTo is a random time.
func (s *site) upTo(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

// kind is a kind of fault: it begins, and gives what ends it.
type kind struct {
	name string
	// Faults end in this order: what others need to start comes first.
	rank     int
	database bool // it takes the database down
	begin    func() (end func())
}

func (s *site) kinds() []kind {
	n := s.r.IntN(replicaCount)
	h, link := s.hubs[n], s.links[n]
	other := s.hubs[(n+1+s.r.IntN(replicaCount-1))%replicaCount] // what is killed cannot be stopped
	nothing := func() {}
	return []kind{
		{name: "replica killed", rank: 3, begin: func() func() { h.Kill(); return h.Start }},
		{name: "worker killed", begin: func() func() { s.crew[s.r.IntN(len(s.crew))].die(); return nothing }},
		{name: "replica stopped", rank: 2, begin: func() func() { s.must(other.Freeze()); return func() { s.must(other.Thaw()) } }},
		{name: "backend terminated", begin: func() func() { s.terminate("ORDER BY random() LIMIT 1"); return nothing }},
		{name: "listeners terminated", begin: func() func() { s.terminate("AND application_name = 'holdfast listener'"); return nothing }},
		{name: "all backends terminated", begin: func() func() { s.terminate(""); return nothing }},
		{name: "network silent", rank: 1, begin: func() func() { link.Stalls(); return link.Works }},
		{name: "network refusing", rank: 1, begin: func() func() { link.Refuses(); return link.Works }},
		{name: "network reset", begin: func() func() { link.Resets(); return nothing }},
		{name: "database stopped", database: true, begin: func() func() { s.must(s.server.Down()); return s.up }},
		{name: "database killed", database: true, begin: func() func() { s.must(s.server.Kill()); return s.up }},
	}
}

// fault does something bad, or two things at once, for up to three seconds: longer than
// leases and patience last.
func (s *site) fault() string {
	kinds := s.kinds()
	s.r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	kinds = slices.DeleteFunc(kinds[:1+s.r.IntN(4)/3], func(k kind) bool {
		return k.database && kinds[0].database && k.name != kinds[0].name // one of the two is enough
	})
	// A database that is down has no backends to terminate.
	slices.SortFunc(kinds, func(a, b kind) int { return b.rank - a.rank })
	var names []string
	ends := make([]func(), len(kinds))
	for i, k := range kinds {
		names = append(names, k.name)
		s.done[k.name]++
		ends[i] = k.begin()
	}
	s.pause(s.upTo(3 * time.Second))
	slices.Reverse(ends)
	for _, end := range ends {
		end()
	}
	return strings.Join(names, " and ")
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) up() { s.must(s.server.Up(s.ctx)) }

// terminate ends connections of the replicas at the database; more is SQL.
func (s *site) terminate(more string) {
	err := s.server.Exec(s.ctx, "postgres", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'hub' "+more)
	var refused net.Error
	if err != nil && !errors.As(err, &refused) && s.ctx.Err() == nil {
		s.t.Logf("terminate backends: %v", err) // another fault was first
	}
}

// checkDatabase checks one snapshot of the database while everything goes on.
func (s *site) checkDatabase(acked map[string]record, ended bool) []string {
	s.t.Helper()
	tx, err := s.db.BeginTx(s.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	for tries := 0; err != nil && tries < 5; tries++ { // connections that were terminated
		tx, err = s.db.BeginTx(s.ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	}
	s.must(err)
	defer func() { _ = tx.Rollback() }()
	f := &book{t: s.t, db: tx, sql: postgresTables}
	f.check(acked, ended)
	return f.problems
}
