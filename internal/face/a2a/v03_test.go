package a2a_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/wire"
)

// exchange makes one HTTP request as the caller and gives the answer as text, in
// which every id that the hub made is U1, U2 and so on, in order of appearance, and
// every time is NOW.
func (b *bed) exchange(method, path, body string, headers ...string) (int, string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, b.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.caller)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	status, _, data := b.raw(r)
	return status, masked(string(data))
}

// streamV03 makes a request that is answered by a stream, does something once its
// first event is there, and gives all events as exchange does.
func (b *bed) streamV03(path, body string, then func()) string {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.caller)
	r.Header.Set("Content-Type", "application/json")
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		b.t.Errorf("a stream of %s", got)
	}
	var all strings.Builder
	lines := bufio.NewReader(res.Body)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return masked(all.String())
		}
		if err != nil {
			b.t.Fatal(err)
		}
		if all.WriteString(line); line == "\n" && then != nil {
			then()
			then = nil
		}
	}
}

func masked(s string) string {
	s = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z`).ReplaceAllString(s, "NOW")
	seen := make(map[string]string)
	return regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllStringFunc(s, func(id string) string {
		if seen[id] == "" {
			seen[id] = fmt.Sprintf("U%d", len(seen)+1)
		}
		return seen[id]
	})
}

// rpcV03 makes a JSON-RPC request and gives the answer as exchange does.
func (b *bed) rpcV03(method, params string, headers ...string) string {
	b.t.Helper()
	_, body := b.exchange("POST", "/a/coder/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params), headers...)
	return body
}

// startV03 sends a task without waiting and gives its real id.
func (b *bed) startV03() string {
	b.t.Helper()
	id := b.send(b.caller, "start").ID
	if got := b.next().ID; got != id {
		b.t.Fatalf("claimed %s, want %s", got, id)
	}
	return id
}

// report reports a result in words of the callee's own.
func (b *bed) report(id, state, message string) {
	b.t.Helper()
	b.v1("POST", id+"/result", wire.Result{
		State: state, Message: &wire.Message{Role: "agent", MessageID: "said", Parts: []wire.Part{{Text: &message}}},
	}, nil)
}

func wantText(t testing.TB, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

const hello = `{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}`

// TestMethodsV03: each method of 0.3's JSON-RPC, byte by byte.
func TestMethodsV03(t *testing.T) {
	b := newBed(t)
	var worker sync.WaitGroup
	defer worker.Wait()
	worker.Go(func() {
		b.finish(b.next().ID, "completed", "done")
		b.report(b.next().ID, "input_required", "which?")
	})
	wantText(t, b.rpcV03("message/send", `{"message":`+hello+`}`),
		`{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"U1","contextId":"U2","status":{"state":"completed","timestamp":"NOW"},`+
			`"artifacts":[{"artifactId":"out","parts":[{"kind":"text","text":"done"}]}],`+
			`"history":[{"kind":"message","taskId":"U1","contextId":"U2","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]},`+
			`{"kind":"message","taskId":"U1","contextId":"U2","messageId":"U1-answer","role":"agent","parts":[{"kind":"text","text":"done"}]}]}}`)
	// A context of the client's own, a question, and its answer.
	asked := b.rpcV03("message/send", `{"message":{"contextId":"C","messageId":"m","role":"user","kind":"message","parts":[{"kind":"data","data":{"n":9007199254740993}}]},"configuration":{"blocking":true,"historyLength":1}}`,
		"A2A-Version", "0.3.0", "X-A2A-Extensions", "urn:x")
	wantText(t, asked, `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"U1","contextId":"C","status":{"state":"input-required",`+
		`"message":{"kind":"message","taskId":"U1","contextId":"C","messageId":"said","role":"agent","parts":[{"kind":"text","text":"which?"}]},"timestamp":"NOW"},`+
		`"history":[{"kind":"message","taskId":"U1","contextId":"C","messageId":"said","role":"agent","parts":[{"kind":"text","text":"which?"}]}]}}`)

	id := b.startV03()
	get := b.rpcV03("tasks/get", fmt.Sprintf(`{"id":%q,"historyLength":0,"metadata":{}}`, id))
	wantText(t, get, `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"U1","contextId":"U2","status":{"state":"working","timestamp":"NOW"}}}`)
	canceled := b.rpcV03("tasks/cancel", fmt.Sprintf(`{"id":%q}`, id))
	wantText(t, canceled, `{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"U1","contextId":"U2","status":{"state":"canceled","timestamp":"NOW"},`+
		`"history":[{"kind":"message","taskId":"U1","contextId":"U2","messageId":"m-start","role":"user","parts":[{"kind":"text","text":"start"}]},`+
		`{"kind":"message","taskId":"U1","contextId":"U2","messageId":"U1-answer","role":"agent","parts":[{"kind":"text","text":"The task was canceled."}]}]}}`)
}

// TestErrorsV03: errors of 0.3's JSON-RPC and HTTP+JSON have its codes, and FastA2A's
// exact words for the two that it checks.
func TestErrorsV03(t *testing.T) {
	b := newBed(t, noPush)
	done := b.startV03()
	b.finish(done, "completed", "")
	onDone := fmt.Sprintf(`{"id":%q}`, done)
	toDone := fmt.Sprintf(`{"message":{"kind":"message","taskId":%q,"messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}}`, done)
	push := `{"message":` + hello + `,"configuration":{"pushNotificationConfig":{"url":"https://example.com"}}}`
	for _, c := range []struct {
		method, params, http, path, body string
		code, status                     int
		message                          string // if it matters
	}{
		{method: "tasks/get", params: `{"id":"none"}`, http: "GET", path: "tasks/none", code: -32001, status: 404, message: "Task not found"},
		{method: "tasks/cancel", params: `{"id":"none"}`, http: "POST", path: "tasks/none:cancel", body: `{"name":"tasks/none"}`, code: -32001, status: 404, message: "Task not found"},
		{method: "tasks/resubscribe", params: `{"id":"none"}`, http: "GET", path: "tasks/none:subscribe", code: -32001, status: 404, message: "Task not found"},
		{method: "tasks/cancel", params: onDone, http: "POST", path: "tasks/" + done + ":cancel", code: -32002, status: 400, message: "Task not cancelable"},
		{method: "tasks/resubscribe", params: onDone, http: "POST", path: "tasks/" + done + ":subscribe", code: -32004, status: 400},
		{method: "message/send", params: toDone, http: "POST", path: "message:send", body: toDone, code: -32004, status: 400},
		{method: "message/stream", params: toDone, http: "POST", path: "message:stream", body: toDone, code: -32004, status: 400},
		{method: "message/send", params: push, http: "POST", path: "message:send", body: push, code: -32003, status: 400},
		{method: "message/send", params: `{}`, http: "POST", path: "message:send", body: `{}`, code: -32602, status: 400},
		{method: "message/send", params: `{"message":` + strings.Replace(hello, "user", "agent", 1) + `}`, http: "POST", path: "message:send", body: `{"message":` + strings.Replace(hello, "user", "agent", 1) + `}`, code: -32602, status: 400},
		{method: "tasks/get", params: onDone[:len(onDone)-1] + `,"historyLength":-1}`, http: "GET", path: "tasks/" + done + "?historyLength=-1", code: -32602, status: 400},
		{method: "tasks/pushNotificationConfig/set", params: `{"taskId":"x","pushNotificationConfig":{"url":"u"}}`, http: "POST", path: "tasks/x/pushNotificationConfigs", body: `{}`, code: -32003, status: 400},
		{method: "tasks/pushNotificationConfig/get", params: `{"id":"x"}`, http: "GET", path: "tasks/x/pushNotificationConfigs/y", code: -32003, status: 400},
		{method: "tasks/pushNotificationConfig/list", params: `{"id":"x"}`, http: "GET", path: "tasks/x/pushNotificationConfigs", code: -32003, status: 400},
		{method: "tasks/pushNotificationConfig/delete", params: `{"id":"x","pushNotificationConfigId":"y"}`, http: "DELETE", path: "tasks/x/pushNotificationConfigs/y", code: -32003, status: 400},
		{method: "tasks/list", params: `{}`, http: "GET", path: "tasks", code: -32601, status: 404},
	} {
		type rpcError struct {
			Code    int
			Message string
		}
		var rpc struct{ Error rpcError }
		if err := json.Unmarshal([]byte(b.rpcV03(c.method, c.params)), &rpc); err != nil {
			t.Fatal(err)
		}
		var rest struct {
			rpcError
			Error struct{ Code int }
		}
		status, body := b.exchange(c.http, "/a/coder/v1/"+c.path, c.body)
		if err := json.Unmarshal([]byte(body), &rest); err != nil {
			t.Fatalf("%s: %v: %s", c.path, err, body)
		}
		if rpc.Error.Code != c.code || c.message != "" && rpc.Error.Message != c.message {
			t.Errorf("%s %s: %+v, want %d %s", c.method, c.params, rpc.Error, c.code, c.message)
		}
		if status != c.status || rest.Code != c.code || rest.Error.Code != c.status || c.code != -32601 && rest.Message != rpc.Error.Message {
			t.Errorf("%s %s: %d %s, want %d", c.http, c.path, status, body, c.status)
		}
	}
}

// TestAccessV03: credentials are checked before anything else, permission before
// anything about a task, and the hub's own endpoint has nothing for 0.3.
func TestAccessV03(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct {
		method, path, body, token string
		status                    int
	}{
		{"POST", "/a/coder/", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`, "no", 401},
		{"GET", "/a/coder/v1/tasks/x", "", "no", 401},
		{"POST", "/a/coder/v1/message:send", "{", "no", 401},
		{"POST", "/a/nobody/", `{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}`, b.caller, 403},
		{"GET", "/a/nobody/v1/tasks/x", "", b.caller, 403},
		{"GET", "/a/hub/v1/tasks/x", "", b.caller, 400},
		{"GET", "/a/coder/v1/nothing", "", b.caller, 404},
		{"DELETE", "/a/coder/v1/tasks/x", "", b.caller, 405},
		{"POST", "/a/coder/v1/message:send", "{", b.caller, 400},
	} {
		if status, body := b.exchange(c.method, c.path, c.body, "Authorization", "Bearer "+c.token); status != c.status {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, status, body, c.status)
		}
	}
	if status, body := b.exchange("POST", "/a/coder/v1/message:send", "x=1", "Content-Type", "application/x-www-form-urlencoded"); status != 415 {
		t.Errorf("a form: %d %s", status, body)
	}
	// A task of somebody else is not there.
	id := b.startV03()
	if _, body := b.exchange("GET", "/a/coder/v1/tasks/"+id, "", "Authorization", "Bearer "+b.other); !strings.Contains(body, `"Task not found"`) {
		t.Errorf("a foreign task: %s", body)
	}
}

// TestStreamsV03: what a stream of 0.3 says, in JSON-RPC and in HTTP+JSON, until it
// ends with a question or with the task.
func TestStreamsV03(t *testing.T) {
	b := newBed(t)
	work := func(state string) {
		task := b.next()
		b.chunk(task.ID, "half", false)
		b.report(task.ID, state, "which?")
	}
	const ids = `"taskId":"U1","contextId":"U2"`
	said := func(kind, role, parts string) string {
		return `{` + kind + ids + `,"messageId":"said","role":"` + role + `","` + parts + `}`
	}
	rpc := func(seq int, result string) string {
		return fmt.Sprintf("id: %d\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", seq, result)
	}
	for _, state := range []string{"input_required", "completed"} {
		kebab := strings.ReplaceAll(state, "_", "-")
		text := `parts":[{"kind":"text","text":"which?"}]`
		want := rpc(1, `{"kind":"task","id":"U1","contextId":"U2","status":{"state":"submitted","timestamp":"NOW"},"history":[{"kind":"message",`+ids+`,"messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}]}`) +
			rpc(2, `{"kind":"status-update",`+ids+`,"status":{"state":"working","timestamp":"NOW"},"final":false}`) +
			rpc(3, `{"kind":"artifact-update",`+ids+`,"artifact":{"artifactId":"out","parts":[{"kind":"text","text":"half"}]}}`) +
			rpc(4, `{"kind":"status-update",`+ids+`,"status":{"state":"`+kebab+`","message":`+said(`"kind":"message",`, "agent", text)+`,"timestamp":"NOW"},"final":true}`)
		got := b.streamV03("/a/coder", `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":`+hello+`}}`, func() { work(state) })
		wantText(t, got, want)

		rest := func(seq int, result string) string { return fmt.Sprintf("id: %d\ndata: %s\n\n", seq, result) }
		text = `content":[{"text":"which?"}]`
		want = rest(1, `{"task":{"id":"U1","contextId":"U2","status":{"state":"TASK_STATE_SUBMITTED","timestamp":"NOW"},"history":[{`+ids+`,"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]}]}}`) +
			rest(2, `{"statusUpdate":{`+ids+`,"status":{"state":"TASK_STATE_WORKING","timestamp":"NOW"}}}`) +
			rest(3, `{"artifactUpdate":{`+ids+`,"artifact":{"artifactId":"out","parts":[{"text":"half"}]}}}`) +
			rest(4, `{"statusUpdate":{`+ids+`,"status":{"state":"TASK_STATE_`+strings.ToUpper(state)+`","message":`+said("", "ROLE_AGENT", text)+`,"timestamp":"NOW"},"final":true}}`)
		got = b.streamV03("/a/coder/v1/message:stream", `{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"}]}}`, func() { work(state) })
		wantText(t, got, want)
	}
}

// TestResubscribeV03: a task that asks is followed on over its answer, and
// Last-Event-ID resumes.
func TestResubscribeV03(t *testing.T) {
	b := newBed(t)
	id := b.startV03()
	b.report(id, "input_required", "which?")
	resubscribe := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tasks/resubscribe","params":{"id":%q}}`, id)
	got := b.streamV03("/a/coder", resubscribe, func() {
		answer := fmt.Sprintf(`{"message":{"kind":"message","taskId":%q,"messageId":"a","role":"user","parts":[{"kind":"text","text":"that"}]},"configuration":{"blocking":false}}`, id)
		if got := b.rpcV03("message/send", answer); !strings.Contains(got, `"result":{"kind":"task"`) {
			t.Errorf("answering: %s", got)
		}
		b.finish(b.next().ID, "completed", "")
	})
	if strings.Count(got, `"final":true`) != 1 || !strings.HasSuffix(got, `"status":{"state":"completed","timestamp":"NOW"},"final":true}}`+"\n\n") ||
		!strings.HasPrefix(got, "id: 3\ndata: "+`{"jsonrpc":"2.0","id":1,"result":{"kind":"task","id":"U1","contextId":"U2","status":{"state":"input-required"`) {
		t.Errorf("got %s", got)
	}
	_, last, _ := strings.Cut(got, "\n\n")
	_, again := b.exchange("POST", "/a/coder", resubscribe, "Last-Event-ID", "3")
	wantText(t, strings.TrimPrefix(again, ":\n\n"), last)
}

// TestRESTV03: HTTP+JSON of 0.3 in its own ProtoJSON, byte by byte.
func TestRESTV03(t *testing.T) {
	b := newBed(t)
	var worker sync.WaitGroup
	defer worker.Wait()
	worker.Go(func() { b.finish(b.next().ID, "completed", "done") })
	const message = `{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"},{"data":{"data":{"n":9007199254740993}}}]}`
	status, got := b.exchange("POST", "/a/coder/v1/message:send", `{"message":`+message+`,"configuration":{"blocking":true}}`)
	if status != 200 {
		t.Errorf("status %d", status)
	}
	const answer = `"status":{"state":"TASK_STATE_COMPLETED","timestamp":"NOW"},"artifacts":[{"artifactId":"out","parts":[{"text":"done"}]}],` +
		`"history":[{"taskId":"U1","contextId":"U2","messageId":"m","role":"ROLE_USER","content":[{"text":"hi"},{"data":{"data":{"n":9007199254740993}}}]},` +
		`{"taskId":"U1","contextId":"U2","messageId":"U1-answer","role":"ROLE_AGENT","content":[{"text":"done"}]}]`
	wantText(t, got, `{"task":{"id":"U1","contextId":"U2",`+answer+`}}`)

	// Without waiting, as ProtoJSON says it: by nothing.
	_, got = b.exchange("POST", "/a/coder/v1/message:send", `{"message":`+message+`,"configuration":{"acceptedOutputModes":["text/plain"]}}`)
	if !strings.Contains(got, `"TASK_STATE_SUBMITTED"`) {
		t.Errorf("got %s", got)
	}
	id := b.next().ID
	_, got = b.exchange("GET", "/a/coder/v1/tasks/"+id+"?historyLength=0", "")
	wantText(t, got, `{"id":"U1","contextId":"U2","status":{"state":"TASK_STATE_WORKING","timestamp":"NOW"}}`)
	_, got = b.exchange("POST", "/a/coder/v1/tasks/"+id+":cancel", `{"name":"tasks/`+id+`"}`)
	if !strings.HasPrefix(got, `{"id":"U1","contextId":"U2","status":{"state":"TASK_STATE_CANCELLED","timestamp":"NOW"}`) {
		t.Errorf("got %s", got)
	}
}

// TestIntegersV03: what goes in by 0.3 with many digits comes out of 1.0 and /v1 with
// all of them, and the other way round.
func TestIntegersV03(t *testing.T) {
	b := newBed(t)
	const big = `{"a":9007199254740993,"b":[123456789012345678901234567890.10]}`
	sent := b.rpcV03("message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":`+big+`}],"metadata":`+big+`},"configuration":{"blocking":false}}`)
	if strings.Count(sent, big) != 2 {
		t.Errorf("sent: %s", sent)
	}
	var claimed json.RawMessage
	b.v1("GET", "next?wait=20", nil, &claimed)
	if !strings.Contains(string(claimed), big) {
		t.Errorf("claimed: %s", claimed)
	}
	var task wire.Task
	if err := json.Unmarshal(claimed, &task); err != nil {
		t.Fatal(err)
	}
	b.v1("POST", task.ID+"/result", json.RawMessage(`{"state":"completed","artifacts":[{"artifact_id":"out","parts":[{"data":`+big+`}]}]}`), nil)
	if got := b.rpcV03("tasks/get", fmt.Sprintf(`{"id":%q}`, task.ID)); strings.Count(got, `{"kind":"data","data":`+big+`}`) != 3 {
		t.Errorf("got: %s", got)
	}
}

// TestAgentZero is what Agent Zero sends to an agent, and what it needs back
// (FastA2A 0.5.0): the card at agent.json, the slash at the end of the URL, null as
// an id, the answer as the last message of the history, no null anywhere, and a task
// that is not there in exact words.
func TestAgentZero(t *testing.T) {
	b := newBed(t, func(c *config.Config) { c.BlockingLimit = time.Second })
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	headers := []string{"X-API-KEY", b.caller, "User-Agent", "python-httpx/0.28"}
	post := func(body string) string {
		t.Helper()
		status, got := b.exchange("POST", "/a/coder/", body, headers...)
		if status != 200 {
			t.Errorf("status %d", status)
		}
		return got
	}
	send := func(more string) string {
		return `{"jsonrpc":"2.0","id":"q","method":"message/send","params":{"message":{"role":"user","parts":[{"kind":"text","text":"hi"},{"kind":"file","file":{"uri":"/tmp/x.pdf"}}],"kind":"message","messageId":"m"` +
			more + `},"configuration":{"acceptedOutputModes":["application/json","text/plain"],"blocking":true}}}`
	}
	poll := func(id string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"method":"tasks/get","params":{"id":%q}}`, id)
	}
	if status, card := b.exchange("GET", "/a/coder/.well-known/agent.json", "", "Authorization", ""); status != 200 || !strings.Contains(card, `"url":"`+b.URL+`/a/coder"`) {
		t.Errorf("card: %d %s", status, card)
	}

	// The first message: the agent is slower than the client would wait.
	const question = `{"kind":"message","taskId":"U1","contextId":"%s","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"},{"kind":"file","file":{"uri":"/tmp/x.pdf"}}]}`
	asked := fmt.Sprintf(question, "U2")
	wantText(t, post(send("")), `{"jsonrpc":"2.0","id":"q","result":{"kind":"task","id":"U1","contextId":"U2","status":{"state":"submitted","timestamp":"NOW"},"history":[`+asked+`]}}`)
	first := b.next().ID
	wantText(t, post(poll(first)), `{"jsonrpc":"2.0","id":null,"result":{"kind":"task","id":"U1","contextId":"U2","status":{"state":"working","timestamp":"NOW"},"history":[`+asked+`]}}`)
	b.finish(first, "completed", "ANSWER")
	wantText(t, post(poll(first)), `{"jsonrpc":"2.0","id":null,"result":{"kind":"task","id":"U1","contextId":"U2","status":{"state":"completed","timestamp":"NOW"},`+
		`"artifacts":[{"artifactId":"out","parts":[{"kind":"text","text":"ANSWER"}]}],"history":[`+asked+`,`+
		`{"kind":"message","taskId":"U1","contextId":"U2","messageId":"U1-answer","role":"agent","parts":[{"kind":"text","text":"ANSWER"}]}]}}`)

	// The second message of the conversation fails, and the reason is the last message.
	var worker sync.WaitGroup
	worker.Go(func() { b.report(b.next().ID, "failed", "no such file") })
	said := `{"kind":"message","taskId":"U1","contextId":"C","messageId":"said","role":"agent","parts":[{"kind":"text","text":"no such file"}]}`
	wantText(t, post(send(`,"contextId":"C"`)), `{"jsonrpc":"2.0","id":"q","result":{"kind":"task","id":"U1","contextId":"C","status":{"state":"failed","message":`+said+`,"timestamp":"NOW"},`+
		`"history":[`+fmt.Sprintf(question, "C")+`,`+said+`]}}`)
	worker.Wait()

	wantText(t, post(poll("gone")), `{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Task not found","data":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND","domain":"a2a-protocol.org"}]}}`)
}

