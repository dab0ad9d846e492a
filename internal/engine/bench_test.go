package engine_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// BenchmarkLifecycle is the cost of a task without HTTP: 64 blocking callers, 64
// workers whose reports bring the next task.
func BenchmarkLifecycle(b *testing.B) {
	e, _ := open(b, engine.Options{})
	caller, callee := principal("caller"), principal("callee")
	ctx, stop := context.WithCancel(b.Context())
	var workers, callers sync.WaitGroup
	for range 64 {
		workers.Go(func() {
			for ctx.Err() == nil {
				t, _ := e.Next(ctx, callee, engine.NextRequest{Wait: 10 * time.Second, Lease: time.Minute, Ack: 5 * time.Second})
				for t != nil {
					r := report(t, hub.Completed)
					r.Next = &engine.NextRequest{Lease: time.Minute, Ack: 5 * time.Second}
					out, err := e.Report(ctx, callee, r)
					if err != nil {
						b.Error(err)
						return
					}
					t = out.Next
				}
			}
		})
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	for range 64 {
		callers.Go(func() {
			for left.Add(-1) >= 0 {
				out, err := e.SendAndWait(ctx, caller, send("callee", "hello"), time.Minute, hub.Load{History: -1, Artifacts: true})
				if err != nil || out.Task.State != hub.Completed {
					b.Errorf("sent and got %v, %v", out.Task, err)
					return
				}
			}
		})
	}
	callers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
	stop()
	workers.Wait()
}
