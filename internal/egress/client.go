package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	maxResponseHeader = 64 << 10 // bytes
	idleTimeout       = 30 * time.Second
	maxIdle           = 64 // connections
	maxIdlePerHost    = 2
)

// tripper sends requests under one permit.
type tripper struct {
	guard     *Guard
	transport *http.Transport
}

// newTripper makes a tripper whose connections speak the protocols; nil for HTTP/1, or
// HTTP/2 where TLS agrees on it.
func newTripper(g *Guard, p Permit, protocols *http.Protocols) *tripper {
	return &tripper{guard: g, transport: &http.Transport{
		Protocols: protocols,
		Proxy:     nil, // whatever the environment says
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			return g.dial(ctx, addr, p)
		},
		ForceAttemptHTTP2:      protocols == nil, // which an own DialContext turns off
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: g.opt.RootCAs},
		TLSHandshakeTimeout:    g.opt.TLSTimeout,
		ResponseHeaderTimeout:  g.opt.HeaderTimeout,
		MaxResponseHeaderBytes: maxResponseHeader,
		DisableCompression:     true, // so that a small body stays small
		IdleConnTimeout:        idleTimeout,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdlePerHost,
	}}
}

// RoundTrip implements http.RoundTripper. Its errors are of type *Error.
func (t *tripper) RoundTrip(req *http.Request) (*http.Response, error) {
	dest, err := t.guard.admit(req)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	release, err := t.guard.limits.acquire(req.Context(), dest)
	if err != nil {
		closeBody(req)
		return nil, err
	}
	return t.send(req, dest, release)
}

// send sends a request that was let through. It calls release when all is over, at
// Options.Timeout at the latest.
func (t *tripper) send(req *http.Request, dest target, release func()) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), t.guard.opt.Timeout)
	done := func() {
		cancel()
		release()
	}
	var sent atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	resp, err := t.transport.RoundTrip(req.WithContext(traced))
	if err != nil {
		failure := explain(ctx, dest, sent.Load(), err)
		t.guard.opt.Log.InfoContext(ctx, "egress: a request failed", "target", dest.String(), "reason", string(failure.Reason), "error", forLog(failure.Reason, err))
		done()
		return nil, failure
	}
	context.AfterFunc(ctx, done) // for callers that never close the body
	resp.Body = &body{ctx: ctx, from: resp.Body, target: dest, limit: t.guard.opt.MaxResponse, left: t.guard.opt.MaxResponse, done: done}
	return resp, nil
}

// forLog gives an error as the log may have it. What net/http says of a broken answer
// repeats it, and a target may answer with what it was sent: an echo server does.
func forLog(reason Reason, err error) string {
	if reason != Broken {
		return err.Error()
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the connection was closed"
	}
	return "what came was no answer"
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		req.Body.Close()
	}
}

// admit judges a request before anything is sent, and says where it goes.
func (g *Guard) admit(req *http.Request) (target, error) {
	if req.URL == nil {
		return target{}, &Error{Reason: BadRequest, Message: "the request has no URL"}
	}
	t, err := g.parse(req.URL.String())
	if err != nil {
		return target{}, &Error{Reason: Refused, Message: err.Error()}
	}
	if req.Host != "" && !strings.EqualFold(req.Host, req.URL.Host) {
		return target{}, &Error{Reason: BadRequest, Message: t.String() + ": the request names another host than its URL; leave Host empty"}
	}
	for _, h := range []http.Header{req.Header, req.Trailer} {
		if err := checkHeaders(h); err != nil {
			return target{}, &Error{Reason: BadRequest, Message: t.String() + ": " + err.Error()}
		}
	}
	return t, nil
}

// checkHeaders refuses headers that could be read as something else: control
// characters, one name in two spellings, and several credentials.
func checkHeaders(h http.Header) error {
	seen := make(map[string]bool, len(h))
	for name, values := range h {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !validName(name):
			return errors.New("a header's name has characters in it that no name has; correct it")
		case seen[canonical]:
			return fmt.Errorf("the header %s is there in two spellings; keep one", canonical)
		case canonical == "Authorization" && len(values) > 1:
			return errors.New("there are several Authorization headers; keep one")
		}
		seen[canonical] = true
		for _, v := range values {
			if !validValue(v) {
				return fmt.Errorf("the value of the header %s has a control character in it; take it out", canonical)
			}
		}
	}
	return nil
}

// validName tells whether s is a token (RFC 9110, section 5.6.2).
func validName(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}

// validValue tells whether s has no control characters apart from tabs (RFC 9110,
// section 5.5).
func validValue(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// body is an answer's body within its limits of size and time.
type body struct {
	ctx    context.Context
	from   io.ReadCloser
	target target
	limit  int64 // bytes in all
	left   int64 // bytes that may still come
	done   func()
	err    error // what Read gives from now on
}

// Read implements io.Reader. Its errors are io.EOF or of type *Error.
func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	if int64(len(p)) > b.left+1 { // one more shows that there is more
		p = p[:b.left+1]
	}
	n, err := b.from.Read(p)
	switch {
	case int64(n) > b.left:
		n = int(b.left)
		b.err = &Error{Reason: TooLarge, Message: fmt.Sprintf("%s: the answer has more than %d bytes", b.target, b.limit), Sent: true}
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		b.err = io.EOF
	case err != nil:
		b.err = explain(b.ctx, b.target, true, err)
	}
	b.left -= int64(n)
	if b.err != nil {
		b.done()
	}
	return n, b.err
}

// Close implements io.Closer.
func (b *body) Close() error {
	err := b.from.Close()
	b.done()
	if err != nil {
		return explain(b.ctx, b.target, true, err)
	}
	return nil
}
