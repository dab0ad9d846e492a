package a2a_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
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
	left := audit{b: b}
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
		if res.StatusCode >= 400 {
			withoutInternals(t, string(answer), u.String()+string(body))
		}
		left.after(t, res.StatusCode >= 300)
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
