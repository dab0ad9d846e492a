package a2a_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

// TestBlockingSend is spec section 3.2.2: without returnImmediately, the answer is
// the task at its end, with its artifacts and history.
func TestBlockingSend(t *testing.T) {
	b := newBed(t)
	var worker sync.WaitGroup
	defer worker.Wait()
	worker.Go(func() {
		got := b.next()
		b.finish(got.ID, "completed", "done")
	})
	got := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", message("hi", "", ""))).Task
	if got.Status.State != "TASK_STATE_COMPLETED" || got.ID == "" || got.ContextID == "" || got.Status.Timestamp == "" {
		t.Errorf("got %+v", got)
	}
	if len(got.Artifacts) != 1 || string(got.Artifacts[0]) != `{"artifactId":"out","parts":[{"text":"done"}]}` {
		t.Errorf("artifacts %s", got.Artifacts)
	}
	want := fmt.Sprintf(`{"taskId":%q,"contextId":%q,"messageId":"m-hi","role":"ROLE_USER","parts":[{"text":"hi"}]}`, got.ID, got.ContextID)
	if len(got.History) != 1 || string(got.History[0]) != want {
		t.Errorf("history %s, want %s", got.History, want)
	}
}

// TestBlockingSendReturnsAtQuestion is the other end of section 3.2.2, and the answer
// in the same task.
func TestBlockingSendReturnsAtQuestion(t *testing.T) {
	b := newBed(t)
	var worker sync.WaitGroup
	defer worker.Wait()
	worker.Go(func() {
		b.finish(b.next().ID, "input_required", "")
		b.finish(b.next().ID, "completed", "done")
	})
	asked := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", message("hi", "", ""))).Task
	if asked.Status.State != "TASK_STATE_INPUT_REQUIRED" || !strings.Contains(string(asked.Status.Message), "which one?") {
		t.Fatalf("got %+v", asked)
	}
	answer := message("that", fmt.Sprintf(`"taskId":%q,`, asked.ID), "")
	done := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", answer)).Task
	if done.ID != asked.ID || done.ContextID != asked.ContextID || done.Status.State != "TASK_STATE_COMPLETED" {
		t.Errorf("got %+v", done)
	}
	if len(done.History) != 3 {
		t.Errorf("history %s, want the message, the question and the answer", done.History)
	}
}

// TestBlockingLimit: a blocking send gives up waiting, not the task.
func TestBlockingLimit(t *testing.T) {
	b := newBed(t, func(c *config.Config) { c.BlockingLimit = time.Second })
	got := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", message("hi", "", ""))).Task
	if got.Status.State != "TASK_STATE_SUBMITTED" {
		t.Errorf("state %s", got.Status.State)
	}
}

// TestReturnImmediately is section 3.2.2: the task comes back as soon as it exists,
// with nobody there to do it.
func TestReturnImmediately(t *testing.T) {
	b := newBed(t)
	got := b.send(b.caller, "hi")
	if got.Status.State != "TASK_STATE_SUBMITTED" || len(got.History) != 1 {
		t.Errorf("got %+v", got)
	}
}

