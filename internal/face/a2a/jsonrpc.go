package a2a

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

const (
	// maxDepth is how deep a request may be nested: 64 levels of payload inside of
	// the envelope and its params.
	maxDepth = 64 + 2
	// maxID bounds a request's id, in bytes. Every event of a stream repeats it, so
	// without a bound a stranger could make the hub send megabytes for each.
	maxID = 256
)

// request is a JSON-RPC request. Its id is kept as it was written, because the
// answer must carry the same one: 1 is not 1.0.
type request struct {
	id     []byte
	method string
	params []byte
}

// readRequest checks a body and takes the envelope apart (JSON-RPC 2.0 section 4,
// A2A section 9). The request has its id whenever the body told one, also with an
// error, so that the error can be answered under it.
func readRequest(body []byte) (request, error) {
	if err := rawjson.Check(body, maxDepth); err != nil {
		return unreadable(body, err)
	}
	switch rawjson.KindOf(body) {
	case rawjson.Object:
	case rawjson.Array:
		return request{}, &fault{reason: invalidRequest, message: "A2A has no batches: send each request by itself"}
	default:
		return request{}, &fault{reason: invalidRequest, message: "a request is a JSON object"}
	}
	e := envelopeOf(body)
	req := request{params: e.params}
	if err := req.setID(e.id); err != nil {
		return req, err
	}
	if version, err := rawjson.Text(e.jsonrpc); err != nil || version != "2.0" {
		return req, &fault{reason: invalidRequest, message: `the request must say "jsonrpc":"2.0"`}
	}
	method, err := rawjson.Text(e.method)
	if err != nil || method == "" {
		return req, &fault{reason: invalidRequest, message: "the request must name its method, as a string"}
	}
	req.method = method
	return req, nil
}

// envelope is the members of a request as they were written, nil where missing.
type envelope struct{ jsonrpc, id, method, params []byte }

// envelopeOf picks the members of a request that passed rawjson.Check.
func envelopeOf(body []byte) envelope {
	var e envelope
	_ = rawjson.Members(body, func(name string, value []byte) error {
		switch name {
		case "jsonrpc":
			e.jsonrpc = value
		case "id":
			e.id = value
		case "method":
			e.method = value
		case "params":
			e.params = value
		}
		return nil
	})
	return e
}

// setID takes over an id if it is one. A2A knows no notifications, so a request
// without an id is answered all the same, as one with the id null is.
func (r *request) setID(id []byte) error {
	switch {
	case id == nil:
		return nil
	case len(id) > maxID:
		return &fault{reason: invalidRequest, message: "the request's id is longer than 256 bytes"}
	}
	switch rawjson.KindOf(id) {
	case rawjson.String, rawjson.Number, rawjson.Null:
		r.id = id
		return nil
	}
	return &fault{reason: invalidRequest, message: "the request's id must be a string, a number or null"}
}

// unreadable says what is wrong with a body that rawjson.Check refused. One that is
// JSON all the same, with a lone surrogate say, or nested too deeply, is invalid
// rather than unparsable, and is answered under its id.
func unreadable(body []byte, cause error) (request, error) {
	var at *rawjson.Error
	if !errors.As(cause, &at) {
		return request{}, cause
	}
	if !json.Valid(body) || !utf8.Valid(body) {
		return request{}, &fault{reason: parseError, message: "the body is not JSON: " + at.Error()}
	}
	var e struct {
		ID json.RawMessage `json:"id"`
	}
	var req request
	if json.Unmarshal(body, &e) == nil && rawjson.Check(e.ID, 0) == nil {
		_ = req.setID(e.ID)
	}
	if path, found := strings.CutPrefix(at.Path, "params"); found {
		return req, &fault{reason: invalidParams, message: at.Msg, field: strings.TrimPrefix(path, ".")}
	}
	return req, &fault{reason: invalidRequest, message: at.Error()}
}

// rpcBinding answers one JSON-RPC request (spec section 9), under its id.
type rpcBinding struct{ id []byte }

func (b rpcBinding) open(dst []byte) []byte           { return appendResponse(dst, b.id, "result") }
func (b rpcBinding) end(dst []byte) []byte            { return append(dst, '}') }
func (b rpcBinding) fail(dst []byte, f *fault) []byte { return appendError(dst, b.id, f) }
func (b rpcBinding) media() string                    { return "application/json" }
func (b rpcBinding) status(r reason) int              { _, status := codeOf(r); return status }

