package a2a

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const plainMessage = `"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`

// TestProtoJSONSpellings: parameters come in camelCase or snake_case, integers as
// numbers or strings, enums as names or numbers, and null is absent.
func TestProtoJSONSpellings(t *testing.T) {
	for _, params := range []string{
		`{"contextId":"c","status":"TASK_STATE_WORKING","pageSize":7,"pageToken":"p","historyLength":0,"statusTimestampAfter":"2026-01-02T03:04:05.678Z","includeArtifacts":true}`,
		`{"context_id":"c","status":2,"page_size":"7","page_token":"p","history_length":0.0,"status_timestamp_after":"2026-01-02T04:04:05.678+01:00","include_artifacts":true}`,
		`{"tenant":null,"contextId":"c","status":2,"pageSize":70e-1,"pageToken":"p","historyLength":"0","statusTimestampAfter":"2026-01-02T03:04:05.678Z","includeArtifacts":true,"future":[{}]}`,
	} {
		got, err := decodeList([]byte(params))
		if err != nil {
			t.Fatalf("%s: %v", params, err)
		}
		want := listTasks{context: "c", state: hub.Working, pageSize: 7, pageToken: "p",
			since: time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC), artifacts: true}
		if got != want {
			t.Errorf("%s\ngot  %+v\nwant %+v", params, got, want)
		}
	}
}

// TestDefaults: what a request may leave out.
func TestDefaults(t *testing.T) {
	for _, params := range []string{``, `null`, `{}`, `{"status":"TASK_STATE_UNSPECIFIED"}`, `{"status":0}`} {
		got, err := decodeList([]byte(params))
		if want := (listTasks{pageSize: 50, history: all}); err != nil || got != want {
			t.Errorf("ListTasks %q: %+v, %v", params, got, err)
		}
	}
	send, err := decodeSend([]byte(`{` + plainMessage + `}`))
	if err != nil || send.history != all || send.returnImmediately || send.push != nil || send.metadata != nil {
		t.Errorf("SendMessage: %+v, %v", send, err)
	}
	task, err := decodeTask([]byte(`{"id":"t"}`))
	if want := (taskRequest{id: "t", history: all}); err != nil || task != want {
		t.Errorf("GetTask: %+v, %v", task, err)
	}
}

// TestSendParameters: everything that a send may carry.
func TestSendParameters(t *testing.T) {
	got, err := decodeSend([]byte(`{"tenant":"coder","metadata":{"n": 1, "big":9007199254740993},
		"message":{"message_id":"m","role":"ROLE_USER","parts":[{"text":"x"}],"taskId":"t","context_id":"c"},
		"configuration":{"acceptedOutputModes":["text/plain"],"history_length":2,"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.tenant != "coder" || got.history != 2 || !got.returnImmediately || got.push == nil || got.push.config.URL != "https://x" {
		t.Errorf("got %+v", got)
	}
	if m := got.message; m.ID != "m" || m.TaskID != "t" || m.ContextID != "c" {
		t.Errorf("message %+v", m)
	}
	if want := `{"n":1,"big":9007199254740993}`; string(got.metadata) != want {
		t.Errorf("metadata %s, want %s", got.metadata, want)
	}
}

// TestInvalidParameters: what is refused, and the field that is named.
func TestInvalidParameters(t *testing.T) {
	send := func(p string) error { _, err := decodeSend([]byte(p)); return err }
	task := func(p string) error { _, err := decodeTask([]byte(p)); return err }
	list := func(p string) error { _, err := decodeList([]byte(p)); return err }
	for _, c := range []struct {
		decode        func(string) error
		params, field string
	}{
		{send, ``, "message"},
		{send, `{}`, "message"},
		{send, `[]`, ""},
		{send, `{"message":"hi"}`, "message"},
		{send, `{"message":{"role":"ROLE_USER","parts":[{"text":"x"}]}}`, "message.messageId"},
		{send, `{"message":{"messageId":"m","parts":[{"text":"x"}]}}`, "message.role"},
		{send, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`, "message.role"},
		{send, `{"message":{"messageId":"m","role":"user","parts":[{"text":"x"}]}}`, "message.role"},
		{send, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}`, "message.parts"},
		{send, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{}]}}`, "message.parts[0]"},
		{send, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":1}]}}`, "message.parts[0].text"},
		{send, `{"tenant":1,` + plainMessage + `}`, "tenant"},
		{send, `{"metadata":[],` + plainMessage + `}`, "metadata"},
		{send, `{"configuration":1,` + plainMessage + `}`, "configuration"},
		{send, `{"configuration":{"historyLength":-1},` + plainMessage + `}`, "configuration.historyLength"},
		{send, `{"configuration":{"historyLength":1.5},` + plainMessage + `}`, "configuration.historyLength"},
		{send, `{"configuration":{"historyLength":1,"history_length":2},` + plainMessage + `}`, "configuration.historyLength"},
		{send, `{"configuration":{"returnImmediately":"yes"},` + plainMessage + `}`, "configuration.returnImmediately"},
		{send, `{"configuration":{"acceptedOutputModes":"text/plain"},` + plainMessage + `}`, "configuration.acceptedOutputModes"},
		{send, `{"configuration":{"acceptedOutputModes":[1]},` + plainMessage + `}`, "configuration.acceptedOutputModes[0]"},

		{task, ``, "id"},
		{task, `{"id":""}`, "id"},
		{task, `{"id":7}`, "id"},
		{task, `{"id":"t","historyLength":-1}`, "historyLength"},
		{task, `{"id":"t","historyLength":"x"}`, "historyLength"},

		{list, `{"pageSize":-1}`, "pageSize"},
		{list, `{"pageSize":101}`, "pageSize"},
		{list, `{"pageSize":-1}`, "pageSize"},
		{list, `{"pageSize":1e99}`, "pageSize"},
		{list, `{"pageSize":{}}`, "pageSize"},
		{list, `{"status":"working"}`, "status"},
		{list, `{"status":"TASK_STATE_NOPE"}`, "status"},
		{list, `{"status":9}`, "status"},
		{list, `{"status":[]}`, "status"},
		{list, `{"statusTimestampAfter":"yesterday"}`, "statusTimestampAfter"},
		{list, `{"statusTimestampAfter":1700000000}`, "statusTimestampAfter"},
		{list, `{"includeArtifacts":1}`, "includeArtifacts"},
		{list, `{"contextId":1}`, "contextId"},
		{list, `{"pageToken":1}`, "pageToken"},
	} {
		var e *hub.Error
		if err := c.decode(c.params); !errors.As(err, &e) || e.Kind != hub.Invalid || e.Field != c.field {
			t.Errorf("%s\ngot %v, want Invalid at %q", c.params, err, c.field)
		}
	}
}

// TestLastEventID: what resumes a stream, and what is no event's id.
func TestLastEventID(t *testing.T) {
	for header, want := range map[string]int64{"": fromSnapshot, "0": 0, "17": 17} {
		if got, err := resumeAfter(header); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", header, got, err, want)
		}
	}
	for _, header := range []string{"x", "-1", "+1", "1.0", "1 ", "99999999999999999999", "\x00"} {
		if _, err := resumeAfter(header); hub.KindOf(err) != hub.Invalid || err == nil {
			t.Errorf("%q: %v, want Invalid", header, err)
		}
	}
}
