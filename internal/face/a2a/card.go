package a2a

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/wire"
)

// card is an agent card (spec section 4.4.1). Only what the hub fills is here.
//
// It leaves out securityRequirements: the specification writes a scheme's scopes as
// {"list":[]}, which the released Go SDK refuses together with the whole card, and
// reads them as [] only, which every other SDK refuses. The schemes say the same to
// a reader, and the 401 challenge says it to a program.
type card struct {
	Name                string                    `json:"name"`
	Description         string                    `json:"description"`
	SupportedInterfaces []cardInterface           `json:"supportedInterfaces"`
	Provider            *cardProvider             `json:"provider,omitempty"`
	Version             string                    `json:"version"`
	DocumentationURL    string                    `json:"documentationUrl,omitempty"`
	Capabilities        cardCapabilities          `json:"capabilities"`
	SecuritySchemes     map[string]securityScheme `json:"securitySchemes,omitempty"`
	DefaultInputModes   []string                  `json:"defaultInputModes"`
	DefaultOutputModes  []string                  `json:"defaultOutputModes"`
	Skills              []cardSkill               `json:"skills"`
	IconURL             string                    `json:"iconUrl,omitempty"`
}

type cardInterface struct {
	URL             string `json:"url"`
	ProtocolBinding string `json:"protocolBinding"`
	ProtocolVersion string `json:"protocolVersion"`
	Tenant          string `json:"tenant,omitempty"`
}

type cardProvider struct {
	Organization string `json:"organization"`
	URL          string `json:"url"`
}

type cardCapabilities struct {
	Streaming         bool            `json:"streaming"`
	PushNotifications bool            `json:"pushNotifications"`
	Extensions        []cardExtension `json:"extensions,omitempty"`
	ExtendedAgentCard bool            `json:"extendedAgentCard"`
}

// cardExtension is an extension that an address's owner declares. Callers are held to
// a required one: see offer.
type cardExtension struct {
	URI         string          `json:"uri"`
	Description string          `json:"description,omitempty"`
	Required    bool            `json:"required,omitempty"`
	Params      json.RawMessage `json:"params,omitempty"`
}

// UnmarshalJSON reads an extension. Parameters that are no object are none (spec
// section 4.4.4): clients would refuse the whole card for them.
func (e *cardExtension) UnmarshalJSON(b []byte) error {
	type plain cardExtension // without this method
	if err := json.Unmarshal(b, (*plain)(e)); err != nil {
		return err
	}
	if rawjson.KindOf(e.Params) != rawjson.Object {
		e.Params = nil
	}
	return nil
}

type securityScheme struct {
	HTTPAuth httpAuth `json:"httpAuthSecurityScheme"`
}

type httpAuth struct {
	Scheme      string `json:"scheme"`
	Description string `json:"description,omitempty"`
}

type cardSkill struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Examples    []string `json:"examples,omitempty"`
	InputModes  []string `json:"inputModes,omitempty"`
	OutputModes []string `json:"outputModes,omitempty"`
}

// UnmarshalJSON reads a skill in the spelling of /v1 or of A2A.
func (s *cardSkill) UnmarshalJSON(b []byte) error {
	type plain cardSkill // without this method
	v1 := struct {
		*plain
		InputModes  []string `json:"input_modes"`
		OutputModes []string `json:"output_modes"`
	}{plain: (*plain)(s)}
	if err := json.Unmarshal(b, &v1); err != nil {
		return err
	}
	if v1.InputModes != nil {
		s.InputModes = v1.InputModes
	}
	if v1.OutputModes != nil {
		s.OutputModes = v1.OutputModes
	}
	return nil
}

// look reads what the agent of an address says of itself, if that is to be read again.
func (f *face) look(ctx context.Context, a *hub.Address) {
	if f.opt.Agents != nil {
		f.opt.Agents.Look(ctx, a)
	}
}

