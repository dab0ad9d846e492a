package a2a

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// TestMessagesV03: a message in each older form is the same message of 1.0, and is
// shown again in each of them.
func TestMessagesV03(t *testing.T) {
	for _, c := range []struct {
		name, in  string
		form      form
		canonical string
		out       string // as the form shows it; empty if as it came, with the ids
	}{
		{
			name: "text", form: kinded,
			in:        `{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}`,
			canonical: `{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`,
			out:       `{"kind":"message","taskId":"T","contextId":"C","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"}]}`,
		}, {
			name: "everything", form: kinded,
			in: `{"messageId":"m","role":"user","metadata":{"n":9007199254740993,"\u0000":-0.0},"extensions":["urn:x"],"referenceTaskIds":["t0"],"unknown":[],"contextId":null,
				"parts":[{"kind":"file","file":{"uri":"/tmp/x.pdf","name":"x.pdf","mimeType":"application/pdf"},"metadata":{"a":1}},
				{"kind":"file","file":{"bytes":"_-8"}},{"kind":"data","data":{"n":123456789012345678901234567890,"e":1e400}}]}`,
			canonical: `{"messageId":"m","role":"ROLE_USER","parts":[{"url":"/tmp/x.pdf","mediaType":"application/pdf","filename":"x.pdf","metadata":{"a":1}},` +
				`{"raw":"/+8="},{"data":{"n":123456789012345678901234567890,"e":1e400}}],"metadata":{"n":9007199254740993,"\u0000":-0.0},"extensions":["urn:x"],"referenceTaskIds":["t0"]}`,
			out: `{"kind":"message","taskId":"T","contextId":"C","messageId":"m","role":"user","parts":[{"kind":"file","file":{"uri":"/tmp/x.pdf","mimeType":"application/pdf","name":"x.pdf"},"metadata":{"a":1}},` +
				`{"kind":"file","file":{"bytes":"/+8="}},{"kind":"data","data":{"n":123456789012345678901234567890,"e":1e400}}],"metadata":{"n":9007199254740993,"\u0000":-0.0},"extensions":["urn:x"],"referenceTaskIds":["t0"]}`,
		}, {
			name: "no kinds but on one part", form: kinded,
			in:        `{"messageId":"m","role":"user","parts":[{"text":"a"},{"kind":"text","text":"b","data":7}]}`,
			canonical: `{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"},{"text":"b"}]}`,
			out:       `{"kind":"message","taskId":"T","contextId":"C","messageId":"m","role":"user","parts":[{"kind":"text","text":"a"},{"kind":"text","text":"b"}]}`,
		}, {
			name: "data that is no object", form: kinded,
			in:        `{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true,"x":1}},{"kind":"data","data":{"value":9007199254740993},"metadata":{"data_part_compat":true}}]}`,
			canonical: `{"messageId":"m","role":"ROLE_USER","parts":[{"data":[1],"metadata":{"x":1}},{"data":9007199254740993}]}`,
			out:       `{"kind":"message","taskId":"T","contextId":"C","messageId":"m","role":"user","parts":[{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true,"x":1}},{"kind":"data","data":{"value":9007199254740993},"metadata":{"data_part_compat":true}}]}`,
		}, {
			name: "what is not quite of 0.3", form: kinded,
			in:        `{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":[1]},{"kind":"file","file":{"url":"u","sizeInBytes":7}}]}`,
			canonical: `{"messageId":"m","role":"ROLE_USER","parts":[{"data":[1]},{"url":"u"}]}`,
			out:       `{"kind":"message","taskId":"T","contextId":"C","messageId":"m","role":"user","parts":[{"kind":"data","data":{"value":[1]},"metadata":{"data_part_compat":true}},{"kind":"file","file":{"uri":"u"}}]}`,
		}, {
			name: "ProtoJSON", form: proto,
			in:        `{"message_id":"m","role":"ROLE_USER","content":[{"text":"hi"},{"file":{"fileWithUri":"u","mimeType":"a/b","name":"n"}},{"file":{"file_with_bytes":"AA=="}},{"data":{"data":{"n":9007199254740993}}},{"data":{}}],"extensions":[]}`,
			canonical: `{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"},{"url":"u","mediaType":"a/b","filename":"n"},{"raw":"AA=="},{"data":{"n":9007199254740993}},{"data":{}}]}`,
			out:       `{"taskId":"T","contextId":"C","messageId":"m","role":"ROLE_USER","content":[{"text":"hi"},{"file":{"fileWithUri":"u","mimeType":"a/b","name":"n"}},{"file":{"fileWithBytes":"AA=="}},{"data":{"data":{"n":9007199254740993}}},{"data":{"data":{}}}]}`,
		}, {
			name: "FastA2A 2", form: bare,
			in:        `{"messageId":"m","role":"user","parts":[{"text":"hi","mediaType":"text/x"},{"data":[9007199254740993]},{"url":"u","filename":"f"}]}`,
			canonical: `{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi","mediaType":"text/x"},{"data":[9007199254740993]},{"url":"u","filename":"f"}]}`,
			out:       `{"taskId":"T","contextId":"C","messageId":"m","role":"user","parts":[{"text":"hi","mediaType":"text/x"},{"data":[9007199254740993]},{"url":"u","filename":"f"}]}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := rawjson.Check([]byte(c.in), maxDepth); err != nil {
				t.Fatal(err)
			}
			m, f, err := parseMessageV03([]byte(c.in), "message")
			if err != nil || f != c.form || string(m.Body) != c.canonical {
				t.Fatalf("form %d, %v\n got %s\nwant %s", f, err, m.Body, c.canonical)
			}
			if got := f.appendMessage(nil, m.Body, "T", "C"); string(got) != c.out {
				t.Errorf("shown as\n     %s\nwant %s", got, c.out)
			}
		})
	}
}

// TestMessagesV03Refused: what is wrong is named as the client wrote it.
func TestMessagesV03Refused(t *testing.T) {
	for in, field := range map[string]string{
		`7`: "message",
		`{"kind":"message","messageId":"m","role":"user"}`:                                                              "message.parts",
		`{"kind":"task","messageId":"m","role":"user","parts":[{"kind":"text","text":""}]}`:                             "message.kind",
		`{"kind":"message","messageId":"m","role":"user","parts":[]}`:                                                   "message.parts",
		`{"kind":"message","messageId":"m","role":"user","parts":7}`:                                                    "message.parts",
		`{"kind":"message","messageId":"m","role":"user","parts":[7]}`:                                                  "message.parts[0]",
		`{"kind":"message","messageId":"m","role":"user","content":[{"text":"x"}],"parts":[]}`:                          "message",
		`{"kind":"message","role":"user","parts":[{"kind":"text","text":"x"}]}`:                                         "message.messageId",
		`{"kind":"message","messageId":"m","parts":[{"kind":"text","text":"x"}]}`:                                       "message.role",
		`{"kind":"message","messageId":"m","role":"system","parts":[{"kind":"text","text":"x"}]}`:                       "message.role",
		`{"kind":"message","messageId":"m","role":[],"parts":[{"kind":"text","text":"x"}]}`:                             "message.role",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","data":{}}]}`:                          "message.parts[0].text",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":7}]}`:                           "message.parts[0].text",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"image","text":"x"}]}`:                        "message.parts[0].kind",
		`{"kind":"message","messageId":"m","role":"user","parts":[{}]}`:                                                 "message.parts[0]",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"text":"a","data":{}}]}`:                             "message.parts[0]",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{}}]}`:                          "message.parts[0].file",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"uri":"u","bytes":""}}]}`:      "message.parts[0].file",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"uri":""}}]}`:                  "message.parts[0].file.uri",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"*"}}]}`:               "message.parts[0].file.bytes",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"uri":"u","mimeType":7}}]}`:    "message.parts[0].file.mimeType",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x","metadata":7}]}`:            "message.parts[0].metadata",
		`{"messageId":"m","role":"ROLE_USER","content":[{"file":{"fileWithBytes":"*"}}]}`:                               "message.content[0].file.fileWithBytes",
		`{"messageId":"m","role":"user","parts":[{"text":"x","url":"u"}]}`:                                              "message.parts[0]",
		`{"kind":"message","messageId":"m","message_id":"m","role":"user","parts":[{"kind":"text","text":"x"}]}`:        "message.messageId",
		`{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"data","data":{"value":null},"metadata":7}]}`: "message.parts[0].metadata",
	} {
		_, _, err := parseMessageV03([]byte(in), "message")
		var e *hub.Error
		if !errors.As(err, &e) || e.Kind != hub.Invalid || e.Field != field && !strings.HasSuffix(field, "messageId") {
			t.Errorf("%s\n got %v\nwant an error at %s", in, err, field)
		}
	}
}

