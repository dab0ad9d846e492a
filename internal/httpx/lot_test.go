package httpx_test

import (
	"bufio"
	"context"
	"crypto/tls"
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
)

// waiter is a wait whose end the test decides.
type waiter struct {
	until time.Time
	left  chan struct{}

	mu    sync.Mutex
	ready func()
	done  bool
}

func (w *waiter) Until() time.Time { return w.until }
func (w *waiter) Leave()           { close(w.left) } // a second time would panic

func (w *waiter) Notify(ready func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ready = ready
	if w.done {
		ready()
	}
}

// end ends the wait, whether anybody has been told of it yet or not.
func (w *waiter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = true
	if w.ready != nil {
		w.ready()
	}
}

// carPark is a site whose requests park, behind all of the package's middleware.
type carPark struct {
	t    *testing.T
	lot  *httpx.Lot
	srv  *httptest.Server
	log  *logBuffer
	seen chan httpx.Summary
	// parked has the waiter of each request that parked, back that of each that goes
	// on, and refused those that could not park.
	parked, back, refused chan *waiter
	// wait is how long a request may be parked; forbid refuses what comes, and follow is
	// what the Lot got to follow.
	wait   time.Duration
	mu     sync.Mutex
	forbid bool
	end    func()
	stops  int
}

func openLot(t *testing.T) *carPark {
	t.Helper()
	p := &carPark{
		t: t, wait: time.Minute, seen: make(chan httpx.Summary, 16),
		parked: make(chan *waiter, 16), back: make(chan *waiter, 16), refused: make(chan *waiter, 16),
	}
	log, buf := newLog(slog.LevelDebug)
	p.log = buf
	p.lot = httpx.NewLot(p.follow)
	site := p.lot.Handler(httpx.WithRequestID(p.door(httpx.Serve(http.HandlerFunc(p.serve), httpx.Options{
		Log: log, Observe: func(_ *http.Request, s httpx.Summary) { p.seen <- s },
	}))))
	p.srv = httptest.NewServer(site)
	t.Cleanup(p.srv.Close)
	resumed := &http.Server{Handler: site, ConnContext: p.lot.ConnContext}
	done := make(chan error, 1)
	go func() { done <- resumed.Serve(p.lot) }()
	t.Cleanup(func() {
		_ = resumed.Close()
		<-done
	})
	return p
}

func (p *carPark) follow(_ context.Context, end func()) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end = end
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stops++
	}
}

// door refuses everybody once it is closed.
func (p *carPark) door(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		forbid := p.forbid
		p.mu.Unlock()
		if forbid {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (p *carPark) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/plain" {
		io.WriteString(w, "plain")
		return
	}
	if wt, ok := httpx.Resumed(r.Context()).(*waiter); ok {
		p.back <- wt
		if r.Context().Err() != nil {
			w.WriteHeader(499)
			return
		}
		fmt.Fprintf(w, "%s %s", r.URL, r.Header.Get("X-Mine"))
		return
	}
	wt := &waiter{until: time.Now().Add(p.wait), left: make(chan struct{})}
	if p.lot.Park(w, r, wt) {
		p.parked <- wt
		return
	}
	p.refused <- wt
	io.WriteString(w, "not parked")
}

// client is a raw connection to the site.
type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func (p *carPark) dial() client {
	c := dial(p.t, p.srv)
	return client{p.t, c, bufio.NewReader(c)}
}

func (c client) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c client) get(path string, headers ...string) {
	c.t.Helper()
	c.send("GET " + path + " HTTP/1.1\r\nHost: site\r\n" + strings.Join(append(headers, "\r\n"), "\r\n"))
}

// want reads an answer.
func (c client) want(status int, body string) *http.Response {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status || string(got) != body {
		c.t.Errorf("got %d %q, %v; want %d %q", res.StatusCode, got, err, status, body)
	}
	return res
}

