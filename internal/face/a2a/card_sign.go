package a2a

import (
	"crypto"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/cryptosigner"

	"github.com/holdfast-hub/holdfast/internal/cardform"
)

// keysPath is where the keys are that verify cards (RFC 7517).
const keysPath = "/.well-known/jwks.json"

// Keys signs cards, and says what verifies the signatures.
type Keys interface {
	// Card is the private key for cards, one for ES256 that signs the same with the
	// same when it gets no randomness (RFC 6979), and its id.
	Card() (crypto.Signer, string)
	// Public is the key set to publish; the public half of Card is in it.
	Public() jose.JSONWebKeySet
}

// signable is a card of some version.
type signable interface {
	// payloads is what is signed of the card whose JSON, without signatures, is given:
	// each gets a signature of its own, of which a client needs one that it can verify.
	payloads(body []byte) ([][]byte, error)
}

// cardSignature is a detached JWS (spec section 4.4.7).
type cardSignature struct {
	Protected string `json:"protected"`
	Signature string `json:"signature"`
}

// renderCard gives a card as JSON, with signatures if the hub has a key (spec section
// 8.4). A card that cannot be signed, for a number that is none of JSON's, is better
// than no card.
func (f *face) renderCard(c signable) ([]byte, error) {
	body, err := json.Marshal(c)
	if err != nil || f.opt.Keys == nil {
		return body, err
	}
	signatures, err := f.signatures(c, body)
	if err != nil {
		f.opt.Log.Warn("a card is served without a signature", "error", err)
		return body, nil
	}
	body = append(body[:len(body)-1], `,"signatures":`...)
	return append(append(body, signatures...), '}'), nil
}

// signatures makes the signatures of a card, as JSON.
func (f *face) signatures(c signable, body []byte) ([]byte, error) {
	payloads, err := c.payloads(body)
	if err != nil {
		return nil, err
	}
	key, kid := f.opt.Keys.Card()
	list := make([]cardSignature, len(payloads))
	for i, p := range payloads {
		if list[i], err = sign(p, key, kid, strings.TrimSuffix(f.opt.PublicURL, "/")+keysPath); err != nil {
			return nil, fmt.Errorf("sign a card: %w", err)
		}
	}
	return json.Marshal(list)
}

// sign makes one signature (spec section 8.4.2). jku is where the public key is.
func sign(payload []byte, key crypto.Signer, kid, jku string) (cardSignature, error) {
	options := (&jose.SignerOptions{}).WithType("JOSE").WithHeader("kid", kid).WithHeader("jku", jku)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: cryptosigner.Opaque(repeatable{key})}, options)
	if err != nil {
		return cardSignature{}, err
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return cardSignature{}, err
	}
	detached, err := jws.DetachedCompactSerialize()
	protected, signature, _ := strings.Cut(detached, "..")
	return cardSignature{protected, signature}, err
}

// repeatable signs the same with the same. So a card that did not change has the ETag
// that it had, from every replica and after every restart, and nothing need be kept.
type repeatable struct{ crypto.Signer }

// Sign implements crypto.Signer.
func (r repeatable) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	return r.Signer.Sign(nil, digest, opts)
}

func (card) payloads(body []byte) ([][]byte, error) { return cardform.Forms(body) }

func (cardV03) payloads(body []byte) ([][]byte, error) { return cardform.FormsV03(body) }

// serveKeys serves the public keys. They are for everybody, also where cards are not.
func (f *face) serveKeys(w http.ResponseWriter, r *http.Request) {
	body, err := json.Marshal(f.opt.Keys.Public())
	if err != nil {
		f.failCard(w, r, err)
		return
	}
	f.serveCached(w, r, body, false)
}
