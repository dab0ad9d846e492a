package httpx

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// maxParked bounds the request that a parked connection keeps, in bytes.
const maxParked = 2 << 10

// Waiter is what a parked request waits for.
type Waiter interface {
	// Until is when the wait is over at the latest.
	Until() time.Time
	// Notify has ready called as soon as there is a reason to go on before that, even
	// one from before the call; more calls do no harm.
	Notify(ready func())
	// Leave ends a wait that nobody will go on with.
	Leave()
}

// Lot is where connections park whose request can do nothing but wait. An open request
// costs net/http some 20 KB of stacks and buffers; a parked one costs a tenth: the
// connection, the text of the request, and a goroutine that reads from the connection
// and so notices a client that goes away.
//
// A request parks as if it had not arrived yet: its handler returns without an answer,
// and nothing counts or logs it. Once it can go on, the Lot is a net.Listener that gives
// the connection, with the request unread, to an http.Server: the same handlers see it
// again, authorise it again and find its Waiter with Resumed. Answers, errors, logs and
// keep-alive are thus always net/http's and the handlers' own.
//
// The server that serves a Lot needs ConnContext, and Handler around everything else.
type Lot struct {
	follow func(context.Context, func()) func()
	back   chan net.Conn
	closed chan struct{}
	parked atomic.Int64

	mu   sync.Mutex // for shut, and for away to grow
	shut bool
	away sync.WaitGroup // those that are parked or on their way back to a handler
}

// NewLot makes a Lot. A parked request goes on at once when follow, which gets its
// context, calls its second argument: it stands for the ends that a context has while
// its request is open. follow's own result ends the following; nil follows nothing.
func NewLot(follow func(ctx context.Context, end func()) (stop func())) *Lot {
	if follow == nil {
		follow = func(context.Context, func()) func() { return func() {} }
	}
	return &Lot{follow: follow, back: make(chan net.Conn), closed: make(chan struct{})}
}

// Parked counts the requests that are parked just now.
func (l *Lot) Parked() int64 { return l.parked.Load() }

// parkedConn is a connection that was taken from its server while a request waited. It
// reads as if that request were still to come.
type parkedConn struct {
	net.Conn
	lot    *Lot
	waiter Waiter
	stop   func() // ends the following
	began  time.Time
	unread []byte
	one    [1]byte
	taken  atomic.Bool // the waiter is somebody else's
	gone   bool        // the client is
	early  bool        // the client has sent more without waiting for the answer

	mu       sync.Mutex
	sleeping bool
}

// Park parks the request, for waiter, which is the Lot's from then on: the handler has
// to return at once, without having written anything. If it gives false, which is what
// it does for everything but plain HTTP/1.1 requests without a body, nothing has
// happened, and the handler waits by itself.
func (l *Lot) Park(w http.ResponseWriter, r *http.Request, waiter Waiter) bool {
	rec := recorderOf(w)
	if rec == nil || rec.status != 0 || !parkable(r) {
		return false
	}
	request := requestText(r)
	if len(request) > maxParked || !l.enter() {
		return false
	}
	nc, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		l.away.Done()
		return false
	}
	c := &parkedConn{Conn: nc, lot: l, waiter: waiter, began: rec.began, unread: request, sleeping: true}
	rec.parked = true
	rest, _ := buf.Reader.Peek(buf.Reader.Buffered()) // as much as there is
	c.unread = append(c.unread, rest...)
	if before, ok := nc.(*parkedConn); ok {
		c.Conn, c.unread = before.Conn, append(c.unread, before.unread...)
	}
	c.early = len(c.unread) > len(request)
	l.parked.Add(1)
	_ = c.SetReadDeadline(waiter.Until()) // an error comes again when it reads
	c.stop = l.follow(r.Context(), c.wake)
	waiter.Notify(c.wake)
	go c.sleep()
	return true
}

// parkable reports whether a request can be taken off its connection and put back.
func parkable(r *http.Request) bool {
	if v := visitOf(r.Context()); v != nil && v.early {
		return false // it would be back at once
	}
	return r.TLS == nil && r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.Method == http.MethodGet &&
		r.ContentLength == 0 && len(r.TransferEncoding) == 0 && r.Header["Upgrade"] == nil && r.Header["Expect"] == nil
}

