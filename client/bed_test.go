package client_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// quick retries, so that faults do not make tests wait.
var quick = client.WithRetry(client.Retry{Tries: 400, Min: time.Millisecond, Max: 20 * time.Millisecond})

// bed is a real hub with a caller, boss, and a callee, coder.
type bed struct {
	t           *testing.T
	hub         *testhub.Hub
	coderToken  string
	admin       *client.Client
	boss, coder *client.Client
}

func newBed(t *testing.T, change ...func(*config.Config)) *bed {
	t.Helper()
	t.Parallel() // most of these tests wait more than they work
	h := testhub.Start(t, append([]func(*config.Config){shortGrace}, change...)...)
	b := &bed{t: t, hub: h, coderToken: h.Agent("coder")}
	b.admin = b.client(h.URL, h.AdminToken)
	b.boss = b.client(h.URL, h.Agent("boss"))
	b.coder = b.client(h.URL, b.coderToken)
	return b
}

// shortGrace shortens the time after a start in which no lease expires; it is as long
// as the hub's own lease.
func shortGrace(cfg *config.Config) { cfg.Lease = time.Second }

func (b *bed) client(url, token string) *client.Client {
	c := client.New(url, token, quick)
	b.t.Cleanup(c.Close)
	return c
}

// context ends with the test, or when it takes too long.
func (b *bed) context() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	b.t.Cleanup(cancel)
	return ctx
}

// worker is a Serve that runs.
type worker struct {
	t       *testing.T
	cancel  context.CancelFunc
	done    chan struct{}
	handled int
	err     error
}

// serve has c work in the background until the test is over.
func (b *bed) serve(c *client.Client, h client.Handler, opts ...client.WorkOption) *worker {
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{t: b.t, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.handled, w.err = c.Serve(ctx, h, append([]client.WorkOption{
			client.Lease(1500 * time.Millisecond), client.Logger(slog.New(slog.DiscardHandler)),
		}, opts...)...)
	}()
	b.t.Cleanup(w.stop)
	return w
}

// stop tells the worker to stop and waits for it.
func (w *worker) stop() {
	w.cancel()
	w.wait()
}

func (w *worker) wait() {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(30 * time.Second):
		w.t.Error("Serve does not return")
	}
}

// recv receives from ch or fails the test.
func recv[T any](t *testing.T, ch <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
	return v
}

// must fails the test if there is an error.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// proxy stands between a client and the hub and loses connections.
type proxy struct {
	URL    string
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	plan  func() int // how many bytes of answers the next connection lets through; negative for all
	conns map[net.Conn]bool
	seen  int
}

// newProxy starts a proxy of the hub that asks plan for each connection.
func newProxy(t *testing.T, hubURL string, plan func() int) *proxy {
	t.Helper()
	u, err := url.Parse(hubURL)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{URL: "http://" + ln.Addr().String(), ln: ln, target: u.Host, plan: plan, conns: map[net.Conn]bool{}}
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) accept() {
	for {
		down, err := p.ln.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.carry(down) })
	}
}

// carry passes a connection on until its share of bytes is used up. With a share of
// 0 the request still arrives, and the answer is lost once it has begun.
func (p *proxy) carry(down net.Conn) {
	up, err := net.Dial("tcp", p.target)
	if err != nil {
		down.Close()
		return
	}
	share := p.admit(down, up)
	defer p.drop(down, up)
	p.wg.Go(func() {
		_, _ = io.Copy(up, down)
		p.drop(down, up)
	})
	if share < 0 {
		_, _ = io.Copy(down, up)
		return
	}
	if share > 0 {
		_, _ = io.CopyN(down, up, int64(share))
	}
	_, _ = up.Read(make([]byte, 1))
}

func (p *proxy) admit(conns ...net.Conn) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	p.seen++
	return p.plan()
}

func (p *proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		c.Close()
		delete(p.conns, c)
	}
}

// cut breaks all connections that are open.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen
}

func (p *proxy) close() {
	p.ln.Close()
	p.cut()
	p.wg.Wait()
}

// losing loses the answers on the first n connections.
func losing(n int) func() int {
	return func() int {
		n--
		if n >= 0 {
			return 0
		}
		return -1
	}
}

// isAny reports whether err is one of the errors.
func isAny(err error, targets ...error) bool {
	for _, t := range targets {
		if errors.Is(err, t) {
			return true
		}
	}
	return false
}
