package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// FuzzJSONRPC: whatever is posted, the answer is JSON-RPC, plain or streamed, and
// never the hub's own failure.
func FuzzJSONRPC(f *testing.F) {
	for _, method := range []string{"SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask", "GetExtendedAgentCard", "message/send",
		"CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/set", ""} {
		for _, params := range []string{`{}`, `null`, `[]`, `{"id":"x"}`, message("x", "", ""), message("\x00", `"taskId":"x",`, immediately), `{"pageSize":"3","status":6,"history_length":1e0}`,
			`{"taskId":"x","id":"c","url":"http://127.0.0.1/","authentication":{"scheme":"Bearer","credentials":"\u0000"}}`,
			message("x", "", `"configuration":{"taskPushNotificationConfig":{"url":"http://127.0.0.1/","token":[]}},`)} {
			f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`), "", "")
		}
	}
	f.Add([]byte("\xff"), "text/html", "1.0.9")
	f.Add([]byte(`[{}]`), "application/json;x", "\x7f")
	b := newBed(f)
	b.work(f)
	left := audit{b: b}
	f.Fuzz(func(t *testing.T, body []byte, media, version string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+"/a/coder", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Authorization": {"Bearer " + b.caller}, "Last-Event-Id": {version}, "Idempotency-Key": {media}}
		if media != "" {
			r.Header.Set("Content-Type", media)
		}
		if len(version)%2 == 1 {
			r.Header.Set("A2a-Version", version)
		}
		res, err := b.client.Do(r)
		if err != nil {
			if strings.Contains(err.Error(), "invalid header field value") {
				t.Skip("no HTTP client can send this")
			}
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode >= 500 {
			t.Fatalf("status %d", res.StatusCode)
		}
		answer, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		if res.Header.Get("Content-Type") != "text/event-stream" {
			a := parseAnswer(t, res.StatusCode, res.Header, answer)
			if a.Error != nil {
				withoutInternals(t, a.Error.Message, string(body))
			}
			left.after(t, a.Error != nil)
			return
		}
		for line := range strings.Lines(string(answer)) {
			if data, found := strings.CutPrefix(line, "data: "); found {
				parseAnswer(t, res.StatusCode, res.Header, []byte(data))
			}
		}
		left.after(t, false)
	})
}

// work makes the callee complete whatever it is sent, until the test ends.
func (b *bed) work(f *testing.F) {
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	f.Cleanup(func() { stop(); done.Wait() })
	post := func(method, path, body string) []byte {
		r, err := http.NewRequestWithContext(ctx, method, b.URL+"/v1/agents/me/tasks/"+path, strings.NewReader(body))
		if err != nil {
			return nil
		}
		r.Header = http.Header{"Authorization": {"Bearer " + b.coder}, "Content-Type": {"application/json"}}
		res, err := b.client.Do(r)
		if err != nil {
			return nil
		}
		defer res.Body.Close()
		answer, _ := io.ReadAll(res.Body)
		return answer
	}
	done.Go(func() {
		for ctx.Err() == nil {
			var got struct{ ID string }
			if json.Unmarshal(post("GET", "next?wait=20", ""), &got) == nil {
				post("POST", got.ID+"/result", `{"state":"completed"}`)
			}
		}
	})
}
