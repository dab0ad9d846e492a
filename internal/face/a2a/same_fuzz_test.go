package a2a_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// fuzzedOps are the operations that FuzzSameAnswer tries.
var fuzzedOps = []string{
	"SendMessage", "GetTask", "CancelTask", "ListTasks", "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig",
	"ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig",
}

// sameSeeds are parameters for each of fuzzedOps, in the placeholders of sameBed.
func sameSeeds() [][]string {
	withMessage := func(inMessage string) string {
		return `{"message":{"messageId":"m","role":"ROLE_USER",` + inMessage + `}}`
	}
	withParts := func(parts string) string { return withMessage(`"parts":[` + parts + `]`) }
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	const x = `"parts":[{"text":"x"}]`
	sends := []string{
		`{}`, `null`, `[]`, `7`, `{"message":7}`, `{"message":{}}`, withMessage(x), withMessage(`"parts":[]`), withMessage(`"parts":{}`), withMessage(`"parts":[7]`),
		// what a part may be
		withParts(`{}`), withParts(`{"text":""}`), withParts(`{"text":null}`), withParts(`{"text":7}`), withParts(`{"text":"x","url":"y"}`), withParts(`{"text":"a"},{"text":"b","data":1}`),
		withParts(`{"data":null}`), withParts(`{"data":{}},{"data":{"value":1}},{"data":[1,{"a":null}]},{"data":"x"},{"data":false}`), withParts(`{"data":{"data":{"data":1}},"metadata":{"a":1}},{"data":1,"metadata":{"a":1}}`),
		withParts(`{"raw":"AA==","mediaType":"a/b","filename":"f"},{"url":"u"}`), withParts(`{"raw":"!"}`), withParts(`{"raw":"AA"}`), withParts(`{"raw":""}`), withParts(`{"url":""}`), withParts(`{"raw":"AA==","url":"u"}`),
		withParts(`{"text":"x","mediaType":"text/plain"}`), withParts(`{"raw":"AA==","mediaType":7}`), withParts(`{"text":"x","metadata":[]}`), withParts(`{"kind":"text","text":"x"}`),
		// texts and numbers
		withParts(`{"text":"a\u0000b \ud83c\udf78 \u2028<"}`), withParts(`{"text":"\ud800"}`), withMessage(x + `,"metadata":{"\ud800":1}`), withMessage(x + `,"metadata":{"a":1,"a":2}`), withMessage(x + `,"role":"ROLE_USER"`),
		withMessage(x + `,"metadata":{"n":[9007199254740993,1e300,-0,1.50,123456789012345678901234567890]}`), withMessage(x + `,"metadata":{"k\u0000":{}}`), withMessage(x + `,"metadata":{"x":1e400}`), "{\"message\":{\"messageId\":\"\xff\"}}",
		withMessage(x + `,"metadata":` + strings.Repeat(`{"a":`, 50) + `1` + strings.Repeat(`}`, 50)), withMessage(x + `,"metadata":{"x":` + nested(70) + `}`),
		// names, ids and roles
		withMessage(x + `,"unknown":[{}]`), withMessage(x + `,"contextId":"c"`), withMessage(x + `,"contextId":"` + strings.Repeat("c", 300) + `"`), withMessage(x + `,"context_id":"c"`), withMessage(x + `,"context_id":"c","contextId":"c"`),
		withMessage(x + `,"taskId":"none"`), withMessage(x + `,"taskId":"TASK"`), withMessage(x + `,"taskId":"DONE"`), withMessage(x + `,"taskId":"FOREIGN"`), withMessage(x + `,"taskId":"TASK","contextId":"other"`), withMessage(x + `,"taskId":""`),
		`{"message":{"role":"ROLE_USER",` + x + `}}`, `{"message":{"messageId":"","role":"ROLE_USER",` + x + `}}`, `{"message":{"messageId":"a\u0007","role":"ROLE_USER",` + x + `}}`, `{"message":{"messageId":"m",` + x + `}}`,
		`{"message":{"messageId":"m","role":"ROLE_AGENT",` + x + `}}`, `{"message":{"messageId":"m","role":1,` + x + `}}`, `{"message":{"messageId":"m","role":"ROLE_UNSPECIFIED",` + x + `}}`, `{"message":{"messageId":"m","role":[],` + x + `}}`,
		withMessage(x + `,"extensions":["urn:a"],"referenceTaskIds":["DONE"]`), withMessage(x + `,"extensions":"urn:a"`), withMessage(x + `,"extensions":[""]`), withMessage(x + `,"referenceTaskIds":[7]`),
	}
	plain := withMessage(x)
	for _, more := range []string{
		`"metadata":{"x":1.5}`, `"metadata":[]`, `"metadata":{}`, `"tenant":"coder"`, `"tenant":"other"`, `"tenant":7`, `"configuration":[]`, `"configuration":{"returnImmediately":"yes"}`,
		`"configuration":{"historyLength":-1}`, `"configuration":{"historyLength":0}`, `"configuration":{"historyLength":1e99}`, `"configuration":{"acceptedOutputModes":["x"]}`, `"configuration":{"acceptedOutputModes":[1]}`,
		`"configuration":{"taskPushNotificationConfig":{"url":"HOOK"}}`, `"configuration":{"taskPushNotificationConfig":{"url":"HOOK","id":"c","token":"t","authentication":{"scheme":"Bearer","credentials":"s"}}}`,
		`"configuration":{"taskPushNotificationConfig":{"url":"http://10.0.0.1/"}}`, `"configuration":{"taskPushNotificationConfig":{"url":"HOOK","taskId":"DONE"}}`, `"configuration":{"taskPushNotificationConfig":7}`,
	} {
		sends = append(sends, plain[:len(plain)-1]+","+more+"}")
	}
	onTask := []string{
		`{"id":"TASK"}`, `{"id":"DONE"}`, `{"id":"FOREIGN"}`, `{"id":"x/y z:cancel"}`, `{"id":"tasks/x"}`, `{"id":"DONE","historyLength":1}`, `{"id":"TASK","historyLength":-1}`, `{"id":"TASK","metadata":{"a":1}}`, `{"id":"TASK","tenant":"other"}`, `{"id":"\u0000"}`,
	}
	ref := []string{
		`{"taskId":"TASK","id":"c"}`, `{"taskId":"TASK"}`, `{"taskId":"FOREIGN","id":"c"}`, `{"taskId":"none","id":"a/b"}`, `{"taskId":"TASK","tenant":"other","id":"c"}`,
	}
	return [][]string{
		sends, append(onTask, `{}`), onTask,
		{`{}`, `{"pageSize":101}`, `{"status":"TASK_STATE_WORKING"}`, `{"status":42}`, `{"pageToken":"x"}`, `{"statusTimestampAfter":"2026-01-01T00:00:00.5Z","includeArtifacts":true}`},
		{
			`{"taskId":"TASK","url":"HOOK"}`, `{"taskId":"TASK","id":"c","url":"HOOK","token":"t","authentication":{"scheme":"Bearer","credentials":"s"}}`, `{"taskId":"TASK"}`, `{"taskId":"TASK","url":7}`, `{"taskId":"FOREIGN","url":"HOOK"}`,
			`{"taskId":"TASK","url":"http://127.0.0.1:80/"}`, `{"taskId":"TASK","url":"HOOK","token":"a\nb"}`, `{"taskId":"TASK","url":"HOOK","authentication":{"scheme":"a b"}}`, `{"taskId":"TASK","url":"HOOK","authentication":7}`, `{"url":"HOOK"}`,
		},
		ref, ref, ref,
	}
}

