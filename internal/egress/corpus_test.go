package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// badAddresses are never called, with or without permission to call private ones.
var badAddresses = []string{
	// loopback
	"127.0.0.1", "127.0.0.2", "127.1.2.3", "127.255.255.255", "::1", "::ffff:127.0.0.1", "::ffff:7f00:1",
	// unspecified
	"0.0.0.0", "0.0.0.1", "0.255.255.255", "::", "::ffff:0.0.0.0",
	// link-local, with and without zones
	"169.254.0.1", "169.254.255.255", "fe80::1", "fe80::1%lo", "febf:ffff::1", "::ffff:169.254.1.1", "fe80::a9fe:a9fe",
	// metadata
	"169.254.169.254", "169.254.170.2", "::ffff:a9fe:a9fe", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254",
	"100.100.100.200", "168.63.129.16", "192.0.0.192",
	// shared, reserved, documentation, benchmarks
	"100.64.0.0", "100.127.255.255", "::ffff:100.64.0.1", "192.0.0.1", "192.0.0.170", "192.0.2.1",
	"192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.254",
	// multicast and broadcast
	"224.0.0.1", "239.255.255.250", "255.255.255.255", "ff02::1", "ff05::1:3", "ff0e::1", "::ffff:224.0.0.1",
	// NAT64 and ISATAP around a bad one
	"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::", "64:ff9b::6440:1", "64:ff9b::e000:1",
	"64:ff9b:1::808:808", "64:ff9b:1:ffff::7f00:1", "2606:4700::5efe:7f00:1", "2606:4700::200:5efe:a9fe:a9fe",
	// other tunnels and translations
	"2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:808:808::1", "2001::1", "2001:0:7f00:1::80ff:fffe", "::7f00:1", "::808:808",
	"::ffff:0:7f00:1", "::ffff:0:808:808",
	// IPv6 that is not for calling
	"2001:2::1", "2001:10::1", "2001:20::1", "2001:1ff:ffff::1", "2001:db8::1", "3fff::1", "3fff:fff::1", "100::1",
	"fec0::1", "feff::1", "4000::1", "5f00::1", "8000::1", "e000::1", "200::1",
}

// privateAddresses are called with permission only.
var privateAddresses = []string{
	"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "::ffff:10.0.0.1",
	"fc00::1", "fd12:3456:789a::1", "fdff:ffff::1", "64:ff9b::a00:1", "64:ff9b::c0a8:1", "2606:4700::5efe:a00:1",
}

// goodAddresses are called, most of them neighbours of bad ones.
var goodAddresses = []string{
	"1.0.0.0", "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
	"128.0.0.0", "168.63.129.15", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0", "191.255.255.255",
	"192.0.1.0", "192.0.3.0", "192.88.98.255", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
	"198.51.99.255", "203.0.112.255", "203.0.114.0", "223.255.255.255",
	"::ffff:8.8.8.8", "64:ff9b::808:808", "2001:200::1", "2001:4860:4860::8888", "2001:db7::1", "2003::1", "2606:4700::1111",
	"2606:4700::5efe:808:808", "3ffe:ffff::1",
}

// badHosts are other spellings of hosts, as they stand in a URL. Most mean 127.0.0.1
// or the metadata service for some parser.
var badHosts = []string{
	"2130706433", "0x7f000001", "017700000001", "0177.0.0.1", "0177.0.0.01", "0x7f.1", "0x7F.0.0.1", "127.1", "127.0.1", "0",
	"0.0", "00", "0x0", "0x", "0x0.0x0", "127.0.0.01", "127.000.000.001", "127.0.0.0x1", "127.0.0.1.", "127.0.0.1..", "0.",
	"2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "0xa9.0xfe.0xa9.0xfe", "169.254.43518", "4294967297", "256.0.0.1",
	"127.0.0.1.0", "1.2.3", "08.8.8.8", "10.1",
	"１２７.0.0.1", "127。0。0。1", "127．0．0．1", "127｡0｡0｡1", "①②⑦.0.0.1", "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ", "lo\u00adcalhost", "localhost。", "localho\u017ft",
	"%31%32%37.0.0.1", "%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1", "127.0.0.1%00.example.com", "127%2e0%2e0%2e1", "localhost%2eexample.com",
	"localhost.", "localhost..", ".localhost", "metadata.google.internal", "METADATA.google.internal", "metadata.google.internal.", "metadata.goog",
	"[::ffff:7f00:1%25lo]", "[fe80::1%25lo]", "[fe80::1%lo]", "[::1%25]", "[127.0.0.1]", "[localhost]", "[]", "[::1", "::1]",
	"[::1].example.com", "[::ffff:0x7f.1]", "[0:0:0:0:0:0:0:0:1]", "[1::2::3]",
	"", ".", "..", "-", "a..b", "a-.example.com", "-a.example.com", "a b", "a\tb", "a\x00b", "a!b", "a*b", "a,b", "a'b", "a(b)", "a~b",
	strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 127) + "com",
	"user@good.test", "user:password@good.test", "good.test@127.0.0.1", "@good.test", "127.0.0.1\\@good.test", "good.test\\.example.com",
}

