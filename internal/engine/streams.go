package engine

import (
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// maxStreams is how many streams and feeds one address may have open, about: a burst
// may overshoot. It is for programs that forget to close theirs.
const maxStreams = 1000

// streams counts the streams and feeds that wait, by the address that follows.
type streams struct {
	mu sync.Mutex
	m  map[string]int
}

func (s *streams) enter(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[string]int)
	}
	s.m[address]++
}

func (s *streams) leave(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m[address]--; s.m[address] == 0 {
		delete(s.m, address)
	}
}

// check refuses another one beyond the limit.
func (s *streams) check(address string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m[address] < maxStreams {
		return nil
	}
	e := hub.Errorf(hub.RateLimited, "this address already follows %d streams, which is the limit; close some", s.m[address])
	e.RetryAfter = 10 * time.Second
	return e
}
