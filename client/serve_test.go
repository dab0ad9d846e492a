package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/client"
)

func TestPlainReturnsBecomeResults(t *testing.T) {
	b := newBed(t)
	type grade struct {
		Grade int `json:"grade"`
	}
	b.serve(b.coder, func(_ context.Context, task *client.Task) (any, error) {
		switch task.Text() {
		case "string":
			return "done", nil
		case "struct":
			return grade{9}, nil
		case "artifacts":
			return []client.Artifact{{Name: "a", Parts: []client.Part{client.Text("1")}}, {Name: "b", Parts: []client.Part{client.Text("2")}}}, nil
		case "message":
			return client.Message{Parts: []client.Part{client.Text("bye")}}, nil
		case "error":
			return nil, errors.New("no disk")
		case "panic":
			panic("secret state")
		case "data":
			return fmt.Sprint(task.Data()["n"]), nil
		}
		return nil, nil
	})
	send := func(input any) *client.Task { return must(b.boss.SendAndWait(b.context(), "coder", input))(t) }

	if got := send("string"); got.ResultText() != "done" || got.Artifacts[0].Name != "response" || got.Err() != nil {
		t.Errorf("%+v", got)
	}
	var g grade
	if got := send("struct"); got.DecodeResult(&g) != nil || g.Grade != 9 {
		t.Errorf("%+v", got.Artifacts)
	}
	if got := send("artifacts"); len(got.Artifacts) != 2 || got.ResultText() != "1\n2" {
		t.Errorf("%+v", got.Artifacts)
	}
	if got := send("message"); got.State != client.StateCompleted || got.StatusText() != "bye" {
		t.Errorf("%+v", got.Status)
	}
	if got := send("error"); got.State != client.StateFailed || !strings.Contains(got.Err().Error(), "no disk") {
		t.Errorf("%s, %v", got.State, got.Err())
	}
	if got := send("panic"); got.State != client.StateFailed || strings.Contains(got.Err().Error(), "secret") {
		t.Errorf("%s, %v", got.State, got.Err())
	}
	if got := send([]client.Part{client.Text("data"), must(client.Data(map[string]int{"n": 7}))(t)}); got.ResultText() != "7" {
		t.Errorf("%q", got.ResultText())
	}
	if got := send("nothing"); got.State != client.StateCompleted || len(got.Artifacts) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestAPanicIsLoggedAndTold(t *testing.T) {
	b := newBed(t)
	var mu sync.Mutex
	var log bytes.Buffer
	told := make(chan error, 1)
	w := b.serve(b.coder, func(context.Context, *client.Task) (any, error) { panic("boom") },
		client.MaxTasks(1), client.Logger(slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil))),
		client.OnError(func(_ *client.Task, err error) { told <- err }))
	must(b.boss.Send(b.context(), "coder", "hi"))(t)
	p, ok := errors.AsType[*client.PanicError](recv(t, told, "OnError"))
	if !ok || p.Value != "boom" || !bytes.Contains(p.Stack, []byte("TestAPanicIsLogged")) {
		t.Errorf("%v", p)
	}
	w.wait()
	mu.Lock()
	defer mu.Unlock()
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "serve_test.go") {
		t.Errorf("the log has no stack: %s", &log)
	}
}

type locked struct {
	mu *sync.Mutex
	w  *bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func TestAQuestionAndItsAnswer(t *testing.T) {
	b := newBed(t)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		if answer := task.AnswerText(); answer != "" {
			return task.Text() + " in " + answer, nil
		}
		return "ignored", task.Ask(ctx, "which colour?")
	})
	asked := must(b.boss.SendAndWait(b.context(), "coder", "paint"))(t)
	if asked.State != client.StateInputRequired || asked.StatusText() != "which colour?" {
		t.Fatalf("%s %q", asked.State, asked.StatusText())
	}
	must(b.boss.Answer(b.context(), asked, "red"))(t)
	done := must(b.boss.Wait(b.context(), "coder", asked.ID))(t)
	if done.ResultText() != "paint in red" {
		t.Errorf("%s %q", done.State, done.ResultText())
	}
}

