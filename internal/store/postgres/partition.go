package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What a task has stands in tables that are partitioned by the week in which the task was
// made: by its id, a UUIDv7, which begins with the time. Once no task of a week is left,
// its partitions go as a whole, which costs the same however much is in them.
//
// A week, since each partition is planned with and locked by statements that cannot be
// narrowed down beforehand: the usual 30 days of retention make eight. Days would make
// forty, and months keep the rows of a task for a month after it.

// partitioned are those tables, with the storage parameters of their partitions.
var partitioned = [...]struct{ name, with string }{
	{"event", ""}, {"message", ""}, {"artifact", ""}, {"attempt", ""}, {"dispatch", "WITH (fillfactor = 80)"},
}

const (
	weekLong = 7 * 24 * time.Hour
	// weeksAhead is how many weeks have partitions before they begin.
	weeksAhead = 2
	// tendEvery is how often each replica sees to the partitions.
	tendEvery = time.Minute
	// clockSlack is by how much replicas' clocks, which make the ids, may be wrong: a week
	// that has been over for so long gets no task any more.
	clockSlack = 24 * time.Hour
	// partitionWait is how long a change of partitions may wait for a lock, while all
	// others wait behind it. It is tried again later.
	partitionWait = "250ms"
	// partitionTime is how long such a change itself may take, with the lock.
	partitionTime = "1s"
	// partitionLock is the advisory lock of whoever changes partitions.
	partitionLock = migrateLock + 4
)

// weekOf is the beginning of a week, a Monday in UTC.
func weekOf(t time.Time) time.Time { return t.UTC().Truncate(weekLong) }

// madeAt is the time in a task's id; false if it is none with a time.
func madeAt(id uuid.UUID) (time.Time, bool) {
	var ms int64
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC(), id.Version() == 7
}

// firstID comes before all ids that are made at a time or later.
func firstID(t time.Time) (id uuid.UUID) {
	ms := t.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// weekFormat ends the name of a week's partition.
const weekFormat = "20060102"

func partitionOf(table string, week time.Time) string { return table + "_" + week.Format(weekFormat) }

// begins is something to begin a transaction on.
type begins interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// addWeek makes the partitions of a week that are missing, each in a transaction of its
// own, so that none waits for a lock while it holds that of another table.
func addWeek(ctx context.Context, on begins, week time.Time) error {
	for _, t := range partitioned {
		if err := pgx.BeginFunc(ctx, on, func(tx pgx.Tx) error { return addPartition(ctx, tx, t.name, t.with, week) }); err != nil {
			return fmt.Errorf("make the partition %s: %w", partitionOf(t.name, week), err)
		}
	}
	return nil
}

// addPartition attaches a new table, which locks the others out of the partition of the
// rest, but not, as to create it as a partition would, out of all. A week of which there
// are rows in the rest already stays there.
func addPartition(ctx context.Context, tx pgx.Tx, table, with string, week time.Time) error {
	if err := lockPartitions(ctx, tx); err != nil {
		return err
	}
	name, from, to := partitionOf(table, week), firstID(week), firstID(week.Add(weekLong))
	var there bool
	err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL OR EXISTS (SELECT 1 FROM "+table+"_rest WHERE task >= $2 AND task < $3)",
		name, from.String(), to.String()).Scan(&there)
	if err != nil || there {
		return err
	}
	_, err = tx.Exec(ctx, fmt.Sprintf("CREATE TABLE %s (LIKE %s INCLUDING ALL) %s; ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')",
		name, table, with, table, name, from, to))
	return err
}

// lockPartitions lets one at a time change partitions, and nobody wait long for it.
func lockPartitions(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(partitionLock)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '"+partitionWait+"'; SET LOCAL statement_timeout = '"+partitionTime+"'")
	return err
}

// noTasks is true if no task is left that was made between $1 and $2.
const noTasks = "NOT EXISTS (SELECT 1 FROM task WHERE id >= $1 AND id < $2)"

// dropWeek drops the partitions of a week of which no task is left.
func dropWeek(ctx context.Context, on begins, week time.Time) error {
	for _, t := range partitioned {
		if err := pgx.BeginFunc(ctx, on, func(tx pgx.Tx) error { return dropPartition(ctx, tx, t.name, week) }); err != nil {
			return fmt.Errorf("drop the partition %s: %w", partitionOf(t.name, week), err)
		}
	}
	return nil
}

// dropPartition locks the table for the moment that it takes: PostgreSQL detaches without
// a lock only where there is no partition for the rest. Files are removed after that.
// Whoever writes a new task has its row first, so that it is seen under the lock.
func dropPartition(ctx context.Context, tx pgx.Tx, table string, week time.Time) error {
	if err := lockPartitions(ctx, tx); err != nil {
		return err
	}
	name := partitionOf(table, week)
	var there, empty bool
	if err := tx.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", name).Scan(&there); err != nil || !there {
		return err
	}
	if _, err := tx.Exec(ctx, "LOCK TABLE ONLY "+table+" IN ACCESS EXCLUSIVE MODE; LOCK TABLE "+name+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	err := tx.QueryRow(ctx, "SELECT "+noTasks, firstID(week).String(), firstID(week.Add(weekLong)).String()).Scan(&empty)
	if err != nil || !empty {
		return err
	}
	_, err = tx.Exec(ctx, "DROP TABLE "+name)
	return err
}

// weeks is what a replica knows of the partitions.
type weeks struct {
	mu     sync.Mutex
	before time.Time // of the newest Prune
	ends   map[time.Time]verdict
}