// TestHistoryLength is section 3.2.4 on every operation that gives a task.
func TestHistoryLength(t *testing.T) {
	b := newBed(t)
	id := b.send(b.caller, "1").ID
	for _, text := range []string{"2", "3"} {
		b.call(b.caller, "SendMessage", message(text, fmt.Sprintf(`"taskId":%q,`, id), immediately))
	}
	replay := []string{"Idempotency-Key", "k"}
	send := func(length string) string {
		return fmt.Sprintf(`{"message":{"messageId":"m4","role":"ROLE_USER","taskId":%q,"parts":[{"text":"4"}]},"configuration":{"returnImmediately":true%s}}`, id, length)
	}
	decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", send(""), replay...))
	of := func(a answer) []json.RawMessage {
		t.Helper()
		switch {
		case strings.HasPrefix(string(a.Result), `{"tasks"`):
			return decode[struct{ Tasks []task }](t, a).Tasks[0].History
		case strings.HasPrefix(string(a.Result), `{"task"`):
			return decode[struct{ Task task }](t, a).Task.History
		}
		return decode[task](t, a).History
	}
	ops := map[string]func(length string) answer{
		"SendMessage": func(l string) answer { return b.call(b.caller, "SendMessage", send(l), replay...) },
		"GetTask":     func(l string) answer { return b.call(b.caller, "GetTask", fmt.Sprintf(`{"id":%q%s}`, id, l)) },
		"ListTasks":   func(l string) answer { return b.call(b.caller, "ListTasks", `{"contextId":""`+l+`}`) },
		"SubscribeToTask": func(l string) answer {
			s := b.stream(b.caller, "SubscribeToTask", fmt.Sprintf(`{"id":%q%s}`, id, l))
			defer s.cancel()
			_, data, _ := s.raw()
			return parseAnswer(t, 200, nil, []byte(data))
		},
	}
	for name, op := range ops {
		for length, want := range map[string]int{``: 4, `,"historyLength":0`: 0, `,"historyLength":2`: 2, `,"historyLength":9`: 4} {
			a := op(length)
			got := of(a)
			if len(got) != want {
				t.Errorf("%s %s: %d messages, want %d", name, length, len(got), want)
			} else if want == 2 && !strings.Contains(string(got[1]), `"4"`) {
				t.Errorf("%s %s: not the newest messages: %s", name, length, got)
			}
			if want == 0 && strings.Contains(a.Body, `"history"`) {
				t.Errorf("%s: historyLength 0 has a history: %s", name, a.Body)
			}
		}
		if name != "SubscribeToTask" {
			wantCode(t, op(`,"historyLength":-1`), -32602)
		}
	}
	wantCode(t, b.call(b.caller, "SubscribeToTask", fmt.Sprintf(`{"id":%q,"historyLength":-1}`, id)), -32602)
}

// TestReferences is section 3.4: a message for a task that is not there, of another
// context, or has ended, is refused and changes nothing.
func TestReferences(t *testing.T) {
	b := newBed(t)
	open := b.send(b.caller, "open")
	b.finish(b.next().ID, "input_required", "")
	ended := b.send(b.caller, "ended")
	b.finish(b.next().ID, "completed", "")
	in := func(task, context string) string {
		m := ""
		if task != "" {
			m += fmt.Sprintf(`"taskId":%q,`, task)
		}
		if context != "" {
			m += fmt.Sprintf(`"contextId":%q,`, context)
		}
		return message("again", m, immediately)
	}
	wantCode(t, b.call(b.caller, "SendMessage", in("no-such-task", "")), -32001)
	wantCode(t, b.call(b.other, "SendMessage", in(open.ID, "")), -32001)
	wantCode(t, b.call(b.caller, "SendMessage", in(open.ID, "other-context")), -32602)
	wantCode(t, b.call(b.caller, "SendMessage", in(ended.ID, "")), -32004)
	wantCode(t, b.call(b.caller, "SendStreamingMessage", in(ended.ID, "")), -32004)
	if got := b.get(open.ID); got.Status.State != "TASK_STATE_INPUT_REQUIRED" || len(got.History) != 1 {
		t.Errorf("the open task changed: %+v", got)
	}
	if page := decode[struct{ TotalSize int }](t, b.call(b.caller, "ListTasks", `{}`)); page.TotalSize != 2 {
		t.Errorf("%d tasks, want the 2 of before", page.TotalSize)
	}

	given := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", in("", "my-context"))).Task
	if given.ContextID != "my-context" || given.ID == open.ID {
		t.Errorf("a context of the caller's own: %+v", given)
	}
	same := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", in(open.ID, open.ContextID))).Task
	if same.ID != open.ID {
		t.Errorf("task and its context: %+v", same)
	}
}

// TestForeignTaskIsMissing is section 13.1: on every operation, a task of somebody
// else's answers exactly like one that does not exist.
func TestForeignTaskIsMissing(t *testing.T) {
	b := newBed(t)
	foreign := b.send(b.caller, "secret").ID
	b.Agent("elsewhere")
	missing := strings.Repeat("0", len(foreign))
	for method, params := range map[string]string{
		"GetTask": `{"id":"ID"}`, "CancelTask": `{"id":"ID"}`, "SubscribeToTask": `{"id":"ID"}`,
		"SendMessage":                   message("x", `"taskId":"ID",`, ""),
		"SendStreamingMessage":          message("x", `"taskId":"ID",`, ""),
		"GetTaskPushNotificationConfig": `{"taskId":"ID","id":"c"}`,
	} {
		a := b.call(b.other, method, strings.ReplaceAll(params, "ID", foreign))
		m := b.call(b.other, method, strings.ReplaceAll(params, "ID", missing))
		if a.Body != m.Body || a.Status != m.Status {
			t.Errorf("%s tells them apart:\n%s\n%s", method, a.Body, m.Body)
		}
		if !strings.Contains(method, "Push") {
			wantCode(t, a, -32001)
		}
	}
	// Its own caller does not find it at another address either.
	r := b.request(t.Context(), b.caller, "GetTask", fmt.Sprintf(`{"id":%q}`, foreign))
	r.URL.Path = "/a/elsewhere"
	wantCode(t, b.do(r), -32001)
	resumed := b.call(b.other, "SubscribeToTask", fmt.Sprintf(`{"id":%q}`, foreign), "Last-Event-ID", "0")
	wantCode(t, resumed, -32001)
}

