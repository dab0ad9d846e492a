package storetest

import (
	"context"
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func modelHarness(testing.TB) Harness {
	clock := NewClock()
	return Harness{Store: newModel(clock.Now), Clock: clock}
}

// The suite must pass on the model that it compares stores with.
func TestModel(t *testing.T) {
	Run(t, modelHarness)
}

// forgetful is a store with a race in it: two claims at once may get the same task.
type forgetful struct {
	hub.Store
	mu     sync.Mutex
	claims int
	last   *hub.Task
}

func (f *forgetful) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (hub.Claimed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.claims++; f.claims%4 == 0 && f.last != nil && f.last.Callee.ID == callee {
		return hub.Claimed{Task: f.last}, nil
	}
	got, err := f.Store.Claim(ctx, callee, c)
	f.last = got.Task
	return got, err
}

// A check that cannot fail shows nothing.
func TestLinearizabilityCheckFindsADoubleClaim(t *testing.T) {
	b := newBed(t, modelHarness(t))
	for n := range uint64(50) {
		h := newHistory(b, &forgetful{Store: b.s}, n)
		h.play()
		if result, _ := h.linearizable(); result == porcupine.Illegal {
			return
		}
	}
	t.Error("50 histories of a store that hands tasks out twice passed as linearizable")
}
