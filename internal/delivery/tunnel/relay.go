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
// credential, to the local servers of agents that have opened some of their paths to
// them. What is not open looks as if it were not there.
func (h *Host) Relay() http.Handler { return http.HandlerFunc(h.relay) }

func (h *Host) relay(w http.ResponseWriter, r *http.Request) {
	handle, path, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, RelayPath), "/")
	path = "/" + path
	if !ok || r.URL.RawPath != "" || r.Header.Get("Service-Worker") != "" {
		notFound(w)
		return
	}
	l := h.pick(handle, path)
	if l == nil {
		notFound(w)
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

func notFound(w http.ResponseWriter) {
	httpx.WriteError(w, hub.Errorf(hub.NotFound, "there is nothing here"))
}

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
