// Package app puts the hub together: it opens the store, starts the engine and
// serves the faces over HTTP, and takes all of it down again in the order that
// loses nothing. It is the one place where the parts meet.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/clock"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/push"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/signing"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// storeName is what the administrator is told about where things are kept.
func (a *App) storeName() string {
	if a.cfg.DatabaseURL != "" {
		return "postgres"
	}
	return "sqlite"
}

// App is a hub. Make one with New and Run it once.
type App struct {
	cfg      config.Config
	log      *slog.Logger
	started  time.Time
	metrics  *metrics
	store    hub.Store
	vault    hub.Sealer    // seals what is kept; for what is made after openVault
	keys     *signing.Keys // sign cards and notifications; likewise
	identity *identity.Service
	egress   *egress.Guard // the way out
	pusher   *push.Sender  // nil without push notifications

	egressOptions egress.Options
	calls         *egress.Guard        // the way out for deliveries, which take longer
	remote        *remotea2a.Deliverer // nil without endpoints
	dispatcher    *delivery.Dispatcher // nil without endpoints
	replicas      *egress.Guard        // the way to the other replicas; nil if there are none
	tunnels       *tunnel.Host         // nil if none are taken

	engine   *engine.Engine
	listener net.Listener
	certs    []tls.Certificate // nil without TLS
	server   *http.Server
	lot      *httpx.Lot
	resumed  *http.Server // serves the requests that were parked in lot
	url      string
	secret   string // of the admin token, if this start made it

	draining   atomic.Bool
	endContext context.CancelCauseFunc // of every request
	// heed is told what other replicas have changed, once there is an engine; alone runs
	// what is to be done once by all replicas together.
	// now is the clock that the store goes by.
	now       func() time.Time
	heed      atomic.Pointer[func(hub.Change)]
	alone     func(context.Context, func() error) error
	closeOnce sync.Once
	closeErr  error
}

// New opens everything that a hub needs, and listens. Nothing is served before
// Run; a hub that is not to run needs a Close. Errors say what to do about them.
func New(ctx context.Context, cfg config.Config, log *slog.Logger) (_ *App, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	a := &App{cfg: cfg, log: log, started: time.Now(), metrics: newMetrics(), alone: alwaysAlone, now: clock.Now}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if err := a.prepare(ctx); err != nil {
		return nil, err
	}
	if err := a.openStore(ctx); err != nil {
		return nil, err
	}
	if err := a.openVault(ctx); err != nil {
		return nil, err
	}
	a.openDelivery()
	a.identity = identity.New(a.identityOptions(cfg))
	err = a.alone(ctx, func() (err error) {
		a.secret, _, err = a.identity.EnsureAdmin(ctx, cfg.AdminToken)
		return err
	})
	if err != nil {
		return nil, err
	}
	a.openPush()
	a.engine = engine.New(a.engineOptions())
	heed := a.engine.Heed
	a.heed.Store(&heed)
	a.openTunnels()
	a.lot = httpx.NewLot(a.identity.Follow)
	a.metrics.watchOpen(a.engine.Waiting, a.lot.Parked)
	a.makeServers()
	return a, nil
}

// prepare finds out whether the settings work on this machine, before anything is made
// that a second try would find: above all the admin token, which is shown only once.
func (a *App) prepare(ctx context.Context) error {
	if a.cfg.AdminToken != "" {
		if err := identity.CheckEnvToken(a.cfg.AdminToken); err != nil {
			return err
		}
	}
	if err := a.openEgress(); err != nil {
		return err
	}
	if err := a.checkMasterKey(); err != nil {
		return err
	}
	return a.listen(ctx)
}

// openStore opens the store, metered.
func (a *App) openStore(ctx context.Context) error {
	if a.cfg.DatabaseURL != "" {
		return a.openPostgres(ctx)
	}
	s, err := sqlite.Open(ctx, sqlite.Options{
		Dir: a.cfg.Data, Log: a.log, Observe: a.metrics.batch, Synchronous: a.cfg.Synchronous,
	})
	if err != nil {
		return err
	}
	a.store = &meteredStore{Store: s, count: a.metrics.transitions}
	a.metrics.watchQueue(a.store)
	return nil
}

func (a *App) engineOptions() engine.Options {
	opt := engine.Options{
		Store: a.store, Directory: a.identity, Limits: a.cfg.Limits(), Log: a.log,
		Now: a.now, Retain: a.cfg.Retain, DeleteGrace: a.cfg.DeleteGrace, Rate: a.cfg.Rate, Burst: a.cfg.Burst,
	}
	if a.pusher != nil { // a nil *push.Sender in Pusher would be no nil
		opt.Pusher, opt.Sealer, opt.CheckPushURL = a.pusher, a.vault, a.checkPushURL
	}
	if a.dispatcher != nil {
		opt.Deliveries = a.dispatcher
	}
	return opt
}