// FuzzSameAnswer: whatever parameters an operation gets, all six bindings refuse them for
// the same reason, or do the same; what is refused leaves nothing behind, and what is
// accepted is there as a whole.
func FuzzSameAnswer(f *testing.F) {
	for op, all := range sameSeeds() {
		for _, params := range all {
			f.Add(byte(op), params)
		}
	}
	b := newSameBed(f)
	f.Fuzz(func(t *testing.T, which byte, params string) {
		op := fuzzedOps[int(which)%len(fuzzedOps)]
		params, ok := sayable(op, params)
		if !ok {
			t.Skip("no two bindings have words for it")
		}
		b.compare(t, op, params)
	})
}

// sayable makes parameters such that a send does not wait, and reports whether they
// mean the same in the URLs of HTTP+JSON, and make the hub ask nobody outside.
func sayable(op, params string) (string, bool) {
	outside := strings.NewReplacer("http://10.0.0.1/", "", "http://127.0.0.1:80/", "").Replace(params)
	if !json.Valid([]byte(params)) || strings.Contains(strings.ToLower(outside), "http") {
		return "", false
	}
	p := object(params)
	if rawjson.Check([]byte(params), deepest) != nil || p == nil {
		return params, op == "SendMessage"
	}
	if op == "SendMessage" {
		c, isObject := p["configuration"].(map[string]any)
		if p["configuration"] == nil {
			c, isObject = map[string]any{}, true
			p["configuration"] = c
		}
		if _, isBool := c["returnImmediately"].(bool); isObject && (isBool || c["returnImmediately"] == nil) {
			c["returnImmediately"] = true
		}
	}
	return text(p), !otherInREST(op, p)
}

