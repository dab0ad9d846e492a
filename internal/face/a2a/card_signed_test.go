package a2a_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	pb "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/go-jose/go-jose/v4"
	"github.com/gowebpki/jcs"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// page asks for a page with a method and a token, if there is one; headers are pairs
// of name and value.
func (b *bed) page(method, path, token string, headers ...string) (int, http.Header, []byte) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return b.raw(r)
}

// keys gets the published keys.
func (b *bed) keys() jose.JSONWebKeySet {
	b.t.Helper()
	status, _, body := b.page("GET", "/.well-known/jwks.json", "")
	var set jose.JSONWebKeySet
	if err := json.Unmarshal(body, &set); err != nil || status != http.StatusOK {
		b.t.Fatalf("%d, %v: %s", status, err, body)
	}
	return set
}

// verifyCard checks every signature of a card as spec section 8.4.3 tells clients to,
// and gives the number of those that are of the card as it is.
func verifyCard(t *testing.T, body []byte, keys jose.JSONWebKeySet) (valid int) {
	t.Helper()
	var card map[string]json.RawMessage
	var signatures []struct{ Protected, Signature string }
	if err := json.Unmarshal(body, &card); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if err := json.Unmarshal(card["signatures"], &signatures); err != nil || len(signatures) == 0 {
		t.Fatalf("no signatures, %v: %s", err, body)
	}
	delete(card, "signatures")
	rest, err := json.Marshal(card)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := jcs.Transform(rest)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range signatures {
		compact := s.Protected + "." + base64.RawURLEncoding.EncodeToString(payload) + "." + s.Signature
		jws, err := jose.ParseSignedCompact(compact, []jose.SignatureAlgorithm{jose.ES256})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jws.Verify(keys); err == nil {
			valid++
		}
	}
	return valid
}

// cardPaths is every card that is served as a page.
var cardPaths = []string{
	"/.well-known/agent-card.json", "/a/hub/.well-known/agent-card.json", "/a/coder/.well-known/agent-card.json",
	"/a/coder/.well-known/agent.json", "/a/coder/.well-known/agent-card.json?A2A-Version=0.3",
	"/a/coder/extendedAgentCard", "/a/hub/extendedAgentCard", "/a/hub/coder/extendedAgentCard", "/a/coder/v1/card",
}

// TestSignedCards is spec section 8.4: every card is signed, whatever its version and
// whether it is extended; the signature is of this very card, and of no other.
func TestSignedCards(t *testing.T) {
	b := newBed(t)
	keys := b.keys()
	for _, path := range cardPaths {
		status, _, body := b.page("GET", path, b.caller)
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
			continue
		}
		if verifyCard(t, body, keys) == 0 {
			t.Errorf("%s: no signature is good: %s", path, body)
		}
		forged := strings.Replace(string(body), "task", "tusk", 1)
		if forged == string(body) || verifyCard(t, []byte(forged), keys) != 0 {
			t.Errorf("%s: a signature is good for another card", path)
		}
	}
	for _, b.speak = range bindings {
		a := b.call(b.caller, "GetExtendedAgentCard", `{}`)
		if a.Error != nil || verifyCard(t, a.Result, keys) == 0 {
			t.Errorf("%s: no signature is good: %s", b.speak.name(), a.Body)
		}
	}
	if _, _, body := b.page("GET", cardPaths[2], ""); verifyCard(t, body, jose.JSONWebKeySet{}) != 0 {
		t.Error("a signature is good without a key")
	}
}

// TestSignatureHeader is spec section 8.4.2: the protected header says algorithm, type,
// key and where the key is.
func TestSignatureHeader(t *testing.T) {
	b := newBed(t)
	_, _, body := b.page("GET", cardPaths[0], "")
	var card struct {
		Signatures []struct{ Protected string }
	}
	if err := json.Unmarshal(body, &card); err != nil || len(card.Signatures) != 1 {
		t.Fatalf("%v: %s", err, body)
	}
	raw, err := base64.RawURLEncoding.DecodeString(card.Signatures[0].Protected)
	if err != nil {
		t.Fatal(err)
	}
	var header map[string]string
	if err := json.Unmarshal(raw, &header); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	set := b.keys()
	key := set.Key(header["kid"])
	if len(header) != 4 || header["alg"] != "ES256" || header["typ"] != "JOSE" || header["jku"] != b.URL+"/.well-known/jwks.json" ||
		len(key) != 1 || key[0].Algorithm != "ES256" || key[0].Use != "sig" {
		t.Errorf("header %s, keys %+v", raw, key)
	}
}

// TestKeys: the keys that verify are there for everybody and may be kept, and nothing
// of the private ones is.
func TestKeys(t *testing.T) {
	b := newBed(t, func(c *config.Config) { c.PrivateCards = true })
	for _, key := range b.keys().Keys {
		if !key.IsPublic() || !key.Valid() || key.KeyID == "" {
			t.Errorf("got %+v", key)
		}
	}
	const path = "/.well-known/jwks.json"
	_, h, body := b.page("GET", path, "")
	if strings.Contains(string(body), `"d"`) || h.Get("Cache-Control") != "public, max-age=300" || h.Get("Content-Type") != "application/json" || h.Get("ETag") == "" {
		t.Errorf("%v %s", h, body)
	}
	if status, _, body := b.page("GET", path, "", "If-None-Match", h.Get("ETag")); status != http.StatusNotModified || len(body) != 0 {
		t.Errorf("the same again: %d %s", status, body)
	}
	if status, _, _ := b.page("POST", path, b.caller); status != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", status)
	}
}

