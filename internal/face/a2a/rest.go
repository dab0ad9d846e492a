package a2a

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

const (
	mediaJSON = "application/json"
	mediaA2A  = "application/a2a+json"
)

// serveREST answers one request of the HTTP+JSON binding (spec section 11). Which
// paths there are is no secret, so one that is none is answered before anything else.
func (f *face) serveREST(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store") // the next answer may be another one
	b := restBindingOf(r)
	res, err := findResource(belowHandle(r.URL.EscapedPath()))
	if err == nil {
		err = f.serveResource(w, r, b, res)
	}
	if err != nil {
		f.fail(w, r, b, err)
	}
}

// serveResource performs an operation on a resource. An error means that nothing was
// written yet.
func (f *face) serveResource(w http.ResponseWriter, r *http.Request, b binding, res resource) error {
	method := res.on(r.Method)
	if method == "" {
		w.Header().Set("Allow", res.allow())
		return &fault{reason: methodNotAllowed, message: "this path is not for this HTTP method; use " + res.allow()}
	}
	if _, err := identity.Require(r.Context()); err != nil {
		return err
	}
	params, err := f.readParams(w, r, res)
	if err != nil {
		return err
	}
	return f.serve(w, r, b, operation{method, params})
}

// readParams reads the parameters of a request, in ProtoJSON: those in the path, and
// those in the body of a POST, or in the query of anything else.
func (f *face) readParams(w http.ResponseWriter, r *http.Request, res resource) (params []byte, err error) {
	if r.Method == http.MethodPost {
		params, err = f.readBody(w, r)
	} else {
		params, err = queryParams(r.URL.RawQuery)
	}
	for _, p := range res.path {
		if err != nil {
			return nil, err
		}
		params, err = withPath(params, p)
	}
	return params, err
}

// readBody reads a body of parameters, which may be empty.
func (f *face) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength != 0 {
		if err := checkMediaType(r.Header); err != nil {
			return nil, err
		}
	}
	body, err := httpx.ReadBody(w, r, f.opt.MaxBody)
	if err != nil || len(body) == 0 {
		return nil, err
	}
	if err := rawjson.Check(body, maxDepth-1); err != nil { // there is no envelope
		return nil, unreadableParams(body, err)
	}
	return body, nil
}

// unreadableParams says what is wrong with a body that rawjson.Check refused, in the
// terms of unreadable.
func unreadableParams(body []byte, cause error) error {
	var at *rawjson.Error
	if !errors.As(cause, &at) {
		return cause
	}
	if !json.Valid(body) || !utf8.Valid(body) {
		return &fault{reason: parseError, message: "the body is not JSON: " + at.Error()}
	}
	return &fault{reason: invalidParams, message: at.Msg, field: at.Path}
}

// withPath adds to the parameters one that the path has. A body or query that says
// it too must say the same.
func withPath(params []byte, p pathParam) ([]byte, error) {
	if !utf8.ValidString(p.value) {
		return nil, hub.InvalidField(p.name, "is not UTF-8")
	}
	var given []byte
	if err := pick(params, "", field{p.name, &given}); err != nil {
		return nil, err
	}
	if given != nil {
		if s, err := text(given, p.name); err != nil || s == p.value {
			return params, err
		}
		return nil, hub.InvalidField(p.name, "is another one than in the URL's path; leave it out")
	}
	out := append(rawjson.AppendText(append(make([]byte, 0, len(params)+len(p.name)+len(p.value)+8), '{'), p.name), ':')
	return appendMembers(rawjson.AppendText(out, p.value), params), nil
}

// appendMembers appends the members of the object params, if it has any, to an
// object that has been begun, and ends it.
func appendMembers(dst, params []byte) []byte {
	if len(params) > 0 && rawjson.KindOf(params) == rawjson.Object {
		const space = " \t\r\n"
		params = bytes.Trim(params, space)
		if inner := bytes.Trim(params[1:len(params)-1], space); len(inner) > 0 {
			return append(append(append(dst, ','), inner...), '}')
		}
	}
	return append(dst, '}')
}

// restBinding answers one request of HTTP+JSON: a result is the bare message, and an
// error a google.rpc.Status (spec section 11.6).
type restBinding string

// restBindingOf answers in plain application/json, which every client reads, unless
// the client asks for A2A's own media type and prefers it.
func restBindingOf(r *http.Request) restBinding {
	own, plain := 0.0, 0.0
	for _, line := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(line, ",") {
			media, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			switch q := quality(params["q"]); media {
			case mediaA2A:
				own = max(own, q)
			case mediaJSON:
				plain = max(plain, q)
			}
		}
	}
	if own > plain {
		return mediaA2A
	}
	return mediaJSON
}

// quality reads the weight of a media type in Accept (RFC 9110 section 12.4.2).
func quality(q string) float64 {
	if q == "" {
		return 1
	}
	v, err := strconv.ParseFloat(q, 64)
	if err != nil || !(v >= 0 && v <= 1) {
		return 0
	}
	return v
}

func (b restBinding) open(dst []byte) []byte { return dst }
func (b restBinding) end(dst []byte) []byte  { return dst }
func (b restBinding) media() string          { return string(b) }
func (b restBinding) status(r reason) int    { code, _ := restStatus(r); return code }

func (b restBinding) fail(dst []byte, f *fault) []byte {
	code, status := restStatus(f.reason)
	body, err := json.Marshal(struct {
		Error restError `json:"error"`
	}{restError{Code: code, Status: status, Message: f.message, Details: details(f)}})
	if err != nil { // strings and numbers alone: cannot happen
		body = []byte(`{"error":{"code":500,"status":"INTERNAL","message":"internal error","details":[]}}`)
	}
	return append(dst, body...)
}

type restError struct {
	Code    int      `json:"code"`
	Status  string   `json:"status"`
	Message string   `json:"message"`
	Details []detail `json:"details"`
}

// restStatus gives the HTTP status of an error and the name of its gRPC code (spec
// section 5.4, as of 1.0.1). Two are ours: 415 for a body that is not JSON, and 409
// for what goes against another request.
func restStatus(r reason) (code int, status string) {
	switch r {
	case taskNotFound, methodNotFound:
		return http.StatusNotFound, "NOT_FOUND"
	case taskNotCancelable, pushNotSupported, unsupportedOperation, extendedCardNotConfigured, extensionRequired, versionNotSupported:
		return http.StatusBadRequest, "FAILED_PRECONDITION"
	case parseError, invalidRequest, invalidParams:
		return http.StatusBadRequest, "INVALID_ARGUMENT"
	case contentTypeUnsupported:
		return http.StatusUnsupportedMediaType, "INVALID_ARGUMENT"
	case methodNotAllowed:
		return http.StatusMethodNotAllowed, "UNIMPLEMENTED"
	case keyReused:
		return http.StatusConflict, "ALREADY_EXISTS"
	case conflict:
		return http.StatusConflict, "ABORTED"
	case tooLarge:
		return http.StatusRequestEntityTooLarge, "RESOURCE_EXHAUSTED"
	case unauthenticated:
		return http.StatusUnauthorized, "UNAUTHENTICATED"
	case unauthorized:
		return http.StatusForbidden, "PERMISSION_DENIED"
	case rateLimited:
		return http.StatusTooManyRequests, "RESOURCE_EXHAUSTED"
	case unavailable:
		return http.StatusServiceUnavailable, "UNAVAILABLE"
	case internalError:
	}
	return http.StatusInternalServerError, "INTERNAL"
}
