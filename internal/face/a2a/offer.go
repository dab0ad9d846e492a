package a2a

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/wire"
)

// offer is what an address offers of what the hub can do, and the extensions that it
// has, some of which its callers must support: what its owner said of both.
type offer struct {
	noStreaming, noPush, noExtendedCard bool
	extensions                          []cardExtension
}

// offerOf reads what an address offers from what its owner said of its card.
func offerOf(a *hub.Address) offer {
	// Every request comes through here, and most owners say nothing of this.
	if !bytes.Contains(a.Card, []byte(`"capabilities"`)) && !bytes.Contains(a.Card, []byte(`"extensions"`)) {
		return offer{}
	}
	var owner struct {
		Capabilities wire.Capabilities `json:"capabilities"`
		Extensions   json.RawMessage   `json:"extensions"`
	}
	if json.Unmarshal(a.Card, &owner) != nil { // was checked when it was set
		return offer{}
	}
	off := func(b *bool) bool { return b != nil && !*b }
	o := offer{
		noStreaming: off(owner.Capabilities.Streaming), noPush: off(owner.Capabilities.PushNotifications),
		noExtendedCard: off(owner.Capabilities.ExtendedAgentCard),
	}
	for _, e := range decode[[]cardExtension](owner.Extensions) {
		if e.URI != "" {
			o.extensions = append(o.extensions, e)
		}
	}
	return o
}

// limit takes what the address does not offer from what the hub can do.
func (o offer) limit(c cardCapabilities) cardCapabilities {
	c.Streaming = c.Streaming && !o.noStreaming
	c.PushNotifications = c.PushNotifications && !o.noPush
	c.ExtendedAgentCard = c.ExtendedAgentCard && !o.noExtendedCard
	c.Extensions = o.extensions
	return c
}

// activated is which of the address's extensions are in use for a request whose
// client supports those given (spec section 3.2.6): the hub hands on all that is in
// messages, and the address's agent knows what it declares.
func (o offer) activated(supported []string) []string {
	var uris []string
	for _, e := range o.extensions {
		if slices.Contains(supported, e.URI) {
			uris = append(uris, e.URI)
		}
	}
	return uris
}

// check refuses a client that does not support an extension that is required (spec
// section 3.3.4).
func (o offer) check(supported []string) error {
	for _, e := range o.extensions {
		if e.Required && !slices.Contains(supported, e.URI) {
			return &fault{
				reason:   extensionRequired,
				message:  "this address wants its callers to support the extension " + e.URI + "; name it in A2A-Extensions if you do",
				metadata: map[string]string{"extension": e.URI},
			}
		}
	}
	return nil
}

// stream refuses streams if the address has none (spec section 3.3.4).
func (o offer) stream() error {
	if o.noStreaming {
		return &fault{reason: unsupportedOperation, message: "this address does not stream; use SendMessage and GetTask"}
	}
	return nil
}

// splitExtensions reads the extensions that a client supports, from the values of a
// header (spec section 3.2.6): a list with commas each.
func splitExtensions(values []string) []string {
	var uris []string
	for _, line := range values {
		for uri := range strings.SplitSeq(line, ",") {
			if uri = strings.TrimSpace(uri); uri != "" {
				uris = append(uris, uri)
			}
		}
	}
	return uris
}

// extensionsOf is the extensions that a request's client supports. Clients of 0.3
// have another name for the header.
func extensionsOf(h http.Header) []string {
	return splitExtensions(append(h.Values("A2A-Extensions"), h.Values("X-A2A-Extensions")...))
}
