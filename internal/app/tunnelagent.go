package app

import (
	"net/http"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
)

// tunnelDeliverer makes what delivers through a tunnel: the agent behind it is an A2A
// server like any other.
func (a *App) tunnelDeliverer(rt http.RoundTripper) delivery.Deliverer {
	through := carrier{rt}
	return remotea2a.New(a.remoteOptions(through, through))
}

// carrier sends requests through a tunnel, and follows no redirects.
type carrier struct{ rt http.RoundTripper }

// Do implements remotea2a.Doer.
func (c carrier) Do(r *http.Request) (*http.Response, error) { return c.rt.RoundTrip(r) }