// soon waits for what has to come.
func soon[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

func TestAParkedRequestIsAnsweredOnItsConnectionWhichGoesOn(t *testing.T) {
	p := openLot(t)
	c := p.dial()
	for i := range 3 { // the second and third time from the Lot's own server
		path := fmt.Sprintf("/wait?n=%d", i)
		c.get(path, "X-Mine: yes", "X-Request-Id: my-own")
		wt := soon(t, "the parking", p.parked)
		if n := p.lot.Parked(); n != 1 {
			t.Errorf("%d requests are parked, want 1", n)
		}
		wt.end()
		if soon(t, "the request", p.back) != wt {
			t.Error("it goes on with another waiter")
		}
		if id := c.want(200, path+" yes").Header["X-Request-Id"]; len(id) != 1 || id[0] != "my-own" {
			t.Errorf("the request's id became %q", id)
		}
		c.get("/plain")
		c.want(200, "plain")
		wt.end() // too late to disturb anything
	}
	c.get("/plain")
	c.want(200, "plain")
	if n := p.lot.Parked(); n != 0 {
		t.Errorf("%d requests are parked, want none", n)
	}
	if p.stops != 3 {
		t.Errorf("following was stopped %d times, want 3", p.stops)
	}
}

func TestAParkedRequestIsLoggedAndCountedOnceWithAllItsTime(t *testing.T) {
	p := openLot(t)
	p.wait = 300 * time.Millisecond
	c := p.dial()
	c.get("/wait", "X-Request-Id: my-own")
	c.want(200, "/wait ") // when its time is over
	s := soon(t, "the count", p.seen)
	if s.Status != 200 || s.Took < p.wait || s.Bytes != int64(len("/wait ")) {
		t.Errorf("counted as %+v", s)
	}
	p.srv.Close() // so that the first handler has returned, and has had its chance
	if len(p.seen) != 0 || strings.Count(p.log.String(), "msg=request") != 1 || !strings.Contains(p.log.String(), "request_id=my-own") {
		t.Errorf("it was counted again, or the log is wrong:\n%s", p.log)
	}
}

func TestAParkedClientThatLeavesIsNoticed(t *testing.T) {
	p := openLot(t)
	c := p.dial()
	c.get("/wait")
	wt := soon(t, "the parking", p.parked)
	_ = c.Close()
	if soon(t, "the request", p.back) != wt {
		t.Error("it goes on with another waiter")
	}
	if s := soon(t, "the count", p.seen); s.Status != 499 {
		t.Errorf("counted as %+v", s)
	}
}

func TestRequestsSentAheadAreAnsweredInOrder(t *testing.T) {
	p := openLot(t)
	c := p.dial()
	c.send("GET /wait HTTP/1.1\r\nHost: site\r\n\r\nGET /plain HTTP/1.1\r\nHost: site\r\n\r\n")
	soon(t, "the parking", p.parked)
	soon(t, "the request", p.back)
	c.want(200, "/wait ")
	c.want(200, "plain")
	c.get("/wait")
	soon(t, "the parking", p.parked)
	c.get("/plain")
	soon(t, "the request", p.back)
	c.want(200, "/wait ")
	c.want(200, "plain")
}

func TestWhatIsFollowedEndsTheParking(t *testing.T) {
	p := openLot(t)
	c := p.dial()
	c.get("/wait")
	wt := soon(t, "the parking", p.parked)
	p.mu.Lock()
	p.forbid = true
	p.mu.Unlock()
	p.end()
	c.want(401, "")
	soon(t, "the end of the wait", wt.left)
}

func TestWhatCannotParkWaitsByItself(t *testing.T) {
	p := openLot(t)
	for name, request := range map[string]string{
		"HTTP/1.0":       "GET /wait HTTP/1.0\r\n\r\n",
		"another method": "POST /wait HTTP/1.1\r\nHost: site\r\nContent-Length: 0\r\n\r\n",
		"a body":         "GET /wait HTTP/1.1\r\nHost: site\r\nContent-Length: 2\r\n\r\n{}",
		"chunks":         "GET /wait HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"an upgrade":     "GET /wait HTTP/1.1\r\nHost: site\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
		"a long header":  "GET /wait HTTP/1.1\r\nHost: site\r\nX-Long: " + strings.Repeat("x", 4000) + "\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := p.dial()
			c.send(request)
			c.want(200, "not parked")
			<-p.refused
		})
	}
	t.Run("TLS and HTTP/2", func(t *testing.T) {
		for _, next := range []string{"http/1.1", "h2"} {
			srv := httptest.NewUnstartedServer(p.srv.Config.Handler)
			srv.EnableHTTP2 = next == "h2"
			srv.StartTLS()
			defer srv.Close()
			res, err := srv.Client().Get(srv.URL + "/wait")
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			<-p.refused
			if res.StatusCode != 200 || res.TLS.NegotiatedProtocol != next && next == "h2" {
				t.Errorf("%s: %d over %s (%s)", next, res.StatusCode, res.Proto, tls.VersionName(res.TLS.Version))
			}
		}
	})
}

func TestDrainingWaitsForAllThatIsParked(t *testing.T) {
	p := openLot(t)
	c := p.dial()
	c.get("/wait")
	wt := soon(t, "the parking", p.parked)
	short, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.lot.Drain(short); err == nil {
		t.Error("drained with a request parked")
	}
	other := p.dial()
	other.get("/wait")
	other.want(200, "not parked")
	drained := make(chan error, 1)
	go func() { drained <- p.lot.Drain(t.Context()) }()
	wt.end()
	if err := soon(t, "the draining", drained); err != nil {
		t.Error(err)
	}
	c.want(200, "/wait ")
}

func TestAClosedLotLetsNobodyWaitInVain(t *testing.T) {
	p := openLot(t)
	c := p.dial()
	c.get("/wait")
	wt := soon(t, "the parking", p.parked)
	_ = p.lot.Close()
	wt.end()
	soon(t, "the end of the wait", wt.left)
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("the connection said %q and %v", b, err)
	}
	if err := p.lot.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whatever a request is, the one that goes on is the same.
func FuzzAParkedRequestStaysTheSame(f *testing.F) {
	f.Add("GET /wait?a=b%20c&d HTTP/1.1\r\nHost: site:80\r\nX: 1\r\nX: 2\r\nCookie: a=b\r\n\r\n")
	f.Add("GET http://other/wait HTTP/1.1\r\nHost: site\r\nX-Folded: a\r\n b\r\n\r\n")
	f.Add("GET //wait#x HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	f.Add("GET * HTTP/1.1\r\nHost:\r\nX-Empty:\r\nx-high: \xff\x80\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(text)))
		if err != nil || !httpx.Parkable(r) {
			return
		}
		again, err := http.ReadRequest(bufio.NewReader(strings.NewReader(string(httpx.RequestText(r)))))
		if err != nil {
			t.Fatalf("it became unreadable: %v", err)
		}
		again.Header.Del("X-Request-Id")
		r.Header.Del("X-Request-Id")
		if r.Method != again.Method || r.RequestURI != again.RequestURI || r.Host != again.Host || fmt.Sprint(r.Header) != fmt.Sprint(again.Header) {
			t.Errorf("%v became %v", r, again)
		}
	})
}
