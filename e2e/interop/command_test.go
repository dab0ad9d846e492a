package interop

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// command is the a2a command of the A2A Go SDK, against one address, over one binding.
type command struct {
	t         *testing.T
	path, url string
	args      []string
}

// run runs it and gives what it prints: one JSON value, or one a line.
func (c command) run(args ...string) []map[string]any {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatalf("a2a %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	var list []map[string]any
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var v map[string]any
		if err := d.Decode(&v); err != nil {
			c.t.Fatalf("a2a %s printed %s: %v", strings.Join(args, " "), out, err)
		}
		list = append(list, v)
	}
	if len(list) == 0 {
		c.t.Fatalf("a2a %s printed nothing", strings.Join(args, " "))
	}
	return list
}

func (c command) try(args ...string) ([]byte, error) {
	c.t.Helper()
	cmd := exec.CommandContext(within(c.t, time.Minute), c.path, slices.Concat(args, c.args)...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	return append(out, problems.Bytes()...), err
}

// state is the state of a task, or of the task in a stream's event.
func state(v map[string]any) string {
	for _, wrap := range []string{"task", "statusUpdate"} {
		if inner, ok := v[wrap].(map[string]any); ok {
			v = inner
		}
	}
	status, _ := v["status"].(map[string]any)
	s, _ := status["state"].(string)
	return s
}

func id(v map[string]any) string {
	if inner, ok := v["task"].(map[string]any); ok {
		v = inner
	}
	s, _ := v["id"].(string)
	return s
}

// TestA2ACommand lets the a2a command of the A2A Go SDK do all it can, over three
// bindings in two versions.
func TestA2ACommand(t *testing.T) { eachStore(t, a2ACommand) }

func a2ACommand(t *testing.T, on func(*config.Config)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a2a")
	if out, err := exec.CommandContext(within(t, 3*time.Minute), "go", "build", "-o", path, "github.com/a2aproject/a2a-go/v2/cmd/a2a").CombinedOutput(); err != nil {
		t.Fatalf("build the a2a command: %v\n%s", err, out)
	}
	h := testhub.Start(t, on)
	work(t, client.New(h.URL, h.Agent("coder")))
	token := h.Agent("caller")
	for _, transport := range []string{"jsonrpc", "rest", "grpc"} {
		t.Run(transport, func(t *testing.T) {
			c := command{t, path, h.URL + "/a/coder", []string{"-o", "json", "--insecure", "--transport", transport, "--auth", "Bearer " + token}}
			useCommand(c)
			listWithCommand(c)
		})
	}
	host := strings.TrimPrefix(h.URL, "http://")
	for binding, url := range map[string]string{"JSONRPC": h.URL + "/a/coder", "HTTP+JSON": h.URL + "/a/coder/v1", "GRPC": host} {
		t.Run("0.3 "+binding, func(t *testing.T) {
			at := cardOffering(t, h.URL+"/a/coder", map[string]string{"url": url, "protocolBinding": binding, "protocolVersion": "0.3"})
			c := command{t, path, at, []string{"-o", "json", "--insecure", "--auth", "Bearer " + token, "--svc-param", "a2a-tenant=coder"}}
			if binding == "HTTP+JSON" { // it cannot read a task there; see docs/conformance.md
				sendWithCommand(c)
				return
			}
			useCommand(c)
		})
	}
}

// cardOffering serves the card of an address with one interface alone, since the command
// takes the version to speak from a card, and gives the URL to name for it.
func cardOffering(t *testing.T, address string, only map[string]string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address+"/.well-known/agent-card.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var card map[string]any
	if err := json.NewDecoder(res.Body).Decode(&card); err != nil {
		t.Fatal(err)
	}
	card["supportedInterfaces"] = []any{only}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(card)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// sendWithCommand sends, answers a question and follows a stream.
func sendWithCommand(c command) {
	t := c.t
	if done := c.run("send", c.url, "hi")[0]; state(done) != "TASK_STATE_COMPLETED" {
		t.Errorf("a send gave %v", done)
	}
	asked := c.run("send", c.url, "ask")[0]
	if state(asked) != "TASK_STATE_INPUT_REQUIRED" {
		t.Errorf("a question came as %v", asked)
	}
	if answered := c.run("send", c.url, "that", "--task", id(asked))[0]; state(answered) != "TASK_STATE_COMPLETED" {
		t.Errorf("the answer gave %v", answered)
	}
	events := c.run("send", c.url, "stream", "--stream")
	if last := events[len(events)-1]; state(last) != "TASK_STATE_COMPLETED" {
		t.Errorf("a stream ended with %v", last)
	}
}

// listWithCommand lists what was sent before.
func listWithCommand(c command) {
	page := c.run("list", "tasks", c.url)[0]
	if tasks, _ := page["tasks"].([]any); len(tasks) < 4 {
		c.t.Errorf("the list is %v", page)
	}
}

func useCommand(c command) {
	t := c.t
	sendWithCommand(c)
	if card := c.run("discover", c.url)[0]; card["name"] != "coder" {
		t.Errorf("the card is %v", card)
	}
	done := c.run("send", c.url, "hi")[0]
	if state(done) != "TASK_STATE_COMPLETED" {
		t.Errorf("a send gave %v", done)
	}
	if got := c.run("get", "task", c.url, id(done))[0]; state(got) != "TASK_STATE_COMPLETED" {
		t.Errorf("the task is %v", got)
	}
	held := c.run("send", c.url, "hold", "--immediate")[0]
	if canceled := c.run("cancel", c.url, id(held))[0]; state(canceled) != "TASK_STATE_CANCELED" {
		t.Errorf("the cancel gave %v", canceled)
	}
	out, err := c.try("get", "task", c.url, "none")
	if said := string(out); err == nil || !strings.Contains(said, "no such task") && !strings.Contains(said, "Task not found") { // in 0.3
		t.Errorf("a task that is not there gave %v: %s", err, out)
	}
	out, err = c.try("subscribe", c.url, "none")
	if said := string(out); err == nil || !strings.Contains(said, "no such task") && !strings.Contains(said, "Task not found") {
		t.Errorf("following a task that is not there gave %v: %s", err, out)
	}
}
