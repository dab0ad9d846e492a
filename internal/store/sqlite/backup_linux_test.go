package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// A disk that is too small is not filled, for the hub may need what is left of it; one
// that fills up meanwhile is said so. Both times nothing stays.
func TestABackupToAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may mount a disk to fill; run the tests as root to see this one")
	}
	disk := t.TempDir()
	if err := unix.Mount("none", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("a disk to fill cannot be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	src := newSender(t, openTemp(t))
	src.text = strings.Repeat("x", 50_000)
	send := func(n int) {
		for range n {
			if _, err := src.send(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill := func(string, int64, int64) {
		f, err := os.OpenFile(filepath.Join(disk, "ballast"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Errorf("filling the disk ended with %v", err)
		}
		_ = f.Close()
	}
	try := func(opt CopyOptions, says string) {
		t.Helper()
		_, err := Backup(t.Context(), src.opt.Dir, filepath.Join(disk, "backup.db"), opt)
		if hub.KindOf(err) != hub.Unavailable || !strings.Contains(err.Error(), says) {
			t.Errorf("it gave %v, want %q", err, says)
		}
		list, err := filepath.Glob(filepath.Join(disk, "backup*"))
		if err != nil || len(list) > 0 {
			t.Errorf("it left %v (%v)", list, err)
		}
	}
	send(100) // 5 MB
	try(CopyOptions{Progress: fill}, "is full; nothing of it was kept")
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	if _, err := Backup(t.Context(), src.opt.Dir, filepath.Join(disk, "fits"), CopyOptions{}); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	send(100)
	try(CopyOptions{}, "there is no room")
	send(1) // the hub has not noticed
}
