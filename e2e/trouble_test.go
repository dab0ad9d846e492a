package e2e

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// trouble is a hub whose database gets into trouble, while somebody sends all the time.
type trouble struct {
	t      *testing.T
	server *pgtest.Server
	link   *hubproc.Link
	hub    *hubproc.Hub
	caller *hubproc.Client

	mu      sync.Mutex
	acked   []string
	refused int
	slowest time.Duration
}

const (
	// maxWait is how long a request may take to get its answer while the database stands
	// still: the hub waits ten seconds for it, and as long again to learn what became of a
	// commit that was not answered.
	maxWait = 25 * time.Second
	// hubSessions is how many a hub may have at its database: its pool, who listens, and one
	// that is just being replaced.
	hubSessions = 20
)

func newTrouble(t *testing.T) *trouble {
	t.Helper()
	server, err := pgtest.Start(t.Context(), pgtest.Options{Durable: true})
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	must(t, server.Create(t.Context(), "hub", ""))
	// Limits are not for those who may do everything.
	must(t, server.Exec(t.Context(), "postgres", "ALTER DATABASE hub OWNER TO "+pgtest.Guest))
	x := &trouble{t: t, server: server, link: hubproc.NewLink(t, "127.0.0.1:"+strconv.Itoa(server.Port()))}
	x.hub = hubproc.Start(t, hubproc.On(x.link.URL(server.URLAs(pgtest.Guest, pgtest.Password, "hub")), hubproc.MasterKey(t)))
	x.caller = x.hub.Agent("caller")
	x.hub.Agent("coder")
	return x
}

// send sends once, and notes what it was answered.
func (x *trouble) send(ctx context.Context) {
	began := time.Now()
	a, err := x.caller.Do(ctx, "POST", "/v1/agents/coder/tasks", send("hello"))
	if ctx.Err() != nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.slowest = max(x.slowest, time.Since(began))
	switch {
	case err != nil:
		x.t.Errorf("a send was not answered: %v", err)
	case a.OK():
		x.acked = append(x.acked, taskIn(x.t, a).ID)
	case a.Status == 503 && a.Header.Get("Retry-After") != "":
		x.refused++
	default:
		x.t.Errorf("a send got %d %s, with Retry-After %q", a.Status, a.Body, a.Header.Get("Retry-After"))
	}
}

// counts are how many sends were taken and how many refused so far.
func (x *trouble) counts() (acked, refused int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.acked), x.refused
}

// ready is the status of /readyz.
func (x *trouble) ready() int {
	a, err := x.caller.Do(x.t.Context(), "GET", "/readyz", nil)
	if err != nil {
		x.t.Errorf("readyz: %v", err)
	}
	return a.Status
}

// While the database is slow or gone, requests are refused in time, saying when to come
// back, and the hub says that it is not ready. Nothing that was acknowledged is lost, and
// all goes on by itself.
func TestDatabaseInTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a database that does not answer")
	}
	x := newTrouble(t)
	sending, stop := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for sending.Err() == nil {
				x.send(sending)
			}
		})
	}
	defer senders.Wait()
	defer stop()
	for _, c := range []struct {
		name       string
		begin, end func()
	}{
		{"stopped", func() { must(t, x.server.Down()) }, func() { must(t, x.server.Up(t.Context())) }},
		{"cut off", x.link.Refuses, x.link.Works},
		{"full", x.fill, x.empty},
		{"silent", x.link.Stalls, x.link.Works},
	} {
		t.Run(c.name, func(t *testing.T) { x.through(t, c.begin, c.end) })
	}
	stop()
	senders.Wait()
	for _, id := range x.acked {
		must(t, x.caller.Call(t.Context(), "GET", "/v1/agents/coder/tasks/"+id, nil, nil))
	}
	acked, refused := x.counts()
	t.Logf("%d sends were acknowledged, %d refused; the slowest took %v", acked, refused, x.slowest)
	if x.slowest > maxWait {
		t.Errorf("a send took %v", x.slowest)
	}
}

// through goes through one trouble.
func (x *trouble) through(t *testing.T, begin, end func()) {
	acked, refused := x.counts()
	eventually(t, soon, "sends are taken", func() bool { now, _ := x.counts(); return now > acked+20 })
	x.checkSessions(t)
	begin()
	eventually(t, maxWait, "sends are refused", func() bool { _, now := x.counts(); return now > refused })
	eventually(t, maxWait, "the hub says that it is not ready", func() bool { return x.ready() == 503 })
	end()
	ended := time.Now()
	eventually(t, maxWait, "the hub is ready again", func() bool { return x.ready() == 200 })
	acked, _ = x.counts()
	eventually(t, maxWait, "sends are taken again", func() bool { now, _ := x.counts(); return now > acked })
	t.Logf("well again %v after the end", time.Since(ended))
}

// checkSessions checks that the hub has no more connections than it may.
func (x *trouble) checkSessions(t *testing.T) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), x.server.URL("postgres"))
	must(t, err)
	defer func() { _ = c.Close(context.Background()) }()
	var n int
	must(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = 'hub'").Scan(&n))
	if n > hubSessions {
		t.Errorf("the hub has %d connections to its database", n)
	}
}

// fill leaves the hub no connection: those it has break, and there are too many.
func (x *trouble) fill() {
	x.exec("ALTER DATABASE hub CONNECTION LIMIT 0")
	x.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'hub'")
}

func (x *trouble) empty() { x.exec("ALTER DATABASE hub CONNECTION LIMIT -1") }

func (x *trouble) exec(sql string) { must(x.t, x.server.Exec(x.t.Context(), "postgres", sql)) }
