package egress

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// server is a target on loopback that counts its connections.
type server struct {
	*httptest.Server
	port  uint16
	conns atomic.Int64
}

func newServer(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := startable(h)
	s.Start()
	return s.ready(t)
}

// newTLSServer speaks HTTP/2 as well, with a certificate for example.com.
func newTLSServer(t *testing.T, h http.HandlerFunc) *server {
	t.Helper()
	s := startable(h)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.StartTLS()
	return s.ready(t)
}

func startable(h http.HandlerFunc) *server {
	s := &server{Server: httptest.NewUnstartedServer(h)}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.conns.Add(1)
		}
	}
	return s
}

func (s *server) ready(t *testing.T) *server {
	s.port = netip.MustParseAddrPort(s.Listener.Addr().String()).Port()
	t.Cleanup(s.Close)
	return s
}

// at is the URL of the server under another host.
func (s *server) at(host string) string {
	scheme, _, _ := strings.Cut(s.URL, ":")
	return fmt.Sprintf("%s://%s:%d/hook?key=hunter2", scheme, host, s.port)
}

// guardFor lets out to some ports of loopback.
func guardFor(t *testing.T, o Options, ports ...uint16) *Guard {
	t.Helper()
	for _, p := range ports {
		o.AllowLocal = append(o.AllowLocal, PortRange{p, p})
	}
	g := New(o)
	t.Cleanup(g.Close)
	return g
}

func get(t *testing.T, g *Guard, url string) (*http.Response, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return g.Client(Permit{}).Do(req)
}

