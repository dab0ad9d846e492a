package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// A shell command is an agent behind a tunnel: its tasks go on while the hub is replaced
// and while the connection breaks, and each is worked on once.
func TestTasksOfACommandBehindATunnel(t *testing.T) { hubproc.EachStore(t, tasksOfACommand) }

func tasksOfACommand(t *testing.T, on hubproc.Options) {
	t.Parallel()
	h := hubproc.Start(t, on)
	dev, caller := h.Agent("dev"), h.Agent("caller")
	link := hubproc.NewLink(t, strings.TrimPrefix(dev.Base, "http://"))
	dir := t.TempDir()
	// Each run of the command leaves a line; it ends once there is the file that its task names.
	command := fmt.Sprintf(`cd %s; read what; echo run >>$what.runs; if [ $what = hello ]; then echo HELLO; exit; fi; until [ -e $what.go ]; do sleep 0.05; done; echo done with $what`, dir)
	p := openTunnel(t, link.URL(dev.Base), dev.Token, "--exec", command, "--slots", "2")
	eventually(t, soon, "the tunnel is open", func() bool { return p.said("Connected") > 0 })
	runs := func(what string) int {
		b, _ := os.ReadFile(filepath.Join(dir, what+".runs")) // none is no run
		return strings.Count(string(b), "\n")
	}
	send := func(text string) (task client.Task) {
		must(t, caller.Call(t.Context(), http.MethodPost, "/v1/agents/dev/tasks", map[string]any{
			"message": map[string]any{"parts": []any{map[string]any{"text": text}}},
		}, &task))
		return task
	}
	is := func(task client.Task, what, want string) {
		t.Helper()
		eventually(t, time.Minute, "the task is completed", func() bool {
			must(t, caller.Call(within(t, soon), http.MethodGet, "/v1/agents/dev/tasks/"+task.ID+"?wait=5", nil, &task))
			return task.State == "completed"
		})
		if got := strings.TrimSpace(task.ResultText()); got != want || runs(what) != 1 {
			t.Errorf("the result is %q, want %q; the command ran %d times, want once", got, want, runs(what))
		}
	}
	is(send("hello"), "hello", "HELLO")

	for what, trouble := range map[string]func(){
		"deploy": func() {
			_, err := h.Terminate(soon)
			must(t, err)
			h.Start()
		},
		"crash": func() {
			h.Kill()
			h.Start()
		},
		"cut": link.Resets,
	} {
		task := send(what)
		eventually(t, soon, "the hub knows that the command runs", func() bool {
			must(t, caller.Call(within(t, soon), http.MethodGet, "/v1/agents/dev/tasks/"+task.ID, nil, &task))
			return runs(what) == 1 && task.RemoteTaskID != nil
		})
		trouble()
		must(t, os.WriteFile(filepath.Join(dir, what+".go"), nil, 0o600))
		is(task, what, "done with "+what)
	}
}
