package tunnel_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
)

var discard = slog.New(slog.DiscardHandler)

func TestRequestsGoThrough(t *testing.T) {
	b := newBed(t)
	r := b.open("dev", http.HandlerFunc(echo))
	c := next(t, b.joined, "the tunnel")
	if c.Address != "id-dev" || c.Instance != "one" || c.Slots != 4 || c.Endpoint.Kind != hub.TunnelDelivery {
		t.Errorf("%+v", c)
	}
	if got := says(t, c, "/rpc?a=b"); got != "POST /rpc?a=b x" {
		t.Error(got)
	}
	if line := next(t, r.lines, "a line"); !strings.Contains(line, "Connected") || !strings.Contains(line, "4 slots") {
		t.Error(line)
	}
	r.stop()
	if err := next(t, r.ended, "the end"); err != nil {
		t.Error(err)
	}
	next(t, b.left, "the end at the hub")
	if _, err := call(t, c, http.MethodGet, "/", ""); !unsent(err) {
		t.Errorf("through a closed tunnel: %v", err)
	}
}

// unsent reports whether an error says that nothing has reached the agent.
func unsent(err error) bool {
	e, ok := errors.AsType[*egress.Error](err)
	return ok && !e.Sent
}

func TestAnswersStream(t *testing.T) {
	b := newBed(t)
	more, gone := make(chan struct{}), make(chan struct{})
	b.open("dev", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-more
		_, _ = io.WriteString(w, "second")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}))
	resp, err := call(t, next(t, b.joined, "the tunnel"), http.MethodGet, "/", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"first", "second"} {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
		if want == "first" {
			close(more)
		}
	}
	resp.Body.Close()
	next(t, gone, "that the agent learns that nobody listens")
}

func TestLocalServerThatIsDownGotNothing(t *testing.T) {
	b := newBed(t)
	b.open("dev", nil)
	_, err := call(t, next(t, b.joined, "the tunnel"), http.MethodPost, "/", "x")
	if !unsent(err) || !strings.Contains(err.Error(), "local server") {
		t.Errorf("%v", err)
	}
}

// An agent cannot make the hub believe that nothing has reached it.
func TestAgentsCannotSayThatNothingCame(t *testing.T) {
	b := newBed(t)
	b.open("dev", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Holdfast-Tunnel-Unsent", "true")
		w.WriteHeader(http.StatusBadGateway)
	}))
	resp, err := call(t, next(t, b.joined, "the tunnel"), http.MethodGet, "/", "")
	if err != nil || resp.StatusCode != http.StatusBadGateway {
		t.Fatalf("%v, %v", resp, err)
	}
	resp.Body.Close()
}

func TestAnswersAreBounded(t *testing.T) {
	b := newBed(t, func(o *tunnel.Options) { o.MaxAnswer = 1000 })
	b.open("dev", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 1000
		if r.URL.Path == "/more" {
			n++
		}
		_, _ = w.Write(make([]byte, n))
	}))
	c := next(t, b.joined, "the tunnel")
	for path, fits := range map[string]bool{"/": true, "/more": false} {
		resp, err := call(t, c, http.MethodGet, path, "")
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		e, _ := errors.AsType[*egress.Error](err)
		if len(all) != 1000 || fits != (err == nil) || !fits && (e == nil || e.Reason != egress.TooLarge) {
			t.Errorf("%s: %d bytes, %v", path, len(all), err)
		}
	}
}

func TestSecondTunnelOfAnInstanceTakesItsPlace(t *testing.T) {
	b := newBed(t)
	first := b.open("dev", http.HandlerFunc(echo))
	next(t, b.joined, "the first")
	b.open("dev", http.HandlerFunc(echo))
	second := next(t, b.joined, "the second")
	if err := next(t, first.ended, "the end of the first"); !errors.Is(err, tunnelclient.ErrReplaced) {
		t.Errorf("%v", err)
	}
	next(t, b.left, "that the first has left")
	if got := says(t, second, "/"); got != "POST / x" || b.host.Open() != 1 {
		t.Error(got, b.host.Open())
	}
	other := b.open("dev", http.HandlerFunc(echo), func(o *tunnelclient.Options) { o.Instance = "two" })
	next(t, b.joined, "another instance")
	if b.host.Open() != 2 {
		t.Error(b.host.Open())
	}
	other.stop()
}

