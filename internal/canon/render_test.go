package canon

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/wire"
)

func at123(s int) time.Time { return time.Date(2026, 5, 6, 7, 8, s, 123e6, time.UTC) }

const (
	question = `{"messageId":"m3","role":"ROLE_AGENT","parts":[{"text":"which?"}],"metadata":{"mediaType":1}}`
	firstMsg = `{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hi","mediaType":"text/plain"},{"data":{"mediaType":9007199254740993,"s":"\u0000\ud83d\ude00"},"metadata":{"roleId":1}}],"extensions":["urn:x"],"referenceTaskIds":["t0"]}`
	artifact = `{"artifactId":"a1","name":"n","description":"d","parts":[{"raw":"AQ==","mediaType":"image/png","filename":"f"},{"url":"https://x/"}],"metadata":{"artifactId":"z"},"extensions":["urn:y"]}`
)

// fullTask is a task with everything set.
func fullTask() *hub.Task {
	return &hub.Task{
		ID: "t1", ContextID: `c"1`, Caller: hub.Party{ID: "ida", Handle: "ann"}, Callee: hub.Party{ID: "idb", Handle: "bob"},
		State: hub.InputRequired, StateAt: at123(9), StatusMessage: []byte(question), Phase: hub.Leased, Seq: 7, Error: "why",
		Tags: []byte(`{"k":"v"}`), Metadata: []byte(`{"big":9007199254740993}`),
		ParentTask: "pt", ParentCall: "pc", Run: "run", RequeueOf: "old",
		Trace:   "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Attempt: 2, Failures: 1, LeaseUntil: at123(30), Deadline: at123(50), CancelOutcome: hub.CancelConfirmed,
		CreatedAt: at123(1), ClaimedAt: at123(2), EndedAt: at123(3), ReadAt: at123(4), LastPolledAt: at123(5), PollCount: 6,
		History: []hub.Message{
			{N: 1, Body: []byte(firstMsg)},
			{N: 2, FromCallee: true, Body: []byte(`{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"on it"}]}`)},
		},
		Artifacts: [][]byte{[]byte(artifact)},
	}
}

// bareTask is a task with nothing set that need not be.
func bareTask() *hub.Task {
	return &hub.Task{
		ID: "t1", ContextID: "c1", Caller: hub.Party{ID: "ida", Handle: "ann"}, Callee: hub.Party{ID: "idb", Handle: "bob"},
		State: hub.Submitted, Phase: hub.Ready, Seq: 1, Run: "t1", CreatedAt: at123(1), StateAt: at123(1), LeaseUntil: at123(30),
	}
}

func TestAppendTimeHasExactlyMilliseconds(t *testing.T) {
	zone := time.FixedZone("x", 3600)
	for in, want := range map[time.Time]string{
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC):        `"2026-01-02T03:04:05.000Z"`,
		time.Date(2026, 1, 2, 3, 4, 5, 120e6, time.UTC):    `"2026-01-02T03:04:05.120Z"`,
		time.Date(2026, 1, 2, 0, 4, 5, 999_999_999, zone):  `"2026-01-01T23:04:05.999Z"`,
		time.Date(2026, 12, 31, 23, 59, 59, 1e6, time.UTC): `"2026-12-31T23:59:59.001Z"`,
	} {
		if got := string(AppendTime(nil, in)); got != want {
			t.Errorf("%v: got %s, want %s", in, got, want)
		}
	}
}

func TestAppendMessagePutsTheTaskIn(t *testing.T) {
	body := []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`)
	for _, tt := range []struct{ task, context, want string }{
		{"t", "c", `{"taskId":"t","contextId":"c","messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`},
		{"", `c"`, `{"contextId":"c\"","messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`},
		{"", "", string(body)},
	} {
		if got := string(AppendMessage(nil, body, tt.task, tt.context)); got != tt.want {
			t.Errorf("got %s, want %s", got, tt.want)
		}
	}
}

func TestAppendTaskIsAnA2ATask(t *testing.T) {
	const messageTail = `"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"on it"}]}`
	want := `{"id":"t1","contextId":"c\"1","status":{"state":"TASK_STATE_INPUT_REQUIRED",` +
		`"message":{"taskId":"t1","contextId":"c\"1",` + question[1:] + `,"timestamp":"2026-05-06T07:08:09.123Z"},` +
		`"artifacts":[` + artifact + `],` +
		`"history":[{"taskId":"t1","contextId":"c\"1",` + firstMsg[1:] + `,{"taskId":"t1","contextId":"c\"1",` + messageTail + `],` +
		`"metadata":{"big":9007199254740993}}`
	got := AppendTask(nil, fullTask())
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	var task a2a.Task
	mustDecode(t, got, &task)
	if task.ID != "t1" || task.ContextID != `c"1` || task.Status.State != a2a.TaskStateInputRequired || !task.Status.Timestamp.Equal(at123(9)) {
		t.Errorf("read as %+v", task)
	}
	if len(task.History) != 2 || task.History[0].ReferenceTasks[0] != "t0" || task.History[0].TaskID != "t1" || task.History[1].Role != a2a.MessageRoleAgent {
		t.Errorf("history read as %+v", task.History)
	}
	if p := task.Artifacts[0].Parts; string(p[0].Raw()) != "\x01" || p[0].MediaType != "image/png" || p[0].Filename != "f" || p[1].URL() != "https://x/" {
		t.Errorf("parts read as %+v", p)
	}
	if task.Status.Message.Parts[0].Text() != "which?" || task.Status.Message.ContextID != `c"1` {
		t.Errorf("status message read as %+v", task.Status.Message)
	}
}

