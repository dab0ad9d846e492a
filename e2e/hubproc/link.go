package hubproc

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Link is a network between a hub and a server, as a TCP proxy, that a test can break. It
// is closed with its test.
type Link struct {
	t        testing.TB
	listener net.Listener
	to       string

	mu    sync.Mutex
	state linkState
	moved chan struct{} // closed when state changes
	conns map[net.Conn]bool
	done  sync.WaitGroup
}

type linkState int

const (
	linkWorks linkState = iota
	linkStalls
	linkRefuses
	linkClosed
)

// NewLink makes a link that works, to an address.
func NewLink(t testing.TB, to string) *Link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &Link{t: t, listener: l, to: to, moved: make(chan struct{}), conns: map[net.Conn]bool{}}
	k.done.Go(k.accept)
	t.Cleanup(func() {
		k.set(linkClosed)
		_ = l.Close()
		k.cut(false)
		k.done.Wait()
	})
	return k
}

// URL is that of the same thing as another URL, by way of the link.
func (k *Link) URL(direct string) string {
	u, err := url.Parse(direct)
	if err != nil {
		k.t.Fatal(err)
	}
	u.Host = k.listener.Addr().String()
	return u.String()
}

// Works repairs the link: what it held up goes on.
func (k *Link) Works() { k.set(linkWorks) }

// Stalls lets nothing pass, without a word to anyone, as a network does that drops all.
func (k *Link) Stalls() { k.set(linkStalls) }

// Refuses breaks the connections there are and refuses new ones.
func (k *Link) Refuses() {
	k.set(linkRefuses)
	k.cut(true)
}

// Resets breaks the connections there are; new ones work.
func (k *Link) Resets() { k.cut(true) }

func (k *Link) set(s linkState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == linkClosed {
		return
	}
	k.state = s
	close(k.moved)
	k.moved = make(chan struct{})
}

// cut closes all connections; hard: with a reset and not a goodbye.
func (k *Link) cut(hard bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		if tcp, ok := c.(*net.TCPConn); ok && hard {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

func (k *Link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		if !k.keep(c) {
			continue
		}
		k.done.Go(func() { k.serve(c) })
	}
}

// keep notes a connection, so that it can be cut; false if there must be none.
func (k *Link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.state == linkRefuses || k.state == linkClosed {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
		return false
	}
	k.conns[c] = true
	return true
}

func (k *Link) drop(c net.Conn) {
	_ = c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

// serve carries one connection both ways.
func (k *Link) serve(near net.Conn) {
	defer k.drop(near)
	if !k.pass() {
		return
	}
	far, err := net.Dial("tcp", k.to)
	if err != nil || !k.keep(far) {
		return
	}
	defer k.drop(far)
	back := make(chan struct{})
	go func() {
		defer close(back)
		k.carry(near, far)
	}()
	k.carry(far, near)
	<-back
}

// carry copies one way until the connection ends, which ends the other way too.
func (k *Link) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if !k.pass() {
			return
		}
		if _, werr := to.Write(b[:n]); werr != nil {
			return
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the link stalls, and reports whether anything may pass.
func (k *Link) pass() bool {
	for {
		k.mu.Lock()
		state, moved := k.state, k.moved
		k.mu.Unlock()
		switch state {
		case linkWorks:
			return true
		case linkStalls:
			<-moved
		default:
			return false
		}
	}
}
