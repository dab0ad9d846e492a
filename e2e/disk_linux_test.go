package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// disk mounts a small disk of its own.
func disk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a disk to fill; run the tests as root to see this one")
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("a disk to fill cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// On a full disk a send is refused and leaves nothing behind, reads go on, and once
// there is room everything goes on by itself.
func TestDiskFull(t *testing.T) {
	mount := disk(t, "24m")
	ballast := filepath.Join(mount, "ballast")
	must(t, os.WriteFile(ballast, make([]byte, 8<<20), 0o600))
	h := hubproc.Start(t, hubproc.Options{Dir: filepath.Join(mount, "data")})
	caller := h.Agent("caller")
	coder := h.Agent("coder")
	ctx := within(t, 2*time.Minute)
	const path = "/v1/agents/coder/tasks"
	must(t, caller.Call(ctx, "POST", path, send("to be held through it all"), nil))
	var held task
	must(t, coder.Call(ctx, "GET", "/v1/agents/me/tasks/next?lease=2", nil, &held))
	body := func(n int) object { return send(fmt.Sprintf("%d %s", n, strings.Repeat("x", 64<<10))) }

	var acked []string
	n := 0
	for ; ; n++ {
		a, err := caller.Do(ctx, "POST", path, body(n), "Idempotency-Key", fmt.Sprint(n))
		must(t, err)
		if !a.OK() {
			if a.Status != 503 || a.Code() != "unavailable" {
				t.Errorf("a send to a full disk is answered %d %s, want 503 unavailable", a.Status, a.Body)
			}
			break
		}
		acked = append(acked, taskIn(t, a).ID)
	}
	if len(acked) < 10 {
		t.Fatalf("the disk was full after %d tasks", len(acked))
	}
	must(t, caller.Call(ctx, "GET", path+"/"+acked[0], nil, nil))

	eventually(t, soon, "the hub is not ready while its disk is full", func() bool {
		a, err := caller.Do(ctx, "GET", "/readyz", nil)
		return err == nil && a.Status == 503
	})
	full := time.Now()
	eventually(t, soon, "the lease of the held task has long run out", func() bool {
		a, err := caller.Do(ctx, "GET", "/readyz", nil)
		if err != nil || a.Status != 503 {
			t.Fatalf("the disk is still full, and /readyz says %d %s, %v", a.Status, a.Body, err)
		}
		return time.Since(full) > 5*time.Second
	})

	must(t, os.Remove(ballast))
	eventually(t, soon, "the refused send goes through once there is room", func() bool {
		a, err := caller.Do(ctx, "POST", path, body(n), "Idempotency-Key", fmt.Sprint(n))
		return err == nil && a.OK()
	})
	eventually(t, soon, "the hub is ready once there is room", func() bool {
		a, err := caller.Do(ctx, "GET", "/readyz", nil)
		return err == nil && a.OK()
	})
	// Its holder could not renew the lease while the disk was full; it gets the time to.
	var after struct {
		State    string
		Failures int
	}
	must(t, coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+held.ID+"/result", object{"state": "completed"}, &after, "X-Claim", held.ClaimID))
	if after.State != "completed" || after.Failures != 0 {
		t.Errorf("the task that was held ended as %s with %d failures, want completed with none", after.State, after.Failures)
	}
	h.Kill()
	h.Start()
	for _, id := range acked {
		must(t, caller.Call(ctx, "GET", path+"/"+id, nil, nil))
	}
	if got, want := countTasks(t, caller, path), len(acked)+2; got != want {
		t.Errorf("there are %d tasks, want %d: each acknowledged one, the held one and, once, the one that was refused first", got, want)
	}
}

