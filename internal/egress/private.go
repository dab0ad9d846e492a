package egress

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Target is what the operator lets everybody have the hub call although it is in a
// private network: the addresses of a network, or a host by its name, whatever
// private addresses that has.
type Target struct {
	network netip.Prefix
	host    string // in lower case; empty for a network
}

// String gives the target as ParseTargets reads it.
func (t Target) String() string {
	switch {
	case t.host != "":
		return t.host
	case t.network.IsSingleIP():
		return t.network.Addr().String()
	}
	return t.network.String()
}

// ParseTargets reads host names, addresses and networks with commas between, such as
// "hooks.internal,10.1.2.3,10.9.0.0/16", as --egress-allow-private takes them. Nothing
// gives no target.
func ParseTargets(s string) ([]Target, error) {
	var list []Target
	if strings.TrimSpace(s) == "" {
		return list, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		t, err := parsePrivate(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%q is no private target: %w", part, err)
		}
		list = append(list, t)
	}
	return list, nil
}

func parsePrivate(s string) (Target, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return Target{network: p}, checkPrivate(p)
	}
	if a, err := netip.ParseAddr(s); err == nil {
		p := netip.PrefixFrom(a, a.BitLen())
		return Target{network: p}, checkPrivate(p)
	}
	host := strings.ToLower(s)
	if err := checkHost(host, false); err != nil || strings.ContainsAny(s, "/:[]") || isLocalhost(host) {
		return Target{}, errors.New("write a host name, an address, or a network such as 10.9.0.0/16, with commas between")
	}
	return Target{host: host}, nil
}

// checkPrivate refuses networks of which the hub calls nothing on anybody's word, and
// those that would open more than a private network.
func checkPrivate(p netip.Prefix) error {
	if p != p.Masked() {
		return fmt.Errorf("write the network as %s", p.Masked())
	}
	first, _ := classify(p.Addr())
	if first != private || p.Addr().Is4() && p.Bits() < 8 || p.Addr().Is6() && p.Bits() < 7 {
		return errors.New("it is not in a private network (10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fc00::/7)")
	}
	return nil
}

// opens reports whether one of the targets is an address that a host has.
func opens(list []Target, host string, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(t Target) bool {
		return t.host == host && host != "" || t.host == "" && t.network.Contains(a.Unmap())
	})
}
