package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

// callee is an agent behind a URL, and the change to a hub's settings that lets it be
// called.
func callee(t *testing.T, h http.HandlerFunc) (string, func(*config.Config)) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, func(cfg *config.Config) {
		cfg.EgressAllowLocal = u.Port()
		cfg.BackoffMin, cfg.BackoffMax = 20*time.Millisecond, 50*time.Millisecond
	}
}

// ask makes a request that has to succeed, and reads its answer.
func ask[T any](t *testing.T, h *testhub.Hub, method, path, token, body string, header ...string) (got T) {
	t.Helper()
	res, answer := do(t, method, h.URL+path, token, body, header...)
	if res.StatusCode/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, answer)
	}
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, answer)
	}
	return got
}

const helloTask = `{"message":{"role":"user","parts":[{"text":"hello"}]}}`

// eventually waits for a task to settle, which has to be in a state.
func eventually(t *testing.T, h *testhub.Hub, token, agent, id, state string) wire.Task {
	t.Helper()
	got := ask[wire.Task](t, h, http.MethodGet, "/v1/agents/"+agent+"/tasks/"+id+"?wait=20", token, "")
	if got.State != state {
		t.Fatalf("the task is %+v, want it %s", got, state)
	}
	return got
}

func TestAWebhookDoesTasks(t *testing.T) {
	requests := make(chan notice, 10)
	hook, allow := callee(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- notice{r.Header.Clone(), string(body)}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"answer":42}`)
	})
	h := testhub.Start(t, allow)
	alice, echo := h.Agent("alice"), h.Agent("echo")
	a := ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo,
		fmt.Sprintf(`{"url":%q,"kind":"webhook","auth":{"type":"bearer","secret":"hunter2"}}`, hook))
	if a.Delivery != "webhook" || a.Endpoint == nil || a.Endpoint.AuthType != "bearer" || a.Endpoint.URL != hook {
		t.Fatalf("the endpoint is %+v", a.Endpoint)
	}
	secret := a.Endpoint.SigningSecret
	task := ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks?wait=20", alice, helloTask)
	if task.State != "completed" || task.Delivery != "webhook" || len(task.Artifacts) != 1 || string(task.Artifacts[0].Parts[0].Data) != `{"answer":42}` {
		t.Errorf("the task is %+v", task)
	}
	n := receive(t, requests)
	hooks, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatalf("the signing secret is %q: %v", secret, err)
	}
	if err := hooks.Verify([]byte(n.body), n.header); err != nil {
		t.Error(err)
	}
	if got := n.header.Get("Authorization"); got != "Bearer hunter2" {
		t.Errorf("the credential is %q", got)
	}
	awaitMetrics(t, h.URL, `holdfast_delivery_seconds_count{endpoint="webhook",outcome="answered"} 1`, "holdfast_deliveries_open 0")

	// What the owner sees of it later, and others do not.
	for _, token := range []string{echo, h.AdminToken} {
		_, shown := do(t, http.MethodGet, h.URL+"/v1/agents/echo", token, "")
		if strings.Contains(shown, "hunter2") || strings.Contains(shown, secret) || !strings.Contains(shown, `"outcome":"answered","status":200`) {
			t.Errorf("the owner sees %s", shown)
		}
	}
	if _, shown := do(t, http.MethodGet, h.URL+"/v1/agents/echo", alice, ""); strings.Contains(shown, "endpoint") || !strings.Contains(shown, `"delivery":"webhook"`) {
		t.Errorf("others see %s", shown)
	}
	// The key and the credential are kept, over a restart and a change of the path.
	h.Restart()
	a = ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":"%s/other"}`, hook))
	if a.Endpoint.SigningSecret != "" || a.Endpoint.AuthType != "bearer" {
		t.Errorf("the endpoint is %+v", a.Endpoint)
	}
	ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks?wait=20", alice, helloTask)
	n = receive(t, requests)
	if err := hooks.Verify([]byte(n.body), n.header); err != nil || n.header.Get("Authorization") != "Bearer hunter2" {
		t.Errorf("%v; the credential is %q", err, n.header.Get("Authorization"))
	}
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q,"clear_auth":true}`, hook))
	ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks?wait=20", alice, helloTask)
	if got := receive(t, requests).header.Get("Authorization"); got != "" {
		t.Errorf("after it was cleared, the credential is %q", got)
	}
	// Back to pull, which forgets the key.
	if a = ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, `{"url":null}`); a.Delivery != "pull" || a.Endpoint != nil {
		t.Errorf("the agent is %+v", a)
	}
	ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks", alice, helloTask)
	reply(t, h, echo)
	a = ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q}`, hook))
	if a.Endpoint.SigningSecret == "" || a.Endpoint.SigningSecret == secret || a.Endpoint.AuthType != "" {
		t.Errorf("the new endpoint is %+v", a.Endpoint)
	}
	if len(requests) != 0 {
		t.Errorf("%d requests too many", len(requests))
	}
}

