package interop

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// callee is an agent of somebody else's making, which the hub calls as an A2A client.
type callee struct {
	name string
	// start starts it and gives its URL.
	start func(t *testing.T) string
	// Some cannot ask, stream, say why they failed, or be stopped.
	noAsk, noStream, noReason, noCancel bool
	// both: it is called by a hub over PostgreSQL, too, as one of each SDK is.
	both bool
}

// uvicorn serves the agents that are written in Python.
const uvicorn = "uvicorn==0.48.0"

func callees() []callee {
	python := func(script string, packages []string, env ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			python := interpreter(t, "python3")
			env = append([]string{"PYTHONPATH=" + install(t, python, packages), "PYTHONDONTWRITEBYTECODE=1"}, env...)
			return program(t, env, python, filepath.Join("testdata", script))
		}
	}
	js := func(env ...string) func(*testing.T) string {
		return func(t *testing.T) string {
			node := interpreter(t, "node")
			packages := installNode(t, []string{"@a2a-js/sdk@1.3.0", "express@5.2.1"})
			return program(t, env, node, nodeScript(t, packages, "callee_a2a_js.mjs"))
		}
	}
	sdk, fasta2a := []string{"a2a-sdk[http-server]==1.3.0", uvicorn}, []string{"fasta2a==0.5.0", uvicorn}
	return []callee{
		{name: "a2a-go, JSON-RPC", start: goCallee("JSONRPC"), both: true},
		{name: "a2a-go, HTTP+JSON", start: goCallee("HTTP+JSON")},
		{name: "a2a-go, gRPC", start: goCallee("GRPC")},
		{name: "a2a-go, 0.3 JSON-RPC", start: goCallee("0.3 JSONRPC")},
		{name: "a2a-sdk for Python, JSON-RPC", start: python("callee_a2a_sdk.py", sdk), both: true},
		{name: "a2a-sdk for Python, HTTP+JSON", start: python("callee_a2a_sdk.py", sdk, "BINDINGS=HTTP+JSON")},
		{name: "a2a-sdk for Python, without streams", start: python("callee_a2a_sdk.py", sdk, "STREAMING=0")},
		{name: "a2a-js, JSON-RPC", start: js(), both: true},
		{name: "a2a-js, HTTP+JSON", start: js("BINDINGS=HTTP+JSON")},
		{name: "FastA2A 0.5", start: python("callee_fasta2a.py", fasta2a), noAsk: true, noStream: true, noReason: true, noCancel: true},
		{name: "FastA2A 0.5, as Agent Zero answers", start: python("callee_fasta2a.py", fasta2a, "HISTORY=1"), noAsk: true, noStream: true, noReason: true, noCancel: true},
		{name: "FastA2A, the newest", start: python("callee_fasta2a.py", []string{"fasta2a==2.1.1", uvicorn}), noAsk: true, noStream: true, noReason: true, noCancel: true, both: true},
	}
}

// program starts a program that says on its first line where it is, and gives that.
func program(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), env...)
	said := new(strings.Builder)
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(args[0]), said)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s does not say where it is: %v", args[0], err)
	}
	return strings.TrimSpace(line)
}

// TestCallees calls agents that are made with the SDKs of others through the hub: what
// their callers see is what they would see of an agent that pulls.
func TestCallees(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	eachStore(t, func(t *testing.T, on func(*config.Config)) {
		for _, c := range callees() {
			if strings.HasSuffix(t.Name(), "/PostgreSQL") && !c.both {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				url := c.start(t)
				h := testhub.Start(t, on, receiversHere)
				h.Agent("coder")
				admin := client.New(h.URL, h.AdminToken)
				if _, err := admin.SetEndpoint(t.Context(), "coder", client.EndpointRequest{URL: &url, Kind: "a2a"}); err != nil {
					t.Fatal(err)
				}
				talk(t, c, client.New(h.URL, h.Agent("caller")))
			})
		}
	})
}

// talk says all there is to say to an agent.
func talk(t *testing.T, c callee, caller *client.Client) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	if got := tell(ctx, t, caller, "hi"); got.State != "completed" || got.ResultText() != "ANSWER hi" {
		t.Errorf("hi: %s %q (%s)", got.State, got.ResultText(), got.StatusText())
	}
	if got := tell(ctx, t, caller, "fail"); got.State != "failed" || !c.noReason && !strings.Contains(reason(got), "no such file") {
		t.Errorf("fail: %s, because %q", got.State, reason(got))
	}
	if !c.noAsk {
		asked := tell(ctx, t, caller, "ask")
		if asked.State != "input_required" || asked.StatusText() != "which?" {
			t.Fatalf("ask: %s %q", asked.State, asked.StatusText())
		}
		got, err := caller.Answer(ctx, asked, "the red one")
		if err == nil {
			got, err = caller.Wait(ctx, "coder", got.ID)
		}
		if err != nil || got.State != "completed" || got.ResultText() != "you want the red one" {
			t.Errorf("the answer: %+v, error %v", got, err)
		}
	}
	if !c.noStream {
		stream(ctx, t, caller)
	}
	cancelHeld(ctx, t, c, caller)
}

func tell(ctx context.Context, t *testing.T, caller *client.Client, text string) *client.Task {
	t.Helper()
	got, err := caller.SendAndWait(ctx, "coder", text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return got
}

func reason(t *client.Task) string {
	if t.Error != nil {
		return *t.Error + " " + t.StatusText()
	}
	return t.StatusText()
}

// stream follows a task whose agent answers in chunks.
func stream(ctx context.Context, t *testing.T, caller *client.Client) {
	t.Helper()
	var task *client.Task
	for e, err := range caller.Stream(ctx, "coder", "stream") {
		if err != nil {
			t.Fatal(err)
		}
		if e.Task != nil {
			task = e.Task
			continue
		}
		task.Fold(e)
	}
	if task == nil || task.State != "completed" || strings.ReplaceAll(task.ResultText(), "\n", "") != "one two three" {
		t.Errorf("the stream: %+v", task)
	}
}

// cancelHeld cancels a task that its agent would be at for minutes.
func cancelHeld(ctx context.Context, t *testing.T, c callee, caller *client.Client) {
	t.Helper()
	sent, err := caller.Send(ctx, "coder", "hold")
	if err != nil {
		t.Fatal(err)
	}
	for sent.State == "submitted" {
		if sent, err = caller.Poll(ctx, "coder", sent.ID, time.Second); err != nil {
			t.Fatal(err)
		}
	}
	got, err := caller.Cancel(ctx, "coder", sent.ID)
	if err != nil || got.State != "canceled" {
		t.Fatalf("canceled: %+v, error %v", got, err)
	}
	if c.noCancel {
		return
	}
	for got.CancelOutcome != "confirmed" {
		if ctx.Err() != nil {
			t.Fatalf("the agent was not told: %s", got.CancelOutcome)
		}
		if got, err = caller.Poll(ctx, "coder", sent.ID, time.Second); err != nil {
			t.Fatal(fmt.Errorf("wait for the word of the agent: %w", err))
		}
	}
}
