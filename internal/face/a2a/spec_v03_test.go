package a2a_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

// TestBareReplyV03 is section 7.1 of 0.3: the answer may be a message, in the form of
// each binding.
func TestBareReplyV03(t *testing.T) {
	b := newBed(t)
	result := json.RawMessage(fmt.Sprintf(`{"state":"completed","message":{"role":"agent","message_id":"r","parts":[{"text":"just this"}],"extensions":[%q]}}`, wire.BareReply))
	for _, c := range []struct{ path, body, want string }{
		{"/a/coder", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":` + hello + `}}`,
			`{"jsonrpc":"2.0","id":1,"result":{"kind":"message","taskId":"U1","contextId":"U2","messageId":"r","role":"agent","parts":[{"kind":"text","text":"just this"}],"extensions":["urn:holdfast:bare-reply"]}}`},
		{"/a/coder/v1/message:send", `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]}}`,
			`{"message":{"taskId":"U1","contextId":"U2","messageId":"r","role":"ROLE_AGENT","content":[{"text":"just this"}],"extensions":["urn:holdfast:bare-reply"]}}`},
	} {
		var worker sync.WaitGroup
		worker.Go(func() { b.v1("POST", b.next().ID+"/result", result, nil) })
		_, got := b.exchange("POST", c.path, c.body)
		worker.Wait()
		wantText(t, strings.TrimSpace(got), c.want)
	}
}

// TestStreamErrorsV03: a client of 0.3 that waits for a stream can read an error in no
// other form, but for those that HTTP itself tells.
func TestStreamErrorsV03(t *testing.T) {
	b := newBed(t)
	const event = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,\"message\":\"Task not found\""
	for accept, want := range map[string]string{
		"text/event-stream": event, "application/json, text/event-stream;q=0.9": event,
		"": event[len("data: "):], "application/json": event[len("data: "):],
	} {
		if got := b.rpcV03("tasks/resubscribe", `{"id":"none"}`, "Accept", accept); !strings.HasPrefix(got, want) {
			t.Errorf("Accept: %s: %s", accept, got)
		}
	}
	if got := b.rpcV03("message/stream", `{}`, "Accept", "text/event-stream"); !strings.HasPrefix(got, "data: ") || !strings.Contains(got, "-32602") {
		t.Errorf("message/stream: %s", got)
	}
	if got := b.rpcV03("tasks/get", `{"id":"none"}`, "Accept", "text/event-stream"); strings.HasPrefix(got, "data: ") {
		t.Errorf("tasks/get: %s", got)
	}
	status, got := b.exchange("POST", "/a/coder", `{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":"none"}}`,
		"Accept", "text/event-stream", "Authorization", "Bearer wrong")
	if status != http.StatusUnauthorized || !strings.HasPrefix(got, "{") {
		t.Errorf("without a credential: %d %s", status, got)
	}
}

// TestExtendedCardAnonymousV03 is section 7.10 of 0.3, whose extended card is for
// those who say who they are, wherever they are.
func TestExtendedCardAnonymousV03(t *testing.T) {
	b := newBed(t, testhub.Anonymous)
	ask := func(path, method, body string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, b.URL+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		status, _, got := b.raw(r)
		return status, string(got)
	}
	if status, got := ask("/a/coder", "POST", `{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}`); status != http.StatusOK || !strings.Contains(got, "-32007") {
		t.Errorf("JSON-RPC: %d %s", status, got)
	}
	if status, got := ask("/a/coder/v1/card", "GET", ""); status != http.StatusUnauthorized {
		t.Errorf("HTTP+JSON: %d %s", status, got)
	}
	if status, got := ask("/a/coder/extendedAgentCard", "GET", ""); status != http.StatusOK {
		t.Errorf("1.0: %d %s", status, got)
	}
}
