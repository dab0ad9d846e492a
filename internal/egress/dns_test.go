package egress

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// dnsServer is a small DNS server on loopback. It knows names with IPv4 addresses, one
// list after the other, the last again and again, and answers NXDOMAIN to the rest.
type dnsServer struct {
	addr string
	mu   sync.Mutex
	a    map[string][]string
}

func newDNS(t *testing.T, a map[string][]string) *dnsServer {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &dnsServer{addr: conn.LocalAddr().String(), a: a}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			conn.WriteTo(d.answer(buf[:n]), from)
		}
	})
	t.Cleanup(func() {
		conn.Close()
		wg.Wait()
	})
	return d
}

// dial is for net.Resolver, whose Go part then asks this server.
func (d *dnsServer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "udp", d.addr)
}

const typeA = 1

// answer answers a query of one question (RFC 1035, section 4).
func (d *dnsServer) answer(query []byte) []byte {
	if len(query) < 12 {
		return nil
	}
	var labels []string
	i := 12
	for i < len(query) && query[i] != 0 && i+1+int(query[i]) < len(query) {
		labels = append(labels, string(query[i+1:i+1+int(query[i])]))
		i += 1 + int(query[i])
	}
	end := i + 5 // the root label, type and class
	if end > len(query) {
		return nil
	}
	ip, known := d.next(strings.ToLower(strings.Join(labels, ".")), binary.BigEndian.Uint16(query[i+1:]) == typeA)
	header := append([]byte{}, query[:2]...)
	flags := []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0} // an answer; one question
	if !known {
		flags[1] |= 3 // NXDOMAIN
	}
	if ip.IsValid() {
		flags[5] = 1
	}
	out := append(append(header, flags...), query[12:end]...)
	if ip.IsValid() { // the question's name, A, IN, no time to live, four bytes
		out = append(out, 0xc0, 12, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4)
		out = append(out, ip.AsSlice()...)
	}
	return out
}

// next is the address that a name has this time, none unless it is asked for.
func (d *dnsServer) next(name string, wanted bool) (ip netip.Addr, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, known := d.a[name]
	if !known || !wanted {
		return ip, known
	}
	if len(list) > 1 {
		d.a[name] = list[1:]
	}
	return netip.MustParseAddr(list[0]), true
}
