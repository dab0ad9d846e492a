package tunnel_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
)

func relays(prefix ...string) func(*tunnelclient.Options) {
	return func(o *tunnelclient.Options) { o.Relay = prefix }
}

// outside makes a request of an outside service.
func (b *bed) outside(method, path, body string, header ...string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := b.srv.Client().Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return resp, string(all)
}

func TestRelay(t *testing.T) {
	b := newBed(t)
	b.open("dev", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Set-Cookie", "session=theirs")
		h.Set("Content-Security-Policy", "script-src *")
		h.Set("X-Theirs", "yes")
		h.Set("X-Cookie", r.Header.Get("Cookie"))
		h.Set("X-Authorization", r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusAccepted)
		echo(w, r)
	}), relays("/hooks/"))
	next(t, b.joined, "the tunnel")
	resp, body := b.outside(http.MethodPost, "/t/dev/hooks/a?b=c", "hello", "Cookie", "hub=secret", "Authorization", "Basic dGhlaXJz")
	if resp.StatusCode != http.StatusAccepted || body != "POST /hooks/a?b=c hello" {
		t.Error(resp.StatusCode, body)
	}
	for name, want := range map[string]string{
		"Set-Cookie": "", "X-Theirs": "yes", "X-Cookie": "", "X-Authorization": "Basic dGhlaXJz",
		"Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	resp, _ = b.outside(http.MethodPost, "/t/dev/hooks/a", "", "Authorization", "Bearer hf_other")
	if got := resp.Header.Get("X-Authorization"); got != "" {
		t.Errorf("a token of the hub went to the agent: %q", got)
	}
}

