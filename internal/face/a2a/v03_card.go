package a2a

import (
	"maps"
	"net/http"
	"slices"
	"strings"
)

// cardV03 is an agent card as 0.3 has it (section 5.5 there), and 0.2 much the same.
type cardV03 struct {
	ProtocolVersion      string                     `json:"protocolVersion"`
	Name                 string                     `json:"name"`
	Description          string                     `json:"description"`
	URL                  string                     `json:"url"`
	PreferredTransport   string                     `json:"preferredTransport"`
	AdditionalInterfaces []interfaceV03             `json:"additionalInterfaces"`
	Provider             *cardProvider              `json:"provider,omitempty"`
	Version              string                     `json:"version"`
	DocumentationURL     string                     `json:"documentationUrl,omitempty"`
	IconURL              string                     `json:"iconUrl,omitempty"`
	Capabilities         capabilitiesV03            `json:"capabilities"`
	SecuritySchemes      map[string]securityHTTPV03 `json:"securitySchemes,omitempty"`
	Security             []map[string]any           `json:"security,omitempty"`
	DefaultInputModes    []string                   `json:"defaultInputModes"`
	DefaultOutputModes   []string                   `json:"defaultOutputModes"`
	Skills               []cardSkill                `json:"skills"`
	ExtendedCard         bool                       `json:"supportsAuthenticatedExtendedCard"`
}

type interfaceV03 struct {
	URL       string `json:"url"`
	Transport string `json:"transport"`
}

type capabilitiesV03 struct {
	Streaming              bool            `json:"streaming"`
	PushNotifications      bool            `json:"pushNotifications"`
	StateTransitionHistory bool            `json:"stateTransitionHistory"`
	Extensions             []cardExtension `json:"extensions,omitempty"`
}

type securityHTTPV03 struct {
	Type        string `json:"type"`
	Scheme      string `json:"scheme"`
	Description string `json:"description,omitempty"`
	// HTTPAuth says the same in ProtoJSON, for HTTP+JSON.
	HTTPAuth *httpAuth `json:"httpAuthSecurityScheme,omitempty"`
}

// withProtoSchemes is the card with its security schemes in ProtoJSON too: among the
// clients of 0.3's HTTP+JSON some read the one form, and some the other. What else is on
// a card is the same in both.
func (c cardV03) withProtoSchemes() cardV03 {
	schemes := make(map[string]securityHTTPV03, len(c.SecuritySchemes))
	for name, s := range c.SecuritySchemes {
		s.HTTPAuth = &httpAuth{Scheme: s.Scheme, Description: s.Description}
		schemes[name] = s
	}
	c.SecuritySchemes = schemes
	return c
}

// inProto is the card for gRPC: in ProtoJSON alone, in which a requirement lists its
// schemes, with their scopes, in another way too.
func (c cardV03) inProto() cardV03 {
	old := c.withProtoSchemes()
	old.Security = nil
	for _, requirement := range c.Security {
		schemes := make(map[string]any, len(requirement))
		for name, scopes := range requirement {
			schemes[name] = map[string]any{"list": scopes}
		}
		old.Security = append(old.Security, map[string]any{"schemes": schemes})
	}
	return old
}

// toV03 is a card of 1.0 as 0.3 has it: it says the same of the same endpoint. Every
// scheme of this hub is one of HTTP, and any of them will do.
func (c card) toV03() cardV03 {
	endpoint := c.SupportedInterfaces[0].URL
	old := cardV03{
		ProtocolVersion: "0.3.0", Name: c.Name, Description: c.Description, Version: c.Version,
		URL: endpoint, PreferredTransport: "JSONRPC",
		AdditionalInterfaces: []interfaceV03{{endpoint, "JSONRPC"}, {endpoint, "HTTP+JSON"}},
		Provider:             c.Provider, DocumentationURL: c.DocumentationURL, IconURL: c.IconURL,
		Capabilities: capabilitiesV03{
			Streaming: c.Capabilities.Streaming, PushNotifications: c.Capabilities.PushNotifications,
			Extensions: c.Capabilities.Extensions,
		},
		DefaultInputModes: c.DefaultInputModes, DefaultOutputModes: c.DefaultOutputModes, Skills: c.Skills,
		ExtendedCard: c.Capabilities.ExtendedAgentCard,
	}
	for _, at := range c.SupportedInterfaces {
		if at.ProtocolBinding == bindingGRPC { // without a tenant: see tenantHeader
			old.AdditionalInterfaces = append(old.AdditionalInterfaces, interfaceV03{at.URL, bindingGRPC})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.SecuritySchemes)) {
		if old.SecuritySchemes == nil {
			old.SecuritySchemes = make(map[string]securityHTTPV03)
		}
		auth := c.SecuritySchemes[name].HTTPAuth
		old.SecuritySchemes[name] = securityHTTPV03{Type: "http", Scheme: strings.ToLower(auth.Scheme), Description: auth.Description}
		old.Security = append(old.Security, map[string]any{name: []string{}})
	}
	return old
}

// serveCardV03 serves the card of an address where clients of 0.2 look for it,
// agent.json. The hub itself has none there: 0.3 knows no tenants, so nothing can be
// asked of the hub's own endpoint.
func (f *face) serveCardV03(w http.ResponseWriter, r *http.Request) {
	a, err := f.cardAddress(r)
	if err != nil {
		f.failCard(w, r, err)
		return
	}
	f.look(r.Context(), a)
	f.serveCard(w, r, f.addressCard(a).toV03())
}
