package a2a

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	methodExtendedCard    = "GetExtendedAgentCard"
	methodExtendedCardV03 = "agent/getAuthenticatedExtendedCard"

	// callersURI is the extension in which an extended card says what only callers need
	// to know; docs/conformance.md has its members. It asks nothing of a client.
	callersURI = "https://github.com/holdfast-hub/holdfast/blob/main/docs/conformance.md#extended-cards-3111"

	// maxListed bounds the addresses on the hub's extended card, and maxHints the tags
	// and the examples of each.
	maxListed = 1_000
	maxHints  = 16
)

// forCallers is what only callers need to know of an address.
type forCallers struct {
	Handle string `json:"handle"`
	Kind   string `json:"kind"` // agent or person
	// BlockingSeconds is how long a blocking send waits at most.
	BlockingSeconds float64 `json:"blockingSeconds"`
	// DedupesMessageID: a repeated messageId is the same send.
	DedupesMessageID bool `json:"dedupesMessageId"`
	// LeaseSeconds is how long a worker that says nothing keeps a task, and
	// MaxRedeliveries how often it is handed out again after that; absent where the
	// address leaves it to the hub.
	LeaseSeconds    float64 `json:"leaseSeconds,omitempty"`
	MaxRedeliveries *int    `json:"maxRedeliveries,omitempty"`
}

// extendedCard is an address's card for those who may call it (spec section 3.1.11):
// the public one, and how long things take there. blocking is how long a blocking send
// of the caller's version waits.
func (f *face) extendedCard(a *hub.Address, blocking time.Duration) card {
	c := f.addressCard(a)
	say := forCallers{
		Handle: a.Handle, Kind: a.Kind.String(), BlockingSeconds: blocking.Seconds(),
		DedupesMessageID: a.DedupeMessageID, LeaseSeconds: a.Lease.Seconds(),
	}
	if a.MaxRedeliveries >= 0 {
		say.MaxRedeliveries = &a.MaxRedeliveries
	}
	if params, err := json.Marshal(say); err == nil { // it cannot fail
		c.Capabilities.Extensions = append(c.Capabilities.Extensions, cardExtension{
			URI: callersURI, Description: "What callers of this address need to know.", Params: params,
		})
	}
	return c
}

// serveExtendedCard answers GetExtendedAgentCard at an address.
func (f *face) serveExtendedCard(w http.ResponseWriter, b binding, c *caller, op operation) error {
	if err := extendedOf(c, op); err != nil {
		return err
	}
	return f.replyCard(w, b, f.extendedCard(c.address, f.handler.blocking))
}

// serveExtendedCardV03 is the same for 0.3 (sections 7.10 and 9.1 there). In ProtoJSON
// its security schemes have another form.
func (f *face) serveExtendedCardV03(w http.ResponseWriter, b binding, in form, c *caller, op operation) error {
	if err := extendedOf(c, op); err != nil {
		return err
	}
	if c.principal.Role == hub.RoleAnonymous { // whom 0.3 wants to be refused
		const why = "the extended card needs authentication: send a token of this hub; to others its public card says all"
		if in == kinded { // JSON-RPC, for which 0.3 has an error of its own
			return &fault{reason: extendedCardNotConfigured, message: why}
		}
		return hub.Errorf(hub.Unauthenticated, why)
	}
	old := f.extendedCard(c.address, f.v03.blocking).toV03()
	if _, ok := b.(*grpcCall); ok {
		old = old.inProto()
	} else if in == proto {
		old = old.withProtoSchemes()
	}
	return f.replyCard(w, b, old)
}

// extendedOf refuses a request for an extended card that the address does not offer.
func extendedOf(c *caller, op operation) error {
	tenant, err := decodeTenant(op.params)
	if err == nil {
		err = c.addressed(tenant)
	}
	if err != nil || !c.offer.noExtendedCard {
		return err
	}
	r := unsupportedOperation
	if op.method == methodExtendedCardV03 {
		r = extendedCardNotConfigured
	}
	return &fault{reason: r, message: "this address has no extended agent card; its public card says all"}
}

// replyCard answers an operation with a card.
func (f *face) replyCard(w http.ResponseWriter, b binding, c signable) error {
	body, err := f.renderCard(c)
	if err != nil {
		return err
	}
	reply(w, b, append(b.open(nil), body...))
	return nil
}

// asksHub reports whether a request is for the extended card of the hub itself: it
// names no tenant, at the hub's own endpoint. 0.3 has no tenants, and so no such card.
func asksHub(r *http.Request, op operation) bool {
	if op.method != methodExtendedCard || r.PathValue("handle") != hubHandle || r.Header.Get(tenantHeader) != "" {
		return false
	}
	tenant, err := decodeTenant(op.params)
	return err == nil && tenant == ""
}

// hubExtendedCard is the hub's card for a caller who may call the addresses of a list.
// Each of its skills is one of them, by its handle, which is the tenant to send to.
func (f *face) hubExtendedCard(list []hub.Address) card {
	c := f.hubCard()
	c.Description = "A durable task hub, as you may use it. Each skill is an address that you may call: send with the skill's id as the tenant, or to the endpoint /a/{id}, where its own card is."
	if len(list) > maxListed {
		c.Description += fmt.Sprintf(" These are the first %d of %d; GET /v1/agents lists all.", maxListed, len(list))
		list = list[:maxListed]
	}
	if len(list) == 0 {
		c.Skills = []cardSkill{{ID: "none", Name: "No address", Tags: []string{"none"},
			Description: "There is no address that you may call; ask the hub's administrator for one."}}
		return c
	}
	c.Skills = make([]cardSkill, len(list))
	for i := range list {
		c.Skills[i] = f.addressSkill(&list[i])
	}
	return c
}

// addressSkill is an address as a skill of the hub: by its tags and examples, a client
// finds the one that it needs.
func (f *face) addressSkill(a *hub.Address) cardSkill {
	c := f.addressCard(a)
	s := cardSkill{
		ID: a.Handle, Name: c.Name, Description: c.Description, Tags: []string{a.Kind.String()},
		InputModes: c.DefaultInputModes, OutputModes: c.DefaultOutputModes,
	}
	for _, of := range c.Skills {
		s.Tags = addHints(s.Tags, of.Tags)
		s.Examples = addHints(s.Examples, of.Examples)
	}
	return s
}

// addHints adds what is new, up to maxHints.
func addHints(list, more []string) []string {
	for _, s := range more {
		if len(list) < maxHints && s != "" && !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// serveHubExtendedCard answers GetExtendedAgentCard at the hub's own endpoint.
func (f *face) serveHubExtendedCard(ctx context.Context, w http.ResponseWriter, b binding, p hub.Principal) error {
	list, err := f.opt.Identity.Agents(ctx, p)
	if err != nil {
		return err
	}
	return f.replyCard(w, b, f.hubExtendedCard(list))
}
