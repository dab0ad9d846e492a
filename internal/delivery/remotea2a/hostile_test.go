package remotea2a_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// ask has one task delivered to what serves an agent, and gives the outcome and what was
// reported meanwhile.
func ask(t *testing.T, h http.Handler, change ...func(*delivery.Delivery)) (delivery.Outcome, []hub.Report) {
	t.Helper()
	s := newServer(t, h)
	d := newDeliverer(t, open{}, func(o *remotea2a.Options) { o.MaxAnswer, o.Silence = 64<<10, time.Second })
	var reports []hub.Report
	x := delivery.Delivery{
		Task: &hub.Task{
			ID: "t", ContextID: "c", Callee: hub.Party{ID: "dev", Handle: "dev"},
			History: []hub.Message{{N: 1, Body: canon.TextMessage("m1", false, "hi")}},
		},
		Endpoint: hub.Endpoint{Kind: hub.RemoteDelivery, URL: s.url()}, OnUnknown: "resend",
		Progress: func(r hub.Report) error { reports = append(reports, r); return nil },
	}
	for _, f := range change {
		f(&x)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return d.Deliver(ctx, x), reports
}

// open is a sealer that seals nothing.
type open struct{}

func (open) Seal(clear []byte, _ string) ([]byte, error)  { return clear, nil }
func (open) Open(sealed []byte, _ string) ([]byte, error) { return sealed, nil }

// rpc serves a card that offers JSON-RPC, with streams or without, and answers what each
// method is answered with.
func rpc(streams bool, answers map[string]http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, strings.Replace(cardJSON, `"streaming":true`, fmt.Sprintf(`"streaming":%t`, streams), 1))
			return
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		for method, answer := range answers {
			if strings.Contains(string(body), `"`+method+`"`) {
				answer(w, r)
				return
			}
		}
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"not supported"}}`)
	})
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
}

func result(json string) string { return `{"jsonrpc":"2.0","id":1,"result":` + json + `}` }

func streams(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			_, _ = io.WriteString(w, "data: "+result(e)+"\n\n")
		}
	}
}

const (
	submitted = `{"task":{"id":"r","contextId":"c","status":{"state":"TASK_STATE_SUBMITTED"}}}`
	chunk     = `{"artifactUpdate":{"taskId":"r","artifact":{"artifactId":"a","parts":[{"text":"x"}]}}}`
	foreign   = `{"artifactUpdate":{"taskId":"other","artifact":{"artifactId":"evil","parts":[{"text":"x"}]}}}`
	completed = `{"statusUpdate":{"taskId":"r","status":{"state":"TASK_STATE_COMPLETED"}}}`
	whole     = `{"id":"r","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},"artifacts":[{"artifactId":"a","parts":[{"data":{"big":9007199254740993}}]}]}`
)

