package egress

import (
	"errors"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// notPublic are the ranges of IANA's special-purpose registries, and metadata, written
// down once more for a judgement that shares nothing with classify.
var notPublic = strings.Fields(`
	0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24
	192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3 168.63.129.16/32`)

// slowlyPublic judges an address byte by byte.
func slowlyPublic(ip net.IP) bool {
	if four := ip.To4(); four != nil {
		for _, cidr := range notPublic {
			if _, n, _ := net.ParseCIDR(cidr); n.Contains(four) {
				return false
			}
		}
		return true
	}
	hextets := make([]uint16, 8)
	for i := range hextets {
		hextets[i] = uint16(ip[2*i])<<8 | uint16(ip[2*i+1])
	}
	tail := net.IPv4(ip[12], ip[13], ip[14], ip[15])
	switch h := hextets; {
	case h[0] == 0x64 && h[1] == 0xff9b && h[2] == 0 && h[3] == 0 && h[4] == 0 && h[5] == 0:
		return slowlyPublic(tail)
	case h[0] < 0x2000 || h[0] > 0x3fff: // no global unicast
		return false
	case h[0] == 0x2001 && (h[1] < 0x200 || h[1] == 0xdb8), h[0] == 0x2002, h[0] == 0x3fff && h[1] < 0x1000:
		return false
	case h[4]&^0x200 == 0 && h[5] == 0x5efe: // ISATAP
		return slowlyPublic(tail)
	default:
		return true
	}
}

// FuzzClassify compares the two judgements.
func FuzzClassify(f *testing.F) {
	for _, list := range [][]string{badAddresses, privateAddresses, goodAddresses} {
		for _, s := range list {
			a := netip.MustParseAddr(s).WithZone("").As16()
			f.Add(a[:])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		c, what := classify(a)
		if (c == public) != slowlyPublic(net.IP(b)) {
			t.Errorf("%s: class %d (%s)", a, c, what)
		}
		if (c == public) != (what == "") {
			t.Errorf("%s: class %d with the words %q", a, c, what)
		}
	})
}

// loose reads hosts as the most generous parsers do (inet_aton, and browsers): one to
// four numbers, decimal, octal or hexadecimal, the last of which fills what is left.
func loose(host string) (net.IP, bool) {
	parts := strings.Split(strings.TrimSuffix(host, "."), ".")
	if len(parts) > 4 {
		return nil, false
	}
	var all uint64
	for i, p := range parts {
		base := 10
		switch {
		case strings.HasPrefix(p, "0x") || strings.HasPrefix(p, "0X"):
			base, p = 16, p[2:]
		case len(p) > 1 && p[0] == '0':
			base, p = 8, p[1:]
		}
		n, err := strconv.ParseUint("0"+p, base, 64)
		if err != nil || p == "" && base == 10 {
			return nil, false
		}
		if i < len(parts)-1 {
			all |= n & 0xff << (24 - 8*i)
		} else {
			all |= n
		}
	}
	return net.IPv4(byte(all>>24), byte(all>>16), byte(all>>8), byte(all)), true
}

// FuzzCheck looks for URLs that pass and lead to a bad address for somebody.
func FuzzCheck(f *testing.F) {
	for _, list := range [][]string{badURLs, sloppyURLs} {
		for _, s := range list {
			f.Add(s)
		}
	}
	for _, list := range [][]string{badAddresses, privateAddresses, goodAddresses} {
		for _, s := range list {
			f.Add("http://" + inURL(s) + "/")
		}
	}
	for _, h := range badHosts {
		f.Add("https://" + h + ":8443/hook")
	}
	g := New(Options{Resolver: names{}})
	f.Fuzz(func(t *testing.T, raw string) {
		err := g.Check(t.Context(), raw, Permit{})
		if err != nil {
			if e, ok := errors.AsType[*hub.Error](err); !ok || e.Kind != hub.Invalid || e.Message == "" {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatalf("%q passes and is no URL: %v", raw, err)
		}
		host := u.Hostname()
		if u.User != nil || u.Fragment != "" || host == "" || strings.ContainsAny(raw, "\r\n\x00\\ #") || u.Scheme != "http" && u.Scheme != "https" {
			t.Errorf("%q passes", raw)
		}
		ip := net.ParseIP(host)
		if numbers, ok := loose(host); ok && (ip == nil || !ip.Equal(numbers)) {
			t.Errorf("%q passes, and means %s for some", raw, numbers)
		}
		if ip != nil && !slowlyPublic(ip) {
			t.Errorf("%q passes, and is %s", raw, ip)
		}
		for _, c := range host {
			if c >= 0x80 {
				t.Errorf("%q passes with %q in its host", raw, c)
			}
		}
	})
}

func TestParsePorts(t *testing.T) {
	for in, want := range map[string]int{"": 0, " ": 0, "8080": 1, "8080,9000-9010": 2, " 1 , 65535 ": 2, "5-5": 1} {
		if got, err := ParsePorts(in); err != nil || len(got) != want {
			t.Errorf("%q: got %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"0", "-1", "65536", "80,", ",", "x", "8080-", "-8080", "9-8", "1-2-3", "08", "+8", "0x50", "8 0", "8080 9090"} {
		if got, err := ParsePorts(in); err == nil {
			t.Errorf("%q: got %v", in, got)
		}
	}
}

// FuzzParsePorts wants ranges that are in order and read as they are written.
func FuzzParsePorts(f *testing.F) {
	f.Add("8080,9000-9010")
	f.Add("0-1, 65536")
	f.Fuzz(func(t *testing.T, s string) {
		list, err := ParsePorts(s)
		if err != nil {
			return
		}
		for _, r := range list {
			again, err := ParsePorts(r.String())
			if err != nil || len(again) != 1 || again[0] != r || r.First == 0 || r.First > r.Last {
				t.Errorf("%q: %v is read as %v, %v", s, r, again, err)
			}
		}
	})
}