// What is not open looks like what does not exist.
func TestRelayShowsNothingElse(t *testing.T) {
	b := newBed(t)
	b.open("dev", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s came through", r.URL) }), relays("/hooks/"))
	b.open("shy", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s came through", r.URL) }))
	b.open("cmd", nil, func(o *tunnelclient.Options) { o.Target, o.Handler = nil, http.HandlerFunc(echo) })
	for range 3 {
		next(t, b.joined, "a tunnel")
	}
	_, nobody := b.outside(http.MethodGet, "/t/nobody/hooks/a", "")
	for _, path := range []string{
		"/t/dev/", "/t/dev", "/t/dev/admin", "/t/dev/hooks", "/t/dev/hooks/%2e%2e/admin", "/t/dev/hooks/%2E./admin", "/t/dev/hooks%2fa",
		"/t/dev/hooks/..%2fadmin", `/t/dev/hooks/..%5cadmin`, "/t/dev/hooks/a;b", "/t/dev/hooks/%00", "/t/dev%2fhooks/a", "/t/dev/hooks/%61",
		"/t/shy/hooks/a", "/t/cmd/hooks/a", "/t/cmd/", "/t/x", "/t/", "/t/DEV/hooks/a", "/t/@dev/hooks/a",
	} {
		resp, body := b.outside(http.MethodPost, path, "")
		if resp.StatusCode != http.StatusNotFound || body != nobody {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	resp, _ := b.outside(http.MethodGet, "/t/dev/hooks/sw.js", "", "Service-Worker", "script")
	if resp.StatusCode != http.StatusNotFound {
		t.Error("a service worker came through")
	}
	for _, raw := range []string{"/t/dev/hooks/../admin", "/t/dev/hooks//../../admin", "/t/dev/./hooks/../x", "//t/dev/admin", "/t/../t/dev/admin"} {
		if status := b.raw(raw); status < 300 { // a redirect leads to another path, which is judged anew
			t.Errorf("%s: %d", raw, status)
		}
	}
}

// The address decides what is open, however much its tunnel opens: by whole segments of
// the path that is meant, and at once when it is changed.
func TestRelayPathsOfTheAddress(t *testing.T) {
	b := newBed(t)
	b.opened("dev")
	b.open("dev", http.HandlerFunc(echo), relays("/"))
	next(t, b.joined, "the tunnel")
	status := func(path string) int {
		resp, _ := b.outside(http.MethodGet, path, "")
		return resp.StatusCode
	}
	if got := status("/t/dev/hooks/x"); got != http.StatusNotFound {
		t.Errorf("an address that opens nothing: %d", got)
	}
	b.opened("dev", "/hooks", "/ci/")
	for path, want := range map[string]int{
		"/hooks": 200, "/hooks/": 200, "/hooks/x": 200, "/hooks/x/y?z=/../a": 200, "/ci/x": 200,
		"/hooksx": 404, "/hook": 404, "/": 404, "/ci": 404, "/cix": 404, "/HOOKS/x": 404,
		"/hooks/%2e%2e/x": 404, "/hooks/%2E%2e/x": 404, "/hooks/.%2e/x": 404, "/hooks%2fx": 404, "/hooks/%2f": 404, "/hooks/%5cx": 404, `/hooks\x`: 404,
		"/hooks/%252e%252e/x": 404, "/hooks;a=b/x": 404, "/%68ooks/x": 404, "/hooks/%00": 404, "//hooks/x": 404, "/hooks//x": 404,
	} {
		if got := b.raw("/t/dev" + path); got != want && (want == 200 || got < 300) { // what is redirected is judged anew
			t.Errorf("%s: %d, want %d", path, got, want)
		}
	}
	b.opened("dev")
	if got := status("/t/dev/hooks/x"); got != http.StatusNotFound {
		t.Errorf("a path that was closed again: %d", got)
	}
}

// An allowed path of an agent that is away is there, but not just now. Nothing else of it is.
func TestRelayToAnAgentThatIsAway(t *testing.T) {
	b := newBed(t)
	b.opened("dev", "/hooks/")
	resp, body := b.outside(http.MethodPost, "/t/dev/hooks/a", "x")
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, "not connected") {
		t.Error(resp.StatusCode, resp.Header, body)
	}
	if resp, _ := b.outside(http.MethodPost, "/t/dev/admin", "x"); resp.StatusCode != http.StatusNotFound {
		t.Error(resp.StatusCode)
	}
}

// A handle that was given to another address leads to nobody who had it before.
func TestRelayGoesToTheAddressThatHasTheHandle(t *testing.T) {
	b := newBed(t, func(o *tunnel.Options) {
		o.Address = func(context.Context, string) (*hub.Address, error) {
			return &hub.Address{ID: "id-another", Handle: "dev", RelayPaths: []string{"/"}}, nil
		}
	})
	b.open("dev", http.HandlerFunc(echo), relays("/"))
	next(t, b.joined, "the tunnel")
	if resp, _ := b.outside(http.MethodGet, "/t/dev/x", ""); resp.StatusCode != http.StatusServiceUnavailable {
		t.Error(resp.StatusCode)
	}
}

// raw sends a request line that no client would.
func (b *bed) raw(target string) int {
	b.t.Helper()
	c, err := net.Dial("tcp", b.srv.Listener.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n\r\n", target)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func TestRelayStreamsBothWays(t *testing.T) {
	b := newBed(t)
	b.open("dev", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 100)
		_ = http.NewResponseController(w).EnableFullDuplex()
		for {
			n, err := r.Body.Read(buf)
			_, _ = w.Write(buf[:n])
			_ = http.NewResponseController(w).Flush()
			if err != nil {
				return
			}
		}
	}), relays("/"))
	next(t, b.joined, "the tunnel")
	in, out := io.Pipe()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.url+"/t/dev/x", in)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(out, "one") }()
	resp, err := b.srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	buf := make([]byte, 3)
	for _, want := range []string{"one", "two"} {
		if want != "one" {
			_, _ = io.WriteString(out, want)
		}
		if _, err := io.ReadFull(resp.Body, buf); err != nil || string(buf) != want {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	out.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestRelayLimits(t *testing.T) {
	b := newBed(t, func(o *tunnel.Options) { o.MaxBody = 10 })
	begun, free := make(chan struct{}, 100), make(chan struct{})
	b.open("dev", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			begun <- struct{}{}
			<-free
		}
	}), relays("/"))
	next(t, b.joined, "the tunnel")
	if resp, body := b.outside(http.MethodPost, "/t/dev/x", strings.Repeat("x", 11)); resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(resp.StatusCode, body)
	}
	done := make(chan int)
	for range 32 {
		go func() {
			resp, err := b.srv.Client().Get(b.url + "/t/dev/hold")
			if err != nil {
				done <- 0
				return
			}
			resp.Body.Close()
			done <- resp.StatusCode
		}()
		next(t, begun, "a request")
	}
	if resp, _ := b.outside(http.MethodGet, "/t/dev/x", ""); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Error(resp.StatusCode)
	}
	close(free)
	for range 32 {
		if status := next(t, done, "an answer"); status != http.StatusOK {
			t.Error(status)
		}
	}
	if resp, _ := b.outside(http.MethodGet, "/t/dev/x", ""); resp.StatusCode != http.StatusOK {
		t.Error(resp.StatusCode)
	}
}

