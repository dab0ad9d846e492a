package v1

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/wire"
)

// tenant is what whoami calls the one organisation that a hub serves.
const tenant = "default"

// The inputs and outputs of the administration, in huma's terms.
type (
	none struct{}
	one  struct {
		Ref string `path:"ref" doc:"Handle or id of the address; me for the caller's own."`
	}
	byID struct {
		ID string `path:"id" doc:"The token's id."`
	}
	with[T any] struct {
		Body T
	}
	oneWith[T any] struct {
		Ref  string `path:"ref" doc:"Handle or id of the address; me for the caller's own."`
		Body T
	}
	answer[T any] struct {
		Body T
	}
)

// registerAdmin adds the routes that huma serves.
func (f *face) registerAdmin() {
	const agents, tokens, self = "Addresses", "Tokens", "The hub"
	admin := func(id, method, path, tag, summary string, status int) huma.Operation {
		return f.operation(id, method, path, tag, summary+" Needs an admin token.", status, f.adminOnly)
	}
	anyone := func(id, method, path, tag, summary string) huma.Operation {
		return f.operation(id, method, path, tag, summary, http.StatusOK, f.authenticated)
	}
	named := func(id, method, path, tag, summary string) huma.Operation {
		return f.operation(id, method, path, tag, summary, http.StatusOK, f.notAnonymous)
	}
	serve(f, admin("create-agent", "POST", "/v1/agents", agents, "Create an address.", 201), f.createAgent)
	serve(f, anyone("list-agents", "GET", "/v1/agents", agents, "List the addresses that the caller may call."), f.listAgents)
	serve(f, anyone("get-agent", "GET", "/v1/agents/{ref}", agents, "Read an address."), f.getAgent)
	serve(f, admin("update-agent", "PATCH", "/v1/agents/{ref}", agents, "Change what is given of an address.", 200), f.updateAgent)
	serve(f, admin("delete-agent", "DELETE", "/v1/agents/{ref}", agents, "Delete an address. Its tokens end, its history stays.", 204), f.deleteAgent)
	serve(f, named("set-endpoint", "PUT", "/v1/agents/{ref}/endpoint", agents, "Say how tasks reach an agent: at a URL, or with {\"url\":null} when it pulls them."), f.setEndpoint)
	serve(f, named("set-own-endpoint", "PUT", "/v1/agents/me/endpoint", agents, "Say how tasks reach the caller: at a URL, or with {\"url\":null} when it pulls them."), f.setOwnEndpoint)
	serve(f, named("list-attempts", "GET", "/v1/agents/{ref}/attempts", agents, "List the tries of the hub to bring tasks to an agent, the newest first."), f.listAttempts)
	serve(f, named("list-own-attempts", "GET", "/v1/agents/me/attempts", agents, "List the tries of the hub to bring tasks to the caller, the newest first."), f.listOwnAttempts)
	serve(f, admin("create-token", "POST", "/v1/agents/{ref}/tokens", tokens, "Create a token that acts as an address. Only this answer has its secret.", 201), f.createToken)
	serve(f, admin("list-tokens", "GET", "/v1/agents/{ref}/tokens", tokens, "List the tokens of an address.", 200), f.listTokens)
	serve(f, admin("list-all-tokens", "GET", "/v1/tokens", tokens, "List the tokens of all addresses.", 200), f.listAllTokens)
	serve(f, admin("revoke-token", "DELETE", "/v1/tokens/{id}", tokens, "Revoke a token. What is open with it ends.", 204), f.revokeToken)
	serve(f, anyone("whoami", "GET", "/v1/whoami", self, "Say who the caller is."), f.whoami)
	serve(f, admin("info", "GET", "/v1/admin/info", self, "Describe the hub and its queue.", 200), f.info)
	schemas := f.api.OpenAPI().Components.Schemas.Map()
	delete(schemas, "ErrorModel") // huma's own, which ownErrors replaces
	delete(schemas, "ErrorDetail")
}

