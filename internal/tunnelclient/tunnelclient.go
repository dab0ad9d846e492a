// Package tunnelclient is the agent's end of a tunnel: it connects to the hub with one
// WebSocket, serves the hub's requests that come through that, and connects again
// whenever the connection is lost.
package tunnelclient

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

const (
	// dialTime is how long the hub may take to answer.
	dialTime = 20 * time.Second
	// settled is how long a tunnel has to last for the pauses to begin anew.
	settled = 30 * time.Second
	// farewell is how long the hub may take to answer the end of a tunnel.
	farewell = 2 * time.Second
)

// The ends of Run, beside that of its context.
var (
	// ErrRefused is that the hub does not let the tunnel in: its token is none, or not
	// one of an agent. What it wraps says which.
	ErrRefused = errors.New("the hub refuses the tunnel")
	// ErrInvalid is that the hub takes no such tunnel, ever.
	ErrInvalid = errors.New("the hub takes no such tunnel")
	// ErrReplaced is that another tunnel of the same instance was opened.
	ErrReplaced = errors.New("another tunnel of this instance was opened")
	// ErrLost is that the hub could not be reached, or the connection was lost, with Once.
	ErrLost = errors.New("the hub cannot be reached")
)

// Options configure a tunnel. URL, Token, Instance, Slots and Handler are required.
type Options struct {
	// URL is the hub's base URL, Token a token of the agent's address.
	URL, Token string
	// Instance tells the copies of the agent apart, and stays the same over restarts of
	// one copy.
	Instance string
	// Slots is how many tasks the agent works on at once, 1 to tunnelconn.MaxSlots.
	Slots int
	// Handler serves the hub's requests: a Proxy, or the agent itself.
	Handler http.Handler
	// Target is the URL of the local server that Handler hands requests to; nil if it is
	// the agent itself.
	Target *url.URL
	// Relay are the prefixes of the local server's paths that are open to outside
	// services.
	Relay []string
	// Once gives up, with ErrLost, where Run would connect again.
	Once bool
	// Drain is how long tasks that are under way may take to finish once the context of
	// Run has ended, in which no more are taken. Default: none.
	Drain time.Duration
	// Note tells the user how the tunnel stands, in one line; nil for nobody.
	Note func(line string)
	// HTTPClient connects to the hub; one that follows no redirects if nil.
	HTTPClient *http.Client
	// PauseMin and PauseMax bound the pause before another try, which doubles with each.
	// Defaults: half a second, 30 s.
	PauseMin, PauseMax time.Duration
	// Ping and Patience are those of tunnelconn by default.
	Ping, Patience time.Duration
}

func (o Options) withDefaults() Options {
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	o.PauseMin, o.PauseMax = cmp.Or(o.PauseMin, 500*time.Millisecond), cmp.Or(o.PauseMax, 30*time.Second)
	o.Ping, o.Patience = cmp.Or(o.Ping, tunnelconn.Ping), cmp.Or(o.Patience, tunnelconn.Patience)
	return o
}

// Run keeps a tunnel open until ctx ends, which is no error, or there is no use in trying
// again: ErrRefused, ErrInvalid, ErrReplaced, and with Once ErrLost.
func Run(ctx context.Context, opt Options) error {
	c := &client{opt: opt.withDefaults()}
	for ctx.Err() == nil {
		began := time.Now()
		err := c.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if final(err) {
			return err
		}
		if c.opt.Once {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
		if time.Since(began) > settled {
			c.tries = 0
		}
		c.pause(ctx, err)
	}
	return nil
}

// final reports whether there is no use in trying again.
func final(err error) bool {
	return errors.Is(err, ErrRefused) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrReplaced)
}

// client is the state of a Run.
type client struct {
	opt   Options
	tries int // that failed in a row
}

// errAway is that the hub has sent the tunnel away. It takes it again after the shortest pause:
// another replica, or the one that starts next.
var errAway = errors.New("the hub is about to stop")