// TestSendV03Configuration: whoever does not say wants to wait, but in ProtoJSON,
// which never writes false.
func TestSendV03Configuration(t *testing.T) {
	const message = `{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}`
	const content = `{"messageId":"m","role":"ROLE_USER","content":[{"text":"x"}]}`
	for _, c := range []struct {
		params      string
		in, form    form
		immediately bool
		history     int
		push        bool
	}{
		{params: `{"message":` + message + `}`, in: kinded, form: kinded, history: all},
		{params: `{"message":` + message + `,"configuration":null}`, in: kinded, form: kinded, history: all},
		{params: `{"message":` + message + `,"configuration":{"acceptedOutputModes":["a/b"]}}`, in: kinded, form: kinded, history: all},
		{params: `{"message":` + message + `,"configuration":{"blocking":true,"historyLength":2}}`, in: kinded, form: kinded, history: 2},
		{params: `{"message":` + message + `,"configuration":{"blocking":false,"historyLength":0}}`, in: kinded, form: kinded, immediately: true},
		{params: `{"message":` + message + `,"configuration":{"pushNotificationConfig":{"url":"u"}}}`, in: kinded, form: kinded, history: all, push: true},
		{params: `{"message":` + message + `}`, in: proto, form: kinded, history: all},
		{params: `{"message":` + content + `}`, in: proto, form: proto, history: all},
		{params: `{"request":` + content + `,"configuration":{}}`, in: proto, form: proto, immediately: true, history: all},
		{params: `{"message":` + content + `,"configuration":{"blocking":true,"historyLength":0}}`, in: proto, form: proto, history: all},
		{params: `{"message":` + content + `,"configuration":{"pushNotification":{"url":"u"}}}`, in: proto, form: proto, immediately: true, history: all, push: true},
		{params: `{"message":{"messageId":"m","role":"user","parts":[{"text":"x"}]}}`, in: kinded, form: bare, history: all},
	} {
		r, f, err := decodeSendV03([]byte(c.params), c.in)
		if err != nil || f != c.form || r.returnImmediately != c.immediately || r.history != c.history || (r.push != nil) != c.push {
			t.Errorf("%s in %d: form %d, %+v, %v", c.params, c.in, f, r, err)
		}
	}
	for params, field := range map[string]string{
		`{}`: "message", `[]`: "", `{"message":` + message + `,"configuration":{"blocking":"yes"}}`: "configuration.blocking",
		`{"message":` + message + `,"configuration":[]}`:                   "configuration",
		`{"message":` + message + `,"metadata":[]}`:                        "metadata",
		`{"message":` + strings.Replace(message, "user", "agent", 1) + `}`: "message.role",
		`{"request":` + message + `}`:                                      "message",
		`{"message":` + message + `,"configuration":{"historyLength":-1}}`: "configuration.historyLength",
	} {
		_, _, err := decodeSendV03([]byte(params), kinded)
		var e *hub.Error
		if !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v, want an error at %q", params, err, field)
		}
	}
}

