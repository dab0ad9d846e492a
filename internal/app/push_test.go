package app_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// notice is a push notification as it came.
type notice struct {
	header http.Header
	body   string
}

// webhook is a receiver of push notifications, and the change to a hub's settings that
// lets it be called.
func webhook(t *testing.T) (string, <-chan notice, func(*config.Config)) {
	t.Helper()
	got := make(chan notice, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- notice{r.Header.Clone(), string(body)}
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, got, func(cfg *config.Config) {
		cfg.EgressAllowLocal = u.Port()
		cfg.PushBackoffMin, cfg.PushBackoffMax = 20*time.Millisecond, 100*time.Millisecond
	}
}

func receive(t *testing.T, from <-chan notice) notice {
	t.Helper()
	select {
	case n := <-from:
		return n
	case <-time.After(20 * time.Second):
		t.Fatal("no notification came")
		return notice{}
	}
}

// reply has the callee take its next task and complete it with a large number.
func reply(t *testing.T, h *testhub.Hub, token string) {
	t.Helper()
	_, body := do(t, http.MethodGet, h.URL+"/v1/agents/me/tasks/next?wait=10", token, "")
	var task struct{ ID string }
	if err := json.Unmarshal([]byte(body), &task); err != nil {
		t.Fatalf("next gave %s: %v", body, err)
	}
	res, body := do(t, http.MethodPost, h.URL+"/v1/agents/me/tasks/"+task.ID+"/result", token,
		`{"state":"completed","artifacts":[{"name":"n","parts":[{"data":{"n":9007199254740993}}]}]}`)
	if res.StatusCode != http.StatusOK {
		t.Fatalf("result: %d %s", res.StatusCode, body)
	}
}

func TestPushNotificationsOfTheCurrentVersion(t *testing.T) {
	hook, got, allow := webhook(t)
	h := testhub.Start(t, allow)
	alice, echo := h.Agent("alice"), h.Agent("echo")
	_, body := do(t, http.MethodPost, h.URL+"/a/echo", alice, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{
		"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]},
		"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"id":"c","url":%q,"token":"tok","authentication":{"scheme":"Bearer","credentials":"cred"}}}}}`, hook),
		"A2A-Version", "1.0")
	if !strings.Contains(body, `"result"`) {
		t.Fatal(body)
	}
	first := receive(t, got)
	h.Restart()
	reply(t, h, echo)
	for i, want := range []string{"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING", `"n":9007199254740993`, "TASK_STATE_COMPLETED"} {
		n := first
		if i > 0 {
			n = receive(t, got)
		}
		if !strings.Contains(n.body, want) || !strings.HasPrefix(n.body, `{"statusUpdate":`) && !strings.HasPrefix(n.body, `{"artifactUpdate":`) {
			t.Errorf("notification %d was %s, want %s in it", i, n.body, want)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/a2a+json", "Authorization": "Bearer cred", "X-A2A-Notification-Token": "tok",
			"A2A-Notification-Token": "tok", "A2A-Version": "1.0", "User-Agent": "Holdfast/test",
		} {
			if all := strings.Join(n.header.Values(name), "|"); all != want {
				t.Errorf("%s was %q, want %q", name, all, want)
			}
		}
		verifyNotice(t, h, n)
	}
	awaitMetrics(t, h.URL, `holdfast_push_tries_total{result="delivered"} 3`, "holdfast_push_open 0")
}

// verifyNotice checks a notification as a receiver does that knows the hub's URL only.
func verifyNotice(t *testing.T, h *testhub.Hub, n notice) {
	t.Helper()
	_, page := do(t, http.MethodGet, h.URL+"/.well-known/jwks.json", "", "")
	var set struct {
		Keys []struct{ Kty, Crv, X string }
	}
	if err := json.Unmarshal([]byte(page), &set); err != nil {
		t.Fatalf("the key set is %s: %v", page, err)
	}
	signed := n.header.Get("Webhook-Id") + "." + n.header.Get("Webhook-Timestamp") + "." + n.body
	for _, k := range set.Keys {
		key, err := base64.RawURLEncoding.DecodeString(k.X)
		if k.Crv != "Ed25519" || err != nil {
			continue
		}
		for s := range strings.FieldsSeq(n.header.Get("Webhook-Signature")) {
			encoded, _ := strings.CutPrefix(s, "v1a,")
			signature, err := base64.StdEncoding.DecodeString(encoded)
			if err == nil && ed25519.Verify(key, []byte(signed), signature) {
				return
			}
		}
	}
	t.Errorf("no key of %s verifies %q", page, n.header.Get("Webhook-Signature"))
}

func TestPushNotificationsOfVersion03(t *testing.T) {
	hook, got, allow := webhook(t)
	h := testhub.Start(t, allow)
	alice, echo := h.Agent("alice"), h.Agent("echo")
	_, body := do(t, http.MethodPost, h.URL+"/a/echo", alice, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{
		"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]},
		"configuration":{"blocking":false,"pushNotificationConfig":{"url":%q,"token":"tok","authentication":{"schemes":["Bearer"],"credentials":"cred"}}}}}`, hook))
	if !strings.Contains(body, `"result"`) {
		t.Fatal(body)
	}
	reply(t, h, echo)
	for i, want := range []string{"submitted", "working", "working", "completed"} {
		n := receive(t, got)
		var task struct {
			Kind, ID string
			Status   struct{ State string }
		}
		if err := json.Unmarshal([]byte(n.body), &task); err != nil {
			t.Fatal(err)
		}
		if task.Kind != "task" || task.ID == "" || task.Status.State != want {
			t.Errorf("notification %d was %s, want a task that is %s", i, n.body, want)
		}
		if has := strings.Contains(n.body, `"n":9007199254740993`); has != (i >= 2) {
			t.Errorf("notification %d has the artifact: %v; it was\n%s", i, has, n.body)
		}
		if n.header.Get("Content-Type") != "application/json" || n.header.Get("X-A2A-Notification-Token") != "tok" || n.header.Get("Authorization") != "Bearer cred" {
			t.Errorf("notification %d had the headers %v", i, n.header)
		}
		verifyNotice(t, h, n)
	}
}

func TestTheHubCallsNoPlaceThatItShouldNot(t *testing.T) {
	hook, got, _ := webhook(t)
	h := testhub.Start(t)
	alice, echo := h.Agent("alice"), h.Agent("echo")
	_, body := do(t, http.MethodPost, h.URL+"/a/echo", alice, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{
		"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]},
		"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":%q}}}}`, hook), "A2A-Version", "1.0")
	if !strings.Contains(body, "-32602") || !strings.Contains(body, "--egress-allow-local") {
		t.Errorf("the answer is %s", body)
	}
	if res, _ := do(t, http.MethodGet, h.URL+"/v1/agents/me/tasks/next?wait=0", echo, ""); res.StatusCode != http.StatusNoContent {
		t.Errorf("a refused send left a task: %d", res.StatusCode)
	}
	if len(got) > 0 {
		t.Error("the hook was called")
	}
}

func TestAHubCanGoWithoutPushNotifications(t *testing.T) {
	h := testhub.Start(t, func(cfg *config.Config) { cfg.NoPush = true })
	alice := h.Agent("alice")
	h.Agent("echo")
	_, body := do(t, http.MethodPost, h.URL+"/a/echo", alice, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{
		"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]},
		"configuration":{"taskPushNotificationConfig":{"url":"https://example.com/"}}}}`, "A2A-Version", "1.0")
	if !strings.Contains(body, "-32003") {
		t.Errorf("the answer is %s", body)
	}
	_, card := do(t, http.MethodGet, h.URL+"/a/echo/.well-known/agent-card.json", "", "")
	if !strings.Contains(card, `"pushNotifications":false`) {
		t.Errorf("the card is %s", card)
	}
}

func TestBadEgressSettingsAreRefused(t *testing.T) {
	cfg := settings(t)
	cfg.EgressAllowLocal = "80x"
	if _, err := app.New(t.Context(), cfg, discard()); err == nil || !strings.Contains(err.Error(), "--egress-allow-local") {
		t.Errorf("a hub started, or said %v", err)
	}
}
