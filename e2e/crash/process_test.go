package crash

import (
	"bytes"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that is killed and started again. It is killed when its test ends.
type process struct {
	t    *testing.T
	name string
	args []string
	env  []string
	// ready reports whether it does its work.
	ready func(p *process) bool

	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
	mu    sync.Mutex
	log   bytes.Buffer
	from  int // where in the log the newest start begins
}

// Write implements io.Writer, for what the program says.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

// says reports whether it has said something since it was started.
func (p *process) says(words string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.log.String()[p.from:], words)
}

// start starts it, and has it killed when the test ends.
func (p *process) start() {
	p.t.Helper()
	if p.cmd == nil {
		p.t.Cleanup(func() {
			p.kill()
			if p.t.Failed() {
				p.t.Logf("%s said:\n%s", p.name, lastLines(p.log.String(), 30))
			}
		})
	}
	p.mu.Lock()
	p.from = p.log.Len()
	p.mu.Unlock()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.WaitDelay = time.Second // what it has started may have its output still
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
}

// kill ends it as a crash would.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, syscall.ESRCH) {
		p.t.Errorf("kill %s: %v", p.name, err)
	}
	<-p.ended
}

// await waits until it does its work.
func (p *process) await() {
	p.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !p.ready(p) {
		select {
		case <-tick.C:
		case <-p.ended:
			p.t.Fatalf("%s has ended:\n%s", p.name, p.log.String())
		case <-late:
			p.t.Fatalf("%s does not begin to work:\n%s", p.name, p.log.String())
		}
	}
}

// listens is ready for a program that listens.
func listens(addr string) func(*process) bool {
	return func(*process) bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
}