// What agents do that they should not: none of it hangs, is believed, or is sent again
// where that is of no use.
func TestHostileAgents(t *testing.T) {
	for name, c := range map[string]struct {
		agent http.Handler
		want  delivery.Kind
		why   string
	}{
		"a redirection to a metadata address": {rpc(true, map[string]http.HandlerFunc{
			"SendStreamingMessage": func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://169.254.169.254/latest/", http.StatusTemporaryRedirect)
			},
		}), delivery.Refused, "redirects are not followed"},
		"an answer without an end":     {rpc(false, map[string]http.HandlerFunc{"SendMessage": flood(" ")}), delivery.Refused, "larger"},
		"a line without an end":        {rpc(true, map[string]http.HandlerFunc{"SendStreamingMessage": flood("x")}), delivery.Refused, "larger"},
		"silence":                      {rpc(true, map[string]http.HandlerFunc{"SendStreamingMessage": hang}), delivery.Lost, ""},
		"no JSON":                      {rpc(false, map[string]http.HandlerFunc{"SendMessage": says("<html>")}), delivery.Lost, "not valid JSON"},
		"a state that there is not":    {rpc(false, map[string]http.HandlerFunc{"SendMessage": says(result(`{"id":"r","status":{"state":"FINE"}}`))}), delivery.Lost, "no state"},
		"no task at all":               {rpc(false, map[string]http.HandlerFunc{"SendMessage": says(result(`{}`))}), delivery.Lost, "no task"},
		"an artifact without parts":    {rpc(true, map[string]http.HandlerFunc{"SendStreamingMessage": streams(submitted, `{"artifactUpdate":{"taskId":"r","artifact":{"artifactId":"a"}}}`), "GetTask": says(result(`{"id":"r","status":{"state":"TASK_STATE_FAILED"}}`))}), delivery.Answered, ""},
		"a credential that is refused": {http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }), delivery.Refused, "credential"},
		"a gateway in trouble":         {rpc(true, map[string]http.HandlerFunc{"SendStreamingMessage": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }}), delivery.Lost, "502"},
		"a refusal in words":           {rpc(false, map[string]http.HandlerFunc{"SendMessage": says(`{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no such skill"}}`)}), delivery.Refused, "no such skill"},
		"a stream that is cut and a task that is forgotten": {rpc(true, map[string]http.HandlerFunc{
			"SendStreamingMessage": streams(submitted),
			"GetTask":              says(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`),
		}), delivery.Lost, "forgotten"},
		"a card that offers nothing the hub speaks": {says(`{"supportedInterfaces":[{"url":"x:1","protocolBinding":"CARRIER-PIGEON","protocolVersion":"1.0"}]}`), delivery.Unsent, "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := ask(t, c.agent)
			if got.Kind != c.want || !strings.Contains(got.Reason, c.why) {
				t.Errorf("%v, %q; want %v and %q", got.Kind, got.Reason, c.want, c.why)
			}
			if strings.Contains(got.Reason, "127.0.0.1") || strings.Contains(got.Reason, "169.254") {
				t.Errorf("callers are told where: %q", got.Reason)
			}
		})
	}
}

func flood(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		if text == " " {
			w.Header().Set("Content-Type", "application/json")
		}
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, strings.Repeat(text, 4096)); err != nil {
				return
			}
		}
	}
}

func hang(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// What is not of the task is left out, numbers stay exact, and the first end counts.
func TestWhatAnAgentSaysIsPassedOn(t *testing.T) {
	got, reports := ask(t, rpc(true, map[string]http.HandlerFunc{
		"SendStreamingMessage": streams(submitted, foreign, chunk, completed, `{"statusUpdate":{"taskId":"r","status":{"state":"TASK_STATE_FAILED"}}}`),
	}))
	if got.Kind != delivery.Answered || got.Report.State != hub.Completed || len(reports) != 1 || reports[0].Events[0].ArtifactID != "a" {
		t.Errorf("%+v, reported %+v", got, reports)
	}
	got, _ = ask(t, rpc(false, map[string]http.HandlerFunc{"SendMessage": says(result(whole))}))
	if got.Kind != delivery.Answered || len(got.Report.Events) != 1 || !strings.Contains(string(got.Report.Events[0].Body), "9007199254740993") {
		t.Errorf("%+v", got)
	}
	got, _ = ask(t, rpc(true, map[string]http.HandlerFunc{
		"SendStreamingMessage": streams(`{"message":{"messageId":"x","role":"ROLE_AGENT","parts":[{"text":"just so"}]}}`),
	}))
	if got.Kind != delivery.Answered || got.Report.State != hub.Completed || !strings.Contains(string(got.Report.Message), "just so") {
		t.Errorf("a bare message: %+v", got)
	}
}

// A stream may break after any of its bytes: the task is found again and told whole.
func TestAStreamThatBreaksAnywhere(t *testing.T) {
	text := "data: " + result(submitted) + "\n\ndata: " + result(chunk) + "\n\n"
	for n := strings.Index(text, "\n\n") + 2; n <= len(text); n += 7 {
		got, _ := ask(t, rpc(true, map[string]http.HandlerFunc{
			"SendStreamingMessage": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, text[:n])
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			},
			"GetTask": says(result(whole)),
		}))
		if got.Kind != delivery.Answered || got.Report.State != hub.Completed {
			t.Fatalf("after %d bytes: %+v", n, got)
		}
	}
}

// A task that an earlier delivery has brought is followed, not sent again, if the agent has
// it; and sent again, with the same message, if not.
func TestAnEarlierDelivery(t *testing.T) {
	var sends atomic.Int32
	send := func(w http.ResponseWriter, _ *http.Request) {
		sends.Add(1)
		_, _ = io.WriteString(w, result(whole))
	}
	linked := func(x *delivery.Delivery) {
		x.Task.Attempt, x.Earlier = 2, &hub.Dispatch{Task: "t", Attempt: 1, RemoteTask: "r", Sent: true}
	}
	got, _ := ask(t, rpc(false, map[string]http.HandlerFunc{"SendMessage": send, "GetTask": says(result(whole))}), linked)
	if got.Kind != delivery.Answered || sends.Load() != 0 {
		t.Errorf("followed: %+v, %d sends", got, sends.Load())
	}
	got, _ = ask(t, rpc(false, map[string]http.HandlerFunc{
		"SendMessage": send, "GetTask": says(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`),
	}), linked)
	if got.Kind != delivery.Answered || sends.Load() != 1 {
		t.Errorf("forgotten: %+v, %d sends", got, sends.Load())
	}
	got, _ = ask(t, rpc(false, map[string]http.HandlerFunc{
		"SendMessage": send, "GetTask": says(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`),
	}), func(x *delivery.Delivery) {
		x.Task.Attempt, x.Earlier = 2, &hub.Dispatch{Task: "t", Attempt: 2, RemoteTask: "r", Sent: true}
	})
	if got.Kind != delivery.Lost || sends.Load() != 1 {
		t.Errorf("forgotten in the middle of an attempt: %+v, %d sends; want the next attempt to send it", got, sends.Load())
	}
	got, _ = ask(t, rpc(false, map[string]http.HandlerFunc{
		"SendMessage": send, "GetTask": says(`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`),
	}), linked, func(x *delivery.Delivery) { x.Unsure, x.OnUnknown = true, "fail" })
	if got.Kind != delivery.Refused || sends.Load() != 1 {
		t.Errorf("forgotten, perhaps sent since, and not to be repeated: %+v, %d sends", got, sends.Load())
	}
	got, _ = ask(t, rpc(false, map[string]http.HandlerFunc{"SendMessage": send}), func(x *delivery.Delivery) {
		x.Task.Attempt, x.Earlier, x.OnUnknown = 2, &hub.Dispatch{Task: "t", Attempt: 1, Sent: true}, "fail"
	})
	if got.Kind != delivery.Refused || sends.Load() != 1 {
		t.Errorf("unknown, and not to be repeated: %+v, %d sends", got, sends.Load())
	}
}

// What the caller adds while the agent says nothing is passed on at once.
func TestMessagesDuringAQuietStream(t *testing.T) {
	open, told := make(chan struct{}), make(chan string, 1)
	messages := make(chan hub.Message, 1)
	go func() {
		<-open
		messages <- hub.Message{N: 2, Body: canon.TextMessage("m2", false, "one more thing")}
	}()
	got, _ := ask(t, rpc(true, map[string]http.HandlerFunc{
		"SendStreamingMessage": func(w http.ResponseWriter, r *http.Request) {
			streams(submitted)(w, r)
			_ = http.NewResponseController(w).Flush()
			close(open)
			select {
			case said := <-told: // before another word of this stream
				if !strings.Contains(said, "one more thing") || !strings.Contains(said, `"taskId":"r"`) {
					t.Errorf("the agent was told %s", said)
				}
				streams(chunk, completed)(w, r)
			case <-r.Context().Done():
				t.Error("the agent was told nothing")
			}
		},
		"SendMessage": func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			told <- string(body)
			_, _ = io.WriteString(w, result(submitted))
		},
	}), func(x *delivery.Delivery) { x.Messages = messages })
	if got.Kind != delivery.Answered || got.Report.State != hub.Completed {
		t.Errorf("%+v", got)
	}
}

func TestCancel(t *testing.T) {
	state := func(s string) string { return result(`{"id":"r","status":{"state":"TASK_STATE_` + s + `"}}`) }
	for name, c := range map[string]struct {
		get, cancel string
		want        hub.CancelOutcome
	}{
		"it cancels":       {state("WORKING"), state("CANCELED"), hub.CancelConfirmed},
		"it has ended":     {state("COMPLETED"), "", hub.CancelAlreadyFinished},
		"it knows nothing": {`{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`, "", hub.CancelUnconfirmed},
		"it cannot":        {state("WORKING"), `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"no"}}`, hub.CancelUnconfirmed},
	} {
		t.Run(name, func(t *testing.T) {
			canceled := 0
			s := newServer(t, rpc(false, map[string]http.HandlerFunc{
				"GetTask": says(c.get),
				"CancelTask": func(w http.ResponseWriter, _ *http.Request) {
					canceled++
					_, _ = io.WriteString(w, c.cancel)
				},
			}))
			got, err := newDeliverer(t, nil).Cancel(t.Context(), hub.Endpoint{URL: s.url()}, hub.Dispatch{Task: "t", RemoteTask: "r"})
			if err != nil || got != c.want {
				t.Errorf("%v, error %v; want %v", got, err, c.want)
			}
			if (c.cancel == "") != (canceled == 0) {
				t.Errorf("told %d times to cancel", canceled)
			}
		})
	}
	s := newServer(t, http.NotFoundHandler())
	s.down()
	if _, err := newDeliverer(t, nil).Cancel(t.Context(), hub.Endpoint{URL: s.url()}, hub.Dispatch{RemoteTask: "r"}); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("an agent that is away: %v, want an error so that it is tried again", err)
	}
}
