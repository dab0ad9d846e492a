package a2a_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	pbv03 "github.com/a2aproject/a2a-go/a2apb"
	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// skillIDs is the ids of a card's skills.
func skillIDs(c sdk.AgentCard) (ids []string) {
	for _, s := range c.Skills {
		ids = append(ids, s.ID)
	}
	return ids
}

// TestExtendedCard is spec section 3.1.11 at an address: what the public card says, and
// what only callers need to know.
func TestExtendedCard(t *testing.T) {
	b := newBed(t)
	lease, redeliveries, dedupe := 30, 0, true
	if _, err := b.Identity().UpdateAgent(t.Context(), b.Admin(), "coder", identity.AgentSpec{
		Card: []byte(richCard), LeaseS: &lease, MaxRedeliveries: &redeliveries, DedupeMessageID: &dedupe,
	}); err != nil {
		t.Fatal(err)
	}
	_, _, body := b.page("GET", "/a/coder/.well-known/agent-card.json", "")
	var public sdk.AgentCard
	if err := json.Unmarshal(body, &public); err != nil {
		t.Fatal(err)
	}
	for _, speak := range bindings {
		b.speak = speak
		for handle, params := range map[string]string{"coder": `{}`, "hub": `{"tenant":"coder"}`} {
			got := decode[sdk.AgentCard](t, b.at(handle).call(b.caller, "GetExtendedAgentCard", params))
			if got.Name != "Coder" || !slices.Equal(skillIDs(got), skillIDs(public)) || len(got.Signatures) != 1 {
				t.Errorf("%s: %+v", speak.name(), got)
			}
			list := got.Capabilities.Extensions
			if len(list) != 2 || list[0].URI != "https://ext.example" || list[1].Required {
				t.Fatalf("%s: extensions %+v", speak.name(), list)
			}
			for name, want := range map[string]any{
				"handle": "coder", "kind": "agent", "blockingSeconds": 600.0, "dedupesMessageId": true, "leaseSeconds": 30.0, "maxRedeliveries": 0.0,
			} {
				if list[1].Params[name] != want {
					t.Errorf("%s: %s is %v, want %v", speak.name(), name, list[1].Params[name], want)
				}
			}
		}
		byHeader := decode[sdk.AgentCard](t, b.at("hub").call(b.caller, "GetExtendedAgentCard", `{}`, "A2A-Tenant", "coder"))
		if byHeader.Name != "Coder" {
			t.Errorf("%s: with the tenant as a header: %+v", speak.name(), byHeader)
		}
		// Whether an address is there, or may be called, is all the same.
		b.Create(identity.AgentSpec{Handle: "closed-" + strings.ToLower(speak.name()[:4])})
		for _, handle := range []string{"nobody", "closed-" + strings.ToLower(speak.name()[:4])} {
			wantReason(t, b.at(handle).call(b.caller, "GetExtendedAgentCard", `{}`), "UNAUTHORIZED")
			wantReason(t, b.at("hub").call(b.caller, "GetExtendedAgentCard", `{"tenant":"`+handle+`"}`), "UNAUTHORIZED")
		}
		wantReason(t, b.at("hub").call("hf_unknown", "GetExtendedAgentCard", `{}`), "UNAUTHENTICATED")
	}
}

// TestExtendedCardV03 is 0.3's section 7.10, over its bindings.
func TestExtendedCardV03(t *testing.T) {
	b := newBed(t)
	type cardV03 struct {
		ProtocolVersion string
		URL             string
		Capabilities    struct {
			Extensions []struct{ Params map[string]any }
		}
		SecuritySchemes map[string]map[string]any
	}
	var rpc struct{ Result cardV03 }
	if err := json.Unmarshal([]byte(b.rpcV03("agent/getAuthenticatedExtendedCard", `{}`)), &rpc); err != nil {
		t.Fatal(err)
	}
	var inREST cardV03
	_, _, body := b.page("GET", "/a/coder/v1/card", b.caller)
	if err := json.Unmarshal(body, &inREST); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]cardV03{"JSON-RPC": rpc.Result, "HTTP+JSON": inREST} {
		if got.ProtocolVersion != "0.3.0" || got.URL != b.URL+"/a/coder" || len(got.Capabilities.Extensions) != 1 ||
			got.Capabilities.Extensions[0].Params["blockingSeconds"] != 25.0 {
			t.Errorf("%s: %+v", name, got)
		}
		if scheme := got.SecuritySchemes["bearer"]; scheme["type"] != "http" || (scheme["httpAuthSecurityScheme"] != nil) != (name == "HTTP+JSON") {
			t.Errorf("%s: %v", name, scheme)
		}
	}
	for _, path := range []string{"/a/coder/v1/card", "/a/coder/extendedAgentCard", "/a/hub/extendedAgentCard"} {
		status, h, body := b.page("GET", path, "")
		if status != http.StatusUnauthorized || h.Get("WWW-Authenticate") == "" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s without a token: %d %v %s", path, status, h, body)
		}
	}
	if status, _, body := b.page("GET", "/a/hub/v1/card", b.caller); status != http.StatusBadRequest {
		t.Errorf("the hub has no card of 0.3: %d %s", status, body)
	}
}

