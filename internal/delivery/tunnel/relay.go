package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/relaypath"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

const (
	// RelayPath is where Relay serves: {RelayPath}{handle}/{path of the local server}.
	RelayPath = "/t/"
	// relayTime bounds a relayed request, with all of its answer.
	relayTime = 10 * time.Minute
	// relaysPerAddress bounds those of one address that are under way at once.
	relaysPerAddress = 32
)

// relayPolicy keeps a page that an agent answers with from acting as a page of the hub,
// whose origin it has.
const relayPolicy = "sandbox; default-src 'none'; frame-ancestors 'none'"

// Relay serves RelayPath: it hands requests of outside services, which need no
// credential, to the local servers of agents. Both the address and the tunnel have to
// open a path to them. What is not open looks as if it were not there.
func (h *Host) Relay() http.Handler { return http.HandlerFunc(h.relay) }

func (h *Host) relay(w http.ResponseWriter, r *http.Request) {
	a, path, err := h.target(r)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	to, err := h.way(r, a, path)
	if err != nil {
		h.refuse(w, r, err)
		return
	}
	if r.ContentLength > h.opt.MaxBody {
		h.refuse(w, r, errTooLarge(h.opt.MaxBody))
		return
	}
	if !h.begin(a.Handle) {
		h.refuse(w, r, hub.Errorf(hub.RateLimited, "too many requests to this agent are under way; try again in a moment"))
		return
	}
	defer h.end(a.Handle)
	ctx, cancel := context.WithTimeout(r.Context(), relayTime)
	defer cancel()
	rc := http.NewResponseController(w)
	_ = rc.EnableFullDuplex() // HTTP/2 always is
	out := r.WithContext(ctx) // r keeps its own body, for who may read the rest of it
	if r.ContentLength != 0 {
		to.body = &steady{ReadCloser: r.Body, rc: rc, limit: h.opt.BodyPause}
		out.Body = http.MaxBytesReader(w, to.body, h.opt.MaxBody)
	}
	h.proxy(to).ServeHTTP(&parts{w, httpx.StartStream(w, r)}, out)
}

func (h *Host) refuse(w http.ResponseWriter, r *http.Request, err error) {
	httpx.WriteError(w, httpx.Public(r.Context(), h.opt.Log, err))
}

func errTooLarge(most int64) *hub.Error {
	return hub.Errorf(hub.TooLarge, "the body has more than %d bytes, which is the most that is relayed", most)
}

// errAbsent says that an agent that an outside service may reach is not there.
func errAbsent(words string) *hub.Error {
	e := hub.Errorf(hub.Unavailable, "%s", words)
	e.RetryAfter = away
	return e
}

// target gives the address that a request is for, and the path of its local server, if
// the address opens that to outside services; NotFound if not.
func (h *Host) target(r *http.Request) (*hub.Address, string, error) {
	handle, path, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, RelayPath), "/")
	path = "/" + path
	if !ok || r.URL.RawPath != "" || !relaypath.Plain(path) || !validName(handle) || r.Header.Get("Service-Worker") != "" {
		return nil, "", errNothing()
	}
	a, err := h.opt.Address(r.Context(), handle)
	switch kind := hub.KindOf(err); {
	case err != nil && kind != hub.NotFound && kind != hub.NotPermitted:
		return nil, "", err
	case err != nil || a.Handle != handle || !relaypath.Allowed(path, a.RelayPaths):
		return nil, "", errNothing()
	}
	return a, path, nil
}

// errNothing is the one answer to whatever is not open.
func errNothing() *hub.Error { return hub.Errorf(hub.NotFound, "there is nothing here") }

// begin counts a relayed request in, if there is room for it.
func (h *Host) begin(handle string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.draining || h.relaying[handle] >= relaysPerAddress {
		return false
	}
	h.relaying[handle]++
	return true
}

func (h *Host) end(handle string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.relaying[handle]--; h.relaying[handle] == 0 {
		delete(h.relaying, handle)
	}
}

// way is how a request gets to a local server: through a tunnel, or by way of the replica
// that has one.
type way struct {
	http.RoundTripper
	handle string
	url    *url.URL
	host   string  // the request's, for its receiver; that of url if empty
	proof  string  // for another replica; empty for a tunnel
	body   *steady // the request's; nil if it has none
}

