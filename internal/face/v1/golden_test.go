package v1_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// exchange is a request of a client library in use, and what it reads of the
// answer. $name stands for a value that an earlier answer had.
type exchange struct {
	name         string
	as           string // caller, callee or admin
	method, path string
	body         string
	header       []string
	status       int
	// reads are the paths that the client reads, with what it must find: a JSON
	// value, "any" for anything but null, "present" for anything including null, or
	// "=name" to keep the value under a name.
	reads map[string]string
}

// taskMembers are those that the client reads of every task.
func taskMembers(more map[string]string) map[string]string {
	reads := map[string]string{
		"id": "any", "context_id": "any", "status.state": "any", "call_id": "any", "root_call_id": "any",
		"parent_call_id": "present", "delivery": `"pull"`, "error": "present", "caller_agent_id": "any",
		"callee_agent_id": "any", "trace_id": "present", "created_at": "any", "claimed_at": "present", "completed_at": "present",
	}
	for k, v := range more {
		reads[k] = v
	}
	return reads
}

// Everything that the client library does, in an order in which it can happen.
var exchanges = []exchange{
	{name: "whoami", as: "caller", method: "GET", path: "/v1/whoami", status: 200, reads: map[string]string{
		"tenant_id": "any", "auth_method": `"token"`, "identity_id": "=caller", "roles": "any", "scopes": "any",
	}},
	{name: "agents", as: "caller", method: "GET", path: "/v1/agents", status: 200, reads: map[string]string{
		"data[0].name": `"boss"`,
		"data[1].id":   "=coder", "data[1].name": `"coder"`, "data[1].model": `""`, "data[1].description": "present",
	}},
	{name: "nothing to do", as: "callee", method: "GET", path: "/v1/agents/me/tasks/next?wait=0.0", status: 204},

	{name: "send", as: "caller", method: "POST", path: "/v1/agents/coder/tasks?wait=0.0",
		body:   `{"message":{"role":"user","parts":[{"text":"hi"},{"data":{"grade":9}}]}}`,
		status: 200, reads: taskMembers(map[string]string{"id": "=task", "context_id": "=context", "status.state": `"submitted"`, "caller_agent_id": "$caller", "callee_agent_id": "$coder"})},
	{name: "look", as: "caller", method: "GET", path: "/v1/agents/coder/tasks/$task?wait=0.0", status: 200,
		reads: taskMembers(map[string]string{"id": "$task", "status.state": `"submitted"`, "claimed_at": "null"})},
	{name: "next", as: "callee", method: "GET", path: "/v1/agents/me/tasks/next?wait=20.0", status: 200,
		reads: taskMembers(map[string]string{"id": "$task", "status.state": `"working"`, "claimed_at": "any", "input.message.parts[0].text": `"hi"`, "input.message.parts[1].data.grade": "9"})},
	{name: "ask", as: "callee", method: "POST", path: "/v1/agents/me/tasks/$task/result",
		body:   `{"state":"input_required","artifacts":null,"message":{"role":"agent","parts":[{"text":"which one?"}]},"error":null}`,
		status: 200, reads: taskMembers(map[string]string{"status.state": `"input_required"`})},
	{name: "read the question", as: "caller", method: "GET", path: "/v1/agents/$coder/tasks/$task?wait=30.0", status: 200,
		reads: taskMembers(map[string]string{"status.state": `"input_required"`, "status.message.parts[0].text": `"which one?"`})},
	{name: "answer by context", as: "caller", method: "POST", path: "/v1/agents/coder/tasks?wait=0.0",
		body:   `{"message":{"role":"user","parts":[{"text":"the red one"}]},"context_id":"$context"}`,
		status: 200, reads: taskMembers(map[string]string{"id": "$task", "context_id": "$context", "status.state": `"working"`})},
	{name: "next again", as: "callee", method: "GET", path: "/v1/agents/me/tasks/next?wait=20.0", status: 200,
		reads: taskMembers(map[string]string{"id": "$task", "input.message.parts[0].text": `"hi"`, "history[2].parts[0].text": `"the red one"`})},
	{name: "complete", as: "callee", method: "POST", path: "/v1/agents/me/tasks/$task/result",
		body:   `{"state":"completed","artifacts":[{"name":"response","parts":[{"text":"done"},{"data":{"category":"x"}}]}],"message":null,"error":null}`,
		status: 200, reads: taskMembers(map[string]string{"status.state": `"completed"`})},
	{name: "the same result resent", as: "callee", method: "POST", path: "/v1/agents/me/tasks/$task/result",
		body:   `{"state":"completed","artifacts":[{"name":"response","parts":[{"text":"done"},{"data":{"category":"x"}}]}],"message":null,"error":null}`,
		status: 200, reads: taskMembers(map[string]string{"status.state": `"completed"`})},
	{name: "read the end", as: "caller", method: "GET", path: "/v1/agents/coder/tasks/$task?wait=30.0", status: 200,
		reads: taskMembers(map[string]string{"status.state": `"completed"`, "artifacts[0].name": `"response"`, "artifacts[0].parts[0].text": `"done"`, "error": "null", "completed_at": "any"})},

	{name: "send as part of a call", as: "caller", method: "POST", path: "/v1/agents/$coder/tasks?wait=0.0",
		body: `{"message":{"role":"user","parts":[{"text":"more"}]}}`, header: []string{"X-Parent-Call", "$task"},
		status: 200, reads: taskMembers(map[string]string{"id": "=child", "parent_call_id": "$task", "root_call_id": "$task"})},
	{name: "next for failing", as: "callee", method: "GET", path: "/v1/agents/me/tasks/next?wait=20.0", status: 200,
		reads: map[string]string{"id": "$child"}},
	{name: "fail", as: "callee", method: "POST", path: "/v1/agents/me/tasks/$child/result",
		body:   `{"state":"failed","artifacts":null,"message":null,"error":"ValueError: no"}`,
		status: 200, reads: taskMembers(map[string]string{"status.state": `"failed"`, "error": `"ValueError: no"`})},
	{name: "read the failure", as: "caller", method: "GET", path: "/v1/agents/coder/tasks/$child?wait=0.0", status: 200,
		reads: taskMembers(map[string]string{"status.state": `"failed"`, "error": `"ValueError: no"`, "status.message.parts[0].text": `"ValueError: no"`})},

	{name: "send to cancel", as: "caller", method: "POST", path: "/v1/agents/coder/tasks?wait=0.0",
		body: `{"message":{"role":"user","parts":[{"text":"hi"}]}}`, status: 200, reads: map[string]string{"id": "=gone"}},
	{name: "cancel", as: "caller", method: "POST", path: "/v1/agents/coder/tasks/$gone/cancel", status: 200,
		reads: taskMembers(map[string]string{"status.state": `"canceled"`})},
	{name: "cancel twice", as: "caller", method: "POST", path: "/v1/agents/coder/tasks/$gone/cancel", status: 200,
		reads: taskMembers(map[string]string{"status.state": `"canceled"`})},

	{name: "no token", as: "", method: "GET", path: "/v1/whoami", status: 401, reads: map[string]string{"error.code": "any", "error.message": "any"}},
	{name: "no such agent", as: "caller", method: "POST", path: "/v1/agents/nobody/tasks?wait=30.0",
		body: `{"message":{"role":"user","parts":[{"text":"hi"}]}}`, status: 403, reads: map[string]string{"error.code": `"not_permitted"`, "error.message": "any"}},
	{name: "no such task", as: "caller", method: "GET", path: "/v1/agents/coder/tasks/none?wait=0.0", status: 404,
		reads: map[string]string{"error.code": `"not_found"`, "error.message": "any"}},
	{name: "result of a canceled task", as: "callee", method: "POST", path: "/v1/agents/me/tasks/$gone/result",
		body:   `{"state":"completed","artifacts":[{"name":"response","parts":[{"text":"late"}]}],"message":null,"error":null}`,
		status: 409, reads: map[string]string{"error.code": `"conflict"`, "error.message": "any"}},
}

