package a2a_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/config"
)

// TestEndpoints: the three spellings of an endpoint answer alike and none redirects;
// other methods are 405.
func TestEndpoints(t *testing.T) {
	b := newBed(t)
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range []string{"/a/coder", "/a/coder/", "/a/coder/rpc"} {
		r := b.request(t.Context(), b.caller, "ListTasks", `{}`)
		r.URL.Path = path
		if a := b.do(r); a.Error != nil || string(a.ID) != `"q"` {
			t.Errorf("%s: %s", path, a.Body)
		}
		for _, method := range []string{"GET", "PUT", "DELETE", "PATCH", "HEAD"} {
			r, err := http.NewRequestWithContext(t.Context(), method, b.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			status, header, body := b.raw(r)
			if status != http.StatusMethodNotAllowed || header.Get("Allow") != "POST" {
				t.Errorf("%s %s: %d, Allow %q", method, path, status, header.Get("Allow"))
			}
			if method != http.MethodHead {
				wantReason(t, parseREST(t, status, header, body), "METHOD_NOT_ALLOWED")
			}
		}
	}
}

// TestMalformedRequests: what is refused before any operation, and how (spec
// sections 3.6, 9.4 and 9.5).
func TestMalformedRequests(t *testing.T) {
	b := newBed(t, func(c *config.Config) { c.MaxBody = 1024 })
	list := func(pad int) string {
		return `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"x":"` + strings.Repeat("x", pad) + `"}}`
	}
	overhead := len(list(0))
	for _, c := range []struct {
		name, body string
		headers    []string
		status     int
		code       int // 0 for success
		reason, id string
	}{
		{name: "at the limit", body: list(1024 - overhead), status: 200, id: "1"},
		{name: "one byte over", body: list(1025 - overhead), status: 413, code: -32602, reason: "TOO_LARGE", id: "null"},
		{name: "text/plain", body: list(0), headers: []string{"Content-Type", "text/plain"}, status: 200, code: -32005, reason: "CONTENT_TYPE_NOT_SUPPORTED", id: "null"},
		{name: "a2a+json", body: list(0), headers: []string{"Content-Type", "application/a2a+json; charset=utf-8"}, status: 200, id: "1"},
		{name: "no media type", body: list(0), headers: []string{"Content-Type", ""}, status: 200, id: "1"},
		{name: "version 1.0", body: list(0), headers: []string{"A2A-Version", "1.0"}, status: 200, id: "1"},
		{name: "version 99.0", body: list(0), headers: []string{"A2A-Version", "99.0"}, status: 200, code: -32009, reason: "VERSION_NOT_SUPPORTED", id: "1"},
		{name: "version 0.3", body: list(0), headers: []string{"A2A-Version", "0.3"}, status: 200, code: -32009, reason: "VERSION_NOT_SUPPORTED", id: "1"},
		{name: "unknown extensions", body: list(0), headers: []string{"A2A-Extensions", "https://a, https://b"}, status: 200, id: "1"},
		{name: "not JSON", body: `{"jsonrpc"`, status: 200, code: -32700, reason: "PARSE_ERROR", id: "null"},
		{name: "empty", body: ``, status: 200, code: -32700, reason: "PARSE_ERROR", id: "null"},
		{name: "batch", body: `[` + list(0) + `]`, status: 200, code: -32600, reason: "INVALID_REQUEST", id: "null"},
		{name: "no id", body: `{"jsonrpc":"2.0","method":"ListTasks"}`, status: 200, id: "null"},
		{name: "no id and an unknown method", body: `{"jsonrpc":"2.0","method":"DoIt"}`, status: 200, code: -32601, reason: "METHOD_NOT_FOUND", id: "null"},
		{name: "an object as id", body: `{"jsonrpc":"2.0","id":{},"method":"ListTasks"}`, status: 200, code: -32600, reason: "INVALID_REQUEST", id: "null"},
		{name: "unknown method", body: `{"jsonrpc":"2.0","id":"é","method":"DoIt"}`, status: 200, code: -32601, reason: "METHOD_NOT_FOUND", id: `"é"`},
		{name: "no method of 0.3", body: `{"jsonrpc":"2.0","id":1,"method":"tasks/list","params":{}}`, status: 200, code: -32601, reason: "METHOD_NOT_FOUND", id: "1"},
		{name: "0.3 method as 1.0", body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}`, headers: []string{"A2A-Version", "1.0"}, status: 200, code: -32601, reason: "METHOD_NOT_FOUND", id: "1"},
		{name: "0.3 method as 99.0", body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{}}`, headers: []string{"A2A-Version", "99.0"}, status: 200, code: -32009, reason: "VERSION_NOT_SUPPORTED", id: "1"},
		{name: "0.3 method as 0.2.5", body: `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`, headers: []string{"A2A-Version", "0.2.5"}, status: 200, code: -32001, reason: "TASK_NOT_FOUND", id: "1"},
		{name: "no params", body: `{"jsonrpc":"2.0","id":1,"method":"SendMessage"}`, status: 200, code: -32602, reason: "INVALID_PARAMS", id: "1"},
		{name: "params by position", body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":["x"]}`, status: 200, code: -32602, reason: "INVALID_PARAMS", id: "1"},
		{name: "task id with a NUL", body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"\u0000"}}`, status: 200, code: -32001, reason: "TASK_NOT_FOUND", id: "1"},
		{name: "long task id", body: `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"` + strings.Repeat("x", 800) + `"}}`, status: 200, code: -32001, reason: "TASK_NOT_FOUND", id: "1"},
		{name: "page token of nobody", body: `{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"pageToken":"x"}}`, status: 200, code: -32602, reason: "INVALID_PARAMS", id: "1"},
		{name: "compressed", body: list(0), headers: []string{"Content-Encoding", "gzip"}, status: 200, code: -32602, reason: "INVALID_PARAMS", id: "null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := b.request(t.Context(), b.caller, "", "0")
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(c.body)), int64(len(c.body))
			for i := 0; i < len(c.headers); i += 2 {
				if r.Header.Set(c.headers[i], c.headers[i+1]); c.headers[i+1] == "" {
					r.Header.Del(c.headers[i])
				}
			}
			a := b.do(r)
			if a.Status != c.status || string(a.ID) != c.id {
				t.Errorf("status %d, id %s, want %d and %s: %s", a.Status, a.ID, c.status, c.id, a.Body)
			}
			if c.code == 0 {
				if a.Error != nil {
					t.Errorf("refused: %s", a.Body)
				}
				return
			}
			wantCode(t, a, c.code)
			if a.Error != nil && a.Error.Data[0].Reason != c.reason {
				t.Errorf("reason %s, want %s", a.Error.Data[0].Reason, c.reason)
			}
		})
	}
}

// TestCards: every address has a card without a credential, an unknown one has none,
// and the URLs in it come from the configuration and not from the request.
func TestCards(t *testing.T) {
	b := newBed(t)
	get := func(path string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "evil.example"
		r.Header.Set("X-Forwarded-Host", "evil.example")
		res, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, _ := io.ReadAll(res.Body)
		return res.StatusCode, string(body)
	}
	for path, url := range map[string]string{
		"/a/coder/.well-known/agent-card.json": b.URL + "/a/coder",
		"/a/hub/.well-known/agent-card.json":   b.URL + "/a/hub",
		"/.well-known/agent-card.json":         b.URL + "/a/hub",
	} {
		status, body := get(path)
		if status != 200 || !strings.Contains(body, fmt.Sprintf(`"url":%q`, url)) || strings.Contains(body, "evil") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, path := range []string{"/a/nobody/.well-known/agent-card.json", "/a/admin/.well-known/agent-card.json", "/a/coder/.well-known/other.json"} {
		if status, body := get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestPrivateCards: only those see a card who may call its address.
func TestPrivateCards(t *testing.T) {
	b := newBed(t, func(c *config.Config) { c.PrivateCards = true })
	get := func(path, token string) int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := b.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{"/a/coder/.well-known/agent-card.json", b.caller, 200},
		{"/a/coder/.well-known/agent-card.json", "", 401},
		{"/a/nobody/.well-known/agent-card.json", "", 401},
		{"/a/nobody/.well-known/agent-card.json", b.caller, 403},
		{"/.well-known/agent-card.json", "", 401},
		{"/.well-known/agent-card.json", b.caller, 200},
	} {
		if got := get(c.path, c.token); got != c.want {
			t.Errorf("%s with a token %t: %d, want %d", c.path, c.token != "", got, c.want)
		}
	}
}
