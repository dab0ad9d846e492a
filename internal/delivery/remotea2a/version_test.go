package remotea2a_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Every request of 1.0 says its version (section 3.6.1), over each binding, and names the
// tenant of the card. Those of 0.3 say none: what says none is of 0.3, and older agents do
// not know the header.
func TestTheVersionIsSaid(t *testing.T) {
	const offer = `{"capabilities":{"streaming":%t},"supportedInterfaces":[{"url":"http://x/api","protocolBinding":%q,"protocolVersion":%q,"tenant":"a b"}]}`
	const working = `{"task":{"id":"r","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}`
	for _, c := range []struct {
		binding, version, want string
		places                 []string // that have to be asked
	}{
		{"JSONRPC", "1.0", "1.0", []string{"/api SendMessage", "/api GetTask", "/api SendStreamingMessage"}},
		{"HTTP+JSON", "1.0", "1.0", []string{"/api/a%20b/message:send", "/api/a%20b/tasks/r", "/api/a%20b/message:stream"}},
		{"JSONRPC", "0.3.0", "", []string{"/api message/send", "/api tasks/get", "/api message/stream"}},
	} {
		var mu sync.Mutex
		var places []string
		for _, streaming := range []bool{false, true} {
			got, _ := ask(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/.well-known/") {
					fmt.Fprintf(w, offer, streaming, c.binding, c.version)
					return
				}
				body, _ := io.ReadAll(r.Body)
				place, answer := r.URL.EscapedPath(), working
				if c.binding == "JSONRPC" {
					_, method, _ := strings.Cut(string(body), `"method":"`)
					method, _, _ = strings.Cut(method, `"`)
					place += " " + method
				}
				mu.Lock()
				places = append(places, place)
				mu.Unlock()
				if said := strings.Join(r.Header.Values("A2A-Version"), ", "); said != c.want {
					t.Errorf("%s %s %s says version %q, want %q", c.binding, c.version, place, said, c.want)
				}
				if named := strings.Contains(string(body), `"tenant":"a b"`); named != (c.binding == "JSONRPC" && c.version == "1.0") {
					t.Errorf("%s %s: the body is %s", c.binding, c.version, body)
				}
				if strings.HasSuffix(place, "Task") || strings.HasSuffix(place, "/get") || strings.HasSuffix(place, "/r") {
					answer = whole
				}
				if c.binding == "JSONRPC" {
					answer = result(answer)
				}
				_, _ = io.WriteString(w, answer)
			}))
			if got.Kind != delivery.Answered || got.Report.State != hub.Completed {
				t.Errorf("%s %s: %+v", c.binding, c.version, got)
			}
		}
		for _, p := range c.places {
			if !slices.Contains(places, p) {
				t.Errorf("%s %s: %s was not asked, but %q", c.binding, c.version, p, places)
			}
		}
	}
}
