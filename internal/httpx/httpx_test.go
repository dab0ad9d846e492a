package httpx_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/wire"
)

// logBuffer is where a test's log goes, safe to read meanwhile.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLog(level slog.Level) (*slog.Logger, *logBuffer) {
	buf := &logBuffer{}
	return slog.New(slog.NewTextHandler(buf, &slog.HandlerOptions{Level: level})), buf
}

// serve runs a handler behind the package's middleware on a real socket.
func serve(t *testing.T, opt httpx.Options, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	srv := httptest.NewServer(httpx.WithRequestID(httpx.Serve(h, opt)))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	t.Cleanup(srv.Close)
	return srv
}

// dial opens a raw connection to a server.
func dial(t *testing.T, srv *httptest.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestRequestIDs(t *testing.T) {
	var inside string
	h := httpx.WithRequestID(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inside = httpx.RequestID(r.Context())
		if w.Header().Get("X-Request-Id") != inside {
			t.Errorf("the header is not set before the handler runs")
		}
	}))
	for id, kept := range map[string]bool{
		"": false, "a": true, "Abc.9_-": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false,
		"a b": false, "a\nb": false, "é": false, "<script>": false,
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header["X-Request-Id"] = []string{id}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Header().Get("X-Request-Id"); got == "" || got != inside || (got == id) != kept {
			t.Errorf("%q became %q, in the context %q", id, got, inside)
		}
	}
}

func TestStatus(t *testing.T) {
	for kind, want := range map[hub.Kind]int{
		hub.Internal: 500, hub.Invalid: 400, hub.Unauthenticated: 401, hub.NotPermitted: 403, hub.NotFound: 404,
		hub.Conflict: 409, hub.Ended: 409, hub.NotCancelable: 409, hub.KeyReused: 409, hub.Exists: 409,
		hub.TooLarge: 413, hub.RateLimited: 429, hub.Unavailable: 503, hub.Kind(200): 500,
	} {
		if got := httpx.Status(kind); got != want {
			t.Errorf("kind %d: %d, want %d", kind, got, want)
		}
	}
}

func TestPublicHidesWhatIsInternal(t *testing.T) {
	log, lines := newLog(slog.LevelDebug)
	ctx := requestContext(t, "req-1")
	e := httpx.Public(ctx, log, fmt.Errorf("read: %w", errors.New("secret path")))
	if e.Kind != hub.Internal || strings.Contains(e.Message, "secret") || !strings.Contains(e.Message, "req-1") {
		t.Errorf("the client sees %q", e.Message)
	}
	if n := strings.Count(lines.String(), "secret path"); n != 1 || !strings.Contains(lines.String(), "request_id=req-1") {
		t.Errorf("the cause was logged %d times:\n%s", n, lines)
	}
	if e := httpx.Public(ctx, log, fmt.Errorf("send: %w", hub.ErrTaskNotFound())); e.Kind != hub.NotFound {
		t.Errorf("a wrapped refusal became %v", e)
	}
}

func TestPublicSaysWhyTheContextEnded(t *testing.T) {
	log, _ := newLog(slog.LevelDebug)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(hub.Errorf(hub.Unauthenticated, "revoked"))
	if e := httpx.Public(ctx, log, fmt.Errorf("wait: %w", ctx.Err())); e.Kind != hub.Unauthenticated {
		t.Errorf("revoked: %v", e)
	}
	ctx, cancelPlain := context.WithCancel(t.Context())
	cancelPlain()
	if e := httpx.Public(ctx, log, ctx.Err()); e.Kind != hub.ClientGone {
		t.Errorf("client gone: %v", e)
	}
	if e := httpx.Public(t.Context(), log, context.Canceled); e.Kind != hub.Internal {
		t.Errorf("some other context: %v", e)
	}
}

