package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
)

// roleVariable tells a process that Run started which baseline to be.
const roleVariable = "HOLDFAST_BENCH_ROLE"

const (
	roleNull    = "null"
	roleSDK     = "a2a-go"
	roleAgent   = "agent"   // an A2A server that costs next to nothing
	roleWebhook = "webhook" // the same as a function behind a URL
)

// serveBaseline serves on a free port, which it writes to out, until in ends.
func serveBaseline(ctx context.Context, role string, in io.Reader, out io.Writer) error {
	var handler http.Handler
	switch role {
	case roleNull:
		handler = newNullHub()
	case roleSDK:
		handler = a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(echo{}))
	case roleAgent:
		handler = http.HandlerFunc(echoAgent)
	case roleWebhook:
		handler = http.HandlerFunc(echoWebhook)
	default:
		return fmt.Errorf("there is no baseline %q", role)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_, _ = io.Copy(io.Discard, in) // ends with whoever started this process
		_ = server.Close()
	}()
	if _, err := fmt.Fprintln(out, l.Addr()); err != nil {
		return err
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// nullHub answers the requests of a task's life, in memory and with nothing else:
// no storage, no credentials, no validation, no timers but the polls' own.
type nullHub struct {
	ready chan *nullTask
	mu    sync.Mutex
	next  int64
	tasks map[string]*nullTask
}

type nullTask struct {
	id, text string
	done     chan struct{}
}

func newNullHub() http.Handler {
	h := &nullHub{ready: make(chan *nullTask, 1<<20), tasks: map[string]*nullTask{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agents/{callee}/tasks", h.send)
	mux.HandleFunc("GET /v1/agents/me/tasks/next", h.poll)
	mux.HandleFunc("POST /v1/agents/me/tasks/{id}/result", h.result)
	return mux
}

func (h *nullHub) send(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	t := &nullTask{text: string(member(body, "text")), done: make(chan struct{})}
	h.mu.Lock()
	h.next++
	t.id = strconv.FormatInt(h.next, 10)
	h.tasks[t.id] = t
	h.mu.Unlock()
	h.ready <- t
	if !strings.Contains(r.URL.RawQuery, "wait=") {
		reply(w, `{"id":"`+t.id+`","state":"submitted"}`)
		return
	}
	select {
	case <-t.done:
		reply(w, `{"id":"`+t.id+`","state":"completed"}`)
	case <-r.Context().Done():
	}
}

func (h *nullHub) poll(w http.ResponseWriter, r *http.Request) {
	timer := time.NewTimer(30 * time.Second)
	defer timer.Stop()
	select {
	case t := <-h.ready:
		reply(w, t.json())
	case <-timer.C:
		w.WriteHeader(http.StatusNoContent)
	case <-r.Context().Done():
	}
}

func (h *nullHub) result(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	id := r.PathValue("id")
	h.mu.Lock()
	t := h.tasks[id]
	delete(h.tasks, id)
	h.mu.Unlock()
	if t == nil {
		http.Error(w, "no such task", http.StatusNotFound)
		return
	}
	close(t.done)
	if r.URL.RawQuery == "" {
		reply(w, `{"id":"`+id+`","state":"completed"}`)
		return
	}
	next := "null"
	select {
	case t := <-h.ready:
		next = t.json()
	default:
	}
	reply(w, `{"task":{"id":"`+id+`","state":"completed"},"next":`+next+`}`)
}

func (t *nullTask) json() string {
	return `{"id":"` + t.id + `","state":"working","claim_id":"` + t.id + `.1","text":"` + t.text + `"}`
}

func reply(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body) // a client that is gone needs no answer
}

// echo is the simplest executor that ends a task with an artifact. It emits as few
// events as that takes.
type echo struct{}

// Execute implements a2asrv.AgentExecutor.
func (echo) Execute(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if !yield(a2a.NewSubmittedTask(ec, ec.Message), nil) {
			return
		}
		if !yield(a2a.NewArtifactEvent(ec, a2a.NewTextPart("done")), nil) {
			return
		}
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCompleted, nil), nil)
	}
}

// Cancel implements a2asrv.AgentExecutor.
func (echo) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}
