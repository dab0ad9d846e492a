package a2a_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/holdfast-hub/holdfast/internal/config"
)

// binding is a way to speak A2A to the hub, in the terms of version 1.0: parameters
// and results are its messages in ProtoJSON, and errors have its reasons, whatever
// goes over the wire.
type binding interface {
	name() string
	// open performs an operation. It gives a stream if that is what came back, and
	// otherwise the answer.
	open(ctx context.Context, b *bed, q query) (*stream, answer)
}

// six are all bindings of both versions.
func six() []binding {
	all := slices.Clone(bindings)
	for _, speak := range formers {
		all = append(all, speak)
	}
	return all
}

// query is what a test asks of an address.
type query struct {
	token, handle, op, params string
	headers                   []string // pairs of name and value
}

// bindings are all that the hub speaks in 1.0; formers has those of 0.3.
var bindings = []binding{jsonRPC, rest, grpcV1}

// semantics are the tests of what operations do, each on a hub of its own, over
// each binding.
var semantics = []struct {
	name   string // with the section of the specification, if it follows one
	change func(*config.Config)
	test   func(*testing.T, *bed)
}{
	{"3.2.2 blocking send", nil, testBlockingSend},
	{"3.2.2 blocking send returns at a question", nil, testBlockingSendReturnsAtQuestion},
	{"3.2.2 blocking limit", shortBlocking, testBlockingLimit},
	{"3.2.2 return immediately", nil, testReturnImmediately},
	{"3.2.4 history length", nil, testHistoryLength},
	{"3.4 references", nil, testReferences},
	{"13.1 foreign task is missing", nil, testForeignTaskIsMissing},
	{"13.1 not permitted", nil, testNotPermitted},
	{"7.4 unauthenticated", nil, testUnauthenticated},
	{"tenant", nil, testTenant},
	{"idempotency key", nil, testIdempotencyKey},
	{"lineage", nil, testLineage},
	{"3.3.4 not supported", noPush, testNotSupported},
	{"3.1.7 create push configuration", localHooks, testPushCreate},
	{"3.1.7 refused push configuration", localHooks, testPushRefused},
	{"3.1.8 get push configuration", localHooks, testPushGet},
	{"3.1.9 list push configurations", localHooks, testPushList},
	{"3.1.10 delete push configuration", localHooks, testPushDelete},
	{"4.3.3 push configuration with a message", localHooks, testPushInline},
	{"4.3.3 push configuration with a stream or an answer", localHooks, testPushInlineStream},
	{"3.2.2 refused push configuration with a message", localHooks, testPushInlineRefused},
	{"4.4.3 push capability", nil, testPushCard},
	{"rate limit", lowRate, testRateLimit},
	{"payloads survive", nil, testPayloadsSurvive},
	{"3.1.4 list tasks", nil, testListTasks},
	{"3.1.5 cancel", nil, testCancel},
	{"3.1.5 cancel races result", nil, testCancelRacesResult},
	{"3.1.2 streaming send", nil, testStreamingSend},
	{"3.1.2 streaming send that ends at once", nil, testStreamingSendThatEndsAtOnce},
	{"3.1.6 subscribe", nil, testSubscribe},
	{"3.1.6 subscribe to an ended task", nil, testSubscribeToEndedTask},
	{"stream errors are plain", nil, testStreamErrorsArePlain},
	{"resume", nil, testResume},
	{"subscribe races completion", nil, testSubscribeRacesCompletion},
	{"client that goes", nil, testClientThatGoes},
	{"revocation ends a stream", nil, testRevocationEndsStream},
	{"shutdown ends streams", nil, testShutdownEndsStreams},
}

// TestSemantics: every operation does the same over every binding.
func TestSemantics(t *testing.T) {
	for _, speak := range six() {
		_, former := speak.(*formerBinding)
		for _, c := range semantics {
			if _, skip := notFormer[c.name]; former && skip {
				continue
			}
			t.Run(speak.name()+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				var change []func(*config.Config)
				if c.change != nil {
					change = append(change, c.change)
				}
				b := newBed(t, change...)
				b.speak = speak
				c.test(t, b)
			})
		}
	}
}