// TestNotPermitted: an address that may not be called and one that does not exist
// are one and the same, and are refused before anything about the request's task.
func TestNotPermitted(t *testing.T) {
	b := newBed(t)
	approved := "approved"
	b.Create(identity.AgentSpec{Handle: "closed", Access: &approved})
	var bodies []string
	for _, path := range []string{"/a/closed", "/a/nobody", "/a/admin", "/a/closed/", "/a/nobody/rpc"} {
		r := b.request(t.Context(), b.caller, "GetTask", `{"id":"x"}`)
		r.URL.Path = path
		a := b.do(r)
		if a.Status != http.StatusForbidden {
			t.Errorf("%s: status %d", path, a.Status)
		}
		wantCode(t, a, -31403)
		bodies = append(bodies, a.Body)
	}
	for _, body := range bodies[1:] {
		if body != bodies[0] {
			t.Errorf("told apart:\n%s\n%s", bodies[0], body)
		}
	}
}

// TestUnauthenticated is section 7.4: 401 with a challenge, and the same for every
// path, method and body.
func TestUnauthenticated(t *testing.T) {
	b := newBed(t)
	for _, token := range []string{"", "wrong"} {
		a := b.call(token, "GetTask", `{"id":"x"}`)
		if a.Status != http.StatusUnauthorized || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%q: %d %v", token, a.Status, a.Header)
		}
		wantCode(t, a, -31401)
	}
}

// TestTenant: the handle is the tenant; another one is refused, and at the hub's own
// endpoint it decides.
func TestTenant(t *testing.T) {
	b := newBed(t)
	if a := b.call(b.caller, "ListTasks", `{"tenant":"coder"}`); a.Error != nil {
		t.Errorf("own tenant: %s", a.Body)
	}
	for method, params := range map[string]string{
		"SendMessage": message("x", "", `"tenant":"other",`+immediately), "SendStreamingMessage": message("x", "", `"tenant":"other",`),
		"GetTask": `{"tenant":"other","id":"x"}`, "CancelTask": `{"tenant":"other","id":"x"}`, "SubscribeToTask": `{"tenant":"other","id":"x"}`,
		"ListTasks": `{"tenant":"other"}`, "GetExtendedAgentCard": `{"tenant":"other"}`, "ListTaskPushNotificationConfigs": `{"tenant":"other"}`,
	} {
		a := b.call(b.caller, method, params)
		wantCode(t, a, -32602)
		if a.Error != nil && a.Error.field() != "tenant" {
			t.Errorf("%s: field %q", method, a.Error.field())
		}
	}
	atHub := func(params string) answer {
		r := b.request(t.Context(), b.caller, "SendMessage", params)
		r.URL.Path = "/a/hub"
		return b.do(r)
	}
	sent := decode[struct{ Task task }](t, atHub(message("x", "", `"tenant":"coder",`+immediately))).Task
	if got := b.get(sent.ID); got.ID != sent.ID {
		t.Errorf("got %+v", got)
	}
	wantCode(t, atHub(message("x", "", `"tenant":"nobody",`)), -31403)
	wantCode(t, atHub(message("x", "", "")), -32602)
}

