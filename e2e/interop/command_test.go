package interop

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
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

func TestA2ACommand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a2a")
	if out, err := exec.CommandContext(within(t, 3*time.Minute), "go", "build", "-o", path, "github.com/a2aproject/a2a-go/v2/cmd/a2a").CombinedOutput(); err != nil {
		t.Fatalf("build the a2a command: %v\n%s", err, out)
	}
	h := testhub.Start(t)
	work(t, client.New(h.URL, h.Agent("coder")))
	token := h.Agent("caller")
	for _, transport := range []string{"jsonrpc", "rest", "grpc"} {
		t.Run(transport, func(t *testing.T) {
			useCommand(command{t, path, h.URL + "/a/coder", []string{"-o", "json", "--insecure", "--transport", transport, "--auth", "Bearer " + token}})
		})
	}
}

func useCommand(c command) {
	t := c.t
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
	held := c.run("send", c.url, "hold", "--immediate")[0]
	page := c.run("list", "tasks", c.url)[0]
	if tasks, _ := page["tasks"].([]any); len(tasks) < 4 {
		t.Errorf("the list is %v", page)
	}
	if canceled := c.run("cancel", c.url, id(held))[0]; state(canceled) != "TASK_STATE_CANCELED" {
		t.Errorf("the cancel gave %v", canceled)
	}
	if out, err := c.try("get", "task", c.url, "none"); err == nil || !strings.Contains(string(out), "no such task") {
		t.Errorf("a task that is not there gave %v: %s", err, out)
	}
}
