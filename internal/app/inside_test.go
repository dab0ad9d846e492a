package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hub/holdfast/internal/config"
)

func newApp(t *testing.T) *App {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data = "127.0.0.1:0", t.TempDir()
	a, err := New(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestReadyzSaysWhyNot(t *testing.T) {
	a := newApp(t)
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		a.server.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	if status, body := ask("/readyz"); status != 200 {
		t.Errorf("at first: %d %s", status, body)
	}
	if err := a.store.Close(); err != nil {
		t.Fatal(err)
	}
	if status, body := ask("/readyz"); status != 503 || !strings.Contains(body, `"reason":"`) {
		t.Errorf("without a store: %d %s", status, body)
	}
	a.draining.Store(true)
	if status, body := ask("/readyz"); status != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("shutting down: %d %s", status, body)
	}
	if status, _ := ask("/healthz"); status != 200 {
		t.Errorf("the process lives all the same: %d", status)
	}
}

// pipeListener serves one connection that lives in memory and keeps a bubble's time.
type pipeListener struct {
	conn   chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// Whoever sends a header or body a byte at a time, or nothing at all, loses the
// connection in due time.
func TestSlowClientsLoseTheirConnections(t *testing.T) {
	for name, c := range map[string]struct {
		sends string
		limit time.Duration
	}{
		"nothing":     {"", idleTime},
		"half header": {"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ", headerTime},
		"half body":   {"POST /v1/agents/echo/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer SECRET\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", time.Minute},
		"idle":        {"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", idleTime + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newApp(t)
				a.listener.Close()
				l := &pipeListener{conn: make(chan net.Conn, 1), closed: make(chan struct{})}
				a.listener = l
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- a.Run(ctx) }()
				client, server := net.Pipe()
				l.conn <- server
				begun := time.Now()
				io.WriteString(client, strings.ReplaceAll(c.sends, "SECRET", a.secret))
				io.Copy(io.Discard, client) // whatever it answers, until it hangs up
				if took := time.Since(begun); took > c.limit {
					t.Errorf("it took %v, want at most %v", took, c.limit)
				}
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