// TestFastA2A2: FastA2A 2 has 0.3's methods, with parts and results of 1.0.
func TestFastA2A2(t *testing.T) {
	b := newBed(t)
	var worker sync.WaitGroup
	defer worker.Wait()
	worker.Go(func() { b.finish(b.next().ID, "completed", "done") })
	wantText(t, b.rpcV03("message/send", `{"message":{"messageId":"m","role":"user","parts":[{"text":"hi"}]}}`),
		`{"jsonrpc":"2.0","id":1,"result":{"task":{"id":"U1","contextId":"U2","status":{"state":"completed","timestamp":"NOW"},"artifacts":[{"artifactId":"out","parts":[{"text":"done"}]}],`+
			`"history":[{"taskId":"U1","contextId":"U2","messageId":"m","role":"user","parts":[{"text":"hi"}]},{"taskId":"U1","contextId":"U2","messageId":"U1-answer","role":"agent","parts":[{"text":"done"}]}]}}}`)
}

// TestCardV03: the card of 0.3 is at agent.json, and at agent-card.json for whoever
// names 0.3; everybody else gets the card of 1.0 there.
func TestCardV03(t *testing.T) {
	b := newBed(t)
	_, old := b.exchange("GET", "/a/coder/.well-known/agent.json", "", "Authorization", "")
	url := `"` + b.URL + `/a/coder"`
	want := `{"protocolVersion":"0.3.0","name":"coder","description":"@coder on this Holdfast hub: takes tasks and answers when it is done.","url":` + url + `,"preferredTransport":"JSONRPC",` +
		`"additionalInterfaces":[{"url":` + url + `,"transport":"JSONRPC"},{"url":` + url + `,"transport":"HTTP+JSON"},{"url":"` + strings.TrimPrefix(b.URL, "http://") + `","transport":"GRPC"}],"version":"1.0.0",` +
		`"capabilities":{"streaming":true,"pushNotifications":true,"stateTransitionHistory":false},` +
		`"securitySchemes":{"bearer":{"type":"http","scheme":"bearer","description":"A token of this hub, as Authorization: Bearer {token}."}},"security":[{"bearer":[]}],`
	unsigned, _, _ := strings.Cut(old, `,"signatures":`)
	if !strings.HasPrefix(unsigned, want) || !strings.HasSuffix(unsigned, `"supportsAuthenticatedExtendedCard":true`) {
		t.Errorf("\n got %s\nwant %s", old, want)
	}
	for _, version := range []string{"0.3", "0.3.0", "0.2.5"} {
		if _, got := b.exchange("GET", "/a/coder/.well-known/agent-card.json", "", "A2A-Version", version); got != old {
			t.Errorf("version %s: %s", version, got)
		}
	}
	for _, version := range []string{"", "1.0", "0.30"} {
		if _, got := b.exchange("GET", "/a/coder/.well-known/agent-card.json", "", "A2A-Version", version); strings.Contains(got, "preferredTransport") {
			t.Errorf("version %q: %s", version, got)
		}
	}
	for _, path := range []string{"/a/hub/.well-known/agent.json", "/a/nobody/.well-known/agent.json", "/a/admin/.well-known/agent.json"} {
		if status, body := b.exchange("GET", path, ""); status != 404 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// TestOfficialClientV03: the official Go SDK, as a client of 0.3 that found the card
// of 0.3, does everything over JSON-RPC and over its HTTP+JSON.
func TestOfficialClientV03(t *testing.T) {
	for _, transport := range []sdk.TransportProtocol{sdk.TransportProtocolJSONRPC, sdk.TransportProtocolHTTPJSON} {
		t.Run(string(transport), func(t *testing.T) {
			b := newBed(t, localHooks)
			resolver := agentcard.Resolver{Client: b.client, CardParser: a2av0.NewAgentCardParser()}
			card, err := resolver.Resolve(t.Context(), b.URL+"/a/coder", agentcard.WithPath("/.well-known/agent.json"))
			if err != nil {
				t.Fatal(err)
			}
			own := &http.Client{Transport: bearer{b.caller}}
			client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []sdk.TransportProtocol{transport}}),
				a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: own}), a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: own}))
			if err != nil {
				t.Fatal(err)
			}
			tryClientV03(t, b, client)
		})
	}
}