// facts is what the agent of an address says of itself, as far as the hub knows.
func (f *face) facts(a *hub.Address) *hub.AgentFacts {
	if f.opt.Agents != nil {
		if facts := f.opt.Agents.Facts(a); facts != nil {
			return facts
		}
	}
	return &hub.AgentFacts{}
}

// addressCard makes an address's card: what its owner said, else what the agent says of
// itself, with defaults where the specification wants something, and what only the hub
// knows: where and how the address is called, which is never what the agent's own card says.
func (f *face) addressCard(a *hub.Address) card {
	var owner wire.Card
	if json.Unmarshal(a.Card, &owner) != nil {
		owner = wire.Card{} // checked when it was set; the defaults are better than no card
	}
	agent := f.facts(a)
	c := f.newCard(a.Handle)
	c.Name = or(owner.Name, a.Handle)
	c.Description = or(or(a.Description, agent.Description), "@"+a.Handle+" on this Holdfast hub: takes tasks and answers when it is done.")
	c.Version = or(or(owner.Version, agent.Version), "1.0.0")
	c.DocumentationURL, c.IconURL = owner.DocumentationURL, owner.IconURL
	if p := decode[cardProvider](owner.Provider); p.Organization != "" {
		c.Provider = &p
	} else if agent.Organization != "" {
		c.Provider = &cardProvider{agent.Organization, agent.OrganizationURL}
	}
	c.Capabilities = offerOf(a).limit(c.Capabilities)
	c.DefaultInputModes = firstOf(owner.DefaultInputModes, agent.InputModes, c.DefaultInputModes)
	c.DefaultOutputModes = firstOf(owner.DefaultOutputModes, agent.OutputModes, c.DefaultOutputModes)
	list := decode[[]cardSkill](owner.Skills)
	if len(list) == 0 {
		list = skillsOf(agent)
	}
	c.Skills = skills(list, c)
	return c
}

// firstOf is the first list that has anything.
func firstOf(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}

// skillsOf are the skills that an agent says it has.
func skillsOf(agent *hub.AgentFacts) []cardSkill {
	list := make([]cardSkill, len(agent.Skills))
	for i, s := range agent.Skills {
		list[i] = cardSkill(s)
	}
	return list
}

// hubCard is the card of the hub itself: one interface for all addresses, which the
// request's tenant tells apart.
func (f *face) hubCard() card {
	c := f.newCard(hubHandle)
	c.Name = "Holdfast"
	c.Description = "A durable task hub. Each of its addresses is an A2A agent; name the one to talk to as the request's tenant, or use its own card at /a/{handle}/.well-known/agent-card.json."
	c.Version = or(f.opt.Version, "dev")
	c.Skills = skills(nil, c)
	return c
}

// newCard is what all cards of this hub have in common.
func (f *face) newCard(handle string) card {
	endpoint := strings.TrimSuffix(f.opt.PublicURL, "/") + "/a/" + url.PathEscape(handle)
	c := card{
		SupportedInterfaces: []cardInterface{ // the first is the one that clients should take
			{URL: endpoint, ProtocolBinding: "JSONRPC", ProtocolVersion: protocolVersion},
			{URL: endpoint, ProtocolBinding: "HTTP+JSON", ProtocolVersion: protocolVersion},
		},
		Capabilities:       cardCapabilities{Streaming: true, PushNotifications: f.opt.Engine.PushSupported(), ExtendedAgentCard: true},
		DefaultInputModes:  []string{"text/plain", "application/json", "*/*"},
		DefaultOutputModes: []string{"text/plain", "application/json"},
	}
	if target := grpcTarget(f.opt.PublicURL); target != "" {
		at := cardInterface{URL: target, ProtocolBinding: bindingGRPC, ProtocolVersion: protocolVersion, Tenant: handle}
		if handle == hubHandle {
			at.Tenant = "" // whichever the client wants
		}
		c.SupportedInterfaces = append(c.SupportedInterfaces, at)
	}
	if !f.opt.Anonymous {
		c.SecuritySchemes = map[string]securityScheme{"bearer": {httpAuth{
			Scheme: "Bearer", Description: "A token of this hub, as Authorization: Bearer {token}.",
		}}}
	}
	return c
}