// sameBed is a bed for comparisons. In parameters, DONE is a task that has ended,
// FOREIGN one of another caller, TASK one that is new for each binding, and HOOK a
// receiver of notifications.
type sameBed struct {
	*bed
	done, foreign, hook string
}

func newSameBed(f *testing.F) *sameBed {
	b := newBed(f, localHooks, shortBlocking)
	s := &sameBed{bed: b, done: b.send(b.caller, "done").ID}
	b.next()
	b.finish(s.done, "completed", "out")
	s.foreign = b.send(b.other, "foreign").ID
	s.hook = receiveAll(f)
	return s
}

// outcome is what came of a request, without what differs by right.
type outcome struct {
	reason string // of its error
	made   int    // how many tasks more there are
	result string
	task   string // what there is of the task that it was about
}

// compare asks over every binding, and compares what comes of it.
func (b *sameBed) compare(t *testing.T, op, params string) {
	t.Helper()
	on := *b
	on.bed = &bed{}
	*on.bed = *b.bed
	on.t = t
	var first *outcome
	by := ""
	for _, speak := range six() {
		former := slices.ContainsFunc(formers, func(f *formerBinding) bool { return binding(f) == speak })
		if former && op == "ListTasks" {
			continue // there is none
		}
		got, said := on.try(speak, op, params)
		switch {
		case !said:
			continue
		case first == nil:
			first, by = &got, speak.name()
		}
		if ownHistory(query{params: params}) && former || op == "ListTasks" {
			got.result = first.result
		}
		if got != *first {
			t.Errorf("%s %.1000q\n%s: %+v\n%s: %+v", op, params, by, *first, speak.name(), got)
		}
	}
}

// try asks over one binding, and cleans up. It reports whether there were words for it.
func (b *sameBed) try(speak binding, op, params string) (outcome, bool) {
	b.t.Helper()
	task := ""
	if strings.Contains(params, "TASK") {
		task = b.send(b.caller, "open").ID
		defer b.call(b.caller, "CancelTask", subscribe(task))
	}
	asked := strings.NewReplacer("TASK", task, "DONE", b.done, "FOREIGN", b.foreign, "HOOK", b.hook).Replace(params)
	before := *b.list(`{"pageSize":1}`).TotalSize
	s, a := speak.open(b.t.Context(), b.bed, query{token: b.caller, handle: "coder", op: op, params: asked})
	if s != nil {
		b.t.Fatalf("%s is answered by a stream", op)
	}
	if a.Unsaid {
		return outcome{}, false
	}
	got := outcome{made: *b.list(`{"pageSize":1}`).TotalSize - before}
	if a.Error != nil {
		got.reason = a.Error.reason()
		withoutInternals(b.t, a.Error.Message, asked)
	} else if got.result = b.same(a.Result); op == "SendMessage" {
		if sent := b.sent(a, asked); sent != task {
			task = sent
			defer b.call(b.caller, "CancelTask", subscribe(task))
		}
	}
	if wanted := op == "SendMessage" && a.Error == nil && !strings.Contains(asked, `"taskId":"`+task+`"`); got.made != map[bool]int{true: 1}[wanted] {
		b.t.Errorf("%s over %s made %d tasks: %.1000q, answered by %.300s", op, speak.name(), got.made, asked, a.Body)
	}
	if task != "" {
		got.task = b.whole(task)
	}
	return got, true
}

