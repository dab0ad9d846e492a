package tunnel_test

import (
	"net"
	"sync"
	"testing"
	"time"
)

// stall is a TCP proxy that can cut its connections, let nothing through without a word,
// and cut those that are idle.
type stall struct {
	url, to string
	idle    time.Duration // 0: never

	mu      sync.Mutex
	conns   map[net.Conn]bool
	stalled bool
	flows   *sync.Cond
}

func newStall(t testing.TB, to string, idle time.Duration) *stall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &stall{url: "http://" + l.Addr().String(), to: to, idle: idle, conns: make(map[net.Conn]bool)}
	p.flows = sync.NewCond(&p.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", p.to)
			if err != nil {
				c.Close()
				continue
			}
			p.mu.Lock()
			p.conns[c], p.conns[out] = true, true
			p.mu.Unlock()
			running.Go(func() { p.pipe(c, out) })
			running.Go(func() { p.pipe(out, c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.flow()
		p.cut()
		running.Wait()
	})
	return p
}

func (p *stall) pipe(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		if p.idle > 0 {
			_ = from.SetReadDeadline(time.Now().Add(p.idle))
		}
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.stalled && p.conns[from] {
			p.flows.Wait()
		}
		p.mu.Unlock()
		if _, werr := to.Write(buf[:n]); err != nil || werr != nil {
			return
		}
	}
}

// cut cuts all connections.
func (p *stall) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
		delete(p.conns, c)
	}
	p.flows.Broadcast()
}

// stall lets nothing through any more.
func (p *stall) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = true
}

// flow ends that, for connections to come: what was held back is lost.
func (p *stall) flow() {
	p.mu.Lock()
	p.stalled = false
	p.mu.Unlock()
	p.cut()
}
