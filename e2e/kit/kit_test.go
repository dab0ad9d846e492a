package kit_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/kit"
)

// answer is what came back for a send.
type answer struct {
	Result struct {
		Task *struct {
			ID     string
			Status struct {
				State   string
				Message struct{ Parts []struct{ Text string } }
			}
			Artifacts []struct {
				Parts []map[string]any
			}
		}
		Message *struct{ Parts []struct{ Text string } }
	}
	Error *struct{ Data []struct{ Reason string } }
}

func send(t *testing.T, h *kit.Hub, handle, id, more string) (a answer) {
	t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":%q,"role":"ROLE_USER","parts":[{"text":"hi"}]%s}}}`, id, more)
	post(t, h.Card(handle), body, &a)
	return a
}

func post(t *testing.T, url, body string, into any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

// TestScenarios: the callee does what the kit's scenarios say.
func TestScenarios(t *testing.T) {
	h := start(t)
	for prefix, want := range map[string]struct{ state, text, part string }{
		"tck-complete-task":           {"COMPLETED", "Hello from TCK", ""},
		"tck-of-no-scenario":          {"COMPLETED", "Hello from TCK", ""},
		"tck-artifact-text":           {"COMPLETED", "", `{"text":"Generated text content"}`},
		"tck-artifact-file":           {"COMPLETED", "", `{"filename":"output.txt","mediaType":"text/plain","raw":"R2VuZXJhdGVkIGZpbGUgY29udGVudA=="}`},
		"tck-artifact-file-url":       {"COMPLETED", "", `{"filename":"output.txt","mediaType":"text/plain","url":"https://example.com/output.txt"}`},
		"tck-artifact-data":           {"COMPLETED", "", `{"data":{"count":42,"key":"value"}}`},
		"tck-input-required":          {"INPUT_REQUIRED", "", ""},
		"tck-reject-task":             {"REJECTED", "rejected", ""},
		"tck-stream-001":              {"COMPLETED", "", `{"text":"Stream hello from TCK"}`},
		"tck-stream-002":              {"COMPLETED", "", ""},
		"tck-stream-artifact-chunked": {"COMPLETED", "", `{"text":"chunk-1 "}`},
		"anything-else":               {"INPUT_REQUIRED", "What else?", ""},
		"test-resubscribe-message-id": {"COMPLETED", "", ""},
	} {
		got := send(t, h, kit.Full, prefix+"-x", "").Result.Task
		if got == nil || got.Status.State != "TASK_STATE_"+want.state {
			t.Errorf("%s: %+v", prefix, got)
			continue
		}
		text := ""
		for _, p := range got.Status.Message.Parts {
			text += p.Text
		}
		part := ""
		if len(got.Artifacts) > 0 {
			b, _ := json.Marshal(got.Artifacts[0].Parts[0])
			part = string(b)
		}
		if text != want.text || part != want.part {
			t.Errorf("%s: says %q with %s, want %q with %s", prefix, text, part, want.text, want.part)
		}
	}
	if m := send(t, h, kit.Full, "tck-message-response-x", "").Result.Message; m == nil || m.Parts[0].Text != "Direct message response" {
		t.Errorf("message: %+v", m)
	}
	asked := send(t, h, kit.Full, "tck-input-required-x", "").Result.Task
	if done := send(t, h, kit.Full, "tck-complete-task-x", fmt.Sprintf(`,"taskId":%q`, asked.ID)).Result.Task; done == nil || done.ID != asked.ID || done.Status.State != "TASK_STATE_COMPLETED" {
		t.Errorf("the answer in one task: %+v", done)
	}
}

// TestMinimal: the other address wants its extension.
func TestMinimal(t *testing.T) {
	h := start(t)
	if a := send(t, h, kit.Minimal, "tck-complete-task", ""); a.Error == nil || a.Error.Data[0].Reason != "EXTENSION_SUPPORT_REQUIRED" {
		t.Errorf("got %+v", a)
	}
}

// TestOwnHost: a client of 0.3 finds the address at the root of a host.
func TestOwnHost(t *testing.T) {
	h := start(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.Old+".well-known/agent-card.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var card struct{ URL, ProtocolVersion string }
	if err := json.NewDecoder(res.Body).Decode(&card); err != nil || card.URL != h.Old || !strings.HasPrefix(card.ProtocolVersion, "0.3") {
		t.Errorf("%+v, %v", card, err)
	}
	var got struct{ Result struct{ Kind string } }
	post(t, card.URL, `{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"tck-x","role":"user","parts":[{"kind":"text","text":"hi"}]}}}`, &got)
	if got.Result.Kind != "task" {
		t.Errorf("got %+v", got)
	}
}

func start(t *testing.T) *kit.Hub {
	t.Helper()
	h, err := kit.Start(t.Context(), kit.Options{Listen: "127.0.0.1:0", Streaming: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}
