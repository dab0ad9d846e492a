package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// counted is an agent behind a URL that notes each task that comes. While it hangs, it
// answers nothing.
type counted struct {
	mu    sync.Mutex
	sends map[string]int // by task
	hangs bool
	came  chan struct{}
}

// ServeHTTP implements http.Handler.
func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	c.mu.Lock()
	c.sends[r.Header.Get("X-Holdfast-Task")]++
	hangs := c.hangs
	c.mu.Unlock()
	c.came <- struct{}{}
	if hangs {
		<-r.Context().Done()
		return
	}
	_, _ = io.WriteString(w, "done")
}

// A hub that is killed in the middle of its deliveries delivers again what was under way,
// and all the rest, and each send is an attempt.
func TestKillDuringDeliveries(t *testing.T) { hubproc.EachStore(t, killDuringDeliveries) }

func killDuringDeliveries(t *testing.T, on hubproc.Options) {
	t.Helper()
	const n, slots = 12, 4
	agent := &counted{sends: map[string]int{}, hangs: true, came: make(chan struct{}, 10*n)}
	server := httptest.NewServer(agent)
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	must(t, err)
	on.Args = []string{"--egress-allow-local", u.Port(), "--backoff-min", "20ms", "--webhook-slots", fmt.Sprint(slots)}
	h := hubproc.Start(t, on)
	caller := h.Agent("caller")
	dev := h.Agent("dev")
	must(t, dev.Call(t.Context(), "PUT", "/v1/agents/me/endpoint", map[string]any{"url": server.URL}, nil))
	var ids []string
	for range n {
		var got task
		must(t, caller.Call(t.Context(), "POST", "/v1/agents/dev/tasks", json.RawMessage(`{"message":{"parts":[{"text":"hi"}]}}`), &got))
		ids = append(ids, got.ID)
	}
	for range slots {
		select {
		case <-agent.came:
		case <-time.After(soon):
			t.Fatal("the agent was not called")
		}
	}
	h.Kill()
	agent.mu.Lock()
	agent.hangs = false
	agent.mu.Unlock()
	h.Start()
	again := 0
	for _, id := range ids {
		var got task
		eventually(t, time.Minute, "task "+id+" is completed", func() bool {
			must(t, caller.Call(t.Context(), "GET", "/v1/agents/dev/tasks/"+id, nil, &got))
			return got.State == "completed"
		})
		agent.mu.Lock()
		sends := agent.sends[id]
		agent.mu.Unlock()
		if sends != got.Attempt {
			t.Errorf("task %s was sent %d times in %d attempts", id, sends, got.Attempt)
		}
		again += sends - 1
	}
	if again != slots {
		t.Errorf("%d deliveries were repeated, want the %d that were under way", again, slots)
	}
}
