package a2a_test

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/identity"
)

func subscribe(id string) string { return fmt.Sprintf(`{"id":%q}`, id) }

// testStreamingSend is section 3.1.2: the task first, then every change in order,
// each under its number, and the end of the stream with the end of the task.
func testStreamingSend(t *testing.T, b *bed) {
	s := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""))
	id, first, ok := s.next()
	if !ok || id != "1" || first.Task == nil || first.state() != "TASK_STATE_SUBMITTED" || len(first.Task.History) != 1 {
		t.Fatalf("first: %s %+v", id, first)
	}
	got := b.next()
	b.chunk(got.ID, "a", false)
	b.chunk(got.ID, "b", true)
	b.finish(got.ID, "completed", "")
	want := []string{"2:WORKING", "3:a", "4:b", "5:COMPLETED"}
	if all := s.states(); !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
	if h := s.header; h.Get("Content-Type") == "text/event-stream" && (h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store") {
		t.Errorf("headers %v", h)
	}
}

// testStreamingSendThatEndsAtOnce: a task that is over before it can be followed is
// a stream of that task alone, and so is the replay of one that has ended.
func testStreamingSendThatEndsAtOnce(t *testing.T, b *bed) {
	s := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""), "Idempotency-Key", "k")
	b.finish(b.next().ID, "completed", "done")
	s.states()
	if got, want := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""), "Idempotency-Key", "k").states(), []string{"4:task COMPLETED"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// testStreamErrorsArePlain is section 9.4.2: what goes wrong before the stream begins
// is an ordinary answer.
func testStreamErrorsArePlain(t *testing.T, b *bed) {
	for method, params := range map[string]string{"SendStreamingMessage": `{}`, "SubscribeToTask": `{"id":"none"}`} {
		a := b.call(b.caller, method, params)
		if a.Error == nil || a.Header.Get("Content-Type") == "text/event-stream" {
			t.Errorf("%s: %v %s", method, a.Header, a.Body)
		}
	}
}

// testSubscribe is section 3.1.6: the task as it is, then what follows; a question
// does not end the stream, the end does.
func testSubscribe(t *testing.T, b *bed) {
	id := b.send(b.caller, "hi").ID
	b.next()
	b.chunk(id, "a", false)
	s := b.stream(b.caller, "SubscribeToTask", subscribe(id))
	at, first, _ := s.next()
	if at != "3" || first.state() != "TASK_STATE_WORKING" || len(first.Task.Artifacts) != 1 {
		t.Fatalf("first: %s %+v", at, first)
	}
	b.finish(id, "input_required", "")
	if at, e, _ := s.next(); at != "4" || e.state() != "TASK_STATE_INPUT_REQUIRED" {
		t.Fatalf("question: %s %+v", at, e)
	}
	if b.former() { // where a stream ends with a question, and another one goes on
		if _, e, ok := s.next(); ok {
			t.Fatalf("behind the question: %+v", e)
		}
		s = b.stream(b.caller, "SubscribeToTask", subscribe(id), "Last-Event-ID", "4")
	}
	b.call(b.caller, "SendMessage", message("answer", fmt.Sprintf(`"taskId":%q,`, id), immediately))
	b.next()
	b.finish(id, "completed", "")
	if all, want := s.states(), []string{"5:WORKING", "6:COMPLETED"}; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
}

// testSubscribeToEndedTask is section 3.1.6: there is nothing to subscribe to.
func testSubscribeToEndedTask(t *testing.T, b *bed) {
	id := b.send(b.caller, "hi").ID
	b.next()
	b.finish(id, "completed", "")
	a := b.call(b.caller, "SubscribeToTask", subscribe(id))
	wantReason(t, a, "UNSUPPORTED_OPERATION")
	if a.Header.Get("Content-Type") == "text/event-stream" {
		t.Error("answered by a stream")
	}
}

// testResume: after Last-Event-ID come exactly the later events and no task, also
// when the task has ended, and over a restart.
func testResume(t *testing.T, b *bed) {
	id := b.send(b.caller, "hi").ID
	b.next()
	b.chunk(id, "a", false)
	live := b.stream(b.caller, "SubscribeToTask", subscribe(id), "Last-Event-ID", "2")
	if at, e, _ := live.next(); at != "3" || e.ArtifactUpdate == nil {
		t.Fatalf("live: %s %+v", at, e)
	}
	b.chunk(id, "b", true)
	b.finish(id, "completed", "")
	if got, want := live.states(), []string{"4:b", "5:COMPLETED"}; !slices.Equal(got, want) {
		t.Errorf("live: %v, want %v", got, want)
	}
	all := []string{"1:SUBMITTED", "2:WORKING", "3:a", "4:b", "5:COMPLETED"}
	check := func() {
		t.Helper()
		for n := range all {
			got := b.stream(b.caller, "SubscribeToTask", subscribe(id), "Last-Event-ID", strconv.Itoa(n)).states()
			if !slices.Equal(got, all[n:]) {
				t.Errorf("after %d: %v, want %v", n, got, all[n:])
			}
		}
		if got := b.stream(b.caller, "SubscribeToTask", subscribe(id), "Last-Event-ID", "5").states(); len(got) != 0 {
			t.Errorf("after the end: %v", got)
		}
	}
	check()
	b.Restart()
	check()
	waiting := b.send(b.caller, "waits").ID
	start := time.Now()
	b.stream(b.caller, "SubscribeToTask", subscribe(waiting), "Last-Event-ID", "1")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("with nothing to send yet, the stream began after %s", took)
	}
	for _, header := range []string{"x", "-1", "1.5", "99999999999999999999", "6", "1000000"} {
		wantReason(t, b.call(b.caller, "SubscribeToTask", subscribe(id), "Last-Event-ID", header), "INVALID_PARAMS")
	}
}

