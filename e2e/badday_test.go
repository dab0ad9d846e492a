package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

func taskIn(t testing.TB, a hubproc.Answer) (got task) {
	t.Helper()
	if err := json.Unmarshal(a.Body, &got); err != nil || got.ID == "" {
		t.Fatalf("the answer %d %s is no task: %v", a.Status, a.Body, err)
	}
	return got
}

// countTasks counts the tasks that a caller sees at an address.
func countTasks(t testing.TB, c *hubproc.Client, path string) (n int) {
	t.Helper()
	for cursor := ""; ; {
		var page struct {
			Data       []task
			NextCursor *string `json:"next_cursor"`
		}
		must(t, c.Call(t.Context(), "GET", path+"?limit=100&cursor="+cursor, nil, &page))
		n += len(page.Data)
		if page.NextCursor == nil {
			return n
		}
		cursor = *page.NextCursor
	}
}

// untilOpen waits until the hub has that many requests of a kind open, at least.
func untilOpen(t testing.TB, h *hubproc.Hub, kind string, n float64) {
	t.Helper()
	admin := h.Admin()
	eventually(t, soon, fmt.Sprintf("%v open requests of kind %s", n, kind), func() bool {
		got, err := admin.Metric(t.Context(), `holdfast_http_open{kind="`+kind+`"}`)
		return err == nil && got >= n
	})
}

func TestSecondHubOnOneDirectory(t *testing.T) {
	h := hubproc.Start(t, hubproc.Options{})
	second := hubproc.New(t, hubproc.Options{Dir: h.Dir})
	second.Launch()
	if err := second.Wait(soon); err == nil || !strings.Contains(second.Log(), "another hub is using the data directory") {
		t.Errorf("the second hub ended with %v and said:\n%s", err, second.Log())
	}
	must(t, h.Admin().Call(t.Context(), "GET", "/v1/whoami", nil, nil))
}

// After SIGTERM, polls and streams end at once with answers and not with broken
// connections, the hub ends well and soon, and nothing is lost.
func TestTerminateWithOpenRequests(t *testing.T) { hubproc.EachStore(t, terminateWithOpenRequests) }

func terminateWithOpenRequests(t *testing.T, on hubproc.Options) {
	t.Helper()
	h := hubproc.Start(t, on)
	caller, coder, idle := h.Agent("caller"), h.Agent("coder"), h.Agent("idle")
	ctx := within(t, time.Minute)
	const each = 20
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() {
			a, err := idle.Do(ctx, "GET", "/v1/agents/me/tasks/next?wait=60", nil)
			if err != nil || a.Status != 204 && a.Status != 503 {
				t.Errorf("an open poll ended with %d %s, %v", a.Status, a.Body, err)
			}
		})
		wg.Go(func() {
			a, err := caller.Do(ctx, "POST", "/v1/agents/coder/tasks?wait=60", send(fmt.Sprint("task ", i)))
			if err != nil || a.Status != 200 && a.Status != 503 {
				t.Errorf("a blocking send ended with %d %s, %v", a.Status, a.Body, err)
			}
		})
		wg.Go(func() {
			res, err := caller.Open(ctx, "POST", "/a/coder", rpc("SendStreamingMessage", object{"message": object{
				"messageId": fmt.Sprint("m", i), "role": "ROLE_USER", "parts": []object{{"text": "stream"}}}}),
				"A2A-Version", "1.0")
			if err != nil {
				t.Errorf("a stream: %v", err)
				return
			}
			defer func() { _ = res.Body.Close() }()
			if _, err := io.Copy(io.Discard, res.Body); err != nil {
				t.Errorf("a stream broke off: %v", err)
			}
		})
	}
	untilOpen(t, h, "poll", 2*each)
	untilOpen(t, h, "stream", each)
	took, err := h.Terminate(20 * time.Second)
	if err != nil || took > 10*time.Second {
		t.Errorf("the hub ended after %v with %v", took, err)
	}
	wg.Wait()
	h.Start()
	if got := countTasks(t, caller, "/v1/agents/coder/tasks"); got != 2*each {
		t.Errorf("there are %d tasks of %d", got, 2*each)
	}
	var got task
	must(t, coder.Call(ctx, "GET", "/v1/agents/me/tasks/next", nil, &got))
}

