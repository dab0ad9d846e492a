// Package storetest is the definition of hub.Store in executable form. A store is
// right when Run passes on it, whatever it keeps its data in:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t testing.TB) storetest.Harness { … })
//	}
//
// It holds one named test for each thing that the interface promises, a random walk
// that compares a store with a plain model after every step, and a check that
// random concurrent histories are linearizable. Every random choice follows from a
// seed that is printed; HOLDFAST_STORETEST_SEED repeats one, and
// HOLDFAST_STORETEST_TIME (a duration) makes the random parts run longer. What dies
// with the process, and a disk that fails, is tested with whole programs elsewhere.
package storetest

import (
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Harness is one fresh and empty store and what a test needs to steer it. The store
// is closed when the test ends.
type Harness struct {
	Store hub.Store
	// Clock is the clock that the store was opened with.
	Clock *Clock
	// Reopen closes the store, opens it again on the same data and gives the new
	// one, which is then closed when the test ends. It must also work on a store that
	// has been closed. Nil if the store keeps nothing.
	Reopen func(t testing.TB) hub.Store
}

// Clock is a clock that moves only when it is told to. It counts in milliseconds,
// the precision of every store, and is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock gives a clock that stands at some moment in the past.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// Now is the time it shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves it.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d.Truncate(time.Millisecond))
}

// runner runs one named test on a store of its own.
type runner func(name string, f func(b *bed))

// Run tests a store; open gives a new one for each test. It skips the tests that
// need Reopen when there is none.
func Run(t *testing.T, open func(t testing.TB) Harness) {
	groups := []struct {
		name  string
		tests func(run runner)
	}{
		{"send", sendTests},
		{"keys", keyTests},
		{"followup", followUpTests},
		{"claim", claimTests},
		{"fairness", fairnessTests},
		{"report", reportTests},
		{"fencing", fencingTests},
		{"replay", replayTests},
		{"artifacts", artifactTests},
		{"heartbeat", heartbeatTests},
		{"sweep", sweepTests},
		{"loss", lossTests},
		{"deadline", deadlineTests},
		{"cancel", cancelTests},
		{"requeue", requeueTests},
		{"limits", limitTests},
		{"finality", finalityTests},
		{"visibility", visibilityTests},
		{"lists", listTests},
		{"events", eventTests},
		{"as of", asOfTests},
		{"activity", activityTests},
		{"prune", pruneTests},
		{"push", pushTests},
		{"loans", loanTests},
		{"failures", failureTests},
		{"dispatches", dispatchTests},
		{"dispatches that claims begin", claimedDispatchTests},
		{"earlier dispatches", earlierDispatchTests},
		{"dispatch lists", dispatchListTests},
		{"canceled dispatches", cancelDispatchTests},
		{"presence", presenceTests},
		{"directory", directoryTests},
		{"endpoints", endpointTests},
		{"secrets", secretTests},
		{"payload", payloadTests},
		{"durability", durabilityTests},
		{"walk", walkTests},
		{"linearizability", linearTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			g.tests(func(name string, f func(b *bed)) {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					f(newBed(t, open(t)))
				})
			})
		})
	}
}
