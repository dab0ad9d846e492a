package remotea2a

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	pbv1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-hub/holdfast/internal/cardform"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/internal/transcode"
)

const (
	// signaturesMax is how many signatures of a card are looked at.
	signaturesMax = 8
	// keysMax bounds a key set, in bytes.
	keysMax = 256 << 10
)

// algorithms are those of signatures that the hub verifies. Those without a public key,
// none and HMAC, prove nothing.
var algorithms = []jose.SignatureAlgorithm{
	jose.EdDSA, jose.ES256, jose.ES384, jose.ES512, jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
}

// errSignature says that a card was not signed by whom it says, or not as it is.
var errSignature = &unsent{"its signature does not fit what it says; have the agent sign it anew, or serve it without signatures"}

// signature is one of a card (section 4.4.7), and what its header says.
type signature struct {
	Protected, Signature string

	alg, kid, jku string
}

// verified gives what counts of a card that was read at a place: of a signed one what was
// signed. A card without signatures counts as it is, and so does one whose keys cannot be
// had: whoever can forge the card could leave the signatures out. But one that is wrong
// says that somebody has forged it.
func (p *peer) verified(ctx context.Context, place string, body []byte) ([]byte, error) {
	card, signatures, err := unsign(body)
	if err != nil || len(signatures) == 0 {
		return card, err
	}
	forms := formsOf(card)
	sets := make(keySets)
	wrong, why := false, ""
	for _, s := range signatures {
		if !slices.Contains(algorithms, jose.SignatureAlgorithm(s.alg)) {
			proofless := s.alg == "" || strings.EqualFold(s.alg, "none") || strings.HasPrefix(s.alg, "HS")
			wrong, why = wrong || proofless, "the hub does not know its algorithm"
			continue
		}
		keys, err := sets.find(ctx, p, place, &s)
		if err != nil {
			why = err.Error()
			continue
		}
		if form := s.fits(keys, forms); form != nil {
			return form, nil
		}
		wrong = true
	}
	if wrong {
		return nil, errSignature
	}
	p.d.opt.Log.InfoContext(ctx, "the signature of an agent card could not be verified, and the card is used as it is", "address", p.address, "reason", why)
	return card, nil
}

// unsign takes the signatures off a card. What is no object stays as it is.
func unsign(body []byte) (card []byte, signatures []signature, err error) {
	var signed struct{ Signatures json.RawMessage }
	if json.Unmarshal(body, &signed) != nil || len(signed.Signatures) == 0 {
		return body, nil, nil
	}
	if rawjson.Check(body, maxDepth) != nil { // such as members that come twice
		return nil, nil, errSignature
	}
	card = members(body, func(name string, value []byte) (string, []byte) {
		if name == "signatures" {
			return "", nil
		}
		return name, value
	})
	if json.Unmarshal(signed.Signatures, &signatures) != nil || len(signatures) > signaturesMax {
		return nil, nil, errSignature
	}
	for i := range signatures {
		s := &signatures[i]
		raw, err := base64.RawURLEncoding.DecodeString(s.Protected)
		var header struct{ Alg, Kid, Jku string }
		if err != nil || json.Unmarshal(raw, &header) != nil {
			return nil, nil, errSignature
		}
		s.alg, s.kid, s.jku = header.Alg, header.Kid, header.Jku
	}
	return card, signatures, nil
}

// formsOf are the forms of a card that may have been signed: as it came, and as a client
// sees it that knows the members of 1.0 alone, which some servers sign and then add those
// of 0.3 to.
func formsOf(card []byte) (forms [][]byte) {
	of := pbv1.File_a2av1_proto.Messages().ByName("AgentCard")
	if message, err := transcode.FromJSON(nil, card, of); err == nil {
		if known, err := transcode.ToJSON(message, of, 2*cardMax); err == nil {
			forms, _ = cardform.Forms(known)
		}
	}
	received, _ := cardform.Forms(card) // if there are none, nothing fits
	old, _ := cardform.FormsV03(card)
	return slices.Concat(received, forms, old)
}

// fits gives the form that the signature is of, by one of the keys; nil if there is none.
func (s *signature) fits(keys []jose.JSONWebKey, forms [][]byte) []byte {
	for _, form := range forms {
		jws, err := jose.ParseDetached(s.Protected+".."+s.Signature, form, algorithms)
		if err != nil {
			return nil
		}
		for _, k := range keys {
			if k.Valid() && (k.Algorithm == "" || k.Algorithm == s.alg) && jws.DetachedVerify(form, k.Key) == nil {
				return form
			}
		}
	}
	return nil
}

// keySets are those that were fetched for the signatures of one card, or why they could
// not be, by where they are.
type keySets map[string]fetchedKeys

type fetchedKeys struct {
	set jose.JSONWebKeySet
	err error
}

// find gives the keys of a signature's id. They are fetched from the origin of the card
// alone: anybody can sign with keys of his own and have them somewhere.
func (m keySets) find(ctx context.Context, p *peer, place string, s *signature) ([]jose.JSONWebKey, error) {
	switch {
	case s.jku == "":
		return nil, errors.New("it does not say where its keys are")
	case !sameOrigin(s.jku, place):
		return nil, errors.New("its keys are at another origin than the card")
	}
	fetched, ok := m[s.jku]
	if !ok {
		fetched = p.keys(ctx, s.jku)
		m[s.jku] = fetched
	}
	if fetched.err != nil {
		return nil, fetched.err
	}
	keys := fetched.set.Key(s.kid)
	if len(keys) == 0 {
		return nil, errors.New("there is no such key among those of the agent")
	}
	return keys, nil
}

// keys fetches a key set.
func (p *peer) keys(ctx context.Context, place string) (f fetchedKeys) {
	body, err := p.fetch(ctx, place, keysMax)
	switch {
	case err != nil:
		f.err = errors.New("its keys cannot be read: " + outcomeOf(err, true).Reason)
	case json.Unmarshal(body, &f.set) != nil:
		f.err = errors.New("what is to be its keys is no key set")
	}
	return f
}

// sameOrigin reports whether two URLs have the same scheme, host and port.
func sameOrigin(a, b string) bool {
	u, errA := url.Parse(a)
	v, errB := url.Parse(b)
	return errA == nil && errB == nil && u.Host != "" && strings.EqualFold(u.Scheme, v.Scheme) && strings.EqualFold(hostPort(u), hostPort(v))
}

// hostPort is a URL's host with its port, also where that is the scheme's own.
func hostPort(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case strings.EqualFold(u.Scheme, "https"):
		port = "443"
	default:
		port = "80"
	}
	return u.Hostname() + " " + port
}