func rpc(method string, params object) object {
	return object{"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
}

// A caller that goes away in mid-stream takes nothing along: what the callee reports
// afterwards is kept, whatever happens next.
func TestCallerGoneMidStream(t *testing.T) { hubproc.EachStore(t, callerGoneMidStream) }

func callerGoneMidStream(t *testing.T, on hubproc.Options) {
	t.Helper()
	h := hubproc.Start(t, on)
	caller, coder := h.Agent("caller"), h.Agent("coder")
	ctx := within(t, time.Minute)
	stream, gone := context.WithCancel(ctx)
	var sent, claimed task
	must(t, caller.Call(ctx, "POST", "/v1/agents/coder/tasks", send("hello"), &sent))
	must(t, coder.Call(ctx, "GET", "/v1/agents/me/tasks/next", nil, &claimed))
	res, err := caller.Open(stream, "POST", "/a/coder", rpc("SubscribeToTask", object{"id": sent.ID}), "A2A-Version", "1.0")
	must(t, err)
	part := object{"artifact": object{"artifact_id": "a", "parts": []object{{"text": "the work"}}}}
	must(t, coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+sent.ID+"/events", object{"events": []object{part}}, nil))
	err = hubproc.ReadEvents(res.Body, func(e hubproc.Event) bool { return !strings.Contains(e.Data, "the work") })
	must(t, err)
	gone()
	_ = res.Body.Close()
	must(t, coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+sent.ID+"/result", object{"state": "completed"}, nil))
	h.Kill()
	h.Start()
	a, err := caller.Do(ctx, "GET", "/v1/agents/coder/tasks/"+sent.ID, nil)
	must(t, err)
	if got := taskIn(t, a); got.State != "completed" || !strings.Contains(string(a.Body), "the work") {
		t.Errorf("after a crash the task is %s", a.Body)
	}
}

// rawPoll opens a long poll of the agent on a connection of its own.
func rawPoll(t testing.TB, h *hubproc.Hub, agent *hubproc.Client) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", h.Addr)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = fmt.Fprintf(c, "GET /v1/agents/me/tasks/next?wait=60&ack=2 HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\n\r\n", agent.Token)
	must(t, err)
	return c
}

// A worker that goes away in mid-poll holds nothing up: the task goes to the next
// one, at once where the hub can know, else when the claim is not taken up. That is
// no failure, and no lease has to run out.
func TestClientGoneMidPoll(t *testing.T) { hubproc.EachStore(t, clientGoneMidPoll) }

func clientGoneMidPoll(t *testing.T, on hubproc.Options) {
	t.Helper()
	h := hubproc.Start(t, on)
	caller, coder := h.Agent("caller"), h.Agent("coder")
	ctx := within(t, 2*time.Minute)
	const rounds = 20
	atOnce := 0
	for range rounds {
		gone := rawPoll(t, h, coder)
		untilOpen(t, h, "poll", 1)
		got := make(chan hubproc.Answer, 1)
		go func() {
			a, err := coder.Do(ctx, "GET", "/v1/agents/me/tasks/next?wait=60", nil)
			if err != nil {
				t.Errorf("poll: %v", err)
			}
			got <- a
		}()
		untilOpen(t, h, "poll", 2)
		_ = gone.Close()
		began := time.Now()
		var sent task
		must(t, caller.Call(ctx, "POST", "/v1/agents/coder/tasks", send("hello"), &sent))
		claimed := taskIn(t, <-got)
		took := time.Since(began)
		if claimed.ID != sent.ID || claimed.Failures != 0 || took > soon {
			t.Errorf("after %v the next worker got %+v, want %s without a failure", took, claimed, sent.ID)
		}
		if took < time.Second {
			atOnce++
		}
		must(t, coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+sent.ID+"/result", object{"state": "completed"}, nil, "X-Claim", claimed.ClaimID))
		eventually(t, soon, "no poll is open", func() bool {
			n, err := caller.Metric(ctx, `holdfast_http_open{kind="poll"}`)
			return err == nil && n == 0
		})
	}
	if atOnce < rounds/2 {
		t.Errorf("only %d of %d tasks went to the next worker at once", atOnce, rounds)
	}
}

// Clients that never finish their requests are cut off and hold nobody up.
func TestSlowLoris(t *testing.T) { hubproc.EachStore(t, slowLoris) }

