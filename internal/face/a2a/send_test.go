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

// testBlockingSend is spec section 3.2.2: without returnImmediately, the answer is
// the task at its end, with its artifacts and history.
func testBlockingSend(t *testing.T, b *bed) {
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
	if len(got.History) != 1 || !sameJSON(string(got.History[0]), want) {
		t.Errorf("history %s, want %s", got.History, want)
	}
}

// testBlockingSendReturnsAtQuestion is the other end of section 3.2.2, and the answer
// in the same task.
func testBlockingSendReturnsAtQuestion(t *testing.T, b *bed) {
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

func shortBlocking(c *config.Config) { c.BlockingLimit = time.Second }

// testBlockingLimit: a blocking send gives up waiting, not the task.
func testBlockingLimit(t *testing.T, b *bed) {
	got := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", message("hi", "", ""))).Task
	if got.Status.State != "TASK_STATE_SUBMITTED" {
		t.Errorf("state %s", got.Status.State)
	}
}

// testReturnImmediately is section 3.2.2: the task comes back as soon as it exists,
// with nobody there to do it.
func testReturnImmediately(t *testing.T, b *bed) {
	got := b.send(b.caller, "hi")
	if got.Status.State != "TASK_STATE_SUBMITTED" || len(got.History) != 1 {
		t.Errorf("got %+v", got)
	}
}

// testHistoryLength is section 3.2.4 on every operation that gives a task.
func testHistoryLength(t *testing.T, b *bed) {
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
			_, a, _ := s.recv()
			return a
		},
	}
	for name, op := range ops {
		for length, want := range map[string]int{``: 4, `,"historyLength":0`: 0, `,"historyLength":2`: 2, `,"historyLength":9`: 4} {
			if !b.says(name, `{"id":"x"`+length+`}`) && name == "SubscribeToTask" {
				continue
			}
			a := op(length)
			if a.Unsaid { // 0 is the same as none in ProtoJSON of 0.3
				continue
			}
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
			wantReason(t, op(`,"historyLength":-1`), "INVALID_PARAMS")
		}
	}
	wantReason(t, b.call(b.caller, "SubscribeToTask", fmt.Sprintf(`{"id":%q,"historyLength":-1}`, id)), "INVALID_PARAMS")
}

// testReferences is section 3.4: a message for a task that is not there, of another
// context, or has ended, is refused and changes nothing.
func testReferences(t *testing.T, b *bed) {
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
	wantReason(t, b.call(b.caller, "SendMessage", in("no-such-task", "")), "TASK_NOT_FOUND")
	wantReason(t, b.call(b.other, "SendMessage", in(open.ID, "")), "TASK_NOT_FOUND")
	wantReason(t, b.call(b.caller, "SendMessage", in(open.ID, "other-context")), "INVALID_PARAMS")
	wantReason(t, b.call(b.caller, "SendMessage", in(ended.ID, "")), "UNSUPPORTED_OPERATION")
	wantReason(t, b.call(b.caller, "SendStreamingMessage", in(ended.ID, "")), "UNSUPPORTED_OPERATION")
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

// testForeignTaskIsMissing is section 13.1: on every operation, a task of somebody
// else's answers exactly like one that does not exist.
func testForeignTaskIsMissing(t *testing.T, b *bed) {
	foreign := b.send(b.caller, "secret").ID
	b.Agent("elsewhere")
	missing := strings.Repeat("0", len(foreign))
	for method, params := range map[string]string{
		"GetTask": `{"id":"ID"}`, "CancelTask": `{"id":"ID"}`, "SubscribeToTask": `{"id":"ID"}`,
		"SendMessage":                   message("x", `"taskId":"ID",`, ""),
		"SendStreamingMessage":          message("x", `"taskId":"ID",`, ""),
		"GetTaskPushNotificationConfig": `{"taskId":"ID","id":"c"}`, "ListTaskPushNotificationConfigs": `{"taskId":"ID"}`,
		"CreateTaskPushNotificationConfig": `{"taskId":"ID","url":"http://127.0.0.1:1/"}`, "DeleteTaskPushNotificationConfig": `{"taskId":"ID","id":"c"}`,
	} {
		a := b.call(b.other, method, strings.ReplaceAll(params, "ID", foreign))
		m := b.call(b.other, method, strings.ReplaceAll(params, "ID", missing))
		if a.Body != m.Body || a.Status != m.Status {
			t.Errorf("%s tells them apart:\n%s\n%s", method, a.Body, m.Body)
		}
		wantReason(t, a, "TASK_NOT_FOUND")
	}
	// Its own caller does not find it at another address either.
	wantReason(t, b.at("elsewhere").call(b.caller, "GetTask", fmt.Sprintf(`{"id":%q}`, foreign)), "TASK_NOT_FOUND")
	resumed := b.call(b.other, "SubscribeToTask", fmt.Sprintf(`{"id":%q}`, foreign), "Last-Event-ID", "0")
	wantReason(t, resumed, "TASK_NOT_FOUND")
}

// testNotPermitted: an address that may not be called and one that does not exist
// are one and the same, and are refused before anything about the request's task.
func testNotPermitted(t *testing.T, b *bed) {
	approved := "approved"
	b.Create(identity.AgentSpec{Handle: "closed", Access: &approved})
	var bodies []string
	for _, handle := range []string{"closed", "nobody", "admin", "no%20handle"} {
		a := b.at(handle).call(b.caller, "GetTask", `{"id":"x"}`)
		wantReason(t, a, "UNAUTHORIZED")
		bodies = append(bodies, a.Body)
	}
	for _, body := range bodies[1:] {
		if body != bodies[0] {
			t.Errorf("told apart:\n%s\n%s", bodies[0], body)
		}
	}
}

// testUnauthenticated is section 7.4: 401 with a challenge, and the same for every
// path, method and body.
func testUnauthenticated(t *testing.T, b *bed) {
	for _, token := range []string{"", "wrong"} {
		a := b.call(token, "GetTask", `{"id":"x"}`)
		if a.Status != http.StatusUnauthorized || !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%q: %d %v", token, a.Status, a.Header)
		}
		wantReason(t, a, "UNAUTHENTICATED")
	}
}