// answer is what came back for a request.
type answer struct {
	Status int // of HTTP; 0 within a stream
	Header http.Header
	Body   string          // as it came
	ID     json.RawMessage // JSON-RPC's
	Result json.RawMessage // nil with an Error
	Error  *rpcError
	// Unsaid: nothing was asked, because the binding has no words for the request.
	Unsaid bool
}

// rpcError is an error, of any binding.
type rpcError struct {
	Code    int // the binding's own
	Status  string
	Message string
	Data    []errorDetail
}

type errorDetail struct {
	Type            string `json:"@type"`
	Reason, Domain  string
	Metadata        map[string]string
	FieldViolations []fieldViolation
}

type fieldViolation struct{ Field, Description string }

// reason is what the error is, in every binding.
func (e *rpcError) reason() string {
	if len(e.Data) == 0 {
		return ""
	}
	return e.Data[0].Reason
}

// field is the parameter that the error names.
func (e *rpcError) field() string {
	for _, d := range e.Data {
		if len(d.FieldViolations) > 0 {
			return d.FieldViolations[0].Field
		}
	}
	return ""
}

// wantReason checks that a request was refused for a reason.
func wantReason(t testing.TB, a answer, reason string) {
	t.Helper()
	if a.Unsaid {
		return
	}
	if a.Error == nil || a.Error.reason() != reason {
		t.Errorf("got %.300s, want %s", a.Body, reason)
	}
}

// numbers are the binding's own numbers for each reason (spec section 5.4): the code
// and HTTP status of JSON-RPC, the status and name of HTTP+JSON, and the code of gRPC.
var numbers = map[string]struct {
	code, rpcStatus, restStatus int
	name                        string
	grpc                        codes.Code
}{
	"TASK_NOT_FOUND":                  {-32001, 200, 404, "NOT_FOUND", codes.NotFound},
	"TASK_NOT_CANCELABLE":             {-32002, 200, 400, "FAILED_PRECONDITION", codes.FailedPrecondition},
	"PUSH_NOTIFICATION_NOT_SUPPORTED": {-32003, 200, 400, "FAILED_PRECONDITION", codes.FailedPrecondition},
	"UNSUPPORTED_OPERATION":           {-32004, 200, 400, "FAILED_PRECONDITION", codes.FailedPrecondition},
	"CONTENT_TYPE_NOT_SUPPORTED":      {-32005, 200, 415, "INVALID_ARGUMENT", codes.InvalidArgument},
	"EXTENSION_SUPPORT_REQUIRED":      {-32008, 200, 400, "FAILED_PRECONDITION", codes.FailedPrecondition},
	"VERSION_NOT_SUPPORTED":           {-32009, 200, 400, "FAILED_PRECONDITION", codes.FailedPrecondition},
	"PARSE_ERROR":                     {-32700, 200, 400, "INVALID_ARGUMENT", codes.InvalidArgument},
	"INVALID_REQUEST":                 {-32600, 200, 400, "INVALID_ARGUMENT", codes.InvalidArgument},
	"METHOD_NOT_FOUND":                {-32601, 200, 404, "NOT_FOUND", codes.Unimplemented},
	"METHOD_NOT_ALLOWED":              {-32601, 200, 405, "UNIMPLEMENTED", codes.Unimplemented},
	"INVALID_PARAMS":                  {-32602, 200, 400, "INVALID_ARGUMENT", codes.InvalidArgument},
	"IDEMPOTENCY_KEY_REUSED":          {-32602, 200, 409, "ALREADY_EXISTS", codes.InvalidArgument},
	"CONFLICT":                        {-32602, 200, 409, "ABORTED", codes.Aborted},
	"TOO_LARGE":                       {-32602, 413, 413, "RESOURCE_EXHAUSTED", codes.ResourceExhausted},
	"UNAUTHENTICATED":                 {-31401, 401, 401, "UNAUTHENTICATED", codes.Unauthenticated},
	"UNAUTHORIZED":                    {-31403, 403, 403, "PERMISSION_DENIED", codes.PermissionDenied},
	"RATE_LIMITED":                    {-31429, 429, 429, "RESOURCE_EXHAUSTED", codes.ResourceExhausted},
	"UNAVAILABLE":                     {-31503, 503, 503, "UNAVAILABLE", codes.Unavailable},
}

