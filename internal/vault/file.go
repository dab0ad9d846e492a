package vault

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// FileName is the master key's in a data directory.
const FileName = "master.key"

// maxKey bounds a key file, in bytes. A key of one's own has about 130.
const maxKey = 64 << 10

// readFile reads a key file. fs.ErrNotExist if there is none.
func readFile(path string) (*masterKey, error) {
	// Of a pipe, to be refused below, an open that waits would wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("read the master key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read the master key: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, hub.Errorf(hub.Invalid, "the master key %s is no file", path)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, hub.Errorf(hub.Invalid, "the master key file %s may be read or changed by others (mode %04o); if nobody has, run: chmod 600 %s; else replace the key afterwards with: holdfast keys rotate", path, mode, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKey))
	if err != nil {
		return nil, fmt.Errorf("read the master key: %w", err)
	}
	k, err := parseKey(string(text))
	if err != nil {
		return nil, hub.Errorf(hub.Invalid, "the master key file %s cannot be used: %v", path, err)
	}
	return k, nil
}

// writeFile puts a key into a file, in the place of what was there: after a crash the
// file has the one or the other, and it is never for anybody but its owner.
func writeFile(path string, k *masterKey) (err error) {
	// A link stays, and what it points to changes.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	defer func() {
		if err != nil {
			err = hub.Wrap(hub.Unavailable, err, "the master key file %s cannot be written; check that the hub's user may write to its directory, and that there is room", path)
		}
	}()
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) { // of a crash
		return err
	}
	if err := writeSynced(fresh, k.text+"\n"); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	if err := os.Rename(fresh, path); err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return syncDir(filepath.Dir(path))
}

func writeSynced(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
