package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		clock, dir := storetest.NewClock(), t.TempDir()
		open := func(t testing.TB) *Store {
			s, err := Open(context.Background(), Options{Dir: dir, Now: clock.Now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return s
		}
		s := open(t)
		return storetest.Harness{Store: s, Clock: clock, Reopen: func(t testing.TB) hub.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t)
			return s
		}}
	})
}

func openTemp(t *testing.T) *Store {
	t.Helper()
	return openIn(t, t.TempDir())
}

func openIn(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func address(handle string) hub.Address {
	return hub.Address{ID: "id-" + handle, Handle: handle, Kind: hub.KindAgent, Access: hub.Open, CreatedAt: time.Now()}
}

func TestOneHubPerDataDirectory(t *testing.T) {
	dir := t.TempDir()
	first, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open(t.Context(), Options{Dir: dir})
	if hub.KindOf(err) != hub.Exists || !strings.Contains(err.Error(), "another hub is using") {
		t.Errorf("a second hub got %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatalf("after the first had stopped: %v", err)
	}
	_ = again.Close()
}

func TestADatabaseThatIsNotOursIsLeftAlone(t *testing.T) {
	for name, prepare := range map[string]func(db *sql.DB) error{
		"of another program": func(db *sql.DB) error {
			_, err := db.Exec("CREATE TABLE invoices (id INTEGER)")
			return err
		},
		"of another program with a meta table": func(db *sql.DB) error {
			_, err := db.Exec("CREATE TABLE meta (key TEXT, value TEXT)")
			return err
		},
		"of a newer Holdfast": func(db *sql.DB) error {
			_, err := db.Exec("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT); INSERT INTO meta VALUES ('application', 'holdfast'), ('oldest_binary', '99')")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, FileName)
			db := sql.OpenDB(connector{dsn: dsn(path)})
			if err := prepare(db); err != nil {
				t.Fatal(err)
			}
			before := tables(t, db)
			_, err := Open(t.Context(), Options{Dir: dir})
			if hub.KindOf(err) != hub.Invalid {
				t.Errorf("opening it gave %v", err)
			}
			if after := tables(t, db); after != before {
				t.Errorf("its tables were %s and are %s", before, after)
			}
			_ = db.Close()
		})
	}
	t.Run("not SQLite at all", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), Options{Dir: dir}); hub.KindOf(err) != hub.Unavailable {
			t.Errorf("opening it gave %v", err)
		}
	})
}

