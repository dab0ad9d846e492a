package app

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/delivery/webhook"
	"github.com/holdfast-hub/holdfast/internal/egress"
	v1 "github.com/holdfast-hub/holdfast/internal/face/v1"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

const (
	// callsPerTarget and callsInAll bound the calls of endpoints that are under way, and
	// callWait is how long one waits for its turn before it is put off. Agents take
	// their time, so there are more of them than of notifications.
	callsPerTarget = 64
	callsInAll     = 1024
	callWait       = 2 * time.Second
	// callRoomBytes bounds what large tasks and answers take of the memory meanwhile.
	callRoomBytes = 256 << 20
)

// openDelivery makes what delivers: to endpoints, unless the hub is to call none, and
// through what connects to it.
func (a *App) openDelivery() {
	opt := delivery.Options{
		Store: a.store, Deliverers: a.deliverers(), Shared: a.cfg.DatabaseURL != "", URL: strings.TrimRight(a.cfg.AdvertiseURL, "/"),
		Slots: a.cfg.WebhookSlots, Lease: a.cfg.Lease, Log: a.log, Observe: a.metrics.delivered,
		Room: hub.NewRoom(max(callRoomBytes, 5*a.cfg.TaskBytes, 5*a.cfg.MaxBody)),
	}
	a.dispatcher = delivery.New(opt)
	a.metrics.watchDeliveries(a.dispatcher.Busy)
}

// deliverers are those to endpoints, by their kind.
func (a *App) deliverers() map[string]delivery.Deliverer {
	if a.cfg.NoWebhook {
		return nil
	}
	a.calls = egress.New(a.callOptions())
	a.remote = a.remoteDeliverer()
	hook := webhook.New(webhook.Options{
		Public: a.calls.Client(egress.Permit{}), Private: a.calls.Client(egress.Permit{Private: true}), Sealer: a.vault,
		Parse: v1.ParseResult, MaxAnswer: a.cfg.MaxBody, Timeout: a.cfg.WebhookTimeout,
		UserAgent: "Holdfast/" + a.cfg.Version, Log: a.log,
	})
	return map[string]delivery.Deliverer{
		hub.WebhookDelivery: hook,
		hub.RemoteDelivery:  a.remote,
	}
}

// remoteDeliverer makes what delivers to the endpoints that are A2A servers.
func (a *App) remoteDeliverer() *remotea2a.Deliverer {
	private := egress.Permit{Private: true}
	opt := a.remoteOptions(a.calls.Client(egress.Permit{}), a.calls.Client(private))
	opt.PublicHTTP2, opt.PrivateHTTP2 = a.calls.HTTP2Client(egress.Permit{}), a.calls.HTTP2Client(private)
	return remotea2a.New(opt)
}

// remoteOptions are those of what delivers to A2A servers.
func (a *App) remoteOptions(public, private remotea2a.Doer) remotea2a.Options {
	return remotea2a.Options{
		Public: public, Private: private, Sealer: a.vault, MaxAnswer: a.cfg.MaxBody,
		UserAgent: "Holdfast/" + a.cfg.Version, Log: a.log,
	}
}

// callOptions are those of the way out for calls of endpoints.
func (a *App) callOptions() egress.Options {
	o := a.egressOptions
	o.HeaderTimeout, o.Timeout = a.cfg.WebhookTimeout, a.cfg.WebhookTimeout+time.Second
	o.MaxResponse = a.cfg.MaxBody
	o.PerTarget, o.Global, o.QueueWait = callsPerTarget, callsInAll, callWait
	return o
}

// identityOptions are those of the directory.
func (a *App) identityOptions(cfg config.Config) identity.Options {
	opt := identity.Options{Store: a.store, Now: a.now, Anonymous: cfg.Anonymous, Log: a.log, Deliveries: a.dispatcher}
	if a.calls != nil {
		opt.Sealer = a.vault
		opt.CheckURL = func(ctx context.Context, url string, private bool) error {
			return a.calls.Check(ctx, url, egress.Permit{Private: private})
		}
	}
	return opt
}

// closeDelivery ends the deliveries: those under way get a part of the shutdown
// timeout to finish.
func (a *App) closeDelivery() {
	if a.dispatcher == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ShutdownTimeout/4)
	defer cancel()
	a.dispatcher.Stop(ctx)
	if a.calls != nil {
		a.calls.Close()
	}
	if a.replicas != nil {
		a.replicas.Close()
	}
}

// delivered learns of each delivery to an endpoint.
func (m *metrics) delivered(kind string, k delivery.Kind, took time.Duration) {
	m.deliveries.WithLabelValues(kind, k.String()).Observe(took.Seconds())
}

// watchDeliveries shows how many tasks are being delivered.
func (m *metrics) watchDeliveries(busy func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_deliveries_open", Help: "Tasks that are being delivered to endpoints.",
	}, func() float64 { return float64(busy()) }))
}

// newDeliveries makes the histogram of deliveries, which counts them, too.
func newDeliveries() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "holdfast_delivery_seconds", Help: "Time of a delivery to an endpoint, by the endpoint's kind and by what became of it.",
		Buckets: []float64{.001, .002, .004, .008, .016, .032, .064, .125, .25, .5, 1, 2, 5, 10, 30, 60, 300, 600},
	}, []string{"endpoint", "outcome"})
}