// way finds the way of a request to a path of an address, which opens it. The error is
// NotFound if no tunnel opens it, Unavailable if there is no tunnel or none in reach.
func (h *Host) way(r *http.Request, a *hub.Address, path string) (*way, error) {
	l, connected := h.pick(a, path)
	if l != nil {
		u := &url.URL{Scheme: "http", Host: "relay.tunnel", Path: path, RawQuery: r.URL.RawQuery}
		return &way{RoundTripper: l, handle: a.Handle, url: u, host: h.host(r, a.Handle)}, nil
	}
	if peers := h.opt.Peers; peers != nil && r.Header.Get(passedOn) == "" {
		base, err := peers.elsewhere(r.Context(), a, path)
		if err != nil {
			return nil, err
		}
		if base != nil {
			proof, err := peers.seal(r.Host, a.Handle)
			u := &url.URL{
				Scheme: base.Scheme, Host: base.Host, RawQuery: r.URL.RawQuery,
				Path: strings.TrimRight(base.Path, "/") + RelayPath + a.Handle + path,
			}
			return &way{RoundTripper: peers.Transport, handle: a.Handle, url: u, proof: proof}, err
		}
	}
	if connected {
		return nil, errNothing()
	}
	return nil, errAbsent("the agent is not connected just now; try again shortly")
}

// proxy hands a request on.
func (h *Host) proxy(to *way) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: to, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(h.opt.Log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL, p.Out.Host = to.url, to.host
			h.strip(p)
			if to.proof != "" {
				p.Out.Header.Set(passedOn, to.proof)
			} else {
				p.Out.Header.Set(tunnelconn.Relayed, "true")
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, name := range ownHeaders {
				resp.Header.Del(name)
			}
			if to.proof != "" { // the other replica has said it already
				for _, name := range sharedHeaders {
					resp.Header.Del(name)
				}
			}
			resp.Header.Set("Content-Security-Policy", relayPolicy)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			h.opt.Log.InfoContext(r.Context(), "a request could not be relayed", "address", to.handle, "error", err)
			if to.body != nil && to.body.slow(err) {
				w.Header().Set("Connection", "close")
				h.refuse(w, r, hub.Errorf(hub.Invalid, "the request's body came too slowly; send it again over a faster connection, or a smaller one"))
				return
			}
			h.refuse(w, r, relayError(err, h.opt.MaxBody))
		},
	}
}

// relayError says why a request did not reach the local server, or got no answer.
func relayError(err error, most int64) *hub.Error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return errTooLarge(most)
	}
	if e, ok := errors.AsType[*egress.Error](err); ok && e.Reason == egress.BadRequest {
		return hub.Errorf(hub.Invalid, "the request has a header that cannot be passed on; send each once, without control characters")
	}
	return errAbsent("the agent cannot be reached just now; try again shortly")
}

// ownHeaders are those of answers that are the hub's alone to send, since they count for
// its whole origin.
var ownHeaders = [...]string{
	"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Alt-Svc", "Report-To", "NEL",
	"Content-Security-Policy-Report-Only", "X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy", "X-Request-Id",
	"Access-Control-Allow-Credentials",
}

// sharedHeaders are those that this replica has set in the same way as the one that has
// answered.
var sharedHeaders = [...]string{
	"Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Content-Security-Policy",
}

// strip takes away what is meant for the hub: its cookies, and a credential that counts
// here. A credential of the outside service's own goes through.
func (h *Host) strip(p *httputil.ProxyRequest) {
	for _, name := range []string{"Cookie", "Upgrade", "Connection", tunnelconn.Relayed, tunnelconn.Unsent, tunnelconn.Notice, passedOn} {
		p.Out.Header.Del(name)
	}
	who, err := h.opt.Who(p.In.Context())
	if err == nil && who.Token != "" || strings.Contains(p.In.Header.Get("Authorization"), " hf") {
		p.Out.Header.Del("Authorization")
	}
}

// parts writes an answer in parts that go out at once, each with its own deadline.
type parts struct {
	http.ResponseWriter
	stream *httpx.Stream
}

// WriteHeader leaves out answers that are on their way only (1xx): their headers would
// count for the hub's origin.
func (p *parts) WriteHeader(status int) {
	if status >= 200 {
		p.ResponseWriter.WriteHeader(status)
	}
}

// Write implements io.Writer.
func (p *parts) Write(b []byte) (int, error) {
	if err := p.stream.Send(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Unwrap is for http.ResponseController.
func (p *parts) Unwrap() http.ResponseWriter { return p.ResponseWriter }