// mustGet reads an answer to its end.
func mustGet(t *testing.T, g *Guard, url string) (*http.Response, string) {
	t.Helper()
	resp, err := get(t, g, url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func hello(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }

func TestAllowLocalOpensExactlyTheNamedPorts(t *testing.T) {
	named, other := newServer(t, hello), newServer(t, hello)
	g := guardFor(t, Options{Resolver: names{"local.test": {"127.0.0.1"}}}, named.port)
	for _, host := range []string{"127.0.0.1", "localhost", "LOCALHOST", "hub.localhost", "local.test", "[::ffff:127.0.0.1]"} {
		if err := g.Check(t.Context(), named.at(host), Permit{}); err != nil {
			t.Error(err)
		}
		if _, body := mustGet(t, g, named.at(host)); body != "hello" {
			t.Errorf("%s: got %q", host, body)
		}
		refusesAtSave(t, g, other.at(host), Permit{Private: true})
		_, err := get(t, g, other.at(host))
		mustFail(t, err, Refused)
	}
	if n := other.conns.Load(); n != 0 {
		t.Errorf("the port that was not named got %d connections", n)
	}
	for _, a := range []string{"10.0.0.1", "169.254.169.254", "[64:ff9b::7f00:1]", "0.0.0.0", "[::]"} {
		refusesAtSave(t, g, named.at(a), Permit{})
	}
}

func TestAllowLocalOpensPortsOfOtherProtocolsOnLoopbackOnly(t *testing.T) {
	g := guardFor(t, Options{Resolver: names{}}, 6000)
	if err := g.Check(t.Context(), "http://localhost:6000/", Permit{}); err != nil {
		t.Error(err)
	}
	refusesAtSave(t, g, "http://8.8.8.8:6000/", Permit{})
	refusesAtSave(t, g, "http://10.0.0.1:6000/", Permit{Private: true})
}

func TestAPrivateNameNeedsPermission(t *testing.T) {
	g := New(Options{Resolver: names{"inside.test": {"10.1.2.3", "fd00::7"}}})
	refusesAtSave(t, g, "http://inside.test/", Permit{})
	if err := g.Check(t.Context(), "http://inside.test/", Permit{Private: true}); err != nil {
		t.Error(err)
	}
}

// TestRebinding has a name lead to a public address when it is saved, and to loopback
// when it is called.
func TestRebinding(t *testing.T) {
	c := newCanary(t)
	dns := newDNS(t, map[string][]string{"rebind.test": {"8.8.8.8", "127.0.0.1"}})
	g := New(Options{Resolver: &net.Resolver{PreferGo: true, Dial: dns.dial}})
	t.Cleanup(g.Close)
	hook := fmt.Sprintf("http://rebind.test:%d/", c.port)
	if err := g.Check(t.Context(), hook, Permit{}); err != nil {
		t.Fatal(err)
	}
	_, err := get(t, g, hook)
	if e := mustFail(t, err, Refused); strings.Contains(err.Error(), "127.0.0.1") || e.Sent {
		t.Errorf("got %v, sent %t; want an error without the address", err, e.Sent)
	}
	refusesAtSave(t, g, hook, Permit{})
	c.mustBeUntouched(t)
}

// TestOneLookupPerDial shows that what was judged is what is connected to: there is no
// second lookup that could give something else.
func TestOneLookupPerDial(t *testing.T) {
	s := newServer(t, hello)
	var lookups atomic.Int64
	g := guardFor(t, Options{Resolver: resolverFunc(func(string) ([]netip.Addr, error) {
		if lookups.Add(1) > 1 {
			return addresses("169.254.169.254"), nil
		}
		return addresses("127.0.0.1"), nil
	})}, s.port)
	if _, body := mustGet(t, g, s.at("hook.test")); body != "hello" || lookups.Load() != 1 {
		t.Errorf("got %q after %d lookups", body, lookups.Load())
	}
	g.Close() // so that the next request dials
	_, err := get(t, g, s.at("hook.test"))
	mustFail(t, err, Refused)
}

func TestOneBadAddressAmongGoodOnesIsEnough(t *testing.T) {
	s := newServer(t, hello)
	g := guardFor(t, Options{Resolver: names{"mixed.test": {"127.0.0.1", "10.0.0.1"}}}, s.port)
	refusesAtSave(t, g, s.at("mixed.test"), Permit{})
	_, err := get(t, g, s.at("mixed.test"))
	mustFail(t, err, Refused)
	if n := s.conns.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestTheNextAddressIsTriedWhenOneDoesNotAnswer(t *testing.T) {
	s := newServer(t, hello)
	g := guardFor(t, Options{Resolver: names{"two.test": {"::1", "127.0.0.1"}}}, s.port)
	if _, body := mustGet(t, g, s.at("two.test")); body != "hello" {
		t.Errorf("got %q", body)
	}
}

// TestTheDialerJudgesAtTheLastMoment leaves out all judgement before the one right
// before connecting.
func TestTheDialerJudgesAtTheLastMoment(t *testing.T) {
	c := newCanary(t)
	g := New(Options{})
	for _, a := range addresses("127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::") {
		conn, err := g.connect(t.Context(), target{"hook.test", c.port}, a, Permit{Private: true}, 1)
		if err == nil {
			conn.Close()
		}
		mustFail(t, err, Refused)
	}
	c.mustBeUntouched(t)
}

// TestConnectionsOfOnePermitDoNotServeTheOther looks at idle connections, for which
// nobody dials.
func TestConnectionsOfOnePermitDoNotServeTheOther(t *testing.T) {
	s := newServer(t, hello)
	g := guardFor(t, Options{}, s.port)
	for _, p := range []Permit{{Private: true}, {}, {Private: true}, {}} {
		resp, err := g.Client(p).Get(s.URL)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if n := s.conns.Load(); n != 2 {
		t.Errorf("%d connections, want one for each permit", n)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	c := newCanary(t)
	var hops atomic.Int64
	for _, to := range []string{"http://169.254.169.254/latest/", fmt.Sprintf("http://127.0.0.1:%d/", c.port), "/again", "https://localhost/"} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			hops.Store(0)
			s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				hops.Add(1)
				w.Header().Set("Location", to)
				w.WriteHeader(code)
			})
			g := guardFor(t, Options{}, s.port, c.port)
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("{}"))
			req.Header.Set("Authorization", "Bearer secret")
			resp, err := g.Client(Permit{Private: true}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != code || hops.Load() != 1 {
				t.Errorf("%d to %s: got %s after %d requests", code, to, resp.Status, hops.Load())
			}
		}
	}
	c.mustBeUntouched(t)
}

// TestNoProxyFromTheEnvironment runs in a process of its own, because net/http reads
// the environment once.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	if !isChild() {
		again(t, "TestNoProxyFromTheEnvironment")
		return
	}
	c := newCanary(t)
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		os.Setenv(name, "http://"+c.addr)
		os.Setenv(strings.ToLower(name), "http://"+c.addr)
	}
	plain, secure := newServer(t, hello), newTLSServer(t, hello)
	for _, s := range []*server{plain, secure} {
		armed, _ := http.ProxyFromEnvironment(&http.Request{URL: must(url.Parse(s.at("example.com")))})
		if armed == nil {
			t.Fatal("the trap is not set: nobody would use the proxy")
		}
		g := guardFor(t, Options{Resolver: names{"example.com": {"127.0.0.1"}}, RootCAs: roots(secure)}, s.port)
		if _, body := mustGet(t, g, s.at("example.com")); body != "hello" {
			t.Errorf("got %q", body)
		}
	}
	c.mustBeUntouched(t)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func roots(s *server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return pool
}

