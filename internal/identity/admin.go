package identity

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/relaypath"
)

// The limits of what an administrator may enter.
const (
	maxDescription  = 4_000
	maxCard         = 64 << 10
	maxTokenName    = 200
	maxRedeliveries = 1_000
	maxLeaseS       = 24 * 60 * 60
	maxExpiresIn    = 100 * 365 * 24 * 60 * 60
)

// handlePattern is what a handle looks like: it goes into URLs as it is.
var handlePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// reserved reports whether a handle would be confused with a word of a route, or
// with one of the hub's own names.
func reserved(handle string) bool {
	switch handle {
	case hub.AdminHandle, hub.AnonymousHandle, "hub", "me", "self", "system",
		"v1", "api", "a", "t", "rpc", "docs", "openapi", "well-known", "static", "assets",
		"healthz", "readyz", "metrics", "login", "logout", "console", "web",
		"agents", "agent", "tasks", "task", "tokens", "token", "bindings", "inbox", "runs",
		"calls", "chat", "models", "exchanges", "activity", "whoami", "people", "person", "all", "any", "none":
		return true
	}
	return false
}

// AgentSpec is what an administrator says about an address. For UpdateAgent, what
// is nil stays as it is.
type AgentSpec struct {
	Handle string // CreateAgent only
	Kind   string // CreateAgent only: "agent" (also if empty) or "person"

	Description *string
	// Card is the owner's part of the agent card, canonical JSON; JSON null takes it
	// away.
	Card []byte
	// Access is "open" or "approved"; a new address is approved.
	Access *string
	// LeaseS is in seconds, up to a day; 0 is the hub's default.
	LeaseS *int
	// MaxRedeliveries is up to 1000; -1 is the hub's default.
	MaxRedeliveries *int
	DedupeMessageID *bool
	// OnUnknown is "resend" (the default) or "fail".
	OnUnknown *string
	// RelayPaths are the prefixes of paths that outside services may reach through a
	// tunnel; an empty list, the default, lets nothing through.
	RelayPaths *[]string
}

// TokenSpec is what a new token is to be.
type TokenSpec struct {
	Name string
	// ExpiresIn is in seconds; nil for never.
	ExpiresIn *int64
}

// CreateAgent adds an address. Admin only. Exists if the handle is taken.
func (s *Service) CreateAgent(ctx context.Context, p hub.Principal, spec AgentSpec) (*hub.Address, error) {
	if err := requireAdmin(p); err != nil {
		return nil, err
	}
	a := hub.Address{
		ID: s.opt.NewID(), Handle: spec.Handle, Access: hub.Approved,
		MaxRedeliveries: -1, OnUnknown: "resend", CreatedAt: s.opt.Now(),
	}
	if err := checkHandle(spec.Handle); err != nil {
		return nil, err
	}
	switch spec.Kind {
	case "", "agent":
		a.Kind = hub.KindAgent
	case "person":
		a.Kind = hub.KindPerson
	default:
		return nil, hub.InvalidField("kind", "%.80q is no kind of address; it is agent or person", spec.Kind)
	}
	if err := spec.apply(&a); err != nil {
		return nil, err
	}
	if err := s.opt.Store.CreateAddress(ctx, a); err != nil {
		return nil, err
	}
	s.changed()
	return &a, nil
}

// Agents lists the living addresses in the order of their handles: to the
// administrator all of them, to others those that they may call, and themselves.
func (s *Service) Agents(ctx context.Context, p hub.Principal) ([]hub.Address, error) {
	all, err := s.opt.Store.Addresses(ctx)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(a hub.Address) bool { return !s.MayCall(p, &a) }), nil
}

// Agent gives one address by handle or id; "me" is the principal's own. To the
// administrator an unknown one is NotFound; to others everything that they may not
// call is NotPermitted, known or not.
func (s *Service) Agent(ctx context.Context, p hub.Principal, ref string) (*hub.Address, error) {
	if ref == "me" {
		ref = p.Address
	}
	if p.Admin() {
		return s.known(ctx, ref)
	}
	a, err := s.Resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if a.ID != p.Address && !s.MayCall(p, a) {
		return nil, hub.ErrNotPermitted()
	}
	return a, nil
}

