package cli_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/cli"
)

// TestHintsOfTLS takes the wrong scheme, and a certificate that nobody signed.
func TestHintsOfTLS(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for name, c := range map[string]struct{ url, hint string }{
		"http to https": {"http://" + strings.TrimPrefix(secure.URL, "https://"), "try " + secure.URL},
		"https to http": {"https://" + strings.TrimPrefix(plain.URL, "http://"), "try " + plain.URL},
		"not trusted":   {secure.URL, "SSL_CERT_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, stderr := run(t, "whoami", "--url", c.url, "--token", "hf_x")
			if code != 6 || !strings.Contains(stderr, c.hint) || strings.Contains(stderr, "holdfast serve") {
				t.Errorf("exit code %d, %s; want 6 and %q", code, stderr, c.hint)
			}
		})
	}
}

// TestOnlyBugsAreInTheLog shows the request id where the hub's log has more.
func TestOnlyBugsAreInTheLog(t *testing.T) {
	for status, want := range map[int]bool{http.StatusNotFound: false, http.StatusInternalServerError: true} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Request-Id", "r-1")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"error":{"code":"x","message":"m"}}`)
		}))
		_, _, stderr := run(t, "whoami", "--url", s.URL, "--token", "hf_x")
		s.Close()
		if got := strings.Contains(stderr, "r-1"); got != want {
			t.Errorf("status %d: %s", status, stderr)
		}
	}
}

// run runs the command line in this process, without an environment.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = cli.Main(context.WithoutCancel(t.Context()), args, strings.NewReader(""), &out, &err, nil)
	return code, out.String(), err.String()
}
