package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
	"github.com/holdfast-hub/holdfast/internal/store/storetest"
)

// template is the database that those of tests are copied from: it has the schema.
const template = "migrated"

// servers starts one server for all tests of this process, when the first needs it.
type servers struct {
	once   sync.Once
	server *pgtest.Server
	err    error
	made   atomic.Int64
	free   chan string // databases that tests are done with
}

var shared = servers{free: make(chan string, 1000)} // one server for the whole process

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		if err := shared.server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// server gives the server of all tests.
func server(t testing.TB) *pgtest.Server {
	t.Helper()
	shared.once.Do(func() {
		ctx := context.Background()
		if shared.server, shared.err = pgtest.Start(ctx, pgtest.Options{}); shared.err != nil {
			return
		}
		if shared.err = shared.server.Create(ctx, template, ""); shared.err != nil {
			return
		}
		var s *Store
		if s, shared.err = Open(ctx, Options{URL: shared.server.URL(template)}); shared.err == nil {
			shared.err = s.Close()
		}
	})
	if errors.Is(shared.err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(shared.err)
	}
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server
}

// database gives the URL of a database of this test's own, with the schema and nothing
// in it. To copy one takes a quarter of a second, so those of earlier tests are emptied
// and used again.
func database(t testing.TB) string {
	t.Helper()
	srv := server(t)
	var name string
	select {
	case name = <-shared.free:
	default:
		name = fmt.Sprintf("test_%d", shared.made.Add(1))
		if err := srv.Create(context.Background(), name, template); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := srv.Exec(context.Background(), name, emptySQL); err != nil {
			t.Errorf("empty a database: %v", err)
			return
		}
		shared.free <- name
	})
	return srv.URL(name)
}

// emptySQL removes all rows but the facts about the database itself. TRUNCATE would make
// new files for each table and index, which takes far longer.
const emptySQL = `DO $$ DECLARE name text; BEGIN FOR name IN SELECT relname FROM pg_class
	WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p') AND relname NOT IN ('meta', 'goose_db_version', 'address')
	LOOP EXECUTE format('DELETE FROM %I', name); END LOOP; DELETE FROM address; END $$`

// emptyDatabase gives the URL of a database without anything in it.
func emptyDatabase(t testing.TB) string {
	t.Helper()
	srv, name := server(t), fmt.Sprintf("test_%d", shared.made.Add(1))
	if err := srv.Create(context.Background(), name, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Drop(context.Background(), name); err != nil {
			t.Error(err)
		}
	})
	return srv.URL(name)
}

// open opens a store, which is closed when the test ends.
func open(t testing.TB, opt Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), opt)
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

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Harness {
		clock := storetest.NewClock()
		opt := Options{URL: database(t), Now: clock.Now, Conns: 8}
		s := open(t, opt)
		return storetest.Harness{Store: s, Clock: clock, Reopen: func(t testing.TB) hub.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, opt)
			return s
		}}
	})
}
