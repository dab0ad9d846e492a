package bench_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/bench"
	"github.com/holdfast-hub/holdfast/internal/cli"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// TestMain lets this executable be what a bench starts: a hub, or a baseline.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"serve", "bench", "tunnel"}, os.Args[1]) {
		os.Exit(cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
	}
	os.Exit(m.Run())
}

// Every bench runs to its end and measures something that can be true. Whether the
// bars are met is for a quiet machine to say.
func TestShort(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { short(t, 26) })
	t.Run("postgres", func(t *testing.T) {
		if _, err := pgtest.Find(); errors.Is(err, pgtest.ErrMissing) && os.Getenv("CI") == "" {
			t.Skip(err)
		}
		short(t, 10)
	})
}

// short runs the group of benches that the test is named after, which gives so many lines.
func short(t *testing.T, want int) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a minute")
	}
	_, group, _ := strings.Cut(t.Name(), "/")
	var progress bytes.Buffer
	rows, err := bench.Measure(t.Context(), bench.Options{Only: []string{group}, Short: true, Dir: benchDir(t), Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	if got := len(rows); got != want {
		t.Errorf("got %d lines, want %d", got, want)
	}
	for _, r := range rows {
		sane(t, r)
	}
	if t.Failed() {
		t.Log(progress.String())
	}
}

// benchDir is a directory that a database server, which does not run as root, can use too.
func benchDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // what is in it has rights of its own
		t.Fatal(err)
	}
	return dir
}

func sane(t *testing.T, r bench.Row) {
	t.Helper()
	growth := strings.Contains(r.What, "growth of") // may be nothing
	if v := r.Judged(); math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || v == 0 && !growth {
		t.Errorf("%s: %v is no sane figure", r.What, v)
	}
	if r.Against != "" && !(r.Baseline > 0) {
		t.Errorf("%s: the baseline %v is no sane figure", r.What, r.Baseline)
	}
	if strings.Contains(r.What, "goroutines") && r.Measured > 1000 {
		t.Errorf("%s: %v, so tasks have goroutines", r.What, r.Measured)
	}
}

func TestUnknownBench(t *testing.T) {
	err := bench.Run(t.Context(), bench.Options{Only: []string{"speed"}}, new(bytes.Buffer))
	if err == nil || !strings.Contains(err.Error(), "throughput") {
		t.Errorf("got %v, want an error that names the benches that there are", err)
	}
}

func TestVerdict(t *testing.T) {
	atLeast := bench.Row{Ratio: true, Baseline: 100, Bar: .3, Stretch: .45}
	atMost := bench.Row{Bar: 8, Stretch: 4, Less: true}
	for _, c := range []struct {
		row      bench.Row
		measured float64
		want     string
	}{
		{atLeast, 45, "stretch"}, {atLeast, 44, "met"}, {atLeast, 29, "MISSED"},
		{atMost, 4, "stretch"}, {atMost, 8, "met"}, {atMost, 8.1, "MISSED"},
		{bench.Row{}, 1, ""},
	} {
		c.row.Measured = c.measured
		if got := c.row.Verdict(); got != c.want {
			t.Errorf("%v of %+v: got %q, want %q", c.measured, c.row, got, c.want)
		}
	}
}
