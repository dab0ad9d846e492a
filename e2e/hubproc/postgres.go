package hubproc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// postgresVariable has the URL of a PostgreSQL server's own database, or why there is none.
const postgresVariable = "HOLDFAST_E2E_POSTGRES"

// masterKey seals the secrets of hubs on PostgreSQL: their replicas have it in common.
const masterKey = "HOLDFAST_MASTER_KEY"

// WithPostgres runs tests with one PostgreSQL server for all of them; for use in TestMain.
func WithPostgres(run func() int) int {
	if os.Getenv(postgresVariable) != "" {
		return run()
	}
	server, err := pgtest.Start(context.Background(), pgtest.Options{Settings: []string{"max_connections = 300"}})
	if errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
		return run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(postgresVariable, server.URL("postgres")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Database makes an empty database on the server of WithPostgres and gives its URL. The
// test is skipped where there is no server, but never in CI.
func Database(t testing.TB) string {
	t.Helper()
	server := os.Getenv(postgresVariable)
	if server == "" {
		t.Skip(pgtest.ErrMissing)
	}
	name := "e2e_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	if err := pgtest.ExecAt(t.Context(), server, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pgtest.ExecAt(context.Background(), server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = name
	return u.String()
}

// On gives the options of a hub on a PostgreSQL database. key is a master key.
func On(database, key string) Options {
	return Options{Env: []string{"HOLDFAST_DATABASE_URL=" + database, masterKey + "=" + key}}
}

// EachStore runs a test on hubs over SQLite and over PostgreSQL: on has what the hub's
// options need for that. A test that uses on twice has two replicas on PostgreSQL.
func EachStore(t *testing.T, test func(t *testing.T, on Options)) {
	t.Helper()
	t.Run("SQLite", func(t *testing.T) { test(t, Options{}) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, On(Database(t), MasterKey(t))) })
}

// MasterKey makes a key with the hub's own command.
func MasterKey(t testing.TB) string {
	t.Helper()
	key, err := exec.CommandContext(t.Context(), os.Getenv(binaryVariable), "keys", "new").Output()
	if err != nil {
		t.Fatalf("make a master key: %v", err)
	}
	return strings.TrimSpace(string(key))
}

// WithWrongClocks builds a hub whose clock can be wrong and gives its command, for Options;
// WrongBy is added to its environment.
func WithWrongClocks(t testing.TB) (command []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-tags", "wrongclock", "-o", path, "github.com/holdfast-hub/holdfast/cmd/holdfast").CombinedOutput()
	if err != nil {
		t.Fatalf("build a hub with a wrong clock: %v\n%s", err, out)
	}
	return []string{path, "serve"}
}

// WrongBy is the setting of a hub whose clock is off by d.
func WrongBy(d time.Duration) string { return "HOLDFAST_TEST_CLOCK_OFFSET=" + d.String() }