func tryClientV03(t *testing.T, b *bed, client *a2aclient.Client) {
	t.Helper()
	ctx := t.Context()
	say := func(text string) *sdk.SendMessageRequest {
		return &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart(text), sdk.NewRawPart([]byte{0xff}), sdk.NewDataPart(map[string]any{"k": "v"}))}
	}
	var worker sync.WaitGroup
	defer worker.Wait()
	worker.Go(func() {
		b.finish(b.next().ID, "input_required", "")
		b.finish(b.next().ID, "completed", "done")
	})
	res, err := client.SendMessage(ctx, say("hi"))
	if err != nil {
		t.Fatal(err)
	}
	asked := res.(*sdk.Task)
	if asked.Status.State != sdk.TaskStateInputRequired || len(asked.History) != 2 || len(asked.History[0].Parts) != 3 {
		t.Fatalf("got %+v", asked)
	}
	res, err = client.SendMessage(ctx, &sdk.SendMessageRequest{Message: sdk.NewMessageForTask(sdk.MessageRoleUser, asked, sdk.NewTextPart("that"))})
	if err != nil {
		t.Fatal(err)
	}
	done := res.(*sdk.Task)
	if done.ID != asked.ID || done.Status.State != sdk.TaskStateCompleted || done.Artifacts[0].Parts[0].Text() != "done" {
		t.Fatalf("got %+v", done)
	}

	var kinds []string
	for e, err := range client.SendStreamingMessage(ctx, say("stream")) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case *sdk.Task:
			kinds = append(kinds, "task")
			b.next()
			b.chunk(string(e.ID), "a", false)
			b.finish(string(e.ID), "completed", "")
		case *sdk.TaskStatusUpdateEvent:
			kinds = append(kinds, string(e.Status.State))
		case *sdk.TaskArtifactUpdateEvent:
			kinds = append(kinds, e.Artifact.Parts[0].Text())
		}
	}
	if got := strings.Join(kinds, " "); got != "task TASK_STATE_WORKING a TASK_STATE_COMPLETED" {
		t.Errorf("streamed %s", got)
	}

	open := say("open")
	open.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
	if res, err = client.SendMessage(ctx, open); err != nil {
		t.Fatal(err)
	}
	id := res.(*sdk.Task).ID
	var last sdk.Event
	for e, err := range client.SubscribeToTask(ctx, &sdk.SubscribeToTaskRequest{ID: id}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, first := e.(*sdk.Task); first {
			if canceled, err := client.CancelTask(ctx, &sdk.CancelTaskRequest{ID: id}); err != nil || canceled.Status.State != sdk.TaskStateCanceled {
				t.Fatalf("cancel: %+v, %v", canceled, err)
			}
		}
		last = e
	}
	if e, ok := last.(*sdk.TaskStatusUpdateEvent); !ok || e.Status.State != sdk.TaskStateCanceled {
		t.Errorf("last event %+v", last)
	}
	if got, err := client.GetTask(ctx, &sdk.GetTaskRequest{ID: id}); err != nil || got.Status.State != sdk.TaskStateCanceled {
		t.Errorf("get: %+v, %v", got, err)
	}
	if _, err := client.GetTask(ctx, &sdk.GetTaskRequest{ID: "none"}); !errors.Is(err, sdk.ErrTaskNotFound) {
		t.Errorf("got %v", err)
	}
	if _, err := client.CancelTask(ctx, &sdk.CancelTaskRequest{ID: done.ID}); !errors.Is(err, sdk.ErrTaskNotCancelable) {
		t.Errorf("got %v", err)
	}
	pushByClient(t, client, id)
}

