package engine

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

type gauges struct{ polls, sends atomic.Int64 }

// hint says that something was committed: the state that the task came to, so that
// who waits for the end need not look at every step, and the whole task where it has
// ended and whoever committed that had it all in hand.
type hint struct {
	state hub.State
	whole *hub.Task
	// look says that another replica knows more.
	look bool
	// said: the caller has added a message.
	said bool
}

// final reports whether a hint is to be looked at by who waits for the end.
func (h hint) final() bool { return h.look || h.state.Settled() }

// topic wakes those who wait for something under a key.
type topic struct {
	mu sync.Mutex
	m  map[string]map[*waiter]struct{}
}

// waiter holds at most one hint.
type waiter struct{ c chan hint }

func (t *topic) join(key string) *waiter {
	w := &waiter{c: make(chan hint, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = make(map[string]map[*waiter]struct{})
	}
	if t.m[key] == nil {
		t.m[key] = make(map[*waiter]struct{}, 1)
	}
	t.m[key][w] = struct{}{}
	return w
}

func (t *topic) leave(key string, w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.m[key], w)
	if len(t.m[key]) == 0 {
		delete(t.m, key)
	}
}

// notifyAll leaves an empty hint with everyone.
func (t *topic) notifyAll() { t.tellAll(hint{}) }

// tellAll leaves a hint with everyone.
func (t *topic) tellAll(h hint) {
	t.mu.Lock()
	keys := make([]string, 0, len(t.m))
	for key := range t.m {
		keys = append(keys, key)
	}
	t.mu.Unlock()
	for _, key := range keys {
		t.notify(key, h)
	}
}

// notify leaves a hint with everyone who waits under key. Hints of two commits may
// come in either order, so one that says "settled" is kept until it is looked at.
func (t *topic) notify(key string, h hint) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.m[key] {
		select {
		case w.c <- h:
			continue
		default:
		}
		var old hint
		select {
		case old = <-w.c:
		default:
		}
		last := old
		if h.final() {
			last = h
		}
		last.said = old.said || h.said
		w.c <- last // only notify sends, under t.mu, so there is room
	}
}
