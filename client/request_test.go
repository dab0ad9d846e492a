package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// quick retries without making the test wait.
var quick = WithRetry(Retry{Tries: 4, Min: time.Millisecond, Max: 2 * time.Millisecond})

// against makes a client of a server that answers as h says.
func against(t *testing.T, h http.HandlerFunc, opts ...Option) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	c := New(srv.URL, "hf_secret", append([]Option{quick}, opts...)...)
	t.Cleanup(func() { c.Close(); srv.Close() })
	return c
}

func TestSendRepeatsTheSameRequestUntilItWorks(t *testing.T) {
	var mu sync.Mutex
	var keys, bodies []string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		keys, bodies = append(keys, r.Header.Get("Idempotency-Key")), append(bodies, string(b))
		switch len(keys) {
		case 1:
			w.WriteHeader(http.StatusBadGateway)
		case 2:
			w.Header().Set("Retry-After", "0.001")
			w.WriteHeader(http.StatusTooManyRequests)
		case 3:
			panic(http.ErrAbortHandler) // the connection breaks
		default:
			fmt.Fprint(w, `{"id":"t1","state":"submitted"}`)
		}
	})
	task, err := c.Send(t.Context(), "@coder", "hi")
	if err != nil || task.ID != "t1" {
		t.Fatalf("%+v, %v", task, err)
	}
	mu.Lock()
	defer mu.Unlock()
	for i := range keys {
		if keys[i] == "" || keys[i] != keys[0] || bodies[i] != bodies[0] {
			t.Errorf("try %d: key %q, body %s", i, keys[i], bodies[i])
		}
	}
	if len(keys) != 4 {
		t.Errorf("%d tries", len(keys))
	}
}

func TestWhatIsNotSafeIsNotRepeated(t *testing.T) {
	for name, tt := range map[string]struct {
		status, want int
		body         string
	}{
		"refused":           {http.StatusBadRequest, 1, ""},
		"unknown outcome":   {http.StatusBadGateway, 1, ""},
		"nothing happened":  {http.StatusServiceUnavailable, 4, `{"error":{"code":"unavailable","message":"x"}}`},
		"said to be unsure": {http.StatusServiceUnavailable, 1, `{"error":{"code":"outcome_unknown","message":"x"}}`},
		"come back later":   {http.StatusTooManyRequests, 4, ""},
		"connection broken": {0, 1, ""},
	} {
		var tries atomic.Int32
		c := against(t, func(w http.ResponseWriter, _ *http.Request) {
			tries.Add(1)
			if tt.status == 0 {
				panic(http.ErrAbortHandler)
			}
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		})
		if _, err := c.CreateAgent(t.Context(), AgentRequest{Handle: "x"}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if n := int(tries.Load()); n != tt.want {
			t.Errorf("%s: %d tries, want %d", name, n, tt.want)
		}
	}
}

func TestRetryAfterIsWaitedForButNotForever(t *testing.T) {
	var tries atomic.Int32
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		tries.Add(1)
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := c.Whoami(t.Context())
	e, ok := errors.AsType[*Error](err)
	if !ok || !errors.Is(err, ErrRateLimited) || e.RetryAfter != time.Hour || tries.Load() != 1 {
		t.Errorf("%v after %d tries", err, tries.Load())
	}
}

func TestAnEndedContextEndsTheRetries(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("changed my mind")
	c := against(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		w.WriteHeader(http.StatusServiceUnavailable)
		time.AfterFunc(time.Millisecond, func() { cancel(why) })
	})
	_, err := c.Whoami(ctx)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestRefusalsMatchTheSentinels(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		want   error
	}{
		{401, "unauthenticated", ErrUnauthenticated},
		{403, "not_permitted", ErrNotPermitted},
		{404, "not_found", ErrNotFound},
		{409, "conflict", ErrConflict},
		{409, "task_ended", ErrEnded},
		{409, "task_not_cancelable", ErrNotCancelable},
		{413, "too_large", ErrTooLarge},
		{422, "invalid", ErrInvalid},
	} {
		c := against(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", "req-7")
			w.WriteHeader(tt.status)
			fmt.Fprintf(w, `{"error":{"code":%q,"message":"no, because","details":{"field":"message.parts[0]"}}}`, tt.code)
		})
		_, err := c.Whoami(t.Context())
		e, ok := errors.AsType[*Error](err)
		if !ok || !errors.Is(err, tt.want) || e.Code != tt.code || e.RequestID != "req-7" {
			t.Errorf("%d %s: %#v", tt.status, tt.code, err)
		}
		for _, part := range []string{"no, because", "message.parts[0]", "req-7"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
	}
}

func TestAnUnreachableHub(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	c := New("http://"+ln.Addr().String(), "hf_secret", quick)
	_, err = c.Send(t.Context(), "coder", "hi")
	if !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
}