// TestExtendedCardV03GRPC: the same over gRPC, where what is required of clients has a
// form of its own.
func TestExtendedCardV03GRPC(t *testing.T) {
	b := newBed(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+b.caller, "a2a-tenant", "coder")
	got, err := pbv03.NewA2AServiceClient(grpcV1.conn(b)).GetAgentCard(ctx, &pbv03.GetAgentCardRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetUrl() != b.URL+"/a/coder" || got.GetProtocolVersion() != "0.3.0" || len(got.GetSignatures()) != 2 ||
		len(got.GetCapabilities().GetExtensions()) != 1 ||
		got.GetSecuritySchemes()["bearer"].GetHttpAuthSecurityScheme().GetScheme() != "bearer" ||
		len(got.GetSecurity()) != 1 || got.GetSecurity()[0].GetSchemes()["bearer"] == nil {
		t.Errorf("got %v", got)
	}
}

// TestNoExtendedCard is spec section 3.3.4: an address that does not offer the extended
// card says so on its card and to whoever asks.
func TestNoExtendedCard(t *testing.T) {
	b := newBed(t)
	if _, err := b.Identity().UpdateAgent(t.Context(), b.Admin(), "coder", identity.AgentSpec{Card: []byte(`{"capabilities":{"extended_agent_card":false}}`)}); err != nil {
		t.Fatal(err)
	}
	if _, _, body := b.page("GET", "/a/coder/.well-known/agent-card.json", ""); !strings.Contains(string(body), `"extendedAgentCard":false`) {
		t.Errorf("got %s", body)
	}
	if _, _, body := b.page("GET", "/a/coder/.well-known/agent.json", ""); !strings.Contains(string(body), `"supportsAuthenticatedExtendedCard":false`) {
		t.Errorf("got %s", body)
	}
	for _, speak := range bindings {
		b.speak = speak
		wantReason(t, b.call(b.caller, "GetExtendedAgentCard", `{}`), "UNSUPPORTED_OPERATION")
	}
	if got := b.rpcV03("agent/getAuthenticatedExtendedCard", `null`); !strings.Contains(got, `"code":-32007`) {
		t.Errorf("0.3: %s", got)
	}
	if status, _, body := b.page("GET", "/a/coder/v1/card", b.caller); status != http.StatusBadRequest || !strings.Contains(string(body), `"code":-32007`) {
		t.Errorf("0.3: %d %s", status, body)
	}
}

// TestHubExtendedCard: the hub's extended card lists the addresses that the caller may
// call, and no others; a skill's id is a tenant that can be sent to.
func TestHubExtendedCard(t *testing.T) {
	b := newBed(t)
	b.Create(identity.AgentSpec{Handle: "closed"})
	b.Create(identity.AgentSpec{Handle: "boss", Kind: "person"})
	if _, err := b.Identity().UpdateAgent(t.Context(), b.Admin(), "coder", identity.AgentSpec{Card: []byte(richCard)}); err != nil {
		t.Fatal(err)
	}
	for _, speak := range bindings {
		b.speak = speak
		hub := b.at("hub")
		for token, want := range map[string][]string{
			b.caller:     {"caller", "coder", "other"},
			b.AdminToken: {"boss", "caller", "closed", "coder", "other"},
			// An address may always reach itself.
			b.Token("closed"): {"caller", "closed", "coder", "other"},
		} {
			got := decode[sdk.AgentCard](t, hub.call(token, "GetExtendedAgentCard", `{}`))
			if !slices.Equal(skillIDs(got), want) || got.Name != "Holdfast" || len(got.Signatures) != 1 {
				t.Errorf("%s: %v, want %v: %+v", speak.name(), skillIDs(got), want, got)
			}
			for _, s := range got.Skills {
				sent := hub.call(token, "SendMessage", message("hi", "", `"tenant":"`+s.ID+`",`+immediately))
				if sent.Error != nil {
					t.Errorf("%s: sending to %s: %s", speak.name(), s.ID, sent.Body)
				}
				if s.ID == "coder" && (s.Name != "Coder" || !slices.Equal(s.Tags, []string{"agent", "go"}) || !slices.Equal(s.Examples, []string{"Sort this."}) || s.InputModes[0] != "text/plain") {
					t.Errorf("%s: %+v", speak.name(), s)
				}
			}
		}
		wantReason(t, hub.call("hf_unknown", "GetExtendedAgentCard", `{}`), "UNAUTHENTICATED")
	}
	if _, _, body := b.page("GET", "/.well-known/agent-card.json", b.AdminToken); strings.Contains(string(body), "closed") || strings.Contains(string(body), "Coder") {
		t.Errorf("the public card lists addresses: %s", body)
	}
}

// TestHubExtendedCardEmpty: a card has to have a skill (spec section 5.7), also when
// there is nobody to call.
func TestHubExtendedCardEmpty(t *testing.T) {
	h := testhub.Start(t)
	b := &bed{Hub: h, t: t, client: &http.Client{Transport: &http.Transport{}}, speak: jsonRPC, handle: "hub"}
	t.Cleanup(b.client.CloseIdleConnections)
	got := decode[sdk.AgentCard](t, b.call(h.AdminToken, "GetExtendedAgentCard", `{}`))
	if !slices.Equal(skillIDs(got), []string{"none"}) {
		t.Errorf("got %+v", got.Skills)
	}
}

// TestExtendedCardAnonymous: where no credential is needed, none is for this either.
func TestExtendedCardAnonymous(t *testing.T) {
	b := newBed(t, testhub.Anonymous, func(c *config.Config) { c.PrivateCards = true })
	b.Create(identity.AgentSpec{Handle: "closed"})
	status, _, body := b.page("GET", "/a/hub/extendedAgentCard", "")
	var card sdk.AgentCard
	if err := json.Unmarshal(body, &card); err != nil || status != http.StatusOK || !slices.Equal(skillIDs(card), []string{"caller", "coder", "other"}) || len(card.SecuritySchemes) != 0 {
		t.Errorf("%d %v: %s", status, err, body)
	}
}
