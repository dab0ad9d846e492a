package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/cli"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"holdfast": holdfast})
}

// holdfast is the program as cmd/holdfast has it.
func holdfast() {
	os.Exit(cli.Main(cli.Interruptible(context.Background()), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ()))
}

// TestScripts runs testdata/*.txtar, each against a hub of its own. Besides what
// testscript knows they can say
//
//	agent NAME            make the open address NAME; its token is in $NAME_TOKEN
//	as NAME               act as it, or as admin
//	exits CODE COMMAND…   run a command that has to end with CODE
//	keep NAME [PATH]      put stdout, or what is there in its JSON, into the variable NAME
//	json PATH VALUE       the JSON on stdout has VALUE at PATH, such as data.0.id
//	chunks NAME           as NAME, answer the next task with a text in two chunks
//	restart               restart the hub
//	until TEXT COMMAND…   run a command again and again until its stdout has TEXT
//	hook NAME TEXT        wait for a push notification with TEXT to come to $HOOK/NAME;
//	                      $HOOK/gone answers 410, anything else 200
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			h := testhub.Start(t, func(c *config.Config) { c.Version, c.EgressAllowLocal = cli.Version(), "1024-65535" })
			hooks := receive(t)
			testscript.Run(t, testscript.Params{
				Files: []string{file},
				Setup: func(env *testscript.Env) error {
					env.Setenv("HOLDFAST_URL", h.URL)
					env.Setenv("HOLDFAST_TOKEN", h.AdminToken)
					env.Setenv("admin_TOKEN", h.AdminToken)
					env.Setenv("HUB_DATA", h.Dir())
					env.Setenv("HOOK", hooks.url)
					env.Setenv("XDG_CONFIG_HOME", env.WorkDir+"/config")
					env.Setenv("TMPDIR", env.WorkDir+"/tmp")
					return os.MkdirAll(env.WorkDir+"/tmp", 0o700)
				},
				Cmds: scriptCommands(h, hooks),
			})
		})
	}
}

func scriptCommands(h *testhub.Hub, hooks *receiver) map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"agent": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Setenv(args[0]+"_TOKEN", h.Agent(args[0]))
		},
		"as": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Setenv("HOLDFAST_TOKEN", ts.Getenv(args[0]+"_TOKEN"))
		},
		"chunks": func(ts *testscript.TestScript, _ bool, args []string) {
			ts.Check(chunks(client.New(h.URL, ts.Getenv(args[0]+"_TOKEN"))))
		},
		"restart": func(*testscript.TestScript, bool, []string) { h.Restart() },
		"hook":    hooks.wait,
		"until":   until,
		"exits":   exits,
		"keep":    keep,
		"json":    checkJSON,
	}
}

// receiver takes push notifications.
type receiver struct {
	url string
	got chan [2]string // path and body
}

func receive(t *testing.T) *receiver {
	r := &receiver{got: make(chan [2]string, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		if req.URL.Path == "/gone" {
			w.WriteHeader(http.StatusGone)
		}
		r.got <- [2]string{req.URL.Path, string(body)}
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL
	return r
}

// wait waits for a notification; others that came before are dropped.
func (r *receiver) wait(ts *testscript.TestScript, _ bool, args []string) {
	end := time.After(time.Minute)
	for {
		select {
		case n := <-r.got:
			if n[0] == "/"+args[0] && strings.Contains(strings.ToLower(n[1]), args[1]) {
				return
			}
		case <-end:
			ts.Fatalf("no notification with %q came to %s", args[1], args[0])
		}
	}
}

func chunks(c *client.Client) error {
	ctx := context.Background()
	t, err := c.Next(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		t.AppendText(ctx, "text", "one ", false), t.Progress(ctx, "between"),
		t.AppendText(ctx, "text", "piece", true), t.Done(ctx, nil))
}

func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

func until(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		ts.Check(ts.Exec(args[1], args[2:]...))
		if strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
	}
	ts.Fatalf("it never printed %s", args[0])
}

func keep(ts *testscript.TestScript, _ bool, args []string) {
	value := strings.TrimSpace(ts.ReadFile("stdout"))
	if len(args) == 2 {
		value = fmt.Sprint(at(ts, value, args[1]))
	}
	ts.Setenv(args[0], value)
}

// at is what is in a JSON text at a path of names and indexes.
func at(ts *testscript.TestScript, text, path string) any {
	var v any
	ts.Check(json.Unmarshal([]byte(text), &v))
	for step := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[step]
		case []any:
			i, err := strconv.Atoi(step)
			ts.Check(err)
			if i >= len(in) {
				ts.Fatalf("%s: there are only %d elements", path, len(in))
			}
			v = in[i]
		default:
			ts.Fatalf("%s: nothing is below %v", path, v)
		}
	}
	return v
}

