package webhook_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/webhook"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// bound seals by writing what a secret is about beside it, which is enough to see that
// the two belong together.
type bound struct{}

// Seal implements hub.Sealer.
func (bound) Seal(secret []byte, about string) ([]byte, error) {
	return append([]byte(about+"\n"), secret...), nil
}

// Open implements hub.Sealer.
func (bound) Open(sealed []byte, about string) ([]byte, error) {
	secret, ok := bytes.CutPrefix(sealed, []byte(about+"\n"))
	if !ok {
		return nil, errors.New("sealed about something else")
	}
	return secret, nil
}

// task is one that was answered once: claimed for the second time.
func task() *hub.Task {
	return &hub.Task{
		ID: "t-1", ContextID: "c-1", Callee: hub.Party{ID: "dev", Handle: "dev"}, Attempt: 2, State: hub.Working,
		History: []hub.Message{
			{N: 1, Body: []byte(`{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"n":9007199254740993}}]}`)},
			{N: 2, Body: []byte(`{"messageId":"m2","role":"ROLE_AGENT","parts":[{"text":"which?"}]}`), FromCallee: true},
			{N: 3, Body: []byte(`{"messageId":"m3","role":"ROLE_USER","parts":[{"text":"that","mediaType":"text/plain"}]}`)},
		},
	}
}

// deliver delivers the task to a handler.
func deliver(t *testing.T, h http.HandlerFunc, change ...func(*webhook.Options, *egress.Options)) delivery.Outcome {
	t.Helper()
	return deliverTo(t, newServer(t, h).url(), hub.Endpoint{}, "", change...)
}

func deliverTo(t *testing.T, url string, e hub.Endpoint, credential string, change ...func(*webhook.Options, *egress.Options)) delivery.Outcome {
	t.Helper()
	e.Kind, e.URL, e.Sealed = hub.WebhookDelivery, url, sealed(t, bound{}, "dev", credential)
	return newDeliverer(t, bound{}, change...).Deliver(t.Context(), delivery.Delivery{Task: task(), Endpoint: e, Lease: time.Minute})
}

func TestTheRequest(t *testing.T) {
	var header http.Header
	var body []byte
	at := time.Now()
	out := deliver(t, func(_ http.ResponseWriter, r *http.Request) {
		header = r.Header.Clone()
		body, _ = io.ReadAll(r.Body)
	})
	if out.Kind != delivery.Answered || out.Status != 200 {
		t.Fatalf("%+v", out)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "X-Holdfast-Task": "t-1", "X-Parent-Call": "t-1", "User-Agent": "Holdfast/test",
		"Webhook-Id": "t-1_2", "Authorization": "", "Cookie": "",
	} {
		if got := strings.Join(header.Values(name), "|"); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	hook, err := standardwebhooks.NewWebhook(signing)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(body, header); err != nil {
		t.Errorf("the signature: %v", err)
	}
	if hook.Verify(append(body, ' '), header) == nil {
		t.Error("the signature is good for another body, too")
	}
	var got map[string]json.RawMessage
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	var until time.Time
	if err := json.Unmarshal(got["lease_expires_at"], &until); err != nil || until.Sub(at).Round(5*time.Second) != time.Minute {
		t.Errorf("the lease ends at %s", got["lease_expires_at"])
	}
	delete(got, "lease_expires_at")
	want := map[string]string{
		"task_id": `"t-1"`, "call_id": `"t-1"`, "context_id": `"c-1"`, "attempt": `2`, "claim_id": `"t-1.2"`,
		"message": `{"message_id":"m3","role":"user","parts":[{"text":"that","media_type":"text/plain"}]}`,
		"history": `[{"message_id":"m1","role":"user","parts":[{"data":{"n":9007199254740993}}]},` +
			`{"message_id":"m2","role":"agent","parts":[{"text":"which?"}]},` +
			`{"message_id":"m3","role":"user","parts":[{"text":"that","media_type":"text/plain"}]}]`,
	}
	shown := map[string]string{}
	for k, v := range got {
		shown[k] = string(v)
	}
	if d := cmp.Diff(want, shown); d != "" {
		t.Errorf("the body (-want +got):\n%s", d)
	}
}

func TestCredentials(t *testing.T) {
	for _, c := range []struct {
		e                      hub.Endpoint
		credential, name, want string
	}{
		{hub.Endpoint{Auth: "bearer"}, "s3cret", "Authorization", "Bearer s3cret"},
		{hub.Endpoint{Auth: "basic"}, "user:pass", "Authorization", "Basic dXNlcjpwYXNz"},
		{hub.Endpoint{Auth: "header", Header: "x-api-key"}, "s3cret", "X-Api-Key", "s3cret"},
		{hub.Endpoint{Auth: "header", Header: "Authorization"}, "Own s3cret", "Authorization", "Own s3cret"},
	} {
		var got []string
		s := newServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Values(c.name) }))
		if out := deliverTo(t, s.url(), c.e, c.credential); out.Kind != delivery.Answered {
			t.Errorf("%s: %+v", c.e.Auth, out)
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("%s: %s is %q, want %q", c.e.Auth, c.name, got, c.want)
		}
	}
}

