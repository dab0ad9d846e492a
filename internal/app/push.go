package app

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/holdfast-hub/holdfast/internal/delivery/push"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/face/a2a"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// pushRoomBytes bounds what large tasks take of the memory while they are sent as
// notifications.
const pushRoomBytes = 256 << 20

// openEgress makes the way out of the hub.
func (a *App) openEgress() error {
	ports, err := egress.ParsePorts(a.cfg.EgressAllowLocal)
	if err != nil {
		return fmt.Errorf("--egress-allow-local: %w", err)
	}
	targets, err := egress.ParseTargets(a.cfg.EgressAllowPrivate)
	if err != nil {
		return fmt.Errorf("--egress-allow-private: %w", err)
	}
	a.egressOptions = egress.Options{AllowLocal: ports, AllowPrivate: targets, Log: a.log, About: onBehalf}
	a.egress = egress.New(a.egressOptions)
	return nil
}

// onBehalf says for the log who gave the hub a URL, and with which request; nothing of
// what the hub sends by itself.
func onBehalf(ctx context.Context) []any {
	id := httpx.RequestID(ctx)
	if id == "" {
		return nil
	}
	return []any{"request_id", id, "principal", principalHandle(ctx)}
}

// openPush makes what sends push notifications, if the hub is to send any.
func (a *App) openPush() {
	if a.cfg.NoPush {
		return
	}
	key, _ := a.keys.Webhook()
	a.pusher = push.New(push.Options{
		Outbox: a.store, Tasks: a.store, Client: a.egress.Client(a.pushPermit()), Sealer: a.vault, Key: key,
		Room:    hub.NewRoom(max(pushRoomBytes, 5*a.cfg.TaskBytes)), // four times a task, as it counts, and some
		TaskV03: a2a.AppendTaskV03, UserAgent: "Holdfast/" + a.cfg.Version, Log: a.log, Observe: a.metrics.pushed,
		GiveUp: a.cfg.PushGiveUp, BackoffMin: a.cfg.PushBackoffMin, BackoffMax: a.cfg.PushBackoffMax,
	})
	a.metrics.watchPushes(a.pusher.Busy)
}

// pushPermit is what push notifications may reach: callers give the URLs, so they need
// what the operator opened to everybody.
func (a *App) pushPermit() egress.Permit { return egress.Permit{} }

// checkPushURL judges the URL of a configuration that is to be saved.
func (a *App) checkPushURL(ctx context.Context, url string) error {
	return a.egress.Check(ctx, url, a.pushPermit())
}

// closePush ends what goes out: requests under way get a part of the shutdown timeout
// to finish.
func (a *App) closePush() {
	if a.pusher != nil {
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.ShutdownTimeout/2)
		defer cancel()
		a.pusher.Stop(ctx)
	}
	if a.egress != nil {
		a.egress.Close()
	}
}

// pushed learns of each try to deliver a push notification.
func (m *metrics) pushed(r push.Result) { m.pushes.WithLabelValues(string(r)).Inc() }

// watchPushes shows how many configurations are being served.
func (m *metrics) watchPushes(busy func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_push_open", Help: "Push-notification configurations that are being delivered to.",
	}, func() float64 { return float64(busy()) }))
}
