package client

import (
	"context"
	"sync"
)

// slots counts what Serve may take: how many tasks at once, and how many in all. One
// poller takes slots; each is freed by whoever worked in it.
type slots struct {
	size    int
	limited bool
	changed chan struct{} // tells the poller to look again

	mu      sync.Mutex
	vacant  int
	left    int // how many more may be taken in all, if limited
	polling bool
	worked  int
}

// newSlots makes n slots for limit tasks in all; 0 for no limit.
func newSlots(n, limit int) *slots {
	return &slots{size: n, limited: limit > 0, vacant: n, left: limit, changed: make(chan struct{}, 1)}
}

// take waits for a vacant slot and reserves it for a task to come. It is false once
// ctx has ended, or all tasks were taken and worked on.
func (s *slots) take(ctx context.Context) bool {
	for {
		ok, over := s.tryTake()
		if ctx.Err() != nil || over {
			return false
		}
		if ok {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.changed:
		}
	}
}

func (s *slots) tryTake() (ok, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limited && s.left == 0 {
		return false, s.vacant == s.size
	}
	if s.vacant == 0 {
		return false, false
	}
	s.vacant--
	s.left--
	s.polling = true
	return true, false
}

// putBack undoes take: no task came.
func (s *slots) putBack() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling = false
	s.vacant++
	s.left++
}

// filled says that a task came for the slot that was taken.
func (s *slots) filled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polling = false
}

// free makes a filled slot vacant.
func (s *slots) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.vacant++
	s.signal()
}

// chain reserves one more task for a filled slot. It is false while a poll is under
// way, which would get that task as well, and when no more may be taken.
func (s *slots) chain() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.polling || s.limited && s.left == 0 {
		return false
	}
	s.left--
	return true
}

// unchain undoes chain: no task came.
func (s *slots) unchain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left++
	s.signal()
}

// handled counts a task that was worked on.
func (s *slots) handled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.worked++
}

func (s *slots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.worked
}

func (s *slots) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size - s.vacant
}

func (s *slots) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}