func TestAWebhookReportsLaterWithAnyTokenOfItsAddress(t *testing.T) {
	claims := make(chan map[string]any, 10)
	hook, allow := callee(t, func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		claims <- body
		_, _ = io.WriteString(w, `{"state":"working","message":{"parts":[{"text":"on it"}]}}`)
	})
	h := testhub.Start(t, allow)
	alice := h.Agent("alice")
	h.Agent("echo")
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/echo/endpoint", h.AdminToken, fmt.Sprintf(`{"url":%q}`, hook))
	task := ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks", alice, helloTask)
	claim, _ := (<-claims)["claim_id"].(string)
	other := h.Token("echo")
	await(t, "the callee's first word", func() bool {
		got := ask[wire.Task](t, h, http.MethodGet, "/v1/agents/me/tasks/"+task.ID, other, "")
		m := got.Status.Message
		if m == nil || *m.Parts[0].Text != "on it" {
			return false
		}
		if until := got.LeaseExpiresAt; until == nil || time.Until(until.Time) < 9*time.Minute {
			t.Errorf("its lease ends at %v", until)
		}
		return true
	})
	beat := ask[wire.Heartbeat](t, h, http.MethodPost, "/v1/agents/me/tasks/"+task.ID+"/heartbeat", other, "", "X-Claim", claim)
	if beat.State != "working" {
		t.Errorf("the heartbeat says %+v", beat)
	}
	h.Restart() // the task is the callee's all the same
	done := ask[wire.Task](t, h, http.MethodPost, "/v1/agents/me/tasks/"+task.ID+"/result", other, `{"state":"completed"}`, "X-Claim", claim)
	if done.State != "completed" || done.Attempt != 1 || len(claims) != 0 {
		t.Errorf("the task is %+v", done)
	}
}

func TestARestartInTheMiddleOfADelivery(t *testing.T) {
	begun, free := make(chan struct{}, 10), make(chan struct{})
	var n atomic.Int64
	hook, allow := callee(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1) == 1 {
			begun <- struct{}{}
			select {
			case <-free:
			case <-r.Context().Done():
			}
			return
		}
		_, _ = io.WriteString(w, "done")
	})
	defer close(free)
	h := testhub.Start(t, allow, func(cfg *config.Config) { cfg.ShutdownTimeout = time.Second })
	alice, echo := h.Agent("alice"), h.Agent("echo")
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q}`, hook))
	task := ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks", alice, helloTask)
	<-begun
	h.Restart()
	got := eventually(t, h, alice, "echo", task.ID, "completed")
	if got.Attempt != 2 || got.Failures != 0 || n.Load() != 2 {
		t.Errorf("after %d calls the task is %+v", n.Load(), got)
	}
}

func TestWhoMaySetAnEndpointToWhat(t *testing.T) {
	hook, allow := callee(t, func(http.ResponseWriter, *http.Request) {})
	other, _ := callee(t, func(http.ResponseWriter, *http.Request) {})
	h := testhub.Start(t, allow, func(cfg *config.Config) { cfg.EgressAllowLocal += "," + strings.Split(other, ":")[2] })
	alice, echo := h.Agent("alice"), h.Agent("echo")
	put := func(token, body string) (int, string) {
		t.Helper()
		res, answer := do(t, http.MethodPut, h.URL+"/v1/agents/echo/endpoint", token, body)
		return res.StatusCode, answer
	}
	for _, c := range []struct {
		name, token, body string
		status            int
		has               string
	}{
		{"a stranger", alice, fmt.Sprintf(`{"url":%q}`, hook), 403, "not_permitted"},
		{"a port that is not open", echo, `{"url":"http://127.0.0.1:8099/"}`, 400, "--egress-allow-local"},
		{"a private network by the agent", echo, `{"url":"http://10.1.2.3/"}`, 400, "administrator"},
		{"with permission, by the agent", echo, `{"url":"http://10.1.2.3/","allow_private_network":true}`, 403, "only the administrator"},
		{"with permission, by the administrator", h.AdminToken, `{"url":"http://10.1.2.3/","allow_private_network":true}`, 200, `"allow_private_network":true`},
		{"kept by the agent for the same URL", echo, `{"url":"http://10.1.2.3/","auth":{"type":"header","header":"X-Key","secret":"k"}}`, 200, `"allow_private_network":true`},
		{"but not for another", echo, `{"url":"http://10.1.2.4/"}`, 400, "administrator"},
		{"metadata, whoever asks", h.AdminToken, `{"url":"http://169.254.169.254/","allow_private_network":true}`, 400, "never calls"},
		{"set by the administrator with a credential", h.AdminToken, fmt.Sprintf(`{"url":%q,"auth":{"type":"bearer","secret":"hunter2"}}`, hook), 200, `"auth_type":"bearer"`},
		{"the credential does not go along to another host", echo, fmt.Sprintf(`{"url":%q}`, other), 400, "credential"},
		{"unless a new one is given", echo, fmt.Sprintf(`{"url":%q,"auth":{"type":"basic","secret":"u:p"}}`, other), 200, `"auth_type":"basic"`},
		{"or it is cleared", echo, fmt.Sprintf(`{"url":%q,"clear_auth":true}`, hook), 200, `"auth_type":""`},
		{"the administrator moves it as it is", h.AdminToken, fmt.Sprintf(`{"url":%q,"auth":{"type":"bearer","secret":"hunter2"}}`, hook), 200, `"auth_type":"bearer"`},
		{"to another host", h.AdminToken, fmt.Sprintf(`{"url":%q}`, other), 200, `"auth_type":"bearer"`},
	} {
		status, answer := put(c.token, c.body)
		if status != c.status || !strings.Contains(answer, c.has) || strings.Contains(answer, "hunter2") {
			t.Errorf("%s: %d %s", c.name, status, answer)
		}
	}
	h.Create(identity.AgentSpec{Handle: "paula", Kind: "person"})
	res, answer := do(t, http.MethodPut, h.URL+"/v1/agents/paula/endpoint", h.AdminToken, fmt.Sprintf(`{"url":%q}`, hook))
	if res.StatusCode != 400 || !strings.Contains(answer, "inbox") {
		t.Errorf("the endpoint of a person: %d %s", res.StatusCode, answer)
	}
}

func TestAHubCanGoWithoutWebhooks(t *testing.T) {
	hook, allow := callee(t, func(http.ResponseWriter, *http.Request) { t.Error("it was called") })
	h := testhub.Start(t, allow, func(cfg *config.Config) { cfg.NoWebhook = true })
	echo := h.Agent("echo")
	res, answer := do(t, http.MethodPut, h.URL+"/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q}`, hook))
	if res.StatusCode != 400 || !strings.Contains(answer, "delivers to no endpoints") {
		t.Errorf("%d %s", res.StatusCode, answer)
	}
	if a := ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, `{"url":null}`); a.Delivery != "pull" {
		t.Errorf("the agent is %+v", a)
	}
}