// badURLs are refused as a whole, though good.test would be a good host.
var badURLs = []string{
	" ", "http:", "http:/", "http://", "http:///hook", "//good.test/", "/hook", "good.test", "example.com/hook", "http:good.test", "http:/good.test/",
	"ftp://good.test/", "file:///etc/passwd", "gopher://good.test/", "unix:///run/x.sock", "javascript:alert(1)", "data:,x", "ws://good.test/",
	"http+unix://good.test/", "jar:http://good.test/!/", "ldap://good.test/", "dict://good.test:6379/", "h2c://good.test/",
	"http://good.test/#frag", "http://good.test#@127.0.0.1/",
	"http://good.test/a\r\nX: y", "http://good.test/\n", "\nhttp://good.test/", "http://good.test/\x00", "http://good.test/\x7f",
	" http://good.test/", "http://good.test\t/", "http:\\\\good.test\\", "http://good.test\\@127.0.0.1/", "http://good.test/?a\\b",
	"http://good.test:0/", "http://good.test:00080/", "http://good.test:080/", "http://good.test:65536/", "http://good.test:-1/",
	"http://good.test:+80/", "http://good.test:http/", "http://good.test:80:80/", "http://good.test: 80/", "http://good.test:0x50/",
	"http://good.test:25/", "http://good.test:22/", "https://good.test:6667/", "http://[2606:4700::1111]:587/", "http://good.test:10080/",
	"http://good.test/%", "http://good.test/%zz", "http://good.test/" + strings.Repeat("a", maxURL),
}

// sloppyURLs are refused at save. Go reads them as something harmless.
var sloppyURLs = []string{
	"http://good.test/#", "http://good.test?#", "http://good.test/a b", "http://good.test/ ", "http://good.test:/",
}

// inURL writes an address as a URL has it.
func inURL(addr string) string {
	if strings.Contains(addr, ":") {
		return "[" + strings.ReplaceAll(addr, "%", "%25") + "]"
	}
	return addr
}

// refusesAtSave fails unless Check refuses the URL with a message for its user.
func refusesAtSave(t *testing.T, g *Guard, raw string, p Permit) {
	t.Helper()
	err := g.Check(t.Context(), raw, p)
	e, ok := errors.AsType[*hub.Error](err)
	if !ok || e.Kind != hub.Invalid || e.Field != "url" || e.Message == "" {
		t.Errorf("Check(%q) = %v, want hub.Invalid for the field url", raw, err)
	}
}

// refusesAtDial fails unless a request that was saved before fails, without any byte
// sent: one made of the text, and one put together by hand.
func refusesAtDial(t *testing.T, g *Guard, raw, host string, p Permit) {
	t.Helper()
	var reqs []*http.Request
	if r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, raw, strings.NewReader("{}")); err == nil {
		reqs = append(reqs, r)
	}
	if host != "" {
		for _, scheme := range []string{"http", "https"} {
			reqs = append(reqs, (&http.Request{Method: http.MethodGet, URL: &url.URL{Scheme: scheme, Host: host, Path: "/"}}).WithContext(t.Context()))
		}
	}
	for _, r := range reqs {
		resp, err := g.Client(p).Do(r)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%q (%q): got %s", raw, host, resp.Status)
			continue
		}
		if e, ok := errors.AsType[*Error](err); ok && (e.Reason != Refused && e.Reason != BadRequest || e.Sent) {
			t.Errorf("%q (%q): %s, sent %t: %v; want it refused", raw, host, e.Reason, e.Sent, e)
		}
	}
}

