package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-hub/holdfast/internal/face/a2a"
	v1 "github.com/holdfast-hub/holdfast/internal/face/v1"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

const (
	headerTime = 10 * time.Second // for a request's header to arrive
	idleTime   = 2 * time.Minute  // that a connection may stay open unused
	maxHeader  = 64 << 10

	// parkFrom is how many long polls wait with all that net/http keeps for an open
	// request before others park: few take next to nothing, and are answered a little
	// sooner that way.
	parkFrom = 256
)

// listen opens the listener. Who connects before Run has to wait for it.
func (a *App) listen(ctx context.Context) error {
	var err error
	a.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", a.cfg.Listen)
	if errors.Is(err, syscall.EADDRINUSE) {
		return hub.Errorf(hub.Exists, "cannot listen on %s because another program does, perhaps another hub; stop it or choose another port with --listen", a.cfg.Listen)
	}
	if err != nil {
		return fmt.Errorf("listen: %w; choose another address with --listen", err)
	}
	if a.certs, err = a.certificates(); err != nil {
		return err
	}
	a.url = publicURL(a.cfg.PublicURL, a.Addr(), a.certs != nil)
	if !a.cfg.Loopback() && a.certs == nil {
		a.log.Warn("listening beyond this machine without TLS: tokens travel in the clear unless a TLS proxy is in front; see --tls-cert", "listen", a.Addr())
	}
	if a.cfg.PublicURL == "" && !a.cfg.Loopback() {
		a.log.Warn("cards and addresses name a URL that others may not reach: set --public-url to the one that they use", "url", a.url)
	}
	return nil
}

// makeServers makes what serves the listener.
func (a *App) makeServers() {
	base, end := context.WithCancelCause(context.Background())
	a.endContext = end
	site := a.handler()
	a.server, a.resumed = a.newServer(base, site, a.certs), a.newServer(base, site, nil)
	a.resumed.ConnContext = a.lot.ConnContext
}

// newServer makes the server of a listener.
func (a *App) newServer(base context.Context, site http.Handler, certificates []tls.Certificate) *http.Server {
	return &http.Server{
		Protocols:         protocols(),
		HTTP2:             http2Limits(),
		Handler:           site,
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug), // broken handshakes and the like
		TLSConfig:         &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12},
	}
}

// protocols is what one port speaks: HTTP/1.1, and HTTP/2 by ALPN with TLS and by
// prior knowledge without, as gRPC needs it.
func protocols() *http.Protocols {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &p
}

// http2Limits bounds the connections of HTTP/2, of which each carries many requests.
// One whose client is gone without a word is found out by pings.
func http2Limits() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams: 1000, SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second,
		WriteByteTimeout: 30 * time.Second,
	}
}

func (a *App) certificates() ([]tls.Certificate, error) {
	if a.cfg.TLSCert == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(a.cfg.TLSCert, a.cfg.TLSKey)
	if err != nil {
		return nil, fmt.Errorf("load --tls-cert %s and --tls-key %s: %w", a.cfg.TLSCert, a.cfg.TLSKey, err)
	}
	return []tls.Certificate{pair}, nil
}

// serve serves until the servers are shut down.
func (a *App) serve() error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = a.resumed.Serve(a.lot) // it ends as the other one does
	}()
	err := a.serveListener()
	if !errors.Is(err, http.ErrServerClosed) {
		_ = a.lot.Close() // nobody will shut the other server down
	}
	<-ended
	return err
}

func (a *App) serveListener() error {
	if a.cfg.TLSCert != "" {
		return a.server.ServeTLS(a.listener, "", "")
	}
	return a.server.Serve(a.listener)
}

// publicURL is the configured base, or one made from the address listened on; a
// listener on all interfaces is called localhost, for want of a better name.
func publicURL(configured, addr string, secure bool) string {
	if configured != "" {
		return strings.TrimRight(configured, "/")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil { // an address that was listened on has a port
		host = addr
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, port)
}

// handler is the whole site. From the outside in: a request gets its id, then its
// principal, then its deadlines and log line; then come the browser's rules, and
// the routes.
func (a *App) handler() http.Handler {
	site := a.metrics.requestsOpen(guard(a.routes(), a.cfg, a.url))
	site = httpx.Serve(site, httpx.Options{
		Log: a.log, Who: principalHandle, Observe: a.metrics.request, Streaming: a.metrics.streaming,
	})
	return a.lot.Handler(httpx.WithRequestID(a.identity.Middleware(a.inRoom(site))))
}

// roomBytes bounds what large messages and tasks take of the memory at any time.
const roomBytes = 512 << 20

// inRoom lets requests hold what is large only while there is room for it.
func (a *App) inRoom(next http.Handler) http.Handler {
	room := hub.NewRoom(roomBytes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, leave := room.Enter(r.Context())
		defer leave()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (a *App) routes() http.Handler {
	var agents hub.Agents
	if a.remote != nil {
		agents = a.remote
	}
	rpc := a2a.New(a2a.Options{
		Engine: a.engine, Identity: a.identity, PublicURL: a.url, BlockingLimit: a.cfg.BlockingLimit,
		MaxBody: a.cfg.MaxBody, PrivateCards: a.cfg.PrivateCards, Anonymous: a.cfg.Anonymous, Keys: a.keys,
		Agents: agents, Version: a.cfg.Version, Log: a.log,
	})
	api := v1.New(v1.Options{
		Engine: a.engine, Identity: a.identity, PublicURL: a.url, MaxBody: a.cfg.MaxBody, Limits: a.cfg.Limits(),
		Version: a.cfg.Version, StoreName: a.storeName(), StartedAt: a.started, Log: a.log, Lot: a.lot, ParkFrom: parkFrom,
		Stats: a.store.QueueStats,
	})
	mux := http.NewServeMux()
	mux.Handle("/a/", rpc)
	mux.Handle("/"+a2a.ServiceV1+"/", rpc)
	mux.Handle("/"+a2a.ServiceV03+"/", rpc)
	mux.Handle("/.well-known/", rpc)
	mux.Handle("/", api)
	a.routeTunnels(mux)
	mux.HandleFunc("GET /healthz", a.healthz)
	mux.HandleFunc("GET /readyz", a.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	return mux
}

// principalHandle names who made a request, for the log.
func principalHandle(ctx context.Context) string {
	p, err := identity.Require(ctx)
	if err != nil {
		return ""
	}
	return p.Handle
}
