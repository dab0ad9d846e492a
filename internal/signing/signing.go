// Package signing keeps the private keys that the hub signs with: one for agent
// cards, one for the notifications that it sends. Each is made once, when it is first
// needed, and kept in the store, sealed. What verifies is the key set that Public gives
// and the hub publishes.
package signing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// The names of the keys in the store. Each is sealed about its name.
const (
	CardName    = "signing/card"
	WebhookName = "signing/webhook"
)

// Keys are the hub's signing keys. They are safe for concurrent use, and printing
// them shows nothing of them.
type Keys struct {
	card    *ecdsa.PrivateKey
	webhook ed25519.PrivateKey
	public  [2]jose.JSONWebKey // of card and webhook
}

// Load gives the keys that the store keeps, and makes those that it does not have yet.
// Of several hubs that do so at once all get the same keys. secrets and seal are those
// of one hub; an error says which key cannot be had and is not for clients.
func Load(ctx context.Context, secrets hub.Secrets, seal hub.Sealer) (*Keys, error) {
	card, err := load(ctx, secrets, seal, CardName, newCard)
	if err != nil {
		return nil, err
	}
	webhook, err := load(ctx, secrets, seal, WebhookName, newWebhook)
	if err != nil {
		return nil, err
	}
	k := &Keys{card: card, webhook: webhook}
	if k.public[0], err = publicKey(card.Public(), jose.ES256); err != nil {
		return nil, err
	}
	if k.public[1], err = publicKey(webhook.Public(), jose.EdDSA); err != nil {
		return nil, err
	}
	return k, nil
}

// Card is what signs agent cards, an *ecdsa.PrivateKey on P-256 for ES256, and its key
// id.
func (k *Keys) Card() (crypto.Signer, string) { return k.card, k.public[0].KeyID }

// Webhook is what signs notifications (Standard Webhooks, v1a), and its key id.
func (k *Keys) Webhook() (ed25519.PrivateKey, string) { return k.webhook, k.public[1].KeyID }

// Public is what verifies the signatures: the public keys, as a key set to publish. A
// key's id is its thumbprint (RFC 7638, SHA-256), so it changes with the key only.
func (k *Keys) Public() jose.JSONWebKeySet {
	return jose.JSONWebKeySet{Keys: append([]jose.JSONWebKey(nil), k.public[:]...)}
}

// Format implements fmt.Formatter, so that no verb shows a private key.
func (Keys) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "(signing keys)") }

func newCard() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func newWebhook() (ed25519.PrivateKey, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	return key, err
}

// load gives the key with a name, making it if there is none.
func load[K crypto.Signer](ctx context.Context, secrets hub.Secrets, seal hub.Sealer, name string, make func() (K, error)) (key K, err error) {
	sealed, err := secrets.Secret(ctx, name)
	if hub.KindOf(err) == hub.NotFound {
		sealed, err = add(ctx, secrets, seal, name, make)
	}
	if err != nil {
		return key, fmt.Errorf("get the key %s: %w", name, err)
	}
	der, err := seal.Open(sealed, name)
	if err != nil {
		return key, fmt.Errorf("open the key %s: %w", name, err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := parsed.(K)
	if err != nil || !ok {
		return key, errors.New("what the store has as " + name + " is no such key") // the parser's words may show it
	}
	return key, nil
}

// add makes a key and gives, sealed, the one that the store keeps: another hub may have
// been faster.
func add[K crypto.Signer](ctx context.Context, secrets hub.Secrets, seal hub.Sealer, name string, make func() (K, error)) ([]byte, error) {
	key, err := make()
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	sealed, err := seal.Seal(der, name)
	if err != nil {
		return nil, err
	}
	return secrets.AddSecret(ctx, name, sealed)
}

func publicKey(key crypto.PublicKey, alg jose.SignatureAlgorithm) (jose.JSONWebKey, error) {
	jwk := jose.JSONWebKey{Key: key, Algorithm: string(alg), Use: "sig"}
	sum, err := jwk.Thumbprint(crypto.SHA256)
	if err != nil {
		return jwk, fmt.Errorf("name a signing key: %w", err)
	}
	jwk.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	return jwk, nil
}