// checkJSON compares what is at a path with a value as JSON, or as a plain string.
func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	from := "stdout"
	if len(args) == 3 {
		from, args = args[0], args[1:]
	}
	v := at(ts, ts.ReadFile(from), args[0])
	got, err := json.Marshal(v)
	ts.Check(err)
	same := string(got) == args[1] || v == args[1]
	if same == neg {
		ts.Fatalf("%s is %s", args[0], got)
	}
}

// TestInterrupt shows that Ctrl-C leaves the task alone and says how to come back.
func TestInterrupt(t *testing.T) {
	h := testhub.Start(t)
	h.Agent("slow")
	you := h.Agent("you")
	task, err := client.New(h.URL, you).Send(t.Context(), "slow", "hello")
	if err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"send --stream": {"send", "@slow", "hello", "--stream"},
		"subscribe":     {"subscribe", "@slow", task.ID},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, h, you, args...)
			id := strings.Fields(p.line(t))[1]
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(p.line(t), "holdfast poll @slow "+id+" --wait") {
				t.Error("it does not say how to come back")
			}
			if code := p.end(t); code != 130 {
				t.Errorf("exit code %d, want 130", code)
			}
			now, err := client.New(h.URL, you).Get(t.Context(), "slow", id)
			if err != nil || now.State != client.StateSubmitted {
				t.Errorf("the task is %v (%v), want it to go on", now, err)
			}
		})
	}
}

// TestWorkDrains shows that an interrupted worker lets its command finish.
func TestWorkDrains(t *testing.T) {
	h := testhub.Start(t)
	worker, you := h.Agent("slow"), h.Agent("you")
	dir := t.TempDir()
	gate := filepath.Join(dir, "gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, h, worker, "work", "--exec", fmt.Sprintf("echo running >&2; cat %s", gate))
	c := client.New(h.URL, you)
	task, err := c.Send(t.Context(), "slow", "hello")
	if err != nil {
		t.Fatal(err)
	}
	p.until(t, "running")
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gate, []byte("late but whole\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	done, err := c.Wait(t.Context(), "slow", task.ID)
	if err != nil || done.ResultText() != "late but whole" {
		t.Errorf("the task came out as %v, %v", done, err)
	}
	p.until(t, "Worked on 1 tasks")
	if code := p.end(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestTunnelDrains shows that an interrupted tunnel lets its command finish, and takes no
// other task meanwhile. A second Ctrl-C ends it at once.
func TestTunnelDrains(t *testing.T) {
	for name, twice := range map[string]bool{"once": false, "twice": true} {
		t.Run("Ctrl-C "+name, func(t *testing.T) {
			h := testhub.Start(t)
			worker, you := h.Agent("slow"), h.Agent("you")
			gate := filepath.Join(t.TempDir(), "gate")
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			p := start(t, h, worker, "tunnel", "--exec", "echo running >&2; cat "+gate, "--slots", "2")
			c := client.New(h.URL, you)
			task, err := c.Send(t.Context(), "slow", "hello")
			if err != nil {
				t.Fatal(err)
			}
			p.until(t, "running")
			if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			p.until(t, "those under way may take 1m0s to finish")
			if twice {
				if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
					t.Fatal(err)
				}
				if code := p.end(t); code == 0 {
					t.Error("it ended as if nothing were under way")
				}
				return
			}
			if err := os.WriteFile(gate, []byte("late but whole"), 0o600); err != nil {
				t.Fatal(err)
			}
			done, err := c.Wait(t.Context(), "slow", task.ID)
			if err != nil || done.ResultText() != "late but whole" {
				t.Errorf("the task came out as %v, %v", done, err)
			}
			if code := p.end(t); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		})
	}
}

// process is the program in a process of its own.
type process struct {
	cmd    *exec.Cmd
	stderr *bufio.Reader
}

func start(t *testing.T, h *testhub.Hub, token string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Args[0] = "holdfast"
	cmd.Env = append(os.Environ(), "HOLDFAST_URL="+h.URL, "HOLDFAST_TOKEN="+token)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{cmd, bufio.NewReader(stderr)}
}

// line is the next line of stderr.
func (p *process) line(t *testing.T) string {
	t.Helper()
	s, err := p.stderr.ReadString('\n')
	if err != nil {
		t.Fatalf("stderr ended after %q: %v", s, err)
	}
	return s
}

// until reads up to a line with a text.
func (p *process) until(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(p.line(t), text) {
	}
}

func (p *process) end(t *testing.T) int {
	t.Helper()
	for {
		if _, err := p.stderr.ReadString('\n'); err != nil {
			break
		}
	}
	err := p.cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}