func TestSettlingByHand(t *testing.T) {
	b := newBed(t)
	second := make(chan error, 8)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		var err error
		switch task.Text() {
		case "done":
			err = task.Done(ctx, map[string]int{"n": 1})
		case "fail":
			err = task.Fail(ctx, "no paint")
		case "reject":
			err = task.Reject(ctx, "not my job")
		case "auth":
			err = task.AskAuth(ctx, "log in first")
		}
		second <- task.Done(ctx, "again")
		return "too late", err
	})
	for text, want := range map[string]struct{ state, words string }{
		"done": {client.StateCompleted, ""}, "fail": {client.StateFailed, "no paint"},
		"reject": {client.StateRejected, "not my job"}, "auth": {client.StateAuthRequired, "log in first"},
	} {
		got := must(b.boss.SendAndWait(b.context(), "coder", text))(t)
		words := got.StatusText()
		if got.Error != nil {
			words = *got.Error
		}
		if got.State != want.state || words != want.words || strings.Contains(got.ResultText(), "too late") {
			t.Errorf("%s: %s %q %q", text, got.State, words, got.ResultText())
		}
		if err := recv(t, second, "the second report"); !errors.Is(err, client.ErrSettled) {
			t.Errorf("%s: a second report: %v", text, err)
		}
	}
}

func TestACancelEndsTheHandlersContext(t *testing.T) {
	b := newBed(t)
	started := make(chan string, 1)
	cause, told := make(chan error, 1), make(chan error, 4)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		started <- task.ID
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return "dropped", nil
	}, client.OnError(func(_ *client.Task, err error) { told <- err }))
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	recv(t, started, "the start")
	must(b.boss.Cancel(b.context(), "coder", task.ID))(t)
	if err := recv(t, cause, "the end of the context"); !errors.Is(err, client.ErrCanceled) {
		t.Error(err)
	}
	if err := recv(t, told, "OnError"); !errors.Is(err, client.ErrCanceled) {
		t.Error(err)
	}
	got := must(b.boss.Get(b.context(), "coder", task.ID))(t)
	if got.State != client.StateCanceled || got.CancelOutcome != "confirmed" || got.ResultText() != "" {
		t.Errorf("%s %s", got.State, got.CancelOutcome)
	}
}

// A report finds out about a cancel before the next heartbeat would.
func TestProgressFindsOutAboutACancel(t *testing.T) {
	b := newBed(t)
	started, canceled := make(chan string, 1), make(chan struct{})
	found := make(chan error, 1)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		started <- task.ID
		<-canceled
		err := task.Progress(ctx, "still at it")
		found <- errors.Join(err, context.Cause(ctx))
		return nil, err
	}, client.Lease(time.Hour))
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	recv(t, started, "the start")
	must(b.boss.Cancel(b.context(), "coder", task.ID))(t)
	close(canceled)
	if err := recv(t, found, "the refusal"); !errors.Is(err, client.ErrCanceled) || errors.Is(err, client.ErrLeaseLost) {
		t.Error(err)
	}
}

func TestALostLeaseEndsTheHandlersContext(t *testing.T) {
	b := newBed(t)
	started := make(chan int, 4)
	cause := make(chan error, 1)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		started <- task.Attempt
		if task.Attempt == 1 {
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return "stale", nil
		}
		return "fresh", nil
	})
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	recv(t, started, "the start")
	must(b.admin.Requeue(b.context(), task.ID))(t)
	if err := recv(t, cause, "the end of the context"); !errors.Is(err, client.ErrLeaseLost) {
		t.Error(err)
	}
	if got := must(b.boss.Wait(b.context(), "coder", task.ID))(t); got.ResultText() != "fresh" {
		t.Errorf("%q", got.ResultText())
	}
}

func TestHeartbeatsKeepALongTask(t *testing.T) {
	b := newBed(t)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(2500 * time.Millisecond): // several leases
			return task.Attempt, nil
		}
	}, client.Lease(time.Second))
	got := must(b.boss.SendAndWait(b.context(), "coder", "hi"))(t)
	if got.State != client.StateCompleted || got.Attempt != 1 || got.Failures != 0 {
		t.Errorf("%s in attempt %d after %d failures", got.State, got.Attempt, got.Failures)
	}
}

func TestConcurrencyIsUsedAndKept(t *testing.T) {
	b := newBed(t)
	const n, tasks = 3, 12
	var now, most atomic.Int32
	full := make(chan struct{})
	var once sync.Once
	w := b.serve(b.coder, func(context.Context, *client.Task) (any, error) {
		defer now.Add(-1)
		at := now.Add(1)
		for m := most.Load(); at > m && !most.CompareAndSwap(m, at); m = most.Load() {
		}
		if at == n {
			once.Do(func() { close(full) })
		}
		<-full // nobody goes on before n work at once
		return nil, nil
	}, client.Concurrency(n), client.MaxTasks(tasks))
	for range tasks {
		must(b.boss.Send(b.context(), "coder", "hi"))(t)
	}
	w.wait()
	if w.handled != tasks || w.err != nil || most.Load() != n {
		t.Errorf("%d handled, at most %d at once, %v", w.handled, most.Load(), w.err)
	}
}