// httpBinding is a binding of plain HTTP with server-sent events.
type httpBinding struct {
	title   string
	request func(context.Context, *bed, query) *http.Request
	// parse reads a body, or one event of a stream, for which status is 0.
	parse func(t testing.TB, status int, header http.Header, body []byte) answer
}

func (h *httpBinding) name() string { return h.title }

func (h *httpBinding) open(ctx context.Context, b *bed, q query) (*stream, answer) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r := h.request(ctx, b, q)
	if q.token != "" {
		r.Header.Set("Authorization", "Bearer "+q.token)
	}
	for i := 0; i < len(q.headers); i += 2 {
		r.Header.Set(q.headers[i], q.headers[i+1])
	}
	res, err := b.client.Do(r)
	if err != nil {
		cancel()
		b.t.Fatal(err)
	}
	if res.Header.Get("Content-Type") != "text/event-stream" {
		defer cancel()
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			b.t.Fatal(err)
		}
		return nil, h.parse(b.t, res.StatusCode, res.Header, body)
	}
	b.t.Cleanup(func() { cancel(); res.Body.Close() })
	events := sse{t: b.t, lines: bufio.NewReaderSize(res.Body, 64<<10)}
	return &stream{t: b.t, header: res.Header, cancel: cancel, recv: func() (string, answer, bool) {
		b.t.Helper()
		id, data, ok := events.next()
		if !ok {
			return "", answer{}, false
		}
		return id, h.parse(b.t, 0, nil, []byte(data)), true
	}}, answer{}
}

// sse reads server-sent events.
type sse struct {
	t     testing.TB
	lines *bufio.Reader
}

// next reads the next event; ok is false at the orderly end of the stream.
func (s *sse) next() (id, data string, ok bool) {
	s.t.Helper()
	for {
		line, err := s.lines.ReadString('\n')
		if err == io.EOF && line == "" && data == "" {
			return "", "", false
		}
		if err != nil {
			s.t.Fatalf("the stream broke: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "" && data != "":
			return id, data, true
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "data: "):
			data += line[6:]
		case line == "" || strings.HasPrefix(line, ":"):
		default:
			s.t.Fatalf("unexpected line %q", line)
		}
	}
}