// TestCardCachingEndToEnd is spec section 8.6.1, over both versions: a card that did
// not change keeps its ETag, over a restart too, and HEAD and 304 say as much as GET.
func TestCardCachingEndToEnd(t *testing.T) {
	b := newBed(t)
	seen := map[string]string{}
	for _, path := range cardPaths[:5] {
		_, h, body := b.page("GET", path, "")
		seen[path] = h.Get("ETag")
		if h.Get("Cache-Control") != "public, max-age=300" || h.Get("Content-Type") != "application/json" || h.Get("ETag") == "" || h.Get("Last-Modified") == "" {
			t.Errorf("%s: %v", path, h)
		}
		status, head, none := b.page("HEAD", path, "")
		if status != http.StatusOK || len(none) != 0 || head.Get("ETag") != h.Get("ETag") || head.Get("Content-Length") == "" {
			t.Errorf("HEAD %s: %d %v, GET has %d bytes", path, status, head, len(body))
		}
		status, same, none := b.page("GET", path, "", "If-None-Match", h.Get("ETag"))
		if status != http.StatusNotModified || len(none) != 0 || same.Get("ETag") != h.Get("ETag") || same.Get("Cache-Control") == "" {
			t.Errorf("If-None-Match %s: %d %v", path, status, same)
		}
	}
	b.client.CloseIdleConnections()
	b.Restart()
	for path, etag := range seen {
		if _, h, _ := b.page("GET", path, ""); h.Get("ETag") != etag {
			t.Errorf("%s: after a restart %s, before it %s", path, h.Get("ETag"), etag)
		}
	}
	description := "Something else."
	if _, err := b.Identity().UpdateAgent(t.Context(), b.Admin(), "coder", identity.AgentSpec{Description: &description}); err != nil {
		t.Fatal(err)
	}
	for path, etag := range seen {
		_, h, body := b.page("GET", path, "")
		if changed := strings.Contains(path, "coder"); (h.Get("ETag") != etag) != changed {
			t.Errorf("%s: after a change %s: %s", path, h.Get("ETag"), body)
		}
	}
}

// richCard is all that an owner can say.
const richCard = `{"name":"Coder","version":"2.0","provider":{"organization":"Org","url":"https://org.example"},
	"documentation_url":"https://doc.example","icon_url":"https://icon.example","default_input_modes":["text/plain"],"default_output_modes":["text/markdown"],
	"skills":[{"id":"go","name":"Go","description":"Writes Go.","tags":["go"],"examples":["Sort this."],"input_modes":["a/b"],"outputModes":["c/d"],"unknown":1}],
	"extensions":[{"uri":"https://ext.example","description":"E","required":false,"params":{"n":1},"unknown":1}],"unknown":1}`

// TestCardSchema is spec section 4.4: cards have no member that the specification has
// not got, and the official SDK for Go reads all of them.
func TestCardSchema(t *testing.T) {
	for name, change := range map[string]func(*config.Config){"tokens": func(*config.Config) {}, "anonymous": testhub.Anonymous} {
		b := newBed(t, change)
		if _, err := b.Identity().UpdateAgent(t.Context(), b.Admin(), "coder", identity.AgentSpec{Card: []byte(richCard)}); err != nil {
			t.Fatal(err)
		}
		for _, path := range cardPaths {
			_, _, body := b.page("GET", path, b.caller)
			if strings.Contains(string(body), `"protocolVersion":"0.3.0"`) {
				checkV03(t, name+" "+path, body)
				continue
			}
			if err := protojson.Unmarshal(body, &pb.AgentCard{}); err != nil {
				t.Errorf("%s %s: %v: %s", name, path, err, body)
			}
			var card sdk.AgentCard
			if err := json.Unmarshal(body, &card); err != nil || len(card.Signatures) != 1 || len(card.Skills) == 0 {
				t.Errorf("%s %s: %v: %+v", name, path, err, card)
			}
			if open := name == "anonymous"; open != (len(card.SecuritySchemes) == 0) {
				t.Errorf("%s %s: security schemes %v", name, path, card.SecuritySchemes)
			}
			if path == cardPaths[2] {
				resolved, err := agentcard.NewResolver(b.client).Resolve(t.Context(), b.URL+"/a/coder")
				if err != nil || resolved.Name != "Coder" || !resolved.Capabilities.ExtendedAgentCard {
					t.Errorf("%s: %+v, %v", name, resolved, err)
				}
			}
		}
	}
}

// checkV03 checks a card of 0.3 (section 5.5 there).
func checkV03(t *testing.T, name string, body []byte) {
	t.Helper()
	card, err := a2av0.NewAgentCardParser()(body)
	if err != nil || card.Name != "Coder" || !card.Capabilities.ExtendedAgentCard || len(card.Signatures) != 2 {
		t.Errorf("%s: %+v, %v: %s", name, card, err, body)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{
		"additionalInterfaces", "capabilities", "defaultInputModes", "defaultOutputModes", "description", "documentationUrl", "iconUrl", "name",
		"preferredTransport", "protocolVersion", "provider", "security", "securitySchemes", "signatures", "skills", "supportsAuthenticatedExtendedCard", "url", "version",
	} {
		delete(members, known)
	}
	if len(members) != 0 {
		t.Errorf("%s: unknown members %v", name, members)
	}
}
