package a2a_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestPushV03 is sections 7.5 to 7.8 of 0.3: what JSON-RPC and HTTP+JSON answer, to the
// byte.
func TestPushV03(t *testing.T) {
	b := newBed(t, localHooks)
	id := b.startV03()
	const auth = `"authentication":{"schemes":["Bearer"],"credentials":"` + pushCredentials + `"}`
	config := func(id, more string) string {
		if id != "" {
			id = `"id":"` + id + `",`
		}
		return `{` + id + `"url":"http://127.0.0.1:1024/"` + more + `}`
	}
	shown := func(id, more string) string {
		return config(id, strings.Replace(more, `,"credentials":"`+pushCredentials+`"`, "", 1))
	}
	named := func(id, more string) string {
		return `{"taskId":"U1","pushNotificationConfig":` + shown(id, more) + `}`
	}
	inProto := func(id, more string) string {
		return `{"name":"tasks/U1/pushNotificationConfigs/` + id + `","pushNotificationConfig":` + shown(id, more) + `}`
	}
	result := func(body string) string { return `{"jsonrpc":"2.0","id":1,"result":` + body + `}` }
	v03 := []string{"A2A-Version", "0.3"}
	at := "/a/coder/v1/tasks/" + id + "/pushNotificationConfigs"
	for _, c := range []struct {
		method, params string // of JSON-RPC, or
		http, path     string // of HTTP+JSON, whose body is params
		headers        []string
		want           string
	}{
		{method: "list", params: `{"id":"ID"}`, want: result(`[]`)},
		{http: "GET", path: at, want: `{"configs":[]}`},
		// Without an id there is one configuration, which is replaced.
		{method: "set", params: `{"taskId":"ID","pushNotificationConfig":` + config("", "") + `}`, want: result(named("default", ""))},
		{method: "set", params: `{"taskId":"ID","pushNotificationConfig":` + config("", ","+auth) + `}`, want: result(named("default", ","+auth))},
		{method: "set", params: `{"taskId":"ID","pushNotificationConfig":` + config("a", `,"token":"`+pushToken+`"`) + `}`, want: result(named("a", ""))},
		{method: "list", params: `{"id":"ID"}`, want: result(`[` + named("default", ","+auth) + `,` + named("a", "") + `]`)},
		{method: "get", params: `{"id":"ID"}`, want: result(named("default", ","+auth))},
		{method: "get", params: `{"id":"ID","pushNotificationConfigId":"a"}`, want: result(named("a", ""))},
		{http: "GET", path: at + "/a", want: inProto("a", "")},
		{http: "GET", path: at + "/a", headers: v03, want: inProto("a", "")},
		{http: "GET", path: strings.Replace(at, "/v1", "", 1) + "/a", headers: v03, want: named("a", "")},
		{http: "GET", path: strings.Replace(at, "/v1", "", 1), headers: v03, want: `[` + named("default", ","+auth) + `,` + named("a", "") + `]`},
		{http: "POST", path: at, params: `{"parent":"tasks/ID","config_id":"b","config":{"name":"tasks/ID/pushNotificationConfigs/b","push_notification_config":` + config("b", `,"authentication":{}`) + `}}`, want: inProto("b", "")},
		{http: "POST", path: at, params: `{"name":"tasks/ID/pushNotificationConfigs/c","pushNotificationConfig":` + config("c", ","+auth) + `}`, want: inProto("c", ","+auth)},
		{http: "POST", path: strings.Replace(at, "/v1", "", 1), params: `{"taskId":"ID","pushNotificationConfig":` + config("d", "") + `}`, headers: v03, want: named("d", "")},
		{method: "delete", params: `{"id":"ID","pushNotificationConfigId":"default"}`, want: result(`null`)},
		{method: "delete", params: `{"id":"ID","pushNotificationConfigId":"default"}`, want: result(`null`)},
		{method: "get", params: `{"id":"ID"}`, want: result(named("a", ""))},
		{http: "DELETE", path: at + "/a", want: `{}`},
		{http: "DELETE", path: at + "/a", want: `{}`},
		{http: "GET", path: at, want: `{"configs":[` + inProto("b", "") + `,` + inProto("c", ","+auth) + `,` + inProto("d", "") + `]}`},
	} {
		params := strings.ReplaceAll(c.params, "ID\"", id+`"`)
		params = strings.ReplaceAll(params, "tasks/ID", "tasks/"+id)
		var got string
		if c.method != "" {
			got = b.rpcV03("tasks/pushNotificationConfig/"+c.method, params, c.headers...)
		} else {
			_, got = b.exchange(c.http, c.path, params, c.headers...)
		}
		if got != c.want {
			t.Errorf("%s%s %s\n got %s\nwant %s", c.method, c.http, params+c.path, got, c.want)
		}
	}
}

