package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

// process is a server under measurement.
type process struct {
	addr string
	cmd  *exec.Cmd
	// stop ends it; in is what a baseline waits for the end of.
	in io.Closer
	// log is what it wrote to standard error.
	log *bytes.Buffer
}

// start runs this executable with arguments and variables.
func start(ctx context.Context, args []string, env ...string) (*process, io.Reader, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program's own executable: %w", err)
	}
	p := &process{cmd: exec.CommandContext(ctx, self, args...), log: new(bytes.Buffer)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stderr = p.log
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	p.in = in
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", strings.Join(args, " "), err)
	}
	return p, out, nil
}

// kill ends the process at once, as a crash would.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.in.Close()
	_ = p.cmd.Wait()
}

// startBaseline starts one of the baselines.
func (r *run) startBaseline(ctx context.Context, role string) (*process, error) {
	p, out, err := start(ctx, r.Self, roleVariable+"="+role)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.kill()
		return nil, fmt.Errorf("the %s baseline did not start: %w: %s", role, err, p.log)
	}
	p.addr = strings.TrimSpace(line)
	return p, nil
}

// hubProcess is a hub with its administrator's token.
type hubProcess struct {
	*process
	dir, admin string
	// env is what it is told besides: where its database is.
	env []string
	// ready is how long it took from the start of the process to the first answer to
	// a request with a token.
	ready time.Duration
}

// startHub starts a hub on a new data directory, which stop removes.
func (r *run) startHub(ctx context.Context) (*hubProcess, error) {
	return r.startHubWith(ctx, newAdminToken())
}

func newAdminToken() string { return "hfa_" + strings.ToLower(rand.Text()+rand.Text()) }

// startHubWith starts a hub with an administrator's token and further variables.
func (r *run) startHubWith(ctx context.Context, admin string, env ...string) (*hubProcess, error) {
	dir, err := os.MkdirTemp(r.Dir, "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	h := &hubProcess{dir: dir, admin: admin, env: env}
	if err := r.serve(ctx, h); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return h, nil
}

// stop ends a hub and removes its data.
func (h *hubProcess) stop() {
	h.kill()
	_ = os.RemoveAll(h.dir)
}

// serve starts the hub's process on its directory and waits until it answers.
func (r *run) serve(ctx context.Context, h *hubProcess) error {
	addr, err := freeAddr(ctx)
	if err != nil {
		return err
	}
	args := append(append([]string{}, r.Serve...), "--listen", addr, "--data", filepath.Join(h.dir, "data"))
	began := time.Now()
	p, out, err := start(ctx, args, append([]string{"HOLDFAST_ADMIN_TOKEN=" + h.admin}, h.env...)...)
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	p.addr, h.process = addr, p
	if err := h.await(ctx); err != nil {
		h.kill()
		return fmt.Errorf("the hub did not start: %w: %s", err, p.log)
	}
	h.ready = time.Since(began)
	return nil
}

// freeAddr is an address that nobody listens on.
func freeAddr(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// await asks until the hub answers a request that has to be authenticated.
func (h *hubProcess) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := h.call(ctx, http.MethodGet, "/v1/whoami", nil, nil)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

// call makes an administrator's request.
func (h *hubProcess) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if in == nil {
		body = nil
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+h.addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+h.admin)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= 300 {
		return unexpected(method+" "+path, res.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}

// agent makes an open address and gives a token that acts as it.
func (h *hubProcess) agent(ctx context.Context, handle string) (string, error) {
	open := "open"
	err := h.call(ctx, http.MethodPost, "/v1/agents", wire.AgentRequest{Handle: handle, Access: &open}, nil)
	if err != nil {
		return "", err
	}
	var t wire.Token
	err = h.call(ctx, http.MethodPost, "/v1/agents/"+handle+"/tokens", wire.TokenRequest{Name: "bench"}, &t)
	return t.Token, err
}

// agents makes n addresses, prefix-0 and so on.
func (h *hubProcess) agents(ctx context.Context, prefix string, n int) (tokens []string, err error) {
	for i := range n {
		t, err := h.agent(ctx, prefix+"-"+strconv.Itoa(i))
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// metric is the value of a metric of the hub, such as go_goroutines.
func (h *hubProcess) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(rest, 64)
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("the hub has no metric %s", name))
}

// settle waits until a metric has reached a value.
func (h *hubProcess) settle(ctx context.Context, name string, reached func(float64) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		v, err := h.metric(ctx, name)
		if err == nil && reached(v) {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return fmt.Errorf("%s stayed at %v: %w", name, v, errors.Join(err, ctx.Err()))
		}
	}
}

// rss is the memory that a process has in RAM, in MB.
func (p *process) rss() (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of the hub's process, which takes Linux: %w", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("/proc/PID/status has no VmRSS")
	}
	kb, err := strconv.ParseFloat(fields[0], 64)
	return kb / 1024, err
}

// cpu is the processor time that a process has used; zero where /proc does not say.
func (p *process) cpu() time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	fields := bytes.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond // Linux counts hundredths
}
