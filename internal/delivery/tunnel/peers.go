package tunnel

import (
	"context"
	"encoding/base64"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/relaypath"
)

// passedOn is the header of a relayed request that another replica has passed on; such a
// one is never passed on again, whoever sent it. Its value proves to replicas, which share
// the master key, which host the request was made to.
const passedOn = "Holdfast-Passed-On"

// away is when a request may come again that could not be relayed.
const away = 5 * time.Second

// Peers is how a replica of the hub passes relayed requests on to the one that has the
// tunnel. All is required but URL.
type Peers struct {
	// URL is where the others reach this replica; empty if they do not.
	URL string
	// Instances lists the connected instances of an address, as hub.Presence does.
	Instances func(ctx context.Context, address string) ([]hub.Instance, error)
	// Transport sends requests to the others. It fails with *egress.Error.
	Transport http.RoundTripper
	// Sealer is that of all replicas.
	Sealer hub.Sealer
}

// elsewhere gives the URL of another replica that has a tunnel through which an outside
// service may reach a path; nil if no other one has any tunnel of the address. The error
// is NotFound if no tunnel opens the path, Unavailable if the replica has told no URL.
func (p *Peers) elsewhere(ctx context.Context, a *hub.Address, path string) (*url.URL, error) {
	all, err := p.Instances(ctx, a.ID)
	if err != nil {
		return nil, err
	}
	var urls []*url.URL
	others, silent := 0, false
	for _, i := range all {
		if i.URL != "" && i.URL == p.URL {
			continue // it was connected here a moment ago
		}
		others++
		if !relaypath.Allowed(path, i.Relay) {
			continue
		}
		if u, err := url.Parse(i.URL); err == nil && u.Host != "" {
			urls = append(urls, u)
		} else {
			silent = true
		}
	}
	switch {
	case len(urls) > 0:
		return urls[rand.IntN(len(urls))], nil
	case silent:
		return nil, errAbsent("the agent is connected to another replica of the hub, which has no advertised URL; try again shortly, or have the hub's administrator set --advertise-url")
	case others > 0:
		return nil, errNothing()
	}
	return nil, nil //nolint:nilnil // there is none
}

func aboutPassing(handle string) string { return "relay/" + handle }

// seal proves to another replica which host a request was made to.
func (p *Peers) seal(host, handle string) (string, error) {
	sealed, err := p.Sealer.Seal([]byte(host), aboutPassing(handle))
	return base64.RawURLEncoding.EncodeToString(sealed), err
}

// host gives the host that a request was made to, also if another replica passed it on.
func (h *Host) host(r *http.Request, handle string) string {
	proof := r.Header.Get(passedOn)
	if proof == "" || h.opt.Peers == nil {
		return r.Host
	}
	sealed, err := base64.RawURLEncoding.DecodeString(proof)
	if err != nil {
		return r.Host
	}
	host, err := h.opt.Peers.Sealer.Open(sealed, aboutPassing(handle))
	if err != nil { // nobody's but a replica's
		return r.Host
	}
	return string(host)
}