// testTenant: the handle is the tenant; another one is refused, and at the hub's own
// endpoint it decides.
func testTenant(t *testing.T, b *bed) {
	if a := b.call(b.caller, "ListTasks", `{"tenant":"coder"}`); a.Error != nil {
		t.Errorf("own tenant: %s", a.Body)
	}
	for method, params := range map[string]string{
		"SendMessage": message("x", "", `"tenant":"other",`+immediately), "SendStreamingMessage": message("x", "", `"tenant":"other",`),
		"GetTask": `{"tenant":"other","id":"x"}`, "CancelTask": `{"tenant":"other","id":"x"}`, "SubscribeToTask": `{"tenant":"other","id":"x"}`,
		"ListTasks": `{"tenant":"other"}`, "GetExtendedAgentCard": `{"tenant":"other"}`,
		"CreateTaskPushNotificationConfig": `{"tenant":"other","taskId":"x","url":"https://example.com"}`, "GetTaskPushNotificationConfig": `{"tenant":"other","taskId":"x","id":"y"}`,
		"ListTaskPushNotificationConfigs": `{"tenant":"other","taskId":"x"}`, "DeleteTaskPushNotificationConfig": `{"tenant":"other","taskId":"x","id":"y"}`,
	} {
		a := b.call(b.caller, method, params)
		wantReason(t, a, "INVALID_PARAMS")
		if a.Error != nil && !a.Unsaid && a.Error.field() != "tenant" {
			t.Errorf("%s: field %q", method, a.Error.field())
		}
	}
	atHub := func(params string) answer {
		return b.at("hub").call(b.caller, "SendMessage", params)
	}
	sent := decode[struct{ Task task }](t, atHub(message("x", "", `"tenant":"coder",`+immediately))).Task
	if got := b.get(sent.ID); got.ID != sent.ID {
		t.Errorf("got %+v", got)
	}
	wantReason(t, atHub(message("x", "", `"tenant":"nobody",`)), "UNAUTHORIZED")
	wantReason(t, atHub(message("x", "", "")), "INVALID_PARAMS")
}

// testIdempotencyKey: the same send twice is one task, and another one under the same
// key is refused.
func testIdempotencyKey(t *testing.T, b *bed) {
	send := func(token, text, config string) answer {
		return b.call(token, "SendMessage", message(text, "", config), "Idempotency-Key", "key-1")
	}
	first := decode[struct{ Task task }](t, send(b.caller, "x", immediately)).Task
	again := decode[struct{ Task task }](t, send(b.caller, "x", `"configuration":{"returnImmediately":true,"historyLength":1},`)).Task
	if first.ID != again.ID {
		t.Errorf("two tasks: %s and %s", first.ID, again.ID)
	}
	reused := send(b.caller, "y", immediately)
	wantReason(t, reused, "IDEMPOTENCY_KEY_REUSED")
	if theirs := decode[struct{ Task task }](t, send(b.other, "x", immediately)).Task; theirs.ID == first.ID {
		t.Error("another caller's key is the same")
	}
	wantReason(t, b.call(b.caller, "SendMessage", message("x", "", immediately), "Idempotency-Key", strings.Repeat("k", 256)), "INVALID_PARAMS")
	if again := b.send(b.caller, "x"); again.ID == first.ID {
		t.Error("a repeated messageId alone is the same send")
	}
}

