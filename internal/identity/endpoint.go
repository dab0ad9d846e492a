package identity

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Bounds of an endpoint, in bytes.
const (
	maxCredential = 4 << 10
	maxHeaderName = 100
	// signingKey is how many random bytes sign the requests to an endpoint.
	signingKey = 32
)

// EndpointSpec is what SetEndpoint is to make of an endpoint.
type EndpointSpec struct {
	// URL is where to deliver; empty to have the address pull.
	URL string
	// Kind is hub.WebhookDelivery, also if empty, or hub.RemoteDelivery.
	Kind string
	// Auth replaces the credential; nil keeps it, unless ClearAuth.
	Auth      *EndpointAuth
	ClearAuth bool
	// Private lets the URL lead into private networks, for the administrator to say. Nil
	// keeps that of an endpoint with this URL, and else is false.
	Private *bool
}

// EndpointAuth is the credential that the hub presents at an endpoint.
type EndpointAuth struct {
	Type   string // "bearer", "header" or "basic"
	Header string // of type header: its name
	Secret string // of type basic: user:password
}

// SetEndpoint says where the hub brings the tasks of an address; the administrator may,
// and the address itself. It is in force when SetEndpoint returns. The signing secret is
// given if it was made now, for a new endpoint, and can never be seen again; else it is
// empty, and stays what it was.
//
// Whoever moves an endpoint to another host without being the administrator has to give
// its credential anew: otherwise they could have it sent to themselves.
func (s *Service) SetEndpoint(ctx context.Context, p hub.Principal, ref string, spec EndpointSpec) (_ *hub.Address, signing string, err error) {
	a, err := s.Owned(ctx, p, ref)
	if err != nil {
		return nil, "", err
	}
	s.endpoints.Lock()
	defer s.endpoints.Unlock()
	if a, err = s.known(ctx, a.ID); err != nil { // as it is now, past the cache
		return nil, "", err
	}
	var e *hub.Endpoint
	if spec.URL == "" {
		err = spec.checkNone()
	} else {
		e, signing, err = s.newEndpoint(ctx, p, a, spec)
	}
	if err != nil {
		return nil, "", err
	}
	if err := s.opt.Store.SetEndpoint(ctx, a.ID, e); err != nil {
		return nil, "", err
	}
	s.changed()
	s.refresh(ctx, a.ID)
	a.Endpoint = e
	return a, signing, nil
}

// Owned finds an address whose deliveries are p's concern: its own, and for the
// administrator any but the hub's. Others get the errors of Agent or NotPermitted.
func (s *Service) Owned(ctx context.Context, p hub.Principal, ref string) (*hub.Address, error) {
	a, err := s.Agent(ctx, p, ref)
	switch {
	case err != nil:
		return nil, err
	case p.Role == hub.RoleAnonymous || !p.Admin() && a.ID != p.Address:
		return nil, hub.ErrNotPermitted()
	case a.Kind == hub.KindHub:
		return nil, hub.Errorf(hub.Invalid, "%s is the hub's own address: nothing is delivered to it", a.Handle)
	}
	return a, nil
}

// refresh tells who delivers that an address is another now.
func (s *Service) refresh(ctx context.Context, address string) {
	if s.opt.Deliveries != nil {
		s.opt.Deliveries.Refresh(ctx, address)
	}
}

// checkNone refuses what makes no sense without an endpoint.
func (spec *EndpointSpec) checkNone() error {
	switch {
	case spec.Kind != "":
		return hub.InvalidField("kind", "an endpoint needs a url; without one the agent pulls its tasks, so leave this out")
	case spec.Auth != nil:
		return hub.InvalidField("auth", "an endpoint needs a url; without one the agent pulls its tasks, so leave this out")
	case spec.Private != nil && *spec.Private:
		return hub.InvalidField("allow_private_network", "an endpoint needs a url; without one the agent pulls its tasks, so leave this out")
	}
	return nil
}

// newEndpoint makes the endpoint that a is to have.
func (s *Service) newEndpoint(ctx context.Context, p hub.Principal, a *hub.Address, spec EndpointSpec) (*hub.Endpoint, string, error) {
	e := &hub.Endpoint{Kind: cmp.Or(spec.Kind, hub.WebhookDelivery), URL: spec.URL}
	switch {
	case e.Kind != hub.WebhookDelivery && e.Kind != hub.RemoteDelivery:
		return nil, "", hub.InvalidField("kind", "%.80q is no kind of endpoint; it is webhook or a2a", spec.Kind)
	case a.Kind == hub.KindPerson:
		return nil, "", hub.InvalidField("url", "@%s is a person, who has an inbox and no endpoint", a.Handle)
	case s.opt.Sealer == nil || s.opt.CheckURL == nil:
		return nil, "", hub.InvalidField("url", `this hub delivers to no endpoints; send {"url":null} and let the agent pull its tasks`)
	}
	if err := spec.private(p, a.Endpoint, e); err != nil {
		return nil, "", err
	}
	if err := s.opt.CheckURL(ctx, e.URL, e.Private); err != nil {
		return nil, "", err
	}
	return s.withSecrets(p, a, spec, e)
}

