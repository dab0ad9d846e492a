package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// openSenders is how many connections an open loop sends on. A send takes about a
// millisecond, so that one is free when the next is due.
const openSenders = 32

// openLoop sends at a rate for a while, whatever becomes of the sends, and gives
// how long each task took to reach a worker.
func (t *target) openLoop(ctx context.Context, workers, rate int, measure time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	total := int(measure.Seconds() * float64(rate))
	p := &pickups{epoch: time.Now(), sent: make([]atomic.Int64, total), got: make([]atomic.Int64, total), all: make(chan struct{})}
	stop, err := t.startWorkers(ctx, cancel, workers, resultBody, p.arrived)
	if err != nil {
		return nil, err
	}
	defer stop()
	due := make(chan int) // a send that nobody is free for would have to wait, and be late
	var wg sync.WaitGroup
	for i := range openSenders {
		l, err := dialLean(t.turn(t.callersAt, i))
		if err != nil {
			return nil, err
		}
		defer l.close()
		wg.Go(func() {
			if err := t.sendDue(l, i, due, p); err != nil {
				cancel(err)
			}
		})
	}
	p.pace(ctx, due, rate)
	close(due)
	wg.Wait()
	timeout := time.NewTimer(10 * time.Second)
	defer timeout.Stop()
	select {
	case <-p.all:
		return p.waits(), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timeout.C:
		return nil, errors.New("not every task reached a worker")
	}
}

// sendDue sends the tasks whose time has come.
func (t *target) sendDue(l *lean, i int, due <-chan int, p *pickups) error {
	const digits = "00000000"
	req := t.sendRequest(i, "", `{"message":{"role":"user","parts":[{"text":"`+digits+`"}]}}`)
	key := keyPlace(req)
	number := req[len(req)-len(digits)-len(`"}]}}`):][:len(digits)]
	for n := range due {
		setKey(key, n)
		copy(number, fmt.Sprintf("%08d", n))
		p.sent[n].Store(int64(time.Since(p.epoch)))
		status, body, err := l.do(req)
		if err != nil {
			return fmt.Errorf("send to the %s: %w", t.name, err)
		}
		if status != 200 && status != 201 {
			return unexpected("send to the "+t.name, status, body)
		}
	}
	return nil
}

// pickups notes when each task was sent and when a worker had it, since epoch.
type pickups struct {
	epoch     time.Time
	sent, got []atomic.Int64
	count     atomic.Int64
	all       chan struct{} // closed when a worker has had each
}

// pace says which send is due, evenly.
func (p *pickups) pace(ctx context.Context, due chan<- int, rate int) {
	began := time.Now()
	for n := range p.sent {
		pause(ctx, time.Until(began.Add(time.Duration(n)*time.Second/time.Duration(rate))))
		select {
		case due <- n:
		case <-ctx.Done():
			return
		}
	}
}

// arrived notes a task that a worker has.
func (p *pickups) arrived(task []byte) {
	now := int64(time.Since(p.epoch))
	n, err := strconv.Atoi(string(member(task, "text")))
	if err != nil || n >= len(p.got) || !p.got[n].CompareAndSwap(0, now) {
		return
	}
	if p.count.Add(1) == int64(len(p.got)) {
		close(p.all)
	}
}

func (p *pickups) waits() []time.Duration {
	w := make([]time.Duration, len(p.got))
	for i := range w {
		w[i] = time.Duration(p.got[i].Load() - p.sent[i].Load())
	}
	return w
}
