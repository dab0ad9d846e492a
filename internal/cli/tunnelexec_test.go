package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/holdfast-hub/holdfast/client"
)

// commandClient is an A2A client of the agent that a command is.
func commandClient(t *testing.T, command string, asJSON bool) *a2aclient.Client {
	t.Helper()
	p := &program{out: io.Discard, err: io.Discard, env: map[string]string{"PATH": os.Getenv("PATH")}, output: outputFlags{quiet: true}}
	s := station{c: client.New("http://127.0.0.1:1", "t"), handle: "cmd", leave: func() {}}
	srv := httptest.NewServer(p.commandAgent(s, tunnelFlags{exec: command, json: asJSON}))
	t.Cleanup(srv.Close)
	c, err := a2aclient.NewFromEndpoints(t.Context(), []*a2a.AgentInterface{a2a.NewAgentInterface(srv.URL, a2a.TransportProtocolJSONRPC)},
		a2aclient.WithJSONRPCTransport(&http.Client{}))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func say(text string) *a2a.SendMessageRequest {
	return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))}
}

func sendTask(t *testing.T, c *a2aclient.Client, m *a2a.SendMessageRequest) *a2a.Task {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := c.SendMessage(ctx, m)
	if err != nil {
		t.Fatal(err)
	}
	task, ok := r.(*a2a.Task)
	if !ok {
		t.Fatalf("%T", r)
	}
	return task
}

func TestCommandIsAnA2AAgent(t *testing.T) {
	for command, want := range map[string]struct {
		state a2a.TaskState
		says  string
	}{
		"tr a-z A-Z":                 {a2a.TaskStateCompleted, "HELLO"},
		"echo no >&2; exit 3":        {a2a.TaskStateFailed, "exit code 3: no"},
		"echo not mine; exit 12":     {a2a.TaskStateRejected, "not mine"},
		"echo which one?; exit 13":   {a2a.TaskStateInputRequired, "which one?"},
		"echo the password; exit 14": {a2a.TaskStateAuthRequired, "the password"},
	} {
		task := sendTask(t, commandClient(t, command, false), say("hello"))
		got, err := json.Marshal(task)
		if err != nil || task.Status.State != want.state || !strings.Contains(string(got), want.says) {
			t.Errorf("%s: %s, %v", command, got, err)
		}
	}
}

func TestCommandAnswersData(t *testing.T) {
	task := sendTask(t, commandClient(t, `printf '{"n":null,"big":[1,{"a":true}]}'`, true), &a2a.SendMessageRequest{
		Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewDataPart(map[string]any{"x": nil, "y": []any{1, nil}})),
	})
	got, err := json.Marshal(task.Artifacts)
	if err != nil || task.Status.State != a2a.TaskStateCompleted || !strings.Contains(string(got), `"n":null`) {
		t.Errorf("%s %s, %v", task.Status.State, got, err)
	}
}

func TestCommandGetsTheAnswerToItsQuestion(t *testing.T) {
	c := commandClient(t, `if [ -z "$HOLDFAST_ANSWER" ]; then echo which?; exit 13; fi; printf 'you want %s' "$HOLDFAST_ANSWER"`, false)
	task := sendTask(t, c, say("make it"))
	answer := say("red")
	answer.Message.TaskID, answer.Message.ContextID = task.ID, task.ContextID
	task = sendTask(t, c, answer)
	if got, err := json.Marshal(task.Artifacts); err != nil || !strings.Contains(string(got), "you want red") {
		t.Errorf("%s %s, %v", task.Status.State, got, err)
	}
}

func TestCancelKillsTheCommand(t *testing.T) {
	dir := t.TempDir()
	c := commandClient(t, "trap 'touch "+filepath.Join(dir, "killed")+"; exit 1' TERM; touch "+filepath.Join(dir, "begun")+"; sleep 60 & wait", false)
	var id a2a.TaskID
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for event, err := range c.SendStreamingMessage(ctx, say("go")) {
		if err != nil {
			t.Fatal(err)
		}
		if id == "" {
			id = event.TaskInfo().TaskID
			waitFor(t, filepath.Join(dir, "begun"))
			if _, err := c.CancelTask(ctx, &a2a.CancelTaskRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	waitFor(t, filepath.Join(dir, "killed"))
	task, err := c.GetTask(ctx, &a2a.GetTaskRequest{ID: id})
	if err != nil || task.Status.State != a2a.TaskStateCanceled {
		t.Errorf("%+v, %v", task, err)
	}
}

// waitFor waits for a file that a command makes.
func waitFor(t *testing.T, file string) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	limit := time.After(20 * time.Second)
	for {
		if _, err := os.Stat(file); err == nil {
			return
		}
		select {
		case <-look.C:
		case <-limit:
			t.Fatalf("%s does not appear", file)
		}
	}
}
