package remotea2a

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// cardLife is how long what a card says counts before it is read again.
const cardLife = 5 * time.Minute

// cardMax bounds a card, in bytes.
const cardMax = 1 << 20

// agent is how to talk to an agent.
type agent struct {
	url     string // of the binding
	binding string // by its name in cards
	tenant  string // to be named in each request, if the card has one
	v03     bool   // 0.3 or 0.2, else 1.0
	streams bool
	// single: it takes one task at a time, and starts anew with each message.
	single bool
	until  time.Time // what the card says counts
}

// agents remembers how to talk to agents, by the URL that they were registered with.
type agents struct {
	mu    sync.Mutex
	m     map[string]*agent
	gates map[string]chan struct{} // of those that take one task at a time
}

// agentsMax bounds how many are remembered.
const agentsMax = 10_000

func (s *agents) known(url string) *agent {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[url]
}

func (s *agents) keep(url string, a *agent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil || len(s.m) >= agentsMax {
		s.m = make(map[string]*agent)
	}
	s.m[url] = a
}

// alone waits until no other task is at an agent; leave has to be called then.
func (s *agents) alone(ctx context.Context, url string) (leave func(), err error) {
	s.mu.Lock()
	if s.gates == nil {
		s.gates = make(map[string]chan struct{})
	}
	gate := s.gates[url]
	if gate == nil {
		gate = make(chan struct{}, 1)
		s.gates[url] = gate
	}
	s.mu.Unlock()
	select {
	case gate <- struct{}{}:
		return func() { <-gate }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// find gives how to talk to the agent of p, as its card says. One without a card is
// taken for one of 1.0 with JSON-RPC at the URL itself.
func (s *agents) find(ctx context.Context, p *peer) (*agent, error) {
	if a := s.known(p.url); a != nil && time.Now().Before(a.until) {
		return a, nil
	}
	return s.read(ctx, p)
}

// read reads the card of the agent of p, and keeps what it says.
func (s *agents) read(ctx context.Context, p *peer) (*agent, error) {
	a, facts, err := read(ctx, p)
	if err != nil {
		return nil, err
	}
	a.until = time.Now().Add(cardLife)
	s.keep(p.url, a)
	p.d.known.keep(p.address, p.endpoint, facts, cardLife)
	return a, nil
}

// read looks for the card: below the endpoint, and at the root of its host. Without one
// there are no facts.
func read(ctx context.Context, p *peer) (*agent, *hub.AgentFacts, error) {
	base, err := url.Parse(p.url)
	if err != nil {
		return nil, nil, errors.New("the URL of the endpoint is not valid") // the error repeats it
	}
	root := &url.URL{Scheme: base.Scheme, Host: base.Host}
	seen := map[string]bool{}
	for _, at := range []*url.URL{base, root} {
		for _, name := range []string{"agent-card.json", "agent.json"} {
			place := at.JoinPath(".well-known", name).String()
			if seen[place] {
				continue
			}
			seen[place] = true
			body, err := p.fetch(ctx, place, cardMax)
			if isAway(err) {
				continue
			}
			if err == nil {
				body, err = p.verified(ctx, place, body)
			}
			if err != nil {
				return nil, nil, err
			}
			a, isCard := understand(base, body, p.http2 != nil)
			if a != nil {
				return a, factsOf(base, body), nil
			}
			if isCard {
				return nil, nil, &unsent{"its card offers neither JSON-RPC, HTTP+JSON nor, outside of a tunnel, gRPC of 1.0, and the hub calls agents by nothing else"}
			}
		}
	}
	return &agent{url: p.url, binding: jsonRPC}, nil, nil
}

// isAway reports whether there is nothing at a place for the hub, which is no trouble.
func isAway(err error) bool {
	var s *statusError
	var a *agentError
	return errors.As(err, &a) || errors.As(err, &s) && s.status/100 == 4 && s.status != http.StatusRequestTimeout && s.status != http.StatusTooManyRequests
}

// card is what counts of an agent card, of 1.0 or of 0.3.
type card struct {
	Interfaces []struct {
		URL, ProtocolBinding, ProtocolVersion, Tenant string
	} `json:"supportedInterfaces"`
	Capabilities struct{ Streaming bool }

	ProtocolVersion, URL, PreferredTransport string
	Additional                               []struct{ URL, Transport string } `json:"additionalInterfaces"`
}

// offer is a way to talk to an agent that its card names.
type offer struct {
	url, binding, tenant string
	v03                  bool
}

// The bindings, by their names in cards.
const (
	jsonRPC  = "JSONRPC"
	httpJSON = "HTTP+JSON"
	overGRPC = "GRPC"
)

// understand gives the best way to talk to the agent whose card that is, nil if it offers
// none that the hub knows. grpc says whether that is one.
func understand(base *url.URL, body []byte, grpc bool) (a *agent, isCard bool) {
	var c card
	if json.Unmarshal(body, &c) != nil {
		return nil, false
	}
	var offers []offer
	for _, i := range c.Interfaces {
		offers = append(offers, offer{i.URL, i.ProtocolBinding, i.Tenant, strings.HasPrefix(i.ProtocolVersion, "0.")})
	}
	if len(offers) == 0 && (c.URL != "" || c.ProtocolVersion != "") {
		transport := c.PreferredTransport
		if transport == "" {
			transport = jsonRPC
		}
		offers = append(offers, offer{url: c.URL, binding: transport, v03: true})
		for _, i := range c.Additional {
			offers = append(offers, offer{url: i.URL, binding: i.Transport, v03: true})
		}
	}
	for _, want := range []offer{{binding: jsonRPC}, {binding: httpJSON}, {binding: overGRPC}, {binding: jsonRPC, v03: true}} {
		for _, o := range offers {
			if !strings.EqualFold(o.binding, want.binding) || o.v03 != want.v03 || want.binding == overGRPC && !grpc {
				continue
			}
			at := place(base, o.url)
			if want.binding == overGRPC {
				at = grpcPlace(base, o.url)
			}
			return &agent{
				url: at, binding: want.binding, tenant: o.tenant, v03: o.v03, streams: c.Capabilities.Streaming,
				// FastA2A says so of itself, the older one by its version.
				single: !c.Capabilities.Streaming && o.v03 && strings.HasPrefix(c.ProtocolVersion, "0.2"),
			}, true
		}
	}
	return nil, len(offers) > 0
}

// place is where a binding is: at the host that the agent was registered with, whatever
// its card says. Behind proxies and in containers cards name hosts that lead elsewhere or
// nowhere; then the path that the agent was registered with counts, unless the card has
// one.
func place(base *url.URL, says string) string {
	u, err := url.Parse(says)
	if err != nil || strings.Trim(u.Path, "/") == "" && u.Host != base.Host {
		return base.String()
	}
	at := *base
	at.Path, at.RawPath, at.RawQuery = u.Path, u.RawPath, u.RawQuery
	return at.String()
}