func TestRevokedTokenEndsTheTunnel(t *testing.T) {
	b := newBed(t)
	r := b.open("dev", http.HandlerFunc(echo))
	next(t, b.joined, "the tunnel")
	b.revoke("dev")
	next(t, b.left, "the end at the hub")
	if err := next(t, r.ended, "the end"); !errors.Is(err, tunnelclient.ErrRefused) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("%v", err)
	}
}

func TestWhoIsRefused(t *testing.T) {
	b := newBed(t, func(o *tunnel.Options) { o.PerAddress = 1 })
	for token, want := range map[string]error{"": tunnelclient.ErrRefused, "admin": tunnelclient.ErrRefused} {
		r := b.open(token, http.HandlerFunc(echo))
		if err := next(t, r.ended, "the end of "+token); !errors.Is(err, want) {
			t.Errorf("%q: %v", token, err)
		}
	}
	for name, change := range map[string]func(*tunnelclient.Options){
		"slots":    func(o *tunnelclient.Options) { o.Slots = 100_000 },
		"instance": func(o *tunnelclient.Options) { o.Instance = "a b" },
		"relay":    func(o *tunnelclient.Options) { o.Relay = []string{"/a/../b"} },
	} {
		r := b.open("dev", http.HandlerFunc(echo), change)
		if err := next(t, r.ended, "the end of "+name); !errors.Is(err, tunnelclient.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b.open("dev", http.HandlerFunc(echo))
	next(t, b.joined, "the one that may")
	r := b.open("dev", http.HandlerFunc(echo), func(o *tunnelclient.Options) { o.Instance, o.Once = "two", true })
	if err := next(t, r.ended, "one too many"); !errors.Is(err, tunnelclient.ErrLost) || !strings.Contains(err.Error(), "tunnels open") {
		t.Errorf("one too many: %v", err)
	}
}

// What is no WebSocket of ours is told so, after it has shown who it is.
func TestWhatIsNoTunnel(t *testing.T) {
	b := newBed(t)
	get := func(path string, header ...string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := b.srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(all)
	}
	const query = "/v1/agents/me/tunnel?instance=a&slots=1&to=http://localhost:1"
	if status, body := get(query); status != http.StatusUnauthorized {
		t.Error(status, body)
	}
	if status, body := get(query, "Authorization", "Bearer hf_dev"); status != http.StatusBadRequest || !strings.Contains(body, "WebSocket") {
		t.Error(status, body)
	}
	if status, body := get(query, "Authorization", "Bearer hf_dev", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="); status != http.StatusBadRequest || !strings.Contains(body, "subprotocol") {
		t.Error(status, body)
	}
}

// A hub that stops sends idle tunnels away at once, and the others when it closes; they
// come back.
func TestHubThatStops(t *testing.T) {
	b := newBed(t)
	begun, free := make(chan struct{}), make(chan struct{})
	busy := b.open("busy", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { close(begun); <-free; _, _ = io.WriteString(w, "done") }))
	c := next(t, b.joined, "the busy one")
	b.open("idle", http.HandlerFunc(echo))
	next(t, b.joined, "the idle one")
	answer := make(chan string)
	go func() { answer <- says(t, c, "/") }()
	next(t, begun, "the request")
	b.host.Drain()
	if gone := next(t, b.left, "the idle one's end"); gone.Address != "id-idle" {
		t.Errorf("%s left", gone.Address)
	}
	close(free)
	if got := next(t, answer, "the answer"); got != "done" {
		t.Error(got)
	}
	b.host.Close()
	next(t, b.left, "the busy one's end")
	for line := ""; !strings.Contains(line, "about to stop"); {
		line = next(t, busy.lines, "word of it")
	}
}

func TestReconnects(t *testing.T) {
	b := newBed(t)
	p := newStall(t, b.srv.Listener.Addr().String(), 0)
	b.open("dev", http.HandlerFunc(echo), func(o *tunnelclient.Options) { o.URL = p.url })
	for range 5 {
		c := next(t, b.joined, "the tunnel")
		if got := says(t, c, "/"); got != "POST / x" {
			t.Error(got)
		}
		p.cut()
		next(t, b.left, "the end of it")
	}
}

// Both ends find out by themselves that nothing arrives any more.
func TestHalfOpenTunnelIsNoticed(t *testing.T) {
	quick := 300 * time.Millisecond
	b := newBed(t, func(o *tunnel.Options) { o.Ping, o.Patience = quick, quick })
	p := newStall(t, b.srv.Listener.Addr().String(), 0)
	r := b.open("dev", http.HandlerFunc(echo), func(o *tunnelclient.Options) { o.URL, o.Ping, o.Patience = p.url, quick, quick })
	c := next(t, b.joined, "the tunnel")
	if got := says(t, c, "/"); got != "POST / x" {
		t.Error(got)
	}
	p.stall()
	next(t, b.left, "the hub's notice")
	for line := ""; !strings.Contains(line, "lost"); {
		line = next(t, r.lines, "the client's notice")
	}
	p.flow()
	next(t, b.joined, "the tunnel again")
}

// A proxy that cuts connections on which nothing happens never finds one.
func TestKeptAliveThroughAProxyThatCutsIdleConnections(t *testing.T) {
	quick := 100 * time.Millisecond
	b := newBed(t, func(o *tunnel.Options) { o.Ping = quick })
	p := newStall(t, b.srv.Listener.Addr().String(), 20*quick)
	b.open("dev", http.HandlerFunc(echo), func(o *tunnelclient.Options) { o.URL = p.url })
	c := next(t, b.joined, "the tunnel")
	select {
	case <-b.left:
		t.Error("the proxy has cut it")
	case <-time.After(3 * p.idle):
	}
	if got := says(t, c, "/"); got != "POST / x" {
		t.Error(got)
	}
}

func TestUnreachableHub(t *testing.T) {
	b := newBed(t)
	r := b.open("dev", http.HandlerFunc(echo), func(o *tunnelclient.Options) { o.URL, o.Once = closedURL(t), true })
	if err := next(t, r.ended, "the end"); !errors.Is(err, tunnelclient.ErrLost) {
		t.Errorf("%v", err)
	}
	patient := b.open("dev", http.HandlerFunc(echo), func(o *tunnelclient.Options) { o.URL = closedURL(t) })
	for range 3 {
		if line := next(t, patient.lines, "word of it"); !strings.Contains(line, "cannot be reached") || !strings.Contains(line, "again in") {
			t.Error(line)
		}
	}
}

// A request that is given up does not disturb the others.
func TestRequestThatIsGivenUp(t *testing.T) {
	b := newBed(t)
	begun := make(chan struct{})
	b.open("dev", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			close(begun)
			<-r.Context().Done()
			return
		}
		echo(w, r)
	}))
	c := next(t, b.joined, "the tunnel")
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.Endpoint.URL+"/hang", nil)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		resp, err := c.Deliverer.(through).RoundTrip(r)
		if err == nil {
			resp.Body.Close()
		}
		failed <- err
	}()
	next(t, begun, "the request")
	cancel()
	e, ok := errors.AsType[*egress.Error](next(t, failed, "its end"))
	if !ok || e.Reason != egress.Canceled || !e.Sent {
		t.Errorf("%v", e)
	}
	if got := says(t, c, "/"); got != "POST / x" {
		t.Error(got)
	}
}