// operation describes a route of the administration; who decides who may use it.
func (f *face) operation(id, method, path, tag, summary string, status int, who func(hub.Principal) error) huma.Operation {
	op := huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{tag}, Summary: summary,
		DefaultStatus: status, MaxBodyBytes: f.opt.MaxBody,
		Middlewares: huma.Middlewares{f.guard(who)},
	}
	f.describe(&op)
	return op
}

func (f *face) authenticated(hub.Principal) error { return nil }

func (f *face) notAnonymous(p hub.Principal) error {
	if p.Role == hub.RoleAnonymous {
		return hub.Errorf(hub.NotPermitted, "only the administrator and the agent itself may do this; use the admin token or the agent's")
	}
	return nil
}

func (f *face) adminOnly(p hub.Principal) error {
	if !p.Admin() {
		return hub.Errorf(hub.NotPermitted, "only the administrator may do this; use the admin token")
	}
	return nil
}

// serve registers a route whose handler learns who asks, and whose errors are the
// hub's own.
func serve[I, O any](f *face, op huma.Operation, h func(context.Context, hub.Principal, *I) (*O, error)) {
	huma.Register(f.api, op, func(ctx context.Context, in *I) (*O, error) {
		p, err := identity.Require(ctx)
		if err != nil {
			return nil, f.shown(ctx, err)
		}
		out, err := h(ctx, p, in)
		if err != nil {
			return nil, f.shown(ctx, err)
		}
		return out, nil
	})
}

func (f *face) createAgent(ctx context.Context, p hub.Principal, in *with[wire.AgentRequest]) (*answer[wire.Agent], error) {
	spec, err := agentSpec(&in.Body)
	if err != nil {
		return nil, err
	}
	return f.agentAnswer(p)(f.opt.Identity.CreateAgent(ctx, p, spec))
}

func (f *face) listAgents(ctx context.Context, p hub.Principal, _ *none) (*answer[wire.List[wire.Agent]], error) {
	all, err := f.opt.Identity.Agents(ctx, p)
	if err != nil {
		return nil, err
	}
	connected, err := f.connected(ctx)
	if err != nil {
		return nil, err
	}
	list := wire.List[wire.Agent]{Data: make([]wire.Agent, 0, len(all))}
	for i := range all {
		a := f.agent(p, &all[i])
		if owns(p, &all[i]) {
			a.Presence = f.presence(&all[i], connected[all[i].ID])
		}
		list.Data = append(list.Data, a)
	}
	return &answer[wire.List[wire.Agent]]{list}, nil
}

func (f *face) getAgent(ctx context.Context, p hub.Principal, in *one) (*answer[wire.Agent], error) {
	a, err := f.opt.Identity.Agent(ctx, p, in.Ref)
	if err != nil {
		return nil, err
	}
	shown := f.agent(p, a)
	if owns(p, a) {
		shown.Presence, err = f.wholePresence(ctx, a)
	}
	return &answer[wire.Agent]{shown}, err
}

func (f *face) updateAgent(ctx context.Context, p hub.Principal, in *oneWith[wire.AgentRequest]) (*answer[wire.Agent], error) {
	spec, err := agentSpec(&in.Body)
	if err != nil {
		return nil, err
	}
	return f.agentAnswer(p)(f.opt.Identity.UpdateAgent(ctx, p, in.Ref, spec))
}

func (f *face) deleteAgent(ctx context.Context, p hub.Principal, in *one) (*none, error) {
	return &none{}, f.opt.Identity.DeleteAgent(ctx, p, in.Ref)
}

func (f *face) setEndpoint(ctx context.Context, p hub.Principal, in *oneWith[wire.EndpointRequest]) (*answer[wire.Agent], error) {
	a, signing, err := f.opt.Identity.SetEndpoint(ctx, p, in.Ref, endpointSpec(&in.Body))
	if err != nil {
		return nil, err
	}
	shown := f.agent(p, a)
	if shown.Endpoint != nil {
		shown.Endpoint.SigningSecret = signing
	}
	return &answer[wire.Agent]{shown}, nil
}