// UpdateAgent changes what spec gives; handle and kind stay. Admin only.
func (s *Service) UpdateAgent(ctx context.Context, p hub.Principal, ref string, spec AgentSpec) (*hub.Address, error) {
	a, err := s.administer(ctx, p, ref)
	if err != nil {
		return nil, err
	}
	if spec.Handle != "" && spec.Handle != a.Handle {
		return nil, hub.InvalidField("handle", "a handle cannot be changed; create another address instead")
	}
	if spec.Kind != "" && spec.Kind != a.Kind.String() {
		return nil, hub.InvalidField("kind", "the kind of an address cannot be changed; create another address instead")
	}
	if err := spec.apply(a); err != nil {
		return nil, err
	}
	if err := s.opt.Store.UpdateAddress(ctx, *a); err != nil {
		return nil, err
	}
	s.changed()
	s.refresh(ctx, a.ID)
	return a, nil
}

// DeleteAgent deletes an address, revokes its tokens and ends their open requests.
// Its handle is free again, its history stays. Admin only.
func (s *Service) DeleteAgent(ctx context.Context, p hub.Principal, ref string) error {
	a, err := s.administer(ctx, p, ref)
	if err != nil {
		return err
	}
	if err := s.opt.Store.DeleteAddress(ctx, a.ID); err != nil {
		return err
	}
	s.changed()
	s.refresh(ctx, a.ID)
	s.open.cut(func(g grant) bool { return g.p.Address == a.ID }, errEnded())
	return nil
}

// CreateToken makes a token that acts as an address, and gives its secret, which
// nobody can see again. For the address admin it makes another administrator's
// token. Admin only.
func (s *Service) CreateToken(ctx context.Context, p hub.Principal, ref string, spec TokenSpec) (hub.Token, string, error) {
	if err := requireAdmin(p); err != nil {
		return hub.Token{}, "", err
	}
	a, err := s.tokenOwner(ctx, ref)
	if err != nil {
		return hub.Token{}, "", err
	}
	if err := checkText("name", spec.Name, maxTokenName); err != nil {
		return hub.Token{}, "", err
	}
	t := hub.Token{Address: a.ID, Handle: a.Handle, Name: spec.Name, Role: roleOf(a)}
	t.CreatedAt = s.opt.Now()
	if spec.ExpiresIn != nil {
		if *spec.ExpiresIn < 1 || *spec.ExpiresIn > maxExpiresIn {
			return hub.Token{}, "", hub.InvalidField("expires_in", "a token lasts between 1 and %d seconds; leave it out for one that does not expire", int64(maxExpiresIn))
		}
		t.ExpiresAt = t.CreatedAt.Add(time.Duration(*spec.ExpiresIn) * time.Second)
	}
	return s.addToken(ctx, t)
}

// Tokens lists the tokens of an address that are not revoked, oldest first. Admin
// only.
func (s *Service) Tokens(ctx context.Context, p hub.Principal, ref string) ([]hub.Token, error) {
	if err := requireAdmin(p); err != nil {
		return nil, err
	}
	a, err := s.tokenOwner(ctx, ref)
	if err != nil {
		return nil, err
	}
	return s.opt.Store.Tokens(ctx, a.ID)
}

// AllTokens lists the tokens of all addresses that are not revoked, in the order of
// their handles, the oldest of each first. Admin only.
func (s *Service) AllTokens(ctx context.Context, p hub.Principal) ([]hub.Token, error) {
	if err := requireAdmin(p); err != nil {
		return nil, err
	}
	all, err := s.opt.Store.Tokens(ctx, "")
	slices.SortStableFunc(all, func(a, b hub.Token) int { return strings.Compare(a.Handle, b.Handle) })
	return all, err
}

// RevokeToken ends a token and the requests that are open with it. NotFound if
// there is none such. Admin only.
func (s *Service) RevokeToken(ctx context.Context, p hub.Principal, id string) error {
	if err := requireAdmin(p); err != nil {
		return err
	}
	return s.revoke(ctx, id)
}

func (s *Service) revoke(ctx context.Context, id string) error {
	if err := s.opt.Store.RevokeToken(ctx, id); err != nil {
		return err
	}
	s.changed()
	s.cutToken(id)
	return nil
}

// administer finds an address that the administrator wants to change.
func (s *Service) administer(ctx context.Context, p hub.Principal, ref string) (*hub.Address, error) {
	if err := requireAdmin(p); err != nil {
		return nil, err
	}
	a, err := s.known(ctx, ref)
	if err != nil {
		return nil, err
	}
	if a.Kind == hub.KindHub {
		return nil, hub.Errorf(hub.Invalid, "%s is the hub's own address and cannot be changed", a.Handle)
	}
	return a, nil
}

