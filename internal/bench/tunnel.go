package bench

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// openTunnels is how many tunnels are open at once, of tunnelAddresses addresses.
const openTunnels, tunnelAddresses = 1000, 20

// tunnels measures what open tunnels cost the hub while nothing goes through them.
func tunnels(ctx context.Context, r *run) error {
	h, err := r.startHub(ctx)
	if err != nil {
		return err
	}
	defer h.stop()
	tokens, err := h.agents(ctx, "tunneled", tunnelAddresses)
	if err != nil {
		return err
	}
	before, err := h.state(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, openTunnels)
	for i := range openTunnels {
		opt := tunnelclient.Options{
			URL: "http://" + h.addr, Token: tokens[i%tunnelAddresses], Instance: "copy" + strconv.Itoa(i), Slots: 1, Once: true,
			Handler: http.NotFoundHandler(),
		}
		go func() { ended <- tunnelclient.Run(ctx, opt) }()
	}
	if err := h.settle(ctx, "holdfast_tunnels_open", func(v float64) bool { return v >= openTunnels }); err != nil {
		return err
	}
	began, cpu := time.Now(), h.cpu()
	pause(ctx, 3*tunnelconn.Ping) // so that pings are among it
	busy := float64(h.cpu()-cpu) / float64(time.Since(began))
	after, err := h.tunnelState(ctx)
	if err != nil {
		return err
	}
	r.progress("%d tunnels open: %+v before, %+v after", openTunnels, before, after)
	what := fmt.Sprintf("%d open tunnels, ", openTunnels)
	r.add(Row{What: what + "memory of each", Measured: max(0, after.rss-before.rss) * 1000 / openTunnels, Unit: "kB", Bar: 100, Less: true})
	r.add(Row{What: what + "processors used", Measured: 100 * busy, Unit: "%", Bar: 10, Less: true})
	return nil
}

// tunnelState is state while tunnels are open, which count as open requests.
func (h *hubProcess) tunnelState(ctx context.Context) (s idleState, err error) {
	if s.goroutines, err = h.metric(ctx, "go_goroutines"); err != nil {
		return s, err
	}
	s.rss, err = h.rss()
	return s, err
}
