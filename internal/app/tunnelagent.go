package app

import (
	"context"
	"net/http"

	"github.com/holdfast-hub/holdfast/internal/delivery"
)

// tunnelDeliverer makes what delivers through a tunnel.
func (a *App) tunnelDeliverer(http.RoundTripper) delivery.Deliverer { return speechless{} }

// speechless leaves tasks where they are.
type speechless struct{}

// Deliver implements delivery.Deliverer.
func (speechless) Deliver(context.Context, delivery.Delivery) delivery.Outcome {
	return delivery.Outcome{Kind: delivery.Unsent, Reason: "this hub does not speak A2A through tunnels yet"}
}