// requestText is a request without a body as its client could have sent it. net/http has
// checked every part when it arrived.
func requestText(r *http.Request) []byte {
	var b bytes.Buffer
	b.Grow(512)
	b.WriteString(r.Method + " " + r.RequestURI + " HTTP/1.1\r\nHost: " + r.Host + "\r\n")
	for name, values := range r.Header {
		if name == HeaderRequestID {
			continue
		}
		for _, v := range values {
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	b.WriteString(HeaderRequestID + ": " + RequestID(r.Context()) + "\r\n\r\n")
	return bytes.Clone(b.Bytes())
}

func (l *Lot) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shut {
		return false
	}
	l.away.Add(1)
	return true
}

// past is a deadline that ends a read at once.
var past = time.Unix(1, 0)

// wake ends the sleep of a parked connection, and does nothing afterwards: then the
// deadlines are the server's.
func (c *parkedConn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sleeping {
		_ = c.SetReadDeadline(past)
	}
}

// sleep waits until the request can go on, or the client says something, or is gone,
// and gives the connection back. Its stack is what a parked request costs: keep it flat.
func (c *parkedConn) sleep() {
	n, err := 0, error(nil)
	if !c.early {
		n, err = c.Conn.Read(c.one[:])
	}
	c.goOn(n, err)
}

func (c *parkedConn) goOn(n int, err error) {
	c.mu.Lock()
	c.sleeping = false
	_ = c.SetReadDeadline(time.Time{})
	c.mu.Unlock()
	c.stop()
	c.lot.parked.Add(-1)
	c.unread = append(c.unread, c.one[:n]...)
	c.early = c.early || n > 0
	c.gone = !c.early && !errors.Is(err, os.ErrDeadlineExceeded)
	select {
	case c.lot.back <- c:
	case <-c.lot.closed:
		_ = c.Close()
	}
}

// Read reads the request first.
func (c *parkedConn) Read(p []byte) (int, error) {
	if len(c.unread) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.unread = nil
	}
	return n, nil
}

// Close closes the connection, and leaves the waiter if the request was never resumed.
func (c *parkedConn) Close() error {
	if w := c.take(); w != nil {
		w.Leave()
	}
	return c.Conn.Close()
}

// CloseWrite is what net/http looks for when it ends a connection in good order.
func (c *parkedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// take gives the waiter to whoever asks first.
func (c *parkedConn) take() Waiter {
	if !c.taken.CompareAndSwap(false, true) {
		return nil
	}
	w := c.waiter
	c.waiter = nil
	c.lot.away.Done()
	return w
}

type connKey struct{}

// ConnContext is for the field of that name in an http.Server that serves the Lot.
func (l *Lot) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*parkedConn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// visit is a request that was parked and goes on.
type visit struct {
	waiter Waiter
	began  time.Time
	early  bool
}

type visitKey struct{}

func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// Handler wraps a whole site, outermost: it gives resumed requests their Waiter. The
// context of one whose client is gone has ended.
func (l *Lot) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*parkedConn); ok {
			if waiter := c.take(); waiter != nil {
				resume(next, w, r, &visit{waiter: waiter, began: c.began, early: c.early}, c.gone)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

func resume(next http.Handler, w http.ResponseWriter, r *http.Request, v *visit, gone bool) {
	defer func() {
		if v.waiter != nil {
			v.waiter.Leave() // refused before its handler
		}
	}()
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), visitKey{}, v))
	defer cancel()
	if gone {
		cancel()
	}
	next.ServeHTTP(w, r.WithContext(ctx))
}

// Resumed gives the Waiter of a request that was parked to its handler, whose it is from
// then on; nil for every other request.
func Resumed(ctx context.Context) Waiter {
	v := visitOf(ctx)
	if v == nil {
		return nil
	}
	w := v.waiter
	v.waiter = nil
	return w
}

// began is when a request arrived that goes on or begins now.
func began(ctx context.Context) time.Time {
	if v := visitOf(ctx); v != nil {
		return v.began
	}
	return time.Now()
}

// Drain lets nothing park any more and waits until every parked request goes on, which
// their Waiters have to see to. It gives the context's error if that ends first.
func (l *Lot) Drain(ctx context.Context) error {
	l.mu.Lock()
	l.shut = true
	l.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.away.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Accept gives the next connection whose request goes on. It implements net.Listener.
func (l *Lot) Accept() (net.Conn, error) {
	select {
	case c := <-l.back:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close makes connections whose requests go on break off. It implements net.Listener.
func (l *Lot) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = true
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

// Addr implements net.Listener.
func (l *Lot) Addr() net.Addr { return lotAddr{} }

type lotAddr struct{}

func (lotAddr) Network() string { return "lot" }
func (lotAddr) String() string  { return "parked requests" }