// TestCorpus tries everything at save and at dial, under both of Go's resolvers.
func TestCorpus(t *testing.T) {
	if !isChild() {
		for _, r := range []string{"go", "cgo"} {
			t.Run(r, func(t *testing.T) { again(t, "TestCorpus", "GODEBUG=netdns="+r) })
		}
		return
	}
	c := newCanary(t)
	// The canary's port is no local one of this guard, but its neighbour is.
	// Names that are not in a test's table go to the resolver of this process: Go's
	// asks a server that knows none, the system's has getaddrinfo read numbers.
	g := New(Options{
		AllowLocal: []PortRange{{c.port + 1, c.port + 1}},
		Resolver:   &net.Resolver{Dial: newDNS(t, nil).dial},
	})
	t.Cleanup(g.Close)
	logWhatThisResolverDoes(t, c)

	port := strconv.Itoa(int(c.port))
	for _, p := range []Permit{{}, {Private: true}} {
		for _, a := range badAddresses {
			tryAddress(t, g, a, port, p)
		}
		for _, h := range badHosts {
			raw := "http://" + h + ":" + port + "/hook"
			refusesAtSave(t, g, raw, p)
			refusesAtSave(t, g, "http://"+h+"/", p)
			refusesAtDial(t, g, raw, h+":"+port, p)
			refusesToDial(t, g, h, port, p)
		}
		nameless := New(Options{Resolver: names{}}) // so that good.test is not called
		for _, raw := range badURLs {
			refusesAtSave(t, nameless, raw, p)
			refusesAtDial(t, nameless, raw, "", p)
		}
		for _, raw := range sloppyURLs {
			refusesAtSave(t, nameless, raw, p)
		}
		for _, h := range []string{"localhost", "LocalHost", "a.localhost"} {
			tryAddress(t, g, h, port, p)
		}
	}
	for _, a := range privateAddresses {
		tryAddress(t, g, a, port, Permit{})
	}
	c.mustBeUntouched(t)
}

// tryAddress tries an address as such, and as that of a name.
func tryAddress(t *testing.T, g *Guard, a, port string, p Permit) {
	t.Helper()
	for _, scheme := range []string{"http", "https", "HTTP"} {
		raw := scheme + "://" + inURL(a) + ":" + port + "/hook"
		refusesAtSave(t, g, raw, p)
		refusesAtDial(t, g, raw, inURL(a)+":"+port, p)
	}
	refusesToDial(t, g, a, port, p)
	ip, err := netip.ParseAddr(a)
	if err != nil {
		return
	}
	named := New(Options{AllowLocal: g.opt.AllowLocal, Resolver: resolverFunc(func(string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("8.8.8.8"), ip}, nil
	})})
	refusesAtSave(t, named, "http://hook.test:"+port+"/", p)
	refusesAtDial(t, named, "http://hook.test:"+port+"/", "hook.test:"+port, p)
}

// refusesToDial goes around all judgement of URLs, straight to the dialer.
func refusesToDial(t *testing.T, g *Guard, host, port string, p Permit) {
	t.Helper()
	// The system's resolver may ask a server about names that are not numbers.
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	conn, err := g.dial(ctx, net.JoinHostPort(host, port), p)
	if err == nil {
		conn.Close()
		t.Errorf("dialed %q", host)
		return
	}
	if e, ok := errors.AsType[*Error](err); ok && e.Reason != Refused && e.Reason != Unresolved {
		t.Errorf("dial %q: %s (%v); want it refused before connecting", host, e.Reason, err)
	}
}