func TestTheTokenIsNeverShown(t *testing.T) {
	const token = "hf_verysecret"
	c := New("http://127.0.0.1:1", token, quick)
	_, err := c.Whoami(t.Context())
	odd := New("http://127.0.0.1:1", token+"\nX: y", quick)
	_, odder := odd.Whoami(t.Context())
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("client", "c", c, "err", err, "odder", odder)
	shown := fmt.Sprintf("%v %+v %#v %v %v %s", c, c, *c, err, odder, &log)
	if strings.Contains(shown, "verysecret") {
		t.Errorf("the token is in %s", shown)
	}
}

func TestABadURLIsToldByTheFirstCall(t *testing.T) {
	for _, url := range []string{"", "127.0.0.1:7420", "ftp://x", "http://", "http://u:pass@host", "http://h/?x=1", "http://a b"} {
		_, err := New(url, "").Whoami(t.Context())
		if err == nil || strings.Contains(err.Error(), "pass@") {
			t.Errorf("%q: %v", url, err)
		}
	}
	if got := New("https://h.example/hub/", "").URL(); got != "https://h.example/hub" {
		t.Error(got)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	var tries atomic.Int32
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		tries.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
	})
	_, err := c.Send(t.Context(), "coder", "hi")
	if e, ok := errors.AsType[*Error](err); !ok || e.Status != 301 || tries.Load() != 1 {
		t.Errorf("%v after %d tries", err, tries.Load())
	}
}

func TestAServerThatIsNoHub(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>hello</html>") })
	_, err := c.Whoami(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Holdfast hub") {
		t.Error(err)
	}
}

func TestFromEnv(t *testing.T) {
	t.Setenv("HOLDFAST_URL", "http://hub.example:1")
	t.Setenv("HOLDFAST_TOKEN", "hf_x")
	c := FromEnv(WithUserAgent("prog/1"))
	h := http.Header{}
	c.authorize(h)
	if c.URL() != "http://hub.example:1" || h.Get("Authorization") != "Bearer hf_x" || c.agent != "prog/1 holdfast-go" {
		t.Errorf("%s %v %s", c.URL(), h, c.agent)
	}
}

func TestMissingReferencesAreNotAnotherRoute(t *testing.T) {
	c := against(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") })
	for _, ref := range []string{"", "@", ".", ".."} {
		_, err1 := c.Send(t.Context(), ref, "hi")
		_, err2 := c.Get(t.Context(), "coder", ref)
		_, err3 := c.Agent(t.Context(), ref)
		for _, err := range []error{err1, err2, err3, c.RevokeToken(t.Context(), ref)} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", ref, err)
			}
		}
	}
}

func TestJitterStaysWithinItsBounds(t *testing.T) {
	r := Retry{Tries: 8, Min: 100 * time.Millisecond, Max: 5 * time.Second}
	for failures := 1; failures < 200; failures++ {
		limit := min(r.Min<<min(failures-1, 20), r.Max) + time.Millisecond
		for range 50 {
			if d := r.jitter(failures); d <= 0 || d > limit {
				t.Fatalf("%v after %d failures", d, failures)
			}
		}
	}
	if d := (Retry{}).jitter(5); d <= 0 || d > 3*time.Millisecond {
		t.Error(d)
	}
}

func TestRetryAfterHeader(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "2": 2 * time.Second, "0.5": 500 * time.Millisecond, "-1": 0, "x": 0, "NaN": 0, "1e300": 0,
		"Thu, 01 Jan 2026 00:00:09 GMT": 9 * time.Second, "Wed, 31 Dec 2025 00:00:00 GMT": 0,
	} {
		if got := retryAfter(in, now); got != want {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestAKeyGivesTheSameMessageEverywhere(t *testing.T) {
	a, err1 := newSend("coder", "hi", []SendOption{WithIdempotencyKey("k")})
	b, err2 := newSend("coder", "hi", []SendOption{WithIdempotencyKey("k")})
	other, err3 := newSend("coder", "hi", nil)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if a.body.Message.MessageID != b.body.Message.MessageID || a.body.Message.MessageID == other.body.Message.MessageID {
		t.Errorf("%s, %s, %s", a.body.Message.MessageID, b.body.Message.MessageID, other.body.Message.MessageID)
	}
}

func TestChildTrace(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for in, want := range map[string]string{
		id: "00-" + id + "-", "00-" + id + "-00f067aa0ba902b7-00": "00-" + id + "-",
		"": "", "xyz": "", strings.Repeat("0", 32): "", strings.ToUpper(id): "",
	} {
		got := childTrace(in)
		if (got == "") != (want == "") || !strings.HasPrefix(got, want) || got != "" && len(got) != 55 {
			t.Errorf("%q: %q", in, got)
		}
	}
}
