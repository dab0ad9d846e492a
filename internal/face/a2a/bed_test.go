package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

// bed is a hub with one address to call, @coder, and two callers.
type bed struct {
	*testhub.Hub
	t      testing.TB
	coder  string // token of the callee
	caller string // token of a caller
	other  string // token of another caller
	client *http.Client
	speak  binding // in which call and stream speak
	handle string  // of the address that they call
}

func newBed(t testing.TB, change ...func(*config.Config)) *bed {
	t.Helper()
	h := testhub.Start(t, change...)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	t.Cleanup(client.CloseIdleConnections)
	return &bed{
		Hub: h, t: t, client: client, speak: jsonRPC, handle: "coder",
		coder: h.Agent("coder"), caller: h.Agent("caller"), other: h.Agent("other"),
	}
}

// at is the same hub, for calls to another address.
func (b *bed) at(handle string) *bed {
	other := *b
	other.handle = handle
	return &other
}

// task is a task as A2A shows it.
type task struct {
	ID        string
	ContextID string `json:"contextId"`
	Status    struct {
		State     string
		Message   json.RawMessage
		Timestamp string
	}
	History, Artifacts []json.RawMessage
	Metadata           json.RawMessage
}

// event is one StreamResponse.
type event struct {
	Task         *task
	StatusUpdate *struct {
		TaskID    string `json:"taskId"`
		ContextID string `json:"contextId"`
		Status    struct{ State string }
	} `json:"statusUpdate"`
	ArtifactUpdate *struct {
		TaskID   string `json:"taskId"`
		Append   bool
		Artifact struct {
			ArtifactID string `json:"artifactId"`
			Parts      []struct{ Text string }
		}
	} `json:"artifactUpdate"`
}

// state is the task's state after the event, empty if the event does not tell.
func (e event) state() string {
	switch {
	case e.Task != nil:
		return e.Task.Status.State
	case e.StatusUpdate != nil:
		return e.StatusUpdate.Status.State
	}
	return ""
}

// request makes a JSON-RPC request to @coder; headers are pairs of name and value.
func (b *bed) request(ctx context.Context, token, method, params string, headers ...string) *http.Request {
	b.t.Helper()
	r := jsonRPC.request(ctx, b, query{token: token, handle: "coder", op: method, params: params})
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// do performs a JSON-RPC request and reads its answer, which must be one.
func (b *bed) do(r *http.Request) answer {
	b.t.Helper()
	status, header, body := b.raw(r)
	return parseAnswer(b.t, status, header, body)
}

// raw performs a request and reads its whole answer.
func (b *bed) raw(r *http.Request) (int, http.Header, []byte) {
	b.t.Helper()
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res.StatusCode, res.Header, body
}

// call performs an operation that must not stream; headers are pairs of name and
// value.
func (b *bed) call(token, op, params string, headers ...string) answer {
	b.t.Helper()
	s, a := b.open(token, op, params, headers...)
	if s != nil {
		b.t.Fatalf("%s is answered by a stream", op)
	}
	return a
}

// open performs an operation, for its stream or else its answer.
func (b *bed) open(token, op, params string, headers ...string) (*stream, answer) {
	b.t.Helper()
	return b.speak.open(b.t.Context(), b, query{token, b.handle, op, params, headers})
}

// says reports whether the binding that the bed speaks has words for a request.
func (b *bed) says(op, params string) bool {
	b.t.Helper()
	if f, ok := b.speak.(*formerBinding); ok {
		return f.says(b.t, query{handle: b.handle, op: op, params: params})
	}
	g, ok := b.speak.(*grpcBinding)
	if !ok {
		return true
	}
	return g.request(b.t, query{handle: b.handle, op: op, params: params}, newMessage(b.t, g.methodOf(b.t, op).Input()))
}

// former reports whether the bed speaks 0.3.
func (b *bed) former() bool {
	_, ok := b.speak.(*formerBinding)
	return ok
}

// sameJSON compares two JSON texts, but for the order of members.
func sameJSON(a, b string) bool {
	read := func(s string) (v any) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return s
		}
		return v
	}
	return reflect.DeepEqual(read(a), read(b))
}

// decode gives the result, which must be one, as a T.
func decode[T any](t testing.TB, a answer) T {
	t.Helper()
	if a.Error != nil {
		t.Fatalf("refused: %d %s", a.Error.Code, a.Error.Message)
	}
	var v T
	if err := json.Unmarshal(a.Result, &v); err != nil {
		t.Fatalf("%v: %s", err, a.Result)
	}
	return v
}