func TestSecretsOfAnotherAddressAreOfNoUse(t *testing.T) {
	called := false
	s := newServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called = true }))
	out := newDeliverer(t, bound{}).Deliver(t.Context(), delivery.Delivery{
		Task: task(), Endpoint: hub.Endpoint{Kind: hub.WebhookDelivery, URL: s.url(), Sealed: sealed(t, bound{}, "other", "x")},
	})
	if out.Kind != delivery.Unsent || out.Busy || called {
		t.Errorf("%+v, and it was called: %v", out, called)
	}
}

// What each status means, and that nothing else of such an answer is shown.
func TestStatuses(t *testing.T) {
	for status, want := range map[int]delivery.Kind{
		200: delivery.Answered, 201: delivery.Answered, 202: delivery.Answered,
		301: delivery.Refused, 302: delivery.Refused, 307: delivery.Refused, 304: delivery.Refused,
		400: delivery.Refused, 401: delivery.Refused, 404: delivery.Refused, 409: delivery.Refused, 410: delivery.Refused, 422: delivery.Refused,
		408: delivery.Lost, 429: delivery.Lost, 500: delivery.Lost, 501: delivery.Lost, 503: delivery.Lost, 599: delivery.Lost,
	} {
		second := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Errorf("%d was followed", status) }))
		out := deliver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", second.URL)
			w.WriteHeader(status)
			if status != 304 {
				_, _ = io.WriteString(w, `{"state":"completed","artifacts":[{"parts":[{"text":"hunter2"}]}]}`)
			}
		})
		second.Close()
		if out.Kind != want || out.Status != status || strings.Contains(out.Reason, "hunter2") || strings.Contains(out.Reason, "127.0.0.1") {
			t.Errorf("%d: %+v, want %v", status, out, want)
		}
		if status/100 != 2 && !strings.Contains(out.Reason, http.StatusText(status)) {
			t.Errorf("%d: the reason is %q", status, out.Reason)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"7": 7 * time.Second, "-1": 0, "x": 0, "99999999": time.Hour, "": 0,
		time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat): 90 * time.Second,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat):       0,
	} {
		out := deliver(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", header)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		if got := out.After; got > want || got < want-5*time.Second {
			t.Errorf("%q: %v, want %v", header, got, want)
		}
	}
}

// brief lets an answer take next to no time.
func brief(opt *webhook.Options, out *egress.Options) {
	opt.Timeout, out.Timeout, out.HeaderTimeout = 300*time.Millisecond, time.Minute, time.Minute
}

