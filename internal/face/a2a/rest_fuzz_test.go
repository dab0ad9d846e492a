package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzREST: whatever is asked below an endpoint, the answer is of HTTP+JSON, plain or
// streamed, and never the hub's own failure.
func FuzzREST(f *testing.F) {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodPut, http.MethodHead, http.MethodOptions, "QUERY"}
	for method := range methods {
		for _, path := range []string{"message:send", "message:stream", "tasks", "tasks/x", "tasks/x:cancel", "tasks/:subscribe", "tasks/x/pushNotificationConfigs",
			"tasks/x/pushNotificationConfigs/%2F", "extendedAgentCard", "coder/tasks", "%00/tasks/%ff", "tasks/%3Acancel:cancel", ".well-known/agent-card.json", "a//b/../c"} {
			f.Add(byte(method), path, "pageSize=2&history_length=1&x=%ff", []byte(message("x", "", "")), "", "")
		}
	}
	f.Add(byte(1), "message:send", "", []byte(`{"message":{"messageId":"\ud800"}}`), "application/json", "1.0")
	f.Add(byte(1), "tasks/x:cancel", "A2A-Version=7", []byte("\xff"), "text/html", "0")
	f.Add(byte(0), "tasks", "status=2&includeArtifacts=1&;", []byte(nil), "application/a2a+json;q=0.3", "-1")
	b := newBed(f)
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.work(f)
	f.Fuzz(func(t *testing.T, method byte, path, query string, body []byte, media, header string) {
		u, err := url.Parse(b.URL + "/a/coder/" + path)
		if err != nil {
			t.Skip("no URL")
		}
		below := strings.TrimPrefix(u.Path, "/a/coder/")
		if below == "" || below == "rpc" || strings.HasPrefix(below, "v1/") {
			t.Skip("not of this binding")
		}
		u.RawQuery, u.Fragment = query, ""
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, methods[int(method)%len(methods)], u.String(), bytes.NewReader(body))
		if err != nil {
			t.Skip("no request")
		}
		r.Header = http.Header{
			"Authorization": {"Bearer " + b.caller}, "Accept": {media}, "Content-Type": {media},
			"Last-Event-Id": {header}, "Idempotency-Key": {header},
		}
		res, err := b.client.Do(r)
		if err != nil {
			if strings.Contains(err.Error(), "invalid header field value") {
				t.Skip("no HTTP client can send this")
			}
			t.Fatal(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		checkAnyREST(t, r, res, answer)
	})
}

// checkAnyREST checks that an answer is one that HTTP+JSON may give.
func checkAnyREST(t *testing.T, r *http.Request, res *http.Response, body []byte) {
	t.Helper()
	switch {
	case res.Header.Get("X-Request-Id") == "" && res.StatusCode == http.StatusBadRequest:
		return // no HTTP: net/http let it through to nobody
	case res.StatusCode >= 500:
		t.Fatalf("status %d: %s", res.StatusCode, body)
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return // net/http leads from a path with dots or empty segments to the clean one
	case r.Method == http.MethodHead:
		return // no body
	case res.Header.Get("Content-Type") != "text/event-stream":
		parseREST(t, res.StatusCode, res.Header, body)
		return
	}
	for line := range strings.Lines(string(body)) {
		if data, found := strings.CutPrefix(line, "data: "); found {
			parseREST(t, 0, nil, []byte(data))
		}
	}
}

