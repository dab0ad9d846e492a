// Package e2e looks at the real hub from the outside on bad days: what it writes
// before it answers, full and read-only disks, clients that misbehave, and signals.
//
// What a hub does whatever keeps its data is tested over SQLite and over PostgreSQL. What
// is about the file alone is tested over SQLite: its syncs, its disk, its directory, its
// backup, and how flat its tables are. What is about replicas and their database is tested
// over PostgreSQL.
package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
)

// weakVariable makes this executable a hub that syncs less than it should, in the
// words of SQLite's synchronous; the real binary has no such setting.
const weakVariable = "HOLDFAST_E2E_SYNCHRONOUS"

func TestMain(m *testing.M) {
	if level := os.Getenv(weakVariable); level != "" {
		if err := serveWeak(level, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(hubproc.WithPostgres(func() int { return hubproc.Main(m) }))
}

// serveWeak is a hub with a lowered synchronous.
func serveWeak(level string, args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg := config.Default()
	cfg.Synchronous = level
	for i := 0; i+1 < len(args); i += 2 {
		switch args[i] {
		case "--listen":
			cfg.Listen = args[i+1]
		case "--data":
			cfg.Data = args[i+1]
		}
	}
	if err := cfg.ApplyEnv(os.LookupEnv, nil); err != nil {
		return err
	}
	a, err := app.New(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	return a.Run(ctx)
}

type object = map[string]any

// send is the body of a send.
func send(text string) object {
	return object{"message": object{"role": "user", "parts": []object{{"text": text}}}}
}

// task is the part of a task that the tests look at.
type task struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	ClaimID  string `json:"claim_id"`
	Attempt  int    `json:"attempt"`
	Failures int    `json:"failures"`
}

// soon bounds everything that happens at once on a busy machine.
const soon = 15 * time.Second

// within is a context of a test that ends before too long.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until something holds.
func eventually(t testing.TB, d time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(d)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !holds() {
		select {
		case <-again.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", d, what)
		}
	}
}
