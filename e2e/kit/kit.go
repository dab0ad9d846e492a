package kit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/wire"
)

// The addresses of a Hub.
const (
	// Full is an address that has everything the hub can do.
	Full = "tck"
	// Minimal is an address whose owner has turned off what can be turned off, and
	// that wants an extension of its callers.
	Minimal = "tck-minimal"
)

// The extensions of the addresses.
const (
	// OptionalExtension is what callers of Full may support.
	OptionalExtension = "https://example.com/extensions/nothing/v1"
	// RequiredExtension is what callers of Minimal must support.
	RequiredExtension = "urn:a2a:tck:required-extension"
)

// Options say how to run a Hub.
type Options struct {
	// Listen is the address to listen on, on loopback, since the kit has no token.
	Listen string
	// Streaming is the kit's TCK_STREAMING_TIMEOUT: a task that is to be come back to
	// takes twice as long. 2 s if 0.
	Streaming time.Duration
	// Guarded has Old served with TLS, for callers with a token only.
	Guarded bool
	// Log gets what the hub and the callee have to say; discarded if nil.
	Log *slog.Logger
}

// Hub is a running hub with its callee.
type Hub struct {
	// URL is the hub's base URL, without a slash at its end.
	URL string
	// Old is Full for clients of 0.3, which look for a card at the root of a host, and
	// nowhere else. It ends with a slash.
	Old string
	// Roots is the file with the certificate that a Guarded hub's Old has.
	Roots string

	hosts map[string]string // see Host
	lent  atomic.Value      // the token that a guarded front lends: see lend

	dir  string
	stop context.CancelFunc
	done []chan error
}

// Start starts a hub and a callee, and returns once both addresses are there. End it
// with Close.
func Start(ctx context.Context, opt Options) (_ *Hub, err error) {
	if opt.Streaming == 0 {
		opt.Streaming = 2 * time.Second
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	h := &Hub{}
	if h.dir, err = os.MkdirTemp("", "holdfast-kit-"); err != nil {
		return nil, fmt.Errorf("make a data directory: %w", err)
	}
	ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	cfg := configure(opt, h.dir)
	a, err := app.New(ctx, cfg, opt.Log)
	if err != nil {
		return nil, err
	}
	h.URL = a.URL()
	h.run(func() error { return a.Run(ctx) })
	if err := h.fronts(ctx, opt); err != nil {
		return nil, err
	}
	h.lent.Store("")
	if err := h.addresses(ctx, cfg.AdminToken, opt); err != nil {
		return nil, err
	}
	return h, h.lendTo(ctx, cfg.AdminToken, opt)
}

// lendTo makes the token that a guarded front lends.
func (h *Hub) lendTo(ctx context.Context, admin string, opt Options) error {
	if !opt.Guarded {
		return nil
	}
	c := client.New(h.URL, admin)
	defer c.Close()
	token, err := c.CreateToken(ctx, Minimal, client.TokenRequest{})
	if err != nil {
		return fmt.Errorf("make a token to lend: %w", err)
	}
	h.lent.Store(token.Token)
	return nil
}

// fronts gives the addresses hosts of their own.
func (h *Hub) fronts(ctx context.Context, opt Options) (err error) {
	h.hosts = map[string]string{}
	for _, handle := range []string{Full, Minimal} {
		if h.hosts[handle], err = h.front(ctx, handle, place{}); err != nil {
			return err
		}
	}
	old := place{v03: true}
	if opt.Guarded {
		h.Roots = filepath.Join(h.dir, "roots.pem")
		if old.certificate, err = certificate(guardedHost, h.Roots); err != nil {
			return err
		}
	}
	h.Old, err = h.front(ctx, Full, old)
	h.Old += "/"
	return err
}

// configure is a hub for callers on this machine: anonymous ones, unless it is guarded.
func configure(opt Options, dir string) config.Config {
	cfg := config.Default()
	cfg.Listen = opt.Listen
	cfg.Data = filepath.Join(dir, "data")
	cfg.Anonymous = !opt.Guarded
	cfg.EgressAllowLocal = "1-65535" // the kit's webhook is anywhere on this machine
	cfg.AdminToken = "hfa_" + strings.ToLower(rand.Text()+rand.Text())
	cfg.Version = "conformance"
	return cfg
}

// addresses creates the addresses and has both served.
func (h *Hub) addresses(ctx context.Context, admin string, opt Options) error {
	c := client.New(h.URL, admin)
	defer c.Close()
	for handle, card := range map[string]*wire.Card{Full: fullCard(), Minimal: minimalCard()} {
		open := "open"
		_, err := c.CreateAgent(ctx, client.AgentRequest{Handle: handle, Access: &open, Card: card})
		if err != nil {
			return fmt.Errorf("create @%s: %w", handle, err)
		}
		token, err := c.CreateToken(ctx, handle, client.TokenRequest{})
		if err != nil {
			return fmt.Errorf("make a token of @%s: %w", handle, err)
		}
		h.run(func() error {
			callee := client.New(h.URL, token.Token, client.WithLogger(opt.Log))
			defer callee.Close()
			_, err := callee.Serve(ctx, player(opt.Streaming), client.Concurrency(16), client.Drain(0))
			return err
		})
	}
	return nil
}

// run runs f until the hub is closed.
func (h *Hub) run(f func() error) {
	done := make(chan error, 1)
	h.done = append(h.done, done)
	go func() { done <- f() }()
}

// Close ends the callees and the hub, and removes what they kept.
func (h *Hub) Close() error {
	h.stop()
	var errs []error
	for _, done := range h.done {
		errs = append(errs, <-done)
	}
	return errors.Join(append(errs, os.RemoveAll(h.dir))...)
}

// Host is what the kit is to be told as the host of the system under test: a host of
// its own for an address, where a gRPC call needs no tenant. The kit's gRPC client does
// not send the one that the card names, as clients should (A2A section 4.4.6).
func (h *Hub) Host(handle string) string { return h.hosts[handle] }

// Card is the URL of an address, to which the well-known path of its card is added.
func (h *Hub) Card(handle string) string { return h.URL + "/a/" + handle }