// testSubscribeRacesCompletion: whoever subscribes while the task ends is told that
// it has ended, by an error or by the stream, and never waits for what was missed.
func testSubscribeRacesCompletion(t *testing.T, b *bed) {
	refused, snapshots := 0, 0
	for range 100 {
		id := b.send(b.caller, "x").ID
		b.next()
		var both sync.WaitGroup
		both.Go(func() { b.finish(id, "completed", "done") })
		s, a := b.open(b.caller, "SubscribeToTask", subscribe(id))
		if s == nil {
			both.Wait()
			wantReason(t, a, "UNSUPPORTED_OPERATION")
			refused++
			continue
		}
		watch := time.AfterFunc(10*time.Second, s.cancel) // a hang fails the read
		var body strings.Builder
		for _, a, ok := s.recv(); ok; _, a, ok = s.recv() {
			body.WriteString(a.Body)
		}
		watch.Stop()
		both.Wait()
		snapshots++
		got := body.String()
		if !strings.Contains(got, `"task":`) || strings.Count(got, "TASK_STATE_COMPLETED") != 1 || strings.Count(got, `"text":"done"`) != 1 {
			t.Fatalf("not the task, its result and its end once each: %s", got)
		}
	}
	t.Logf("%d refused, %d streamed", refused, snapshots)
}

// TestReaderThatNeverReads: one subscriber that does not read holds up neither the
// callee nor another subscriber.
func TestReaderThatNeverReads(t *testing.T) {
	b := newBed(t)
	id := b.send(b.caller, "x").ID
	b.next()
	stuck, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if err := b.request(t.Context(), b.caller, "SubscribeToTask", subscribe(id)).Write(stuck); err != nil {
		t.Fatal(err)
	}
	s := b.stream(b.caller, "SubscribeToTask", subscribe(id))
	const chunks = 1000
	text := strings.Repeat("x", 16<<10)
	var feed sync.WaitGroup
	feed.Go(func() {
		for i := range chunks {
			b.chunk(id, text, i > 0)
		}
		b.finish(id, "completed", "")
	})
	all := s.states()
	feed.Wait()
	if len(all) != chunks+2 {
		t.Fatalf("%d events, want the task, %d chunks and the end", len(all), chunks)
	}
	for i, e := range all {
		if at, _, _ := strings.Cut(e, ":"); at != strconv.Itoa(i+2) {
			t.Fatalf("event %d came as number %s", i+2, at)
		}
	}
	start := time.Now()
	b.send(b.caller, "another")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("another send took %s", took)
	}
	if got := b.get(id); len(got.Artifacts) != 1 || strings.Count(string(got.Artifacts[0]), `"text"`) != chunks {
		t.Error("the task has not all of its chunks")
	}
}

// testClientThatGoes: a client that goes away changes nothing about its task.
func testClientThatGoes(t *testing.T, b *bed) {
	s := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""))
	_, first, _ := s.next()
	s.cancel()
	if got := b.next(); got.ID != first.Task.ID {
		t.Fatalf("claimed %s", got.ID)
	}
	b.finish(first.Task.ID, "completed", "done")
	if got := b.get(first.Task.ID); got.Status.State != "TASK_STATE_COMPLETED" {
		t.Errorf("got %+v", got)
	}
}