func TestHTTP2OverTLS(t *testing.T) {
	s := newTLSServer(t, hello)
	g := guardFor(t, Options{Resolver: names{"example.com": {"127.0.0.1"}}, RootCAs: roots(s)}, s.port)
	if resp, body := mustGet(t, g, s.at("example.com")); resp.ProtoMajor != 2 || body != "hello" {
		t.Errorf("got %s %q", resp.Proto, body)
	}
}

// TestHTTP2Client: it speaks HTTP/2 with and without TLS, is guarded as the other client
// is, and fails where nothing but HTTP/1 is spoken.
func TestHTTP2Client(t *testing.T) {
	plain := startable(hello)
	plain.Config.Protocols = new(http.Protocols)
	plain.Config.Protocols.SetUnencryptedHTTP2(true)
	plain.Start()
	plain.ready(t)
	secure, old := newTLSServer(t, hello), newServer(t, hello)
	table := names{"example.com": {"127.0.0.1"}}
	g := guardFor(t, Options{Resolver: table, RootCAs: roots(secure)}, plain.port, secure.port, old.port)
	for _, s := range []*server{plain, secure} {
		for _, p := range []Permit{{Private: true}, {}} {
			resp, err := g.HTTP2Client(p).Get(s.at("example.com"))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.ProtoMajor != 2 || string(body) != "hello" {
				t.Errorf("got %s %q, error %v", resp.Proto, body, err)
			}
		}
		if n := s.conns.Load(); n != 2 {
			t.Errorf("%d connections, want one for each permit", n)
		}
	}
	_, err := g.HTTP2Client(Permit{}).Get(old.at("example.com"))
	mustFail(t, err, Broken)
	c := newCanary(t)
	_, err = g.HTTP2Client(Permit{Private: true}).Get("http://" + c.addr)
	mustFail(t, err, Refused)
	c.mustBeUntouched(t)
}

func TestCertificatesAreVerified(t *testing.T) {
	s := newTLSServer(t, hello)
	table := names{"example.com": {"127.0.0.1"}, "other.test": {"127.0.0.1"}}
	_, err := get(t, guardFor(t, Options{Resolver: table}, s.port), s.at("example.com"))
	mustFail(t, err, TLS)
	_, err = get(t, guardFor(t, Options{Resolver: table, RootCAs: roots(s)}, s.port), s.at("other.test"))
	mustFail(t, err, TLS)
	plain := newServer(t, hello)
	_, err = get(t, guardFor(t, Options{}, plain.port), fmt.Sprintf("https://127.0.0.1:%d/", plain.port))
	if e := mustFail(t, err, TLS); e.Sent {
		t.Error("it says that something was sent")
	}
}

func TestCookiesAreNotKept(t *testing.T) {
	var cookies atomic.Int64
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		cookies.Add(int64(len(r.Cookies())))
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
	})
	g := guardFor(t, Options{}, s.port)
	mustGet(t, g, s.URL)
	mustGet(t, g, s.URL)
	if cookies.Load() != 0 {
		t.Error("a cookie came back")
	}
}