// A body that stops, or comes by drops, keeps its place for a short time only.
func TestRelayOfABodyThatStalls(t *testing.T) {
	b := newBed(t, func(o *tunnel.Options) { o.BodyPause = 100 * time.Millisecond })
	b.open("dev", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if all, err := io.ReadAll(r.Body); err == nil && string(all) != "all at once" {
			t.Errorf("the agent takes %q for whole", all)
		}
	}), relays("/"))
	next(t, b.joined, "the tunnel")
	for name, head := range map[string]string{"of a length": "Content-Length: 100\r\n\r\nsome", "of no length": "Transfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n"} {
		c, err := net.Dial("tcp", b.srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /t/dev/x HTTP/1.1\r\nHost: hub\r\n%s", head)
		if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(name, err)
		}
		said, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), "too slowly") {
			t.Errorf("%s: %d %s", name, resp.StatusCode, said)
		}
	}
	if resp, _ := b.outside(http.MethodPost, "/t/dev/x", "all at once"); resp.StatusCode != http.StatusOK {
		t.Error(resp.StatusCode)
	}
}

func TestRelayToAServerThatIsDown(t *testing.T) {
	b := newBed(t)
	b.open("dev", nil, relays("/"))
	next(t, b.joined, "the tunnel")
	if resp, body := b.outside(http.MethodGet, "/t/dev/x", ""); resp.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, "127.0.0.1") {
		t.Error(resp.StatusCode, body)
	}
}

// FuzzRelay: whatever path is asked for, the local server sees nothing but what is open.
func FuzzRelay(f *testing.F) {
	for _, p := range []string{"/t/dev/hooks/a", "/t/dev/hooks/../x", "/t/dev/hooks/%2e%2e/x", "/t/dev//hooks/a", "/t/dev/hooks/%2f..%2fx", "http://x/t/dev/x", "/t/dev/hooks/a?x=/../y"} {
		f.Add(p)
	}
	b := newBed(f)
	seen := make(chan string, 100)
	b.open("dev", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r.RequestURI }), relays("/hooks/"))
	next(f, b.joined, "the tunnel")
	relay := httpx.Serve(b.host.Relay(), httpx.Options{Log: discard})
	f.Fuzz(func(t *testing.T, target string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, target, nil)
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		relay.ServeHTTP(w, r)
		select {
		case uri := <-seen:
			path, _, _ := strings.Cut(uri, "?")
			if !strings.HasPrefix(path, "/hooks/") || strings.Contains(path, "..") || strings.ContainsAny(path, `%\;`) {
				t.Errorf("%q came through as %q", target, uri)
			}
		default:
			if w.Code < 400 {
				t.Errorf("%q: %d", target, w.Code)
			}
		}
	})
}
