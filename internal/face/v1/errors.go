package v1

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// fail answers with an error. What the client must not see goes to the log.
func (f *face) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := httpx.Public(r.Context(), f.opt.Log, err)
	w.Header().Del("Holdfast-Lineage")
	httpx.ErrorHeaders(w.Header(), e)
	writeError(w, statusOf(e), e)
}

// The code of a body in another format than JSON, and its field.
const (
	codeMediaType    = "unsupported_media_type"
	fieldContentType = "Content-Type"
)

// statusOf is the HTTP status of an error.
func statusOf(e *hub.Error) int {
	if e.Code == codeMediaType {
		return http.StatusUnsupportedMediaType
	}
	return httpx.Status(e.Kind)
}

// errMediaType is the refusal of a body in another format than JSON.
func errMediaType() *hub.Error {
	return &hub.Error{
		Kind: hub.Invalid, Code: codeMediaType, Field: fieldContentType,
		Message: "the body has to be JSON; send Content-Type: application/json",
	}
}

// body reads the JSON body of a request.
func (f *face) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Header.Get(fieldContentType) != jsonType[0] && httpx.RequireJSON(r) != nil {
		return nil, errMediaType()
	}
	return httpx.ReadBody(w, r, f.opt.MaxBody)
}

// optionalBody is body for a route that does without one, too.
func (f *face) optionalBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.ContentLength == 0 {
		return nil, nil
	}
	if r.Header.Get(fieldContentType) == "" {
		return httpx.ReadBody(w, r, f.opt.MaxBody)
	}
	return f.body(w, r)
}

// writeError writes e as the body of an error answer.
func writeError(w http.ResponseWriter, status int, e *hub.Error) {
	// Nothing is to be done about a client that is no longer there.
	_ = write(w, status, appendError(nil, e))
}

// sentence is the message with a subject: some say only what their field is.
func sentence(e *hub.Error) string {
	if e.Field != "" && (strings.HasPrefix(e.Message, "is ") || strings.HasPrefix(e.Message, "must ") || strings.HasPrefix(e.Message, "expected ")) {
		if strings.HasPrefix(e.Message, "expected ") {
			return e.Field + ": " + e.Message
		}
		return e.Field + " " + e.Message
	}
	return e.Message
}

// appendError appends e as JSON (wire.ErrorBody).
func appendError(b []byte, e *hub.Error) []byte {
	b = append(b, `{"error":{"code":`...)
	b = rawjson.AppendText(b, e.Code)
	b = append(b, `,"message":`...)
	b = rawjson.AppendText(b, sentence(e))
	if e.Field != "" {
		b = append(b, `,"details":{"field":`...)
		b = rawjson.AppendText(b, e.Field)
		b = append(b, '}')
	}
	return append(b, "}}\n"...)
}

// write writes a JSON answer and reports whether it could be handed to the
// network.
func write(w http.ResponseWriter, status int, body []byte) error {
	h := w.Header()
	h["Content-Type"] = jsonType
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body)
	return err
}

// jsonType is the value of Content-Type; it is never written to.
var jsonType = []string{"application/json"}

// deliver is write for an answer that hands out a claim: it is not done before the
// bytes have left the hub's own buffers.
func deliver(w http.ResponseWriter, status int, body []byte) error {
	if err := write(w, status, body); err != nil {
		return err
	}
	err := http.NewResponseController(w).Flush()
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// at puts an error of a value inside of another one: its field is relative to
// prefix, which ends with a dot or is a whole path.
func at(prefix string, err error) error {
	var e *hub.Error
	if !errors.As(err, &e) || prefix == "" {
		return err
	}
	moved := *e
	switch {
	case e.Field == "":
		moved.Field = prefix
	case e.Field[0] == '[':
		moved.Field = prefix + e.Field
	default:
		moved.Field = prefix + "." + e.Field
	}
	return &moved
}
