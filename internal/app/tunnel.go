package app

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// openTunnels makes what takes the tunnels of agents, unless the hub is to take none.
func (a *App) openTunnels() {
	if a.cfg.Tunnels == 0 {
		return
	}
	a.tunnels = tunnel.New(tunnel.Options{
		Connect: a.dispatcher.Connect, Deliverer: a.tunnelDeliverer, Who: identity.Require, Address: a.identity.Resolve, Peers: a.peers(), InAll: a.cfg.Tunnels,
		MaxBody: a.cfg.MaxBody, MaxAnswer: a.maxAnswer(), Log: a.log,
	})
	a.metrics.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_tunnels_open", Help: "Tunnels that agents have open to this hub.",
	}, func() float64 { return float64(a.tunnels.Open()) }))
}

// relaysToReplica and relaysToReplicas bound the requests that are passed on to one other
// replica and to all of them, and relayTime each of them, with all of its answer.
const (
	relaysToReplica  = 512
	relaysToReplicas = 2048
	relayTime        = 10 * time.Minute
)

// peers is how relayed requests get to other replicas; nil if there are none. Where those
// are was said by the operator, so it may be in a private network, and on this machine.
func (a *App) peers() *tunnel.Peers {
	if a.cfg.DatabaseURL == "" {
		return nil
	}
	a.replicas = egress.New(egress.Options{
		AllowLocal: []egress.PortRange{{First: 1, Last: 65535}}, Log: a.log, About: onBehalf,
		HeaderTimeout: relayTime, Timeout: relayTime, MaxResponse: a.maxAnswer(),
		PerTarget: relaysToReplica, Global: relaysToReplicas, QueueWait: time.Second,
	})
	return &tunnel.Peers{
		URL: strings.TrimRight(a.cfg.AdvertiseURL, "/"), Instances: a.store.Instances,
		Transport: a.replicas.Client(egress.Permit{Private: true}).Transport, Sealer: a.vault,
	}
}

// maxAnswer bounds what an agent answers through a tunnel, in bytes.
func (a *App) maxAnswer() int64 { return max(2*a.cfg.TaskBytes, a.cfg.MaxBody) }

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
