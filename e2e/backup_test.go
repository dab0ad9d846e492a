package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// command runs the program and decodes what it prints.
func command(t *testing.T, out any, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Getenv("HOLDFAST_E2E_BINARY"), append(args, "-o", "json")...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("holdfast %v: %v\n%s", args, err, &stderr)
	}
	if out != nil {
		must(t, json.Unmarshal(stdout.Bytes(), out))
	}
}

// ledger is what callers and workers of a hub know.
type ledger struct {
	mu    sync.Mutex
	sent  map[string]string // by idempotency key: the task that was acknowledged
	ended map[string]bool   // the tasks whose result was acknowledged
	held  map[string]task   // the newest claim of each task
}

func (l *ledger) note(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// snapshot is what is known now.
func (l *ledger) snapshot() (sent map[string]string, ended map[string]bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	sent, ended = make(map[string]string), make(map[string]bool)
	for k, v := range l.sent {
		sent[k] = v
	}
	for k, v := range l.ended {
		ended[k] = v
	}
	return sent, ended
}

// load has callers send and workers work until ctx ends or the hub is gone. A caller
// waits a moment for each result, so that the mailbox does not run over.
func (l *ledger) load(ctx context.Context, wg *sync.WaitGroup, caller, coder *hubproc.Client) {
	for n := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("%d-%d", n, i)
				var got task
				if caller.Call(ctx, "POST", "/v1/agents/coder/tasks?wait=0.05", send(key), &got, "Idempotency-Key", key) != nil {
					return
				}
				l.note(func() { l.sent[key] = got.ID })
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				var got task
				if coder.Call(ctx, "GET", "/v1/agents/me/tasks/next?wait=5", nil, &got) != nil {
					return
				}
				l.note(func() { l.held[got.ID] = got })
				if got.ID == "" || i%5 == 0 { // this worker takes its time
					continue
				}
				if finish(ctx, coder, got) != nil {
					return
				}
				l.note(func() { l.ended[got.ID] = true })
			}
		})
	}
}

func finish(ctx context.Context, coder *hubproc.Client, got task) error {
	return coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+got.ID+"/result", object{"state": "completed"}, nil, "X-Claim", got.ClaimID)
}

// The whole way: a backup from another process while callers and workers are busy, a
// hub that is lost later, and another one that goes on from the backup.
func TestBackupAndRestore(t *testing.T) {
	h := hubproc.Start(t, hubproc.Options{})
	caller, coder := h.Agent("caller"), h.Agent("coder")
	ctx := within(t, 2*time.Minute)
	l := &ledger{sent: map[string]string{}, ended: map[string]bool{}, held: map[string]task{}}
	var busy sync.WaitGroup
	l.load(ctx, &busy, caller, coder)
	enough := func(sent, ended int) func() bool {
		return func() bool {
			s, e := l.snapshot()
			return len(s) >= sent && len(e) >= ended
		}
	}
	eventually(t, time.Minute, "tasks are sent and done", enough(300, 30))
	sent, ended := l.snapshot()

	file := filepath.Join(t.TempDir(), "hub.db")
	var backup struct {
		Tasks, Unfinished int64
		KeyID             string `json:"key_id"`
	}
	command(t, &backup, "backup", "--data", h.Dir, "--to", file)
	eventually(t, time.Minute, "the hub goes on", enough(int(backup.Tasks)+50, len(ended)+50))
	h.Kill()
	busy.Wait()
	if n := int64(len(sent)); backup.Tasks < n || backup.KeyID == "" {
		t.Errorf("the backup says %+v, and %d tasks were acknowledged before", backup, n)
	}

	dir := filepath.Join(t.TempDir(), "data")
	var restored struct {
		Tasks     int64
		TakenBack int  `json:"taken_back"`
		InPlace   bool `json:"key_in_place"`
	}
	must(t, os.Mkdir(dir, 0o700))
	key, err := os.ReadFile(filepath.Join(h.Dir, "master.key"))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "master.key"), key, 0o600))
	command(t, &restored, "restore", "--from", file, "--data", dir)
	if restored.Tasks != backup.Tasks || restored.TakenBack == 0 || !restored.InPlace {
		t.Errorf("the restore says %+v, the backup had %d tasks", restored, backup.Tasks)
	}
	goOn(ctx, t, l, sent, ended, hubproc.Start(t, hubproc.Options{Dir: dir}), caller.Token, coder.Token)
}

// goOn checks what a restored hub knows, and works all of it off. sent and ended are what
// was known before the backup.
func goOn(ctx context.Context, t *testing.T, l *ledger, sent map[string]string, ended map[string]bool, h *hubproc.Hub, callerToken, coderToken string) {
	t.Helper()
	caller, coder := h.Client(callerToken), h.Client(coderToken)
	for key, id := range sent {
		got := readTask(ctx, t, caller, "/v1/agents/coder/tasks/"+id)
		if ended[id] && got.State != "completed" {
			t.Errorf("task %s was completed before the backup and is %s", id, got.State)
		}
		var again task
		must(t, caller.Call(ctx, "POST", "/v1/agents/coder/tasks", send(key), &again, "Idempotency-Key", key))
		if again.ID != id {
			t.Errorf("key %s gives task %s, and before the backup %s", key, again.ID, id)
		}
	}
	fresh := map[string]task{}
	for {
		var got task
		must(t, coder.Call(ctx, "GET", "/v1/agents/me/tasks/next", nil, &got))
		if got.ID == "" {
			break
		}
		if _, twice := fresh[got.ID]; twice || ended[got.ID] {
			t.Fatalf("task %s is handed out again", got.ID)
		}
		fresh[got.ID] = got
	}
	refused := 0
	for id, claim := range fresh {
		if old, ok := l.held[id]; ok { // a worker of the lost hub is still at it
			refused++
			for _, x := range []string{old.ClaimID, ""} {
				header := []string{"X-Claim", x}
				if x == "" {
					header = nil
				}
				a, err := coder.Do(ctx, "POST", "/v1/agents/me/tasks/"+id+"/result", object{"state": "completed"}, header...)
				must(t, err)
				if a.Status != 409 {
					t.Errorf("a report of the lost hub's claim %q is answered %d %s", x, a.Status, a.Body)
				}
			}
		}
		must(t, finish(ctx, coder, claim))
	}
	if refused == 0 {
		t.Error("no task was held when the hub was lost")
	}
	for _, id := range sent {
		if got := readTask(ctx, t, caller, "/v1/agents/coder/tasks/"+id); got.State != "completed" || got.Failures != 0 {
			t.Errorf("in the end task %s is %+v", id, got)
		}
	}
}