// TestHistoryV03: once a task waits for nobody but its caller, its history ends with
// what the agent said last, and historyLength counts that too.
func TestHistoryV03(t *testing.T) {
	message := func(id string) []byte { return canon.TextMessage(id, true, id) }
	artifact := []byte(`{"artifactId":"a","parts":[{"text":"A"},{"data":7}]}`)
	for _, c := range []struct {
		name    string
		task    hub.Task
		history int
		want    string // ids of the messages, and the text of one of the hub's
	}{
		{"working", hub.Task{State: hub.Working, StatusMessage: message("half")}, all, "ask"},
		{"a question", hub.Task{State: hub.InputRequired, StatusMessage: message("q")}, all, "ask q"},
		{"credentials", hub.Task{State: hub.AuthRequired, StatusMessage: message("q")}, all, "ask q"},
		{"an artifact", hub.Task{State: hub.Completed, Artifacts: [][]byte{artifact, artifact}}, all, "ask T-answer"},
		{"a message", hub.Task{State: hub.Completed, StatusMessage: message("m")}, all, "ask m"},
		{"both", hub.Task{State: hub.Completed, StatusMessage: message("m"), Artifacts: [][]byte{artifact}}, all, "ask m T-answer"},
		{"failed halfway", hub.Task{State: hub.Failed, StatusMessage: message("why"), Artifacts: [][]byte{artifact}}, all, "ask why"},
		{"failed", hub.Task{State: hub.Failed, Error: "broken"}, all, "ask The task failed: broken"},
		{"nothing", hub.Task{State: hub.Completed}, all, "ask The task completed without a message."},
		{"canceled", hub.Task{State: hub.Canceled}, all, "ask The task was canceled."},
		{"the newest", hub.Task{State: hub.Completed, StatusMessage: message("m"), Artifacts: [][]byte{artifact}}, 1, "T-answer"},
		{"none", hub.Task{State: hub.Completed, Artifacts: [][]byte{artifact}}, 0, ""},
	} {
		c.task.ID, c.task.ContextID = "T", "C"
		c.task.History = []hub.Message{{Body: canon.TextMessage("ask", false, "ask")}}
		if c.history == 0 {
			c.task.History = nil
		}
		for _, f := range []form{kinded, proto, bare} {
			var got struct {
				History []struct {
					MessageID      string `json:"messageId"`
					Parts, Content []struct{ Text string }
				}
			}
			if err := json.Unmarshal(f.appendTask(nil, &c.task, c.history), &got); err != nil {
				t.Fatal(err)
			}
			var ids []string
			for _, m := range got.History {
				id := m.MessageID
				if parts := append(m.Parts, m.Content...); strings.HasPrefix(parts[0].Text, "The task") {
					id = parts[0].Text
				}
				ids = append(ids, id)
			}
			if s := strings.Join(ids, " "); s != c.want {
				t.Errorf("%s in form %d: %q, want %q", c.name, f, s, c.want)
			}
		}
	}
}

