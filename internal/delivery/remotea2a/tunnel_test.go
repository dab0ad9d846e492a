package remotea2a_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/deliverytest"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// An agent behind a real tunnel, on real sockets, is as good as one that can be reached.
func TestDelivererThroughATunnel(t *testing.T) {
	deliverytest.Run(t, func(t testing.TB, sealer hub.Sealer) deliverytest.Harness {
		return deliverytest.Harness{
			Kind: hub.TunnelDelivery, Streams: true, Cancels: true, Listens: true,
			Start: func(t testing.TB, address string, a deliverytest.Agent) deliverytest.Remote {
				s := newServer(t, &agent{act: a, jobs: map[string]*job{}})
				c := openTunnel(t, sealer, address, s.url())
				return deliverytest.Remote{Connection: &c, Down: s.down, Up: s.up}
			},
		}
	})
}

// openTunnel opens a tunnel from an address's agent at target to a hub of its own, and
// gives what the hub's dispatcher would get.
func openTunnel(t testing.TB, sealer hub.Sealer, address, target string) delivery.Connection {
	t.Helper()
	connected := make(chan delivery.Connection, 1)
	host := tunnel.New(tunnel.Options{
		Connect: func(c delivery.Connection) (func(), func(context.Context), error) {
			connected <- c
			return func() {}, func(context.Context) {}, nil
		},
		Deliverer: func(rt http.RoundTripper) delivery.Deliverer {
			return newDeliverer(t, sealer, func(o *remotea2a.Options) { o.Public, o.Private = carrier{rt}, carrier{rt} })
		},
		Who: func(context.Context) (hub.Principal, error) {
			return hub.Principal{Address: address, Handle: address, Role: hub.RoleAgent}, nil
		},
	})
	mux := http.NewServeMux()
	mux.Handle("GET "+tunnelconn.Path, host)
	srv := httptest.NewServer(httpx.Serve(mux, httpx.Options{Log: slog.New(slog.DiscardHandler)}))
	t.Cleanup(func() {
		host.Close()
		srv.Close()
	})
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	dial := &http.Transport{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- tunnelclient.Run(ctx, tunnelclient.Options{
			URL: srv.URL, Token: "hf_token", Instance: "one", Slots: 2, Target: u, Handler: tunnelclient.Proxy(u, nil),
			PauseMin: time.Millisecond, PauseMax: 20 * time.Millisecond, HTTPClient: &http.Client{Transport: dial},
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		dial.CloseIdleConnections()
	})
	select {
	case c := <-connected:
		return c
	case err := <-ended:
		t.Fatal("the tunnel ended: ", err)
	case <-time.After(20 * time.Second):
		t.Fatal("no tunnel was opened")
	}
	panic("unreachable")
}

// carrier sends requests through a tunnel.
type carrier struct{ http.RoundTripper }

// Do sends one.
func (c carrier) Do(r *http.Request) (*http.Response, error) { return c.RoundTrip(r) }
