package a2a

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// decodeCard reads a card as the official SDK does.
func decodeCard(t *testing.T, c card) sdk.AgentCard {
	t.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var got sdk.AgentCard
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("the SDK cannot read the card: %v\n%s", err, body)
	}
	return got
}

// interfaces is what a card offers at an endpoint, the preferred binding first.
func interfaces(url string) []*sdk.AgentInterface {
	list := []*sdk.AgentInterface{
		{URL: url, ProtocolBinding: "JSONRPC", ProtocolVersion: "1.0"},
		{URL: url, ProtocolBinding: "HTTP+JSON", ProtocolVersion: "1.0"},
	}
	if handle, ok := strings.CutPrefix(url, "https://hub.example/a/"); ok { // below another path, there is no gRPC
		list = append(list, &sdk.AgentInterface{URL: "hub.example:443", ProtocolBinding: "GRPC", ProtocolVersion: "1.0", Tenant: handle})
	}
	return list
}

// checkRequired checks what spec section 4.4 requires of every card; required arrays
// must not be empty (section 5.7).
func checkRequired(t *testing.T, c sdk.AgentCard) {
	t.Helper()
	for what, missing := range map[string]bool{
		"name": c.Name == "", "description": c.Description == "", "version": c.Version == "",
		"supportedInterfaces": len(c.SupportedInterfaces) == 0, "skills": len(c.Skills) == 0,
		"defaultInputModes": len(c.DefaultInputModes) == 0, "defaultOutputModes": len(c.DefaultOutputModes) == 0,
	} {
		if missing {
			t.Errorf("%s is missing", what)
		}
	}
	for _, s := range c.Skills {
		if s.ID == "" || s.Name == "" || s.Description == "" || len(s.Tags) == 0 {
			t.Errorf("incomplete skill %+v", s)
		}
	}
}

func TestCardDefaults(t *testing.T) {
	f := &face{opt: Options{Engine: engine.New(engine.Options{}), PublicURL: "https://hub.example/base/", Version: "1.2.3"}}
	for _, raw := range []string{``, `{}`, `not JSON`, `{"skills":{},"extensions":7,"provider":"x"}`, `{"skills":[{}],"default_input_modes":[]}`} {
		c := decodeCard(t, f.addressCard(&hub.Address{Handle: "coder", Card: []byte(raw)}))
		checkRequired(t, c)
		want := interfaces("https://hub.example/base/a/coder")
		if d := cmp.Diff(want, c.SupportedInterfaces); d != "" {
			t.Error(d)
		}
		if !c.Capabilities.Streaming || c.Capabilities.PushNotifications || !c.Capabilities.ExtendedAgentCard {
			t.Errorf("capabilities %+v", c.Capabilities)
		}
		if c.SecuritySchemes["bearer"] == nil || c.Name != "coder" {
			t.Errorf("got %+v", c)
		}
	}
	checkRequired(t, decodeCard(t, f.hubCard()))
}

// TestCardOfOwner: what the owner of an address says in /v1's words is on its card in
// A2A's.
func TestCardOfOwner(t *testing.T) {
	f := &face{opt: Options{Engine: engine.New(engine.Options{}), PublicURL: "https://hub.example", Anonymous: true}}
	got := decodeCard(t, f.addressCard(&hub.Address{Handle: "coder", Description: "Writes code.", Card: []byte(`{
		"name":"Coder","version":"2.0","provider":{"organization":"Org","url":"https://org"},
		"documentation_url":"https://doc","icon_url":"https://icon",
		"default_input_modes":["text/plain"],"default_output_modes":["text/markdown"],
		"skills":[{"id":"go","name":"Go","description":"Writes Go.","tags":["go"],"examples":["x"],"input_modes":["a/b"],"outputModes":["c/d"]}],
		"extensions":[{"uri":"https://ext","description":"E","required":true,"params":{"n":1}},{"description":"no uri"}]}`)}))
	want := sdk.AgentCard{
		Name: "Coder", Description: "Writes code.", Version: "2.0",
		Provider:         &sdk.AgentProvider{Org: "Org", URL: "https://org"},
		DocumentationURL: "https://doc", IconURL: "https://icon",
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/markdown"},
		SupportedInterfaces: interfaces("https://hub.example/a/coder"),
		Skills: []sdk.AgentSkill{{ID: "go", Name: "Go", Description: "Writes Go.", Tags: []string{"go"}, Examples: []string{"x"},
			InputModes: []string{"a/b"}, OutputModes: []string{"c/d"}}},
		Capabilities: sdk.AgentCapabilities{Streaming: true, ExtendedAgentCard: true, Extensions: []sdk.AgentExtension{{
			URI: "https://ext", Description: "E", Required: true, Params: map[string]any{"n": 1.0},
		}}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestCardCaching is spec section 8.6.
func TestCardCaching(t *testing.T) {
	f := &face{opt: Options{Engine: engine.New(engine.Options{}), PublicURL: "https://hub.example"}}
	get := func(match string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if match != "" {
			r.Header.Set("If-None-Match", match)
		}
		w := httptest.NewRecorder()
		f.serveCard(w, r, f.hubCard())
		return w
	}
	first := get("")
	etag := first.Header().Get("ETag")
	if first.Code != 200 || etag == "" || first.Header().Get("Cache-Control") != "public, max-age=300" || first.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v", first.Code, first.Header())
	}
	for match, want := range map[string]int{
		etag: 304, "W/" + etag: 304, `"x", ` + etag: 304, "*": 304, `"x"`: 200, etag[1 : len(etag)-1]: 200,
	} {
		w := get(match)
		if w.Code != want || (want == http.StatusNotModified) != (w.Body.Len() == 0) || w.Header().Get("ETag") != etag {
			t.Errorf("If-None-Match %s: %d with %d bytes, want %d", match, w.Code, w.Body.Len(), want)
		}
	}
	f.opt.PrivateCards = true
	if h := get("").Header(); h.Get("Cache-Control") != "private, max-age=300" || h.Get("Vary") != "Authorization" {
		t.Errorf("private: %v", h)
	}
}
