package tunnel

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

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
		httpx.WriteError(w, httpx.Public(r.Context(), h.opt.Log, err))
		return
	}
	handle := a.Handle
	l, connected := h.pick(a, path)
	switch {
	case l == nil && connected:
		httpx.WriteError(w, errNothing())
		return
	case l == nil:
		w.Header().Set("Retry-After", "5")
		httpx.WriteError(w, hub.Errorf(hub.Unavailable, "the agent is not connected just now; try again shortly"))
		return
	}
	if r.ContentLength > h.opt.MaxBody {
		httpx.WriteError(w, hub.Errorf(hub.TooLarge, "the body has more than %d bytes, which is the most that is relayed", h.opt.MaxBody))
		return
	}
	if !h.begin(handle) {
		w.Header().Set("Retry-After", "1")
		httpx.WriteError(w, hub.Errorf(hub.RateLimited, "too many requests to this agent are under way; try again in a moment"))
		return
	}
	defer h.end(handle)
	ctx, cancel := context.WithTimeout(r.Context(), relayTime)
	defer cancel()
	_ = http.NewResponseController(w).EnableFullDuplex() // HTTP/2 always is
	r.Body = http.MaxBytesReader(w, r.Body, h.opt.MaxBody)
	h.proxy(l, path).ServeHTTP(&parts{w, httpx.StartStream(w, r)}, r.WithContext(ctx))
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

// proxy hands a request on through l.
func (h *Host) proxy(l *link, path string) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: l, FlushInterval: -1,
		ErrorLog: slog.NewLogLogger(h.opt.Log.Handler(), slog.LevelDebug),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL = &url.URL{Scheme: "http", Host: "relay.tunnel", Path: path, RawQuery: p.In.URL.RawQuery}
			p.Out.Host = p.In.Host
			h.strip(p)
			p.Out.Header.Set(tunnelconn.Relayed, "true")
		},
		ModifyResponse: func(resp *http.Response) error {
			for _, name := range ownHeaders {
				resp.Header.Del(name)
			}
			resp.Header.Set("Content-Security-Policy", relayPolicy)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			h.opt.Log.InfoContext(r.Context(), "a request could not be relayed", "address", l.handle, "error", err)
			w.Header().Set("Retry-After", "5")
			httpx.WriteError(w, hub.Errorf(hub.Unavailable, "the agent cannot be reached just now; try again shortly"))
		},
	}
}

// ownHeaders are those of answers that are the hub's alone to send, since they count for
// its whole origin.
var ownHeaders = [...]string{
	"Set-Cookie", "Clear-Site-Data", "Service-Worker-Allowed", "Strict-Transport-Security", "Alt-Svc", "Report-To", "NEL",
	"Content-Security-Policy-Report-Only", "X-Frame-Options", "X-Content-Type-Options", "Referrer-Policy", "X-Request-Id",
	"Access-Control-Allow-Credentials",
}

// strip takes away what is meant for the hub: its cookies, and a credential that counts
// here. A credential of the outside service's own goes through.
func (h *Host) strip(p *httputil.ProxyRequest) {
	for _, name := range []string{"Cookie", "Upgrade", "Connection", tunnelconn.Relayed, tunnelconn.Unsent} {
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
