package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// maxAddresses bounds how many addresses of one name are tried.
const maxAddresses = 8

// dial connects to host:port. It looks the name up, judges all addresses, and connects
// to one of them by address, so that nobody can change where the name leads in between.
func (g *Guard) dial(ctx context.Context, addr string, p Permit) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, g.opt.DialTimeout)
	defer cancel()
	host, portText, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("egress: dial: %w", err)
	}
	port, ok := parsePort(portText)
	if !ok {
		return nil, fmt.Errorf("egress: dial: %q is no port", portText)
	}
	t := target{strings.ToLower(host), port}
	addrs, err := g.resolve(ctx, t.host)
	if err != nil {
		g.opt.Log.InfoContext(ctx, "egress: a name cannot be resolved", "host", t.host, "error", err)
		return nil, &Error{Reason: Unresolved, Message: t.host + ": this name leads to no address just now; see whether it is right and its DNS works", cause: err}
	}
	if err := g.judgeAll(ctx, t, addrs, p); err != nil {
		return nil, &Error{Reason: Refused, Message: err.Error()}
	}
	return g.connectAny(ctx, t, addrs[:min(len(addrs), maxAddresses)], p)
}

// resolve gives the addresses of a host, at least one. An address is its own, and
// localhost is never looked up.
func (g *Guard) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	if isLocalhost(host) {
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
	}
	addrs, err := g.opt.Resolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no addresses")
	}
	return addrs, err
}

// connectAny tries the addresses in order, each for its share of the time that is left.
func (g *Guard) connectAny(ctx context.Context, t target, addrs []netip.Addr, p Permit) (net.Conn, error) {
	var errs []error
	for i, a := range addrs {
		conn, err := g.connect(ctx, t, a, p, len(addrs)-i)
		if err == nil {
			return conn, nil
		}
		g.opt.Log.InfoContext(ctx, "egress: cannot connect", "target", t.String(), "address", a.String(), "error", err)
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// connect connects to one address of a target in 1/share of the time that is left. It
// judges what the system is about to connect to once more at the last moment, which
// holds even if the code before it is wrong.
func (g *Guard) connect(ctx context.Context, t target, a netip.Addr, p Permit, share int) (net.Conn, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(share))
		defer cancel()
	}
	d := net.Dialer{ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("egress: dial: %w", err)
		}
		if err := g.judge(target{t.host, ap.Port()}, ap.Addr(), p); err != nil {
			return &Error{Reason: Refused, Message: err.Error()}
		}
		return nil
	}}
	return d.DialContext(ctx, "tcp", netip.AddrPortFrom(a.Unmap(), t.port).String())
}
