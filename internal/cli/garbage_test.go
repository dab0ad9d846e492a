package cli

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestGarbageIsBounded(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 5 << 20: 400, 16 << 20: 400, 32 << 20: 200, 40 << 20: 160, 64 << 20: 100, 1 << 40: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("with %d MiB it is %d %%, want %d %%", live>>20, got, want)
		}
	}
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	stop := boundGarbage()
	defer stop()
	waitPercent(t, func(p int) bool { return p == gcPercent }) // this test has little
	much := make([]byte, 2*garbageRoom)
	waitPercent(t, func(p int) bool { return p == gcLeast })
	runtime.KeepAlive(much)
	waitPercent(t, func(p int) bool { return p > gcLeast })
}

// waitPercent collects garbage until the percentage is as it should be.
func waitPercent(t *testing.T, ok func(int) bool) {
	t.Helper()
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for t.Context().Err() == nil {
		runtime.GC()
		metrics.Read(s)
		if ok(int(s[0].Value.Uint64())) {
			return
		}
	}
}