func TestMaxTasksLeavesTheRest(t *testing.T) {
	b := newBed(t)
	var ids []string
	for range 7 {
		ids = append(ids, must(b.boss.Send(b.context(), "coder", "hi"))(t).ID)
	}
	w := b.serve(b.coder, func(context.Context, *client.Task) (any, error) { return "ok", nil }, client.MaxTasks(5), client.Concurrency(2))
	w.wait()
	if w.handled != 5 || w.err != nil {
		t.Errorf("%d handled, %v", w.handled, w.err)
	}
	states := map[string]int{}
	for _, id := range ids {
		states[must(b.boss.Get(b.context(), "coder", id))(t).State]++
	}
	if d := cmp.Diff(map[string]int{client.StateCompleted: 5, client.StateSubmitted: 2}, states); d != "" {
		t.Error(d)
	}
}

func TestDrainLetsHandlersFinishAndTakesNothingNew(t *testing.T) {
	b := newBed(t)
	started, finish := make(chan struct{}), make(chan struct{})
	w := b.serve(b.coder, func(ctx context.Context, _ *client.Task) (any, error) {
		close(started)
		<-finish
		return "finished", ctx.Err()
	}, client.Concurrency(1))
	first := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	recv(t, started, "the start")
	second := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	w.cancel()
	close(finish)
	w.wait()
	if w.handled != 1 || w.err != nil {
		t.Errorf("%d handled, %v", w.handled, w.err)
	}
	if got := must(b.boss.Get(b.context(), "coder", first.ID))(t); got.ResultText() != "finished" {
		t.Errorf("%s %q", got.State, got.ResultText())
	}
	if got := must(b.boss.Get(b.context(), "coder", second.ID))(t); got.State != client.StateSubmitted || got.Attempt != 0 {
		t.Errorf("%s, attempt %d", got.State, got.Attempt)
	}
}

func TestAfterTheDrainTimeTheTaskIsOfferedAgain(t *testing.T) {
	b := newBed(t)
	started, cause := make(chan struct{}), make(chan error, 1)
	w := b.serve(b.coder, func(ctx context.Context, _ *client.Task) (any, error) {
		close(started)
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil, ctx.Err()
	}, client.Drain(10*time.Millisecond))
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	recv(t, started, "the start")
	w.stop()
	if err := recv(t, cause, "the end of the context"); !errors.Is(err, client.ErrShutdown) {
		t.Error(err)
	}
	b.serve(b.coder, func(_ context.Context, task *client.Task) (any, error) {
		return fmt.Sprint("attempt ", task.Attempt), nil
	})
	if got := must(b.boss.Wait(b.context(), "coder", task.ID))(t); got.ResultText() != "attempt 2" {
		t.Errorf("%s %q", got.State, got.ResultText())
	}
}

func TestServeEndsWithItsToken(t *testing.T) {
	b := newBed(t)
	w := b.serve(b.coder, func(context.Context, *client.Task) (any, error) { return nil, nil }, client.Wait(100*time.Millisecond))
	tokens := must(b.admin.Tokens(b.context(), "coder"))(t)
	if err := b.admin.RevokeToken(b.context(), tokens[0].ID); err != nil {
		t.Fatal(err)
	}
	w.wait()
	if !errors.Is(w.err, client.ErrUnauthenticated) {
		t.Error(w.err)
	}
}

func TestAWorkerOutlivesTheHub(t *testing.T) {
	b := newBed(t)
	var mu sync.Mutex
	var log bytes.Buffer
	handling, finish := make(chan struct{}, 8), make(chan struct{})
	b.serve(b.coder, func(_ context.Context, task *client.Task) (any, error) {
		if task.Text() == "slow" {
			handling <- struct{}{}
			<-finish
		}
		return "did " + task.Text(), nil
	}, client.Lease(time.Minute), client.Logger(slog.New(slog.NewTextHandler(&locked{&mu, &log}, nil))))
	slow := must(b.boss.Send(b.context(), "coder", "slow"))(t)
	recv(t, handling, "the start")
	b.hub.Restart() // with a poll open and a task in hand
	close(finish)
	if got := must(b.boss.Wait(b.context(), "coder", slow.ID))(t); got.ResultText() != "did slow" || got.Attempt != 1 {
		t.Errorf("%s %q in attempt %d", got.State, got.ResultText(), got.Attempt)
	}
	if got := must(b.boss.SendAndWait(b.context(), "coder", "next"))(t); got.ResultText() != "did next" {
		t.Errorf("%s %q", got.State, got.ResultText())
	}
	mu.Lock()
	defer mu.Unlock()
	if n := strings.Count(log.String(), "does not hand out"); n > 1 {
		t.Errorf("an outage was logged %d times:\n%s", n, &log)
	}
}