// appendResponse begins a JSON-RPC response: everything up to its result or error,
// which the caller appends, and then a closing brace.
func appendResponse(dst, id []byte, member string) []byte {
	if id == nil {
		id = []byte("null")
	}
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = append(dst, id...)
	dst = append(dst, `,"`...)
	dst = append(dst, member...)
	return append(dst, `":`...)
}

// appendError appends a whole response with an error (spec section 9.5).
func appendError(dst, id []byte, f *fault) []byte {
	code, _ := codeOf(f.reason)
	body := rpcError{Code: code, Message: f.message, Data: details(f)}
	text, err := json.Marshal(body)
	if err != nil { // strings and numbers alone: cannot happen
		text = []byte(`{"code":-32603,"message":"internal error"}`)
	}
	dst = appendResponse(dst, id, "error")
	dst = append(dst, text...)
	return append(dst, '}')
}

type rpcError struct {
	Code    int      `json:"code"`
	Message string   `json:"message"`
	Data    []detail `json:"data,omitempty"`
}

// detail is one of google.rpc's error details in ProtoJSON: an ErrorInfo or a
// BadRequest.
type detail struct {
	Type            string            `json:"@type"`
	Reason          reason            `json:"reason,omitempty"`
	Domain          string            `json:"domain,omitempty"`
	Metadata        map[string]string `json:"metadata,omitempty"`
	FieldViolations []fieldViolation  `json:"fieldViolations,omitempty"`
}

type fieldViolation struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

// details is the error's data: what it is, and which field is at fault.
func details(f *fault) []detail {
	data := []detail{{
		Type: "type.googleapis.com/google.rpc.ErrorInfo", Reason: f.reason,
		Domain: errorDomain, Metadata: f.metadata,
	}}
	if f.field != "" {
		data = append(data, detail{
			Type:            "type.googleapis.com/google.rpc.BadRequest",
			FieldViolations: []fieldViolation{{Field: f.field, Description: f.message}},
		})
	}
	return data
}

// codeOf gives the JSON-RPC code of an error (spec sections 5.4 and 9.5; the codes
// from -31401 on are Holdfast's where the specification has none) and the HTTP
// status that goes with it. The status is 200 for what the protocol itself can say,
// and tells only what proxies, limiters and browsers have to know.
func codeOf(r reason) (code, status int) {
	switch r {
	case taskNotFound:
		return -32001, 200
	case taskNotCancelable:
		return -32002, 200
	case pushNotSupported:
		return -32003, 200
	case unsupportedOperation:
		return -32004, 200
	case contentTypeUnsupported:
		return -32005, 200
	case extendedCardNotConfigured:
		return -32007, 200
	case extensionRequired:
		return -32008, 200
	case versionNotSupported:
		return -32009, 200
	case parseError:
		return -32700, 200
	case invalidRequest:
		return -32600, 200
	case methodNotFound, methodNotAllowed:
		return -32601, 200
	case invalidParams, keyReused, conflict:
		return -32602, 200
	case tooLarge:
		return -32602, 413
	case unauthenticated:
		return -31401, 401
	case unauthorized:
		return -31403, 403
	case rateLimited:
		return -31429, 429
	case unavailable:
		return -31503, 503
	case internalError:
	}
	return -32603, 500
}

// wantsStream reports whether a client waits for a stream and says so. It may not be
// able to read anything else: the Go SDK and clients of 0.3 show nothing of an error
// that comes as ordinary JSON, or take it for a broken connection.
func wantsStream(r *http.Request, method string) bool {
	switch method {
	case subscribeToTask, "SendStreamingMessage", "message/stream", "tasks/resubscribe":
	default:
		return false
	}
	for _, line := range r.Header.Values("Accept") {
		if strings.Contains(line, "text/event-stream") {
			return true
		}
	}
	return false
}

const subscribeToTask = "SubscribeToTask"

// failStream answers a request for a stream with an error: as the only event of a
// stream, unless the HTTP status has to say something too.
//
// That a task has ended is ordinary JSON in 1.0 all the same. The conformance kit wants
// it before any stream (STREAM-SUB-003), and a client that does not read it has a stream
// that is over, which is much the same.
func (f *face) failStream(w http.ResponseWriter, r *http.Request, b binding, method string, err error) {
	fault := translate(r.Context(), f.opt.Log, err)
	ended := method == subscribeToTask && fault.cause != nil && fault.cause.Kind == hub.Ended
	if ended || b.status(fault.reason) != http.StatusOK {
		f.fail(w, r, b, fault)
		return
	}
	_ = httpx.StartSSE(w, r).Event("", "", b.fail(nil, fault)) // a client that is gone needs no answer
}