func TestHeadersThatCouldBeReadAsOthersAreNotSent(t *testing.T) {
	s := newServer(t, hello)
	g := guardFor(t, Options{}, s.port)
	for name, h := range map[string]http.Header{
		"CR":                   {"A": {"x\ry"}},
		"LF":                   {"A": {"x\ny"}},
		"CRLF":                 {"Authorization": {"Bearer x\r\nX-Admin: yes"}},
		"NUL":                  {"A": {"x\x00"}},
		"DEL":                  {"A": {"x\x7f"}},
		"in the second value":  {"A": {"x", "y\n"}},
		"in the name":          {"A\r\nB": {"x"}},
		"colon in the name":    {"A:": {"x"}},
		"space in the name":    {"A B": {"x"}},
		"no name":              {"": {"x"}},
		"other than ASCII":     {"Ä": {"x"}},
		"two spellings":        {"Authorization": {"Bearer x"}, "authorization": {"Bearer y"}},
		"several credentials":  {"Authorization": {"Bearer x", "Bearer y"}},
		"two spellings of any": {"X-Token": {"x"}, "x-token": {"x"}},
	} {
		for _, trailer := range []bool{false, true} {
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, strings.NewReader("{}"))
			if req.Header = h; trailer {
				req.Header, req.Trailer = nil, h
			}
			resp, err := g.Client(Permit{}).Do(req)
			if err == nil {
				resp.Body.Close()
			}
			if errors.As(err, new(*Error)) {
				mustFail(t, err, BadRequest)
			} else if err == nil {
				t.Errorf("%s (trailer %t): got %s", name, trailer, resp.Status)
			}
		}
	}
	if n := s.conns.Load(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

func TestAnotherHostThanThatOfTheURLIsNotSent(t *testing.T) {
	s := newServer(t, hello)
	g := guardFor(t, Options{}, s.port)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
	req.Host = "inside.test"
	_, err := g.Client(Permit{}).Do(req)
	mustFail(t, err, BadRequest)
}

func TestCheckHeader(t *testing.T) {
	for _, v := range []string{"", "Bearer abc.def", "a\tb", "ü"} {
		if err := CheckHeader("token", v); err != nil {
			t.Error(err)
		}
	}
	for _, v := range []string{"secret\r", "secret\n", "secret\x00", "secret\x1b", "secret\x7f", "\r\nsecret"} {
		e, ok := errors.AsType[*hub.Error](CheckHeader("token", v))
		if !ok || e.Kind != hub.Invalid || e.Field != "token" || strings.Contains(e.Error(), "secret") {
			t.Errorf("%q: got %v", v, e)
		}
	}
}

func TestTheBodyHasALimit(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		w.Write(bytes.Repeat([]byte("x"), n))
	})
	const limit = 10_000
	g := guardFor(t, Options{MaxResponse: limit, PerTarget: 1}, s.port)
	for n, fits := range map[int]bool{0: true, limit - 1: true, limit: true, limit + 1: false, 100 * limit: false} {
		resp, err := get(t, g, s.URL+"?n="+strconv.Itoa(n))
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(resp.Body)
		switch {
		case fits && (err != nil || len(b) != n):
			t.Errorf("%d bytes: got %d and %v", n, len(b), err)
		case !fits && len(b) != limit:
			t.Errorf("%d bytes: got %d of them", n, len(b))
		case !fits:
			mustFail(t, err, TooLarge)
			if _, again := resp.Body.Read(make([]byte, 1)); again != err {
				t.Errorf("then %v", again)
			}
		}
		resp.Body.Close()
	}
}

func TestAHeaderHasALimit(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("A", strings.Repeat("x", 2*maxResponseHeader))
	})
	_, err := get(t, guardFor(t, Options{}, s.port), s.URL)
	mustFail(t, err, Broken)
}

// stuck answers nothing, or the header only, until its client is gone.
func stuck(header bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if header {
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
		}
		<-r.Context().Done()
	}
}

