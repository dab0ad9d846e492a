package a2a

import (
	"encoding/json"
	"net/http"
	"strings"
)

// serveRESTOf serves HTTP+JSON in the version that a request names. Only one client
// of 0.3 has the paths of 1.0, without v1 in front, that of a2a-go 2.3: it names its
// version, and writes the JSON of JSON-RPC.
func (f *face) serveRESTOf(w http.ResponseWriter, r *http.Request) {
	if namesV03(r) {
		f.serveRESTV03(w, r)
		return
	}
	f.serveREST(w, r)
}

// serveRESTV03 answers one request of HTTP+JSON in 0.3 (section 3.2.3 there), whose
// paths begin with v1 and are otherwise much those of 1.0.
func (f *face) serveRESTV03(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store") // the next answer may be another one
	b, path := restV03{form: kinded}, belowHandle(r.URL.EscapedPath())
	if below, found := strings.CutPrefix(path, "v1/"); found {
		b.form, path = proto, below
	}
	res, err := findResourceV03(path)
	if err == nil {
		err = f.serveResource(w, r, b, res)
	}
	if err != nil {
		f.fail(w, r, b, err)
	}
}

// findResourceV03 finds what an escaped path stands for in 0.3.
func findResourceV03(escaped string) (resource, error) {
	if escaped == "card" {
		return resource{get: "agent/getAuthenticatedExtendedCard"}, nil
	}
	r, err := findResource(escaped)
	r.get, r.post, r.remove = methodV03(r.get), methodV03(r.post), methodV03(r.remove)
	if err == nil && r.allow() == "" {
		err = errNoPath()
	}
	return r, err
}

// methodV03 is 0.3's name for a method of 1.0, empty if it has none.
func methodV03(method string) string {
	switch method {
	case "SendMessage":
		return "message/send"
	case "SendStreamingMessage":
		return "message/stream"
	case "GetTask":
		return "tasks/get"
	case "CancelTask":
		return "tasks/cancel"
	case "SubscribeToTask":
		return "tasks/resubscribe"
	case "CreateTaskPushNotificationConfig":
		return "tasks/pushNotificationConfig/set"
	case "GetTaskPushNotificationConfig":
		return "tasks/pushNotificationConfig/get"
	case "ListTaskPushNotificationConfigs":
		return "tasks/pushNotificationConfig/list"
	case "DeleteTaskPushNotificationConfig":
		return "tasks/pushNotificationConfig/delete"
	}
	return ""
}

// restV03 answers one request of HTTP+JSON in 0.3. What an error looks like there is
// not specified: the SDKs look at the status, or for the members of a JSON-RPC error,
// or for 1.0's google.rpc.Status, so it has all of them.
type restV03 struct{ form form }

func (b restV03) open(dst []byte) []byte { return dst }
func (b restV03) end(dst []byte) []byte  { return dst }
func (b restV03) media() string          { return mediaJSON }
func (b restV03) status(r reason) int    { code, _ := restStatus(r); return code }

func (b restV03) fail(dst []byte, f *fault) []byte {
	f = faultV03(f)
	data := details(f)
	rpc, _ := codeOf(f.reason)
	code, status := restStatus(f.reason)
	body, err := json.Marshal(struct {
		rpcError
		Error restError `json:"error"`
	}{
		rpcError{Code: rpc, Message: f.message, Data: data},
		restError{Code: code, Status: status, Message: f.message, Details: data},
	})
	if err != nil { // strings and numbers alone: cannot happen
		body = []byte(`{"code":-32603,"message":"internal error"}`)
	}
	return append(dst, body...)
}