// FuzzSameAnswer: whatever parameters an operation gets, all six bindings refuse them for
// the same reason, or none does; and what is refused leaves no task.
func FuzzSameAnswer(f *testing.F) {
	ops := []string{"SendMessage", "GetTask", "ListTasks", "CancelTask", "ListTaskPushNotificationConfigs", "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig"}
	for i := range ops {
		for _, params := range []string{
			`{}`, `null`, `[]`, `{"id":"x"}`, `{"taskId":"x","id":"y"}`, `{"id":"x","historyLength":-1}`, `{"tenant":"coder","id":"x"}`, `{"taskId":"x","url":"http://10.0.0.1/"}`,
			message("x", "", immediately), message("x", `"taskId":"x",`, immediately), message("x", `"contextId":"`+strings.Repeat("c", 300)+`",`, immediately),
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"AA=="},{"url":"u","mediaType":"a/b"},{"data":null},{"data":[1,{"a":"b"}]}]},` + immediately[:len(immediately)-1] + `}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x","url":"y"}]}}`, `{"message":{"messageId":"m","role":7,"parts":[{}]}}`,
			message("x", `"contextId":"c",`, immediately), strings.Replace(message("x", "", immediately), "ROLE_USER", "ROLE_AGENT", 1), `{"id":"x","historyLength":3}`,
			strings.Replace(message("x", "", immediately), `"messageId":"m-x",`, "", 1), `{"message":{"messageId":"m","role":"ROLE_USER","parts":[]},` + immediately[:len(immediately)-1] + `}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"},{"data":{"a":[1]},"metadata":{}}],"metadata":{"a":null}},"configuration":{"returnImmediately":true,"historyLength":-1}}`,
			`{"pageSize":101}`, `{"status":"TASK_STATE_WORKING","pageToken":"x"}`, `{"statusTimestampAfter":"2026-01-01T00:00:00.5Z","includeArtifacts":true}`, `{"status":42}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"a":{"b":[]}}},"metadata":{"x":1.5},"configuration":{"returnImmediately":true,"historyLength":0,"acceptedOutputModes":["x"]}}`,
		} {
			f.Add(byte(i), params)
		}
	}
	b := newBed(f)
	b.work(f)
	f.Fuzz(func(t *testing.T, which byte, params string) {
		op := ops[int(which)%len(ops)]
		if !json.Valid([]byte(params)) || !utf8.ValidString(params) || strings.HasPrefix(op, "Send") && !strings.Contains(params, immediately[:30]) && strings.Contains(params, "parts") {
			t.Skip("no JSON, or a send that waits")
		}
		p := object(params)
		if p == nil {
			t.Skip("no parameters for a query")
		}
		params = text(p) // a query has no member twice
		on := *b
		on.t = t
		before, accepted := *on.list(`{"pageSize":1}`).TotalSize, 0
		var first string
		for i, speak := range six() {
			_, former := speak.(*formerBinding)
			if speak == rest && otherInREST(op, p) || former && (otherInREST(op, p) || !saidBefore(op, p)) {
				continue
			}
			_, a := speak.open(t.Context(), &on, query{token: b.caller, handle: "coder", op: op, params: params})
			reason := ""
			if a.Error != nil {
				reason = a.Error.reason()
			} else if op == "SendMessage" {
				accepted++
			}
			switch {
			case a.Unsaid:
			case i == 0:
				first = reason
			case reason != first:
				t.Errorf("%s %s: %q over %s, and %q over %s", op, params, first, bindings[0].name(), reason, speak.name())
			}
		}
		if made := *on.list(`{"pageSize":1}`).TotalSize - before; made != accepted {
			t.Errorf("%s %s: %d were accepted, and %d tasks are there", op, params, accepted, made)
		}
	})
}

// saidBefore reports whether parameters have words in 0.3 that mean the same: of what
// is in them all is known there, and of the kind that it has to be.
func saidBefore(op string, p map[string]any) bool {
	switch op {
	case "GetTask", "CancelTask":
		return hasOnly(p, map[string]func(any) bool{"id": isText, "historyLength": isCount})
	case "CreateTaskPushNotificationConfig":
		return hasOnly(p, map[string]func(any) bool{"taskId": isText, "url": isText, "id": isText})
	case "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs":
		return hasOnly(p, map[string]func(any) bool{"taskId": isText, "id": isText})
	case "SendMessage":
		return hasOnly(p, map[string]func(any) bool{"metadata": isObject, "message": saidMessage, "configuration": func(v any) bool {
			c, _ := v.(map[string]any)
			return hasOnly(c, map[string]func(any) bool{"returnImmediately": isTrue, "historyLength": isCount})
		}})
	}
	return false
}

// saidMessage is saidBefore for a message.
func saidMessage(v any) bool {
	m, _ := v.(map[string]any)
	return m["role"] != nil && m["parts"] != nil && hasOnly(m, map[string]func(any) bool{
		"messageId": isText, "contextId": isText, "taskId": isText, "metadata": isObject,
		"role": func(v any) bool { return v == "ROLE_USER" || v == "ROLE_AGENT" },
		"parts": func(v any) bool {
			parts, ok := v.([]any)
			return ok && !slices.ContainsFunc(parts, func(v any) bool {
				part, _ := v.(map[string]any)
				return (part["text"] == nil) == (part["data"] == nil) ||
					!hasOnly(part, map[string]func(any) bool{"text": isText, "data": isObject, "metadata": isObject})
			})
		},
	})
}

// hasOnly reports whether an object has no members but those that are known, each of
// its kind.
func hasOnly(o map[string]any, known map[string]func(any) bool) bool {
	for name, v := range o {
		if is := known[name]; is == nil || !is(v) {
			return false
		}
	}
	return o != nil
}

func isText(v any) bool   { s, ok := v.(string); return ok && s != "" }
func isObject(v any) bool { _, ok := v.(map[string]any); return ok }
func isTrue(v any) bool   { return v == true }

// isCount: 0 is the same as none in ProtoJSON of 0.3.
func isCount(v any) bool {
	n, ok := v.(json.Number)
	i, err := n.Int64()
	return ok && err == nil && i != 0 && i == int64(int32(i))
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
	case "GetTaskPushNotificationConfig":
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