// bindingGRPC is the name of gRPC in cards of either version.
const bindingGRPC = "GRPC"

// grpcTarget is the host and port of a base URL, which is all that gRPC has for an
// address (spec section 5.8); empty for a base with a path, below which gRPC has no
// place.
func grpcTarget(base string) string {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return ""
	}
	port := u.Port()
	if port == "" && u.Scheme == "https" {
		port = "443"
	} else if port == "" {
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// skills fills what the specification requires of skills; without any, the agent has one
// that says what its description says.
func skills(list []cardSkill, c card) []cardSkill {
	if len(list) == 0 {
		list = []cardSkill{{ID: "task", Name: "Do a task", Description: c.Description}}
	}
	for i := range list {
		s := &list[i]
		s.ID = or(s.ID, or(s.Name, "task"))
		s.Name = or(s.Name, s.ID)
		s.Description = or(s.Description, s.Name)
		if len(s.Tags) == 0 {
			s.Tags = []string{"general"}
		}
		// The defaults anyway; but FastA2A cannot read a skill that leaves them out.
		if len(s.InputModes) == 0 {
			s.InputModes = c.DefaultInputModes
		}
		if len(s.OutputModes) == 0 {
			s.OutputModes = c.DefaultOutputModes
		}
	}
	return list
}

// decode decodes raw, or gives nothing when it is nothing of that shape.
func decode[T any](raw json.RawMessage) T {
	var v, none T
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return none
	}
	return v
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// maxChanges bounds how many cards are remembered, since paths have many spellings.
const maxChanges = 10_000

// changes knows since when each card has been as it is: as far as this process has
// seen, which is never too early.
type changes struct {
	mu   sync.Mutex
	seen map[string]change
}

type change struct {
	etag string
	at   time.Time
}

// cardKey tells the cards that are served apart; whoever asks cannot make it long.
func cardKey(r *http.Request) string {
	if namesV03(r) {
		return "0.3 " + r.URL.Path
	}
	return r.URL.Path
}

// since is the time at which a card was first seen with the tag that it has now.
func (c *changes) since(card, etag string, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if is, ok := c.seen[card]; ok && is.etag == etag {
		return is.at
	}
	if c.seen == nil || len(c.seen) >= maxChanges {
		c.seen = make(map[string]change)
	}
	c.seen[card] = change{etag, now}
	return now
}

// serveCard writes a card so that clients and caches can keep it (spec section
// 8.6): for five minutes, and as long as it is the same after that.
func (f *face) serveCard(w http.ResponseWriter, r *http.Request, c signable) {
	body, err := f.renderCard(c)
	if err != nil {
		f.failCard(w, r, err)
		return
	}
	f.serveCached(w, r, body, f.opt.PrivateCards)
}

// serveCached writes JSON that may be kept, if it is private by its reader alone.
func (f *face) serveCached(w http.ResponseWriter, r *http.Request, body []byte, private bool) {
	sum := sha256.Sum256(body)
	etag := `"` + hex.EncodeToString(sum[:16]) + `"`
	h := w.Header()
	h.Set("ETag", etag)
	h.Set("Last-Modified", f.cards.since(cardKey(r), etag, time.Now()).UTC().Format(http.TimeFormat))
	if private {
		h.Set("Cache-Control", "private, max-age=300")
		h.Add("Vary", "Authorization")
	} else {
		h.Set("Cache-Control", "public, max-age=300")
	}
	if matches(r.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// matches reports whether an If-None-Match header names the tag, by the weak
// comparison of RFC 9110 section 13.1.2.
func matches(header []string, etag string) bool {
	for _, line := range header {
		for tag := range strings.SplitSeq(line, ",") {
			tag = strings.TrimSpace(tag)
			if tag == "*" || strings.TrimPrefix(tag, "W/") == etag {
				return true
			}
		}
	}
	return false
}
