package app

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// openTunnels makes what takes the tunnels of agents, unless the hub is to take none.
func (a *App) openTunnels() {
	if a.cfg.Tunnels == 0 {
		return
	}
	a.tunnels = tunnel.New(tunnel.Options{
		Connect: a.dispatcher.Connect, Deliverer: a.tunnelDeliverer, Who: identity.Require, Address: a.identity.Resolve, InAll: a.cfg.Tunnels,
		MaxBody: a.cfg.MaxBody, MaxAnswer: max(2*a.cfg.TaskBytes, a.cfg.MaxBody), Log: a.log,
	})
	a.metrics.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_tunnels_open", Help: "Tunnels that agents have open to this hub.",
	}, func() float64 { return float64(a.tunnels.Open()) }))
}

// routeTunnels adds where tunnels are opened, and where outside services reach what is
// behind them.
func (a *App) routeTunnels(mux *http.ServeMux) {
	if a.tunnels == nil {
		return
	}
	mux.Handle("GET "+tunnelconn.Path, a.tunnels)
	mux.Handle(tunnel.RelayPath, a.tunnels.Relay())
}

// drainTunnels sends the agents away that are at nothing.
func (a *App) drainTunnels() {
	if a.tunnels != nil {
		a.tunnels.Drain()
	}
}

// closeTunnels ends the others, once the deliveries are over.
func (a *App) closeTunnels() {
	if a.tunnels != nil {
		a.tunnels.Close()
	}
}