func requestContext(t *testing.T, id string) (ctx context.Context) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("X-Request-Id", id)
	httpx.WithRequestID(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctx = r.Context() })).
		ServeHTTP(httptest.NewRecorder(), r)
	return ctx
}

func TestWriteError(t *testing.T) {
	for _, c := range []struct {
		err                *hub.Error
		status             int
		retry, challenge   string
		code, message, det string
	}{
		{hub.InvalidField("message.parts[0]", "is empty"), 400, "", "", "invalid", "is empty", "message.parts[0]"},
		{hub.Errorf(hub.Unauthenticated, "no"), 401, "", `Bearer realm="holdfast"`, "unauthenticated", "no", ""},
		{&hub.Error{Kind: hub.RateLimited, Code: "rate_limited", RetryAfter: 1100 * time.Millisecond}, 429, "2", "", "rate_limited", "", ""},
		{hub.Errorf(hub.Unavailable, "later"), 503, "1", "", "unavailable", "later", ""},
	} {
		w := httptest.NewRecorder()
		httpx.WriteError(w, c.err)
		var body wire.ErrorBody
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		field, _ := body.Error.Details["field"].(string)
		h := w.Header()
		if w.Code != c.status || h.Get("Retry-After") != c.retry || h.Get("WWW-Authenticate") != c.challenge ||
			body.Error.Code != c.code || body.Error.Message != c.message || field != c.det {
			t.Errorf("%v: %d %v %s", c.err, w.Code, h, w.Body)
		}
	}
}

func TestPanicIsAnOrdinaryError(t *testing.T) {
	log, lines := newLog(slog.LevelInfo)
	srv := serve(t, httpx.Options{Log: log}, func(_ http.ResponseWriter, r *http.Request) { panic("kaboom") })
	for range 2 { // the connection survives, too
		res, err := http.Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		id := res.Header.Get("X-Request-Id")
		if res.StatusCode != 500 || strings.Contains(string(body), "kaboom") || !strings.Contains(string(body), id) {
			t.Errorf("%d %s", res.StatusCode, body)
		}
		if !strings.Contains(lines.String(), "kaboom") || !strings.Contains(lines.String(), id) {
			t.Errorf("the log lacks the panic or the request id:\n%s", lines)
		}
	}
}

func TestPanicInMidAnswerBreaksTheConnection(t *testing.T) {
	srv := serve(t, httpx.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic("kaboom")
	})
	res, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("the client takes %q for the whole answer", body)
	}
}

func TestAccessLog(t *testing.T) {
	log, lines := newLog(slog.LevelInfo)
	var seen []httpx.Summary
	mux := http.NewServeMux()
	mux.HandleFunc("GET /tasks/{id}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "missing" {
			httpx.WriteError(w, hub.ErrTaskNotFound())
			return
		}
		io.WriteString(w, "hello")
	})
	h := httpx.Serve(mux, httpx.Options{
		Log: log, Who: func(context.Context) string { return "alice" },
		Observe: func(r *http.Request, s httpx.Summary) {
			if httpx.Route(r) != "/tasks/{id}" {
				t.Errorf("route %q", httpx.Route(r))
			}
			seen = append(seen, s)
		},
	})
	for _, path := range []string{"/tasks/1?token=hush", "/tasks/missing?token=hush"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
	text := lines.String()
	if strings.Count(text, "\n") != 1 || !strings.Contains(text, "status=404") || !strings.Contains(text, "principal=alice") || !strings.Contains(text, "route=/tasks/{id}") {
		t.Errorf("want one line, about the 404:\n%s", text)
	}
	if strings.Contains(text, "hush") {
		t.Errorf("the log has the query:\n%s", text)
	}
	if len(seen) != 2 || seen[0].Status != 200 || seen[0].Bytes != 5 || seen[1].Status != 404 {
		t.Errorf("observed %+v", seen)
	}
}

