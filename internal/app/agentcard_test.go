package app_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

// shownCard is a card of the hub.
type shownCard struct {
	Name, Description, Version string
	Provider                   struct{ Organization, URL string }
	SupportedInterfaces        []struct{ URL string }
	Capabilities               struct{ Streaming, PushNotifications bool }
	SecuritySchemes            map[string]json.RawMessage
	DefaultInputModes          []string
	Skills                     []struct {
		ID, Name, Description string
		Tags, OutputModes     []string
	}
	Signatures []json.RawMessage
}

// card gets the card of an address, and its tag.
func card(t *testing.T, h *testhub.Hub, path string) (shownCard, string, string) {
	t.Helper()
	res, body := do(t, http.MethodGet, h.URL+path, h.AdminToken, "")
	var c shownCard
	if err := json.Unmarshal([]byte(body), &c); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v: %s", path, res.StatusCode, err, body)
	}
	return c, res.Header.Get("ETag"), body
}

const ownCard = `{
	"name":"Sorter","description":"Sorts what it gets.","version":"7.1",
	"provider":{"organization":"Sorting Ltd","url":"https://sorting.example"},
	"url":"http://secret-host.internal:9000/","documentationUrl":"http://secret-host.internal/docs","iconUrl":"http://secret-host.internal/icon",
	"supportedInterfaces":[{"url":"http://secret-host.internal:9000/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],
	"capabilities":{"streaming":false,"extensions":[{"uri":"https://ext.example","required":true}]},
	"securitySchemes":{"theirs":{"apiKeySecurityScheme":{"name":"k","location":"header"}}},
	"defaultInputModes":["text/csv"],"defaultOutputModes":["text/csv","text/html"],
	"skills":[{"id":"sort","name":"Sort","description":"By any column","tags":["csv"],"outputModes":["text/csv"]},{"description":"has no name"}],
	"signatures":"SIGNATURES"}`

// The card of an address whose agent is an A2A server says what that agent says it does,
// where the owner has said nothing; and of where and how it is called, what the hub says.
func TestAnAgentsOwnCardIsShown(t *testing.T) {
	var served atomic.Pointer[string]
	serve := func(s string) { served.Store(&s) }
	serve(strings.Replace(ownCard, `"SIGNATURES"`, `[]`, 1))
	var asked atomic.Int32
	url, allow := callee(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/.well-known/agent-card.json" {
			http.NotFound(w, r)
			return
		}
		asked.Add(1)
		_, _ = io.WriteString(w, *served.Load())
	})
	h := testhub.Start(t, allow)
	sorter := h.Agent("sorter")
	const path = "/a/sorter/.well-known/agent-card.json"
	before, tag, _ := card(t, h, path)
	if len(before.Skills) != 1 || before.Skills[0].ID != "task" {
		t.Errorf("before, the card is %+v", before)
	}
	endpoint := fmt.Sprintf(`{"url":"%s/agent","kind":"a2a"}`, url)
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", sorter, endpoint)

	got, changed, body := card(t, h, path)
	if changed == tag {
		t.Error("the tag has not changed")
	}
	if got.Name != "sorter" || got.Description != "Sorts what it gets." || got.Version != "7.1" || got.Provider.Organization != "Sorting Ltd" ||
		got.Provider.URL != "https://sorting.example" || !slices.Equal(got.DefaultInputModes, []string{"text/csv"}) ||
		len(got.Skills) != 1 || got.Skills[0].ID != "sort" || !slices.Equal(got.Skills[0].Tags, []string{"csv"}) || !slices.Equal(got.Skills[0].OutputModes, []string{"text/csv"}) {
		t.Errorf("what the agent does is not shown: %s", body)
	}
	if strings.Contains(body, "secret-host") || strings.Contains(body, "theirs") || strings.Contains(body, "ext.example") ||
		!got.Capabilities.Streaming || !strings.HasPrefix(got.SupportedInterfaces[0].URL, h.URL+"/a/sorter") ||
		got.SecuritySchemes["bearer"] == nil || len(got.Signatures) == 0 {
		t.Errorf("where and how it is called is not the hub's: %s", body)
	}
	for _, same := range []string{path, "/a/sorter/.well-known/agent.json"} { // 0.3
		if again, _, body := card(t, h, same); again.Description != got.Description || strings.Contains(body, "secret-host") {
			t.Errorf("%s: %s", same, body)
		}
	}
	if n := asked.Load(); n > 2 { // below the URL of the endpoint there is none
		t.Errorf("the agent was asked for its card %d times", n)
	}
	if list, _, body := card(t, h, "/a/hub/extendedAgentCard"); list.Skills[0].Description != got.Description || !slices.Contains(list.Skills[0].Tags, "csv") {
		t.Errorf("the list of agents: %s", body)
	}

	// What the owner says counts more. A card that has changed is read when the endpoint is
	// set anew, and after some minutes.
	ask[wire.Agent](t, h, http.MethodPatch, "/v1/agents/sorter", h.AdminToken, `{"description":"Mine.","card":{"version":"1","skills":[{"id":"own"}]}}`)
	serve(`{"protocolVersion":"0.3.0","url":"http://x/","description":"new","skills":"none","defaultInputModes":["text/plain"],"version":5}`)
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", sorter, endpoint)
	got, _, body = card(t, h, path)
	if got.Description != "Mine." || got.Version != "1" || got.Skills[0].ID != "own" || !slices.Equal(got.DefaultInputModes, []string{"text/plain"}) || got.Provider.Organization != "" {
		t.Errorf("with the owner's words: %s", body)
	}

	// Nothing of it is left when the endpoint is taken away.
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", sorter, `{"url":null}`)
	if got, _, body = card(t, h, path); slices.Equal(got.DefaultInputModes, []string{"text/plain"}) {
		t.Errorf("without an endpoint: %s", body)
	}
}

// A card that is huge, forged, or does not come, does no harm to that of the address.
func TestAnAgentsBadCardIsNotShown(t *testing.T) {
	huge := `{"url":"http://x/","description":"` + strings.Repeat("ä", 50_000) + `","skills":[` +
		strings.TrimSuffix(strings.Repeat(`{"id":"s","tags":["`+strings.Repeat("t", 10_000)+`"],"examples":["`+strings.Repeat("e", 1_000)+`"]},`, 60), ",") + `]}`
	forged := strings.Replace(ownCard, `"SIGNATURES"`, `[{"protected":"eyJhbGciOiJub25lIn0","signature":""}]`, 1)
	for name, served := range map[string]string{"huge": huge, "forged": forged, "none": "", "no card": `[1,"x"]`, "garbage": "<html>"} {
		t.Run(name, func(t *testing.T) {
			url, allow := callee(t, func(w http.ResponseWriter, _ *http.Request) {
				if served == "" {
					w.WriteHeader(http.StatusBadGateway)
				}
				_, _ = io.WriteString(w, served)
			})
			h := testhub.Start(t, allow, func(c *config.Config) { c.Anonymous = true })
			token := h.Agent("sorter")
			ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", token, fmt.Sprintf(`{"url":%q,"kind":"a2a"}`, url))
			got, _, body := card(t, h, "/a/sorter/.well-known/agent-card.json")
			if len(body) > 150_000 || got.Name != "sorter" || len(got.SupportedInterfaces) == 0 {
				t.Errorf("%d bytes: %.300s", len(body), body)
			}
			if name != "huge" && (len(got.Skills) != 1 || got.Skills[0].ID != "task") {
				t.Errorf("it is shown: %.300s", body)
			}
		})
	}
}