// TestIdempotencyKey: the same send twice is one task, and another one under the same
// key is refused.
func TestIdempotencyKey(t *testing.T) {
	b := newBed(t)
	send := func(token, text, config string) answer {
		return b.call(token, "SendMessage", message(text, "", config), "Idempotency-Key", "key-1")
	}
	first := decode[struct{ Task task }](t, send(b.caller, "x", immediately)).Task
	again := decode[struct{ Task task }](t, send(b.caller, "x", `"configuration":{"returnImmediately":true,"historyLength":0},`)).Task
	if first.ID != again.ID {
		t.Errorf("two tasks: %s and %s", first.ID, again.ID)
	}
	reused := send(b.caller, "y", immediately)
	wantCode(t, reused, -32602)
	if reused.Error != nil && reused.Error.Data[0].Reason != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("reason %s", reused.Error.Data[0].Reason)
	}
	if theirs := decode[struct{ Task task }](t, send(b.other, "x", immediately)).Task; theirs.ID == first.ID {
		t.Error("another caller's key is the same")
	}
	wantCode(t, b.call(b.caller, "SendMessage", message("x", "", immediately), "Idempotency-Key", strings.Repeat("k", 256)), -32602)
	if again := b.send(b.caller, "x"); again.ID == first.ID {
		t.Error("a repeated messageId alone is the same send")
	}
}

// TestLineage: a header that does not count is answered, never refused.
func TestLineage(t *testing.T) {
	b := newBed(t)
	b.Agent("helper")
	parent := b.send(b.caller, "parent")
	for _, name := range []string{"Holdfast-Task", "Lagrange-Task"} {
		for token, ignored := range map[string]string{b.coder: "", b.other: "ignored"} {
			r := b.request(t.Context(), token, "SendMessage", message("x", "", immediately), name, parent.ID)
			r.URL.Path = "/a/helper"
			a := b.do(r)
			decode[struct{ Task task }](t, a)
			if got := a.Header.Get("Holdfast-Lineage"); got != ignored {
				t.Errorf("%s: Holdfast-Lineage %q, want %q", name, got, ignored)
			}
		}
	}
	s := b.stream(b.caller, "SendStreamingMessage", message("x", "", ""), "X-Parent-Call", "no-such-call")
	defer s.cancel()
	if got := s.res.Header.Get("Holdfast-Lineage"); got != "ignored" {
		t.Errorf("stream: Holdfast-Lineage %q", got)
	}
}

// TestNotSupported: what the card says that this hub has not got.
func TestNotSupported(t *testing.T) {
	b := newBed(t)
	config := `"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://example.com"}},`
	wantCode(t, b.call(b.caller, "SendMessage", message("x", "", config)), -32003)
	wantCode(t, b.call(b.caller, "SendStreamingMessage", message("x", "", config)), -32003)
	for _, method := range []string{"CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"} {
		wantCode(t, b.call(b.caller, method, `{"taskId":"x","id":"y"}`), -32003)
	}
	wantCode(t, b.call(b.caller, "GetExtendedAgentCard", `{}`), -32004)
	if page := decode[struct{ TotalSize int }](t, b.call(b.caller, "ListTasks", `{}`)); page.TotalSize != 0 {
		t.Error("a refused send left a task")
	}
}

// TestRateLimit: a caller beyond its share is told when to come back.
func TestRateLimit(t *testing.T) {
	b := newBed(t, func(c *config.Config) { c.Rate, c.Burst = 0.01, 1 })
	b.send(b.caller, "one")
	a := b.call(b.caller, "SendMessage", message("two", "", immediately))
	wantCode(t, a, -31429)
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); a.Status != http.StatusTooManyRequests || err != nil || seconds < 1 {
		t.Errorf("status %d, Retry-After %q", a.Status, a.Header.Get("Retry-After"))
	}
	b.send(b.other, "one")
}

// TestPayloadsSurvive: what JSON can say comes back as it was.
func TestPayloadsSurvive(t *testing.T) {
	b := newBed(t)
	sent := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage",
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a\u0000b \ud83c\udf78"},{"data":{"big":9007199254740993,"e":1.50}}],"metadata":{"k\u0000":1}},`+
			immediately+`"metadata":{"n":1,"big":9007199254740993}}`)).Task
	if got := string(sent.Metadata); got != `{"n":1,"big":9007199254740993}` {
		t.Errorf("metadata %s", got)
	}
	got := string(b.get(sent.ID).History[0])
	var m struct {
		Parts    []struct{ Text string }
		Metadata map[string]int
	}
	if err := json.Unmarshal([]byte(got), &m); err != nil {
		t.Fatal(err)
	}
	if m.Parts[0].Text != "a\x00b 🍸" || m.Metadata["k\x00"] != 1 || !strings.Contains(got, `{"big":9007199254740993,"e":1.50}`) {
		t.Errorf("got %s", got)
	}
	wantCode(t, b.call(b.caller, "SendMessage", message("x", "", `"metadata":{"\ud800":1},`)), -32602)
}
