package kit_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/e2e/kit"
)

// A guarded hub takes nothing without a credential, and lends one for the extended card
// alone.
func TestGuarded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip("this machine has no 127.0.0.2, where a guarded hub is:", err)
	}
	l.Close()
	h, err := kit.Start(t.Context(), kit.Options{Listen: "127.0.0.1:0", Guarded: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	pem, err := os.ReadFile(h.Roots)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	ask := func(method, path, token, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, h.Old+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := (&http.Client{Transport: transport}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(answer)
	}
	const extended = `{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}`
	for what, c := range map[string]struct {
		method, path, token, body string
		status                    int
		has                       string
	}{
		"the card":                            {"GET", ".well-known/agent-card.json", "", "", 200, `"url":"https://127.0.0.2:`},
		"a task":                              {"POST", "", "", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`, 401, ""},
		"a task with a wrong token":           {"POST", "", "wrong", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`, 401, ""},
		"the extended card":                   {"POST", "", "", extended, 200, `"securitySchemes"`},
		"the extended card over HTTP+JSON":    {"GET", "v1/card", "", "", 200, `"securitySchemes"`},
		"the extended card, by a wrong token": {"POST", "", "wrong", extended, 401, ""},
	} {
		if status, answer := ask(c.method, c.path, c.token, c.body); status != c.status || !strings.Contains(answer, c.has) {
			t.Errorf("%s: %d %s, want %d and %s", what, status, answer, c.status, c.has)
		}
	}
}
