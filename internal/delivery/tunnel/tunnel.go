// Package tunnel takes the tunnels of agents that no connection can be made to: behind a
// firewall, on a laptop. Their machine opens one WebSocket to the hub, which carries
// HTTP/2 with the hub as the client, and so the hub calls them as it calls any A2A server.
//
// Each tunnel is an instance of its address, with slots, which the dispatcher delivers
// through. Some of its local server's paths may be open to outside services, too; see
// Host.Relay.
package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/relaypath"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

const (
	// helloTime is how long the first words to the other end may take.
	helloTime = 10 * time.Second
	// maxName and maxTarget bound what a tunnel says of itself, in characters.
	maxName, maxTarget = 100, 1000
)

// Options configure a Host. Those without a default are required.
type Options struct {
	// Connect gives the dispatcher a connection; see delivery.Dispatcher.
	Connect func(delivery.Connection) (leave func(), finish func(context.Context), err error)
	// Deliverer makes what delivers through a tunnel: a client of the agent whose
	// requests all go through rt, whatever host they name. rt fails with *egress.Error.
	Deliverer func(rt http.RoundTripper) delivery.Deliverer
	// Who tells who makes a request, from its context, which has to end with the
	// credential.
	Who func(context.Context) (hub.Principal, error)
	// Address finds a living address by its handle: for relayed requests. Others than
	// NotFound and NotPermitted are the hub's own trouble.
	Address func(ctx context.Context, handle string) (*hub.Address, error)
	// Peers are the other replicas of the hub; nil if there are none.
	Peers *Peers
	// PerAddress and InAll bound the open tunnels. Defaults: 64 and 10,000.
	PerAddress, InAll int
	// Ping and Patience are those of tunnelconn by default.
	Ping, Patience time.Duration
	// MaxBody bounds the body of a relayed request, and MaxAnswer every answer, in bytes.
	// Defaults: 8 MiB and 128 MiB.
	MaxBody, MaxAnswer int64
	// BodyPause is how long the body of a relayed request may pause. Default: 10 s.
	BodyPause time.Duration
	// Log gets what went wrong, and which tunnels come and go. Default: nothing is logged.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.PerAddress == 0 {
		o.PerAddress = 64
	}
	if o.InAll == 0 {
		o.InAll = 10_000
	}
	if o.Ping == 0 {
		o.Ping = tunnelconn.Ping
	}
	if o.Patience == 0 {
		o.Patience = tunnelconn.Patience
	}
	if o.MaxBody == 0 {
		o.MaxBody = 8 << 20
	}
	if o.BodyPause == 0 {
		o.BodyPause = 10 * time.Second
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = 128 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Host takes tunnels: it is the handler of tunnelconn.Path. Make one with New; Drain and
// Close it when the hub stops.
type Host struct {
	opt       Options
	transport *http.Transport
	handlers  sync.WaitGroup

	mu       sync.Mutex
	draining bool
	count    map[string]int              // handlers by address id
	total    int                         // handlers
	links    map[string]map[string]*link // by handle, and by instance
	relaying map[string]int              // relayed requests under way, by handle
}

// New makes a Host.
func New(opt Options) *Host {
	opt = opt.withDefaults()
	return &Host{
		opt: opt, transport: newTransport(opt),
		count: make(map[string]int), links: make(map[string]map[string]*link), relaying: make(map[string]int),
	}
}

// newTransport makes what speaks HTTP/2 over tunnels, each of which it finds in a context.
// What an agent sends without being asked for it is bounded: each stream has little, and
// all of them together.
func newTransport(opt Options) *http.Transport {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Transport{
		Protocols: &p, DisableCompression: true, MaxResponseHeaderBytes: tunnelconn.MaxHeader,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: 512 << 10, MaxReceiveBufferPerConnection: 32 << 20, MaxReadFrameSize: tunnelconn.MaxFrame,
			SendPingTimeout: opt.Ping, PingTimeout: opt.Patience,
		},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, ok := ctx.Value(connKey{}).(*tunnelconn.Conn)
			if !ok {
				return nil, errNoTunnel
			}
			return conn, nil
		},
	}
}

// connKey is the context key of the tunnel that is to be spoken over.
type connKey struct{}

var errNoTunnel = errors.New("there is no tunnel")

// offer is what a tunnel says of itself.
type offer struct {
	instance string
	slots    int
	exec     bool     // a command is the agent: there is no server to relay to
	target   string   // the URL of the local server
	relay    []string // the prefixes of its paths that are open to outside services
}