// readBody serves ReadBody with a limit of 10 bytes and tells what it gave.
func readBody(t *testing.T, opt httpx.Options) (*httptest.Server, <-chan error) {
	t.Helper()
	got := make(chan error, 1)
	return serve(t, opt, func(w http.ResponseWriter, r *http.Request) {
		body, err := httpx.ReadBody(w, r, 10)
		got <- err
		if err != nil {
			httpx.WriteError(w, httpx.Public(r.Context(), slog.New(slog.DiscardHandler), err))
			return
		}
		w.Write(body)
	}), got
}

func TestReadBodyLimit(t *testing.T) {
	srv, got := readBody(t, httpx.Options{})
	for _, c := range []struct {
		size   int
		status int
	}{{0, 200}, {9, 200}, {10, 200}, {11, 413}, {1 << 20, 413}} {
		for _, chunked := range []bool{false, true} {
			var body io.Reader = strings.NewReader(strings.Repeat("x", c.size))
			if chunked {
				body = io.MultiReader(body) // hides the length
			}
			res, err := http.Post(srv.URL, "text/plain", body)
			if err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if res.StatusCode != c.status || c.status == 200 && len(answer) != c.size {
				t.Errorf("%d bytes, chunked %v: %d %s", c.size, chunked, res.StatusCode, answer)
			}
			<-got
		}
	}
}

func TestReadBodyLargerThanOneRead(t *testing.T) {
	want := strings.Repeat("0123456789abcdef", 20_000)
	for _, length := range []int64{-1, int64(len(want)), 100} {
		r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(want)))
		r.ContentLength = length
		got, err := httpx.ReadBody(httptest.NewRecorder(), r, 1<<20)
		if err != nil || string(got) != want {
			t.Errorf("length %d: %d bytes, %v", length, len(got), err)
		}
	}
}

func TestReadBodyRefusesCompression(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader("x"))
	r.Header.Set("Content-Encoding", "gzip")
	if _, err := httpx.ReadBody(httptest.NewRecorder(), r, 10); hub.KindOf(err) != hub.Invalid {
		t.Errorf("gzip: %v", err)
	}
	r.Header.Set("Content-Encoding", "Identity")
	if _, err := httpx.ReadBody(httptest.NewRecorder(), r, 10); err != nil {
		t.Errorf("identity: %v", err)
	}
}

func TestRequireJSON(t *testing.T) {
	for kind, ok := range map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "application/a2a+json": true, "APPLICATION/JSON": true,
		"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "text/json": false, "application/jsonp": false, ";": false,
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Content-Type", kind)
		if err := httpx.RequireJSON(r); (err == nil) != ok {
			t.Errorf("%q: %v", kind, err)
		}
	}
}

func TestSlowBodyIsCutOff(t *testing.T) {
	srv, got := readBody(t, httpx.Options{BodyTime: func(int64) time.Duration { return 50 * time.Millisecond }})
	c := dial(t, srv)
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
	if err := <-got; hub.KindOf(err) != hub.Invalid {
		t.Errorf("the handler got %v", err)
	}
	wantCutOff(t, c, "HTTP/1.1 400 ")
}

func TestUnreadBodyDoesNotHoldTheServer(t *testing.T) {
	srv := serve(t, httpx.Options{BodyTime: func(int64) time.Duration { return 50 * time.Millisecond }},
		func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "no need to read") })
	c := dial(t, srv)
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
	wantCutOff(t, c, "HTTP/1.1 200 ")
}

// wantCutOff reads the answer and expects the server to close the connection.
func wantCutOff(t *testing.T, c net.Conn, status string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), status) {
		t.Errorf("got %q, %v; want %s and the end", answer, err, status)
	}
}

func TestBodyThatBreaksOff(t *testing.T) {
	srv, got := readBody(t, httpx.Options{})
	c := dial(t, srv)
	fmt.Fprint(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc")
	c.(*net.TCPConn).CloseWrite()
	if err := <-got; err == nil {
		t.Error("a body cut short was taken for a whole one")
	}
}
