package tunnel_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how soon these tests expect something, however busy the machine is.
const patience = 20 * time.Second

// bed is the hub's side of tunnels, on a real socket.
type bed struct {
	t    testing.TB
	host *tunnel.Host
	srv  *httptest.Server
	url  string

	// joined and left are the connections that the dispatcher was given and lost.
	joined, left chan delivery.Connection
	// finishing are those that take no more, and wait for finished.
	finishing chan delivery.Connection
	finished  chan struct{}

	mu      sync.Mutex
	relays  map[string][]string // by handle, of the tunnels that are open here
	opens   map[string][]string // the relay paths of the addresses that there are
	revoked map[string]context.CancelCauseFunc
}

// through is a Deliverer that has nothing but its way to the agent.
type through struct{ http.RoundTripper }

// Deliver implements delivery.Deliverer.
func (through) Deliver(context.Context, delivery.Delivery) delivery.Outcome {
	return delivery.Outcome{Kind: delivery.Unsent}
}

type whoKey struct{}

func newBed(t testing.TB, change ...func(*tunnel.Options)) *bed {
	t.Helper()
	b := &bed{
		t: t, joined: make(chan delivery.Connection, 2000), left: make(chan delivery.Connection, 2000),
		finishing: make(chan delivery.Connection, 100), finished: make(chan struct{}),
		relays: make(map[string][]string), revoked: make(map[string]context.CancelCauseFunc), opens: map[string][]string{"dev": {"/"}, "shy": {"/"}, "cmd": {"/"}},
	}
	opt := tunnel.Options{
		Connect: func(c delivery.Connection) (func(), func(context.Context), error) {
			b.note(c.Address, c.Relay)
			b.joined <- c
			return func() {
					b.note(c.Address, nil)
					b.left <- c
				}, func(ctx context.Context) {
					b.finishing <- c
					select {
					case <-b.finished:
					case <-ctx.Done():
					}
				}, nil
		},
		Deliverer: func(rt http.RoundTripper) delivery.Deliverer { return through{rt} },
		Who: func(ctx context.Context) (hub.Principal, error) {
			p, ok := ctx.Value(whoKey{}).(hub.Principal)
			if !ok {
				return p, hub.Errorf(hub.Unauthenticated, "no such token")
			}
			return p, nil
		},
		Address: b.address,
	}
	for _, f := range change {
		f(&opt)
	}
	b.host = tunnel.New(opt)
	mux := http.NewServeMux()
	mux.Handle("GET /v1/agents/me/tunnel", b.host)
	mux.Handle(tunnel.RelayPath, b.host.Relay())
	b.srv = httptest.NewServer(b.identify(httpx.Serve(mux, httpx.Options{Log: discard})))
	b.url = b.srv.URL
	t.Cleanup(func() {
		b.host.Close()
		b.srv.Close()
	})
	return b
}

// address is tunnel.Options.Address.
func (b *bed) address(_ context.Context, handle string) (*hub.Address, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	paths, ok := b.opens[handle]
	if !ok {
		return nil, hub.ErrNotPermitted()
	}
	return &hub.Address{ID: "id-" + handle, Handle: handle, RelayPaths: paths}, nil
}

// note keeps what the tunnel of an address opens.
func (b *bed) note(address string, relay []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.relays[address] = relay
}

// opened sets the relay paths of an address.
func (b *bed) opened(handle string, paths ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.opens[handle] = paths
}

// identify lets in "Bearer hf_{handle}" as that address, until it is revoked.
func (b *bed) identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handle, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer hf_")
		if ok && handle != "" {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			b.mu.Lock()
			b.revoked[handle] = cancel
			b.mu.Unlock()
			role := hub.RoleAgent
			if handle == "admin" {
				role = hub.RoleAdmin
			}
			r = r.WithContext(context.WithValue(ctx, whoKey{}, hub.Principal{Address: "id-" + handle, Handle: handle, Role: role, Token: "token"}))
		}
		next.ServeHTTP(w, r)
	})
}

func (b *bed) revoke(handle string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.revoked[handle](hub.Errorf(hub.Unauthenticated, "revoked"))
}

// running is a tunnel's client that runs.
type running struct {
	stop  context.CancelFunc
	ended chan error
	lines chan string
}

// open runs a client of a tunnel to agent; nil is a server that nobody is.
func (b *bed) open(handle string, agent http.Handler, change ...func(*tunnelclient.Options)) *running {
	b.t.Helper()
	target := closedURL(b.t)
	if agent != nil {
		srv := httptest.NewServer(agent)
		b.t.Cleanup(srv.Close)
		target = srv.URL
	}
	u, err := url.Parse(target)
	if err != nil {
		b.t.Fatal(err)
	}
	r := &running{ended: make(chan error, 1), lines: make(chan string, 1000)}
	dial := &http.Transport{}
	b.t.Cleanup(dial.CloseIdleConnections)
	opt := tunnelclient.Options{
		URL: b.url, Token: "hf_" + handle, Instance: "one", Slots: 4, Target: u,
		Note: func(line string) { r.lines <- line }, PauseMin: time.Millisecond, PauseMax: 20 * time.Millisecond,
		HTTPClient: &http.Client{Transport: dial},
	}
	for _, f := range change {
		f(&opt)
	}
	if opt.Handler == nil {
		opt.Handler = tunnelclient.Proxy(u, opt.Relay)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- tunnelclient.Run(ctx, opt)
	}()
	b.t.Cleanup(func() { cancel(); <-done })
	return r
}

// closedURL is that of a port that nobody listens on.
func closedURL(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

// next takes what has to come soon.
func next[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s does not come", what)
		panic("unreachable")
	}
}

// call makes a request through a connection.
func call(t testing.TB, c delivery.Connection, method, path, body string) (*http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.Endpoint.URL, "/")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return c.Deliverer.(through).RoundTrip(r)
}

// says is the body of an answer to call.
func says(t testing.TB, c delivery.Connection, path string) string {
	t.Helper()
	resp, err := call(t, c, http.MethodPost, path, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(all)
}

// echo answers with what it was asked.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI()+" "+string(body))
}
