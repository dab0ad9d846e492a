// Package tunnelconn is what both ends of a tunnel agree on: where it is opened and with
// which words, and how it ends.
//
// A tunnel is one outbound WebSocket of the agent's machine to the hub. Its binary
// messages are a stream of bytes that carries HTTP/2, with the hub as the client: so one
// connection has many requests, and the agent needs no port of its own. HTTP/2's pings
// keep it alive, and find out when it is gone.
package tunnelconn

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	// Path is where the hub takes tunnels, below its base URL.
	Path = "/v1/agents/me/tunnel"
	// Protocol is the WebSocket subprotocol, with its version.
	Protocol = "holdfast-tunnel.v1"

	// Unsent is the header of an answer of the tunnel itself, in place of the agent: the
	// request has not reached the agent. Agents cannot set it.
	Unsent = "Holdfast-Tunnel-Unsent"
	// Relayed marks the requests of outside services, which the hub only hands on.
	Relayed = "Holdfast-Relayed"

	// Notice marks the request by which the hub learns that the agent takes no more tasks:
	// its answer has the header, too, and lasts until then.
	Notice = "Holdfast-Tunnel-Notice"

	// Replaced is the close code for a tunnel whose instance has opened another one.
	Replaced websocket.StatusCode = 4001
	// Ended is the close code for a tunnel whose token counts no more.
	Ended websocket.StatusCode = 4003

	// Ping is how long one end hears nothing before it asks.
	Ping = 10 * time.Second
	// Patience is how long it waits for an answer then: a connection that is gone is
	// noticed within the sum of both.
	Patience = 15 * time.Second

	// MaxSlots bounds how many tasks a tunnel takes at once.
	MaxSlots = 256
	// MaxStreams bounds the requests that one tunnel has under way.
	MaxStreams = 1024
	// MaxHeader bounds the header of a request or answer, in bytes.
	MaxHeader = 64 << 10
	// MaxFrame bounds a frame of HTTP/2, in bytes.
	MaxFrame = 64 << 10
)

// Conn is the connection of a tunnel. It remembers how it ended.
type Conn struct {
	net.Conn
	ws      *websocket.Conn
	reading atomic.Int32 // reads under way
	once    sync.Once
	done    chan struct{}
	err     error // set before done is closed
}

// lastWord is how long a read may take to say why it ended once its connection is closed.
const lastWord = time.Second

// New makes a Conn of an open WebSocket.
func New(ws *websocket.Conn) *Conn {
	return &Conn{Conn: websocket.NetConn(context.Background(), ws, websocket.MessageBinary), ws: ws, done: make(chan struct{})}
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.reading.Add(1)
	defer c.reading.Add(-1)
	n, err := c.Conn.Read(b)
	if err != nil {
		c.end(err)
	}
	return n, err
}

// Close ends the connection without a word, as HTTP/2 does when nobody answers, and when it
// cannot write any more because the other end has closed: a read that has the reason of
// that, or is about to have it, tells it first.
func (c *Conn) Close() error {
	err := c.ws.CloseNow()
	if c.reading.Load() > 0 {
		t := time.NewTimer(lastWord)
		defer t.Stop()
		select {
		case <-c.done:
		case <-t.C:
		}
	}
	c.end(net.ErrClosed)
	return err
}

// CloseWith ends the connection and tells the other end why, if it still listens; that
// takes some seconds if it does not.
func (c *Conn) CloseWith(code websocket.StatusCode, why string) {
	_ = c.ws.Close(code, why) // the other end may be gone
	_ = c.Close()             // likewise
}

// Done is closed once the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why it has ended, once it has. io.EOF is a close that names no fault.
func (c *Conn) Err() error {
	<-c.done
	return c.err
}

func (c *Conn) end(err error) {
	c.once.Do(func() {
		c.err = err
		close(c.done)
	})
}
