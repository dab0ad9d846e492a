package egress

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

var somewhere, elsewhere = target{"a.test", 80}, target{"a.test", 81}

// mustAcquire takes a slot that is free.
func mustAcquire(t *testing.T, l *limiter, to target) (release func()) {
	t.Helper()
	start := time.Now()
	release, err := l.acquire(t.Context(), to)
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d != 0 {
		t.Fatalf("it took %s", d)
	}
	return release
}

func TestATargetHasItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(2, 10, time.Second)
		first, second := mustAcquire(t, l, somewhere), mustAcquire(t, l, somewhere)
		start := time.Now()
		_, err := l.acquire(t.Context(), somewhere)
		mustFail(t, err, Busy)
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited %s, want 1s", d)
		}
		third := mustAcquire(t, l, elsewhere) // is held up by nobody

		go func() {
			time.Sleep(time.Second / 2)
			first()
			first() // counts once
		}()
		fourth, err := l.acquire(t.Context(), somewhere)
		if err != nil {
			t.Fatalf("a slot was freed in time, yet %v", err)
		}
		_, err = l.acquire(t.Context(), somewhere)
		mustFail(t, err, Busy)
		for _, release := range []func(){second, third, fourth} {
			release()
		}
		if len(l.targets) != 0 || len(l.all) != 0 {
			t.Errorf("it remembers %d targets and %d requests", len(l.targets), len(l.all))
		}
	})
}

func TestAllTogetherHaveALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(2, 1, time.Second)
		release := mustAcquire(t, l, somewhere)
		for _, to := range []target{elsewhere, somewhere} {
			_, err := l.acquire(t.Context(), to)
			mustFail(t, err, Busy)
		}
		if n := len(l.targets[somewhere].taken); n != 1 {
			t.Errorf("%d slots of the target are taken, one of them by nobody", n)
		}
		release()
		mustAcquire(t, l, elsewhere)()
		if len(l.targets) != 0 {
			t.Errorf("it remembers %d targets", len(l.targets))
		}
	})
}

func TestWhoWaitsForASlowTargetHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1, 2, time.Hour)
		release := mustAcquire(t, l, somewhere)
		for range 10 {
			go func() {
				if r, err := l.acquire(t.Context(), somewhere); err == nil {
					r()
				}
			}()
		}
		synctest.Wait()
		mustAcquire(t, l, elsewhere)()
		release()
		synctest.Wait()
		if len(l.targets) != 0 {
			t.Errorf("it remembers %d targets", len(l.targets))
		}
	})
}

func TestACallerCanStopWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(1, 1, time.Hour)
		defer mustAcquire(t, l, somewhere)()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.acquire(ctx, somewhere)
		mustFail(t, err, Timeout)
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		_, err = l.acquire(ctx, elsewhere)
		mustFail(t, err, Canceled)
	})
}

func TestASlotIsTakenUntilTheBodyIsClosed(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, b io.ReadCloser){
		"closed":   func(_ *testing.T, b io.ReadCloser) { b.Close() },
		"read":     func(_ *testing.T, b io.ReadCloser) { io.Copy(io.Discard, b) },
		"too long": func(_ *testing.T, b io.ReadCloser) { io.Copy(io.Discard, b) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, hello)
			limit := int64(5)
			if name == "too long" {
				limit = 4
			}
			g := guardFor(t, Options{PerTarget: 1, QueueWait: 20 * time.Millisecond, MaxResponse: limit}, s.port)
			resp, err := get(t, g, s.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			_, err = get(t, g, s.URL)
			mustFail(t, err, Busy)
			end(t, resp.Body)
			again, err := get(t, g, s.URL)
			if err != nil {
				t.Fatal(err)
			}
			again.Body.Close()
		})
	}
}

// TestABodyThatNobodyClosesFreesItsSlot waits for the slot as long as it takes: that
// it comes at all is what counts.
func TestABodyThatNobodyClosesFreesItsSlot(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			stuck(true)(w, r)
		}
	})
	g := guardFor(t, Options{PerTarget: 1, Timeout: 100 * time.Millisecond, QueueWait: time.Minute}, s.port)
	for range 2 {
		resp, err := get(t, g, s.URL+"/stuck")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body // is forgotten
	}
	mustGet(t, g, s.URL)
}

func TestAFailedRequestFreesItsSlot(t *testing.T) {
	g := New(Options{PerTarget: 1, Global: 1, QueueWait: time.Millisecond, Resolver: names{}})
	for range 3 {
		_, err := get(t, g, "http://nowhere.test/")
		mustFail(t, err, Unresolved)
	}
}
