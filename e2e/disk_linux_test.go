package e2e

import (
	"fmt"
	"os"
	"path/filepath"
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
