package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
)

// pgFlat measures as flat does, and what a claim costs while another session holds a
// snapshot open, which keeps the dead rows of what was claimed since.
func pgFlat(ctx context.Context, r *run, s *pgServer) (err error) {
	few, err := r.openLoadedPostgres(ctx, s, "few", fewTasks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, few.s.Close()) }()
	many, err := r.openLoadedPostgres(ctx, s, "many", r.Tasks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, many.s.Close()) }()
	if err := r.compareBeds(ctx, few, many, "PostgreSQL: "); err != nil {
		return err
	}
	return r.besideSnapshot(ctx, s, few)
}

// openLoadedPostgres opens a store in a new database with n ready tasks.
func (r *run) openLoadedPostgres(ctx context.Context, s *pgServer, database string, n int) (*storeBed, error) {
	if err := s.Create(ctx, database, ""); err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, postgres.Options{URL: s.URL(database), Changed: func(hub.Change) {}})
	if err != nil {
		return nil, err
	}
	b := &storeBed{s: store}
	if err := b.load(ctx, min(n, fewTasks)); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if n > fewTasks {
		r.progress("loading %d tasks", n)
		if err := pgMultiply(ctx, s.URL(database), n/fewTasks); err != nil {
			return nil, errors.Join(fmt.Errorf("load %d tasks: %w", n, err), store.Close())
		}
	}
	return b, nil
}

// pgCopied says how a row of each table becomes the same row of another task, that of
// the k-th copy. Columns that are not named stay as they are; an empty expression leaves
// a column to its default.
var pgCopied = []struct {
	table   string
	columns map[string]string
}{
	{"task", map[string]string{"id": pgCopyID("id"), "n": "n + k * $1", "state_at": "state_at + (k - $2) * 1000", "created_at": "created_at + (k - $2) * 1000"}},
	{"queue", map[string]string{"task": pgCopyID("task"), "n": "n + k * $1", "rank": "rank + k * $1"}},
	{"event", map[string]string{"task": pgCopyID("task"), "at": "at + (k - $2) * 1000"}},
	{"message", map[string]string{"task": pgCopyID("task")}},
	{"idempotency", map[string]string{"task": pgCopyID("task"), "hash": "decode(md5(hash::text || k), 'hex')"}},
	{"activity", map[string]string{"task": pgCopyID("task"), "at": "at + (k - $2) * 1000", "xid": "", "id": ""}},
}

// pgCopyID is the id of a task's k-th copy of $2, each of which is from a second later
// than the one before; the originals are the newest.
func pgCopyID(column string) string {
	const hex = "replace(%[1]s::text, '-', '')"
	return fmt.Sprintf("(lpad(to_hex(('x' || left("+hex+", 12))::bit(48)::bigint + (k - $2) * 1000), 12, '0') || right("+hex+", 20))::uuid", column)
}

// pgMultiply makes so many of each task of a database, each of which waits for its
// callee. It knows the tables, and nothing of what they mean: what is measured on them
// is what the store does.
func pgMultiply(ctx context.Context, url string, times int) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if _, err := c.Exec(ctx, "SET synchronous_commit = off"); err != nil {
		return err
	}
	for _, t := range pgCopied {
		names, values, err := pgColumns(ctx, c, t.table, t.columns)
		if err != nil {
			return err
		}
		sql := fmt.Sprintf("INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM generate_series(1, $2::integer - 1) k, (SELECT * FROM %s WHERE $1 > 0) s",
			t.table, strings.Join(names, ", "), strings.Join(values, ", "), t.table)
		if _, err := c.Exec(ctx, sql, fewTasks, times); err != nil {
			return fmt.Errorf("%s: %w", t.table, err)
		}
	}
	for _, sql := range []string{
		"SELECT setval('task_n_seq', (SELECT max(n) FROM task))",
		"UPDATE lane SET rank = (SELECT max(rank) FROM queue), open = (SELECT count(*) FROM queue q WHERE q.caller = lane.caller)",
		"VACUUM ANALYZE",
		"CHECKPOINT",
	} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// pgColumns gives the columns of a table and what a copy has in each.
func pgColumns(ctx context.Context, c *pgx.Conn, table string, changed map[string]string) (names, values []string, err error) {
	rows, err := c.Query(ctx, "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped", table)
	if err != nil {
		return nil, nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range all {
		value, ok := changed[name]
		if ok && value == "" {
			continue
		}
		if !ok {
			value = name
		}
		names, values = append(names, name), append(values, value)
	}
	return names, values, err
}

// claimSlices is how many slices a claim's cost is the median of, before and beside an
// open snapshot; and claimSingles how many single claims.
const (
	claimSlices  = 30
	claimSingles = 200
)

// besideSnapshot measures claims before another session opens a snapshot and after it
// has held it for a while, with tasks coming and going all the time.
func (r *run) besideSnapshot(ctx context.Context, s *pgServer, b *storeBed) error {
	before, err := b.claimCosts(ctx)
	if err != nil {
		return err
	}
	c, err := pgx.Connect(ctx, s.URL("few"))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1 FROM queue LIMIT 1"} {
		if _, err := c.Exec(ctx, sql); err != nil {
			return err
		}
	}
	held := 30 * time.Second
	if r.Short {
		held = time.Second
	}
	tasks := 0
	for began, said := time.Now(), time.Now(); time.Since(began) < held; tasks += sliceSize {
		cost, err := b.slice(ctx)
		if err != nil {
			return err
		}
		if time.Since(said) >= 5*time.Second {
			said = time.Now()
			r.progress("snapshot held for %2.0f s, %d tasks since: %.0f µs per claim in groups of %d", time.Since(began).Seconds(), tasks, cost[1], sliceSize)
		}
	}
	after, err := b.claimCosts(ctx)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("PostgreSQL: claim beside a snapshot held for %s, ", held)
	r.add(Row{What: what + "one by one", Measured: after.single, Unit: "µs", Baseline: before.single, Against: "before", Ratio: true, Bar: 2, Stretch: 1.2, Less: true})
	r.add(Row{What: what + "groups of " + strconv.Itoa(sliceSize), Measured: after.grouped, Unit: "µs", Baseline: before.grouped, Against: "before", Ratio: true, Bar: 2, Stretch: 1.2, Less: true})
	return nil
}

// claimCost is what a claim costs in µs: by itself with its commit, and in a group.
type claimCost struct{ single, grouped float64 }

func (b *storeBed) claimCosts(ctx context.Context) (out claimCost, err error) {
	var single, grouped []float64
	for range claimSlices {
		cost, err := b.slice(ctx)
		if err != nil {
			return out, err
		}
		grouped = append(grouped, cost[1])
	}
	for range claimSingles {
		if err := b.send(ctx)(0); err != nil {
			return out, err
		}
		began := time.Now()
		got, err := b.s.Claim(ctx, b.callee, hub.ClaimSpec{Lease: time.Hour})
		if err != nil || got.Task == nil {
			return out, fmt.Errorf("claim one task: %w", errors.Join(err, errors.New("nothing was ready")))
		}
		single = append(single, float64(time.Since(began).Nanoseconds())/1e3)
		if err := b.complete(ctx, []*hub.Task{got.Task})(0); err != nil {
			return out, err
		}
	}
	return claimCost{median(single), median(grouped)}, nil
}
