package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// pgSettings are those of a server with some memory; that it syncs each commit to the
// disk is what PostgreSQL does by itself.
var pgSettings = []string{"shared_buffers = 512MB", "max_wal_size = 4GB", "checkpoint_timeout = 15min"}

// errNoPostgres says why the lines of PostgreSQL are left out.
var errNoPostgres = errors.New("left out: it takes PostgreSQL's programs, pgbench among them; on Debian: apt-get install postgresql")

// pgServer is a PostgreSQL server of one bench.
type pgServer struct {
	*pgtest.Server
	bin string
}

// startPostgres starts a server of its own; errNoPostgres if this machine has none.
func (r *run) startPostgres(ctx context.Context) (*pgServer, error) {
	bin, err := pgtest.Find()
	if errors.Is(err, pgtest.ErrMissing) {
		return nil, errNoPostgres
	}
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(bin, "pgbench")); err != nil {
		return nil, errNoPostgres
	}
	s, err := pgtest.Start(ctx, pgtest.Options{Bin: bin, Dir: r.Dir, Durable: true, Settings: pgSettings})
	if err != nil {
		return nil, err
	}
	return &pgServer{s, bin}, nil
}

// onPostgres makes a bench of one that needs a server; without PostgreSQL it says so and
// measures nothing.
func onPostgres(f func(context.Context, *run, *pgServer) error) func(context.Context, *run) error {
	return func(ctx context.Context, r *run) (err error) {
		s, err := r.startPostgres(ctx)
		if errors.Is(err, errNoPostgres) {
			r.progress("%v", err)
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Stop()) }()
		return f(ctx, r, s)
	}
}

// pgInsert is what pgbench does, as a prepared statement: about as small as a durable
// transition can be.
const pgInsert = `INSERT INTO single (body) VALUES ('{"role":"ROLE_USER","parts":[{"text":"hello"}]}');` + "\n"

// pgTable is where.
const pgTable = `CREATE TABLE single (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz NOT NULL DEFAULT now(), body text NOT NULL)`

var pgRate = regexp.MustCompile(`tps = ([0-9.]+) `)

// insertRate is how many single rows a second pgbench inserts in a database, each in a
// transaction of its own.
func (s *pgServer) insertRate(ctx context.Context, dir string, clients int, measure time.Duration) (float64, error) {
	script := filepath.Join(dir, "insert.sql")
	if err := os.WriteFile(script, []byte(pgInsert), 0o600); err != nil {
		return 0, err
	}
	seconds := max(1, int(measure.Seconds()))
	out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "pgbench"), "-n", "-M", "prepared", "-c", strconv.Itoa(clients), "-j", "2",
		"-T", strconv.Itoa(seconds), "-f", script, s.URL("pgbench")).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	m := pgRate.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("pgbench says no rate: %s", out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// fleet is some replicas of a hub with one database.
type fleet []*hubProcess

func (f fleet) stop() {
	for _, h := range f {
		h.stop()
	}
}

func (f fleet) processes() []*process {
	list := make([]*process, len(f))
	for i, h := range f {
		list[i] = h.process
	}
	return list
}

// startFleet starts n replicas on a new database.
func (r *run) startFleet(ctx context.Context, s *pgServer, database string, n int) (f fleet, t *target, err error) {
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if err := s.Create(ctx, database, ""); err != nil {
		return nil, nil, err
	}
	key, err := app.NewMasterKey()
	if err != nil {
		return nil, nil, err
	}
	admin := newAdminToken()
	for range n {
		h, err := r.startHubWith(ctx, admin, "HOLDFAST_DATABASE_URL="+s.URL(database), "HOLDFAST_MASTER_KEY="+key)
		if err != nil {
			return f, nil, err
		}
		f = append(f, h)
	}
	if t, err = f[0].target(ctx, callerAddresses); err != nil {
		return f, nil, err
	}
	t.name = strconv.Itoa(n) + " replica"
	t.callersAt, t.workersAt = f.processes(), f.processes()
	return f, t, nil
}

// maxReplicas is how many replicas share the machine at most.
const maxReplicas = 3

// pgThroughput measures whole lives of tasks per second on one, two and three replicas
// against pgbench, in turns.
func pgThroughput(ctx context.Context, r *run, s *pgServer) (err error) {
	dir, err := os.MkdirTemp(r.Dir, "holdfast-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := errors.Join(s.Create(ctx, "pgbench", ""), s.Exec(ctx, "pgbench", pgTable)); err != nil {
		return err
	}
	targets := make([]*target, maxReplicas)
	for i := range targets {
		f, t, err := r.startFleet(ctx, s, "hub"+strconv.Itoa(i+1), i+1)
		if err != nil {
			return err
		}
		defer f.stop()
		targets[i] = t
	}
	var inserts []float64
	rates := make([][]float64, len(targets))
	for round := range r.Rounds {
		rate, err := s.insertRate(ctx, dir, r.Callers, r.Duration)
		if err != nil {
			return err
		}
		r.progress("round %d of %d: %-16s %6.0f inserts/s", round+1, r.Rounds, "pgbench", rate)
		inserts = append(inserts, rate)
		each, err := r.round(ctx, round, targets)
		if err != nil {
			return err
		}
		for i := range each {
			rates[i] = append(rates[i], each[i])
		}
	}
	const life = "PostgreSQL: send → claim → reply → answer"
	one := median(rates[0])
	r.add(Row{What: life, Measured: one, Unit: "tasks/s", Baseline: median(inserts), Against: "inserts/s of pgbench", Ratio: true, Bar: .33, Stretch: .45})
	r.add(Row{What: life + ", 2 replicas", Measured: median(rates[1]), Unit: "tasks/s", Baseline: one, Against: "with 1", Ratio: true, Bar: .9})
	r.add(Row{What: life + ", 3 replicas", Measured: median(rates[2]), Unit: "tasks/s", Baseline: one, Against: "with 1", Ratio: true})
	return nil
}

// pgPickup measures as pickup does, with the senders at one replica and the workers at
// another.
func pgPickup(ctx context.Context, r *run, s *pgServer) error {
	f, t, err := r.startFleet(ctx, s, "hub", 2)
	if err != nil {
		return err
	}
	defer f.stop()
	t.callersAt, t.workersAt = t.callersAt[:1], t.workersAt[1:]
	null, err := r.nullTarget(ctx)
	if err != nil {
		return err
	}
	defer null.kill()
	t.name = "hub"
	p50, p99, err := r.pickups(ctx, []*target{t, null})
	if err != nil {
		return err
	}
	what := "PostgreSQL: pick-up at another replica at " + strconv.Itoa(pickupRate) + " tasks/s, "
	r.add(Row{What: what + "p50", Measured: p50[0], Unit: "ms", Baseline: p50[1], Against: "null hub", Bar: 2, Stretch: 1.2, Less: true})
	r.add(Row{What: what + "p99", Measured: p99[0], Unit: "ms", Baseline: p99[1], Against: "null hub", Bar: 12, Stretch: 7, Less: true})
	return nil
}
