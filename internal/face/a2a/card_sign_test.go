package a2a

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// TestCanonicalCard is the example of spec section 8.4.1, with what the SDKs see
// beside it: they take out what is empty although it is required.
func TestCanonicalCard(t *testing.T) {
	const body = `{"name":"Example Agent","description":"","capabilities":{"streaming":false,"pushNotifications":false},"skills":[]}`
	got, err := card{}.payloads([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`{"capabilities":{"pushNotifications":false,"streaming":false},"description":"","name":"Example Agent","skills":[]}`,
		`{"capabilities":{"pushNotifications":false,"streaming":false},"name":"Example Agent"}`,
	}
	if d := cmp.Diff(want, stringsOf(got)); d != "" {
		t.Error(d)
	}
}

// TestCardPayloads is spec section 8.4.1 for what owners may say: defaults are not in
// the JSON that is signed, and only a card with something empty is signed twice.
func TestCardPayloads(t *testing.T) {
	f := cardFaceForTest()
	for _, c := range []struct {
		name, owner string
		payloads    int
		has, hasNot string // of the first payload
	}{
		{"defaults", ``, 1, `"capabilities":{"extendedAgentCard":true,"pushNotifications":false,"streaming":true}`, `"provider"`},
		{"optional and false", `{"capabilities":{"streaming":false}}`, 1, `"streaming":false`, ``},
		{"a default that is not optional", `{"extensions":[{"uri":"u","required":false,"description":""}]}`, 1, `"extensions":[{"uri":"u"}]`, `"required"`},
		{"empty and not required", `{"documentation_url":"","icon_url":"","skills":[{"id":"a","examples":[]}],"extensions":[]}`, 1, `"id":"a"`, `"documentationUrl"`},
		{"parameters of an extension", `{"extensions":[{"uri":"u","params":{"b":[1.0,1e21,9007199254740993],"a":"<é€𐀀>\u007f"}}]}`, 1, `"params":{"a":"<é€𐀀>` + "\u007f" + `","b":[1,1e+21,9007199254740992]}`, ``},
		{"empty parameters", `{"extensions":[{"uri":"u","params":{"x":null,"y":[""],"z":{}}}]}`, 2, `"params":{"x":null,"y":[""],"z":{}}`, ``},
		{"parameters that are none", `{"extensions":[{"uri":"u","params":null},{"uri":"v","params":[1]}]}`, 1, `[{"uri":"u"},{"uri":"v"}]`, `"params"`},
		{"required and empty", `{"provider":{"organization":"Org"}}`, 2, `"provider":{"organization":"Org","url":""}`, ``},
		{"a provider without a name", `{"provider":{"url":"https://x"}}`, 1, ``, `"provider"`},
	} {
		body, err := json.Marshal(f.addressCard(&hub.Address{Handle: "x", Card: []byte(c.owner)}))
		if err != nil {
			t.Fatal(err)
		}
		got, err := card{}.payloads(body)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		first := string(got[0])
		if len(got) != c.payloads || !strings.Contains(first, c.has) || c.hasNot != "" && strings.Contains(first, c.hasNot) {
			t.Errorf("%s: %d payloads, the first %s", c.name, len(got), first)
		}
	}
}

// TestCardV03Payloads: the second payload is what the SDK for Python that speaks 0.3
// verifies.
func TestCardV03Payloads(t *testing.T) {
	f := cardFaceForTest()
	c := f.addressCard(&hub.Address{Handle: "x", Description: "é\u007f𐀀"}).toV03().withProtoSchemes()
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.payloads(body)
	if err != nil || len(got) != 2 {
		t.Fatalf("%d payloads, %v", len(got), err)
	}
	if first := string(got[0]); !strings.Contains(first, `"description":"é`) || !strings.Contains(first, `"protocolVersion":"0.3.0"`) || !strings.Contains(first, `"type":"http"`) {
		t.Errorf("the first is %s", first)
	}
	second := string(got[1])
	if !strings.Contains(second, `"description":"\u00e9\u007f\ud800\udc00"`) || !strings.Contains(second, `"bearer":{"description":"A token of this hub, as Authorization: Bearer {token}.","scheme":"bearer"}`) {
		t.Errorf("the second is %s", second)
	}
	for _, not := range []string{`"protocolVersion"`, `"preferredTransport"`, `"type":`, `"httpAuthSecurityScheme"`} {
		if strings.Contains(second, not) {
			t.Errorf("the second has %s: %s", not, second)
		}
	}
}

// TestSignIsRepeatable: a card's signature is the same each time, so its ETag is.
func TestSignIsRepeatable(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	one, err := sign([]byte(`{}`), key, "k", "https://hub.example/keys")
	if err != nil {
		t.Fatal(err)
	}
	two, err := sign([]byte(`{}`), key, "k", "https://hub.example/keys")
	if err != nil || one != two {
		t.Errorf("%v and %v, %v", one, two, err)
	}
	if other, err := sign([]byte(`{"a":1}`), key, "k", "https://hub.example/keys"); err != nil || other.Signature == one.Signature {
		t.Errorf("another payload has the same signature, %v", err)
	}
}

// TestUnsignableCard: what cannot be signed is served all the same.
func TestUnsignableCard(t *testing.T) {
	f := cardFaceForTest()
	var log strings.Builder
	f.opt.Log = slog.New(slog.NewTextHandler(&log, nil))
	f.opt.Keys = testKeys{}
	body, err := f.renderCard(f.addressCard(&hub.Address{Handle: "x", Card: []byte(`{"extensions":[{"uri":"u","params":{"n":1e999}}]}`)}))
	if err != nil || !json.Valid(body) || strings.Contains(string(body), "signatures") || !strings.Contains(log.String(), "without a signature") {
		t.Errorf("%s, %v; logged %q", body, err, log.String())
	}
}

// TestHubExtendedCardIsBounded: of very many addresses the card lists the first, and
// says so; of very many tags a skill has the first.
func TestHubExtendedCardIsBounded(t *testing.T) {
	list := make([]hub.Address, maxListed+1)
	for i := range list {
		list[i] = hub.Address{Handle: "a" + strconv.Itoa(i), Kind: hub.KindAgent}
	}
	list[0].Card = []byte(`{"skills":[{"tags":["` + strings.Repeat(`x","`, 100) + `y"]},{"tags":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16"]}]}`)
	f := cardFaceForTest()
	c := f.hubExtendedCard(list)
	if len(c.Skills) != maxListed || !strings.Contains(c.Description, "the first 1000 of 1001") || len(c.Skills[0].Tags) != maxHints {
		t.Errorf("%d skills, %q, tags %v", len(c.Skills), c.Description, c.Skills[0].Tags)
	}
	if c := f.hubExtendedCard(list[1:]); len(c.Skills) != maxListed || strings.Contains(c.Description, "first") {
		t.Errorf("%d skills, %q", len(c.Skills), c.Description)
	}
}

func stringsOf(payloads [][]byte) (list []string) {
	for _, p := range payloads {
		list = append(list, string(p))
	}
	return list
}

func cardFaceForTest() *face {
	return &face{opt: Options{Engine: engine.New(engine.Options{}), PublicURL: "https://hub.example"}}
}

// testKeys has no key: it is not to be asked for one.
type testKeys struct{ Keys }
