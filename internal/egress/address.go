package egress

import "net/netip"

// class says how the hub treats an address.
type class uint8

const (
	public   class = iota // may be called
	private               // may be called with Permit.Private
	loopback              // may be called at the ports of Options.AllowLocal
	never                 // may not be called
)

// block is a range of addresses that the hub never calls, and what it is, to follow
// "is" in a sentence.
type block struct {
	prefix netip.Prefix
	what   string
}

// blocks are the ranges that the hub never calls, after IANA's special-purpose
// registries (RFC 6890) and the metadata services of clouds. Metadata that lies in a
// private range stands here too, because no permission opens it. Outside of 2000::/3
// the hub calls no IPv6 at all apart from private and NAT64 addresses, so what lies
// there is named only for the sake of the message.
var blocks = []block{
	{netip.MustParsePrefix("169.254.169.254/32"), "a cloud metadata address"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud metadata address"},   // Azure
	{netip.MustParsePrefix("100.100.100.200/32"), "a cloud metadata address"}, // Alibaba
	{netip.MustParsePrefix("fd00:ec2::/32"), "a cloud metadata address"},      // AWS
	{netip.MustParsePrefix("fd20:ce::254/128"), "a cloud metadata address"},   // Google

	{netip.MustParsePrefix("0.0.0.0/8"), "an unspecified address"},
	{netip.MustParsePrefix("100.64.0.0/10"), "a shared (CGNAT) address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "a link-local address"},
	{netip.MustParsePrefix("192.0.0.0/24"), "a reserved address"},
	{netip.MustParsePrefix("192.0.2.0/24"), "a documentation address"},
	{netip.MustParsePrefix("192.88.99.0/24"), "a 6to4 relay address"},
	{netip.MustParsePrefix("198.18.0.0/15"), "a benchmark address"},
	{netip.MustParsePrefix("198.51.100.0/24"), "a documentation address"},
	{netip.MustParsePrefix("203.0.113.0/24"), "a documentation address"},
	{netip.MustParsePrefix("224.0.0.0/4"), "a multicast address"},
	{netip.MustParsePrefix("255.255.255.255/32"), "the broadcast address"},
	{netip.MustParsePrefix("240.0.0.0/4"), "a reserved address"},

	{netip.MustParsePrefix("::/128"), "the unspecified address"},
	{netip.MustParsePrefix("::/96"), "an IPv4-compatible address"},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), "an IPv4-translated address"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a local NAT64 address"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address"},
	{netip.MustParsePrefix("2001::/23"), "a reserved address"}, // ORCHID, benchmarks and others
	{netip.MustParsePrefix("2001:db8::/32"), "a documentation address"},
	{netip.MustParsePrefix("2002::/16"), "a 6to4 address"},
	{netip.MustParsePrefix("3fff::/20"), "a documentation address"},
	{netip.MustParsePrefix("fe80::/10"), "a link-local address"},
	{netip.MustParsePrefix("fec0::/10"), "a site-local address"},
	{netip.MustParsePrefix("ff00::/8"), "a multicast address"},
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")     // what IANA gives out
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052
)

// classify says how the hub treats an address, and what the address is if it is not
// public.
func classify(a netip.Addr) (class, string) {
	if a.Zone() != "" {
		return never, "an address with a zone"
	}
	a = a.Unmap()
	if a.IsLoopback() {
		return loopback, "a loopback address"
	}
	for _, b := range blocks {
		if b.prefix.Contains(a) {
			return never, b.what
		}
	}
	if inner, ok := embedded(a); ok {
		c, what := classify(inner)
		if c == loopback { // of the translator, not of this machine
			c = never
		}
		if c != public {
			return c, "around " + what
		}
	}
	switch {
	case a.IsPrivate():
		return private, "a private address"
	case a.Is4() || globalUnicast.Contains(a) || nat64.Contains(a):
		return public, ""
	default:
		return never, "no global address"
	}
}

// embedded gives the IPv4 address that a translator or tunnel would call for a: that
// at the end of a NAT64 (RFC 6052) or ISATAP (RFC 5214) address.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	isatap := (b[8] == 0 || b[8] == 2) && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
	if !isatap && !nat64.Contains(a) {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte(b[12:])), true
}
