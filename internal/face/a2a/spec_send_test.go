package a2a_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/wire"
)

// testNamesAndEnums is sections 5.5 and 5.3: names are in camelCase, and enums are
// names.
func testNamesAndEnums(t *testing.T, b *bed) {
	got := b.bring("hi", "completed")
	a := b.call(b.caller, "GetTask", fmt.Sprintf(`{"id":%q}`, got.ID))
	var tree any
	if err := json.Unmarshal(a.Result, &tree); err != nil {
		t.Fatal(err)
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for name, e := range v {
				if strings.Contains(name, "_") {
					t.Errorf("member %q", name)
				}
				if s, ok := e.(string); (name == "state" || name == "role") && (!ok || !strings.Contains(s, "_")) {
					t.Errorf("%s is %v, and no name of an enum", name, e)
				}
				walk(e)
			}
		}
	}
	walk(tree)
}

// testTimestamps is section 5.6.1: UTC, with Z and, where it is JSON, exactly
// milliseconds.
func testTimestamps(t *testing.T, b *bed) {
	form := regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	if b.overGRPC() {
		form = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z$`)
	}
	if got := b.bring("hi", "completed").Status.Timestamp; !form.MatchString(got) {
		t.Errorf("timestamp %q", got)
	}
}

// testRequiredFields is section 5.7: what is required must be there, and required
// arrays must not be empty. Nothing is stored when they are not.
func testRequiredFields(t *testing.T, b *bed) {
	for _, c := range []struct{ op, params, field string }{
		{"SendMessage", `{}`, "message"},
		{"SendMessage", `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}]}}`, "message.messageId"},
		{"SendMessage", `{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":"x"}]}}`, "message.messageId"},
		{"SendMessage", `{"message":{"messageId":"m","parts":[{"text":"x"}]}}`, "message.role"},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_UNSPECIFIED","parts":[{"text":"x"}]}}`, "message.role"},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`, "message.role"},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER"}}`, "message.parts"},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}`, "message.parts"},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{}]}}`, "message.parts[0]"},
		{"SendStreamingMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}`, "message.parts"},
		{"SendMessage", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"taskPushNotificationConfig":{}}}`, ""},
		{"GetTask", `{"id":""}`, "id"},
	} {
		a := b.call(b.caller, c.op, c.params)
		if c.op == "GetTask" && a.Error != nil && a.Error.reason() == "METHOD_NOT_FOUND" {
			continue // HTTP+JSON has no path without an id
		}
		wantReason(t, a, "INVALID_PARAMS")
		if a.Error != nil && c.field != "" && a.Error.field() != c.field {
			t.Errorf("%s %s: field %q, want %q", c.op, c.params, a.Error.field(), c.field)
		}
	}
	if n := *b.list(`{}`).TotalSize; n != 0 {
		t.Errorf("%d tasks came of messages that were refused", n)
	}
}

// testUnknownFields is section 5.7: members that nobody knows change nothing.
func testUnknownFields(t *testing.T, b *bed) {
	a := b.call(b.caller, "SendMessage", `{"new":1,"message":{"messageId":"m","role":"ROLE_USER","newer":{"a":[]},"parts":[{"text":"x","newest":null}]},"configuration":{"returnImmediately":true,"x":"y"}}`)
	if a.Unsaid {
		return // a message of gRPC has no such members
	}
	sent := decode[struct{ Task task }](t, a).Task
	if got := string(b.get(sent.ID).History[0]); strings.Contains(got, "new") {
		t.Errorf("kept: %s", got)
	}
	if got := b.list(`{"new":1}`); len(got.Tasks) != 1 {
		t.Errorf("list: %+v", got)
	}
}

// testMessagesNameTheirTask is section 4.1.4: messages carry the ids of their context
// and task, those of the agent too.
func testMessagesNameTheirTask(t *testing.T, b *bed) {
	got := b.bring("hi", "input_required")
	decode[struct{ Task task }](t, b.sendTo(got.ID, "that"))
	got = b.get(got.ID)
	b.lead(got.ID, "completed")
	got = b.get(got.ID)
	for _, raw := range append(got.History, got.Status.Message) {
		var m struct{ TaskID, ContextID, MessageID, Role string }
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.TaskID != got.ID || m.ContextID != got.ContextID || m.MessageID == "" || m.Role == "" {
			t.Errorf("message %s", raw)
		}
	}
	if len(got.History) != 3 {
		t.Errorf("history %s", got.History)
	}
}

// testBlockingSendReturnsAtEveryEnd is section 3.2.2: a blocking send returns at the
// end of the task, whichever it is, and at a question of either kind.
func testBlockingSendReturnsAtEveryEnd(t *testing.T, b *bed) {
	for _, state := range append([]string{"input_required", "auth_required"}, ends[:3]...) {
		var worker sync.WaitGroup
		worker.Go(func() { b.conclude(b.next().ID, state) })
		got := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", message(state, "", ""))).Task
		worker.Wait()
		if got.Status.State != protocol(state) || !strings.Contains(string(got.Status.Message), "says "+state) {
			t.Errorf("%s: %+v", state, got)
		}
	}
	var worker sync.WaitGroup
	worker.Go(func() { b.call(b.caller, "CancelTask", fmt.Sprintf(`{"id":%q}`, b.next().ID)) })
	got := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", message("canceled", "", ""))).Task
	worker.Wait()
	if got.Status.State != protocol("canceled") {
		t.Errorf("canceled: %+v", got)
	}
}

// testAcceptedOutputModes is section 3.2.2: they are a wish, which the hub cannot
// grant; the agent answers as it does.
func testAcceptedOutputModes(t *testing.T, b *bed) {
	got := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage",
		message("hi", "", `"configuration":{"returnImmediately":true,"acceptedOutputModes":["image/png"]},`))).Task
	b.next()
	b.finish(got.ID, "completed", "text all the same")
	if done := b.get(got.ID); len(done.Artifacts) != 1 || done.Status.State != protocol("completed") {
		t.Errorf("got %+v", done)
	}
}

// testAnyMediaType is sections 3.1.1 and 3.3.2: the hub hands on parts of any media
// type, also one that the address does not name.
func testAnyMediaType(t *testing.T, b *bed) {
	got := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage",
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"AAE=","mediaType":"application/x-unheard-of","filename":"f"}]},"configuration":{"returnImmediately":true}}`)).Task
	if in := b.next(); in.ID != got.ID || in.Input.Message.Parts[0].MediaType != "application/x-unheard-of" {
		t.Errorf("the callee got %+v", in)
	}
}