// testRevocationEndsStream: a stream does not outlive its credential, and says why it
// ended.
func testRevocationEndsStream(t *testing.T, b *bed) {
	id := b.send(b.caller, "hi").ID
	record, secret, err := b.Identity().CreateToken(t.Context(), b.Admin(), "caller", identity.TokenSpec{})
	if err != nil {
		t.Fatal(err)
	}
	s := b.stream(secret, "SubscribeToTask", subscribe(id))
	s.next()
	if err := b.Identity().RevokeToken(t.Context(), b.Admin(), record.ID); err != nil {
		t.Fatal(err)
	}
	at, a, ok := s.recv()
	if !ok || at != "" {
		t.Fatalf("got %q %+v", at, a)
	}
	wantReason(t, a, "UNAUTHENTICATED")
	if _, _, ok := s.recv(); ok {
		t.Error("the stream goes on")
	}
}

// testShutdownEndsStreams: a hub that shuts down ends its streams and blocking sends
// with an ordinary answer; the client goes on after the restart.
func testShutdownEndsStreams(t *testing.T, b *bed) {
	s := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""))
	at, first, _ := s.next()
	blocked := make(chan answer, 1)
	sent := make(chan struct{})
	go func() {
		close(sent)
		blocked <- b.call(b.caller, "SendMessage", message("blocks", "", ""))
	}()
	<-sent
	for decode[taskList](t, b.call(b.caller, "ListTasks", `{}`)).ids() == nil || len(decode[taskList](t, b.call(b.caller, "ListTasks", `{}`)).Tasks) < 2 {
	}
	b.client.CloseIdleConnections() // the hub waits for what was dialled and never used
	b.Restart()
	if got := s.states(); len(got) != 0 {
		t.Errorf("at the shutdown: %v", got)
	}
	if got := decode[struct{ Task task }](t, <-blocked).Task; got.Status.State != "TASK_STATE_SUBMITTED" {
		t.Errorf("blocked: %+v", got)
	}
	resumed := b.stream(b.caller, "SubscribeToTask", subscribe(first.Task.ID), "Last-Event-ID", at)
	if got := b.next(); got.ID != first.Task.ID {
		t.Fatalf("claimed %s", got.ID)
	}
	b.finish(first.Task.ID, "completed", "")
	if got, want := resumed.states(), []string{"2:WORKING", "3:COMPLETED"}; !slices.Equal(got, want) {
		t.Errorf("resumed: %v, want %v", got, want)
	}
}

// TestStreamErrors: a client that asks for a stream gets an error as the only event of
// one, which is all that the Go SDK reads, but for those that HTTP itself tells, and that
// of a task that has ended.
func TestStreamErrors(t *testing.T) {
	b := newBed(t)
	ask := func(method, params string, headers ...string) (int, string) {
		t.Helper()
		return b.exchange("POST", "/a/coder", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params), headers...)
	}
	const event = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,"
	for accept, want := range map[string]string{
		"text/event-stream": event, "application/json, text/event-stream;q=0.9": event,
		"": event[len("data: "):], "application/json": event[len("data: "):],
	} {
		if status, got := ask("SubscribeToTask", subscribe("none"), "Accept", accept); status != 200 || !strings.HasPrefix(got, want) {
			t.Errorf("Accept: %s: %d %s", accept, status, got)
		}
	}
	id := b.send(b.caller, "hi").ID
	b.next()
	b.finish(id, "completed", "")
	ended := message("more", fmt.Sprintf(`"taskId":%q,`, id), "")
	for _, c := range []struct {
		method, params, begins, has string
		status                      int
		headers                     []string
	}{
		{method: "SendStreamingMessage", params: `{}`, begins: "data: ", has: "-32602", status: 200},
		{method: "SendStreamingMessage", params: ended, begins: "data: ", has: "-32004", status: 200},
		{method: "SendStreamingMessage", params: `{}`, begins: "data: ", has: "-32009", status: 200, headers: []string{"A2A-Version", "9.0"}},
		{method: "SubscribeToTask", params: subscribe(id), begins: "{", has: "-32004", status: 200},
		{method: "GetTask", params: subscribe("none"), begins: "{", has: "-32001", status: 200},
		{method: "SubscribeToTask", params: subscribe(id), begins: "{", has: "-31401", status: 401, headers: []string{"Authorization", "Bearer wrong"}},
	} {
		status, got := ask(c.method, c.params, append([]string{"Accept", "text/event-stream"}, c.headers...)...)
		if status != c.status || !strings.HasPrefix(got, c.begins) || !strings.Contains(got, c.has) {
			t.Errorf("%s %s: %d %s", c.method, c.params, status, got)
		}
	}
}
