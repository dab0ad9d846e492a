package a2a_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/identity"
)

func subscribe(id string) string { return fmt.Sprintf(`{"id":%q}`, id) }

// TestStreamingSend is section 3.1.2: the task first, then every change in order,
// each under its number, and the end of the stream with the end of the task.
func TestStreamingSend(t *testing.T) {
	b := newBed(t)
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
	if h := s.res.Header; h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", h)
	}
}

// TestStreamingSendThatEndsAtOnce: a task that is over before it can be followed is
// a stream of that task alone, and so is the replay of one that has ended.
func TestStreamingSendThatEndsAtOnce(t *testing.T) {
	b := newBed(t)
	s := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""), "Idempotency-Key", "k")
	b.finish(b.next().ID, "completed", "done")
	s.states()
	if got, want := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""), "Idempotency-Key", "k").states(), []string{"4:task COMPLETED"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestStreamErrorsArePlain is section 9.4.2: what goes wrong before the stream begins
// is an ordinary answer.
func TestStreamErrorsArePlain(t *testing.T) {
	b := newBed(t)
	for method, params := range map[string]string{"SendStreamingMessage": `{}`, "SubscribeToTask": `{"id":"none"}`} {
		a := b.call(b.caller, method, params)
		if a.Error == nil || a.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v %s", method, a.Header, a.Body)
		}
	}
}

// TestSubscribe is section 3.1.6: the task as it is, then what follows; a question
// does not end the stream, the end does.
func TestSubscribe(t *testing.T) {
	b := newBed(t)
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
	b.call(b.caller, "SendMessage", message("answer", fmt.Sprintf(`"taskId":%q,`, id), immediately))
	b.next()
	b.finish(id, "completed", "")
	if all, want := s.states(), []string{"5:WORKING", "6:COMPLETED"}; !slices.Equal(all, want) {
		t.Errorf("got %v, want %v", all, want)
	}
}

// TestSubscribeToEndedTask is section 3.1.6: there is nothing to subscribe to.
func TestSubscribeToEndedTask(t *testing.T) {
	b := newBed(t)
	id := b.send(b.caller, "hi").ID
	b.next()
	b.finish(id, "completed", "")
	a := b.call(b.caller, "SubscribeToTask", subscribe(id))
	wantCode(t, a, -32004)
	if a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("content type %s", a.Header.Get("Content-Type"))
	}
}

// TestResume: after Last-Event-ID come exactly the later events and no task, also
// when the task has ended, and over a restart.
func TestResume(t *testing.T) {
	b := newBed(t)
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
		wantCode(t, b.call(b.caller, "SubscribeToTask", subscribe(id), "Last-Event-ID", header), -32602)
	}
}

// TestSubscribeRacesCompletion: whoever subscribes while the task ends is told that
// it has ended, by an error or by the stream, and never waits for what was missed.
func TestSubscribeRacesCompletion(t *testing.T) {
	b := newBed(t)
	refused, snapshots := 0, 0
	for range 300 {
		id := b.send(b.caller, "x").ID
		b.next()
		var both sync.WaitGroup
		both.Go(func() { b.finish(id, "completed", "done") })
		res, err := b.client.Do(b.request(t.Context(), b.caller, "SubscribeToTask", subscribe(id)))
		if err != nil {
			t.Fatal(err)
		}
		watch := time.AfterFunc(10*time.Second, func() { res.Body.Close() }) // a hang fails the read
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		watch.Stop()
		both.Wait()
		if err != nil {
			t.Fatalf("the stream did not end: %v\n%s", err, body)
		}
		if res.Header.Get("Content-Type") == "application/json" {
			wantCode(t, parseAnswer(t, 200, nil, body), -32004)
			refused++
			continue
		}
		snapshots++
		if !strings.Contains(string(body), `"task":`) || strings.Count(string(body), "TASK_STATE_COMPLETED") != 1 || strings.Count(string(body), `"text":"done"`) != 1 {
			t.Fatalf("not the task, its result and its end once each: %s", body)
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

// TestClientThatGoes: a client that goes away changes nothing about its task.
func TestClientThatGoes(t *testing.T) {
	b := newBed(t)
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

// TestRevocationEndsStream: a stream does not outlive its credential, and says why it
// ended.
func TestRevocationEndsStream(t *testing.T) {
	b := newBed(t)
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
	at, data, ok := s.raw()
	if !ok || at != "" {
		t.Fatalf("got %q %q", at, data)
	}
	wantCode(t, parseAnswer(t, http.StatusOK, nil, []byte(data)), -31401)
	if _, _, ok := s.raw(); ok {
		t.Error("the stream goes on")
	}
}

// TestShutdownEndsStreams: a hub that shuts down ends its streams and blocking sends
// with an ordinary answer; the client goes on after the restart.
func TestShutdownEndsStreams(t *testing.T) {
	b := newBed(t)
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