func TestLostAnswersToReportsDoNotLoseOrDoubleTasks(t *testing.T) {
	b := newBed(t)
	turn := 0
	p := newProxy(t, b.hub.URL, func() int { // every other connection loses an answer
		turn++
		if turn%2 == 0 {
			return 0
		}
		return 4000
	})
	var done atomic.Int32
	b.serve(b.client(p.URL, b.coderToken), func(_ context.Context, task *client.Task) (any, error) {
		done.Add(1)
		return "did " + task.Text(), nil
	})
	const n = 20
	var ids []string
	for i := range n {
		ids = append(ids, must(b.boss.Send(b.context(), "coder", fmt.Sprint(i)))(t).ID)
	}
	for i, id := range ids {
		got := must(b.boss.Wait(b.context(), "coder", id))(t)
		if got.ResultText() != fmt.Sprint("did ", i) || got.Failures != 0 {
			t.Errorf("task %d: %s %q after %d failures", i, got.State, got.ResultText(), got.Failures)
		}
	}
	if p.connections() < 10 {
		t.Errorf("only %d connections: little was lost", p.connections())
	}
	if done.Load() < n {
		t.Errorf("%d handled", done.Load())
	}
}

func TestCallsInAHandlerArePartOfItsTask(t *testing.T) {
	b := newBed(t)
	b.hub.Agent("tester")
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		if client.TaskFromContext(ctx) != task {
			return nil, errors.New("the context has another task")
		}
		var parents []string
		for _, opts := range [][]client.SendOption{nil, {client.WithoutParent()}, {client.WithParent(task.CallID)}} {
			child, err := b.coder.Send(ctx, "tester", "test it", opts...)
			if err != nil {
				return nil, err
			}
			parent, call := "-", "-"
			if child.ParentTaskID != nil {
				parent = map[bool]string{true: "task", false: "?"}[*child.ParentTaskID == task.ID]
			}
			if child.ParentCallID != nil {
				call = map[bool]string{true: "call", false: "?"}[*child.ParentCallID == task.CallID]
			}
			parents = append(parents, parent+call, map[bool]string{true: "same", false: "own"}[child.RunID == task.RunID])
		}
		return strings.Join(parents, " "), nil
	})
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	got := must(b.boss.SendAndWait(b.context(), "coder", "code it", client.WithTraceparent(trace)))(t)
	if got.Err() != nil || !strings.HasPrefix(got.ResultText(), "taskcall same -- own ") || !strings.HasSuffix(got.ResultText(), "call same") {
		t.Errorf("%q, %v", got.ResultText(), got.Err())
	}
	children, _, err := b.admin.ListPage(b.context(), "tester", client.TaskQuery{})
	if err != nil {
		t.Fatal(err)
	}
	traced := 0
	for _, c := range children {
		if c.TraceID != nil && strings.Contains(*c.TraceID, "4bf92f3577b34da6a3ce929d0e0e4736") && !strings.Contains(*c.TraceID, "00f067aa0ba902b7") {
			traced++
		}
	}
	if traced != 2 {
		t.Errorf("%d of the children go on with the trace, in spans of their own", traced)
	}
}

func TestMessagesReachARunningHandlerOnce(t *testing.T) {
	b := newBed(t)
	started := make(chan struct{})
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		close(started)
		var got []string
		for m := range task.Messages() {
			got = append(got, client.PartText(m.Parts))
			if got[len(got)-1] == "stop" {
				return strings.Join(got, ","), nil
			}
		}
		return nil, context.Cause(ctx)
	}, client.Lease(time.Second))
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	recv(t, started, "the start")
	for _, m := range []string{"faster", "louder", "stop"} {
		must(b.boss.Answer(b.context(), task, m))(t)
	}
	if got := must(b.boss.Wait(b.context(), "coder", task.ID))(t); got.ResultText() != "faster,louder,stop" {
		t.Errorf("%s %q", got.State, got.ResultText())
	}
}