// readOffer reads the query of a request for a tunnel.
func readOffer(q url.Values) (offer, error) {
	o := offer{instance: q.Get("instance"), exec: q.Get("exec") == "true", target: q.Get("to"), relay: q["relay"]}
	if !validName(o.instance) {
		return o, hub.InvalidField("instance", "a tunnel needs a name of 1 to %d letters, digits, dots, dashes and underscores", maxName)
	}
	var err error
	if o.slots, err = strconv.Atoi(q.Get("slots")); err != nil || o.slots < 1 || o.slots > tunnelconn.MaxSlots {
		return o, hub.InvalidField("slots", "slots is how many tasks the agent works on at once, 1 to %d", tunnelconn.MaxSlots)
	}
	if o.exec {
		o.target = "http://command.tunnel/"
	}
	u, err := url.Parse(o.target)
	if err != nil || len(o.target) > maxTarget || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return o, hub.InvalidField("to", "to has to be the URL of the agent's local server, such as http://localhost:9000, without user, query or fragment")
	}
	if o.exec && len(o.relay) > 0 {
		return o, hub.InvalidField("relay", "a tunnel to a command has no server that requests could be relayed to")
	}
	if err := relaypath.CheckPrefixes(o.relay); err != nil {
		return o, hub.InvalidField("relay", "%v", err)
	}
	return o, nil
}

func validName(s string) bool {
	if s == "" || len(s) > maxName {
		return false
	}
	for _, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !('0' <= c && c <= '9') && strings.IndexByte("._-", c) < 0 {
			return false
		}
	}
	return true
}

// ServeHTTP takes a tunnel, and returns when that has ended.
func (h *Host) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, o, err := h.admit(r)
	if err != nil {
		httpx.WriteError(w, httpx.Public(r.Context(), h.opt.Log, err))
		return
	}
	defer h.exit(p.Address)
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{tunnelconn.Protocol}})
	if err != nil {
		h.opt.Log.InfoContext(r.Context(), "a tunnel was not opened", "address", p.Address, "error", err)
		return
	}
	h.serve(r.Context(), p, o, tunnelconn.New(ws))
}

// admit decides whether a request may open a tunnel, and if so counts it until exit.
func (h *Host) admit(r *http.Request) (hub.Principal, offer, error) {
	p, err := h.opt.Who(r.Context())
	if err != nil {
		return p, offer{}, err
	}
	if p.Role != hub.RoleAgent {
		return p, offer{}, hub.Errorf(hub.NotPermitted, "a tunnel is opened with a token of the agent's own address; make one with holdfast tokens add")
	}
	o, err := readOffer(r.URL.Query())
	if err != nil {
		return p, o, err
	}
	if err := checkUpgrade(r); err != nil {
		return p, o, err
	}
	return p, o, h.enter(p.Address)
}

// checkUpgrade refuses what is no WebSocket of ours, in words.
func checkUpgrade(r *http.Request) error {
	if r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return hub.Errorf(hub.Invalid, "this is where holdfast tunnel connects with a WebSocket, over HTTP/1.1; if you use that, a proxy on the way does not let WebSockets through")
	}
	for _, list := range r.Header["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(p) == tunnelconn.Protocol {
				return nil
			}
		}
	}
	return hub.Errorf(hub.Invalid, "the WebSocket has to ask for the subprotocol %s, which this hub speaks; use a holdfast of the hub's version", tunnelconn.Protocol)
}

// enter counts a tunnel of an address in.
func (h *Host) enter(address string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.draining:
		return hub.Errorf(hub.Unavailable, "the hub is about to stop; connect again in a moment")
	case h.count[address] >= h.opt.PerAddress:
		return hub.Errorf(hub.RateLimited, "this address has %d tunnels open, which is the most that one may have; close some, or give them more slots", h.opt.PerAddress)
	case h.total >= h.opt.InAll:
		return hub.Errorf(hub.Unavailable, "the hub has %d tunnels open, which is the most that it takes; its administrator can raise --tunnels", h.opt.InAll)
	}
	h.count[address]++
	h.total++
	h.handlers.Add(1)
	return nil
}

func (h *Host) exit(address string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count[address]--; h.count[address] == 0 {
		delete(h.count, address)
	}
	h.total--
	h.handlers.Done()
}