// A data directory that cannot be written to is said so at the start.
func TestReadOnlyDisk(t *testing.T) {
	mount := disk(t, "24m")
	h := hubproc.Start(t, hubproc.Options{Dir: filepath.Join(mount, "data")})
	if _, err := h.Terminate(soon); err != nil {
		t.Fatalf("the hub did not end well: %v", err)
	}
	must(t, unix.Mount("none", mount, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	h.Launch()
	if err := h.Wait(soon); err == nil || !strings.Contains(h.Log(), "cannot be written to") {
		t.Errorf("the hub on a read-only disk ended with %v and said:\n%s", err, h.Log())
	}
}

// A disk that turns read-only under a running hub, as one with errors does, costs
// nothing that was acknowledged: what would write is refused, reads go on, and when it
// takes writes again everything goes on by itself.
func TestDiskTurnsReadOnly(t *testing.T) {
	h := hubproc.Start(t, hubproc.Options{})
	caller, coder := h.Agent("caller"), h.Agent("coder")
	ctx := within(t, 2*time.Minute)
	const path = "/v1/agents/coder/tasks"
	const next = "/v1/agents/me/tasks/next?lease=2"
	for i := range 5 {
		must(t, caller.Call(ctx, "POST", path, send(strconv.Itoa(i)), nil))
	}
	var held task
	must(t, coder.Call(ctx, "GET", next, nil, &held))
	own := "/v1/agents/me/tasks/" + held.ID

	writable := readOnly(t, h)
	refused := []struct {
		what string
		do   func() (hubproc.Answer, error)
	}{
		{"a send", func() (hubproc.Answer, error) {
			return caller.Do(ctx, "POST", path, send("late"), "Idempotency-Key", "late")
		}},
		{"a claim", func() (hubproc.Answer, error) { return coder.Do(ctx, "GET", next, nil) }},
		{"a heartbeat", func() (hubproc.Answer, error) {
			return coder.Do(ctx, "POST", own+"/heartbeat", nil, "X-Claim", held.ClaimID)
		}},
		{"a result", func() (hubproc.Answer, error) {
			return coder.Do(ctx, "POST", own+"/result", object{"state": "completed"}, "X-Claim", held.ClaimID)
		}},
		{"a cancel", func() (hubproc.Answer, error) {
			return caller.Do(ctx, "POST", path+"/"+held.ID+"/cancel", nil)
		}},
	}
	since := time.Now()
	eventually(t, soon, "the lease of the held task has long run out", func() bool {
		for _, r := range refused {
			a, err := r.do()
			must(t, err)
			if a.Status != 503 || a.Code() != "unavailable" || !strings.Contains(string(a.Body), "nothing was changed") {
				t.Fatalf("%s on a read-only disk is answered %d %s, want 503 unavailable", r.what, a.Status, a.Body)
			}
		}
		if a, err := caller.Do(ctx, "GET", "/readyz", nil); err != nil || a.Status != 503 {
			t.Fatalf("/readyz on a read-only disk is answered %d %s, %v", a.Status, a.Body, err)
		}
		if got := readTask(ctx, t, caller, path+"/"+held.ID); got.State != "working" || got.Attempt != 1 {
			t.Fatalf("the held task reads as %+v", got)
		}
		return time.Since(since) > 4*time.Second
	})

	writable()
	eventually(t, soon, "the hub is ready once the disk takes writes again", func() bool {
		a, err := caller.Do(ctx, "GET", "/readyz", nil)
		return err == nil && a.OK()
	})
	// Its holder could not renew the lease meanwhile; it gets the time to.
	var after task
	must(t, coder.Call(ctx, "POST", own+"/result", object{"state": "completed"}, &after, "X-Claim", held.ClaimID))
	if after.State != "completed" || after.Failures != 0 {
		t.Errorf("the task that was held ended as %s with %d failures, want completed with none", after.State, after.Failures)
	}
	must(t, caller.Call(ctx, "POST", path, send("late"), nil, "Idempotency-Key", "late"))
	h.Kill()
	h.Start()
	if got := readTask(ctx, t, caller, path+"/"+held.ID); got.State != "completed" {
		t.Errorf("after a crash the task that was held is %s", got.State)
	}
	if got := countTasks(t, caller, path); got != 6 {
		t.Errorf("there are %d tasks, want 6: each acknowledged one and, once, the one that was refused first", got)
	}
}

func readTask(ctx context.Context, t *testing.T, c *hubproc.Client, path string) (got task) {
	t.Helper()
	must(t, c.Call(ctx, "GET", path, nil, &got))
	return got
}

// readOnly lets every write of the hub to its disk fail as on one that is read-only,
// until it is told that the disk takes writes again. A file system that is in use for
// writing cannot really be made so, so strace changes what the kernel answers.
func readOnly(t *testing.T, h *hubproc.Hub) (writable func()) {
	t.Helper()
	cmd := exec.Command(strace(t), "-f", "-p", strconv.Itoa(h.PID()), "-e", "trace=pwrite64,fsync,fdatasync,ftruncate",
		"-e", "inject=pwrite64,fsync,fdatasync,ftruncate:error=EROFS", "-o", os.DevNull)
	said, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	writable = func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Signal(os.Interrupt) // it lets go of the hub, which runs on
			_ = cmd.Wait()
		}
	}
	t.Cleanup(writable)
	lines := bufio.NewScanner(said)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "attached") {
			go func() {
				for lines.Scan() { // so that it never waits for its reader
				}
			}()
			return writable
		}
		t.Logf("strace: %s", lines.Text())
	}
	t.Skip("strace may not attach to a process here; run the tests as root, with CAP_SYS_PTRACE, to see this one")
	return nil
}
