// Package hubproc runs the hub as a process of its own, as its users do, for tests
// that kill it, starve it or look at it from the outside.
package hubproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binaryVariable names the hub's executable; Main builds one if it is not set.
const binaryVariable = "HOLDFAST_E2E_BINARY"

// AdminToken is the administrator's token of every hub that is started here.
const AdminToken = "hfa_e2eadministratortokenfortests0123456789abcdef"

// Main builds the real binary, runs the tests of a package and removes it again; for
// use in TestMain. With RACE=1 the binary has the race detector in it.
func Main(m *testing.M) int {
	if os.Getenv(binaryVariable) != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "holdfast-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := build(filepath.Join(dir, "holdfast")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func build(path string) error {
	args := []string{"build", "-o", path}
	if os.Getenv("RACE") == "1" {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/holdfast-hub/holdfast/cmd/holdfast")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the hub: %w\n%s", err, out)
	}
	return os.Setenv(binaryVariable, path)
}

// Options say how to run a hub.
type Options struct {
	// Dir is the data directory; a temporary one if empty.
	Dir string
	// Args are further arguments of serve.
	Args []string
	// Command runs instead of the binary's serve; --listen and --data and Args are
	// added. The binary itself is $HOLDFAST_E2E_BINARY.
	Command []string
	// Env is added to the environment.
	Env []string
	// Advertise tells other replicas where this one is.
	Advertise bool
}

// Hub is a hub's process. It is killed when its test ends.
type Hub struct {
	// Addr and Dir stay the same over a restart.
	Addr, Dir string

	t    testing.TB
	opt  Options
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{} // closed when the process has ended
	err  error         // how, once done
}

// Start starts a hub on a free port and waits until it is ready.
func Start(t testing.TB, opt Options) *Hub {
	t.Helper()
	h := New(t, opt)
	h.Start()
	return h
}

// New prepares a hub that is not started yet.
func New(t testing.TB, opt Options) *Hub {
	t.Helper()
	if opt.Dir == "" {
		opt.Dir = filepath.Join(t.TempDir(), "data")
	}
	if len(opt.Command) == 0 {
		opt.Command = []string{os.Getenv(binaryVariable), "serve"}
	}
	h := &Hub{Addr: FreeAddr(t), Dir: opt.Dir, t: t, opt: opt, log: new(logBuffer)}
	t.Cleanup(func() {
		h.Kill()
		if t.Failed() {
			t.Logf("the hub's log:\n%s", h.Log())
		}
	})
	return h
}

// FreeAddr is an address on loopback that nobody listens on. Its port is none of those that
// systems give to connections by themselves, so that whoever listens there and is killed
// finds it free when it starts again.
func FreeAddr(t testing.TB) string {
	t.Helper()
	const first, last, tries = 12_000, 30_000, 100
	var err error
	for range tries {
		addr := "127.0.0.1:" + strconv.Itoa(first+rand.IntN(last-first))
		var l net.Listener
		if l, err = net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	t.Fatalf("no port is free: %v", err)
	return ""
}

// Start starts the hub, again after it has ended, and waits until it is ready.
func (h *Hub) Start() {
	h.t.Helper()
	h.Launch()
	h.Await()
}

// Await waits until a hub is ready that was launched.
func (h *Hub) Await() {
	h.t.Helper()
	if err := h.ready(); err != nil {
		h.t.Fatalf("the hub did not start: %v\n%s", err, h.Log())
	}
}

// Launch starts the hub's process without waiting for it to be ready.
func (h *Hub) Launch() {
	h.t.Helper()
	args := append([]string{}, h.opt.Command[1:]...)
	args = append(append(args, "--listen", h.Addr, "--data", h.Dir), h.opt.Args...)
	if h.opt.Advertise {
		args = append(args, "--advertise-url", "http://"+h.Addr)
	}
	cmd := exec.Command(h.opt.Command[0], args...)
	cmd.Env = append(append(os.Environ(), "HOLDFAST_ADMIN_TOKEN="+AdminToken), h.opt.Env...)
	cmd.Stdout, cmd.Stderr = h.log, h.log
	// A group of its own, so that a hub under another program gets the signals too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		h.t.Fatalf("start the hub: %v", err)
	}
	done := make(chan struct{})
	go func() {
		h.err = cmd.Wait()
		close(done)
	}()
	h.cmd, h.done = cmd, done
}

