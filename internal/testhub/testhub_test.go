package testhub_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// get asks for a page with a token, if there is one, and gives its status and body.
func get(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestHubKeepsAgentsAndTokensOverRestart(t *testing.T) {
	h := testhub.Start(t)
	token := h.Agent("echo")
	url := h.URL
	h.Restart()
	if h.URL != url {
		t.Fatalf("the URL changed from %s to %s", url, h.URL)
	}
	for name, secret := range map[string]string{"agent": token, "admin": h.AdminToken} {
		if status, body := get(t, h.URL+"/v1/whoami", secret); status != http.StatusOK {
			t.Errorf("%s after a restart: %d %s", name, status, body)
		}
	}
	if status, _ := get(t, h.URL+"/v1/whoami", ""); status != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want 401", status)
	}
}
