package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hub/holdfast/client"
)

const (
	// killDelay is how long a command may take to end on SIGTERM.
	killDelay = 2 * time.Second
	// maxOutput bounds what a command may print; the hub takes little more.
	maxOutput = 7 << 20
	// maxTail is how much of stderr goes into the reason of a failure, in bytes.
	maxTail = 2000
	// maxAnswer bounds what goes into the environment, which the system limits.
	maxAnswer = 64 << 10
)

// worker runs a shell command for each task.
type worker struct {
	p       *program
	f       workFlags
	station station
}

// handle is the worker's client.Handler.
func (w *worker) handle(ctx context.Context, t *client.Task) (any, error) {
	start := time.Now()
	if w.p.words() {
		w.p.note("%s from @%s: started", t.ID, t.Caller)
	}
	r, err := w.run(ctx, t)
	if w.p.words() {
		w.p.note("%s from @%s: %s after %s", t.ID, t.Caller, fate(ctx, r, err), time.Since(start).Round(time.Millisecond))
	}
	return r, err
}

func fate(ctx context.Context, r client.Result, err error) string {
	switch {
	case ctx.Err() != nil:
		return "dropped, " + context.Cause(ctx).Error()
	case err != nil:
		return "failed, " + err.Error()
	}
	return r.State
}

// run runs the command and gives what its exit code means.
func (w *worker) run(ctx context.Context, t *client.Task) (client.Result, error) {
	file, err := taskFile(t)
	if err != nil {
		return client.Result{}, err
	}
	defer os.Remove(file)
	stdout, stderr := &capped{left: maxOutput}, &tail{}
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", w.f.exec)
	cmd.Env = w.environment(t, file)
	cmd.Stdin = strings.NewReader(t.Text())
	cmd.Stdout, cmd.Stderr = stdout, io.MultiWriter(stderr, w.p.err)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killDelay
	err = cmd.Run()
	if ctx.Err() != nil {
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // those that took SIGTERM are gone
		}
		return client.Result{}, context.Cause(ctx)
	}
	if stdout.over {
		return client.Result{}, fmt.Errorf("the command printed more than %d MiB", maxOutput>>20)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return w.ended(exit, stdout.buf.Bytes(), stderr.String()), nil
	}
	if err != nil {
		return client.Result{}, fmt.Errorf("run the command: %w", err)
	}
	return w.completed(stdout.buf.Bytes())
}

// completed is the report of exit code 0.
func (w *worker) completed(out []byte) (client.Result, error) {
	r := client.Result{State: client.StateCompleted}
	part := outputPart(out)
	switch {
	case w.f.json:
		var raw json.RawMessage
		if err := decodeOne(out, &raw); err != nil {
			return r, fmt.Errorf("the command ended well, but printed no JSON: %w", err)
		}
		part = client.Part{Data: raw}
	case len(out) == 0:
		return r, nil
	}
	r.Artifacts = []client.Artifact{{Name: "response", Parts: []client.Part{part}}}
	return r, nil
}

// ended is the report of any other exit code.
func (w *worker) ended(exit *exec.ExitError, out []byte, complaint string) client.Result {
	said := strings.TrimSpace(strings.ToValidUTF8(string(out), "\uFFFD"))
	switch exit.ExitCode() {
	case exitRejected:
		return withWords(client.StateRejected, first(said, complaint, "the command rejected the task"))
	case exitInput:
		return withWords(client.StateInputRequired, first(said, "the command asks for more, without saying what"))
	case exitAuth:
		return withWords(client.StateAuthRequired, first(said, "the command needs a permission, without saying which"))
	}
	why := fmt.Sprintf("the command ended with exit code %d", exit.ExitCode())
	if exit.ExitCode() < 0 { // by a signal
		why = "the command ended with " + exit.String()
	}
	if complaint != "" {
		why += ": " + complaint
	}
	return client.Result{State: client.StateFailed, Error: &why}
}

func withWords(state, words string) client.Result {
	return client.Result{State: state, Message: &client.Message{Role: "agent", Parts: []client.Part{client.Text(words)}}}
}

// environment is this program's own, without the administrator's secret, and the
// task.
func (w *worker) environment(t *client.Task, file string) []string {
	env := make(map[string]string, len(w.p.env)+10)
	for k, v := range w.p.env {
		env[k] = v
	}
	for _, k := range []string{"HOLDFAST_ADMIN_TOKEN", "HOLDFAST_TOKEN_FILE", "HOLDFAST_PROFILE", "HOLDFAST_OUTPUT", "HOLDFAST_ANSWER"} {
		delete(env, k)
	}
	env["HOLDFAST_URL"], env["HOLDFAST_TOKEN"] = w.station.c.URL(), w.station.token
	env["HOLDFAST_TASK_FILE"], env["HOLDFAST_TASK_ID"], env["HOLDFAST_CALL_ID"] = file, t.ID, t.CallID
	env["HOLDFAST_CONTEXT_ID"], env["HOLDFAST_CLAIM_ID"] = t.ContextID, t.ClaimID
	env["HOLDFAST_ATTEMPT"] = strconv.Itoa(t.Attempt)
	if a := t.AnswerText(); a != "" && len(a) <= maxAnswer {
		env["HOLDFAST_ANSWER"] = strings.ReplaceAll(a, "\x00", "")
	}
	list := make([]string, 0, len(env))
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	return list
}

// taskFile writes a task to a file that only this user may read.
func taskFile(t *client.Task) (string, error) {
	f, err := os.CreateTemp("", "holdfast-task-*.json")
	if err != nil {
		return "", err
	}
	err = errors.Join(writeJSON(f, t, true), f.Close())
	if err != nil {
		os.Remove(f.Name())
		return "", fmt.Errorf("write the task file: %w", err)
	}
	return f.Name(), nil
}

// capped keeps what is written up to a limit, and fails beyond.
type capped struct {
	buf  bytes.Buffer
	left int
	over bool
}

// Write implements io.Writer.
func (c *capped) Write(b []byte) (int, error) {
	if len(b) > c.left {
		c.over = true
		return 0, io.ErrShortBuffer
	}
	c.left -= len(b)
	return c.buf.Write(b)
}

// tail keeps the end of what is written.
type tail struct{ b []byte }

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.b = append(t.b, b...)
	if len(t.b) > 2*maxTail {
		t.b = append(t.b[:0], t.b[len(t.b)-maxTail:]...)
	}
	return len(b), nil
}

// String is the last maxTail bytes as text.
func (t *tail) String() string {
	b := t.b[max(len(t.b)-maxTail, 0):]
	return strings.TrimSpace(strings.ToValidUTF8(string(b), ""))
}
