package v1_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/engine"
	v1 "github.com/holdfast-hub/holdfast/internal/face/v1"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

// who is a client of a hub with a token. All that the hub answers to it is held to
// the OpenAPI document.
type who struct {
	t     testing.TB
	url   string
	token string
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// start starts a hub and gives its administrator.
func start(t testing.TB, change ...func(*config.Config)) (*testhub.Hub, who) {
	t.Helper()
	h := testhub.Start(t, change...)
	return h, who{t, h.URL, h.AdminToken}
}

// agent creates an open address and gives its client.
func agent(t testing.TB, h *testhub.Hub, handle string) who {
	t.Helper()
	return who{t, h.URL, h.Agent(handle)}
}

// request makes a request; headers are name and value in turn.
func (w who) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	w.t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, w.url+path, content)
	if err != nil {
		w.t.Fatal(err)
	}
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// do sends a request and reads the answer.
func (w who) do(method, path, body string, headers ...string) reply {
	w.t.Helper()
	a, err := w.try(w.request(w.t.Context(), method, path, body, headers...))
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func (w who) try(r *http.Request) (reply, error) {
	w.t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return reply{}, err
	}
	a := reply{res.StatusCode, res.Header, string(body)}
	checkAnswer(w.t, r, a)
	return a, nil
}

// want is do for an answer with a certain status.
func (w who) want(status int, method, path, body string, headers ...string) reply {
	w.t.Helper()
	a := w.do(method, path, body, headers...)
	if a.status != status {
		w.t.Fatalf("%s %s: %d %s; want %d", method, path, a.status, a.body, status)
	}
	return a
}

// task is want for 200 with a task.
func (w who) task(method, path, body string, headers ...string) wire.Task {
	w.t.Helper()
	return decode[wire.Task](w.t, w.want(200, method, path, body, headers...))
}

// send sends a text and gives the task.
func (w who) send(to, text string) wire.Task {
	w.t.Helper()
	return w.task("POST", "/v1/agents/"+to+"/tasks", message(text))
}

// next claims the next task, which must be there.
func (w who) next() wire.Task {
	w.t.Helper()
	return w.task("GET", "/v1/agents/me/tasks/next?wait=20", "")
}

// result reports a result of a task.
func (w who) result(id, body string, headers ...string) wire.Task {
	w.t.Helper()
	return w.task("POST", "/v1/agents/me/tasks/"+id+"/result", body, headers...)
}

// message is the body of a send with a text.
func message(text string) string {
	b, _ := json.Marshal(wire.SendRequest{Message: wire.Message{Role: "user", Parts: []wire.Part{{Text: &text}}}})
	return string(b)
}

const done = `{"state":"completed","artifacts":[{"name":"response","parts":[{"text":"done"}]}]}`

func decode[T any](t testing.TB, a reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// refused checks an error answer: its status, its code and the field it names.
func refused(t testing.TB, a reply, status int, code, field string) {
	t.Helper()
	e := decode[wire.ErrorBody](t, a).Error
	got, _ := e.Details["field"].(string)
	if a.status != status || e.Code != code || got != field || e.Message == "" {
		t.Errorf("%d %s, field %q (%s); want %d %s, field %q", a.status, e.Code, got, e.Message, status, code, field)
	}
}

// document is the OpenAPI document with the routes it describes.
type document struct {
	doc *huma.OpenAPI
	mux *http.ServeMux
}

// described reads the document once for all tests.
var described = sync.OnceValue(func() document {
	d := document{
		doc: v1.Document(v1.Options{Engine: engine.New(engine.Options{}), Identity: identity.New(identity.Options{})}),
		mux: http.NewServeMux(),
	}
	for path, item := range d.doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				d.mux.Handle(op.Method+" "+path, http.NotFoundHandler())
			}
		}
	}
	return d
})

// operation finds what the document says of a request, nil for a route that it does
// not have.
func (d document) operation(r *http.Request) *huma.Operation {
	_, pattern := d.mux.Handler(r)
	method, path, _ := strings.Cut(pattern, " ")
	item := d.doc.Paths[path]
	if item == nil {
		return nil
	}
	return map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "PUT": item.Put, "PATCH": item.Patch, "DELETE": item.Delete}[method]
}

// timePattern is how times look: UTC with milliseconds.
var timePattern = regexp.MustCompile(`"[a-z_]+(_at|stamp)":("\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"|null)`)

var anyTime = regexp.MustCompile(`"[a-z_]+(_at|stamp)":`)

// checkAnswer holds an answer to the document.
func checkAnswer(t testing.TB, r *http.Request, a reply) {
	t.Helper()
	if a.status >= 500 {
		t.Errorf("%s %s: %d %s", r.Method, r.URL, a.status, a.body)
	}
	if a.header.Get("X-Request-Id") == "" {
		t.Errorf("%s %s: no request id", r.Method, r.URL)
	}
	d := described()
	op := d.operation(r)
	if op == nil {
		return
	}
	res := op.Responses[strconv.Itoa(a.status)]
	if res == nil && a.status >= 400 {
		res = op.Responses["default"]
	}
	if res == nil {
		t.Errorf("%s %s: the status %d is not described", r.Method, r.URL, a.status)
		return
	}
	media := res.Content["application/json"]
	if media == nil {
		if len(res.Content) == 0 && a.body != "" {
			t.Errorf("%s %s: a body where none is described: %s", r.Method, r.URL, a.body)
		}
		return
	}
	checkBody(t, d, r, media.Schema, a)
}

func checkBody(t testing.TB, d document, r *http.Request, schema *huma.Schema, a reply) {
	t.Helper()
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s %s: Content-Type %q", r.Method, r.URL, got)
	}
	if schema == nil {
		return
	}
	var v any
	if err := json.NewDecoder(bytes.NewReader([]byte(a.body))).Decode(&v); err != nil {
		t.Errorf("%s %s: %v in %q", r.Method, r.URL, err, a.body)
		return
	}
	var res huma.ValidateResult
	huma.Validate(d.doc.Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, v, &res)
	for _, err := range res.Errors {
		t.Errorf("%s %s: the answer is not as described: %v in %s", r.Method, r.URL, err, a.body)
	}
	if len(anyTime.FindAllString(a.body, -1)) != len(timePattern.FindAllString(a.body, -1)) {
		t.Errorf("%s %s: a time is not UTC with milliseconds: %s", r.Method, r.URL, a.body)
	}
}