// testLineage: a header that does not count is answered, never refused.
func testLineage(t *testing.T, b *bed) {
	b.Agent("helper")
	parent := b.send(b.caller, "parent")
	for _, name := range []string{"Holdfast-Task", "Lagrange-Task"} {
		for token, ignored := range map[string]string{b.coder: "", b.other: "ignored"} {
			a := b.at("helper").call(token, "SendMessage", message("x", "", immediately), name, parent.ID)
			decode[struct{ Task task }](t, a)
			if got := a.Header.Get("Holdfast-Lineage"); got != ignored {
				t.Errorf("%s: Holdfast-Lineage %q, want %q", name, got, ignored)
			}
		}
	}
	s := b.stream(b.caller, "SendStreamingMessage", message("x", "", ""), "X-Parent-Call", "no-such-call")
	defer s.cancel()
	if got := s.header.Get("Holdfast-Lineage"); got != "ignored" {
		t.Errorf("stream: Holdfast-Lineage %q", got)
	}
}

func noPush(c *config.Config) { c.NoPush = true }

// testNotSupported: what the card says that this hub has not got.
func testNotSupported(t *testing.T, b *bed) {
	config := `"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://example.com"}},`
	wantReason(t, b.call(b.caller, "SendMessage", message("x", "", config)), "PUSH_NOTIFICATION_NOT_SUPPORTED")
	wantReason(t, b.call(b.caller, "SendStreamingMessage", message("x", "", config)), "PUSH_NOTIFICATION_NOT_SUPPORTED")
	for _, method := range []string{"CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"} {
		wantReason(t, b.call(b.caller, method, `{"taskId":"x","id":"y"}`), "PUSH_NOTIFICATION_NOT_SUPPORTED")
	}
	if page := decode[struct{ TotalSize int }](t, b.call(b.caller, "ListTasks", `{}`)); page.TotalSize != 0 {
		t.Error("a refused send left a task")
	}
}

func lowRate(c *config.Config) { c.Rate, c.Burst = 0.01, 1 }

// testRateLimit: a caller beyond its share is told when to come back.
func testRateLimit(t *testing.T, b *bed) {
	b.send(b.caller, "one")
	a := b.call(b.caller, "SendMessage", message("two", "", immediately))
	wantReason(t, a, "RATE_LIMITED")
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); a.Status != http.StatusTooManyRequests || err != nil || seconds < 1 {
		t.Errorf("status %d, Retry-After %q", a.Status, a.Header.Get("Retry-After"))
	}
	b.send(b.other, "one")
}

// testPayloadsSurvive: what JSON can say comes back as it was.
func testPayloadsSurvive(t *testing.T, b *bed) {
	sent := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage",
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a\u0000b \ud83c\udf78"},{"data":{"big":9007199254740993,"e":1.50}}],"metadata":{"k\u0000":1}},`+
			immediately+`"metadata":{"n":1,"big":9007199254740993}}`)).Task
	got := string(b.get(sent.ID).History[0])
	big, e := "9007199254740993", "1.50"
	if strings.HasPrefix(b.speak.name(), "GRPC") { // protobuf has doubles only
		big, e = "9007199254740992", "1.5"
	}
	var m struct {
		Parts    []struct{ Text string }
		Metadata map[string]int
	}
	if err := json.Unmarshal([]byte(got), &m); err != nil {
		t.Fatal(err)
	}
	if m.Parts[0].Text != "a\x00b 🍸" || m.Metadata["k\x00"] != 1 || !strings.Contains(got, `{"big":`+big+`,"e":`+e+`}`) {
		t.Errorf("got %s", got)
	}
	if got := string(sent.Metadata); !sameJSON(got, `{"n":1,"big":`+big+`}`) {
		t.Errorf("metadata %s", got)
	}
	wantReason(t, b.call(b.caller, "SendMessage", message("x", "", `"metadata":{"\ud800":1},`)), "INVALID_PARAMS")
}
