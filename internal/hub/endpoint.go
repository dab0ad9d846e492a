package hub

import (
	"context"
	"time"
)

// WebhookDelivery is the kind of an endpoint that gets each task as one HTTP request.
const WebhookDelivery = "webhook"

// Endpoint is where and how the hub brings an address its tasks; an address without one
// pulls them.
type Endpoint struct {
	Kind string // WebhookDelivery or RemoteDelivery
	URL  string
	// Auth is the form of the credential: "bearer", "header" or "basic"; empty for none.
	Auth string
	// Header is the name of the header that has the credential, for Auth "header".
	Header string
	// Private lets the URL lead into private networks.
	Private bool
	// Sealed is the secrets as the vault sealed them; every endpoint has some.
	Sealed []byte
}

// EndpointSecrets is what is sealed of an endpoint, as JSON.
type EndpointSecrets struct {
	// Credential is what the hub presents; of "basic" it is user:password.
	Credential string `json:"credential,omitempty"`
	// Signing is the key of the signatures, in the form of Standard Webhooks (whsec_…).
	Signing string `json:"signing"`
}

// EndpointAbout is what the secrets of an address's endpoint are sealed about; see
// Sealer.
func EndpointAbout(address string) string { return "endpoint/" + address }

// Deliveries is who brings tasks to endpoints, as the rest of the hub knows it.
type Deliveries interface {
	// Refresh is called after an address was changed or deleted. When it returns,
	// nothing more is taken from its mailbox for an endpoint that it had before.
	Refresh(ctx context.Context, address string)
	// Standing says how deliveries to an address stand; false if the hub makes none.
	Standing(address string) (Standing, bool)
	// Probe has what waits for an address tried at once, although it is left alone since
	// it could not be reached.
	Probe(address string)
}

// Standing is how deliveries to an address stand.
type Standing struct {
	Kind string // of the endpoint
	// Slots is how many tasks are delivered at once, InFlight how many are just now.
	Slots, InFlight int
	// Busy is how many of them there are by instance, for those connected to this replica.
	Busy map[string]int
	// Trouble is why nothing is delivered just now, in words for the address's owner;
	// empty if nothing is wrong. It began at Since, and NextTry is when it is tried again.
	Trouble        string
	Since, NextTry time.Time
	// Last is the last delivery since the hub started, nil if there was none.
	Last *LastDelivery
}

// LastDelivery is what became of a delivery.
type LastDelivery struct {
	Task    string
	Attempt int
	At      time.Time     // when it ended
	Took    time.Duration // from the claim on
	// Outcome is a word such as answered, accepted, refused, lost or unsent.
	Outcome string
	// Status is the HTTP status of the answer, 0 if there was none.
	Status int
	// Detail says more where the outcome alone does not tell, for the address's owner.
	Detail string
}
