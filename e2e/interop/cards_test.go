package interop

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// ownersCards are cards whose canonical form is not the same for all who read it: with
// what is empty, with letters that are not ASCII, with numbers of several forms.
var ownersCards = map[string]string{
	"plain":  `{}`,
	"full":   `{"name":"Coder","version":"2.0","provider":{"organization":"Org","url":"https://org.example"},"skills":[{"id":"go","name":"Go","tags":["go"],"examples":["Sort <this> & that."]}]}`,
	"empty":  `{"provider":{"organization":"Org"},"skills":[{"id":"go","examples":[""]}],"extensions":[{"uri":"https://ext.example","params":{"a":null,"b":[],"c":{"d":""}}}]}`,
	"beyond": `{"name":"Ünïcödé 𐀀","skills":[{"id":"é","description":"€"}],"extensions":[{"uri":"https://ext.example","params":{"é":"\u007f","n":1.5,"m":100}}]}`,
}

// TestSignedCards lets the SDKs that can verify cards do so.
func TestSignedCards(t *testing.T) { eachStore(t, signedCards) }

func signedCards(t *testing.T, on func(*config.Config)) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages")
	}
	python := interpreter(t, "python3")
	h := testhub.Start(t, on)
	token := h.Agent("caller")
	open := "open"
	for handle, card := range ownersCards {
		h.Create(identity.AgentSpec{Handle: handle, Access: &open, Card: []byte(card)})
	}
	for _, sdk := range []string{"a2a-sdk[signing]==1.3.0", "a2a-sdk[signing]==0.3.26"} {
		packages := install(t, python, []string{sdk})
		for handle := range ownersCards {
			t.Run(sdk+" "+handle, func(t *testing.T) {
				cmd := exec.CommandContext(within(t, time.Minute), python, filepath.Join("testdata", "signed_cards.py"))
				cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1",
					"HUB_URL="+h.URL, "AGENT_URL="+h.URL+"/a/"+handle, "AGENT_TOKEN="+token)
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// TestSignedCardsInJavaScript is TestSignedCards for the JavaScript SDK.
func TestSignedCardsInJavaScript(t *testing.T) { eachStore(t, signedCardsInJavaScript) }

func signedCardsInJavaScript(t *testing.T, on func(*config.Config)) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages")
	}
	node := interpreter(t, "node")
	script := nodeScript(t, installNode(t, javaScriptSDK), "signed_cards.mjs")
	h := testhub.Start(t, on)
	token := h.Agent("caller")
	open := "open"
	for handle, card := range ownersCards {
		h.Create(identity.AgentSpec{Handle: handle, Access: &open, Card: []byte(card)})
		t.Run(handle, func(t *testing.T) {
			cmd := exec.CommandContext(within(t, time.Minute), node, script)
			cmd.Env = append(os.Environ(), "HUB_URL="+h.URL, "AGENT_URL="+h.URL+"/a/"+handle, "AGENT_TOKEN="+token)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestCardsSignedByOthers has hubs call agents whose cards were signed with the SDKs that
// can. What such a card says is shown; one that somebody has changed is not believed.
func TestCardsSignedByOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	python := interpreter(t, "python3")
	for _, sdk := range []string{"a2a-sdk[signing]==1.3.0", "a2a-sdk[signing]==0.3.26"} {
		packages := install(t, python, []string{sdk})
		t.Run(sdk, func(t *testing.T) {
			agent := &signedAgent{}
			server := httptest.NewServer(agent)
			t.Cleanup(server.Close)
			cmd := exec.CommandContext(within(t, time.Minute), python, filepath.Join("testdata", "sign_card.py"))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1", "BASE="+server.URL)
			out, err := cmd.Output()
			if err != nil || json.Unmarshal(out, agent) != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			h := testhub.Start(t, receiversHere)
			h.Agent("sorter")
			if got := shown(t, h, server.URL); got != "Sorts “tables” of 𐀀." {
				t.Errorf("the card says %q", got)
			}
			if agent.asked.Load() == 0 {
				t.Error("nobody asked for the keys")
			}
			agent.Card = bytes.Replace(agent.Card, []byte("Sorts"), []byte("Steals"), 1)
			if got := shown(t, h, server.URL); strings.Contains(got, "Steals") || strings.Contains(got, "Sorts") {
				t.Errorf("a forged card is believed: it says %q", got)
			}
		})
	}
}

// signedAgent serves a signed card, and the keys that verify it.
type signedAgent struct {
	Card, Keys json.RawMessage
	asked      atomic.Int32
}

// ServeHTTP implements http.Handler.
func (a *signedAgent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/.well-known/agent-card.json":
		_, _ = w.Write(a.Card)
	case "/keys":
		a.asked.Add(1)
		_, _ = w.Write(a.Keys)
	default:
		http.NotFound(w, r)
	}
}

// shown is what the hub's card says that @sorter does, once its agent is at a URL.
func shown(t *testing.T, h *testhub.Hub, url string) string {
	t.Helper()
	admin := client.New(h.URL, h.AdminToken)
	if _, err := admin.SetEndpoint(t.Context(), "sorter", client.EndpointRequest{URL: &url, Kind: "a2a"}); err != nil {
		t.Fatal(err)
	}
	card, err := agentcard.DefaultResolver.Resolve(t.Context(), h.URL+"/a/sorter")
	if err != nil {
		t.Fatal(err)
	}
	return card.Description
}
