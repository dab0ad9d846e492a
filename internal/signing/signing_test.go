package signing_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/signing"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
	"github.com/holdfast-hub/holdfast/internal/vault"
)

func open(t *testing.T) (*sqlite.Store, hub.Sealer) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	key, err := vault.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	v, err := vault.Open(t.Context(), vault.Options{Secrets: store, Value: key})
	if err != nil {
		t.Fatal(err)
	}
	return store, v
}

func load(t *testing.T, s hub.Secrets, v hub.Sealer) *signing.Keys {
	t.Helper()
	k, err := signing.Load(t.Context(), s, v)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// What the keys sign can be verified with nothing but the key set as it is published.
func TestPublishedKeysVerifyWhatIsSigned(t *testing.T) {
	k := load(openBoth(t))
	published, err := json.Marshal(k.Public())
	if err != nil {
		t.Fatal(err)
	}
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(published, &set); err != nil {
		t.Fatal(err)
	}
	card, cardID := k.Card()
	webhook, webhookID := k.Webhook()
	for _, c := range []struct {
		alg  jose.SignatureAlgorithm
		key  crypto.Signer
		id   string
		kind any
	}{
		{jose.ES256, card, cardID, &ecdsa.PublicKey{}}, {jose.EdDSA, webhook, webhookID, ed25519.PublicKey{}},
	} {
		signer, err := jose.NewSigner(jose.SigningKey{Algorithm: c.alg, Key: c.key}, nil)
		if err != nil {
			t.Fatal(err)
		}
		signed, err := signer.Sign([]byte("payload"))
		if err != nil {
			t.Fatal(err)
		}
		keys := set.Key(c.id)
		if len(keys) != 1 {
			t.Fatalf("%d keys %s in %s", len(keys), c.id, published)
		}
		public := keys[0]
		sum, err := public.Thumbprint(crypto.SHA256)
		if err != nil || len(sum) != 32 || !public.IsPublic() || !public.Valid() || public.Use != "sig" || public.Algorithm != string(c.alg) {
			t.Errorf("%+v, %v", public, err)
		}
		if fmt.Sprintf("%T", public.Key) != fmt.Sprintf("%T", c.kind) {
			t.Errorf("%s: the key is a %T", c.alg, public.Key)
		}
		if got, err := signed.Verify(public); err != nil || string(got) != "payload" {
			t.Errorf("%s: %q, %v", c.alg, got, err)
		}
	}
	if strings.Contains(string(published), `"d"`) {
		t.Errorf("the key set has a private key: %s", published)
	}
}

func openBoth(t *testing.T) (*testing.T, hub.Secrets, hub.Sealer) {
	s, v := open(t)
	return t, s, v
}

func TestKeysStayTheSame(t *testing.T) {
	s, v := open(t)
	a, b := load(t, s, v), load(t, s, v)
	for name, of := range map[string]func(*signing.Keys) (crypto.Signer, string){
		"card":    (*signing.Keys).Card,
		"webhook": func(k *signing.Keys) (crypto.Signer, string) { return k.Webhook() },
	} {
		one, oneID := of(a)
		two, twoID := of(b)
		if !one.(interface{ Equal(crypto.PrivateKey) bool }).Equal(two) || oneID != twoID || oneID == "" {
			t.Errorf("%s: %s became %s", name, oneID, twoID)
		}
	}
}

func TestHubsThatStartTogetherHaveTheSameKeys(t *testing.T) {
	s, v := open(t)
	ids := make([]string, 10)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			k, err := signing.Load(t.Context(), s, v)
			if err != nil {
				t.Error(err)
				return
			}
			_, card := k.Card()
			_, webhook := k.Webhook()
			ids[i] = card + " " + webhook
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("different keys: %q", ids)
		}
	}
}

func TestKeysAreSealedAndNeverShown(t *testing.T) {
	s, v := open(t)
	k := load(t, s, v)
	for _, name := range []string{signing.CardName, signing.WebhookName} {
		sealed, err := s.Secret(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x509.ParsePKCS8PrivateKey(sealed); err == nil {
			t.Errorf("%s is kept in the clear", name)
		}
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%x", "%d"} {
		if shown := fmt.Sprintf(verb, k); shown != "(signing keys)" {
			t.Errorf("%s shows %s", verb, shown)
		}
	}
	if j, err := json.Marshal(map[string]any{"keys": k}); err != nil || string(j) != `{"keys":{}}` {
		t.Errorf("as JSON: %s, %v", j, err)
	}
}

// A key that is damaged, or another one's, is an error and is not replaced.
func TestAWrongKeyIsRefused(t *testing.T) {
	for name, secret := range map[string]string{"no key": "hushhush", "another kind of key": ""} {
		s, v := open(t)
		plain := []byte(secret)
		if secret == "" {
			webhook, _ := load(openBoth(t)).Webhook()
			der, err := x509.MarshalPKCS8PrivateKey(webhook)
			if err != nil {
				t.Fatal(err)
			}
			plain = der
		}
		sealed, err := v.Seal(plain, signing.CardName)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.AddSecret(t.Context(), signing.CardName, sealed); err != nil {
			t.Fatal(err)
		}
		if _, err := signing.Load(t.Context(), s, v); err == nil || !strings.Contains(err.Error(), signing.CardName) || strings.Contains(err.Error(), "hushhush") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
