package app_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

// crowded starts a hub at which so many workers wait that the next ones park.
func crowded(t *testing.T) *testhub.Hub {
	t.Helper()
	h := testhub.Start(t)
	token := h.Agent("crowd")
	for range 256 {
		dialWorker(t, h, token).poll(60)
	}
	untilOpen(t, h.URL, "poll", 256)
	return h
}

// worker is one connection of a worker.
type worker struct {
	t     *testing.T
	c     net.Conn
	r     *bufio.Reader
	token string
}

func dialWorker(t *testing.T, h *testhub.Hub, token string) *worker {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &worker{t: t, c: c, token: token}
}

func (w *worker) send(method, path, body string) {
	w.t.Helper()
	_, err := fmt.Fprintf(w.c, "%s %s HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n", method, path, w.token)
	if err == nil && body != "" {
		_, err = fmt.Fprintf(w.c, "Content-Length: %d\r\n", len(body))
	}
	if err == nil {
		_, err = io.WriteString(w.c, "\r\n"+body)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *worker) poll(seconds int) {
	w.t.Helper()
	w.send("GET", fmt.Sprintf("/v1/agents/me/tasks/next?lease=60&wait=%d", seconds), "")
}

// want reads an answer.
func (w *worker) want(status int) (*http.Response, string) {
	w.t.Helper()
	if w.r == nil {
		w.r = bufio.NewReader(w.c)
	}
	_ = w.c.SetReadDeadline(time.Now().Add(30 * time.Second))
	res, err := http.ReadResponse(w.r, nil)
	if err != nil {
		w.t.Fatalf("no answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		w.t.Fatalf("%d %s, %v; want %d", res.StatusCode, body, err, status)
	}
	return res, string(body)
}

func (w *worker) wantTask() (task wire.Task) {
	w.t.Helper()
	_, body := w.want(200)
	if err := json.Unmarshal([]byte(body), &task); err != nil {
		w.t.Fatal(err)
	}
	return task
}

const hello = `{"message":{"role":"user","parts":[{"text":"hello"}]}}`

func TestAParkedPollGetsTheTaskThatComes(t *testing.T) {
	h := crowded(t)
	boss := dialWorker(t, h, h.Agent("boss"))
	w := dialWorker(t, h, h.Agent("coder"))
	for range 3 { // its connection lives on
		w.poll(60)
		untilOpen(t, h.URL, "parked", 1)
		untilOpen(t, h.URL, "poll", 257)
		boss.send("POST", "/v1/agents/coder/tasks", hello)
		sent, got := boss.wantTask(), w.wantTask()
		if got.ID != sent.ID || got.State != "working" || got.Attempt != 1 {
			t.Errorf("sent %s, and %s came %s in attempt %d", sent.ID, got.ID, got.State, got.Attempt)
		}
		w.send("POST", "/v1/agents/me/tasks/"+got.ID+"/result", `{"state":"completed"}`)
		w.want(200)
	}
	untilOpen(t, h.URL, "parked", 0)
	untilOpen(t, h.URL, "poll", 256)
}

func TestAParkedPollEndsWhenItsTimeIsOver(t *testing.T) {
	h := crowded(t)
	w := dialWorker(t, h, h.Agent("coder"))
	for range 2 {
		begun := time.Now()
		w.poll(1)
		res, _ := w.want(204)
		if took := time.Since(begun); took < time.Second {
			t.Errorf("it took %v", took)
		}
		if res.Header.Get("X-Frame-Options") == "" || res.Header.Get("X-Request-Id") == "" || res.Close {
			t.Errorf("it is not answered like others: %v", res.Header)
		}
	}
	_, page := do(t, http.MethodGet, h.URL+"/metrics", "", "")
	if want := `holdfast_http_requests_total{route="/v1/agents/me/tasks/next",status="204"} 2` + "\n"; !strings.Contains(page, want) {
		t.Errorf("the polls were not counted once each:\n%s", page)
	}
}

func TestATaskOfAParkedPollerThatLeftGoesToTheNextAtOnce(t *testing.T) {
	h := crowded(t)
	boss, token := dialWorker(t, h, h.Agent("boss")), h.Agent("coder")
	next := dialWorker(t, h, token)
	for range 8 {
		w := dialWorker(t, h, token)
		w.poll(60)
		untilOpen(t, h.URL, "parked", 1)
		boss.send("POST", "/v1/agents/coder/tasks", hello)
		_ = w.c.Close() // before, while or after the task is on its way
		sent := boss.wantTask()
		untilOpen(t, h.URL, "parked", 0)
		untilOpen(t, h.URL, "poll", 256)
		next.poll(10)
		got := next.wantTask()
		if got.ID != sent.ID || got.Failures != 0 {
			t.Fatalf("got %s with %d failures, want %s", got.ID, got.Failures, sent.ID)
		}
		next.send("POST", "/v1/agents/me/tasks/"+got.ID+"/result", `{"state":"completed"}`)
		next.want(200)
	}
}

func TestRevocationEndsAParkedPoll(t *testing.T) {
	h := crowded(t)
	w := dialWorker(t, h, h.Agent("coder"))
	w.poll(60)
	untilOpen(t, h.URL, "parked", 1)
	if res, body := do(t, http.MethodDelete, h.URL+"/v1/agents/coder", h.AdminToken, ""); res.StatusCode >= 300 {
		t.Fatalf("delete: %d %s", res.StatusCode, body)
	}
	if res, _ := w.want(401); res.Header.Get("WWW-Authenticate") == "" {
		t.Error("there is no challenge")
	}
	untilOpen(t, h.URL, "poll", 256)
}

func TestShutdownEndsParkedPollsAtOnce(t *testing.T) {
	h := crowded(t)
	token := h.Agent("coder")
	var workers []*worker
	for range 50 {
		w := dialWorker(t, h, token)
		w.poll(60)
		workers = append(workers, w)
	}
	untilOpen(t, h.URL, "parked", 50)
	begun := time.Now()
	h.Close()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
	for _, w := range workers {
		if res, _ := w.want(204); !res.Close {
			t.Error("the answer does not say that the connection ends")
		}
	}
}

// A request sent before the answer to the poll is answered after it.
func TestWhatIsSentBehindAParkedPollWaitsItsTurn(t *testing.T) {
	h := crowded(t)
	boss := dialWorker(t, h, h.Agent("boss"))
	w := dialWorker(t, h, h.Agent("coder"))
	w.poll(60)
	untilOpen(t, h.URL, "parked", 1)
	w.send("GET", "/v1/whoami", "")
	untilOpen(t, h.URL, "parked", 0) // it waits as few do
	untilOpen(t, h.URL, "poll", 257)
	boss.send("POST", "/v1/agents/coder/tasks", hello)
	if sent := boss.wantTask(); w.wantTask().ID != sent.ID {
		t.Error("another task came")
	}
	if _, body := w.want(200); !strings.Contains(body, `"coder"`) {
		t.Errorf("whoami says %s", body)
	}
}

// pollBytes is what one of many open polls may take at most, with this test's own end
// of the connection. One that is not parked takes more than twice as much.
const pollBytes = 12 << 10

func TestManyOpenPollsTakeLittleMemory(t *testing.T) {
	const polls = 2000
	h := crowded(t)
	token := h.Agent("coder")
	before := memoryInUse()
	for range polls {
		dialWorker(t, h, token).poll(60)
	}
	untilOpen(t, h.URL, "parked", polls)
	each := (memoryInUse() - before) / polls
	t.Logf("%d bytes each", each)
	if each > pollBytes {
		t.Errorf("an open poll takes %d bytes, want at most %d", each, pollBytes)
	}
}

// memoryInUse is what lives on the heap and in stacks.
func memoryInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