func slowLoris(t *testing.T, on hubproc.Options) {
	t.Helper()
	t.Parallel()
	h := hubproc.Start(t, on)
	caller := h.Agent("caller")
	h.Agent("coder")
	ctx := within(t, time.Minute)
	began := time.Now()
	var cutOff sync.WaitGroup
	for range 100 {
		c, err := net.Dial("tcp", h.Addr)
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		cutOff.Go(func() {
			_, _ = io.Copy(io.Discard, c) // until the hub closes it
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("a request without an end was cut off after %v only", took)
			}
		})
		go drip(ctx, c)
	}
	done := make(chan struct{})
	go func() { cutOff.Wait(); close(done) }()
	for slowest := time.Duration(0); ; {
		began := time.Now()
		must(t, caller.Call(ctx, "POST", "/v1/agents/coder/tasks", send("hello"), nil))
		slowest = max(slowest, time.Since(began))
		select {
		case <-done:
			if slowest > time.Second {
				t.Errorf("meanwhile a send took %v", slowest)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// drip sends a header that never ends, byte by byte.
func drip(ctx context.Context, c net.Conn) {
	if _, err := io.WriteString(c, "GET /v1/whoami HTTP/1.1\r\nHost: hub\r\nX-Slow: "); err != nil {
		return
	}
	each := time.NewTicker(100 * time.Millisecond)
	defer each.Stop()
	for {
		select {
		case <-each.C:
		case <-ctx.Done():
			return
		}
		if _, err := io.WriteString(c, "x"); err != nil {
			return
		}
	}
}

const (
	floodTasks  = 2 // one task may not have as many bytes
	floodEvents = 2_500
	floodSize   = 16 << 10
	floodBatch  = 50
)

// A subscriber that never reads costs nobody anything: others get every event in
// order, sends are quick, memory stays bounded, and it is dropped and can resume.
func TestReaderThatNeverReads(t *testing.T) { hubproc.EachStore(t, readerThatNeverReads) }

func readerThatNeverReads(t *testing.T, on hubproc.Options) {
	t.Helper()
	t.Parallel()
	h := hubproc.Start(t, on)
	caller, coder := h.Agent("caller"), h.Agent("coder")
	h.Agent("other")
	ctx := within(t, 3*time.Minute)
	tasks := make([]task, floodTasks)
	var readers, writers sync.WaitGroup
	for i := range tasks {
		must(t, caller.Call(ctx, "POST", "/v1/agents/coder/tasks", send("flood"), &tasks[i]))
		must(t, coder.Call(ctx, "GET", "/v1/agents/me/tasks/next", nil, &tasks[i]))
		neverRead(t, h, caller, tasks[i].ID)
	}
	untilOpen(t, h, "stream", floodTasks)
	before := h.RSS()
	for _, one := range tasks {
		readers.Go(func() { readAll(ctx, t, caller, one.ID) })
		writers.Go(func() { flood(ctx, t, coder, one) })
	}
	done := make(chan struct{})
	go func() { writers.Wait(); readers.Wait(); close(done) }()
	watchFlood(ctx, t, h, caller, before, done)
	eventually(t, time.Minute, "those that never read are dropped", func() bool {
		n, err := caller.Metric(ctx, `holdfast_http_open{kind="stream"}`)
		return err == nil && n == 0
	})
	for _, one := range tasks {
		readAll(ctx, t, caller, one.ID)
	}
}

// watchFlood sends to another address and looks at the hub's memory until done.
func watchFlood(ctx context.Context, t *testing.T, h *hubproc.Hub, caller *hubproc.Client, before int64, done <-chan struct{}) {
	t.Helper()
	var slowest time.Duration
	var peak int64
	for {
		began := time.Now()
		must(t, caller.Call(ctx, "POST", "/v1/agents/other/tasks", send("hello"), nil))
		slowest, peak = max(slowest, time.Since(began)), max(peak, h.RSS())
		select {
		case <-done:
			if slowest > time.Second {
				t.Errorf("meanwhile a send took %v", slowest)
			}
			// The database's caches fill up to 64 MB, and as much may be garbage; whoever kept
			// the 80 MB for those who do not read would be well beyond.
			if grown := (peak - before) >> 20; grown > 176 {
				t.Errorf("the hub's memory grew by %d MB", grown)
			}
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// neverRead subscribes to a task and reads nothing.
func neverRead(t *testing.T, h *hubproc.Hub, c *hubproc.Client, id string) {
	t.Helper()
	conn, err := net.Dial("tcp", h.Addr)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	body, err := json.Marshal(rpc("SubscribeToTask", object{"id": id}))
	must(t, err)
	_, err = fmt.Fprintf(conn, "POST /a/coder HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\nA2A-Version: 1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", c.Token, len(body), body)
	must(t, err)
}

// flood reports many large events.
func flood(ctx context.Context, t *testing.T, coder *hubproc.Client, one task) {
	event := object{"artifact": object{"artifact_id": "log", "parts": []object{{"text": strings.Repeat("x", floodSize)}}}}
	more := object{"artifact": event["artifact"], "append": true}
	for n := 0; n < floodEvents; n += floodBatch {
		events := make([]object, floodBatch)
		for i := range events {
			events[i] = more
		}
		if n == 0 {
			events[0] = event
		}
		if err := coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+one.ID+"/events", object{"events": events}, nil, "X-Claim", one.ClaimID); err != nil {
			t.Errorf("report events: %v", err)
			return
		}
	}
	// Minimal, because the whole task in one answer would be memory of its own.
	if err := coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+one.ID+"/result", object{"state": "completed"}, nil, "X-Claim", one.ClaimID, "Prefer", "return=minimal"); err != nil {
		t.Errorf("complete the task: %v", err)
	}
}

// readAll reads all events of a task from the first to the end.
func readAll(ctx context.Context, t *testing.T, c *hubproc.Client, id string) {
	res, err := c.Open(ctx, "POST", "/a/coder", rpc("SubscribeToTask", object{"id": id}), "A2A-Version", "1.0", "Last-Event-ID", "0")
	if err != nil {
		t.Errorf("subscribe: %v", err)
		return
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Errorf("subscribe: %s", res.Status)
		return
	}
	n, large := 0, 0
	err = hubproc.ReadEvents(res.Body, func(e hubproc.Event) bool {
		n++
		if e.ID != fmt.Sprint(n) {
			t.Errorf("event %s where %d was due", e.ID, n)
			return false
		}
		if len(e.Data) > floodSize {
			large++
		}
		return true
	})
	if want := floodEvents + 3; n != want || large != floodEvents || err != io.EOF { // SUBMITTED, WORKING, COMPLETED
		t.Errorf("a subscriber got %d events, %d of them large, want %d and %d; %v", n, large, want, floodEvents, err)
	}
}