// TestPushErrorsV03: what 0.3 answers where there is nothing, and to what cannot be.
func TestPushErrorsV03(t *testing.T) {
	b := newBed(t, localHooks)
	id := b.startV03()
	const notFound = `"code":-32001,"message":"Task not found"`
	for _, c := range []struct{ method, params, want string }{
		{"get", `{"id":"ID"}`, notFound},
		{"get", `{"id":"ID","pushNotificationConfigId":"none"}`, notFound},
		{"get", `{"id":"none"}`, notFound},
		{"list", `{"id":"none"}`, notFound},
		{"delete", `{"id":"none","pushNotificationConfigId":"c"}`, notFound},
		{"set", `{"taskId":"none","pushNotificationConfig":{"url":"http://127.0.0.1:1024/"}}`, notFound},
		{"set", `{"taskId":"ID","pushNotificationConfig":{"url":"http://10.0.0.1/"}}`, `"field":"pushNotificationConfig.url"`},
		{"set", `{"taskId":"ID","pushNotificationConfig":{"url":"http://127.0.0.1:1024/","authentication":{"schemes":["a b"]}}}`, `"field":"pushNotificationConfig.authentication.schemes"`},
		{"set", `{"taskId":"ID","config":{"pushNotificationConfig":{"url":"http://127.0.0.1:1024/","token":"a\r\nb"}}}`, `"field":"config.pushNotificationConfig.token"`},
	} {
		if got := b.rpcV03("tasks/pushNotificationConfig/"+c.method, strings.ReplaceAll(c.params, "ID", id)); !strings.Contains(got, c.want) {
			t.Errorf("%s %s: %s, want %s", c.method, c.params, got, c.want)
		}
	}
	for path, want := range map[string]string{"none/pushNotificationConfigs": notFound, id + "/pushNotificationConfigs/none": notFound} {
		if status, got := b.exchange("GET", "/a/coder/v1/tasks/"+path, ""); status != 404 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", path, status, got)
		}
	}
	got := b.rpcV03("message/send", `{"message":`+hello+`,"configuration":{"pushNotificationConfig":{"url":"http://10.0.0.1/"}}}`)
	if !strings.Contains(got, `"field":"configuration.pushNotificationConfig.url"`) {
		t.Errorf("with a message: %s", got)
	}
}

// TestPushInlineV03: a configuration that comes with a message is notified in the form
// of 0.3: the bare task, with its kind (section 9.5 there).
func TestPushInlineV03(t *testing.T) {
	for name, send := range map[string]func(*bed, string) string{
		"JSON-RPC": func(b *bed, url string) string {
			return b.rpcV03("message/send", fmt.Sprintf(
				`{"message":%s,"configuration":{"blocking":false,"pushNotificationConfig":{"url":%q,"token":%q,"authentication":{"schemes":["Bearer"],"credentials":%q}}}}`,
				hello, url, pushToken, pushCredentials))
		},
		"HTTP+JSON": func(b *bed, url string) string {
			_, body := b.exchange("POST", "/a/coder/v1/message:send", fmt.Sprintf(
				`{"request":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]},"configuration":{"pushNotification":{"url":%q,"token":%q,"authentication":{"schemes":["Bearer"],"credentials":%q}}}}`,
				url, pushToken, pushCredentials))
			return body
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, localHooks)
			hook := receive(t, nil)
			if body := send(b, hook.url); strings.Contains(body, pushToken) || strings.Contains(body, pushCredentials) {
				t.Errorf("secrets in %s", body)
			}
			id := b.next().ID
			if got := b.rpcV03("tasks/pushNotificationConfig/get", fmt.Sprintf(`{"id":%q}`, id)); !strings.Contains(got, `"pushNotificationConfig":{"id":"default",`) {
				t.Errorf("configuration %s", got)
			}
			b.finish(id, "completed", "done")
			var states []string
			for {
				n := hook.next()
				if got := n.header; got.Get("Authorization") != "Bearer "+pushCredentials || got.Get("X-A2A-Notification-Token") != pushToken || got.Get("Content-Type") != "application/json" {
					t.Errorf("headers %v", got)
				}
				if !strings.HasPrefix(n.body, `{"kind":"task","id":"`+id+`",`) {
					t.Fatalf("body %s", n.body)
				}
				_, state, _ := strings.Cut(n.body, `"state":"`)
				state, _, _ = strings.Cut(state, `"`)
				if states = append(states, state); state == "completed" {
					break
				}
			}
			if !slices.Contains(states, "working") {
				t.Errorf("states %q", states)
			}
		})
	}
}
