package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

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
