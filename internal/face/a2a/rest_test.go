package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// rest makes a request below @coder's endpoint; headers are pairs of name and value.
func (b *bed) rest(method, path, body string, headers ...string) answer {
	b.t.Helper()
	status, header, data := b.restRaw(method, path, body, headers...)
	return parseREST(b.t, status, header, data)
}

func (b *bed) restRaw(method, path, body string, headers ...string) (int, http.Header, []byte) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.URL+"/a/"+b.handle+"/"+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+b.caller)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return b.raw(r)
}

// TestRESTPaths is section 11.3: which paths there are and for which methods, with a
// tenant in front or without; the rest is 404, or 405 with Allow, for everybody.
func TestRESTPaths(t *testing.T) {
	b := newBed(t)
	for _, c := range []struct{ path, allow string }{
		{"message:send", "POST"},
		{"message%3Asend", "POST"},
		{"message:stream", "POST"},
		{"tasks", "GET"},
		{"tasks/x", "GET"},
		{"tasks/x%3Acancel", "GET"}, // the id "x:cancel"
		{"tasks/tasks", "GET"},
		{"tasks/x:cancel", "POST"},
		{"tasks/x:subscribe", "GET, POST"},
		{"tasks/x/pushNotificationConfigs", "GET, POST"},
		{"tasks/x/pushNotificationConfigs/y", "GET, DELETE"},
		{"extendedAgentCard", "GET"},
		{"coder/message:send", "POST"},
		{"coder/tasks", "GET"},
		{"coder/tasks/x:subscribe", "GET, POST"},
		{"coder/tasks/x/pushNotificationConfigs/y", "GET, DELETE"},
		{"nothing", ""},
		{"message", ""},
		{"message:other", ""},
		{"coder/nothing", ""},
		{"coder/coder/tasks", ""},
		{"tasks/x/other", ""},
		{"tasks/x/pushNotificationConfigs/y/z", ""},
	} {
		a := b.rest(http.MethodPut, c.path, "", "Authorization", "")
		want := "METHOD_NOT_ALLOWED"
		if c.allow == "" {
			want = "METHOD_NOT_FOUND"
		}
		wantReason(t, a, want)
		if got := a.Header.Get("Allow"); got != c.allow {
			t.Errorf("%s: Allow %q, want %q", c.path, got, c.allow)
		}
		for method := range strings.SplitSeq(c.allow, ", ") {
			if c.allow != "" {
				wantReason(t, b.rest(method, c.path, "", "Authorization", ""), "UNAUTHENTICATED")
			}
		}
	}
}

