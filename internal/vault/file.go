package vault

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
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
	if errors.Is(err, fs.ErrPermission) {
		return nil, denied(path)
	}
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
		return nil, hub.Errorf(hub.Invalid, "the master key file %s may be read or changed by others (mode %04o); if nobody has, run: chmod 600 %s; else replace the key afterwards with: holdfast keys rotate. Where a platform mounts it as a secret, set its mode there (Docker Swarm: mode: 0400, Kubernetes: defaultMode: 0400)", path, mode, path)
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

// denied says why a key file cannot be read, and who can change that.
func denied(path string) error {
	me := userName(os.Geteuid())
	uid, _, ok := ownerOf(path)
	if !ok {
		return hub.Errorf(hub.Invalid, "the user %s may not look into the directory of the master key file %s: as root, give that directory to the user that the hub runs as", me, path)
	}
	return hub.Errorf(hub.Invalid, "the master key file %s belongs to the user %s, and %s may not read it; if the hub is to run as %s, run as root: chown %s %s", path, userName(uid), me, me, me, path)
}

// ownerOf tells whose a file or directory is.
func ownerOf(path string) (uid, gid int, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, 0, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, false
	}
	return int(s.Uid), int(s.Gid), true
}

// userName is what chown takes for a user.
func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// writeFile puts a key into a file, in the place of what was there: after a crash the
// file has the one or the other, and it is never for anybody but its owner. Written by
// root, it belongs to whoever the file before it or else the directory belongs to, or
// the hub could not read it.
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
	if err := errors.Join(writeSynced(fresh, k.text+"\n"), giveAsBefore(fresh, path)); err != nil {
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

// giveAsBefore has a new file belong to the owner of the one that it replaces, or of the
// directory if there is none; only root can.
func giveAsBefore(fresh, old string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, ok := ownerOf(old)
	if !ok {
		uid, gid, ok = ownerOf(filepath.Dir(old))
	}
	if !ok {
		return nil
	}
	return os.Lchown(fresh, uid, gid)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