func TestTheOwnerSeesWhyNothingIsDelivered(t *testing.T) {
	hook, allow := callee(t, func(http.ResponseWriter, *http.Request) {})
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	h := testhub.Start(t, allow, func(cfg *config.Config) { cfg.EgressAllowLocal += "," + strings.Split(gone.URL, ":")[2] })
	alice, echo := h.Agent("alice"), h.Agent("echo")
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q}`, gone.URL))
	task := ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks", alice, helloTask)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		a := ask[wire.Agent](t, h, http.MethodGet, "/v1/agents/me", echo, "")
		if x := a.Endpoint.Trouble; x != nil {
			if !strings.Contains(x.Reason, "nothing takes connections there") || x.Since.IsZero() || x.NextTry.IsZero() {
				t.Errorf("the trouble is %+v", x)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatal("no trouble is seen")
		}
	}
	mine := ask[wire.Task](t, h, http.MethodGet, "/v1/agents/me/tasks/"+task.ID, echo, "")
	theirs := ask[wire.Task](t, h, http.MethodGet, "/v1/agents/echo/tasks/"+task.ID, alice, "")
	if mine.DispatchState == "ready" && !strings.Contains(mine.Hint, "nothing takes connections there") || strings.Contains(theirs.Hint, "127.0.0.1") {
		t.Errorf("the hints are %q and %q", mine.Hint, theirs.Hint)
	}
	// Another endpoint is tried at once.
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q}`, hook))
	if got := eventually(t, h, alice, "echo", task.ID, "completed"); got.Failures != 0 {
		t.Errorf("the task is %+v", got)
	}
}

func TestATaskIsDeliveredAgainByHand(t *testing.T) {
	var well atomic.Bool
	hook, allow := callee(t, func(w http.ResponseWriter, _ *http.Request) {
		if !well.Load() {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	h := testhub.Start(t, allow)
	alice, echo := h.Agent("alice"), h.Agent("echo")
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q}`, hook))
	task := ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks", alice, helloTask)
	again := "/v1/agents/me/tasks/" + task.ID + "/redeliver"
	await(t, "an agent in trouble with a task that is not under way", func() bool {
		a := ask[wire.Agent](t, h, http.MethodGet, "/v1/agents/me", echo, "")
		return a.Presence.Trouble != nil && a.Presence.InFlight == 0 && *a.Presence.Unfinished == 1
	})
	if a := ask[wire.Agent](t, h, http.MethodGet, "/v1/agents/echo", alice, ""); a.Presence != nil || a.Endpoint != nil {
		t.Errorf("a caller sees %+v and %+v", a.Presence, a.Endpoint)
	}
	if res, answer := do(t, http.MethodPost, h.URL+again, alice, ""); res.StatusCode != 404 {
		t.Errorf("a redelivery by the caller: %d %s", res.StatusCode, answer)
	}
	well.Store(true)
	ask[wire.Task](t, h, http.MethodPost, again, echo, "")
	if got := eventually(t, h, alice, "echo", task.ID, "completed"); got.Failures != 1 || got.Attempt != 2 {
		t.Errorf("the task is %+v", got)
	}
	if res, answer := do(t, http.MethodPost, h.URL+again, echo, ""); res.StatusCode != 409 {
		t.Errorf("a redelivery after the end: %d %s", res.StatusCode, answer)
	}
}