// endpointSpec is the request in identity's terms.
func endpointSpec(r *wire.EndpointRequest) identity.EndpointSpec {
	spec := identity.EndpointSpec{Kind: r.Kind, ClearAuth: r.ClearAuth, Private: r.AllowPrivateNetwork}
	if r.URL != nil {
		spec.URL = *r.URL
	}
	if r.Auth != nil {
		spec.Auth = &identity.EndpointAuth{Type: r.Auth.Type, Header: r.Auth.Header, Secret: r.Auth.Secret}
	}
	return spec
}

func (f *face) setOwnEndpoint(ctx context.Context, p hub.Principal, in *with[wire.EndpointRequest]) (*answer[wire.Agent], error) {
	return f.setEndpoint(ctx, p, &oneWith[wire.EndpointRequest]{Ref: p.Address, Body: in.Body})
}

func (f *face) createToken(ctx context.Context, p hub.Principal, in *oneWith[wire.TokenRequest]) (*answer[wire.Token], error) {
	t, secret, err := f.opt.Identity.CreateToken(ctx, p, in.Ref, identity.TokenSpec{Name: in.Body.Name, ExpiresIn: in.Body.ExpiresIn})
	if err != nil {
		return nil, err
	}
	shown := token(&t)
	shown.Token = secret
	return &answer[wire.Token]{shown}, nil
}

func (f *face) listTokens(ctx context.Context, p hub.Principal, in *one) (*answer[wire.List[wire.Token]], error) {
	return tokensAnswer(f.opt.Identity.Tokens(ctx, p, in.Ref))
}

func (f *face) listAllTokens(ctx context.Context, p hub.Principal, _ *none) (*answer[wire.List[wire.Token]], error) {
	return tokensAnswer(f.opt.Identity.AllTokens(ctx, p))
}

func tokensAnswer(all []hub.Token, err error) (*answer[wire.List[wire.Token]], error) {
	if err != nil {
		return nil, err
	}
	list := wire.List[wire.Token]{Data: make([]wire.Token, 0, len(all))}
	for i := range all {
		list.Data = append(list.Data, token(&all[i]))
	}
	return &answer[wire.List[wire.Token]]{list}, nil
}

func (f *face) revokeToken(ctx context.Context, p hub.Principal, in *byID) (*none, error) {
	return &none{}, f.opt.Identity.RevokeToken(ctx, p, in.ID)
}

func (f *face) whoami(_ context.Context, p hub.Principal, _ *none) (*answer[wire.Whoami], error) {
	method := "token"
	if p.Role == hub.RoleAnonymous {
		method = "anonymous"
	}
	return &answer[wire.Whoami]{wire.Whoami{
		TenantID: tenant, AuthMethod: method, IdentityID: p.Address, Handle: p.Handle,
		Roles: []string{p.Role.String()}, Scopes: []string{},
	}}, nil
}

func (f *face) info(ctx context.Context, _ hub.Principal, _ *none) (*answer[wire.Info], error) {
	stats, err := f.opt.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return &answer[wire.Info]{wire.Info{
		Version: f.opt.Version, Store: f.opt.StoreName, PublicURL: f.opt.PublicURL, StartedAt: wire.Time{Time: f.opt.StartedAt},
		Ready: stats.Ready, Leased: stats.Leased, Parked: stats.Parked,
	}}, nil
}

// agentSpec is the request in identity's terms.
func agentSpec(r *wire.AgentRequest) (identity.AgentSpec, error) {
	spec := identity.AgentSpec{
		Handle: r.Handle, Kind: r.Kind, Description: r.Description, Access: r.Access, LeaseS: r.LeaseS,
		MaxRedeliveries: r.MaxRedeliveries, DedupeMessageID: r.DedupeMessageID, OnUnknown: r.OnUnknown, RelayPaths: r.RelayPaths,
	}
	if r.Card == nil {
		return spec, nil
	}
	card, err := checkCard(*r.Card)
	if err == nil {
		spec.Card, err = json.Marshal(card)
	}
	return spec, err
}