// serve serves an open tunnel until it ends.
func (h *Host) serve(ctx context.Context, p hub.Principal, o offer, conn *tunnelconn.Conn) {
	defer conn.Close()
	log := h.opt.Log.With("address", p.Handle, "instance", o.instance)
	l, err := h.greet(p, o, conn)
	if err != nil {
		log.InfoContext(ctx, "a tunnel was not opened: its other end does not speak HTTP/2", "error", err)
		return
	}
	h.add(l)
	defer h.remove(l)
	leave, finish, err := h.opt.Connect(delivery.Connection{
		Address: p.Address, Instance: o.instance, Slots: o.slots, Deliverer: h.opt.Deliverer(l),
		Endpoint: hub.Endpoint{Kind: hub.TunnelDelivery, URL: o.target}, Relay: o.relay,
		Replaced: func() { conn.CloseWith(tunnelconn.Replaced, "another tunnel of this instance was opened") },
	})
	if err != nil {
		why := httpx.Public(ctx, log, err)
		conn.CloseWith(websocket.StatusTryAgainLater, clip(why.Message))
		return
	}
	defer leave()
	log.InfoContext(ctx, "a tunnel was opened", "slots", o.slots)
	heeded := h.heed(l, finish)
	h.wait(ctx, l)
	<-heeded
	log.InfoContext(ctx, "a tunnel has ended", "why", conn.Err())
}

// greet begins to speak HTTP/2 with the other end.
func (h *Host) greet(p hub.Principal, o offer, conn *tunnelconn.Conn) (*link, error) {
	ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), connKey{}, conn), helloTime)
	defer cancel()
	cc, err := h.transport.NewClientConn(ctx, "http", "agent.tunnel:80")
	if err != nil {
		return nil, err
	}
	return &link{offer: o, handle: p.Handle, address: p.Address, conn: conn, cc: cc, maxAnswer: h.opt.MaxAnswer}, nil
}

// wait waits until a tunnel has ended, or its credential. The end of the request for any
// other reason is the hub's, which closes the tunnels when it has delivered what it can.
func (h *Host) wait(ctx context.Context, l *link) {
	select {
	case <-l.conn.Done():
		return
	case <-ctx.Done():
	}
	if hub.KindOf(context.Cause(ctx)) == hub.Unauthenticated {
		l.conn.CloseWith(tunnelconn.Ended, "the token was revoked or has expired")
	}
	<-l.conn.Done()
}

// add makes a tunnel the one of its instance, and ends the one before.
func (h *Host) add(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.links[l.handle]
	if of == nil {
		of = make(map[string]*link)
		h.links[l.handle] = of
	}
	if old := of[l.instance]; old != nil {
		go old.conn.CloseWith(tunnelconn.Replaced, "another tunnel of this instance was opened")
	}
	of[l.instance] = l
	if h.draining {
		go l.conn.CloseWith(websocket.StatusGoingAway, "the hub is about to stop")
	}
}

func (h *Host) remove(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := h.links[l.handle]
	if of[l.instance] == l {
		delete(of, l.instance)
	}
	if len(of) == 0 {
		delete(h.links, l.handle)
	}
}

// Open is how many tunnels are open.
func (h *Host) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, of := range h.links {
		n += len(of)
	}
	return n
}

// Drain takes no more tunnels, and sends those away that nothing goes through just now,
// so that they connect elsewhere. The others last until Close.
func (h *Host) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
	for l := range h.each() {
		if l.inFlight() == 0 {
			go l.conn.CloseWith(websocket.StatusGoingAway, "the hub is about to stop")
		}
	}
}

// Close sends all tunnels away and waits until they have ended.
func (h *Host) Close() {
	h.mu.Lock()
	h.draining = true
	for l := range h.each() {
		go l.conn.CloseWith(websocket.StatusGoingAway, "the hub is about to stop")
	}
	h.mu.Unlock()
	h.handlers.Wait()
}

// each goes through all tunnels. mu is held.
func (h *Host) each() func(func(*link) bool) {
	return func(yield func(*link) bool) {
		for _, of := range h.links {
			for _, l := range of {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// pick gives the least busy tunnel of an address through which an outside service may
// reach a path, nil if there is none, and whether there are tunnels at all.
func (h *Host) pick(a *hub.Address, path string) (best *link, any bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	least := 0
	for _, l := range h.links[a.Handle] {
		if l.address != a.ID {
			continue
		}
		any = true
		if l.exec || l.leaving.Load() || !relaypath.Allowed(path, l.relay) {
			continue
		}
		if n := l.inFlight(); best == nil || n < least {
			best, least = l, n
		}
	}
	return best, any
}

// clip makes a text fit into a close frame.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}