// tokenOwner finds the address that a token is to act as, or acts as.
func (s *Service) tokenOwner(ctx context.Context, ref string) (*hub.Address, error) {
	a, err := s.known(ctx, ref)
	if err == nil && a.Kind == hub.KindHub && a.Handle != hub.AdminHandle {
		return nil, hub.Errorf(hub.Invalid, "%s has no tokens: it stands for requests without one", a.Handle)
	}
	return a, err
}

// known reads an address past the cache, as something to change or to show to the
// administrator.
func (s *Service) known(ctx context.Context, ref string) (*hub.Address, error) {
	a, err := s.opt.Store.Address(ctx, ref)
	if hub.KindOf(err) == hub.NotFound {
		return nil, hub.Errorf(hub.NotFound, "there is no address %.80q; list them to see which there are", ref)
	}
	return a, err
}

// apply checks what spec gives and puts it into a.
func (spec *AgentSpec) apply(a *hub.Address) error {
	if spec.Description != nil {
		if err := checkText("description", *spec.Description, maxDescription); err != nil {
			return err
		}
		a.Description = *spec.Description
	}
	if err := spec.applyCard(a); err != nil {
		return err
	}
	if spec.Access != nil {
		switch *spec.Access {
		case "open":
			a.Access = hub.Open
		case "approved":
			a.Access = hub.Approved
		default:
			return hub.InvalidField("access", "%.80q is no way into an address; it is open or approved", *spec.Access)
		}
	}
	return spec.applyDelivery(a)
}

func (spec *AgentSpec) applyCard(a *hub.Address) error {
	switch {
	case len(spec.Card) > maxCard:
		return hub.InvalidField("card", "the card is larger than %d bytes; shorten it", maxCard)
	case string(spec.Card) == "null":
		a.Card = nil
	case spec.Card != nil:
		a.Card = spec.Card
	}
	return nil
}

func (spec *AgentSpec) applyDelivery(a *hub.Address) error {
	if n := spec.LeaseS; n != nil {
		if *n < 0 || *n > maxLeaseS {
			return hub.InvalidField("lease_s", "a lease lasts between 1 and %d seconds, or 0 for the hub's default", maxLeaseS)
		}
		a.Lease = time.Duration(*n) * time.Second
	}
	if n := spec.MaxRedeliveries; n != nil {
		if *n < -1 || *n > maxRedeliveries {
			return hub.InvalidField("max_redeliveries", "a task is redelivered between 0 and %d times, or -1 for the hub's default", maxRedeliveries)
		}
		a.MaxRedeliveries = *n
	}
	if spec.DedupeMessageID != nil {
		a.DedupeMessageID = *spec.DedupeMessageID
	}
	if v := spec.OnUnknown; v != nil {
		if *v != "resend" && *v != "fail" {
			return hub.InvalidField("on_unknown", "%.80q is not known; it is resend or fail", *v)
		}
		a.OnUnknown = *v
	}
	if v := spec.RelayPaths; v != nil {
		if err := relaypath.CheckPrefixes(*v); err != nil {
			return hub.InvalidField("relay_paths", "%v", err)
		}
		a.RelayPaths = slices.Clone(*v)
	}
	return nil
}

func requireAdmin(p hub.Principal) error {
	if p.Admin() {
		return nil
	}
	return hub.Errorf(hub.NotPermitted, "only the administrator may do this; use the admin token")
}

func checkHandle(handle string) error {
	switch {
	case handle == "":
		return hub.InvalidField("handle", "an address needs a handle")
	case !handlePattern.MatchString(handle):
		return hub.InvalidField("handle", "%.80q is no handle: it has 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit", handle)
	case uuid.Validate(handle) == nil:
		return hub.InvalidField("handle", "%q looks like an id; choose a handle that cannot be taken for one", handle)
	case reserved(handle):
		return hub.InvalidField("handle", "%q is a word that the hub uses itself; choose another", handle)
	}
	return nil
}

func checkText(field, text string, limit int) error {
	switch {
	case len(text) > limit:
		return hub.InvalidField(field, "it is longer than %d bytes; shorten it", limit)
	case !utf8.ValidString(text):
		return hub.InvalidField(field, "it is not valid UTF-8")
	}
	return nil
}
