package e2e

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// kill -9 does not show a missing fsync, because the kernel keeps what was written.
// So this looks at the hub's system calls: between each request and its 2xx, what
// was written to the database has to have been synced.

func TestSyncBeforeAnswer(t *testing.T) {
	trace := traced(t, "")
	if problems := checkSyncs(t, trace); len(problems) > 0 {
		t.Errorf("the hub answers before what it wrote is on disk:\n%s", strings.Join(problems, "\n"))
	}
}

// A check that cannot fail shows nothing.
func TestSyncCheckFailsWhenSynchronousIsLowered(t *testing.T) {
	for _, level := range []string{"NORMAL", "OFF"} {
		trace := traced(t, level)
		if problems := checkSyncs(t, trace); len(problems) != len(transitions) {
			t.Errorf("synchronous=%s: the check finds %d answers without a sync, want all %d:\n%s", level, len(problems), len(transitions), strings.Join(problems, "\n"))
		}
	}
}

// transitions are what traced does, by a piece of each request's first line.
var transitions = []string{
	"POST /v1/agents/coder/tasks HTTP", // send
	"/me/tasks/next HTTP",              // claim
	"/result HTTP",                     // reply
	"/cancel HTTP",                     // cancel
}

// traced runs a hub under strace, does each transition, one at a time, and gives the
// trace. level lowers the hub's synchronous unless it is empty.
func traced(t *testing.T, level string) string {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	opt := hubproc.Options{Command: []string{
		strace(t), "-f", "-yy", "-s", "96", "-o", trace, "-e", "trace=read,write,pwrite64,fsync,fdatasync", "--",
		os.Getenv("HOLDFAST_E2E_BINARY"), "serve",
	}}
	if level != "" {
		self, err := os.Executable()
		must(t, err)
		opt.Env = []string{weakVariable + "=" + level}
		opt.Command = append(opt.Command[:len(opt.Command)-2], self)
	}
	h := hubproc.Start(t, opt)
	caller, coder := h.Agent("caller"), h.Agent("coder")
	must(t, transit(within(t, time.Minute), caller, coder))
	// strace ends with the hub that it runs, and passes signals on.
	if _, err := h.Terminate(soon); err != nil && level == "" {
		t.Errorf("the traced hub did not end well: %v", err)
	}
	return trace
}

// strace is where that program is.
func strace(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is missing, and without it nothing shows that the hub syncs, nor that it lives through a disk that fails: install it (on Debian: apt-get install strace)")
	}
	return path
}

// transit does each of the transitions.
func transit(ctx context.Context, caller, coder *hubproc.Client) error {
	var sent, got task
	if err := caller.Call(ctx, "POST", "/v1/agents/coder/tasks", send("hello"), &sent); err != nil {
		return err
	}
	if err := coder.Call(ctx, "GET", "/v1/agents/me/tasks/next", nil, &got); err != nil {
		return err
	}
	err := coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+got.ID+"/result", object{"state": "completed"}, nil, "X-Claim", got.ClaimID)
	if err != nil {
		return err
	}
	if err := caller.Call(ctx, "POST", "/v1/agents/coder/tasks", send("never mind"), &sent); err != nil {
		return err
	}
	return caller.Call(ctx, "POST", "/v1/agents/coder/tasks/"+sent.ID+"/cancel", nil, nil)
}

var (
	// A line of strace -f: the thread, then a call, its beginning or its end.
	lineForm = regexp.MustCompile(`^(\d+)\s+(<\.\.\. )?(\w+)(.*)$`)
	succeeds = regexp.MustCompile(`= \d+\s*$`)
)

// syncCheck follows one request at a time through a trace.
type syncCheck struct {
	request string // the first line of the open request, if it is a transition
	wrote   bool   // to the database, since the request
	dirty   bool   // and the last of that is not synced
	found   map[string]int
	bad     map[string]string // what is wrong, by kind
	// begun is the calls that other threads interrupted, by thread.
	begun map[string]string
}

// checkSyncs gives a line for each kind of transition that was answered without its
// writes having been synced, and fails the test if one is not in the trace at all.
func checkSyncs(t *testing.T, trace string) []string {
	t.Helper()
	f, err := os.Open(trace)
	must(t, err)
	defer func() { _ = f.Close() }()
	c := &syncCheck{found: map[string]int{}, bad: map[string]string{}, begun: map[string]string{}}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		c.line(lines.Text())
	}
	must(t, lines.Err())
	for _, kind := range transitions {
		if c.found[kind] == 0 {
			t.Errorf("the trace %s has no answered request with %q: the check does not see what it is to check", trace, kind)
		}
	}
	var problems []string
	for kind, what := range c.bad {
		problems = append(problems, kind+": "+what)
	}
	return problems
}

func (c *syncCheck) line(text string) {
	m := lineForm.FindStringSubmatch(text)
	if m == nil {
		return
	}
	thread, resumed, call, rest := m[1], m[2] != "", m[3], m[4]
	unfinished := strings.HasSuffix(rest, "<unfinished ...>")
	args := rest
	if resumed {
		args = c.begun[thread] + rest
	}
	if unfinished {
		c.begun[thread] = rest
	}
	switch call {
	case "read":
		if !unfinished { // what was read is known at the end
			c.read(args)
		}
	case "write":
		if !resumed { // an answer counts from its beginning
			c.answer(args)
		}
	case "pwrite64":
		if !resumed && strings.Contains(args, "holdfast.db") && !strings.Contains(args, "holdfast.db-shm") {
			c.wrote, c.dirty = true, true
		}
	case "fsync", "fdatasync":
		if !unfinished && strings.Contains(args, "holdfast.db") && succeeds.MatchString(args) {
			c.dirty = false
		}
	}
}

// read begins a request if the text read is one.
func (c *syncCheck) read(args string) {
	if !strings.Contains(args, "<TCP") {
		return
	}
	for _, kind := range transitions {
		if strings.Contains(args, kind) {
			c.request, c.wrote, c.dirty = kind, false, false
		}
	}
}

// answer judges the answer to the open request.
func (c *syncCheck) answer(args string) {
	if c.request == "" || !strings.Contains(args, "<TCP") || !strings.Contains(args, `"HTTP/1.1 2`) {
		return
	}
	c.found[c.request]++
	switch {
	case !c.wrote:
		c.bad[c.request] = "answered without anything having been written"
	case c.dirty:
		c.bad[c.request] = "answered before what was written had been synced"
	}
	c.request = ""
}
