package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-hub/holdfast/client"
)

// demoHub is a hub in a process of its own, to be killed.
type demoHub struct {
	p         *program
	data, url string
	listen    string
	admin     string // the admin token
	cmd       *exec.Cmd
	done      chan error // what became of cmd
	log       *tail
}

// demoHub finds a free port for a hub; it does not start it.
func (p *program) demoHub(data string) (*demoHub, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	listen := l.Addr().String()
	return &demoHub{p: p, data: data, listen: listen, url: "http://" + listen, admin: newSecret()}, nil
}

// start starts the hub, and returns once it answers.
func (h *demoHub) start(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	// Not bound to ctx, because the end of the demo stops it politely.
	h.cmd = exec.CommandContext(context.WithoutCancel(ctx), self, "serve", "--listen", h.listen, "--data", h.data)
	h.cmd.Args[0] = os.Args[0]
	h.cmd.Env = []string{"HOLDFAST_ADMIN_TOKEN=" + h.admin}
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "HOLDFAST_") { // the user's settings are for another hub
			h.cmd.Env = append(h.cmd.Env, kv)
		}
	}
	h.log = &tail{}
	h.cmd.Stderr = h.log
	// Ctrl-C at the terminal is for the demo alone.
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := h.cmd.Start(); err != nil {
		return fmt.Errorf("start a hub: %w", err)
	}
	h.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan<- error) { done <- cmd.Wait() }(h.cmd, h.done)
	return h.ready(ctx)
}

// ready waits until the hub answers or has ended.
func (h *demoHub) ready(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := h.done // the next start makes another
	go func() {
		select {
		case err := <-done:
			done <- err
			cancel(errors.Join(errors.New("the hub ended at once"), err))
		case <-ctx.Done():
		}
	}()
	c := client.New(h.url, h.admin, client.WithRetry(client.Retry{Tries: 1000, Min: 10 * time.Millisecond, Max: 20 * time.Millisecond}))
	if _, err := c.Whoami(ctx); err != nil {
		return fmt.Errorf("the hub does not come up: %w", err)
	}
	return nil
}

func (h *demoHub) pid() int { return h.cmd.Process.Pid }

// kill ends the hub as a crash would, and makes sure of it.
func (h *demoHub) kill() error {
	if err := h.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the hub: %w", err)
	}
	err := <-h.done
	h.cmd.Process = nil
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("the hub ended by itself before it was killed: %w", err)
	}
	return nil
}

// stop ends the hub in an orderly way.
func (h *demoHub) stop() {
	if h.cmd == nil || h.cmd.Process == nil {
		return
	}
	_ = h.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	timer := time.AfterFunc(15*time.Second, func() { _ = h.cmd.Process.Kill() })
	defer timer.Stop()
	if err := <-h.done; err != nil {
		h.p.note("The hub did not end well: " + err.Error())
	}
}

// stay waits until the user ends the demo, or the hub ends by itself.
func (h *demoHub) stay(ctx context.Context) error {
	select {
	case <-ctx.Done():
		h.p.note("\nStopping the hub.")
		return nil
	case err := <-h.done:
		h.cmd.Process = nil
		return errors.Join(errors.New("the hub has ended"), err, h.lastWords())
	}
}

// lastWords is the end of the hub's log, to go with an error.
func (h *demoHub) lastWords() error {
	h.stop()
	h.cmd = nil
	if h.log == nil || len(bytes.TrimSpace(h.log.b)) == 0 {
		return nil
	}
	return fmt.Errorf("the end of the hub's log:\n%s", strings.ReplaceAll(h.log.String(), h.admin, "…"))
}
