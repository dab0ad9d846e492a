package transfer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
	"github.com/holdfast-hub/holdfast/internal/store/storetest"
	"github.com/holdfast-hub/holdfast/internal/store/transfer"
)

// server starts a PostgreSQL for one test.
func server(t *testing.T) *pgtest.Server {
	t.Helper()
	s, err := pgtest.Start(t.Context(), pgtest.Options{})
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func database(t *testing.T, s *pgtest.Server, name string) string {
	t.Helper()
	if err := s.Create(t.Context(), name, ""); err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}

// move copies the hub of a data directory.
func move(ctx context.Context, dir, url string, restart bool, p transfer.Progress) (_ []transfer.Count, err error) {
	from, err := sqlite.OpenExport(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := postgres.OpenImport(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	counts, err := transfer.Copy(ctx, from, to, restart, p)
	if err == nil {
		err = from.Moved(ctx)
	}
	return counts, err
}

// A random walk on a SQLite hub goes on in PostgreSQL as if nothing had happened: whatever
// can be read or done is held against the model.
func TestAHubThatWasMovedGoesOnAsItWas(t *testing.T) {
	url := database(t, server(t), "moved")
	dir, clock := t.TempDir(), storetest.NewClock()
	opt := postgres.Options{URL: url, Now: clock.Now}
	storetest.WalkOn(t, func(t testing.TB) storetest.Harness {
		var s hub.Store
		s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir, Now: clock.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		inPostgres := false
		return storetest.Harness{Store: s, Clock: clock, Reopen: func(t testing.TB) hub.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if !inPostgres {
				counts, err := move(t.Context(), dir, url, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Log("moved: ", counts)
				inPostgres = true
			}
			p, err := postgres.Open(t.Context(), opt)
			if err != nil {
				t.Fatal(err)
			}
			s = p
			return s
		}}
	})
}

// fill makes a hub with some tasks, and closes it.
func fill(t *testing.T, dir string, tasks int) {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	storetest.Fill(t, s, tasks)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, what string, err error, want hub.Kind) {
	t.Helper()
	if hub.KindOf(err) != want || err == nil {
		t.Fatalf("%s: %v, want an error of kind %v", what, err, want)
	}
}

func TestAMoveGoesOnWhereItWasInterrupted(t *testing.T) {
	srv := server(t)
	url, dir := database(t, srv, "moved"), t.TempDir()
	fill(t, dir, 20)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := move(ctx, dir, url, false, func(_, table string, _, _ int64) {
		if table == "message" {
			cancel()
		}
	})
	if err == nil {
		t.Fatal("a move that was interrupted says that it is done")
	}
	_, err = postgres.Open(t.Context(), postgres.Options{URL: url})
	wantKind(t, "a replica on half a hub", err, hub.Invalid)

	var again []string
	counts, err := move(t.Context(), dir, url, false, func(step, table string, done, _ int64) {
		if step == transfer.Copying && done > 0 {
			again = append(again, table)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range again {
		if table == "task" || table == "queue" {
			t.Errorf("table %s, which had arrived, was copied again", table)
		}
	}
	if len(counts) == 0 || len(again) == 0 {
		t.Errorf("moved %v, in the second call %v", counts, again)
	}
	s, err := postgres.Open(t.Context(), postgres.Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A move that stops after all has arrived is finished by the same command.
func TestAMoveIsFinishedAfterAllHasArrived(t *testing.T) {
	srv := server(t)
	url, dir := database(t, srv, "moved"), t.TempDir()
	fill(t, dir, 3)
	if _, err := move(t.Context(), dir, url, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []bool{false, true} {
		if _, err := move(t.Context(), dir, url, restart, nil); err != nil {
			t.Errorf("again, restart %t: %v", restart, err)
		}
	}
}

func TestAHubThatRanAgainIsNotMixedWithWhatWasCopiedBefore(t *testing.T) {
	srv := server(t)
	url, dir := database(t, srv, "moved"), t.TempDir()
	fill(t, dir, 5)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := move(ctx, dir, url, false, func(_, table string, _, _ int64) {
		if table == "event" {
			cancel()
		}
	})
	if err == nil {
		t.Fatal("a move that was interrupted says that it is done")
	}
	fill(t, dir, 1)
	_, err = move(t.Context(), dir, url, false, nil)
	wantKind(t, "a move of a hub that has run meanwhile", err, hub.Conflict)
	if _, err = move(t.Context(), dir, url, true, nil); err != nil {
		t.Fatalf("begun anew: %v", err)
	}
}

func TestAHubIsNeverCopiedOverAnother(t *testing.T) {
	srv := server(t)
	dir, other := t.TempDir(), t.TempDir()
	fill(t, dir, 3)
	fill(t, other, 3)
	url := database(t, srv, "moved")
	if _, err := move(t.Context(), dir, url, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []bool{false, true} {
		_, err := move(t.Context(), other, url, restart, nil)
		wantKind(t, "a move onto another hub", err, hub.Exists)
	}
}

func TestAHubThatWasMovedDoesNotStartInItsOldPlace(t *testing.T) {
	srv := server(t)
	dir := t.TempDir()
	fill(t, dir, 3)
	if _, err := move(t.Context(), dir, database(t, srv, "moved"), false, nil); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
	wantKind(t, "a hub on what was moved", err, hub.Invalid)
	taken, err := sqlite.Reopen(t.Context(), sqlite.Options{Dir: dir})
	if err != nil || taken == 0 {
		t.Fatalf("reopened: %d taken back, error %v; want some", taken, err)
	}
	fill(t, dir, 1)
	_, err = sqlite.Reopen(t.Context(), sqlite.Options{Dir: dir})
	wantKind(t, "reopening what was not moved", err, hub.NotFound)
	_, err = sqlite.OpenExport(t.Context(), sqlite.Options{Dir: filepath.Join(dir, "none")})
	wantKind(t, "no directory", err, hub.NotFound)
}

// What the target has lost or changed is noticed.
func TestAMoveIsVerified(t *testing.T) {
	srv := server(t)
	for i, damage := range []string{
		"DELETE FROM event WHERE seq = 2",
		`UPDATE message SET body = body || '\x20'`,
		"UPDATE task SET state = 3 WHERE state <> 3",
	} {
		t.Run(damage, func(t *testing.T) {
			dir := t.TempDir()
			fill(t, dir, 3)
			database := fmt.Sprint("damaged_", i)
			if err := srv.Create(t.Context(), database, ""); err != nil {
				t.Fatal(err)
			}
			done := false
			_, err := move(t.Context(), dir, srv.URL(database), false, func(step, _ string, _, _ int64) {
				if step == transfer.Verifying && !done {
					done = true
					if err := srv.Exec(context.Background(), database, damage); err != nil {
						t.Error(err)
					}
				}
			})
			wantKind(t, "a damaged copy", err, hub.Conflict)
		})
	}
}
