package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// tunnelReplicas starts replicas of one hub, which know where the others are.
func tunnelReplicas(t *testing.T, advertise ...bool) (list []*hubproc.Hub) {
	t.Helper()
	database, key := hubproc.Database(t), hubproc.MasterKey(t)
	for _, a := range advertise {
		on := hubproc.On(database, key)
		on.Advertise = a
		list = append(list, hubproc.Start(t, on))
	}
	return list
}

// waiting are commands that are agents: each notes who it is, and waits for a word to go on.
type waiting struct{ dir string }

// command is one of an agent with a name.
func (w waiting) command(name string) string {
	return fmt.Sprintf("cd %s; echo %s >> begun; while [ ! -e go ]; do sleep 0.05; done; echo %s", w.dir, name, name)
}

// begun counts the commands of an agent that have begun.
func (w waiting) begun(name string) int {
	b, _ := os.ReadFile(filepath.Join(w.dir, "begun")) // it is not there at first
	n := 0
	for line := range strings.Lines(string(b)) {
		if strings.TrimSpace(line) == name {
			n++
		}
	}
	return n
}

// ahead lets all commands end.
func (w waiting) ahead(t *testing.T) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join(w.dir, "go"), nil, 0o600))
}

// Two tunnels of one address on two replicas share its work by their free slots, whichever
// replica takes a task. If one of them is killed, its tasks end all the same: through itself
// if it comes back, else through the other.
func TestTunnelsOnTwoReplicas(t *testing.T) {
	t.Parallel()
	for name, returns := range map[string]bool{"and one is killed and comes back": true, "and one is killed for good": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tunnelsOnTwoReplicas(t, returns)
		})
	}
}

func tunnelsOnTwoReplicas(t *testing.T, returns bool) {
	both := tunnelReplicas(t, true, true)
	dev, w := both[0].Agent("dev"), waiting{t.TempDir()}
	caller := both[0].Agent("ann")
	callers := []*hubproc.Client{caller, both[1].Client(caller.Token)}
	open := func(at *hubproc.Hub, name, slots string) *tunneled {
		p := openTunnel(t, "http://"+at.Addr, dev.Token, "--exec", w.command(name), "--instance", name, "--slots", slots)
		eventually(t, soon, "the tunnel is open", func() bool { return p.said("Connected") > 0 })
		return p
	}
	one := open(both[0], "one", "2")
	open(both[1], "two", "3")
	ctx := within(t, 3*time.Minute)
	tasks := make([]task, 6)
	for i := range tasks {
		must(t, callers[i%2].Call(ctx, "POST", "/v1/agents/dev/tasks", send("hello"), &tasks[i]))
	}
	eventually(t, soon, "all slots are taken", func() bool { return w.begun("one") == 2 && w.begun("two") == 3 })
	must(t, one.cmd.Process.Kill())
	<-one.done
	if returns {
		open(both[0], "one", "2")
		eventually(t, 30*time.Second, "what it was at has begun again", func() bool { return w.begun("one") == 4 })
	}
	w.ahead(t)
	eventually(t, 2*time.Minute, "all tasks have ended", func() bool {
		for i := range tasks {
			must(t, callers[(i+1)%2].Call(ctx, "GET", "/v1/agents/dev/tasks/"+tasks[i].ID, nil, &tasks[i]))
			if tasks[i].State != "completed" && tasks[i].State != "failed" {
				return false
			}
		}
		return true
	})
	for _, x := range tasks {
		if x.State != "completed" {
			t.Errorf("a task is %+v", x)
		}
	}
	if all := w.begun("one") + w.begun("two"); all != 8 {
		t.Errorf("commands were begun %d times, want once for each task and again for the two that were cut off", all)
	}
}

// Whichever replica an outside service calls, it reaches the agent, unless the replica that
// has the tunnel has not said where it is.
func TestRelayThroughEveryReplica(t *testing.T) {
	t.Parallel()
	all := tunnelReplicas(t, true, false)
	dev := all[0].Agent("dev", object{"relay_paths": []string{"/hooks/"}})
	first, second := "http://"+all[0].Addr, "http://"+all[1].Addr
	for _, hub := range []string{first, second} {
		if status, said := outside(t, hub); status != http.StatusServiceUnavailable || !strings.Contains(said, "not connected") {
			t.Errorf("before there is a tunnel: %d %s", status, said)
		}
	}
	args := []string{"--to", local(t), "--relay", "/hooks/", "--instance", "laptop"}
	p := openTunnel(t, first, dev.Token, args...)
	eventually(t, soon, "the tunnel is open", func() bool { return through(t, first) })
	eventually(t, soon, "it is reached through the other replica", func() bool { return through(t, second) })

	// It connects to the other replica, as if it had lost the first.
	openTunnel(t, second, dev.Token, args...)
	eventually(t, soon, "the tunnel is open", func() bool { return through(t, second) })
	select {
	case <-p.done:
	case <-time.After(2 * soon):
		t.Fatal("the first replica keeps the connection")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 5 {
		t.Errorf("the command of the first connection ended with %d, want 5", code)
	}
	eventually(t, soon, "the first replica says why it does not relay", func() bool {
		status, said := outside(t, first)
		return status == http.StatusServiceUnavailable && strings.Contains(said, "--advertise-url")
	})
}