// testBareReply is section 3.1.1: an agent may have a message given in place of the
// task, to those who wait for a new task. The task is there all the same.
func testBareReply(t *testing.T, b *bed) {
	bare := func(extensions, artifacts string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"state":"completed","message":{"role":"agent","message_id":"r","parts":[{"text":"just this"}],"extensions":[%s]}%s}`, extensions, artifacts))
	}
	send := func(params string, result json.RawMessage) (answer, string) {
		t.Helper()
		id := make(chan string, 1)
		go func() {
			got := b.next()
			b.v1("POST", got.ID+"/result", result, nil)
			id <- got.ID
		}()
		a := b.call(b.caller, "SendMessage", params)
		return a, <-id
	}
	uri := fmt.Sprintf("%q", wire.BareReply)
	a, id := send(message("hi", "", ""), bare(uri, ""))
	m := decode[struct {
		Message *struct {
			MessageID, TaskID, ContextID, Role string
			Parts                              []struct{ Text string }
		}
	}](t, a).Message
	if m == nil || m.MessageID != "r" || m.TaskID != id || m.ContextID == "" || m.Role != "ROLE_AGENT" || m.Parts[0].Text != "just this" {
		t.Fatalf("got %s", a.Body)
	}
	if got := b.get(id); got.Status.State != protocol("completed") || got.ContextID != m.ContextID {
		t.Errorf("the task: %+v", got)
	}

	for why, c := range map[string]struct {
		params string
		result json.RawMessage
	}{
		"not asked for":  {message("a", "", ""), bare(`"urn:other"`, "")},
		"with artifacts": {message("b", "", ""), bare(uri, `,"artifacts":[{"parts":[{"text":"x"}]}]`)},
		"in the text":    {message("c", "", ""), json.RawMessage(fmt.Sprintf(`{"state":"completed","message":{"role":"agent","parts":[{"text":%q}]}}`, wire.BareReply))},
	} {
		a, id := send(c.params, c.result)
		if got := decode[struct{ Task task }](t, a).Task; got.ID != id {
			t.Errorf("%s: %s", why, a.Body)
		}
	}
	asked := b.bring("asks", "input_required")
	a, _ = send(message("answer", fmt.Sprintf(`"taskId":%q,`, asked.ID), ""), bare(uri, ""))
	if got := decode[struct{ Task task }](t, a).Task; got.ID != asked.ID {
		t.Errorf("an answer: %s", a.Body)
	}
}

// testContextIsInferred is section 3.4.1: a message to a task is in its context, and
// one without either gets a new context, which the answer names.
func testContextIsInferred(t *testing.T, b *bed) {
	first := b.bring("hi", "input_required")
	if first.ContextID == "" {
		t.Fatalf("no context: %+v", first)
	}
	again := decode[struct{ Task task }](t, b.sendTo(first.ID, "answer")).Task
	if again.ContextID != first.ContextID {
		t.Errorf("context %s, want %s", again.ContextID, first.ContextID)
	}
	b.lead(first.ID, "completed")
	if other := b.send(b.caller, "other"); other.ContextID == first.ContextID || other.ContextID == "" {
		t.Errorf("context of another task: %s", other.ContextID)
	}
}

// testUnacceptableContext is section 3.4.1: a context that cannot be is refused and
// never replaced.
func testUnacceptableContext(t *testing.T, b *bed) {
	for _, context := range []string{strings.Repeat("c", 257), "a\nb", "a\u0000b", " "} {
		a := b.call(b.caller, "SendMessage", message("hi", fmt.Sprintf(`"contextId":%s,`, quote(t, context)), immediately))
		if a.Error == nil {
			if got := decode[struct{ Task task }](t, a).Task; got.ContextID != context {
				t.Errorf("%q became %q", context, got.ContextID)
			}
			continue
		}
		wantReason(t, a, "INVALID_PARAMS")
	}
	wantReason(t, b.call(b.caller, "SendMessage", message("hi", `"contextId":"`+strings.Repeat("c", 1000)+`",`, immediately)), "INVALID_PARAMS")
}

// quote is a text as JSON.
func quote(t *testing.T, s string) string {
	t.Helper()
	q, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(q)
}

// testIDsAreTheServers is section 3.4.2: a client cannot make up a task's id.
func testIDsAreTheServers(t *testing.T, b *bed) {
	for _, id := range []string{"mine", "0190c4e2-0000-7000-8000-000000000000"} {
		wantReason(t, b.sendTo(id, "hi"), "TASK_NOT_FOUND")
		wantReason(t, b.call(b.caller, "SendStreamingMessage", message("hi", fmt.Sprintf(`"taskId":%q,`, id), "")), "TASK_NOT_FOUND")
	}
	seen := map[string]bool{}
	for range 20 {
		seen[b.send(b.caller, "same").ID] = true
	}
	if len(seen) != 20 {
		t.Errorf("%d ids for 20 tasks", len(seen))
	}
}

// testRepeatedMessageID is section 3.3.1: the same messageId again is a new send,
// unless the address is told otherwise.
func testRepeatedMessageID(t *testing.T, b *bed) {
	if one, two := b.send(b.caller, "same"), b.send(b.caller, "same"); one.ID == two.ID {
		t.Error("one task")
	}
	yes, open := true, "open"
	b.Create(identity.AgentSpec{Handle: "once", DedupeMessageID: &yes, Access: &open})
	once := b.at("once")
	if one, two := once.send(b.caller, "same"), once.send(b.caller, "same"); one.ID != two.ID {
		t.Error("two tasks where the address wants one")
	}
}