func TestAppendTaskLeavesOutWhatWasNotLoaded(t *testing.T) {
	want := `{"id":"t1","contextId":"c1","status":{"state":"TASK_STATE_SUBMITTED","timestamp":"2026-05-06T07:08:01.123Z"}}`
	if got := string(AppendTask(nil, bareTask())); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	loaded := bareTask()
	loaded.History, loaded.Artifacts = []hub.Message{}, [][]byte{}
	if got := string(AppendTask(nil, loaded)); !strings.HasSuffix(got, `,"artifacts":[],"history":[]}`) {
		t.Errorf("loaded and empty: %s", got)
	}
}

func TestAppendStreamResponse(t *testing.T) {
	for _, tt := range []struct {
		name  string
		event hub.Event
		want  string
		check func(t *testing.T, e a2a.Event)
	}{
		{"status", hub.Event{Kind: hub.StatusEvent, State: hub.Working, At: at123(1), Body: []byte(question), Metadata: []byte(`{"a":1}`)},
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"taskId":"t","contextId":"c",` + question[1:] + `,"timestamp":"2026-05-06T07:08:01.123Z"},"metadata":{"a":1}}}`,
			func(t *testing.T, e a2a.Event) {
				u := e.(*a2a.TaskStatusUpdateEvent)
				if u.TaskID != "t" || u.ContextID != "c" || u.Status.State != a2a.TaskStateWorking || u.Status.Message.ID != "m3" || u.Metadata["a"] != 1.0 {
					t.Errorf("read as %+v", u)
				}
			}},
		{"bare status", hub.Event{Kind: hub.StatusEvent, State: hub.Completed, At: at123(1)},
			`{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","timestamp":"2026-05-06T07:08:01.123Z"}}}`, nil},
		{"artifact", hub.Event{Kind: hub.ArtifactEvent, ArtifactID: "a1", Body: []byte(artifact), Append: true, LastChunk: true, Metadata: []byte(`{"a":1}`)},
			`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":` + artifact + `,"append":true,"lastChunk":true,"metadata":{"a":1}}}`,
			func(t *testing.T, e a2a.Event) {
				u := e.(*a2a.TaskArtifactUpdateEvent)
				if u.TaskID != "t" || u.Artifact.ID != "a1" || !u.Append || !u.LastChunk {
					t.Errorf("read as %+v", u)
				}
			}},
		{"bare artifact", hub.Event{Kind: hub.ArtifactEvent, ArtifactID: "a1", Body: []byte(artifact)},
			`{"artifactUpdate":{"taskId":"t","contextId":"c","artifact":` + artifact + `}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := AppendStreamResponse(nil, "t", "c", &tt.event)
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Error(diff)
			}
			var r a2a.StreamResponse
			mustDecode(t, got, &r)
			if tt.check != nil {
				tt.check(t, r.Event)
			}
		})
	}
}

func mustDecode(t *testing.T, raw []byte, v any) {
	t.Helper()
	if err := rawjson.Check(raw, 64); err != nil {
		t.Fatalf("not valid JSON: %v\n%s", err, raw)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
}

// TestAppendTaskV1IsAWireTask holds that what is rendered by hand is what
// encoding/json makes of wire.Task: no member more, none fewer, none different.
func TestAppendTaskV1IsAWireTask(t *testing.T) {
	ready := fullTask()
	ready.Phase = hub.Ready
	unclaimed := fullTask()
	unclaimed.Attempt = 0
	tail := fullTask()
	tail.History = tail.History[1:]
	for name, tt := range map[string]struct {
		task *hub.Task
		view V1View
	}{
		"full, for the callee": {fullTask(), V1View{ForCallee: true, Hint: "h", Delivery: "pull"}},
		"full, for the caller": {fullTask(), V1View{Delivery: "pull"}},
		"bare":                 {bareTask(), V1View{Delivery: "pull"}},
		"ready":                {ready, V1View{ForCallee: true, Delivery: "webhook"}},
		"unclaimed":            {unclaimed, V1View{ForCallee: true, Delivery: "pull"}},
		"without the input":    {tail, V1View{Delivery: "pull"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := AppendTaskV1(nil, tt.task, tt.view)
			var w wire.Task
			mustDecode(t, got, &w)
			again, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(decode(t, again), decode(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAppendTaskV1Full(t *testing.T) {
	want := `{"id":"t1","context_id":"c\"1","state":"input_required",` +
		`"status":{"state":"input_required","message":{"message_id":"m3","role":"agent","parts":[{"text":"which?"}],"metadata":{"mediaType":1}},"timestamp":"2026-05-06T07:08:09.123Z"},` +
		`"delivery":"pull","input":{"message":FIRST},` +
		`"history":[FIRST,{"message_id":"m2","role":"agent","parts":[{"text":"on it"}]}],` +
		`"artifacts":[{"artifact_id":"a1","name":"n","description":"d","parts":[{"raw":"AQ==","media_type":"image/png","filename":"f"},{"url":"https://x/"}],"metadata":{"artifactId":"z"},"extensions":["urn:y"]}],` +
		`"error":"why","tags":{"k":"v"},"metadata":{"big":9007199254740993},` +
		`"call_id":"t1","parent_call_id":"pc","root_call_id":"run","run_id":"run","parent_task_id":"pt","trace_id":"4bf92f3577b34da6a3ce929d0e0e4736","requeue_of":"old",` +
		`"caller_agent_id":"ida","callee_agent_id":"idb","caller":"ann","callee":"bob",` +
		`"claim_id":"t1.2","attempt":2,"failures":1,"lease_expires_at":"2026-05-06T07:08:30.123Z","deadline":"2026-05-06T07:08:50.123Z",` +
		`"dispatch_state":"leased","cancel_outcome":"confirmed","remote_task_id":null,"hint":"h",` +
		`"created_at":"2026-05-06T07:08:01.123Z","claimed_at":"2026-05-06T07:08:02.123Z","completed_at":"2026-05-06T07:08:03.123Z",` +
		`"read_at":"2026-05-06T07:08:04.123Z","last_polled_at":"2026-05-06T07:08:05.123Z","poll_count":6}`
	first := `{"message_id":"m1","role":"user","parts":[{"text":"hi","media_type":"text/plain"},{"data":{"mediaType":9007199254740993,"s":"\u0000\ud83d\ude00"},"metadata":{"roleId":1}}],"extensions":["urn:x"],"reference_task_ids":["t0"]}`
	want = strings.ReplaceAll(want, "FIRST", first)
	got := AppendTaskV1(nil, fullTask(), V1View{ForCallee: true, Hint: "h", Delivery: "pull"})
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
}

func TestAppendTaskV1Bare(t *testing.T) {
	want := `{"id":"t1","context_id":"c1","state":"submitted","status":{"state":"submitted","timestamp":"2026-05-06T07:08:01.123Z"},"delivery":"pull",` +
		`"error":null,"call_id":"t1","parent_call_id":null,"root_call_id":"t1","run_id":"t1","parent_task_id":null,"trace_id":null,` +
		`"caller_agent_id":"ida","callee_agent_id":"idb","caller":"ann","callee":"bob","attempt":0,"failures":0,"lease_expires_at":null,` +
		`"dispatch_state":"ready","remote_task_id":null,"created_at":"2026-05-06T07:08:01.123Z","claimed_at":null,"completed_at":null,` +
		`"read_at":null,"last_polled_at":null,"poll_count":0}`
	if diff := cmp.Diff(want, string(AppendTaskV1(nil, bareTask(), V1View{ForCallee: true, Delivery: "pull"}))); diff != "" {
		t.Error(diff)
	}
}

func TestAppendNumberedMessageV1(t *testing.T) {
	m := hub.Message{N: 4, Body: []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}`)}
	got := AppendNumberedMessageV1(nil, &m)
	if want := `{"n":4,"message_id":"m","role":"user","parts":[{"text":"x"}]}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var w wire.HeartbeatMessage
	mustDecode(t, got, &w)
}

func TestTraceIDOfOddTraceparentsIsNone(t *testing.T) {
	for _, s := range []string{"", "x", "00-4bf92f3577b34da6a3ce929d0e0e4736", strings.Repeat("a", 55)} {
		if got := traceID(s); got != "" {
			t.Errorf("traceID(%q) = %q", s, got)
		}
	}
}

func BenchmarkAppendTaskV1(b *testing.B) {
	m, err := ParseMessage(message1K(), "", Protocol)
	if err != nil {
		b.Fatal(err)
	}
	task := fullTask()
	task.History = []hub.Message{{N: 1, Body: m.Body}}
	dst := AppendTaskV1(nil, task, V1View{Delivery: "pull"})
	b.SetBytes(int64(len(dst)))
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendTaskV1(dst[:0], task, V1View{Delivery: "pull"})
	}
}
