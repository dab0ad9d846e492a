package interop

import (
	"bytes"
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// An agent that is a Flask application does tasks, checks the signatures with the library
// for that, and reports later by itself.
func TestFlaskWebhook(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	python := interpreter(t, "python3")
	packages := install(t, python, []string{"flask==3.1.3", "standardwebhooks==1.1.0", "requests==2.32.5"})
	eachStore(t, func(t *testing.T, on func(*config.Config)) {
		env := []string{"PYTHONPATH=" + packages, "PYTHONDONTWRITEBYTECODE=1"}
		url := program(t, env, python, filepath.Join("testdata", "callee_webhook.py"))
		h := testhub.Start(t, on, receiversHere)
		coder := h.Agent("coder")
		made, err := client.New(h.URL, coder).SetEndpoint(t.Context(), "me", client.EndpointRequest{
			URL: &url, Auth: &client.EndpointAuth{Type: "bearer", Secret: "the credential"},
		})
		if err != nil {
			t.Fatal(err)
		}
		setUp(t, strings.TrimSuffix(url, "/tasks")+"/setup", map[string]string{"hub": h.URL, "token": coder, "secret": made.Endpoint.SigningSecret})
		caller := client.New(h.URL, h.Agent("caller"))
		talk(t, callee{noStream: true, noCancel: true}, caller)
		ctx := within(t, time.Minute)
		if got := tell(ctx, t, caller, "later"); got.State != "completed" || got.ResultText() != "at last" {
			t.Errorf("later: %s %q (%s)", got.State, got.ResultText(), got.StatusText())
		}
		got := tell(ctx, t, caller, "data")
		if got.State != "completed" || len(got.Artifacts) != 1 || !strings.Contains(string(got.Artifacts[0].Parts[0].Data), "42") {
			t.Errorf("data: %s %+v", got.State, got.Artifacts)
		}
	})
}

// setUp tells an agent what it has to know of the hub.
func setUp(t *testing.T, url string, told map[string]string) {
	t.Helper()
	body, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the agent answered %s", res.Status)
	}
}