// private decides whether the endpoint may lead into a private network.
func (spec *EndpointSpec) private(p hub.Principal, old, e *hub.Endpoint) error {
	same := old != nil && old.URL == e.URL && old.Private
	switch {
	case spec.Private == nil:
		e.Private = same
	case *spec.Private && !same && !p.Admin():
		return hub.Errorf(hub.NotPermitted, "only the administrator may let an endpoint lead into a private network; ask for that")
	default:
		e.Private = *spec.Private
	}
	return nil
}

// withSecrets gives an endpoint its credential, old or new, and the key of its
// signatures, which is given too if it is new.
func (s *Service) withSecrets(p hub.Principal, a *hub.Address, spec EndpointSpec, e *hub.Endpoint) (*hub.Endpoint, string, error) {
	secrets, err := s.endpointSecrets(a)
	if err != nil {
		return nil, "", err
	}
	old := a.Endpoint
	switch {
	case spec.Auth != nil && spec.ClearAuth:
		return nil, "", hub.InvalidField("clear_auth", "either give a new credential or clear the old one")
	case spec.Auth != nil:
		if err := spec.Auth.check(); err != nil {
			return nil, "", err
		}
		e.Auth, e.Header, secrets.Credential = spec.Auth.Type, spec.Auth.Header, spec.Auth.Secret
	case spec.ClearAuth || old == nil || old.Auth == "":
		secrets.Credential = ""
	case !p.Admin() && !sameOrigin(old.URL, e.URL):
		return nil, "", hub.InvalidField("auth", "the endpoint moves to another host, and its credential does not go along by itself; give auth anew, or clear_auth")
	default:
		e.Auth, e.Header = old.Auth, old.Header
	}
	fresh := ""
	if secrets.Signing == "" && e.Kind == hub.WebhookDelivery {
		fresh = newSigningSecret()
		secrets.Signing = fresh
	}
	clear, err := json.Marshal(secrets)
	if err != nil {
		return nil, "", fmt.Errorf("encode the secrets of an endpoint: %w", err)
	}
	if e.Sealed, err = s.opt.Sealer.Seal(clear, hub.EndpointAbout(a.ID)); err != nil {
		return nil, "", fmt.Errorf("seal the secrets of an endpoint: %w", err)
	}
	return e, fresh, nil
}

// endpointSecrets opens the secrets of the endpoint that an address has; none if it has
// no endpoint.
func (s *Service) endpointSecrets(a *hub.Address) (secrets hub.EndpointSecrets, err error) {
	if a.Endpoint == nil {
		return secrets, nil
	}
	clear, err := s.opt.Sealer.Open(a.Endpoint.Sealed, hub.EndpointAbout(a.ID))
	if err != nil {
		return secrets, fmt.Errorf("open the secrets of an endpoint: %w", err)
	}
	if json.Unmarshal(clear, &secrets) != nil {
		return secrets, errors.New("the secrets of an endpoint cannot be read") // the decoder's words may show them
	}
	return secrets, nil
}

// newSigningSecret makes a key in the form of Standard Webhooks.
func newSigningSecret() string {
	key := make([]byte, signingKey)
	_, _ = rand.Read(key) // which never fails
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

// sameOrigin reports whether two URLs lead to the same scheme, host and port.
func sameOrigin(a, b string) bool {
	x, errX := url.Parse(a)
	y, errY := url.Parse(b)
	return errX == nil && errY == nil && x.Scheme == y.Scheme && strings.EqualFold(x.Host, y.Host)
}

func (x *EndpointAuth) check() error {
	switch {
	case x.Type != "bearer" && x.Type != "header" && x.Type != "basic":
		return hub.InvalidField("auth.type", "%.80q is not known; it is bearer, header or basic", x.Type)
	case x.Type != "header" && x.Header != "":
		return hub.InvalidField("auth.header", "goes with the type header alone")
	case x.Type == "header" && !mayBeHeader(x.Header):
		return hub.InvalidField("auth.header", "is no header that can carry a credential; give a name such as X-Api-Key, of none that the hub sets itself")
	case x.Secret == "":
		return hub.InvalidField("auth.secret", "is required")
	case len(x.Secret) > maxCredential || strings.ContainsFunc(x.Secret, unicode.IsControl):
		return hub.InvalidField("auth.secret", "has at most %d bytes and no control characters, such as line breaks", maxCredential)
	case x.Type == "basic" && !strings.Contains(x.Secret, ":"):
		return hub.InvalidField("auth.secret", "of the type basic is user:password")
	}
	return nil
}

// mayBeHeader reports whether a header can have a credential: a token (RFC 9110, section
// 5.6.2) that nothing else depends on.
func mayBeHeader(name string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	if name == "" || len(name) > maxHeaderName || strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune(marks, r)
	}) {
		return false
	}
	switch canonical := http.CanonicalHeaderKey(name); canonical {
	case "Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host",
		"Idempotency-Key", "X-Idempotency-Key", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
		"X-Holdfast-Task", "X-Parent-Call":
		return false
	default:
		return !strings.HasPrefix(canonical, "Proxy-") && !strings.HasPrefix(canonical, "Webhook-")
	}
}
