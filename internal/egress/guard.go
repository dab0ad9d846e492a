package egress

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Resolver finds the addresses of a name; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Options are the settings of a Guard. What is zero has the default named with it.
type Options struct {
	// AllowLocal are the ports at which loopback may be called, by everyone who may
	// give the hub a URL. Default: none.
	AllowLocal []PortRange
	// AllowPrivate are the targets in private networks that may be called, by everyone
	// who may give the hub a URL. Default: none.
	AllowPrivate []Target
	// Resolver finds the addresses of names. Default: that of the system.
	Resolver Resolver
	// RootCAs sign the certificates of targets. Default: those of the system.
	RootCAs *x509.CertPool
	// Log gets what went wrong, with the addresses that errors leave out, and neither
	// paths, queries, headers nor bodies. Default: nothing is logged.
	Log *slog.Logger
	// About says for the log on whose behalf something was refused: of the request that a
	// context belongs to. Default: nothing is said.
	About func(context.Context) []any

	// LookupTimeout bounds the lookup of a name when a URL is saved. Default: 3 s.
	LookupTimeout time.Duration
	// DialTimeout bounds lookup and connecting, all addresses together. Default: 5 s.
	DialTimeout time.Duration
	// TLSTimeout bounds the TLS handshake. Default: 5 s.
	TLSTimeout time.Duration
	// HeaderTimeout bounds the wait for the answer's header after the request was
	// written. Default: 30 s, the most that A2A recommends for push notifications.
	HeaderTimeout time.Duration
	// Timeout bounds a request from its slot (see QueueWait) to the end of the
	// answer's body. Default: 60 s.
	Timeout time.Duration

	// MaxResponse is the most bytes that an answer's body may have. Default: 1 MiB.
	MaxResponse int64
	// PerTarget is how many requests to one host and port may be under way.
	// Default: 8.
	PerTarget int
	// Global is how many requests may be under way in all. Default: 256.
	Global int
	// QueueWait is how long a request waits until it may be under way. Default: 10 s.
	QueueWait time.Duration
}

// withDefaults fills in what is zero.
func (o Options) withDefaults() Options {
	if o.Resolver == nil {
		o.Resolver = net.DefaultResolver
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.About == nil {
		o.About = func(context.Context) []any { return nil }
	}
	o.LookupTimeout = cmp.Or(o.LookupTimeout, 3*time.Second)
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.TLSTimeout = cmp.Or(o.TLSTimeout, 5*time.Second)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 30*time.Second)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.MaxResponse = cmp.Or(o.MaxResponse, 1<<20)
	o.PerTarget = cmp.Or(o.PerTarget, 8)
	o.Global = cmp.Or(o.Global, 256)
	o.QueueWait = cmp.Or(o.QueueWait, 10*time.Second)
	return o
}

// Permit is what the administrator allows for one target.
type Permit struct {
	// Private allows addresses of private networks. It opens neither loopback nor
	// metadata.
	Private bool
}

// Guard lets requests out. Its methods may be called from several goroutines.
type Guard struct {
	opt    Options
	limits *limiter
	// Connections are kept apart by permit: one that was made with a permission must
	// not serve a request without.
	open, withPrivate         *tripper
	openHTTP2, privatelyHTTP2 *tripper // of HTTP2Client
}

// New makes a guard. Close frees its idle connections.
func New(o Options) *Guard {
	o = o.withDefaults()
	g := &Guard{opt: o, limits: newLimiter(o.PerTarget, o.Global, o.QueueWait)}
	g.open = newTripper(g, Permit{}, nil)
	g.withPrivate = newTripper(g, Permit{Private: true}, nil)
	http2 := new(http.Protocols)
	http2.SetHTTP2(true)
	http2.SetUnencryptedHTTP2(true)
	g.openHTTP2 = newTripper(g, Permit{}, http2)
	g.privatelyHTTP2 = newTripper(g, Permit{Private: true}, http2)
	return g
}

// Close closes idle connections. Requests under way go on.
func (g *Guard) Close() {
	for _, t := range []*tripper{g.open, g.withPrivate, g.openHTTP2, g.privatelyHTTP2} {
		t.transport.CloseIdleConnections()
	}
}