// jsonRPC is spec section 9.
var jsonRPC = &httpBinding{title: "JSONRPC", parse: parseAnswer, request: func(ctx context.Context, b *bed, q query) *http.Request {
	b.t.Helper()
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"q","method":%q,"params":%s}`, q.op, q.params)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/a/"+q.handle, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}}

// parseAnswer checks that a body is a JSON-RPC response: a version, an id, and
// either a result or an error with its numbers.
func parseAnswer(t testing.TB, status int, header http.Header, body []byte) answer {
	t.Helper()
	a := answer{Status: status, Header: header, Body: string(body)}
	var envelope struct {
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  json.RawMessage `json:"result"`
		Error   *rpcError       `json:"error"`
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		t.Fatalf("status %d, not JSON: %v\n%.500s", status, err, body)
	}
	if envelope.JSONRPC != "2.0" || envelope.ID == nil || (envelope.Result == nil) == (envelope.Error == nil) {
		t.Fatalf("status %d, not a JSON-RPC response: %.500s", status, body)
	}
	if e := envelope.Error; e != nil {
		checkError(t, e, body)
		if want := numbers[e.reason()]; e.Code != want.code || status != 0 && status != want.rpcStatus {
			t.Fatalf("status %d, want %+v: %.500s", status, want, body)
		}
	}
	a.ID, a.Result, a.Error = envelope.ID, envelope.Result, envelope.Error
	return a
}

// checkError checks that an error says what it is, as every binding does (spec
// section 5.4).
func checkError(t testing.TB, e *rpcError, body []byte) {
	t.Helper()
	if len(e.Data) == 0 || e.Data[0].Domain != "a2a-protocol.org" || numbers[e.reason()].code == 0 || e.Message == "" {
		t.Fatalf("an error without a known ErrorInfo: %.500s", body)
	}
}

// rest is HTTP+JSON, spec section 11.
var rest = &httpBinding{title: "HTTP+JSON", parse: parseREST, request: func(ctx context.Context, b *bed, q query) *http.Request {
	b.t.Helper()
	return newREST(ctx, b, q.handle, q.op, q.params)
}}

// newREST spells an operation as HTTP+JSON: what belongs into the path goes there,
// and the rest into the query or the body.
func newREST(ctx context.Context, b *bed, handle, op, params string) *http.Request {
	b.t.Helper()
	p := map[string]json.RawMessage{}
	_ = json.Unmarshal([]byte(params), &p) // what is no object has nothing for the path
	segment := func(name string) string {
		defer delete(p, name)
		return url.PathEscape(plain(p[name]))
	}
	method, path := http.MethodGet, ""
	switch op {
	case "SendMessage":
		method, path = http.MethodPost, "message:send"
	case "SendStreamingMessage":
		method, path = http.MethodPost, "message:stream"
	case "ListTasks":
		path = "tasks"
	case "GetTask":
		path = "tasks/" + strings.ReplaceAll(segment("id"), ":", "%3A")
	case "CancelTask":
		method, path = http.MethodPost, "tasks/"+segment("id")+":cancel"
	case "SubscribeToTask":
		method, path = http.MethodPost, "tasks/"+segment("id")+":subscribe"
	case "GetExtendedAgentCard":
		path = "extendedAgentCard"
	case "ListTaskPushNotificationConfigs":
		path = "tasks/" + segment("taskId") + "/pushNotificationConfigs"
	case "CreateTaskPushNotificationConfig":
		method, path = http.MethodPost, "tasks/"+segment("taskId")+"/pushNotificationConfigs"
	case "GetTaskPushNotificationConfig":
		path = "tasks/" + segment("taskId") + "/pushNotificationConfigs/" + segment("id")
	case "DeleteTaskPushNotificationConfig":
		method, path = http.MethodDelete, "tasks/"+segment("taskId")+"/pushNotificationConfigs/"+segment("id")
	default:
		b.t.Fatalf("HTTP+JSON has no %s", op)
	}
	var body io.Reader
	switch {
	case strings.HasPrefix(op, "Send"):
		body = strings.NewReader(params)
	case method == http.MethodPost && len(p) > 0:
		data, err := json.Marshal(p)
		if err != nil {
			b.t.Fatal(err)
		}
		body = bytes.NewReader(data)
	case len(p) > 0:
		query := url.Values{}
		for name, value := range p {
			query.Set(name, plain(value))
		}
		path += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, b.URL+"/a/"+handle+"/"+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// plain is a JSON value as a URL has it: a string without its quotes.
func plain(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// parseREST checks that a body is a result, or an error with its numbers (spec
// section 11.6).
func parseREST(t testing.TB, status int, header http.Header, body []byte) answer {
	t.Helper()
	a := answer{Status: status, Header: header, Body: string(body)}
	var failed struct {
		Error *struct {
			Code            int
			Status, Message string
			Details         json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &failed); err != nil {
		t.Fatalf("status %d, not a JSON object: %v\n%.500s", status, err, body)
	}
	if (status >= 400) != (failed.Error != nil) && status != 0 {
		t.Fatalf("status %d: %.500s", status, body)
	}
	if failed.Error == nil {
		a.Result = body
		return a
	}
	e := &rpcError{Code: failed.Error.Code, Status: failed.Error.Status, Message: failed.Error.Message}
	if err := json.Unmarshal(failed.Error.Details, &e.Data); err != nil {
		t.Fatalf("details: %v: %.500s", err, body)
	}
	checkError(t, e, body)
	if want := numbers[e.reason()]; e.Code != want.restStatus || e.Status != want.name || status != 0 && status != e.Code {
		t.Fatalf("status %d, want %+v: %.500s", status, want, body)
	}
	a.Error = e
	return a
}
