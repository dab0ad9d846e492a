package remotea2a

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Doer sends requests: a client of an egress.Guard or of a tunnel, which follows no
// redirects and fails with *egress.Error.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Options are the settings of a Deliverer. What is zero has the default named with it.
type Options struct {
	// Public sends to public addresses, Private to those in private networks, too.
	Public, Private Doer
	// PublicHTTP2 and PrivateHTTP2 are the same for HTTP/2, with TLS or without. Default:
	// none, and no agent is called over gRPC.
	PublicHTTP2, PrivateHTTP2 Doer
	// Sealer opens the secrets of endpoints that have some.
	Sealer hub.Sealer
	// MaxAnswer is the most bytes that an answer, or an event of a stream, may have.
	// Default: 8 MiB.
	MaxAnswer int64
	// Silence is how long a stream may say nothing, comments included, and how long any
	// other answer may take. Default: 2 min.
	Silence time.Duration
	// PollMin and PollMax bound the time between two questions for a task; it grows.
	// Defaults: 250 ms and 5 s.
	PollMin, PollMax time.Duration
	// UserAgent is how the hub calls itself. Default: Holdfast.
	UserAgent string
	// Log gets what went wrong, without secrets. Default: nothing is logged.
	Log *slog.Logger
}

// Deliverer delivers tasks to A2A servers. Make one with New. It implements
// delivery.Deliverer, delivery.Canceler and delivery.Capacity, and hub.Agents for the
// addresses whose endpoints it delivers to.
type Deliverer struct {
	opt    Options
	agents agents
	known  known
}

// New makes a Deliverer.
func New(opt Options) *Deliverer {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.MaxAnswer = cmp.Or(opt.MaxAnswer, 8<<20)
	opt.Silence = cmp.Or(opt.Silence, 2*time.Minute)
	opt.PollMin, opt.PollMax = cmp.Or(opt.PollMin, 250*time.Millisecond), cmp.Or(opt.PollMax, 5*time.Second)
	opt.UserAgent = cmp.Or(opt.UserAgent, "Holdfast")
	return &Deliverer{opt: opt}
}

// Slots implements delivery.Capacity: an agent that takes one task at a time hangs when it
// gets a second one, so it gets one alone.
func (d *Deliverer) Slots(e hub.Endpoint) int {
	if a := d.agents.known(e.URL); a != nil && a.single {
		return 1
	}
	return 0
}

// Deliver implements delivery.Deliverer.
func (d *Deliverer) Deliver(ctx context.Context, x delivery.Delivery) delivery.Outcome {
	c, err := d.peer(ctx, x.Endpoint, x.Task.Callee.ID, x.Sent)
	if err != nil {
		return outcomeOf(err, false)
	}
	if c.agent.single { // which may have come out with the first of several tasks only
		leave, err := d.agents.alone(ctx, x.Endpoint.URL)
		if err != nil {
			return delivery.Outcome{Kind: delivery.Unsent, Busy: true, Reason: "the agent takes one task at a time"}
		}
		defer leave()
	}
	if err := hub.Reserve(ctx, size(x.Task)); err != nil {
		return delivery.Outcome{Kind: delivery.Unsent, Busy: true, Reason: "the hub is busy with other large tasks"}
	}
	c.header.Set("Holdfast-Task", x.Task.ID)
	c.header.Set("X-Parent-Call", x.Task.CallID())
	f := &following{peer: c, x: x, told: map[string]bool{}}
	return f.run(ctx)
}

// Cancel implements delivery.Canceler. The agent is asked for the task first: some break
// when they are to cancel one that they do not have.
func (d *Deliverer) Cancel(ctx context.Context, e hub.Endpoint, x hub.Dispatch) (hub.CancelOutcome, error) {
	if x.RemoteTask == "" {
		return hub.CancelUnconfirmed, nil
	}
	ctx, cancel := context.WithTimeout(ctx, d.opt.Silence)
	defer cancel()
	c, err := d.peer(ctx, e, x.Address, nil)
	if err != nil {
		return 0, err
	}
	t, err := c.get(ctx, x.RemoteTask)
	switch {
	case isNotFound(err):
		return hub.CancelUnconfirmed, nil
	case err != nil:
		return 0, err
	case t.state == hub.Canceled:
		return hub.CancelConfirmed, nil
	case t.state.Terminal():
		return hub.CancelAlreadyFinished, nil
	}
	t, err = c.cancel(ctx, x.RemoteTask)
	var said *agentError
	switch {
	case errors.As(err, &said): // it will not, or the task has just ended
		if now, err := c.get(ctx, x.RemoteTask); err == nil && now.state.Terminal() && now.state != hub.Canceled {
			return hub.CancelAlreadyFinished, nil
		}
		return hub.CancelUnconfirmed, nil
	case err != nil:
		return 0, err
	case t.state == hub.Canceled:
		return hub.CancelConfirmed, nil
	case t.state.Terminal():
		return hub.CancelAlreadyFinished, nil
	}
	return hub.CancelUnconfirmed, nil
}

// peer finds out how to talk to the agent of an endpoint.
func (d *Deliverer) peer(ctx context.Context, e hub.Endpoint, address string, sent func()) (*peer, error) {
	p, err := d.open(ctx, e, address)
	if err != nil {
		return nil, err
	}
	a, err := d.agents.find(ctx, p)
	if err != nil {
		// Nothing of the task has left, whatever became of the request for the card.
		return nil, &unsent{"its agent card cannot be used: " + outcomeOf(err, false).Reason}
	}
	p.agent, p.sent = a, sent
	return p, nil
}

// open gives what can make requests to the agent of an endpoint.
func (d *Deliverer) open(ctx context.Context, e hub.Endpoint, address string) (*peer, error) {
	p := &peer{d: d, doer: d.opt.Public, http2: d.opt.PublicHTTP2, header: http.Header{}, url: e.URL, address: address, endpoint: &e}
	if e.Private {
		p.doer, p.http2 = d.opt.Private, d.opt.PrivateHTTP2
	}
	if len(e.Sealed) > 0 {
		clear, err := d.opt.Sealer.Open(e.Sealed, hub.EndpointAbout(address))
		var s hub.EndpointSecrets
		if err == nil && json.Unmarshal(clear, &s) != nil {
			err = errors.New("they cannot be read") // the decoder's words may show them
		}
		if err != nil {
			d.opt.Log.ErrorContext(ctx, "the secrets of an agent's endpoint cannot be opened", "address", address, "error", err)
			return nil, &unsent{"the hub cannot open the secrets of this endpoint; set it anew"}
		}
		authorise(p.header, &e, s.Credential)
	}
	p.header.Set("User-Agent", d.opt.UserAgent)
	return p, nil
}

// size is about how many bytes a send of the task has.
func size(t *hub.Task) (n int64) {
	for i := range t.History {
		n += int64(len(t.History[i].Body))
	}
	return n
}
