package httpx_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/httpx"
)

// TestStreamOverHTTP2GivesUpOnAReaderThatDoesNotRead: the stream ends for whoever takes
// nothing, and goes on for whoever is merely silent. Log and observer see the status
// that they were told.
func TestStreamOverHTTP2GivesUpOnAReaderThatDoesNotRead(t *testing.T) {
	ended, seen, open := make(chan error, 1), make(chan httpx.Summary, 2), 0
	site := httpx.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpx.ShowStatus(w, http.StatusTeapot)
		s := httpx.StartStream(w, r.WithContext(httpx.WithWriteLimit(r.Context(), 200*time.Millisecond)))
		if r.URL.Path == "/silent" {
			_ = s.Send([]byte("a"))
			<-time.After(500 * time.Millisecond) // longer than the limit for a write
			ended <- s.Send([]byte("b"))
			return
		}
		for {
			if err := s.Send(make([]byte, 1<<20)); err != nil {
				ended <- err
				return
			}
		}
	}), httpx.Options{
		Log:       slog.New(slog.DiscardHandler),
		Observe:   func(_ *http.Request, s httpx.Summary) { seen <- s },
		Streaming: func(delta int) { open += delta },
	})
	server := httptest.NewUnstartedServer(site)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for path, fails := range map[string]bool{"/endless": true, "/silent": false} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if err := <-ended; (err != nil) != fails {
			t.Errorf("%s over %s: %v", path, res.Proto, err)
		}
		if s := <-seen; s.Status != http.StatusTeapot || !s.Stream || open != 0 {
			t.Errorf("%s: %+v, %d open", path, s, open)
		}
	}
}