func TestSlowAnswersAreGivenUp(t *testing.T) {
	s := newServer(t, stuck(false))
	for name, o := range map[string]Options{
		"header": {HeaderTimeout: 20 * time.Millisecond}, "all": {Timeout: 20 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := get(t, guardFor(t, o, s.port), s.URL)
			if e := mustFail(t, err, Timeout); !e.Sent {
				t.Error("it says that nothing was sent")
			}
		})
	}
	t.Run("body", func(t *testing.T) {
		s := newServer(t, stuck(true))
		resp, err := get(t, guardFor(t, Options{Timeout: 100 * time.Millisecond}, s.port), s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		mustFail(t, err, Timeout)
	})
	t.Run("TLS handshake", func(t *testing.T) {
		silent := must(net.Listen("tcp4", "127.0.0.1:0"))
		defer silent.Close()
		port := netip.MustParseAddrPort(silent.Addr().String()).Port()
		_, err := get(t, guardFor(t, Options{TLSTimeout: 20 * time.Millisecond}, port), "https://"+silent.Addr().String())
		mustFail(t, err, Timeout)
	})
	t.Run("lookup", func(t *testing.T) {
		g := New(Options{DialTimeout: 20 * time.Millisecond, LookupTimeout: 20 * time.Millisecond, Resolver: silentResolver{}})
		if err := g.Check(t.Context(), "http://hook.test/", Permit{}); err != nil {
			t.Errorf("a name that cannot be looked up now is refused: %v", err)
		}
		_, err := get(t, g, "http://hook.test/")
		mustFail(t, err, Unresolved)
	})
}

// silentResolver never answers.
type silentResolver struct{}

func (silentResolver) LookupNetIP(ctx context.Context, _, _ string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTheCallerCanGiveUp(t *testing.T) {
	s := newServer(t, stuck(true))
	ctx, cancel := context.WithCancel(t.Context())
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	resp, err := guardFor(t, Options{}, s.port).Client(Permit{}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	_, err = io.ReadAll(resp.Body)
	mustFail(t, err, Canceled)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v is not context.Canceled", err)
	}
}

func TestErrorsNeitherNameAddressesNorRepeatWhatCame(t *testing.T) {
	garbage := must(net.Listen("tcp4", "127.0.0.1:0"))
	defer garbage.Close()
	go func() {
		for {
			conn, err := garbage.Accept()
			if err != nil {
				return
			}
			conn.Read(make([]byte, 4096))
			io.WriteString(conn, "TOPSECRET banner\r\n\r\n")
			conn.Close()
		}
	}()
	echo := must(net.Listen("tcp4", "127.0.0.1:0"))
	defer echo.Close()
	go func() {
		for {
			conn, err := echo.Accept()
			if err != nil {
				return
			}
			sent := make([]byte, 4096)
			n, _ := conn.Read(sent)
			conn.Write(sent[:n])
			conn.Close()
		}
	}()
	closed := must(net.Listen("tcp4", "127.0.0.1:0"))
	closed.Close()
	cut := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "TOPSECRET")
	})
	for addr, want := range map[string]Reason{
		garbage.Addr().String(): Broken, closed.Addr().String(): Connect, cut.Listener.Addr().String(): Broken,
		echo.Addr().String(): Broken,
	} {
		ap := netip.MustParseAddrPort(addr)
		var logged bytes.Buffer
		g := guardFor(t, Options{Resolver: names{"hook.test": {"127.0.0.1"}}, Log: slog.New(slog.NewTextHandler(&logged, nil))}, ap.Port())
		resp, err := get(t, g, fmt.Sprintf("http://hook.test:%d/?key=hunter2", ap.Port()))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		e := mustFail(t, err, want)
		if strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "TOPSECRET") {
			t.Errorf("%s: the error says too much: %v", want, err)
		}
		for _, secret := range []string{"hunter2", "TOPSECRET"} {
			if strings.Contains(e.Error(), secret) || strings.Contains(logged.String(), secret) {
				t.Errorf("%s: the query or the answer is in the error or the log: %v\n%s", want, e, logged.String())
			}
		}
		if want == Connect && e.Sent {
			t.Error("it says that something was sent")
		}
	}
}

func TestARefusedRequestClosesItsBody(t *testing.T) {
	body := &closeable{}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:1/", body)
	_, err := New(Options{}).Client(Permit{}).Do(req)
	mustFail(t, err, Refused)
	if !body.closed {
		t.Error("the body is open")
	}
}

type closeable struct {
	io.Reader
	closed bool
}

func (c *closeable) Close() error { c.closed = true; return nil }