// sent checks that what was sent is there as a whole, and gives the task's id.
func (b *sameBed) sent(a answer, asked string) string {
	b.t.Helper()
	id := decode[struct{ Task task }](b.t, a).Task.ID
	now := b.get(id)
	var want struct{ Message struct{ MessageID string } }
	type message struct {
		MessageID, TaskID, ContextID string
		Parts                        []any
	}
	var last message
	if len(now.History) > 0 {
		_ = json.Unmarshal(now.History[len(now.History)-1], &last)
	}
	_ = json.Unmarshal([]byte(asked), &want)
	if now.ID != id || now.ContextID == "" || now.Status.State == "" || last.TaskID != id || last.ContextID != now.ContextID || len(last.Parts) == 0 ||
		want.Message.MessageID != "" && last.MessageID != want.Message.MessageID {
		b.t.Errorf("half a task: %+v, sent by %.1000q", now, asked)
	}
	return id
}

// whole is all that there is of a task: itself, and where its notifications go.
func (b *sameBed) whole(id string) string {
	b.t.Helper()
	all := b.same(b.call(b.caller, "GetTask", subscribe(id)).Result)
	configs, _ := b.listPushes(on(id, `{"taskId":"TASK"}`))
	for _, c := range configs {
		all += fmt.Sprintf(" %s %+v", c.URL, c.Authentication != nil)
	}
	return all
}

// same is JSON with its members in order, numbers as protobuf has them, and without
// what is made anew each time: ids, and times. An id of a configuration that nobody
// named is the hub's.
func (b *sameBed) same(raw json.RawMessage) string {
	b.t.Helper()
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		b.t.Fatalf("%v: %s", err, raw)
	}
	plain := strings.ReplaceAll(text(asProto(v)), `"id":"default"`, `"id":"00000000-0000-0000-0000-000000000000"`)
	return masked(plain)
}

func asProto(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseFloat(string(v), 64); err == nil {
			return n
		}
	case []any:
		for i := range v {
			v[i] = asProto(v[i])
		}
	case map[string]any:
		for name, value := range v {
			if list, isList := value.([]any); isList && len(list) == 0 {
				delete(v, name)
				continue
			}
			v[name] = asProto(value)
		}
	}
	return v
}

// internals are words that no error of the hub has, unless it repeats them.
var internals = regexp.MustCompile(`(?i)sqlite|\bsql\b|panic|goroutine|runtime error|internal error|\.go:\d|nil pointer|no such table|constraint`)

// withoutInternals checks that an error says nothing of the hub's inside.
func withoutInternals(t testing.TB, message, asked string) {
	t.Helper()
	if word := internals.FindString(message); word != "" && !strings.Contains(asked, word) {
		t.Errorf("an internal error: %s", message)
	}
}

// audit looks after the tasks of a fuzzed hub.
type audit struct {
	b     *bed
	total int
}

// after checks what a request has left: nothing if it was refused, and otherwise no
// more than one task, which is whole.
func (a *audit) after(t *testing.T, refused bool) {
	t.Helper()
	on := *a.b
	on.t = t
	var page struct {
		Tasks     []task
		TotalSize int
	}
	if err := json.Unmarshal(on.call(on.caller, "ListTasks", `{"pageSize":3}`).Result, &page); err != nil {
		t.Fatal(err)
	}
	made := page.TotalSize - a.total
	a.total = page.TotalSize
	if made > 1 || made > 0 && refused {
		t.Errorf("%d tasks more; refused: %v", made, refused)
	}
	for _, got := range page.Tasks {
		if got.ID == "" || got.ContextID == "" || got.Status.State == "" || len(got.History) == 0 {
			t.Errorf("half a task: %+v", got)
		}
	}
}

// otherInREST reports whether parameters become others in HTTP+JSON: where what belongs
// into the path is not there, and where a query, which has nothing but text, says less
// than JSON.
func otherInREST(op string, p map[string]any) bool {
	var inPath []string
	switch op {
	case "GetTask", "CancelTask":
		inPath = []string{"id"}
	case "ListTaskPushNotificationConfigs", "CreateTaskPushNotificationConfig":
		inPath = []string{"taskId"}
	case "GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig":
		inPath = []string{"taskId", "id"}
	}
	for _, name := range inPath {
		if s, _ := p[name].(string); strings.Trim(s, ".") == "" {
			return true
		}
	}
	if op == "SendMessage" || op == "CancelTask" || op == "CreateTaskPushNotificationConfig" {
		return false // the rest is in the body
	}
	for name, v := range p {
		_, isText := v.(string)
		_, isBool := v.(bool)
		if v == "" || v == nil || isBool != strings.HasPrefix(name, "include") || !isText && !isBool && !strings.HasSuffix(name, "ize") && !strings.HasSuffix(name, "ength") && name != "status" {
			return true
		}
	}
	return false
}