// verdict is whether a week was about to go as a whole when it was last looked at.
type verdict struct {
	ends bool
	at   time.Time
}

// tend sees to the partitions until ctx ends.
func (s *Store) tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s.keepPartitions(ctx)
	}
}

// keepPartitions makes the partitions of this week and the next, and drops those of which
// no task is left. What cannot be done just now is done later; meanwhile the partition of
// the rest takes all.
func (s *Store) keepPartitions(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, tendEvery)
	defer cancel()
	if err := s.rollPartitions(limited, s.Time()); err != nil && ctx.Err() == nil {
		s.opt.Log.Warn("cannot see to the partitions of the tables; this is tried again", "error", err)
	}
}

func (s *Store) rollPartitions(ctx context.Context, now time.Time) error {
	whole, parts, err := s.readWeeks(ctx)
	if err != nil {
		return err
	}
	var failed error
	for i := range weeksAhead + 1 {
		if week := weekOf(now).Add(time.Duration(i) * weekLong); !whole[week] {
			failed = errors.Join(failed, addWeek(ctx, s.pool, week))
		}
	}
	failed = errors.Join(failed, s.judge(ctx, now, whole))
	for week := range parts {
		if now.Before(week.Add(weekLong + clockSlack)) {
			continue
		}
		var empty bool
		if err := s.pool.QueryRow(ctx, "SELECT "+noTasks, firstID(week).String(), firstID(week.Add(weekLong)).String()).Scan(&empty); err != nil {
			return err
		}
		if empty {
			failed = errors.Join(failed, dropWeek(ctx, s.pool, week))
		}
	}
	return failed
}

// readWeeks finds the weeks that have partitions, and those among them that have all.
func (s *Store) readWeeks(ctx context.Context) (whole, parts map[time.Time]bool, err error) {
	rows, err := s.pool.Query(ctx, `SELECT c.relname FROM pg_class p JOIN pg_inherits i ON i.inhparent = p.oid JOIN pg_class c ON c.oid = i.inhrelid
		WHERE p.relnamespace = current_schema()::regnamespace AND p.relkind = 'p'`)
	if err != nil {
		return nil, nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, nil, err
	}
	count := map[time.Time]int{}
	for _, name := range names {
		if week, err := time.Parse(weekFormat, name[strings.LastIndex(name, "_")+1:]); err == nil {
			count[week]++
		}
	}
	whole, parts = map[time.Time]bool{}, map[time.Time]bool{}
	for week, n := range count {
		parts[week] = true
		whole[week] = n == len(partitioned)
	}
	return whole, parts, nil
}

const (
	// endGrace is how much longer than its task the rows of one are kept, to go with
	// their week.
	endGrace = weekLong
	// verdictLife is how long it is not asked again whether a week is about to go.
	verdictLife = 10 * time.Minute
)

// judge finds out which weeks are about to go as a whole: they are over, and their tasks
// have all ended and are removed soon. It reads the headers of all of their tasks, so that
// is done here, now and then, and not by those who remove tasks.
func (s *Store) judge(ctx context.Context, now time.Time, whole map[time.Time]bool) error {
	s.weeks.mu.Lock()
	before, known := s.weeks.before, s.weeks.ends
	s.weeks.mu.Unlock()
	ends := map[time.Time]verdict{}
	for week := range whole {
		last, v := before.Add(endGrace), known[week]
		if before.IsZero() || week.After(last) || now.Before(week.Add(weekLong+clockSlack)) {
			continue
		}
		if !v.ends && (v.at.IsZero() || now.Sub(v.at) >= verdictLife) {
			v.at = now
			err := s.pool.QueryRow(ctx, `SELECT NOT EXISTS (SELECT 1 FROM queue WHERE task >= $1 AND task < $2) AND
				(SELECT coalesce(max(coalesce(ended_at, $3::bigint + 1)), 0) FROM task WHERE id >= $1 AND id < $2) <= $3`,
				firstID(week).String(), firstID(week.Add(weekLong)).String(), last.UnixMilli()).Scan(&v.ends)
			if err != nil {
				return err
			}
		}
		ends[week] = v
	}
	s.weeks.mu.Lock()
	defer s.weeks.mu.Unlock()
	s.weeks.ends = ends
	return nil
}

// toDelete gives those of tasks that are removed whose rows have to be deleted one by one:
// all but those whose week is about to go as a whole. before is when the tasks that are
// removed now ended at the latest.
func (w *weeks) toDelete(tasks []uuid.UUID, before time.Time) (list []uuid.UUID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
	for _, id := range tasks {
		if made, ok := madeAt(id); !ok || !w.ends[weekOf(made)].ends {
			list = append(list, id)
		}
	}
	return list
}

// importWeeksMax is how far back a hub that is copied here gets partitions. What is older
// goes to the rest.
const importWeeksMax = 104

// addWeeksFor makes the partitions that rows of a table belong to before they are copied.
func addWeeksFor(ctx context.Context, on begins, known map[time.Time]bool, table string, columns []string, rows [][]any) error {
	split := false
	for _, t := range partitioned {
		split = split || t.name == table
	}
	if !split {
		return nil
	}
	now := time.Now()
	for i, column := range columns {
		for _, row := range rows {
			id, ok := row[i].([16]byte)
			if column != "task" || !ok {
				break
			}
			made, dated := madeAt(id)
			week := weekOf(made)
			if !dated || known[week] || now.Sub(week) > importWeeksMax*weekLong || made.After(now.Add(clockSlack)) {
				continue
			}
			if err := addWeek(ctx, on, week); err != nil {
				return err
			}
			known[week] = true
		}
	}
	return nil
}
