package e2e

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// tunneled is a process of "holdfast tunnel".
type tunneled struct {
	cmd  *exec.Cmd
	done chan error // the end, once

	mu  sync.Mutex
	log bytes.Buffer
}

// Write implements io.Writer.
func (p *tunneled) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// said is how often the process has said something.
func (p *tunneled) said(words string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Count(p.log.String(), words)
}

// openTunnel runs "holdfast tunnel" until the test ends.
func openTunnel(t *testing.T, hub, token string, args ...string) *tunneled {
	t.Helper()
	p := &tunneled{done: make(chan error, 1)}
	p.cmd = exec.Command(os.Getenv("HOLDFAST_E2E_BINARY"), append([]string{"tunnel"}, args...)...)
	p.cmd.Env = append(os.Environ(), "HOLDFAST_URL="+hub, "HOLDFAST_TOKEN="+token)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	must(t, p.cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-ended
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("the tunnel said:\n%s", p.log.String())
		}
	})
	return p
}

// local is an agent's local server.
func local(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello from "+r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// through reports whether a request of an outside service reaches the local server.
func through(t *testing.T, hub string) bool {
	t.Helper()
	status, body := outside(t, hub)
	return status == http.StatusOK && body == "hello from /hooks/a"
}

// outside makes a request of an outside service; the status is 0 if it fails.
func outside(t *testing.T, hub string) (status int, said string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t, soon), http.MethodGet, hub+"/t/dev/hooks/a", nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, ""
	}
	return resp.StatusCode, string(body)
}

// A tunnel comes back by itself after the hub was killed, and after it was stopped.
func TestTunnelOutlivesTheHub(t *testing.T) {
	h := hubproc.Start(t, hubproc.Options{})
	dev := h.Agent("dev", object{"relay_paths": []string{"/hooks/"}})
	p := openTunnel(t, dev.Base, dev.Token, "--to", local(t), "--relay", "/hooks/", "--slots", "4")
	eventually(t, soon, "the tunnel is open", func() bool { return through(t, dev.Base) })
	h.Kill()
	eventually(t, soon, "the client notices", func() bool { return p.said("connecting again") > 0 })
	h.Start()
	eventually(t, time.Minute, "the tunnel is open again", func() bool { return through(t, dev.Base) })
	took, err := h.Terminate(soon)
	must(t, err)
	if took > 5*time.Second {
		t.Errorf("the hub took %s to stop with an idle tunnel", took)
	}
	h.Start()
	eventually(t, time.Minute, "the tunnel is open once more", func() bool { return through(t, dev.Base) })
}

// A laptop sleeps: its processes stop, and after a while go on. For FULL=1 that is two
// minutes; else it is longer than the hub needs to notice.
func TestTunnelOutlivesSleep(t *testing.T) {
	t.Parallel()
	asleep := 32 * time.Second
	if os.Getenv("FULL") == "1" {
		asleep = 2 * time.Minute
	}
	h := hubproc.Start(t, hubproc.Options{})
	dev := h.Agent("dev", object{"relay_paths": []string{"/hooks/"}})
	p := openTunnel(t, dev.Base, dev.Token, "--to", local(t), "--relay", "/hooks/")
	eventually(t, soon, "the tunnel is open", func() bool { return through(t, dev.Base) })
	must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	slept := time.After(asleep)
	eventually(t, 45*time.Second, "the hub notices", func() bool {
		open, err := h.Admin().Metric(t.Context(), "holdfast_tunnels_open")
		return err == nil && open == 0
	})
	<-slept
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, soon, "the tunnel is open again", func() bool { return through(t, dev.Base) })
}

// What the command says and how it ends when it cannot do its work.
func TestTunnelThatIsRefused(t *testing.T) {
	h := hubproc.Start(t, hubproc.Options{})
	dev := h.Agent("dev")
	ends := func(p *tunneled, exit int, words string) {
		t.Helper()
		select {
		case <-p.done:
		case <-time.After(soon):
			t.Fatal("the command goes on")
		}
		if got := p.cmd.ProcessState.ExitCode(); got != exit || p.said(words) == 0 {
			t.Errorf("exit code %d, want %d and %q", got, exit, words)
		}
	}
	ends(openTunnel(t, dev.Base, "hf_wrong", "--to", "http://localhost:1"), 4, "token")
	ends(openTunnel(t, dev.Base, dev.Token, "--to", "localhost:9000"), 2, "--to")
	ends(openTunnel(t, dev.Base, dev.Token), 2, "--exec")
	ends(openTunnel(t, "http://127.0.0.1:1", dev.Token, "--to", "http://localhost:1", "--once"), 6, "127.0.0.1:1")
	patient := openTunnel(t, "http://127.0.0.1:1", dev.Token, "--to", "http://localhost:1")
	eventually(t, soon, "the command says that it tries again", func() bool { return patient.said("trying again") > 0 })

	first := openTunnel(t, dev.Base, dev.Token, "--to", "http://localhost:1", "--instance", "laptop")
	eventually(t, soon, "the tunnel is open", func() bool { return first.said("Connected") > 0 })
	second := openTunnel(t, dev.Base, dev.Token, "--to", "http://localhost:1", "--instance", "laptop")
	ends(first, 5, "--instance")
	must(t, second.cmd.Process.Signal(os.Interrupt))
	select {
	case <-second.done:
	case <-time.After(soon):
		t.Fatal("Ctrl-C does not end the command")
	}
}