// TestRESTSubscribe: subscribing works by POST, as the specification's text has it, and
// by GET, as its .proto has it, where parameters are in the query.
func TestRESTSubscribe(t *testing.T) {
	b := newBed(t)
	id := b.send(b.caller, "hi").ID
	for _, c := range []struct{ method, path, body string }{
		{http.MethodGet, "tasks/" + id + ":subscribe?historyLength=0", ""},
		{http.MethodPost, "tasks/" + id + ":subscribe", `{"history_length":0}`},
		{http.MethodPost, "tasks/" + id + ":subscribe", fmt.Sprintf(` { "id": %q , "historyLength": 0 } `, id)},
		{http.MethodPost, "coder/tasks/" + id + ":subscribe", `{"tenant":"coder","historyLength":0}`},
	} {
		get := &httpBinding{title: "GET", parse: parseREST, request: func(ctx context.Context, b *bed, _ query) *http.Request {
			r, err := http.NewRequestWithContext(ctx, c.method, b.URL+"/a/coder/"+c.path, strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}}
		b.speak = get
		s := b.stream(b.caller, "SubscribeToTask", "")
		if at, e, ok := s.next(); !ok || at != "1" || e.Task == nil || e.Task.ID != id || len(e.Task.History) != 0 {
			t.Errorf("%s %s: %s %+v", c.method, c.path, at, e)
		}
		s.cancel()
	}
	wantReason(t, b.rest(http.MethodPost, "tasks/"+id+":subscribe", `{"id":"other"}`), "INVALID_PARAMS")
}

// TestRESTCancel: the body is optional, and may not contradict the path.
func TestRESTCancel(t *testing.T) {
	b := newBed(t)
	for _, body := range []string{"", "null", "{}", " { } ", `{"metadata":{"why":"x"}}`, `{"id":null}`} {
		id := b.send(b.caller, "hi").ID
		if got := decode[task](t, b.rest(http.MethodPost, "tasks/"+id+":cancel", body)); got.ID != id || got.Status.State != "TASK_STATE_CANCELED" {
			t.Errorf("%q: %+v", body, got)
		}
	}
	id := b.send(b.caller, "hi").ID
	for body, reason := range map[string]string{
		`{"id":"other"}`: "INVALID_PARAMS", `{"id":7}`: "INVALID_PARAMS", `[]`: "INVALID_PARAMS", `{`: "PARSE_ERROR", " ": "PARSE_ERROR",
		`{"tenant":"other"}`: "INVALID_PARAMS", `{"a":1,"a":2}`: "INVALID_PARAMS",
	} {
		wantReason(t, b.rest(http.MethodPost, "tasks/"+id+":cancel", body), reason)
	}
	wantReason(t, b.rest(http.MethodPost, "tasks/"+id+":cancel", "{}", "Content-Type", "text/plain"), "CONTENT_TYPE_NOT_SUPPORTED")
	if got := b.get(id); got.Status.State != "TASK_STATE_SUBMITTED" {
		t.Errorf("a refused cancel: %+v", got)
	}
}

// TestRESTTenant is the tenant in the path: at an address it must be its handle, and
// at the hub's own endpoint it names the address, as one in the body or query does.
func TestRESTTenant(t *testing.T) {
	b := newBed(t)
	send := func(handle, path, tenant string) answer {
		return b.at(handle).rest(http.MethodPost, path, message("x", "", tenant+immediately))
	}
	for _, a := range []answer{
		send("coder", "coder/message:send", ""),
		send("hub", "coder/message:send", ""),
		send("hub", "coder/message:send", `"tenant":"coder",`),
		send("hub", "message:send", `"tenant":"coder",`),
	} {
		id := decode[struct{ Task task }](t, a).Task.ID
		for _, path := range []string{"coder/tasks/" + id, "tasks/" + id + "?tenant=coder", "coder/tasks/" + id + "?tenant=coder"} {
			if got := decode[task](t, b.at("hub").rest(http.MethodGet, path, "")); got.ID != id {
				t.Errorf("%s: %+v", path, got)
			}
		}
	}
	for _, a := range []answer{
		send("coder", "other/message:send", ""),
		send("hub", "coder/message:send", `"tenant":"other",`),
		send("hub", "message:send", ""),
		b.at("hub").rest(http.MethodGet, "tasks", ""),
		b.at("hub").rest(http.MethodGet, "coder/tasks?tenant=other", ""),
	} {
		wantReason(t, a, "INVALID_PARAMS")
		if a.Error != nil && a.Error.field() != "tenant" {
			t.Errorf("field %q: %s", a.Error.field(), a.Body)
		}
	}
	wantReason(t, b.at("hub").rest(http.MethodGet, "nobody/tasks", ""), "UNAUTHORIZED")
}

// TestRESTQuery: parameters in a query are read like those of any binding.
func TestRESTQuery(t *testing.T) {
	b := newBed(t)
	b.send(b.caller, "hi")
	for query, want := range map[string]int{
		"": 1, "?pageSize=1&status=TASK_STATE_SUBMITTED": 1, "?page_size=1&status=1": 1, "?status=2": 0,
		"?status=&contextId=&pageToken=&pageSize=&statusTimestampAfter=": 1, "?unknown=1&unknown=2": 1,
		"?includeArtifacts=True": 1, "?statusTimestampAfter=2999-01-01T00%3A00%3A00Z": 0, "?lastUpdatedAfter=2999-01-01T00:00:00Z": 0,
	} {
		if got := decode[taskList](t, b.rest(http.MethodGet, "tasks"+query, "")); *got.TotalSize != want {
			t.Errorf("%s: %d tasks, want %d", query, *got.TotalSize, want)
		}
	}
	for query, field := range map[string]string{
		"?pageSize=1&pageSize=2": "pageSize", "?pageSize=1&page_size=1": "pageSize", "?pageSize=x": "pageSize",
		"?includeArtifacts=yes": "includeArtifacts", "?status=99": "status", "?contextId=%ff": "contextId", "?a;b": "", "?x=%zz": "",
	} {
		a := b.rest(http.MethodGet, "tasks"+query, "")
		wantReason(t, a, "INVALID_PARAMS")
		if a.Error != nil && a.Error.field() != field {
			t.Errorf("%s: field %q, want %q", query, a.Error.field(), field)
		}
	}
	wantReason(t, b.rest(http.MethodGet, "tasks/%ff", ""), "INVALID_PARAMS")
	wantReason(t, b.rest(http.MethodGet, "tasks?A2A-Version=99.0", ""), "VERSION_NOT_SUPPORTED")
	decode[taskList](t, b.rest(http.MethodGet, "tasks?A2A-Version=1.0", "null", "Content-Type", "text/plain")) // GET has no body
}

// TestRESTMedia is content negotiation: plain JSON, unless A2A's own type is asked
// for, of results and of errors; and nothing that a cache may keep.
func TestRESTMedia(t *testing.T) {
	b := newBed(t)
	for accept, want := range map[string]string{
		"": "application/json", "*/*": "application/json", "text/html": "application/json", "application/json": "application/json",
		"application/a2a+json": "application/a2a+json", "Application/A2A+JSON; q=0.5, */*": "application/a2a+json",
		"application/a2a+json, application/json":       "application/json",
		"application/a2a+json, application/json;q=0.9": "application/a2a+json",
		"application/a2a+json;q=0":                     "application/json", "application/a2a+json;q=x": "application/json", ";,": "application/json",
	} {
		for _, path := range []string{"tasks", "tasks/none", "nothing"} {
			a := b.rest(http.MethodGet, path, "", "Accept", accept)
			if got := a.Header.Get("Content-Type"); got != want || a.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s for Accept %q: %q, %v", path, accept, got, a.Header)
			}
		}
	}
	for media, ok := range map[string]bool{"": true, "application/json": true, "application/a2a+json; charset=utf-8": true, "text/plain": false, "application/x-www-form-urlencoded": false} {
		a := b.rest(http.MethodPost, "message:send", message("x", "", immediately), "Content-Type", media)
		if (a.Error == nil) != ok {
			t.Errorf("%q: %s", media, a.Body)
		}
		if !ok {
			wantReason(t, a, "CONTENT_TYPE_NOT_SUPPORTED")
		}
	}
}

// TestRESTErrorShape pins what clients parse (spec section 11.6).
func TestRESTErrorShape(t *testing.T) {
	b := newBed(t)
	a := b.rest(http.MethodGet, "tasks?pageSize=101", "")
	var got any
	if err := json.Unmarshal([]byte(a.Body), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"error": map[string]any{
		"code": 400.0, "status": "INVALID_ARGUMENT", "message": "pageSize: must be from 1 to 100, or 0 for the default",
		"details": []any{
			map[string]any{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_PARAMS", "domain": "a2a-protocol.org"},
			map[string]any{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": []any{
				map[string]any{"field": "pageSize", "description": "pageSize: must be from 1 to 100, or 0 for the default"},
			}},
		},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s", a.Body)
	}
	if a := b.rest(http.MethodGet, "tasks", "", "Authorization", ""); !strings.HasPrefix(a.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("401 without a challenge: %v", a.Header)
	}
}