func tables(t *testing.T, db *sql.DB) (names string) {
	t.Helper()
	if err := db.QueryRow("SELECT coalesce(group_concat(name), '') FROM (SELECT name FROM sqlite_schema ORDER BY name)").Scan(&names); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestEveryConnectionSyncsFully(t *testing.T) {
	s := openTemp(t)
	check := func(c *conn) {
		t.Helper()
		for pragma, want := range map[string]string{"synchronous": "2", "journal_mode": "wal"} {
			r, err := c.one("PRAGMA " + pragma)
			if err != nil {
				t.Fatal(err)
			}
			got := r.text(0)
			if got == "" {
				got = strconv.FormatInt(r.int(0), 10)
			}
			if got != want {
				t.Errorf("%s is %s, want %s", pragma, got, want)
			}
		}
	}
	check(s.w)
	for range cap(s.readers) {
		c := <-s.readers
		check(c)
		if _, err := c.exec("INSERT INTO meta VALUES ('x', 'y')"); err == nil {
			t.Error("a reading connection wrote")
		}
		defer func() { s.readers <- c }()
	}
}

// inOneBatch has the writer run transitions in one transaction, and gives what
// each ended with.
func inOneBatch(s *Store, fs ...func(*tx) error) []error {
	var entered, wg sync.WaitGroup
	hold := make(chan struct{})
	entered.Add(1)
	wg.Go(func() {
		_ = s.write(context.Background(), func(*tx) error {
			entered.Done()
			<-hold
			return nil
		})
	})
	entered.Wait()
	// The writer is busy with a batch of its own: what is put there now waits for the next.
	ops := make([]*op, len(fs))
	for i, f := range fs {
		ops[i] = &op{run: f, done: make(chan struct{})}
		s.ops <- ops[i]
	}
	close(hold)
	wg.Wait()
	errs := make([]error, len(fs))
	for i, o := range ops {
		<-o.done
		errs[i] = storeError(o.err)
	}
	return errs
}

func put(key string, then error) func(*tx) error {
	return func(t *tx) error {
		if _, err := t.exec("INSERT INTO meta VALUES (?, 'x')", key); err != nil {
			return err
		}
		return then
	}
}

func (s *Store) keys(t *testing.T) (keys string) {
	t.Helper()
	err := s.read(t.Context(), func(c *conn) error {
		r, err := c.one("SELECT group_concat(key) FROM (SELECT key FROM meta WHERE value = 'x' ORDER BY key)")
		keys = r.text(0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func TestOneTransitionThatFailsFailsNoOther(t *testing.T) {
	s := openTemp(t)
	refused := errors.New("refused")
	noted := func(t *tx) error {
		t.keep = true
		return put("e", refused)(t)
	}
	errs := inOneBatch(s, put("a", nil), put("b", refused), put("c", nil), func(*tx) error { panic("bug") }, put("d", nil), noted)
	if errs[0] != nil || !errors.Is(errs[1], refused) || errs[2] != nil || errs[3] == nil || errs[4] != nil || !errors.Is(errs[5], refused) {
		t.Errorf("the transitions ended with %v", errs)
	}
	if got := s.keys(t); got != "a,c,d,e" {
		t.Errorf("kept %s, want a,c,d,e", got)
	}
}

func TestATransactionThatIsLostFailsAllOfItsTransitions(t *testing.T) {
	s := openTemp(t)
	lose := func(t *tx) error {
		if _, err := t.exec("INSERT INTO meta VALUES ('b', 'x')"); err != nil {
			return err
		}
		_, err := t.conn.exec("ROLLBACK") // as SQLite does by itself when a disk fails
		return err
	}
	for i, err := range inOneBatch(s, put("a", nil), lose, put("c", nil)) {
		if hub.KindOf(err) != hub.Unavailable {
			t.Errorf("transition %d ended with %v, want unavailable", i, err)
		}
	}
	if got := s.keys(t); got != "" {
		t.Errorf("kept %s of a lost transaction", got)
	}
	if err := s.Ping(t.Context()); hub.KindOf(err) != hub.Unavailable {
		t.Errorf("after a lost transaction Ping gives %v", err)
	}
	if err := s.write(t.Context(), func(*tx) error { return nil }); err != nil {
		t.Errorf("a transition that writes nothing: %v", err)
	}
	if err := s.Ping(t.Context()); hub.KindOf(err) != hub.Unavailable {
		t.Errorf("what writes nothing does not show that the disk works, but Ping gives %v", err)
	}
	if _, err := s.Sweep(t.Context(), 1, true, hub.DefaultLimits()); err != nil {
		t.Errorf("a sweep, which finds out: %v", err)
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("after a good transaction Ping gives %v", err)
	}
}

func TestReadersAndWriterDoNotWaitForEachOther(t *testing.T) {
	s := openTemp(t)
	err := s.read(t.Context(), func(c *conn) error {
		if _, err := c.one("SELECT count(*) FROM address"); err != nil { // the snapshot begins
			return err
		}
		if err := s.CreateAddress(t.Context(), address("late")); err != nil {
			return err
		}
		r, err := c.one("SELECT count(*) FROM address")
		if err == nil && r.int(0) != 0 {
			t.Error("a read saw what was committed after it began")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = s.write(t.Context(), func(tx *tx) error {
		if _, err := tx.exec("INSERT INTO meta VALUES ('a', 'x')"); err != nil {
			return err
		}
		_, err := s.Address(t.Context(), "late")
		return err
	})
	if err != nil {
		t.Errorf("a read during a transaction: %v", err)
	}
}

func TestACallerThatStopsWaitingIsToldSo(t *testing.T) {
	s := openTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	begun := make(chan struct{})
	finish := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- s.write(ctx, func(t *tx) error {
			close(begun)
			<-finish
			_, err := t.exec("INSERT INTO meta VALUES ('a', 'x')")
			return err
		})
	}()
	<-begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	close(finish)
	if err := s.write(t.Context(), put("b", nil)); err != nil {
		t.Fatal(err)
	}
	if got := s.keys(t); got != "a,b" {
		t.Errorf("kept %s: a transition that has begun is carried through", got)
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	s := openTemp(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateAddress(t.Context(), address("a")); hub.KindOf(err) != hub.Unavailable {
		t.Errorf("a write gave %v", err)
	}
	if _, err := s.Address(t.Context(), "a"); hub.KindOf(err) != hub.Unavailable {
		t.Errorf("a read gave %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closing again gave %v", err)
	}
}
