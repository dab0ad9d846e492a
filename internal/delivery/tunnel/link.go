package tunnel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// link is an open tunnel. As a RoundTripper it takes every request to the agent.
type link struct {
	offer
	handle, address string
	conn            *tunnelconn.Conn
	cc              *http.ClientConn
	maxAnswer       int64
	heeding         atomic.Int32 // 1 while the request for its notice is under way
	heard           atomic.Bool  // the agent's end will give notice
	leaving         atomic.Bool  // the agent takes no more tasks
}

// inFlight is how many requests are under way, but for that of the hub itself.
func (l *link) inFlight() int {
	return max(0, l.cc.InFlight()-int(l.heeding.Load()))
}

// RoundTrip implements http.RoundTripper. It fails with *egress.Error, as the guarded
// clients do, also in reading the body of an answer.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.cc.Reserve() != nil {
		closeBody(r)
		if l.cc.Err() == nil {
			return nil, &egress.Error{Reason: egress.Busy, Message: "the tunnel has too many requests under way"}
		}
		return nil, &egress.Error{Reason: egress.Connect, Message: "the tunnel is closed"}
	}
	var sent atomic.Bool
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		WroteHeaderField: func(string, []string) { sent.Store(true) },
	})
	resp, err := l.cc.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, explain(r.Context(), sent.Load(), err)
	}
	if resp.Header.Get(tunnelconn.Unsent) != "" {
		_ = resp.Body.Close() // nothing in it is of interest
		return nil, &egress.Error{Reason: egress.Connect, Message: "the tunnel is open, and the agent's local server takes no connection; see whether it is up"}
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: r.Context(), left: l.maxAnswer}
	return resp, nil
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
}

// explain sorts the errors of HTTP/2.
func explain(ctx context.Context, sent bool, err error) *egress.Error {
	e := &egress.Error{Reason: egress.Broken, Message: "the tunnel broke", Sent: sent}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		e.Reason, e.Message = egress.Canceled, "the request was given up"
	case ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded):
		e.Reason, e.Message = egress.Timeout, "no complete answer came through the tunnel in time"
	}
	return e
}

// body is the body of an answer, bounded.
type body struct {
	io.ReadCloser
	ctx  context.Context //nolint:containedctx // that of the request, as the body is read within
	left int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return max(n-1, 0), &egress.Error{Reason: egress.TooLarge, Message: "the answer is larger than the limit", Sent: true}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = explain(b.ctx, true, err)
	}
	return n, err
}