// Addr is the address that the hub listens on, with the real port if the
// configured one was 0.
func (a *App) Addr() string { return a.listener.Addr().String() }

// URL is the base of the URLs that the hub gives out, without a slash at its end.
func (a *App) URL() string { return a.url }

// Identity is the hub's directory, for what is done in the same process.
func (a *App) Identity() *identity.Service { return a.identity }

// NewAdminToken is the secret of the admin token, if this start made one; else
// empty.
func (a *App) NewAdminToken() string { return a.secret }

// Banner says where the hub is and, if this start made one, its admin token, which
// is shown nowhere else.
func (a *App) Banner(w io.Writer) error {
	var b strings.Builder
	data, lost := a.cfg.Data, "stop the hub and run: holdfast admin-token --data "+a.cfg.Data
	if a.cfg.DatabaseURL != "" { // which has a password in it
		data, lost = "its database", "run holdfast admin-token with the same HOLDFAST_DATABASE_URL"
	}
	fmt.Fprintf(&b, "Holdfast is at %s and keeps its data in %s.\n", a.url, data)
	if a.secret != "" {
		fmt.Fprintf(&b, `
Its admin token is shown only this once. To use the hub from a shell as its administrator:

    export HOLDFAST_URL=%s HOLDFAST_TOKEN=%s

If the token gets lost, %s
`, a.url, a.secret, lost)
	}
	if a.cfg.Anonymous {
		b.WriteString("Callers on this machine need no token (--anonymous).\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Run serves until ctx ends, then shuts down: no new connections, open polls and
// streams end at once with their ordinary answers, the other requests may finish
// within the shutdown timeout, and the store closes last. It gives nil after an
// orderly end.
func (a *App) Run(ctx context.Context) error {
	a.engine.Start()
	a.identity.Start()
	if a.pusher != nil {
		a.pusher.Start()
	}
	if a.dispatcher != nil {
		a.dispatcher.Start(a.engine)
	}
	served := make(chan error, 1)
	go func() { served <- a.serve() }()
	a.log.Info("serving", "url", a.url, "listen", a.Addr(), "data", a.cfg.Data, "version", a.cfg.Version)
	var err error
	select {
	case err = <-served:
		err = fmt.Errorf("serve HTTP: %w", err)
	case <-ctx.Done():
		a.log.Info("shutting down", "at_most", a.cfg.ShutdownTimeout)
		err = a.shutdown()
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}
	err = errors.Join(err, a.Close())
	a.log.Info("stopped")
	return err
}

// shutdown ends all requests, ever less politely, within the shutdown timeout.
func (a *App) shutdown() error {
	a.draining.Store(true)
	a.resumed.SetKeepAlivesEnabled(false)
	polite := make(chan error, 1)
	go func() { polite <- a.stopServer(a.cfg.ShutdownTimeout * 7 / 10) }()
	go a.closePush() // meanwhile; Close waits for it
	if a.dispatcher != nil {
		a.dispatcher.Drain()
	}
	a.drainTunnels()
	a.engine.Drain()
	if <-polite == nil {
		return nil
	}
	a.endContext(hub.Errorf(hub.Unavailable, "the hub is shutting down; try again shortly"))
	if a.stopServer(a.cfg.ShutdownTimeout*2/10) == nil {
		return nil
	}
	a.log.Warn("some requests did not end in time and were cut off")
	return errors.Join(a.server.Close(), a.resumed.Close())
}

// stopServer closes the listener and waits for the open requests, those that were
// parked last.
func (a *App) stopServer(within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := a.server.Shutdown(ctx); err != nil {
		return err
	}
	if err := a.lot.Drain(ctx); err != nil {
		return err
	}
	return a.resumed.Shutdown(ctx)
}

// Close releases what New opened; after Run there is nothing left to do. It may be
// called more than once.
func (a *App) Close() error {
	a.closeOnce.Do(func() {
		if a.listener != nil {
			_ = a.listener.Close() // the server may have closed it before
		}
		if a.endContext != nil {
			a.endContext(context.Canceled)
		}
		a.closeDelivery()
		a.closeTunnels()
		if a.engine != nil {
			a.engine.Close()
		}
		if a.identity != nil {
			a.identity.Close()
		}
		a.closePush()
		if a.store != nil {
			a.closeErr = a.store.Close()
		}
	})
	return a.closeErr
}

// ReplaceAdmin gives a hub a new admin token and revokes the old ones, for whoever holds
// its data directory or database. On a data directory the hub must not be running; replicas
// on a database may, and take the new token at once and the old ones for some seconds more.
func ReplaceAdmin(ctx context.Context, cfg config.Config, log *slog.Logger) (secret string, err error) {
	err = withStore(ctx, cfg, log, func(store hub.Store) error {
		secret, err = identity.New(identity.Options{Store: store, Log: log}).ReplaceAdmin(ctx)
		return err
	})
	return secret, err
}
