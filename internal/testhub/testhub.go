// Package testhub runs a whole hub for tests of what talks to one: the real
// program, on a real socket, over a SQLite file in a temporary directory.
package testhub

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

// Hub is a running hub. It ends with its test.
type Hub struct {
	// URL is the base URL, without a slash at its end. It stays the same over a
	// Restart.
	URL string
	// AdminToken is the administrator's secret.
	AdminToken string

	t    testing.TB
	cfg  config.Config
	app  *app.App
	stop context.CancelFunc
	done chan error
}

// Start starts a hub and waits until it serves. Each change is applied to its
// configuration first; the defaults are those of `holdfast serve`, on a free port.
func Start(t testing.TB, change ...func(*config.Config)) *Hub {
	t.Helper()
	cfg := config.Default()
	cfg.Listen = "127.0.0.1:0"
	cfg.Data = filepath.Join(t.TempDir(), "data")
	cfg.AdminToken = "hfa_" + strings.Repeat("test", 10) + "adm"
	cfg.Version = "test"
	for _, f := range change {
		f(&cfg)
	}
	h := &Hub{t: t, cfg: cfg, AdminToken: cfg.AdminToken}
	h.start()
	t.Cleanup(func() { h.Close() })
	return h
}

// Anonymous lets in callers without a token.
func Anonymous(cfg *config.Config) { cfg.Anonymous = true }

func (h *Hub) start() {
	h.t.Helper()
	log := slog.New(slog.NewTextHandler(h.t.Output(), &slog.HandlerOptions{Level: max(slog.LevelWarn, h.cfg.LogLevel)}))
	ctx, cancel := context.WithCancel(context.Background())
	a, err := app.New(ctx, h.cfg, log)
	if err != nil {
		cancel()
		h.t.Fatalf("start a hub: %v", err)
	}
	h.cfg.Listen = a.Addr() // the same port after a Restart
	h.app, h.URL, h.stop, h.done = a, a.URL(), cancel, make(chan error, 1)
	go func() { h.done <- a.Run(ctx) }()
}

// Close shuts the hub down in an orderly way and waits for that. It may be called
// more than once.
func (h *Hub) Close() {
	h.t.Helper()
	if h.app == nil {
		return
	}
	h.stop()
	if err := <-h.done; err != nil {
		h.t.Errorf("the hub did not end well: %v", err)
	}
	h.app = nil
}

// Restart shuts the hub down and starts it again on the same data, at the same URL.
func (h *Hub) Restart() {
	h.t.Helper()
	h.Close()
	h.start()
}

// Addr is the host and port that the hub listens on, also where URL is another.
func (h *Hub) Addr() string { return h.cfg.Listen }

// Dir is the data directory.
func (h *Hub) Dir() string { return h.cfg.Data }

// Identity is the hub's own directory, to act on it past HTTP. It is another one
// after a Restart.
func (h *Hub) Identity() *identity.Service { return h.app.Identity() }

// Admin is the administrator as a principal, for Identity.
func (h *Hub) Admin() hub.Principal {
	return hub.Principal{Handle: hub.AdminHandle, Role: hub.RoleAdmin}
}

// Agent creates an open address and gives a token that acts as it.
func (h *Hub) Agent(handle string) (token string) {
	h.t.Helper()
	open := "open"
	h.Create(identity.AgentSpec{Handle: handle, Access: &open})
	return h.Token(handle)
}

// Create creates an address as spec says.
func (h *Hub) Create(spec identity.AgentSpec) *hub.Address {
	h.t.Helper()
	a, err := h.Identity().CreateAgent(h.t.Context(), h.Admin(), spec)
	if err != nil {
		h.t.Fatalf("create the address %q: %v", spec.Handle, err)
	}
	return a
}

// Token makes one more token that acts as the address.
func (h *Hub) Token(handle string) string {
	h.t.Helper()
	_, secret, err := h.Identity().CreateToken(h.t.Context(), h.Admin(), handle, identity.TokenSpec{Name: "test"})
	if err != nil {
		h.t.Fatalf("make a token for %q: %v", handle, err)
	}
	return secret
}