// ready asks until the hub says that it is.
func (h *Hub) ready() error {
	deadline := time.After(30 * time.Second)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		res, err := http.Get("http://" + h.Addr + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(res.Status)
		}
		select {
		case <-again.C:
		case <-h.done:
			return fmt.Errorf("it ended: %w", h.err)
		case <-deadline:
			return err
		}
	}
}

// PID is the number of the hub's process.
func (h *Hub) PID() int { return h.cmd.Process.Pid }

// RSS is the memory that the hub's process has in RAM, in bytes.
func (h *Hub) RSS() int64 {
	h.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", h.cmd.Process.Pid))
	if err != nil {
		h.t.Fatalf("read the memory of the hub's process: %v", err)
	}
	var kb int64
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		h.t.Fatalf("read the memory of the hub's process: %v", err)
	}
	return kb << 10
}

// Kill ends the hub as a crash would (SIGKILL), and waits until it has ended.
func (h *Hub) Kill() {
	if h.cmd == nil {
		return
	}
	_ = h.signal(syscall.SIGKILL)
	<-h.done
}

// Terminate asks the hub to end (SIGTERM), and gives how it ended and how long that
// took.
func (h *Hub) Terminate(within time.Duration) (took time.Duration, err error) {
	began := time.Now()
	if err := h.signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	err = h.Wait(within)
	return time.Since(began), err
}

// Freeze stops the hub's process where it is (SIGSTOP), until Thaw.
func (h *Hub) Freeze() error { return h.signal(syscall.SIGSTOP) }

// Thaw lets a process go on that was stopped (SIGCONT).
func (h *Hub) Thaw() error { return h.signal(syscall.SIGCONT) }

// signal sends a signal to the hub's process group, unless it has ended.
func (h *Hub) signal(s syscall.Signal) error {
	select {
	case <-h.done:
		return os.ErrProcessDone
	default:
		return syscall.Kill(-h.cmd.Process.Pid, s)
	}
}

// Wait waits until the hub has ended, and gives how.
func (h *Hub) Wait(within time.Duration) error {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case <-h.done:
		return h.err
	case <-timeout.C:
		return fmt.Errorf("the hub still ran after %v", within)
	}
}

// Log is what the hub has written to standard output and standard error.
func (h *Hub) Log() string { return h.log.String() }

// Client is a client of the hub with a token.
func (h *Hub) Client(token string) *Client {
	return &Client{Base: "http://" + h.Addr, Token: token, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

// Admin is a client of the hub as its administrator.
func (h *Hub) Admin() *Client { return h.Client(AdminToken) }

// Agent creates an open address and gives a client that acts as it. more is further
// members of the request.
func (h *Hub) Agent(handle string, more ...map[string]any) *Client {
	h.t.Helper()
	req := map[string]any{"handle": handle, "access": "open"}
	for _, m := range more {
		for k, v := range m {
			req[k] = v
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var token struct{ Token string }
	if err := h.Admin().Call(ctx, "POST", "/v1/agents", req, nil); err != nil {
		h.t.Fatal(err)
	}
	if err := h.Admin().Call(ctx, "POST", "/v1/agents/"+handle+"/tokens", map[string]any{}, &token); err != nil {
		h.t.Fatal(err)
	}
	return h.Client(token.Token)
}

// logBuffer keeps the newest of what is written to it.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

const maxLog = 1 << 20

// Write implements io.Writer.
func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.b.Len() > maxLog {
		l.b.Next(l.b.Len() / 2)
	}
	return l.b.Write(p)
}

// String is what is kept.
func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
