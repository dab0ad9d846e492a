package httpx_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-hub/holdfast/internal/httpx"
)

func TestSSEForm(t *testing.T) {
	w := httptest.NewRecorder()
	s := httpx.StartSSE(w, httptest.NewRequest(http.MethodGet, "/", nil))
	for _, err := range []error{
		s.Event("7", "", []byte(`{"a":1}`)),
		s.Event("", "done", []byte("one\ntwo\r\nthree\rfour\n")),
		s.Comment(),
		s.Event("", "", nil),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "id: 7\ndata: {\"a\":1}\n\n" +
		"event: done\ndata: one\ndata: two\ndata: three\ndata: four\ndata: \n\n" +
		":\n\n" + "data: \n\n"
	if got := w.Body.String(); got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	for name, value := range map[string]string{"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"} {
		if w.Header().Get(name) != value {
			t.Errorf("%s: %q", name, w.Header().Get(name))
		}
	}
	if !w.Flushed {
		t.Error("not flushed")
	}
	if s.Event("1\ndata: x", "", nil) == nil || s.Event("", "a\rb", nil) == nil {
		t.Error("an id or name with a line end was sent")
	}
}

// Whatever the data is, a reader gets it back, line ends made equal.
func FuzzSSE(f *testing.F) {
	for _, seed := range []string{"", "a", "a\nb", "\r\n\r", "id: 9\n\ndata: x", "\n\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		w := httptest.NewRecorder()
		s := httpx.StartSSE(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if err := s.Event("1", "", []byte(data)); err != nil {
			t.Fatal(err)
		}
		frame, ok := strings.CutSuffix(w.Body.String(), "\n\n")
		if !ok || strings.ContainsRune(frame, '\r') {
			t.Fatalf("frame %q", frame)
		}
		var lines []string
		for i, line := range strings.Split(frame, "\n") {
			value, isData := strings.CutPrefix(line, "data: ")
			if isData == (i == 0) {
				t.Fatalf("line %d of %q", i, frame)
			}
			if isData {
				lines = append(lines, value)
			}
		}
		want := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data)
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("%q came back as %q", data, got)
		}
	})
}

func TestReaderThatNeverReadsLosesItsStream(t *testing.T) {
	failed := make(chan error, 1)
	srv := serve(t, httpx.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/stream" {
			io.WriteString(w, "served meanwhile")
			return
		}
		s := httpx.StartSSE(w, r.WithContext(httpx.WithWriteLimit(r.Context(), 200*time.Millisecond)))
		chunk := []byte(strings.Repeat("x", 1<<16))
		for {
			if err := s.Event("1", "", chunk); err != nil {
				failed <- err
				return
			}
		}
	})
	c := dial(t, srv)
	io.WriteString(c, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
	res, err := http.Get(srv.URL + "/other")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	select {
	case err := <-failed:
		if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("it failed otherwise: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the writer still waits for its reader")
	}
}

func TestReaderThatNeverReadsAnOrdinaryAnswer(t *testing.T) {
	failed := make(chan error, 1)
	srv := serve(t, httpx.Options{ResponseTime: 200 * time.Millisecond}, func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 64<<20))
		failed <- err
	})
	io.WriteString(dial(t, srv), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := <-failed; err == nil {
		t.Error("64 MiB went nowhere without an error")
	}
}

// pipeListener serves connections that live in memory and keep a bubble's time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// pipe connects to a handler behind the middleware, within a bubble.
func pipe(t *testing.T, h http.HandlerFunc) net.Conn {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	srv := &http.Server{Handler: httpx.Serve(h, httpx.Options{Log: discard()})}
	go srv.Serve(l)
	client, server := net.Pipe()
	l.conns <- server
	t.Cleanup(func() {
		client.Close()
		srv.Close()
	})
	return client
}

// The deadline of the body must not end the wait for the answer.
func TestLongPollOutlivesTheDeadlineOfItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pipe(t, func(w http.ResponseWriter, r *http.Request) {
			if _, err := httpx.ReadBody(w, r, 100); err != nil {
				t.Error(err)
			}
			select {
			case <-time.After(10 * time.Minute):
				io.WriteString(w, "waited")
			case <-r.Context().Done():
				t.Error("the request ended early")
			}
		})
		io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc")
		answer, err := io.ReadAll(client)
		if err != nil || !strings.HasSuffix(string(answer), "waited") {
			t.Errorf("%q, %v", answer, err)
		}
	})
}

// The deadline of one answer must not end the next request of its connection.
func TestConnectionsOutliveTheDeadlineOfAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := pipe(t, func(w http.ResponseWriter, r *http.Request) {
			body, err := httpx.ReadBody(w, r, 100)
			if err != nil {
				t.Error(err)
			}
			w.Write(body)
		})
		answers := bufio.NewReader(client)
		for _, extra := range []string{"", "Expect: 100-continue\r\n", ""} {
			io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\n"+extra+"Content-Length: 3\r\n\r\n")
			if extra != "" {
				if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") {
					t.Fatalf("no 100 Continue: %q, %v", line, err)
				}
				answers.ReadString('\n')
			}
			io.WriteString(client, "abc")
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(res.Body); string(body) != "abc" || err != nil {
				t.Fatalf("%q, %v", body, err)
			}
			time.Sleep(5 * time.Minute)
		}
	})
}

func TestFollowKeepsQuietStreamsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		s := httpx.StartSSE(w, httptest.NewRequest(http.MethodGet, "/", nil))
		items := make(chan string)
		go func() {
			time.Sleep(40 * time.Second)
			items <- "late"
			items <- "last"
		}()
		next := func(ctx context.Context) (string, error) {
			select {
			case item := <-items:
				return item, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
		err := httpx.Follow(t.Context(), s, next, func(item string) (bool, error) {
			return item != "last", s.Event("", "", []byte(item))
		})
		if want := ":\n\n:\n\ndata: late\n\ndata: last\n\n"; err != nil || w.Body.String() != want {
			t.Errorf("%q, %v; want %q", w.Body, err, want)
		}
	})
}

func TestFollowEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := httpx.StartSSE(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		wait := func(ctx context.Context) (string, error) { <-ctx.Done(); return "", ctx.Err() }
		err := httpx.Follow(ctx, s, wait, func(string) (bool, error) { t.Error("emitted"); return true, nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestStreamsAreCounted(t *testing.T) {
	open := 0
	h := httpx.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stream" {
			if err := httpx.StartSSE(w, r).Comment(); err != nil {
				t.Error(err)
			}
			if open != 1 {
				t.Errorf("%d streams are open, want 1", open)
			}
		}
	}), httpx.Options{Log: discard(), Streaming: func(delta int) { open += delta }})
	for _, path := range []string{"/stream", "/other"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	if open != 0 {
		t.Errorf("%d streams are open at the end", open)
	}
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