// pause waits before another try.
func (c *client) pause(ctx context.Context, why error) {
	bound := c.opt.PauseMin
	for range c.tries {
		bound = min(2*bound, c.opt.PauseMax)
	}
	c.tries++
	wait := bound/2 + rand.N(bound/2+1)
	c.opt.Note(fmt.Sprintf("%s; connecting again in %s.", capital(why.Error()), wait.Round(10*time.Millisecond)))
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// once opens a tunnel and serves it until it ends.
func (c *client) once(ctx context.Context) error {
	ws, err := c.dial(ctx)
	if err != nil {
		return err
	}
	conn := tunnelconn.New(ws)
	defer conn.Close()
	c.opt.Note(fmt.Sprintf("Connected to %s as %s, with %s.", c.opt.URL, c.opt.Instance, slots(c.opt.Slots)))
	served := make(chan struct{})
	n := &notice{next: c.opt.Handler, given: make(chan struct{})}
	go func() {
		defer close(served)
		c.serve(ctx, conn, n)
	}()
	select {
	case <-ctx.Done():
		c.drain(conn, n)
		c.leave(conn)
	case <-conn.Done():
	case <-served:
	}
	_ = conn.Close() // it has ended, or is to
	<-served
	return c.ended(conn.Err())
}

func slots(n int) string {
	if n == 1 {
		return "1 slot"
	}
	return strconv.Itoa(n) + " slots"
}

// leave tells the hub that the tunnel ends.
func (c *client) leave(conn *tunnelconn.Conn) {
	told := make(chan struct{})
	go func() {
		defer close(told)
		conn.CloseWith(websocket.StatusGoingAway, "the agent stops")
	}()
	t := time.NewTimer(farewell)
	defer t.Stop()
	select {
	case <-told:
	case <-t.C:
	}
}

// dial opens the WebSocket.
func (c *client) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, c.url(), &websocket.DialOptions{
		HTTPClient: c.opt.HTTPClient, Subprotocols: []string{tunnelconn.Protocol},
		HTTPHeader: http.Header{"Authorization": {"Bearer " + c.opt.Token}},
	})
	switch {
	case err == nil && ws.Subprotocol() != tunnelconn.Protocol:
		_ = ws.CloseNow()
		return nil, fmt.Errorf("%w: what answers there is no hub, or an older one", ErrInvalid)
	case err == nil:
		return ws, nil
	case resp == nil:
		return nil, fmt.Errorf("%s cannot be reached: %w", c.opt.URL, plain(err))
	}
	return nil, answered(resp)
}

// plain is an error without what repeats the URL.
func plain(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// url is where the tunnel is opened.
func (c *client) url() string {
	q := url.Values{"instance": {c.opt.Instance}, "slots": {strconv.Itoa(c.opt.Slots)}, "relay": c.opt.Relay}
	if c.opt.Target == nil {
		q.Set("exec", "true")
	} else {
		q.Set("to", c.opt.Target.String())
	}
	return strings.TrimRight(c.opt.URL, "/") + tunnelconn.Path + "?" + q.Encode()
}

// serve serves the hub's requests until the connection ends.
func (c *client) serve(ctx context.Context, conn *tunnelconn.Conn, handler http.Handler) {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	s := &http.Server{
		Protocols: &p, Handler: handler, MaxHeaderBytes: tunnelconn.MaxHeader, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: tunnelconn.MaxStreams, MaxReadFrameSize: tunnelconn.MaxFrame,
			MaxReceiveBufferPerStream: 512 << 10, MaxReceiveBufferPerConnection: 16 << 20,
			SendPingTimeout: c.opt.Ping, PingTimeout: c.opt.Patience,
		},
	}
	_ = s.Serve(&single{conn: conn}) // it ends with the connection
	_ = s.Close()
}

// single is a listener that gives one connection, and ends with it.
type single struct {
	conn  *tunnelconn.Conn
	given bool
}

// Accept implements net.Listener.
func (l *single) Accept() (net.Conn, error) {
	if !l.given {
		l.given = true
		return l.conn, nil
	}
	<-l.conn.Done()
	return nil, net.ErrClosed
}

// Close implements net.Listener.
func (l *single) Close() error { return nil }

// Addr implements net.Listener.
func (l *single) Addr() net.Addr { return l.conn.LocalAddr() }

// ended says what the end of a tunnel means.
func (c *client) ended(err error) error {
	switch code := websocket.CloseStatus(err); {
	case code == tunnelconn.Replaced:
		return ErrReplaced
	case code == tunnelconn.Ended:
		return fmt.Errorf("%w: %s", ErrRefused, reason(err))
	case errors.Is(err, io.EOF):
		c.tries = 0
		return errAway
	case code > 0:
		return fmt.Errorf("the hub has closed the tunnel: %s", reason(err))
	}
	return errors.New("the connection to the hub was lost")
}

// reason is what the other end said when it closed.
func reason(err error) string {
	if e, ok := errors.AsType[websocket.CloseError](err); ok && e.Reason != "" {
		return e.Reason
	}
	return "it did not say why"
}