func TestNextAndReplyByHand(t *testing.T) {
	b := newBed(t)
	ctx := b.context()
	if _, err := b.coder.Next(ctx, client.Wait(0)); !errors.Is(err, client.ErrNoTask) {
		t.Errorf("an empty mailbox: %v", err)
	}
	sent := must(b.boss.Send(ctx, "coder", "hi"))(t)
	if err := sent.Done(ctx, "mine"); !errors.Is(err, client.ErrNotHeld) {
		t.Errorf("a caller's report: %v", err)
	}
	task := must(b.coder.Next(ctx, client.Wait(time.Second), client.Lease(time.Minute)))(t)
	if task.ID != sent.ID || task.Text() != "hi" || task.ClaimID == "" {
		t.Fatalf("%+v", task)
	}
	must(b.boss.Answer(ctx, sent, "and quickly"))(t)
	beat := must(task.Heartbeat(ctx))(t)
	if len(beat.Messages) != 1 || client.PartText(beat.Messages[0].Parts) != "and quickly" || beat.LeaseExpiresAt == nil {
		t.Errorf("%+v", beat)
	}
	// Another process goes on with it.
	if err := b.coder.Claim(task.ID, task.ClaimID).Progress(ctx, "nearly"); err != nil {
		t.Error(err)
	}
	again := must(b.coder.Received(ctx, task.ID))(t)
	ended := must(again.Reply(ctx, client.Result{State: client.StateCompleted, Artifacts: []client.Artifact{{Name: "x", Parts: []client.Part{client.Text("ok")}}}}))(t)
	if ended.State != client.StateCompleted || ended.ResultText() != "ok" {
		t.Errorf("%+v", ended)
	}
	if err := task.Done(ctx, "other"); !errors.Is(err, client.ErrLeaseLost) {
		t.Errorf("a late report: %v", err)
	}
}

// A claim whose answer was lost is offered again soon, and is no failure.
func TestALostClaimComesBack(t *testing.T) {
	b := newBed(t)
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	p := newProxy(t, b.hub.URL, losing(1))
	got := must(b.client(p.URL, b.coderToken).Next(b.context(), client.Wait(20*time.Second)))(t)
	if got.ID != task.ID || got.Failures != 0 {
		t.Errorf("%s after %d failures", got.ID, got.Failures)
	}
}

// counting counts the requests of each route.
type counting struct {
	next http.RoundTripper
	mu   sync.Mutex
	n    map[string]int
}

func (c *counting) RoundTrip(r *http.Request) (*http.Response, error) {
	route := r.Method + " " + r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if r.URL.Query().Get("next") != "" {
		route += "?next"
	}
	c.mu.Lock()
	c.n[route]++
	c.mu.Unlock()
	return c.next.RoundTrip(r)
}

// Under load one request reports a result and brings the next task.
func TestReportsCarryTheNextTask(t *testing.T) {
	b := newBed(t)
	transport := &http.Transport{}
	count := &counting{next: transport, n: map[string]int{}}
	coder := client.New(b.hub.URL, b.coderToken, client.WithHTTPClient(&http.Client{Transport: count}))
	t.Cleanup(transport.CloseIdleConnections)
	const n = 20
	for range n {
		must(b.boss.Send(b.context(), "coder", "hi"))(t)
	}
	w := b.serve(coder, func(context.Context, *client.Task) (any, error) { return "ok", nil },
		client.Concurrency(1), client.MaxTasks(n))
	w.wait()
	count.mu.Lock()
	defer count.mu.Unlock()
	if d := cmp.Diff(map[string]int{"GET next": 1, "POST result?next": n - 1, "POST result": 1}, count.n); d != "" || w.handled != n {
		t.Errorf("%d handled; %s", w.handled, d)
	}
}

// What the handler meant to report while the hub was away is reported later, whatever
// it returns.
func TestAReportThatDidNotArriveIsMadeUpFor(t *testing.T) {
	b := newBed(t)
	started, away, tried := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		close(started)
		<-away
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		err := task.Done(ctx, "meant")
		tried <- err
		return nil, err
	}, client.Lease(time.Minute))
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	recv(t, started, "the start")
	b.hub.Close()
	close(away)
	if err := recv(t, tried, "the report"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a report to nobody: %v", err)
	}
	b.hub.Restart()
	if got := must(b.boss.Wait(b.context(), "coder", task.ID))(t); got.ResultText() != "meant" || got.Attempt != 1 {
		t.Errorf("%s %q in attempt %d", got.State, got.ResultText(), got.Attempt)
	}
}