// checkCard gives the card without its members that are null, and refuses those
// that are of the wrong type.
func checkCard(c wire.Card) (wire.Card, error) {
	for _, m := range []struct {
		name string
		raw  *json.RawMessage
		want rawjson.Kind
	}{
		{"provider", &c.Provider, rawjson.Object}, {"skills", &c.Skills, rawjson.Array}, {"extensions", &c.Extensions, rawjson.Array},
	} {
		switch got := rawjson.KindOf(*m.raw); got {
		case m.want, rawjson.Invalid: // Invalid is absent
		case rawjson.Null:
			*m.raw = nil
		default:
			return c, hub.InvalidField("card."+m.name, "expected %s, found %s", m.want, got)
		}
	}
	return c, nil
}

// agentAnswer answers p with an address.
func (f *face) agentAnswer(p hub.Principal) func(*hub.Address, error) (*answer[wire.Agent], error) {
	return func(a *hub.Address, err error) (*answer[wire.Agent], error) {
		if err != nil {
			return nil, err
		}
		return &answer[wire.Agent]{f.agent(p, a)}, nil
	}
}

// agent is an address as /v1 shows it to p.
func (f *face) agent(p hub.Principal, a *hub.Address) wire.Agent {
	shown := wire.Agent{
		ID: a.ID, Handle: a.Handle, Name: a.Handle, Kind: a.Kind.String(), Description: a.Description,
		Access: a.Access.String(), LeaseS: int(a.Lease / time.Second), MaxRedeliveries: a.MaxRedeliveries,
		DedupeMessageID: a.DedupeMessageID, OnUnknown: a.OnUnknown,
		Delivery: f.delivery(a), URL: f.opt.PublicURL + "/a/" + a.Handle, CreatedAt: wire.Time{Time: a.CreatedAt},
		LastSeenAt: timeOrNil(f.opt.Engine.LastSeen(a.ID)),
	}
	if owns(p, a) {
		shown.Endpoint, shown.RelayPaths = f.endpoint(a), a.RelayPaths
	}
	var card wire.Card
	if a.Card != nil && json.Unmarshal(a.Card, &card) == nil {
		shown.Card = &card
	}
	return shown
}

// delivery is how tasks reach an address, in /v1's words.
func (f *face) delivery(a *hub.Address) string {
	if s, ok := f.opt.Engine.Standing(a.ID); ok {
		return s.Kind
	}
	if a.Endpoint != nil {
		return a.Endpoint.Kind
	}
	return a.Kind.Delivery()
}

// endpoint is that of an address as /v1 shows it to its owner, without its secrets.
func (f *face) endpoint(a *hub.Address) *wire.Endpoint {
	e := a.Endpoint
	if e == nil {
		return nil
	}
	shown := &wire.Endpoint{Kind: e.Kind, URL: e.URL, AuthType: e.Auth, AuthHeader: e.Header, AllowPrivateNetwork: e.Private}
	s, ok := f.opt.Engine.Standing(a.ID)
	if !ok {
		return shown
	}
	shown.Slots, shown.InFlight, shown.Trouble = s.Slots, s.InFlight, trouble(&s)
	if l := s.Last; l != nil {
		shown.LastDelivery = &wire.EndpointDelivery{
			TaskID: l.Task, Attempt: l.Attempt, Outcome: l.Outcome, Status: l.Status,
			LatencyMS: l.Took.Milliseconds(), Detail: l.Detail, At: wire.Time{Time: l.At},
		}
	}
	return shown
}

// token is a token as /v1 shows it, without its secret.
func token(t *hub.Token) wire.Token {
	return wire.Token{ID: t.ID, AgentID: t.Address, Handle: t.Handle, Name: t.Name, CreatedAt: wire.Time{Time: t.CreatedAt}, ExpiresAt: timeOrNil(t.ExpiresAt)}
}

func timeOrNil(t time.Time) *wire.Time {
	if t.IsZero() {
		return nil
	}
	return wire.At(t)
}