// FuzzV03: whatever is asked by a method of 0.3, JSON-RPC and HTTP+JSON answer it with
// JSON, plain or streamed, and never with the hub's own failure.
func FuzzV03(f *testing.F) {
	methods := []string{"message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe", "agent/getAuthenticatedExtendedCard",
		"tasks/pushNotificationConfig/set", "tasks/pushNotificationConfig/get", "tasks/pushNotificationConfig/list", "tasks/pushNotificationConfig/delete"}
	paths := []string{"message:send", "message:stream", "tasks/x", "tasks/x:cancel", "tasks/x:subscribe", "card",
		"tasks/x/pushNotificationConfigs", "tasks/x/pushNotificationConfigs/y", "tasks/x/pushNotificationConfigs/", "tasks//pushNotificationConfigs/y"}
	for i := range methods {
		for _, params := range []string{`{}`, `[]`, `null`, `{"id":"x","historyLength":"2"}`, `{"message":` + hello + `}`,
			`{"taskId":"x","pushNotificationConfig":{"url":"http://127.0.0.1/","authentication":{"schemes":[null]}}}`, `{"parent":"tasks/","config":{"pushNotificationConfig":[]}}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"},{"data":{"data":{"a":1e400}}}]}}`,
			`{"message":{"messageId":"m","role":"user","parts":[{"url":"u"}],"taskId":"x"},"configuration":{"historyLength":0}}`} {
			f.Add(byte(i), []byte(params), "")
		}
	}
	f.Add(byte(0), []byte("\xff"), "0.3.1")
	f.Add(byte(1), []byte(`{"message":{"metadata":{"a":"\ud800"}}}`), "1.0")
	b := newBed(f)
	b.work(f)
	left := audit{b: b}
	f.Fuzz(func(t *testing.T, method byte, params []byte, version string) {
		i := int(method) % len(methods)
		rpc := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":%q,"params":`, methods[i])
		verb := "POST"
		switch i {
		case 2, 5, 7, 8:
			verb = "GET"
		case 9:
			verb = "DELETE"
		}
		for _, r := range []struct {
			method, path string
			body         []byte
		}{{"POST", "/a/coder", append(append(rpc, params...), '}')}, {verb, "/a/coder/v1/" + paths[i], params}} {
			if r.method == "GET" || r.method == "DELETE" {
				r.body = nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			status, answer, ok := b.ask(ctx, t, r.method, r.path, r.body, version)
			if !ok {
				t.Skip("no HTTP client can send this")
			}
			if status >= 500 {
				t.Fatalf("%s %s: %d %s", r.method, r.path, status, answer)
			}
			refused := status >= 300
			for _, part := range answer {
				var a struct {
					Error   json.RawMessage
					Message any // that of an error in HTTP+JSON
				}
				if err := json.Unmarshal(part, &a); err != nil && !json.Valid(part) {
					t.Fatalf("%s %s: not JSON: %s", r.method, r.path, part)
				}
				if a.Error != nil {
					refused = true
					withoutInternals(t, string(part), r.path+string(params))
				}
			}
			left.after(t, refused)
		}
	})
}

// ask makes a request, and gives the bodies of its answer: several for a stream. ok is
// false for what is no request of HTTP.
func (b *bed) ask(ctx context.Context, t *testing.T, method, path string, body []byte, version string) (status int, answer [][]byte, ok bool) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, b.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, false
	}
	r.Header = http.Header{"Authorization": {"Bearer " + b.caller}, "Content-Type": {"application/json"}, "A2a-Version": {version}}
	res, err := b.client.Do(r)
	if err != nil {
		if strings.Contains(err.Error(), "invalid header field value") {
			return 0, nil, false
		}
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.Header.Get("Content-Type") != "text/event-stream" {
		return res.StatusCode, [][]byte{data}, true
	}
	for line := range bytes.Lines(data) {
		if event, found := bytes.CutPrefix(line, []byte("data: ")); found {
			answer = append(answer, event)
		}
	}
	return res.StatusCode, answer, true
}
