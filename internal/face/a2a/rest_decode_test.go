package a2a

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// TestRESTErrorStatuses pins the HTTP statuses of spec section 5.4 as of 1.0.1 and,
// below, our own.
func TestRESTErrorStatuses(t *testing.T) {
	for r, want := range map[reason]int{
		taskNotFound: 404, taskNotCancelable: 400, pushNotSupported: 400, unsupportedOperation: 400, versionNotSupported: 400,
		parseError: 400, invalidRequest: 400, invalidParams: 400, internalError: 500,

		contentTypeUnsupported: 415, methodNotFound: 404, methodNotAllowed: 405, keyReused: 409, conflict: 409, tooLarge: 413,
		unauthenticated: 401, unauthorized: 403, rateLimited: 429, unavailable: 503, reason("NEW"): 500,
	} {
		if code, status := restStatus(r); code != want || status == "" {
			t.Errorf("%s: %d %s, want %d", r, code, status, want)
		}
	}
}

// decoded is what an operation was read as: a request for the handler, or why there
// is none.
type decoded struct {
	Request any
	Reason  reason
	Field   string
}

// decodeAny decodes the parameters of an operation, if they could be read.
func decodeAny(method string, params []byte, err error) decoded {
	var r any
	if err == nil {
		switch method {
		case "SendMessage":
			r, err = decodeSend(params)
		case "ListTasks":
			r, err = decodeList(params)
		default:
			r, err = decodeTask(params)
		}
	}
	var f *fault
	var e *hub.Error
	switch {
	case errors.As(err, &f):
		return decoded{Reason: f.reason, Field: f.field}
	case errors.As(err, &e):
		return decoded{Reason: reasonOf(e.Kind), Field: e.Field}
	}
	return decoded{Request: r}
}

// overRPC reads an operation as JSON-RPC.
func overRPC(method, params string) decoded {
	req, err := readRequest([]byte(`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":` + params + `}`))
	return decodeAny(method, req.params, err)
}

// overREST reads an operation as HTTP+JSON.
func overREST(t *testing.T, verb, target, body string) decoded {
	t.Helper()
	f := &face{opt: Options{MaxBody: 8 << 20}}
	r := httptest.NewRequestWithContext(t.Context(), verb, "/a/coder/"+target, strings.NewReader(body))
	res, err := findResource(belowHandle(r.URL.EscapedPath()))
	if err != nil {
		t.Fatal(err)
	}
	params, err := f.readParams(httptest.NewRecorder(), r, res)
	return decodeAny(res.on(verb), params, err)
}

// FuzzSameRequest: an operation that is spelled as JSON-RPC and as HTTP+JSON is the
// same request to the engine, or is refused for the same reason at the same field.
func FuzzSameRequest(f *testing.F) {
	f.Add("id", "c", "TASK_STATE_WORKING", "7", "p", "2", "2026-01-02T03:04:05.678Z", true, []byte(`{`+plainMessage+`}`))
	f.Add("a/b:cancel?#%2f", " &=+;é", "x", "-1", "\x00", "1e1", "yesterday", false, []byte(`{"message":{}}`))
	f.Add(".", "", "TASK_STATE_UNSPECIFIED", "101", "", "x", "", false, []byte(`null`))
	f.Add("..", "", "", "", "", "", "", false, []byte(` [ ] `))
	f.Add("\U0001F378", "c", "", "0", "", "", "", false, []byte(`{"id":"other","historyLength":1,"a":{"b":"\ud800"}}`))
	f.Add("x", "c", "", "", "", "", "", false, []byte(`{"id":null,"history_length":3,"tenant":"t"}`))
	f.Fuzz(func(t *testing.T, id, contextID, status, size, token, history, since string, artifacts bool, body []byte) {
		for _, s := range []string{id, contextID, status, size, token, history, since} {
			if !utf8.ValidString(s) {
				t.Skip("JSON cannot say it")
			}
		}
		if _, err := strconv.ParseUint(status, 10, 31); err == nil {
			t.Skip("a number in a query, and a name in JSON")
		}
		members, query := map[string]any{"includeArtifacts": artifacts}, url.Values{"includeArtifacts": {strconv.FormatBool(artifacts)}}
		for name, value := range map[string]string{
			"contextId": contextID, "status": status, "pageSize": size, "pageToken": token, "historyLength": history, "statusTimestampAfter": since,
		} {
			if value != "" { // absent, in a query
				members[name] = value
				query.Set(name, value)
			}
		}
		compare := func(what string, rpc, rest decoded) {
			t.Helper()
			if d := cmp.Diff(rpc, rest, cmp.AllowUnexported(sendMessage{}, taskRequest{}, listTasks{}, canon.Message{})); d != "" {
				t.Errorf("%s:\n%s", what, d)
			}
		}
		compare("ListTasks", overRPC("ListTasks", object(t, members)), overREST(t, http.MethodGet, "tasks?"+query.Encode(), ""))

		task := map[string]any{"id": id}
		target := "tasks/" + strings.ReplaceAll(url.PathEscape(id), ":", "%3A")
		if history != "" {
			task["historyLength"] = history
		}
		compare("GetTask", overRPC("GetTask", object(t, task)), overREST(t, http.MethodGet, target+"?historyLength="+url.QueryEscape(history), ""))
		compare("CancelTask", overRPC("CancelTask", object(t, task)), overREST(t, http.MethodPost, target+":cancel", object(t, task)))
		delete(task, "id")
		compare("SubscribeToTask", overRPC("SubscribeToTask", object(t, map[string]any{"id": id})), overREST(t, http.MethodPost, target+":subscribe", object(t, map[string]any{})))

		if json.Valid(body) && utf8.Valid(body) {
			compare("SendMessage", overRPC("SendMessage", string(body)), overREST(t, http.MethodPost, "message:send", string(body)))
		}
		overREST(t, http.MethodPost, target+":cancel", string(body))
	})
}

func object(t *testing.T, members map[string]any) string {
	t.Helper()
	text, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