// TestEventsV03: events in each form.
func TestEventsV03(t *testing.T) {
	at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	status := &hub.Event{Kind: hub.StatusEvent, State: hub.InputRequired, At: at, Metadata: []byte(`{"n":9007199254740993}`)}
	canceled := &hub.Event{Kind: hub.StatusEvent, State: hub.Canceled, At: at}
	chunk := &hub.Event{Kind: hub.ArtifactEvent, Append: true, LastChunk: true, Body: []byte(`{"artifactId":"a","parts":[{"data":9007199254740993}]}`)}
	for _, c := range []struct {
		f     form
		e     *hub.Event
		final bool
		want  string
	}{
		{kinded, status, true, `{"kind":"status-update","taskId":"T","contextId":"C","status":{"state":"input-required","timestamp":"2026-01-31T12:00:00.000Z"},"final":true,"metadata":{"n":9007199254740993}}`},
		{kinded, canceled, false, `{"kind":"status-update","taskId":"T","contextId":"C","status":{"state":"canceled","timestamp":"2026-01-31T12:00:00.000Z"},"final":false}`},
		{kinded, chunk, false, `{"kind":"artifact-update","taskId":"T","contextId":"C","artifact":{"artifactId":"a","parts":[{"kind":"data","data":{"value":9007199254740993},"metadata":{"data_part_compat":true}}]},"append":true,"lastChunk":true}`},
		{proto, status, false, `{"statusUpdate":{"taskId":"T","contextId":"C","status":{"state":"TASK_STATE_INPUT_REQUIRED","timestamp":"2026-01-31T12:00:00.000Z"},"metadata":{"n":9007199254740993}}}`},
		{proto, canceled, true, `{"statusUpdate":{"taskId":"T","contextId":"C","status":{"state":"TASK_STATE_CANCELLED","timestamp":"2026-01-31T12:00:00.000Z"},"final":true}}`},
		{proto, chunk, false, `{"artifactUpdate":{"taskId":"T","contextId":"C","artifact":{"artifactId":"a","parts":[{"data":{"data":{"value":9007199254740993}},"metadata":{"data_part_compat":true}}]},"append":true,"lastChunk":true}}`},
		{bare, status, true, `{"statusUpdate":{"taskId":"T","contextId":"C","status":{"state":"input-required","timestamp":"2026-01-31T12:00:00.000Z"},"final":true,"metadata":{"n":9007199254740993}}}`},
		{bare, chunk, false, `{"artifactUpdate":{"taskId":"T","contextId":"C","artifact":{"artifactId":"a","parts":[{"data":9007199254740993}]},"append":true,"lastChunk":true}}`},
	} {
		if got := string(c.f.appendEvent(nil, "T", "C", c.e, c.final)); got != c.want {
			t.Errorf("form %d\n got %s\nwant %s", c.f, got, c.want)
		}
	}
}