// logWhatThisResolverDoes shows that the corpus is not idle: some spellings do lead to
// loopback for an ordinary dialer. What that one does is not ours to require.
func logWhatThisResolverDoes(t *testing.T, c *canary) {
	t.Helper()
	var through []string
	for _, h := range []string{"2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0", "::ffff:127.0.0.1"} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(h, strconv.Itoa(int(c.port))))
		cancel()
		if err == nil {
			<-c.came
			c.mu.Lock()
			c.count--
			c.mu.Unlock()
			conn.Close()
			through = append(through, h)
		}
	}
	t.Logf("an unguarded dialer reaches loopback by %q", through)
}

func TestGoodAddressesAreLetThrough(t *testing.T) {
	g := New(Options{Resolver: names{}})
	for _, a := range goodAddresses {
		for _, raw := range []string{"http://" + inURL(a) + "/", "https://" + inURL(a) + ":8443/hook?x=%0a"} {
			if err := g.Check(t.Context(), raw, Permit{}); err != nil {
				t.Errorf("Check(%q): %v", raw, err)
			}
		}
	}
	for _, a := range privateAddresses {
		if err := g.Check(t.Context(), "http://"+inURL(a)+"/", Permit{Private: true}); err != nil {
			t.Errorf("Check(%q) with permission: %v", a, err)
		}
	}
	for _, raw := range []string{
		"http://example.com", "https://EXAMPLE.com/a?b=c", "http://my_service:8080/", "http://xn--bcher-kva.example/", "https://1.example.com/",
		"https://0x7f.example/", "http://example.com/%0d%0a", "http://example.com/ü?ü", "http://example.com:65535/", "http://0xyz/",
	} {
		if err := g.Check(t.Context(), raw, Permit{}); err != nil {
			t.Errorf("Check(%q), whose name leads nowhere yet: %v", raw, err)
		}
	}
}

// TestTheCorpusIsLarge keeps the corpus from shrinking.
func TestTheCorpusIsLarge(t *testing.T) {
	seen := map[string]bool{}
	for _, list := range [][]string{badAddresses, privateAddresses, badHosts, badURLs, sloppyURLs} {
		for _, s := range list {
			if seen[s] {
				t.Errorf("%q is there twice", s)
			}
			seen[s] = true
		}
	}
	if len(seen) < 200 {
		t.Errorf("the corpus has %d entries only", len(seen))
	}
}

func TestMessagesSayWhatToDo(t *testing.T) {
	g := New(Options{Resolver: names{"inside.test": {"10.9.8.7"}, "here.test": {"127.0.0.9"}, "meta.test": {"169.254.169.254"}}})
	for raw, want := range map[string]string{
		"http://127.0.0.1:9000/":   "127.0.0.1 is a loopback address, which the hub does not call at port 9000; give a public address, or have the operator name the port with --egress-allow-local",
		"http://10.0.0.1/":         "10.0.0.1 is a private address, which the hub calls with its administrator's permission for this target only; ask for it (--egress-allow-private), or give a public address",
		"http://inside.test/":      "inside.test leads to a private address, which the hub calls with its administrator's permission for this target only; ask for it (--egress-allow-private), or give a public address",
		"http://here.test:1234/":   "here.test leads to a loopback address, which the hub does not call at port 1234; give a public address, or have the operator name the port with --egress-allow-local",
		"http://meta.test/":        "meta.test leads to a cloud metadata address, which the hub never calls; give a public address",
		"http://[64:ff9b::a00:1]/": "64:ff9b::a00:1 is around a private address, which the hub calls with its administrator's permission for this target only; ask for it (--egress-allow-private), or give a public address",
		"http://127.1/":            "the host looks like a number; write an IPv4 address as four decimal numbers without leading zeros, such as 192.0.2.7",
		"ftp://a/":                 "the hub calls http and https only; give a URL such as https://example.com/hook",
		"http://a:25/":             "port 25 belongs to another protocol than HTTP; use another port",
	} {
		e, ok := errors.AsType[*hub.Error](g.Check(t.Context(), raw, Permit{}))
		if !ok || e.Message != want {
			t.Errorf("%s: got %v\nwant %s", raw, e, want)
		}
	}
	if err := g.Check(t.Context(), "http://user:hunter2@exa mple.com/?key=hunter2", Permit{}); err == nil || strings.Contains(fmt.Sprint(err), "hunter2") {
		t.Errorf("got %v, want an error that does not repeat secrets", err)
	}
}
