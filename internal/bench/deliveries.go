package bench

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

// tunnelSlots is how many tasks go through the tunnel at once.
const tunnelSlots = 64

// deliveries measures what going through the hub adds to a call of an agent that the hub
// calls: as a webhook, as an A2A server, and as one behind a tunnel.
func deliveries(ctx context.Context, r *run) error {
	// The agents are on loopback, which takes the operator's word.
	h, err := r.startHubWith(ctx, newAdminToken(), "HOLDFAST_EGRESS_ALLOW_LOCAL=1024-65535")
	if err != nil {
		return err
	}
	defer h.stop()
	callers, err := h.agents(ctx, "caller", 4)
	if err != nil {
		return err
	}
	hook, err := r.startBaseline(ctx, roleWebhook)
	if err != nil {
		return err
	}
	defer hook.kill()
	agent, err := r.startBaseline(ctx, roleAgent)
	if err != nil {
		return err
	}
	defer agent.kill()
	for handle, e := range map[string]wire.EndpointRequest{
		"webhook": {URL: new("http://" + hook.addr + "/"), Kind: "webhook"},
		"a2a":     {URL: new("http://" + agent.addr + "/"), Kind: "a2a"},
	} {
		if err := h.deliverTo(ctx, handle, e); err != nil {
			return err
		}
	}
	tunnel, err := r.openTunnel(ctx, h, "tunneled", agent)
	if err != nil {
		return err
	}
	defer tunnel.kill()
	direct := &target{name: "agent", process: agent, rpc: "/"}
	through := func(handle string) *target {
		return &target{name: "hub", process: h.process, rpc: "/a/" + handle, callers: callers}
	}
	for _, c := range []struct {
		what        string
		direct, hub *target
	}{
		{"webhook", &target{name: "webhook", process: hook, webhook: true}, through("webhook")},
		{"A2A server", direct, through("a2a")},
		{"tunnel", direct, through("tunneled")},
	} {
		if err := r.added(ctx, c.what, c.direct, c.hub); err != nil {
			return err
		}
	}
	return r.tunnelRate(ctx, direct, through("tunneled"))
}

// deliverTo makes an address whose tasks the hub delivers.
func (h *hubProcess) deliverTo(ctx context.Context, handle string, e wire.EndpointRequest) error {
	if _, err := h.agent(ctx, handle); err != nil {
		return err
	}
	return h.call(ctx, "PUT", "/v1/agents/"+handle+"/endpoint", e, nil)
}

// openTunnel opens a tunnel for a new address to an agent.
func (r *run) openTunnel(ctx context.Context, h *hubProcess, handle string, agent *process) (*process, error) {
	token, err := h.agent(ctx, handle)
	if err != nil {
		return nil, err
	}
	args := append(append([]string{}, r.Tunnel...), "--to", "http://"+agent.addr, "--slots", strconv.Itoa(tunnelSlots))
	p, _, err := start(ctx, args, "HOLDFAST_URL=http://"+h.addr, "HOLDFAST_TOKEN="+token)
	if err != nil {
		return nil, err
	}
	if err := h.settle(ctx, "holdfast_tunnels_open", func(v float64) bool { return v >= 1 }); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// added measures calls through the hub and direct ones, in turns, one at a time.
func (r *run) added(ctx context.Context, what string, direct, hub *target) error {
	var waits [2][]time.Duration
	var callers [2]*caller
	for i, t := range [2]*target{direct, hub} {
		l, err := dialLean(t.addr)
		if err != nil {
			return err
		}
		defer l.close()
		callers[i] = t.caller(l, 0)
	}
	warm := time.Now().Add(r.Duration / 3)
	for n, end := 0, time.Now().Add(r.Duration); time.Now().Before(end) && ctx.Err() == nil; n++ {
		for i, c := range callers {
			took, err := c.call(n)
			if err != nil {
				return err
			}
			if time.Now().After(warm) {
				waits[i] = append(waits[i], took)
			}
		}
	}
	r.progress("%s: %d calls each way", what, len(waits[1]))
	p50, p99 := percentile(waits[1], .5), percentile(waits[1], .99)
	bare := percentile(waits[0], .5)
	r.add(Row{What: "call through the hub, " + what + ", p50", Measured: p50, Unit: "ms", Baseline: bare, Against: "direct"})
	r.add(Row{What: "call through the hub, " + what + ", p99", Measured: p99, Unit: "ms", Baseline: percentile(waits[0], .99), Against: "direct"})
	r.add(Row{What: "added to a call by the hub, " + what + ", p50", Measured: max(0, p50-bare), Unit: "ms", Bar: 2, Stretch: 1, Less: true})
	return ctx.Err()
}

// tunnelRate measures how many tasks go through one tunnel, beside as many direct calls
// at once.
func (r *run) tunnelRate(ctx context.Context, direct, hub *target) error {
	var rates [2][]float64
	for range r.Rounds {
		for i, t := range [2]*target{direct, hub} {
			s, err := t.closedLoop(ctx, tunnelSlots, 0, r.Duration/3, r.Duration)
			if err != nil {
				return err
			}
			r.progress("%s: %.0f tasks/s, p99 %.1f ms", t.name, s.rate, s.p99)
			rates[i] = append(rates[i], s.rate)
		}
	}
	r.add(Row{
		What: "tasks through one tunnel with " + strconv.Itoa(tunnelSlots) + " slots", Measured: median(rates[1]), Unit: "/s",
		Baseline: median(rates[0]), Against: "direct",
	})
	return nil
}
