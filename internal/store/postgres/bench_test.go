package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// durable starts a server that syncs to the disk, and a store on it.
func durable(b *testing.B) *Store {
	b.Helper()
	server(b) // which skips where there is none
	srv, err := pgtest.Start(b.Context(), pgtest.Options{Durable: true, Settings: []string{"shared_buffers = 512MB", "max_wal_size = 4GB"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := srv.Create(b.Context(), "hub", ""); err != nil {
		b.Fatal(err)
	}
	return open(b, Options{URL: srv.URL("hub")})
}

func benchAddress(b *testing.B, s *Store, handle string) string {
	b.Helper()
	a := hub.Address{ID: newID(), Handle: handle, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1, OnUnknown: "resend", CreatedAt: time.Now()}
	if err := s.CreateAddress(b.Context(), a); err != nil {
		b.Fatal(err)
	}
	return a.ID
}

// Tasks from send over claim to result, with 64 callers and callees at once.
func BenchmarkLifecycle(b *testing.B) {
	s := durable(b)
	ann, dev := benchAddress(b, s, "ann"), benchAddress(b, s, "dev")
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range 64 {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				in := newSend(ann, dev)
				if _, err := s.Send(context.Background(), in); err != nil {
					b.Error(err)
					return
				}
				got, err := s.Claim(context.Background(), dev, hub.ClaimSpec{Lease: time.Minute})
				if err != nil || got.Task == nil {
					b.Errorf("claim: %v %v", got, err)
					return
				}
				if _, err := s.Report(context.Background(), completed(got.Task)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
}

// One claim and its release, with so many ready tasks.
func BenchmarkClaim(b *testing.B) {
	for _, n := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := durable(b)
			ann, dev := benchAddress(b, s, "ann"), benchAddress(b, s, "dev")
			fill(b, s, n, ann, dev)
			b.ResetTimer()
			for range b.N {
				got, err := s.Claim(context.Background(), dev, hub.ClaimSpec{Lease: time.Minute})
				if err != nil || got.Task == nil {
					b.Fatalf("claim: %v %v", got, err)
				}
			}
		})
	}
}

// fill makes ready tasks in bulk.
func fill(b *testing.B, s *Store, n int, caller, callee string) {
	b.Helper()
	if _, err := s.Send(b.Context(), newSend(caller, callee)); err != nil {
		b.Fatal(err)
	}
	for _, sql := range []string{
		`INSERT INTO task (id, context, caller, callee, state, state_at, status_seq, seq, messages, bytes, attempt, failures, cancel_outcome, pushes, polls, created_at, run)
			SELECT ('01900000-0000-7000-8000-' || lpad(to_hex(i), 12, '0'))::uuid, context, caller, callee, 1, state_at, 0, 1, 1, 100, 0, 0, 0, 0, 0, created_at, run
			FROM task, generate_series(1, $1::integer) i`,
		`INSERT INTO queue (task, n, callee, caller, phase, rank, lease_ms, attempt, failures, open, provisional, lapsed, seen)
			SELECT id, n, callee, caller, 1, n, 0, 0, 0, false, false, false, 0 FROM task WHERE id NOT IN (SELECT task FROM queue) AND $1 > 0`,
		`INSERT INTO message (task, n, from_callee, undelivered, body) SELECT task, 1, false, false, '{}' FROM queue WHERE $1 > 0 ON CONFLICT DO NOTHING`,
	} {
		if _, err := s.pool.Exec(b.Context(), sql, n); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.pool.Exec(b.Context(), "ANALYZE"); err != nil {
		b.Fatal(err)
	}
}