// Client gives the HTTP client for requests under a permit; see the package's
// documentation for what it refuses and how it fails. Clients of one guard share
// connections and limits. The answer's body has to be closed; until then its slot is
// taken, at most for Options.Timeout.
func (g *Guard) Client(p Permit) *http.Client {
	t := g.open
	if p.Private {
		t = g.withPrivate
	}
	return &http.Client{Transport: t, CheckRedirect: noRedirect}
}

// HTTP2Client is Client for what speaks HTTP/2 alone, as gRPC does: over TLS, and where
// the URL is http without it, with nothing agreed on before.
func (g *Guard) HTTP2Client(p Permit) *http.Client {
	t := g.openHTTP2
	if p.Private {
		t = g.privatelyHTTP2
	}
	return &http.Client{Transport: t, CheckRedirect: noRedirect}
}

// noRedirect has the client give the 3xx to its caller.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Check judges a URL that is to be saved. Its errors are hub.Invalid with the field
// "url", which callers may rename. It looks names up, for Options.LookupTimeout at
// most; a name that leads nowhere just now is accepted, since DNS may be down or the
// name may come later, and every dial judges again.
func (g *Guard) Check(ctx context.Context, rawURL string, p Permit) error {
	t, err := g.parse(rawURL)
	if err != nil {
		g.opt.Log.InfoContext(ctx, "egress: refused a URL", g.about(ctx, "reason", err.Error())...)
		return hub.InvalidField("url", "%s", err)
	}
	ctx, cancel := context.WithTimeout(ctx, g.opt.LookupTimeout)
	defer cancel()
	addrs, err := g.resolve(ctx, t.host)
	if err != nil {
		g.opt.Log.InfoContext(ctx, "egress: a new target cannot be resolved yet", "host", t.host, "error", err)
		return nil
	}
	if err := g.judgeAll(ctx, t, addrs, p); err != nil {
		return hub.InvalidField("url", "%s", err)
	}
	return nil
}

// CheckHeader judges a header's value that is to be saved or put together from what is
// saved, such as a credential. field is the path of the field for the error, which is
// hub.Invalid and does not repeat the value.
func CheckHeader(field, value string) error {
	if !validValue(value) {
		return hub.InvalidField(field, "there is a control character, such as a line break, in the value; take it out")
	}
	return nil
}

// parse reads where a URL leads and judges what it can without looking names up.
func (g *Guard) parse(rawURL string) (target, error) {
	t, err := parseTarget(rawURL)
	if err != nil {
		return target{}, err
	}
	if speaksOther(t.port) && !within(g.opt.AllowLocal, t.port) {
		return target{}, otherProtocol(t.port)
	}
	return t, nil
}

func otherProtocol(port uint16) error {
	return fmt.Errorf("port %d belongs to another protocol than HTTP; use another port", port)
}

// judgeAll judges all addresses that a target has.
func (g *Guard) judgeAll(ctx context.Context, t target, addrs []netip.Addr, p Permit) error {
	for _, a := range addrs {
		if err := g.judge(t, a, p); err != nil {
			g.opt.Log.WarnContext(ctx, "egress: refused a target", g.about(ctx, "target", t.String(), "address", a.String())...)
			return err
		}
	}
	return nil
}

// about adds to a line of the log whom it is about.
func (g *Guard) about(ctx context.Context, line ...any) []any {
	return append(line, g.opt.About(ctx)...)
}

// judge says why the hub does not call one of the addresses of a target, if so. The
// error names the target's host only, as the user wrote it.
func (g *Guard) judge(t target, a netip.Addr, p Permit) error {
	c, what := classify(a)
	is := "leads to"
	if _, err := netip.ParseAddr(t.host); err == nil {
		is = "is"
	}
	switch {
	case c == loopback && within(g.opt.AllowLocal, t.port):
		return nil
	case c == loopback:
		return fmt.Errorf("%s %s %s, which the hub does not call at port %d; give a public address, or have the operator name the port with --egress-allow-local", t.host, is, what, t.port)
	case c == private && !p.Private && !opens(g.opt.AllowPrivate, t.host, a):
		return fmt.Errorf("%s %s %s, which the hub calls with its administrator's permission for this target only; ask for it (--egress-allow-private), or give a public address", t.host, is, what)
	case c == never:
		return fmt.Errorf("%s %s %s, which the hub never calls; give a public address", t.host, is, what)
	case speaksOther(t.port): // AllowLocal names it, but this is not loopback
		return otherProtocol(t.port)
	default:
		return nil
	}
}