func TestTheClientLibraryInUseWorksUnchanged(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	clients := map[string]who{"callee": agent(t, h, "coder"), "caller": agent(t, h, "boss"), "": {t: t, url: h.URL}}
	known := map[string]string{}
	for _, x := range exchanges {
		header := append([]string{"Accept", "application/json"}, x.header...)
		for i := range header {
			header[i] = fill(header[i], known)
		}
		a := clients[x.as].do(x.method, fill(x.path, known), fill(x.body, known), header...)
		if a.status != x.status {
			t.Fatalf("%s: %d %s; want %d", x.name, a.status, a.body, x.status)
		}
		for path, want := range x.reads {
			checkRead(t, x.name, a.body, path, want, known)
		}
	}
}

// fill puts known values in the place of their names.
func fill(s string, known map[string]string) string {
	for name, value := range known {
		s = strings.ReplaceAll(s, "$"+name, value)
	}
	return s
}

// checkRead checks what the client reads at a path of an answer.
func checkRead(t *testing.T, name, body, path, want string, known map[string]string) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%s: %v in %s", name, err, body)
	}
	v, found := at(v, path)
	switch {
	case !found:
		t.Errorf("%s: no %s in %s", name, path, body)
	case want == "present":
	case want == "any":
		if v == nil {
			t.Errorf("%s: %s is null in %s", name, path, body)
		}
	case strings.HasPrefix(want, "="):
		known[want[1:]], _ = v.(string)
	case strings.HasPrefix(want, "$"):
		if v != known[want[1:]] {
			t.Errorf("%s: %s is %v, want %v", name, path, v, known[want[1:]])
		}
	default:
		if got, _ := json.Marshal(v); string(got) != want {
			t.Errorf("%s: %s is %s, want %s", name, path, got, want)
		}
	}
}

// at is the value at a path such as a.b[0].c.
func at(v any, path string) (any, bool) {
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		switch in := v.(type) {
		case map[string]any:
			next, ok := in[step]
			if !ok {
				return nil, false
			}
			v = next
		case []any:
			var i int
			if n, _ := fmt.Sscan(step, &i); n != 1 || i >= len(in) {
				return nil, false
			}
			v = in[i]
		default:
			return nil, false
		}
	}
	return v, true
}
