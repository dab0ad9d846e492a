package egress

import (
	"context"
	"sync"
	"time"
)

// limiter bounds how many requests are under way: to one target and in all.
type limiter struct {
	perTarget int
	wait      time.Duration // for both slots together
	all       chan struct{} // a token per request under way

	mu      sync.Mutex
	targets map[target]*slots // of those with requests under way or waiting
}

// slots are those of one target.
type slots struct {
	taken chan struct{} // a token per request under way
	users int           // requests under way or waiting; at 0 the target is forgotten
}

func newLimiter(perTarget, all int, wait time.Duration) *limiter {
	return &limiter{perTarget: perTarget, wait: wait, all: make(chan struct{}, all), targets: map[target]*slots{}}
}

// acquire waits for a slot and gives the function that frees it, which may be called
// more than once. It takes the target's slot first, so that who waits for a slow target
// holds up nobody else.
func (l *limiter) acquire(ctx context.Context, t target) (release func(), err error) {
	waiting, cancel := context.WithTimeout(ctx, l.wait)
	defer cancel()
	s := l.enter(t)
	if !take(waiting, s.taken) {
		l.leave(t)
		return nil, l.busy(ctx, t, t.String()+": too many requests to it are under way; try again later")
	}
	if !take(waiting, l.all) {
		<-s.taken
		l.leave(t)
		return nil, l.busy(ctx, t, "the hub has too many requests under way; try again later")
	}
	return sync.OnceFunc(func() {
		<-l.all
		<-s.taken
		l.leave(t)
	}), nil
}

func take(ctx context.Context, slots chan<- struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// busy tells a full queue from a caller that does not wait any more.
func (l *limiter) busy(ctx context.Context, t target, message string) error {
	if err := ctx.Err(); err != nil {
		return explain(ctx, t, false, err)
	}
	return &Error{Reason: Busy, Message: message}
}

func (l *limiter) enter(t target) *slots {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.targets[t]
	if !ok {
		s = &slots{taken: make(chan struct{}, l.perTarget)}
		l.targets[t] = s
	}
	s.users++
	return s
}

func (l *limiter) leave(t target) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.targets[t]; s.users > 1 {
		s.users--
	} else {
		delete(l.targets, t)
	}
}