// TestStreamEndsV03: a stream of 0.3 ends with the task, and with an open question.
func TestStreamEndsV03(t *testing.T) {
	task := func(s hub.State) frame { return frame{task: &hub.Task{State: s}} }
	status := func(s hub.State) frame { return frame{event: &hub.Event{Kind: hub.StatusEvent, State: s}} }
	artifact := frame{event: &hub.Event{Kind: hub.ArtifactEvent}}
	for _, c := range []struct {
		name        string
		frames      []frame
		sent        bool
		more, final bool
	}{
		{"working", []frame{status(hub.Working)}, true, true, false},
		{"a chunk", []frame{artifact}, true, true, false},
		{"asks", []frame{status(hub.Working), status(hub.InputRequired)}, true, false, true},
		{"wants credentials", []frame{status(hub.AuthRequired)}, false, false, true},
		{"has been answered", []frame{status(hub.InputRequired), status(hub.Working)}, false, true, false},
		{"ends", []frame{artifact, status(hub.Completed)}, true, false, true},
		{"begins with a question", []frame{task(hub.InputRequired)}, true, false, false},
		{"follows a question", []frame{task(hub.InputRequired)}, false, true, false},
		{"begins", []frame{task(hub.Submitted)}, true, true, false},
		{"nothing yet", nil, true, true, false},
	} {
		v := &viewV03{form: kinded, sent: c.sent}
		got := v.cut(batch{frames: c.frames, more: true})
		final := len(got.frames) > 0 && got.frames[len(got.frames)-1].final
		if got.more != c.more || final != c.final || len(got.frames) != len(c.frames) {
			t.Errorf("%s: more %t, final %t, %d frames", c.name, got.more, final, len(got.frames))
		}
	}
}

// TestBlockingV03: clients of 0.3 give up after 30 s, so they wait for 25 s at most,
// whatever the others are allowed.
func TestBlockingV03(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{0: 25 * time.Second, time.Hour: 25 * time.Second, time.Second: time.Second} {
		if got := newFace(Options{BlockingLimit: limit}).v03.blocking; got != want {
			t.Errorf("with a limit of %v: %v, want %v", limit, got, want)
		}
	}
}

// FuzzSendV03: whatever the parameters of a send of 0.3 are, they are refused as
// invalid, or give a canonical message that each form shows and reads again as the
// same.
func FuzzSendV03(f *testing.F) {
	for _, s := range []string{
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"hi"},{"kind":"file","file":{"uri":"/tmp/x.pdf","name":"n","mimeType":"t"}},{"kind":"file","file":{"bytes":"AA"}},{"kind":"data","data":{"a":[9007199254740993]},"metadata":{"x":null}}]},"configuration":{"blocking":true,"acceptedOutputModes":["x"],"historyLength":"3"}}`,
		`{"message":{"messageId":"m","role":"ROLE_USER","content":[{"text":"hi"},{"file":{"fileWithUri":"u"}},{"data":{"data":{}}}],"metadata":{"\ud83d\ude00":1e9}},"configuration":{}}`,
		`{"request":{"message_id":"m","role":1,"content":[{"data":{"data":{"value":7}},"metadata":{"data_part_compat":true,"y":0}}]}}`,
		`{"message":{"messageId":"m","role":"user","parts":[{"data":[1]},{"raw":"AA==","filename":"f"}],"referenceTaskIds":["a"],"extensions":["b"],"taskId":"t","contextId":"c"}}`,
		`{"message":{"kind":7}}`, `[]`, `{"message":{"parts":{}}}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, params []byte, rest bool) {
		if rawjson.Check(params, maxDepth-1) != nil {
			return
		}
		in := kinded
		if rest {
			in = proto
		}
		r, _, err := decodeSendV03(params, in)
		if err != nil {
			if hub.KindOf(err) != hub.Invalid {
				t.Fatalf("not the client's fault: %v", err)
			}
			return
		}
		again, err := canon.ParseMessage(r.message.Body, "", canon.Protocol)
		if err != nil || string(again.Body) != string(r.message.Body) {
			t.Fatalf("not canonical: %v\n%s\n%s", err, r.message.Body, again.Body)
		}
		for _, f := range []form{kinded, proto, bare} {
			showsAgain(t, f, r.message.Body)
		}
	})
}

// showsAgain checks that a canonical message, shown in a form, is JSON that the form
// reads as the same message.
func showsAgain(t *testing.T, f form, body []byte) {
	t.Helper()
	shown := f.appendMessage(nil, body, "", "")
	if err := rawjson.Check(shown, 2*maxDepth); err != nil {
		t.Fatalf("form %d is no JSON: %v\n%s", f, err, shown)
	}
	m, got, err := parseMessageV03(shown, "")
	if err != nil || got != f {
		t.Fatalf("form %d reads as %d: %v\n%s", f, got, err, shown)
	}
	// A form may have no place for some of it; what it has is a fixed point.
	if twice := f.appendMessage(nil, m.Body, "", ""); string(twice) != string(shown) {
		t.Fatalf("form %d shows\n%s\nand then\n%s", f, shown, twice)
	}
}