func TestHostileAnswers(t *testing.T) {
	small := func(opt *webhook.Options, out *egress.Options) { opt.MaxAnswer, out.MaxResponse = 1000, 1000 }
	large := func(opt *webhook.Options, out *egress.Options) { opt.MaxAnswer, out.MaxResponse = 3<<20, 3<<20 }
	stream := func(n int, every time.Duration, chunk string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			tick := time.NewTicker(max(every, 1))
			defer tick.Stop()
			for range n {
				if _, err := io.WriteString(w, chunk); err != nil {
					return
				}
				if every > 0 {
					_ = http.NewResponseController(w).Flush()
					select {
					case <-tick.C:
					case <-r.Context().Done():
						return
					}
				}
			}
		}
	}
	hijack := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(c, answer)
			_ = c.Close()
		}
	}
	megabyte := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		name   string
		do     http.HandlerFunc
		change func(*webhook.Options, *egress.Options)
		want   delivery.Kind
		reason string
	}{
		{"hangs", func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, brief, delivery.Lost, "in time"},
		{"trickles", stream(1<<30, 10*time.Millisecond, "x"), brief, delivery.Lost, "in time"},
		{"fits exactly", stream(10, 0, strings.Repeat("x", 100)), small, delivery.Answered, ""},
		{"one byte too many", stream(1, 0, strings.Repeat("x", 1001)), small, delivery.Refused, "more than 1000 bytes"},
		{"large, and fits", stream(3, 0, megabyte), large, delivery.Answered, ""},
		{"100 MiB", stream(100, 0, megabyte), large, delivery.Refused, "more than 3145728 bytes"},
		{"hangs up", hijack(""), brief, delivery.Lost, "broke"},
		{"hangs up in the header", hijack("HTTP/1.1 200 OK\r\nContent-Ty"), brief, delivery.Lost, "broke"},
		{"hangs up in the body", hijack("HTTP/1.1 200 OK\r\nContent-Length: 100\r\nContent-Type: text/plain\r\n\r\nhalf of it"), brief, delivery.Lost, "broke"},
		{"hangs up in a chunk", hijack("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf"), brief, delivery.Lost, "broke"},
		{"no HTTP", hijack("SSH-2.0-OpenSSH\r\n"), brief, delivery.Lost, "broke"},
		{"a flood of headers", hijack("HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 1000)), brief, delivery.Lost, "broke"},
	} {
		out := deliver(t, c.do, c.change)
		if out.Kind != c.want || !strings.Contains(out.Reason, c.reason) || strings.Contains(out.Reason, "127.0.0.1") {
			t.Errorf("%s: %+v, want %v because of %q", c.name, out, c.want, c.reason)
		}
	}
}

func TestWhatNeverLeftTheHub(t *testing.T) {
	secure := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was called") }))
	defer secure.Close()
	open := newServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was called") }))
	gone := newServer(t, nil)
	gone.down()
	none := func(_ *webhook.Options, out *egress.Options) { out.AllowLocal = nil }
	for _, c := range []struct {
		name, url string
		change    func(*webhook.Options, *egress.Options)
	}{
		{"refused by the guard", open.url(), none},
		{"metadata", "http://169.254.169.254/", brief},
		{"a private network", "http://10.255.255.1/", brief},
		{"nobody there", gone.url(), brief},
		{"a certificate of nobody", secure.URL, brief},
		{"no TLS", "https://" + open.addr, brief},
		{"no such name", "http://nobody.invalid/", brief},
	} {
		out := deliverTo(t, c.url, hub.Endpoint{}, "", c.change)
		if out.Kind != delivery.Unsent || out.Busy || len(out.Reason) < 10 {
			t.Errorf("%s: %+v", c.name, out)
		}
	}
}

func TestAFullHubIsNotTheEndpointsFault(t *testing.T) {
	begun, free := make(chan struct{}), make(chan struct{})
	s := newServer(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(begun); <-free }))
	w := newDeliverer(t, bound{}, func(_ *webhook.Options, out *egress.Options) { out.PerTarget, out.QueueWait = 1, time.Millisecond })
	d := delivery.Delivery{Task: task(), Endpoint: hub.Endpoint{URL: s.url(), Sealed: sealed(t, bound{}, "dev", "")}}
	done := make(chan delivery.Outcome)
	go func() { done <- w.Deliver(t.Context(), d) }()
	<-begun
	if out := w.Deliver(t.Context(), d); out.Kind != delivery.Unsent || !out.Busy {
		t.Errorf("%+v", out)
	}
	ctx, leave := hub.NewRoom(1).Enter(t.Context())
	defer leave()
	big := task()
	big.History[2].Body = append(append([]byte(`{"messageId":"m3","role":"ROLE_USER","parts":[{"text":"`), bytes.Repeat([]byte("x"), 2<<20)...), `"}]}`...)
	d.Task = big
	if out := w.Deliver(ctx, d); out.Kind != delivery.Unsent || !out.Busy {
		t.Errorf("without room: %+v", out)
	}
	close(free)
	if out := <-done; out.Kind != delivery.Answered {
		t.Errorf("the first: %+v", out)
	}
}

func TestHangingUp(t *testing.T) {
	ended := make(chan struct{})
	begun := make(chan struct{})
	s := newServer(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(begun)
		<-r.Context().Done()
		close(ended)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan delivery.Outcome)
	w := newDeliverer(t, bound{})
	go func() {
		done <- w.Deliver(ctx, delivery.Delivery{Task: task(), Endpoint: hub.Endpoint{URL: s.url(), Sealed: sealed(t, bound{}, "dev", "")}})
	}()
	<-begun
	cancel()
	<-ended
	if out := <-done; out.Kind != delivery.Lost {
		t.Errorf("%+v", out)
	}
}
