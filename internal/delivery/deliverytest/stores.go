package deliverytest

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// inFile opens a new store in a file.
func inFile(t testing.TB) hub.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Synchronous: "OFF"})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inPostgreSQL starts a server that ends with t, and gives what opens a new store there.
func inPostgreSQL(t *testing.T) func(t testing.TB) hub.Store {
	t.Helper()
	srv, err := pgtest.Start(t.Context(), pgtest.Options{})
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	var made atomic.Int64
	return func(t testing.TB) hub.Store {
		t.Helper()
		name := fmt.Sprint("hub_", made.Add(1))
		if err := srv.Create(t.Context(), name, ""); err != nil {
			t.Fatal(err)
		}
		s, err := postgres.Open(t.Context(), postgres.Options{URL: srv.URL(name), Conns: 4})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}