// wantCode checks that a request was refused with a code.
func wantCode(t testing.TB, a answer, code int) {
	t.Helper()
	if a.Error == nil || a.Error.Code != code {
		t.Errorf("got %.300s, want error %d", a.Body, code)
	}
}

// message is the parameters of a send with one text; more are members of the
// message, and of the parameters, in front of it.
func message(text, inMessage, inParams string) string {
	return fmt.Sprintf(`{%s"message":{%s"messageId":"m-%s","role":"ROLE_USER","parts":[{"text":%q}]}}`, inParams, inMessage, text, text)
}

const immediately = `"configuration":{"returnImmediately":true},`

// send sends a new task without waiting for it.
func (b *bed) send(token, text string) task {
	b.t.Helper()
	return decode[struct{ Task task }](b.t, b.call(token, "SendMessage", message(text, "", immediately))).Task
}

// get reads a task as its caller.
func (b *bed) get(id string) task {
	b.t.Helper()
	return decode[task](b.t, b.call(b.caller, "GetTask", fmt.Sprintf(`{"id":%q}`, id)))
}

// v1 makes a request to /v1 as the callee.
func (b *bed) v1(method, path string, body, into any) int {
	b.t.Helper()
	var payload io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		payload = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+"/v1/agents/me/tasks/"+path, payload)
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.coder)
	r.Header.Set("Content-Type", "application/json")
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if into != nil && res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(data, into); err != nil {
			b.t.Fatalf("%v: %s", err, data)
		}
	}
	if res.StatusCode >= 400 && res.StatusCode != http.StatusConflict {
		b.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, data)
	}
	return res.StatusCode
}

// next claims the callee's next task, for which it waits.
func (b *bed) next() wire.Task {
	b.t.Helper()
	var t wire.Task
	if status := b.v1("GET", "next?wait=20", nil, &t); status != http.StatusOK {
		b.t.Fatalf("no task to claim: %d", status)
	}
	return t
}

// finish reports a result for a claimed task.
func (b *bed) finish(id, state string, artifact string) {
	b.t.Helper()
	r := wire.Result{State: state}
	if artifact != "" {
		r.Artifacts = []wire.Artifact{{ArtifactID: "out", Parts: []wire.Part{{Text: &artifact}}}}
	}
	if state == "input_required" {
		question := "which one?"
		r.Message = &wire.Message{Role: "agent", Parts: []wire.Part{{Text: &question}}}
	}
	b.v1("POST", id+"/result", r, nil)
}

// chunk reports one chunk of the artifact "out".
func (b *bed) chunk(id, text string, more bool) {
	b.t.Helper()
	b.v1("POST", id+"/events", wire.EventsRequest{Events: []wire.Event{{
		Artifact: &wire.Artifact{ArtifactID: "out", Parts: []wire.Part{{Text: &text}}}, Append: more,
	}}}, nil)
}

// stream is an open stream, whatever the binding.
type stream struct {
	t      testing.TB
	header http.Header
	cancel context.CancelFunc
	// recv waits for what comes next, a StreamResponse or an error, and the number
	// that it came with; ok is false at the orderly end of the stream.
	recv func() (id string, a answer, ok bool)
}

// stream opens a stream; what is not one is a failure of the test.
func (b *bed) stream(token, op, params string, headers ...string) *stream {
	b.t.Helper()
	s, a := b.open(token, op, params, headers...)
	if s == nil {
		b.t.Fatalf("no stream but %d %s", a.Status, a.Body)
	}
	watch := time.AfterFunc(time.Minute, s.cancel) // a hang fails the test
	b.t.Cleanup(func() { watch.Stop() })
	return s
}

// next reads the next event and the id that it came with.
func (s *stream) next() (id string, e event, ok bool) {
	s.t.Helper()
	id, a, ok := s.recv()
	if !ok {
		return "", event{}, false
	}
	return id, decode[event](s.t, a), true
}

// states reads the stream to its end and gives what it told, each as "id:STATE" or
// "id:text" of an artifact.
func (s *stream) states() []string {
	s.t.Helper()
	var all []string
	for {
		id, e, ok := s.next()
		if !ok {
			return all
		}
		what := strings.TrimPrefix(e.state(), "TASK_STATE_")
		if e.ArtifactUpdate != nil {
			what = e.ArtifactUpdate.Artifact.Parts[0].Text
		}
		if e.Task != nil {
			what = "task " + what
		}
		all = append(all, id+":"+what)
	}
}
