package remotea2a_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/gowebpki/jcs"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// plainCard is what is signed, as it is served and in canonical form.
const plainCard = `{"name":"Agent","version":"1","description":"Sorts <é> & 𐀀","capabilities":{"streaming":false},"skills":[],"supportedInterfaces":[{"protocolVersion":"1.0","url":"http://0.0.0.0:8000/rpc","protocolBinding":"JSONRPC"}]}`

// signer signs cards with one key.
type signer struct {
	t    *testing.T
	alg  jose.SignatureAlgorithm
	key  any
	kid  string
	jku  string
	keys jose.JSONWebKeySet
}

func newSigner(t *testing.T, alg jose.SignatureAlgorithm, jku string) *signer {
	t.Helper()
	s := &signer{t: t, alg: alg, kid: "k1", jku: jku}
	var key crypto.Signer
	var err error
	switch alg {
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case jose.RS256:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.key = key
	s.keys.Keys = []jose.JSONWebKey{{Key: key.Public(), KeyID: s.kid, Algorithm: string(alg), Use: "sig"}}
	return s
}

// of is the signature of a payload, as a card has it.
func (s *signer) of(payload string) string {
	s.t.Helper()
	opt := (&jose.SignerOptions{}).WithType("JOSE").WithHeader("kid", s.kid)
	if s.jku != "" {
		opt = opt.WithHeader("jku", s.jku)
	}
	signs, err := jose.NewSigner(jose.SigningKey{Algorithm: s.alg, Key: s.key}, opt)
	if err != nil {
		s.t.Fatal(err)
	}
	jws, err := signs.Sign([]byte(payload))
	if err != nil {
		s.t.Fatal(err)
	}
	compact, err := jws.CompactSerialize()
	if err != nil {
		s.t.Fatal(err)
	}
	parts := strings.Split(compact, ".")
	return fmt.Sprintf(`{"protected":%q,"signature":%q}`, parts[0], parts[2])
}

// unprotected is a signature with a header of one's own.
func unprotected(header string) string {
	return fmt.Sprintf(`{"protected":%q,"signature":"AAAA"}`, base64.RawURLEncoding.EncodeToString([]byte(header)))
}

func canonical(t *testing.T, card string) string {
	t.Helper()
	b, err := jcs.Transform([]byte(card))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func signed(card string, signatures ...string) string {
	return strings.TrimSuffix(card, "}") + `,"signatures":[` + strings.Join(signatures, ",") + "]}"
}

// signedAgent serves a card and keys, and answers each task.
type signedAgent struct {
	card, keys string
	asked      atomic.Int32 // for the keys
}

// ServeHTTP implements http.Handler.
func (a *signedAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/.well-known/agent-card.json":
		_, _ = io.WriteString(w, a.card)
	case r.URL.Path == "/keys" && a.keys != "":
		a.asked.Add(1)
		_, _ = io.WriteString(w, a.keys)
	case r.URL.Path == "/rpc" && r.Method == http.MethodPost:
		_, _ = io.WriteString(w, result(whole))
	default:
		http.NotFound(w, r)
	}
}

// The verdicts on signatures.
const (
	good    = "verified"
	unknown = "used, but not verified"
	bad     = "refused"
)

// A card that was signed counts as it was signed, one that is forged not at all, and
// where the keys cannot be had the card is as good as one without signatures.
func TestCardSignatures(t *testing.T) {
	elsewhere := &signedAgent{}
	other := newServer(t, elsewhere)
	for name, c := range map[string]struct {
		alg  jose.SignatureAlgorithm
		card func(s *signer) string
		keys func(s *signer) any // what is served as them; default: the signer's
		want string
	}{
		"none":  {jose.ES256, func(*signer) string { return plainCard }, nil, good},
		"ES256": {jose.ES256, func(s *signer) string { return signed(plainCard, s.of(canonical(t, plainCard))) }, nil, good},
		"EdDSA": {jose.EdDSA, func(s *signer) string { return signed(plainCard, s.of(canonical(t, plainCard))) }, nil, good},
		"RS256": {jose.RS256, func(s *signer) string { return signed(plainCard, s.of(canonical(t, plainCard))) }, nil, good},
		"what is empty is out": {jose.ES256, func(s *signer) string {
			return signed(plainCard, s.of(canonical(t, strings.Replace(plainCard, `"skills":[],`, "", 1))))
		}, nil, good},
		"members of 0.3 were added": {jose.ES256, func(s *signer) string {
			return signed(strings.Replace(plainCard, "{", `{"url":"http://x/","protocolVersion":"0.3.0","preferredTransport":"JSONRPC",`, 1), s.of(canonical(t, strings.Replace(plainCard, `"skills":[],`, "", 1))))
		}, nil, good},
		"one of two is good": {jose.ES256, func(s *signer) string { return signed(plainCard, s.of("{}"), s.of(canonical(t, plainCard))) }, nil, good},
		"another name": {jose.ES256, func(s *signer) string {
			return signed(strings.Replace(plainCard, "Agent", "Mallory", 1), s.of(canonical(t, plainCard)))
		}, nil, bad},
		"another place": {jose.EdDSA, func(s *signer) string {
			return signed(strings.Replace(plainCard, "/rpc", "/steal", 1), s.of(canonical(t, plainCard)))
		}, nil, bad},
		"a member twice": {jose.ES256, func(s *signer) string {
			return signed(strings.Replace(plainCard, "{", `{"name":"Mallory",`, 1), s.of(canonical(t, plainCard)))
		}, nil, bad},
		"another key of that name": {jose.ES256, func(s *signer) string { return signed(plainCard, s.of(canonical(t, plainCard))) },
			func(s *signer) any { return newSigner(t, jose.ES256, s.jku).keys }, bad},
		"a key for another algorithm": {jose.ES256, func(s *signer) string { return signed(plainCard, s.of(canonical(t, plainCard))) },
			func(s *signer) any {
				s.keys.Keys[0].Algorithm = "ES384"
				return s.keys
			}, bad},
		"algorithm none": {jose.ES256, func(s *signer) string {
			return signed(plainCard, unprotected(`{"alg":"none","kid":"k1","jku":"`+s.jku+`"}`))
		}, nil, bad},
		"no algorithm": {jose.ES256, func(s *signer) string { return signed(plainCard, unprotected(`{"kid":"k1","jku":"`+s.jku+`"}`)) }, nil, bad},
		"HMAC with a public key": {jose.ES256, func(s *signer) string {
			public, err := json.Marshal(s.keys.Keys[0])
			if err != nil {
				t.Fatal(err)
			}
			h := &signer{t: t, alg: jose.HS256, key: public, kid: "k1", jku: s.jku}
			return signed(plainCard, h.of(canonical(t, plainCard)))
		}, nil, bad},
		"no header": {jose.ES256, func(*signer) string { return signed(plainCard, `{"protected":"?","signature":"AAAA"}`) }, nil, bad},
		"no list":   {jose.ES256, func(*signer) string { return signed(plainCard, `"x"`) }, nil, bad},
		"very many": {jose.ES256, func(s *signer) string { return signed(plainCard, strings.Repeat(s.of("{}")+",", 20)+s.of("{}")) }, nil, bad},
		"an unknown algorithm": {jose.ES256, func(s *signer) string {
			return signed(plainCard, unprotected(`{"alg":"ES256K","kid":"k1","jku":"`+s.jku+`"}`))
		}, nil, unknown},
		"keys elsewhere": {jose.ES256, func(s *signer) string {
			s.jku = other.url() + "/keys"
			return signed(plainCard, s.of(canonical(t, plainCard)))
		}, nil, unknown},
		"keys nowhere": {jose.ES256, func(s *signer) string {
			s.jku = ""
			return signed(plainCard, s.of(canonical(t, plainCard)))
		}, nil, unknown},
		"another key id": {jose.ES256, func(s *signer) string {
			s.kid = "k2"
			return signed(plainCard, s.of(canonical(t, plainCard)))
		}, nil, unknown},
		"no keys": {jose.ES256, func(s *signer) string { return signed(plainCard, s.of(canonical(t, plainCard))) }, func(*signer) any { return "" }, unknown},
		"a huge key set": {jose.ES256, func(s *signer) string { return signed(plainCard, s.of(canonical(t, plainCard))) },
			func(*signer) any { return map[string]any{"keys": []any{}, "x": strings.Repeat("x", 300<<10)} }, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			agent := &signedAgent{}
			s := newServer(t, agent)
			signs := newSigner(t, c.alg, s.url()+"/keys")
			var keys any = signs.keys
			agent.card = c.card(signs)
			if c.keys != nil {
				keys = c.keys(signs)
			}
			served, err := json.Marshal(keys)
			if err != nil {
				t.Fatal(err)
			}
			agent.keys = string(served)
			verdict(t, s, c.want)
			if agent.asked.Load() > 1 {
				t.Errorf("the keys were fetched %d times", agent.asked.Load())
			}
		})
	}
	if n := elsewhere.asked.Load(); n != 0 {
		t.Errorf("keys were fetched from elsewhere %d times", n)
	}
}

// verdict has a task delivered to an agent, and looks at what became of its card.
func verdict(t *testing.T, s *server, want string) {
	t.Helper()
	var log bytes.Buffer
	d := newDeliverer(t, nil, func(o *remotea2a.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	out := d.Deliver(context.Background(), delivery.Delivery{
		Task:     &hub.Task{ID: "t", Callee: hub.Party{ID: "dev"}, History: []hub.Message{{N: 1, Body: canon.TextMessage("m", false, "hi")}}},
		Endpoint: hub.Endpoint{URL: s.url()},
	})
	got := good
	switch {
	case out.Kind == delivery.Unsent && strings.Contains(out.Reason, "signature"):
		got = bad
	case out.Kind != delivery.Answered:
		t.Fatalf("%+v", out)
	case strings.Contains(log.String(), "could not be verified"):
		got = unknown
	}
	if got != want {
		t.Errorf("the card is %s, want %s; logged %s", got, want, &log)
	}
}
