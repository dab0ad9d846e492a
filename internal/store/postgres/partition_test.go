package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/storetest"
)

// idAt is the id of a task that is made at a time.
func idAt(t time.Time) string {
	id := firstID(t)
	_, _ = rand.Read(id[6:])
	id[6], id[8] = 0x70|id[6]&0xf, 0x80|id[8]&0x3f
	return id.String()
}

// sendAt sends a task whose id was made at a time.
func sendAt(t *testing.T, s *Store, at time.Time, caller, callee string) string {
	t.Helper()
	in := newSend(caller, callee)
	in.TaskID = idAt(at)
	if _, err := s.Send(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return in.TaskID
}

// finish claims a callee's next task and completes it.
func finish(t *testing.T, s *Store, callee string) string {
	t.Helper()
	got, err := s.Claim(t.Context(), callee, hub.ClaimSpec{Lease: time.Hour})
	if err != nil || got.Task == nil {
		t.Fatalf("claimed %+v, error %v", got, err)
	}
	r := completed(got.Task)
	r.Events = []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", Body: []byte(`{"artifactId":"a","parts":[{"text":"x"}]}`)}}
	for range 2 { // as a worker does that has missed the answer
		if _, err := s.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	return got.Task.ID
}

// pruneAll removes all that ended before.
func pruneAll(t *testing.T, s *Store, before time.Time) (tasks int) {
	t.Helper()
	for {
		out, err := s.Prune(t.Context(), before, 100)
		if err != nil {
			t.Fatal(err)
		}
		tasks += out.Tasks
		if !out.More {
			return tasks
		}
	}
}

// roll does what each replica does every minute.
func roll(t *testing.T, s *Store) {
	t.Helper()
	if err := s.rollPartitions(t.Context(), s.Time()); err != nil {
		t.Fatal(err)
	}
}

// numberOf gives the number that a query gives.
func numberOf(t *testing.T, s *Store, sql string, args ...any) (n int) {
	t.Helper()
	if err := s.pool.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// has reports whether a week has all of its partitions; it must not have some alone.
func has(t *testing.T, s *Store, week time.Time) bool {
	t.Helper()
	whole, parts, err := s.readWeeks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if parts[week] && !whole[week] {
		t.Errorf("the week of %s has some of its partitions", week.Format(time.DateOnly))
	}
	return whole[week]
}

// weekDatabase is a store in a database without any week's partitions but those that its
// clock asks for.
func weekDatabase(t *testing.T) (*Store, *storetest.Clock) {
	clock := storetest.NewClock()
	return open(t, Options{URL: emptyDatabase(t), Now: clock.Now}), clock
}

func TestAWeekOfTasksGoesAsAWhole(t *testing.T) {
	s, clock := weekDatabase(t)
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	week := weekOf(clock.Now())
	for i := range weeksAhead + 1 {
		if !has(t, s, week.Add(time.Duration(i)*weekLong)) {
			t.Fatalf("week %d has no partitions", i)
		}
	}
	for range 20 {
		sendAt(t, s, clock.Now(), ann, dev)
		finish(t, s, dev)
	}
	part := partitionOf("event", week)
	rows := numberOf(t, s, "SELECT count(*) FROM "+part)
	if rows != 20*4 || numberOf(t, s, "SELECT count(*) FROM event") != rows {
		t.Fatalf("%d events are in the week's partition", rows)
	}
	if _, err := s.pool.Exec(t.Context(), "INSERT INTO dispatch (task, n, address, kind, begun_at, sent, took_us, status, untold_at) SELECT id, 1, callee, 'webhook', 0, true, 0, 0, 1 FROM task"); err != nil {
		t.Fatal(err)
	}
	clock.Advance(weekLong + clockSlack + 30*24*time.Hour)
	before := clock.Now().Add(-30 * 24 * time.Hour)
	if _, err := s.Prune(t.Context(), before, 0); err != nil { // as each replica does all the time
		t.Fatal(err)
	}
	roll(t, s)
	if n := pruneAll(t, s, before); n != 20 {
		t.Fatalf("%d tasks were removed, want 20", n)
	}
	if n := numberOf(t, s, "SELECT count(*) FROM "+part); n != rows {
		t.Errorf("%d of %d events are left of a week that goes as a whole: they were deleted one by one", n, rows)
	}
	if list, err := s.CanceledDispatches(t.Context(), []string{dev}, 0, 100); err != nil || len(list) > 0 || numberOf(t, s, "SELECT count(*) FROM dispatch") > 0 {
		t.Errorf("cancels of tasks that are gone are still to be told: %v, error %v", list, err)
	}
	roll(t, s)
	if has(t, s, week) || numberOf(t, s, "SELECT count(*) FROM pg_class WHERE relname = $1", part) != 0 {
		t.Error("the week's partitions are there although no task is")
	}
	if !has(t, s, weekOf(clock.Now())) {
		t.Error("the present week has no partitions")
	}
	roll(t, s) // has nothing to do
}

// One task that lives on keeps its week, and the others do not wait for its end.
func TestATaskThatLivesOnKeepsItsWeek(t *testing.T) {
	s, clock := weekDatabase(t)
	ann, dev, ops := address(t, s, "ann"), address(t, s, "dev"), address(t, s, "ops")
	week := weekOf(clock.Now())
	keeps := sendAt(t, s, clock.Now(), ann, ops)
	for range 5 {
		sendAt(t, s, clock.Now(), ann, dev)
		finish(t, s, dev)
	}
	month := 30 * 24 * time.Hour
	clock.Advance(weekLong + clockSlack + month)
	if _, err := s.Prune(t.Context(), clock.Now().Add(-month), 0); err != nil {
		t.Fatal(err)
	}
	roll(t, s)
	if n := pruneAll(t, s, clock.Now().Add(-month)); n != 5 {
		t.Errorf("%d tasks were removed, want 5", n)
	}
	roll(t, s)
	if !has(t, s, week) {
		t.Fatal("the partitions of a task are gone that is not")
	}
	for _, p := range partitioned {
		if n := numberOf(t, s, "SELECT count(*) FROM "+p.name+" WHERE task <> $1", keeps); n != 0 {
			t.Errorf("%d rows of %s are left of tasks that were removed", n, p.name)
		}
	}
	if got := finish(t, s, ops); got != keeps {
		t.Fatalf("%s was claimed", got)
	}
	roll(t, s)
	clock.Advance(month + time.Hour)
	if n := pruneAll(t, s, clock.Now().Add(-month)); n != 1 {
		t.Errorf("%d tasks were removed, want 1", n)
	}
	roll(t, s)
	if has(t, s, week) {
		t.Error("the week's partitions are there although no task is")
	}
}

// Ids that have no time, or one that no partition is for, are as good as any.
func TestWhatFitsIntoNoWeekIsKeptAndGoes(t *testing.T) {
	s, clock := weekDatabase(t)
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	old, future := clock.Now().Add(-80*weekLong), clock.Now().Add(80*weekLong)
	for _, id := range []string{uuid.NewString(), idAt(old), idAt(future)} {
		in := newSend(ann, dev)
		in.TaskID = id
		if _, err := s.Send(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		finish(t, s, dev)
	}
	if n := numberOf(t, s, "SELECT count(*) FROM event_rest"); n != 3*4 {
		t.Errorf("%d events are in the partition of the rest", n)
	}
	if err := addWeek(t.Context(), s.pool, weekOf(old)); err != nil {
		t.Errorf("the partitions of a week whose rows are in the rest: %v", err)
	}
	clock.Advance(40 * 24 * time.Hour)
	pruneAll(t, s, clock.Now().Add(-30*24*time.Hour))
	for _, p := range partitioned {
		if n := numberOf(t, s, "SELECT count(*) FROM "+p.name); n != 0 {
			t.Errorf("%d rows of %s are left", n, p.name)
		}
	}
}

// Whoever holds a table for long, as a backup does, delays the partitions, and these delay
// no send for long. What was begun is done later.
func TestPartitionsWaitForNobodyForLong(t *testing.T) {
	s, clock := weekDatabase(t)
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	week := weekOf(clock.Now())
	sendAt(t, s, clock.Now(), ann, dev)
	finish(t, s, dev)
	clock.Advance(weekLong + clockSlack + 30*24*time.Hour)
	pruneAll(t, s, clock.Now().Add(-30*24*time.Hour))

	reader, err := s.pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Release()
	if _, err := reader.Exec(t.Context(), "BEGIN; SELECT count(*) FROM message"); err != nil {
		t.Fatal(err)
	}
	rolled := make(chan error, 1)
	go func() { rolled <- s.rollPartitions(context.Background(), s.Time()) }()
	var slowest time.Duration
	for done := false; !done; {
		began := time.Now()
		sendAt(t, s, clock.Now(), ann, dev)
		slowest = max(slowest, time.Since(began))
		select {
		case err := <-rolled:
			if err == nil {
				t.Error("the partitions were changed under a reader")
			}
			done = true
		default:
		}
	}
	if slowest > 3*time.Second {
		t.Errorf("a send took %s", slowest)
	}
	if _, err := reader.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	roll(t, s)
	if has(t, s, week) {
		t.Error("the week was not dropped once the reader had left")
	}
}

// A task of an old week that is being written while the week is dropped keeps it, and loses
// nothing.
func TestALateTaskIsNotDroppedWithItsWeek(t *testing.T) {
	s, clock := weekDatabase(t)
	ann, dev := address(t, s, "ann"), address(t, s, "dev")
	old := clock.Now()
	clock.Advance(3 * weekLong)
	late, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	id := sendAt(t, s, old, ann, dev) // what the other transaction writes is a copy of it
	copied := idAt(old)
	for _, sql := range []string{
		"INSERT INTO task SELECT (jsonb_populate_record(t, jsonb_build_object('id', '" + copied + "', 'n', -1))).* FROM task t WHERE id = '" + id + "'",
		"INSERT INTO event SELECT '" + copied + "', seq, kind, at, state, flags, artifact, body, metadata FROM event WHERE task = '" + id + "'",
	} {
		if _, err := late.Exec(t.Context(), strings.Replace(sql, "INTO task SELECT", "INTO task OVERRIDING SYSTEM VALUE SELECT", 1)); err != nil {
			t.Fatal(err)
		}
	}
	finish(t, s, dev)
	clock.Advance(31 * 24 * time.Hour)
	pruneAll(t, s, clock.Now().Add(-30*24*time.Hour))
	if err := s.rollPartitions(t.Context(), s.Time()); err == nil {
		t.Error("the week was dropped while a task of it was written")
	}
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	roll(t, s)
	if n := numberOf(t, s, "SELECT count(*) FROM event WHERE task = $1", copied); n != 1 {
		t.Errorf("a task that was written meanwhile has %d events", n)
	}
}

// Replicas that see to the partitions at once do it once.
func TestReplicasMakePartitionsTogether(t *testing.T) {
	clock := storetest.NewClock()
	opt := Options{URL: emptyDatabase(t), Now: clock.Now}
	var list []*Store
	for range 3 {
		list = append(list, open(t, opt))
	}
	clock.Advance(9 * weekLong)
	var wg sync.WaitGroup
	for _, s := range list {
		wg.Go(func() {
			if err := s.rollPartitions(t.Context(), s.Time()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if !has(t, list[0], weekOf(clock.Now())) {
		t.Error("the week has no partitions")
	}
	if n := numberOf(t, list[0], "SELECT count(*) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent WHERE c.relname = 'event'"); n != weeksAhead+2 {
		t.Errorf("event has %d partitions, want those of %d weeks and the rest", n, weeksAhead+1)
	}
}

// scanned finds scans of partitions in the plans that the server has logged.
var scanned = regexp.MustCompile(`Scan (?:Backward )?(?:using \S+ )?on ((?:event|message|artifact|attempt|dispatch)_\w+) .*`)

// Whatever the plan, what concerns one task looks into the partition of its week alone.
func TestHotStatementsTouchOnePartition(t *testing.T) {
	srv := server(t)
	url := emptyDatabase(t)
	s := open(t, Options{URL: url})
	for i := range 5 {
		if err := addWeek(t.Context(), s.pool, weekOf(time.Now()).Add(-time.Duration(i+1)*weekLong)); err != nil {
			t.Fatal(err)
		}
	}
	name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
	if err := srv.Exec(t.Context(), name, "LOAD 'auto_explain'"); err != nil {
		t.Skip("the server has no auto_explain:", err)
	}
	for _, set := range []string{"session_preload_libraries = 'auto_explain'", "auto_explain.log_min_duration = 0", "auto_explain.log_analyze = on", "auto_explain.log_timing = off"} {
		if err := srv.Exec(t.Context(), name, "ALTER DATABASE "+pgx.Identifier{name}.Sanitize()+" SET "+set); err != nil {
			t.Fatal(err)
		}
	}
	from := len(srv.Log())
	plain := open(t, Options{URL: url})
	ann, dev := address(t, plain, "ann"), address(t, plain, "dev")
	for range 12 { // a server looks for a plan for all parameters after five times
		id := sendAt(t, plain, time.Now(), ann, dev)
		finish(t, plain, dev)
		if _, err := plain.Task(t.Context(), hub.TaskRef{ID: id}, hub.Viewer{All: true}, hub.Load{History: -1, Artifacts: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := plain.Events(t.Context(), hub.TaskRef{ID: id}, hub.Viewer{All: true}, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	present, seen := weekOf(time.Now()).Format(weekFormat), map[string]int{}
	var strays []string
	for line := range strings.Lines(srv.Log()[from:]) {
		m := scanned.FindStringSubmatch(line)
		if m == nil || strings.Contains(line, "never executed") {
			continue
		}
		seen[m[1]]++
		if !strings.HasSuffix(m[1], present) {
			strays = append(strays, strings.TrimSpace(line))
		}
	}
	for _, table := range []string{"event", "message", "attempt"} {
		if seen[table+"_"+present] == 0 {
			t.Errorf("no plan of %s was logged, so this shows nothing", table)
		}
	}
	t.Logf("scans by partition: %v", seen)
	slices.Sort(strays)
	if strays = slices.Compact(strays); len(strays) > 0 {
		t.Errorf("other partitions were looked into:\n%s", strings.Join(strays, "\n"))
	}
}

// What is copied from another store finds the partitions of its weeks.
func TestWhatIsImportedGoesIntoItsWeeks(t *testing.T) {
	url := emptyDatabase(t)
	to, err := OpenImport(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Begin(t.Context(), "a hub", false); err != nil {
		t.Fatal(err)
	}
	columns := []string{"task", "seq", "kind", "at", "state", "flags"}
	now := time.Now()
	var rows [][]any
	for _, made := range []time.Time{now, now.Add(-5 * weekLong), now.Add(-40 * weekLong), now.Add(-(importWeeksMax + 5) * weekLong)} {
		rows = append(rows, []any{[16]byte(uuid.MustParse(idAt(made))), int64(1), int64(1), int64(0), int64(1), int64(0)})
	}
	for i := range rows { // the second time it knows the weeks
		if err := to.Write(t.Context(), "event", columns, rows[i:i+1], int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	count := func(from string, args ...any) (n int) {
		if err := to.c.QueryRow(t.Context(), "SELECT count(*) FROM "+from, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, made := range []time.Time{now, now.Add(-5 * weekLong), now.Add(-40 * weekLong)} {
		if n := count(partitionOf("event", weekOf(made))); n != 1 {
			t.Errorf("%d events are of the week of %s", n, made.Format(time.DateOnly))
		}
	}
	if n := count("event_rest"); n != 1 {
		t.Errorf("%d events are in the partition of the rest, want the one that is too old for a week", n)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
}

// A database that was made before the first migration took its present form is refused.
func TestTheTablesOfAnotherFirstMigrationAreRefused(t *testing.T) {
	url := emptyDatabase(t)
	s, err := Open(t.Context(), Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if n := numberOf(t, s, "SELECT count(*) FROM meta WHERE key = $1", firstKey); n != 1 {
		t.Errorf("the form of the first migration was noted %d times", n)
	}
	_, err = s.pool.Exec(t.Context(), "UPDATE meta SET value = 'another' WHERE key = $1", firstKey)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{URL: url}); hub.KindOf(err) != hub.Invalid || !strings.Contains(err.Error(), "before the first release") {
		t.Errorf("it was answered with %v", err)
	}
	if _, err := Probe(t.Context(), url); hub.KindOf(err) != hub.Invalid {
		t.Errorf("a look at it was answered with %v", err)
	}
}
