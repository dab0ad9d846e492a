//go:build unix

package vault

import (
	"path/filepath"
	"syscall"
	"testing"
)

func TestAPipeIsNoKeyFileAndIsNotWaitedFor(t *testing.T) {
	b := newBed(t)
	b.o.Make, b.o.File = false, filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(b.o.File, 0o600); err != nil {
		t.Fatal(err)
	}
	b.refused(b.o.File, "is no file")
}
