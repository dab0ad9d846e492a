package a2a_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/config"
)

// TestSameAnswer: the same request gets the same answer over every binding: the same
// result, or the same reason and field of the error, in the words of its version.
func TestSameAnswer(t *testing.T) {
	b := newBed(t, shortBlocking, func(c *config.Config) { c.MaxBody = 8 << 10 })
	done := b.send(b.caller, "done").ID
	b.chunk(b.next().ID, "a", false)
	b.finish(done, "completed", "b")
	b.send(b.caller, "asked")
	b.finish(b.next().ID, "input_required", "")
	foreign := b.send(b.other, "foreign").ID
	b.call(b.caller, "SendMessage", message("again", "", immediately), "Idempotency-Key", "again")

	id := func(format string, id string) string { return strings.ReplaceAll(format, "ID", id) }
	for _, q := range []query{
		{op: "GetTask", params: id(`{"id":"ID"}`, done)},
		{op: "GetTask", params: id(`{"id":"ID","historyLength":0}`, done)},
		{op: "GetTask", params: id(`{"id":"ID","history_length":"1"}`, done)},
		{op: "GetTask", params: id(`{"id":"ID","historyLength":null}`, done)},
		{op: "GetTask", params: id(`{"id":"ID","historyLength":-1}`, done)},
		{op: "GetTask", params: id(`{"id":"ID","historyLength":"x"}`, done)},
		{op: "GetTask", params: id(`{"id":"ID","tenant":"coder","unknown":[1]}`, done)},
		{op: "GetTask", params: id(`{"id":"ID","tenant":"other"}`, done)},
		{op: "GetTask", params: id(`{"id":"ID"}`, foreign)},
		{op: "GetTask", params: `{"id":""}`},
		{op: "GetTask", params: `{"id":"a/b c?d#e%2F:cancel\u00e9\u0001"}`},
		{op: "GetTask", params: `{"id":"` + strings.Repeat("x", 800) + `"}`},
		{op: "GetTask", params: id(`{"id":"ID"}`, done), headers: []string{"A2A-Version", "1.0.3"}},
		{op: "GetTask", params: id(`{"id":"ID"}`, done), headers: []string{"A2A-Version", "99.0"}},
		{op: "GetTask", params: id(`{"id":"ID"}`, done), headers: []string{"A2A-Extensions", "https://x.example/e"}},
		{op: "GetTask", params: id(`{"id":"ID"}`, done), token: "none"},
		{op: "GetTask", params: id(`{"id":"ID"}`, done), handle: "nobody"},
		{op: "GetTask", params: id(`{"id":"ID"}`, done), handle: "hub"},
		{op: "GetTask", params: id(`{"id":"ID","tenant":"coder"}`, done), handle: "hub"},
		{op: "GetTask", params: id(`{"id":"ID","tenant":"nobody"}`, done), handle: "hub"},

		{op: "ListTasks", params: `{}`},
		{op: "ListTasks", params: `{"page_size":1,"includeArtifacts":true,"historyLength":1,"status":"TASK_STATE_COMPLETED"}`},
		{op: "ListTasks", params: `{"status":6}`},
		{op: "ListTasks", params: `{"status":"TASK_STATE_NOPE"}`},
		{op: "ListTasks", params: `{"status":99}`},
		{op: "ListTasks", params: `{"pageSize":-1}`},
		{op: "ListTasks", params: `{"pageSize":101}`},
		{op: "ListTasks", params: `{"pageToken":"nobody's"}`},
		{op: "ListTasks", params: `{"contextId":"none \u00e9&=+"}`},
		{op: "ListTasks", params: `{"statusTimestampAfter":"2000-01-01T00:00:00+01:00"}`},
		{op: "ListTasks", params: `{"statusTimestampAfter":"yesterday"}`},
		{op: "ListTasks", params: `{"tenant":"coder"}`, handle: "hub"},

		{op: "CancelTask", params: id(`{"id":"ID"}`, done)},
		{op: "CancelTask", params: id(`{"id":"ID","metadata":{"why":"x"}}`, foreign)},
		{op: "CancelTask", params: `{"id":"none"}`, headers: []string{"Content-Encoding", "gzip"}},
		{op: "SubscribeToTask", params: id(`{"id":"ID"}`, done)},
		{op: "SubscribeToTask", params: id(`{"id":"ID"}`, done), headers: []string{"Last-Event-ID", "99"}},
		{op: "SubscribeToTask", params: id(`{"id":"ID"}`, foreign), headers: []string{"Last-Event-ID", "0"}},

		{op: "SendMessage", params: message("again", "", immediately), headers: []string{"Idempotency-Key", "again"}},
		{op: "SendMessage", params: message("other", "", immediately), headers: []string{"Idempotency-Key", "again"}},
		{op: "SendMessage", params: message("x", "", ""), headers: []string{"Idempotency-Key", strings.Repeat("k", 256)}},
		{op: "SendMessage", params: message("x", "", ""), headers: []string{"Content-Type", "text/plain"}},
		{op: "SendMessage", params: message("x", `"taskId":"none",`, "")},
		{op: "SendMessage", params: id(message("x", `"taskId":"ID",`, ""), done)},
		{op: "SendMessage", params: message("x", "", `"tenant":"other",`)},
		{op: "SendMessage", params: message("x", "", `"configuration":{"taskPushNotificationConfig":{"url":"http://127.0.0.1/"}},`)},
		{op: "SendMessage", params: message("x", "", `"configuration":{"taskPushNotificationConfig":{"url":"http://127.0.0.1:1031/","taskId":"t"}},`)},
		{op: "SendMessage", params: message(strings.Repeat("x", 16<<10), "", "")},
		{op: "SendMessage", params: message("x", "", `"metadata":{"\ud800":1},`)},
		{op: "SendMessage", params: message("x", "", `"metadata":{"a":1,"a":2},`)},
		{op: "SendMessage", params: message("x", "", `"metadata":[],`)},
		{op: "SendMessage", params: `[]`},
		{op: "SendMessage", params: `null`},
		{op: "SendMessage", params: `{}`},
		{op: "SendMessage", params: `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`},
		{op: "SendMessage", params: `{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}`},
		{op: "SendStreamingMessage", params: `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}]}}`},

		{op: "GetExtendedAgentCard", params: `{}`},
		{op: "CreateTaskPushNotificationConfig", params: `{"taskId":"t","url":"https://x"}`},
		{op: "CreateTaskPushNotificationConfig", params: id(`{"taskId":"ID","id":"c","url":"ftp://x"}`, done)},
		{op: "CreateTaskPushNotificationConfig", params: id(`{"taskId":"ID"}`, done)},
		{op: "CreateTaskPushNotificationConfig", params: id(`{"taskId":"ID","url":"https://x","authentication":{"credentials":"c"}}`, done)},
		{op: "GetTaskPushNotificationConfig", params: id(`{"taskId":"ID","id":"c"}`, done)},
		{op: "ListTaskPushNotificationConfigs", params: id(`{"taskId":"ID"}`, done)},
		{op: "ListTaskPushNotificationConfigs", params: id(`{"taskId":"ID","pageToken":"x"}`, done)},
		{op: "DeleteTaskPushNotificationConfig", params: id(`{"taskId":"ID","id":"c"}`, done)},
		{op: "GetTaskPushNotificationConfig", params: `{"taskId":"t","id":"c"}`},
		{op: "ListTaskPushNotificationConfigs", params: `{"taskId":"t","pageSize":1}`},
		{op: "DeleteTaskPushNotificationConfig", params: `{"taskId":"t","id":"c","tenant":"coder"}`},
	} {
		if q.token == "" {
			q.token = b.caller
		}
		if q.handle == "" {
			q.handle = "coder"
		}
		compareAnswers(t, b, q)
	}

	var all [][]string
	for _, speak := range six() {
		b.speak = speak
		// What is said about these counts bytes and levels of the envelope.
		for params, reason := range map[string]string{
			`{"message":`: "PARSE_ERROR",
			message("x", "", `"metadata":{"x":`+strings.Repeat("[", 63)+strings.Repeat("]", 63)+`},"tenant":"other",`): "INVALID_PARAMS", // the tenant's
			message("x", "", `"metadata":{"x":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+`},`):                  "INVALID_PARAMS",
		} {
			a := b.call(b.caller, "SendMessage", params)
			wantReason(t, a, reason)
			if tenant := strings.Contains(params, "tenant"); !a.Unsaid && tenant != (a.Error.field() == "tenant") {
				t.Errorf("%s: %s", speak.name(), a.Body)
			}
		}
		all = append(all, b.stream(b.caller, "SubscribeToTask", id(`{"id":"ID"}`, done), "Last-Event-ID", "0").states())
	}
	for i, states := range all {
		if len(states) < 4 || !slices.Equal(states, all[0]) {
			t.Errorf("%s streams %v, %s %v", six()[i].name(), states, bindings[0].name(), all[0])
		}
	}
}

// compareAnswers asks over every binding, and compares the answers: those of a version
// with each other, and those of 0.3 with those of 1.0.
func compareAnswers(t *testing.T, b *bed, q query) {
	t.Helper()
	var first, former *answer
	for _, speak := range six() {
		_, is03 := speak.(*formerBinding)
		if is03 && (q.op == "ListTasks" || q.op == "GetExtendedAgentCard") {
			continue // there is none, or it is another card; see TestExtendedCardV03
		}
		s, a := speak.open(t.Context(), b, q)
		switch {
		case s != nil:
			t.Fatalf("%s %.200s is a stream", q.op, q.params)
		case a.Unsaid:
			continue
		case strings.Contains(speak.name(), "GRPC") && strings.Contains(q.params, `"parts":[]`):
			wantField(t, a, "message.parts") // which is not there: an empty list is none
			continue
		}
		differ := func(from *answer, same func(answer, answer) bool) {
			t.Helper()
			if !same(*from, a) {
				t.Errorf("%s %.200s %v\n%s: %.500s\nelsewhere: %.500s", q.op, q.params, q.headers, speak.name(), a.Body, from.Body)
			}
		}
		switch {
		case !is03 && first == nil:
			first = &a
		case !is03:
			differ(first, sameAnswer)
		case former == nil:
			if former = &a; !ownHistory(q) {
				differ(first, sameMeaning)
			}
		default:
			differ(former, sameAnswer)
		}
	}
}

// ownHistory reports whether an answer of 0.3 is another one by right: there a history
// has what the agent said, which counts.
func ownHistory(q query) bool {
	return strings.Contains(q.params, `"historyLength"`) && !strings.Contains(q.params, `"historyLength":null`)
}

// sameAnswer compares two answers without what belongs to their bindings.
func sameAnswer(a, b answer) bool {
	if a.Error != nil && b.Error != nil {
		return sameMeaning(a, b) && a.Error.Message == b.Error.Message && reflect.DeepEqual(a.Error.Data, b.Error.Data)
	}
	return sameMeaning(a, b)
}

// sameMeaning is sameAnswer for two versions, each with its own words for an error.
func sameMeaning(a, b answer) bool {
	if a.Error != nil && b.Error != nil {
		return a.Error.reason() == b.Error.reason() && a.Error.field() == b.Error.field()
	}
	return a.Error == nil && b.Error == nil && sameJSON(withoutEmpty(a.Result), withoutEmpty(b.Result))
}

// withoutEmpty leaves empty lists out of JSON: protobuf knows no difference between one
// and none.
func withoutEmpty(raw json.RawMessage) string {
	return regexp.MustCompile(`"\w+":\[\],?`).ReplaceAllString(string(raw), "")
}
