package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

const (
	// gcPercent lets the heap of a hub grow further than Go would between collections:
	// what lives is little, and most of what a request allocates is garbage at once.
	gcPercent = 400
	// garbageRoom is how many bytes of garbage that may come to. What lives is more when
	// many wait at the hub, and four times as much again would be memory for nothing.
	garbageRoom = 64 << 20
	// gcLeast is Go's own percentage, for a hub in which more lives than garbageRoom.
	gcLeast = 100
)

// boundGarbage sets the garbage collector's percentage, now and after each collection,
// for what lives then, until stop is called.
func boundGarbage() (stop func()) {
	g := &garbage{percent: gcPercent}
	debug.SetGCPercent(gcPercent)
	g.arm()
	return func() { g.stopped.Store(true) }
}

// garbage is what boundGarbage knows.
type garbage struct {
	percent int
	stopped atomic.Bool
}

// sentinel is an object that nothing refers to: its cleanup runs after the next
// collection.
type sentinel struct{ _ *sentinel }

func (g *garbage) arm() {
	runtime.AddCleanup(&sentinel{}, (*garbage).collected, g)
}

func (g *garbage) collected() {
	if g.stopped.Load() {
		return
	}
	if p := percentFor(living()); p != g.percent {
		g.percent = p
		debug.SetGCPercent(p)
	}
	g.arm()
}

// percentFor is the percentage when so many bytes live.
func percentFor(live uint64) int {
	p := garbageRoom * 100 / max(live, 1)
	return int(min(max(p/10*10, gcLeast), gcPercent)) // in steps, because each change stops the world for a moment
}

// living is what the percentage is of, in bytes: what lived at the last collection, and
// what that had to look at beside it.
func living() (bytes uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(samples)
	for _, s := range samples {
		if s.Value.Kind() == metrics.KindUint64 {
			bytes += s.Value.Uint64()
		}
	}
	return bytes
}
