package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Restored is what Restore has done.
type Restored struct {
	Copy
	// TakenBack is how many claims were open at the time of the backup. Their tasks are
	// offered again, which counts as no failure of their callee.
	TakenBack int
}

// Verify checks a backup, or any copy of a database that no hub uses, and changes
// nothing. It reads all of it, and each index against its table. Errors are as Backup's.
func Verify(ctx context.Context, file string, opt CopyOptions) (out Copy, err error) {
	c, err := openSource(ctx, file)
	if err != nil {
		return Copy{}, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	opt.progress("check", 0, 0)
	if err := check(c, "integrity_check", "the database in "+file+" is damaged; nothing was changed. Use another backup"); err != nil {
		return Copy{}, err
	}
	if out, err = describe(c); err != nil {
		return Copy{}, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return Copy{}, err
	}
	out.Bytes = info.Size()
	return out, nil
}

// workDir is where a restore is prepared, in the data directory.
const workDir = "restore.partial"

// Restore makes the database of a data directory from a backup, or from any copy of a
// database. The directory is made if it does not exist; what holds data or is in use is
// refused (Exists). The copy is verified first, prepared apart, and given its name last,
// so that a hub never starts on half of it.
//
// What the hub did after the backup is forgotten, but others may remember it. So a
// restored database is not quite the one that was copied: see fence.
func Restore(ctx context.Context, file, dir string, opt CopyOptions) (out Restored, err error) {
	if out.Copy, err = Verify(ctx, file, opt); err != nil {
		return out, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return out, hub.Wrap(hub.Unavailable, err, "the data directory %s cannot be made", dir)
	}
	lock, err := lockDir(ctx, dir)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := mustHoldNoData(dir); err != nil {
		return out, err
	}
	work := filepath.Join(dir, workDir)
	if err := errors.Join(os.RemoveAll(work), os.Mkdir(work, 0o700)); err != nil {
		return out, fmt.Errorf("prepare the data directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	fresh := filepath.Join(work, FileName)
	if err := unpack(ctx, file, fresh, opt); err != nil {
		return out, err
	}
	opt.progress("prepare", 0, 0)
	if out.TakenBack, err = prepare(ctx, work, opt); err != nil {
		return out, err
	}
	return out, moveIn(fresh, filepath.Join(dir, FileName))
}

// mustHoldNoData refuses a directory that a hub has used.
func mustHoldNoData(dir string) error {
	for _, name := range []string{FileName, FileName + "-wal"} {
		_, err := os.Lstat(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return fmt.Errorf("look at the data directory: %w", err)
		default:
			return hub.Errorf(hub.Exists, "%s holds a hub's data already (%s), and a restore replaces nothing; choose another directory with --data, or move the files %s* away first", dir, name, FileName)
		}
	}
	return nil
}

// unpack makes of a backup a database that opens.
func unpack(ctx context.Context, file, to string, opt CopyOptions) (err error) {
	src, err := openSource(ctx, file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	part, err := createPartial(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, part.end()) }()
	if err := part.fill(ctx, src, opt); err != nil {
		return err
	}
	_, err = part.finish(ctx, opt, func(c *conn) error {
		_, err := c.exec("DELETE FROM meta WHERE key = ?", backupMark)
		return err
	})
	if err != nil {
		return err
	}
	return part.publish()
}

// prepare brings a restored database to this binary's schema, and fences it.
func prepare(ctx context.Context, dir string, opt CopyOptions) (takenBack int, err error) {
	s, err := Open(ctx, Options{Dir: dir, Now: opt.Now, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return write(ctx, s, (*tx).fence)
}

// fence sets a restored hub apart from all that was said in its name after the backup.
//
// Workers may hold claims that it does not know, with the numbers that it would give out
// next, to others. So every unfinished task counts its claims on from a number that has
// the time of the restore in its upper bits (hub.AfterRestore): no claim from before,
// nor from an earlier restore of the same backup, is ever taken for one from after. None
// of them may report, not even without naming its claim. What was held at the time of
// the backup is taken back, for its holder may be long gone.
//
// Readers of the activity may have cursors behind the newest line. The numbers of lines
// go on from the same time, so that such a reader gets what happens from now on.
//
// Ids of push-notification failures go on from there too. All else needs nothing:
// idempotency keys of after the backup are forgotten with their tasks, and count again
// when they are sent again; loans of push-notification configurations end at each start
// of a hub; ids of tasks, addresses and tokens are random.
func (t *tx) fence() (takenBack int, err error) {
	line := hub.AfterRestore(0, t.now, int(t.s.lastLine))
	t.s.lastLine = int64(line)
	if _, err := t.exec("UPDATE meta SET value = ? WHERE key = 'activity_pruned'", strconv.Itoa(line)); err != nil {
		return 0, err
	}
	if takenBack, err = t.takeAllBack(); err != nil {
		return 0, err
	}
	if _, err := t.exec("UPDATE queue SET attempt = (attempt & ?) | ?, lapsed = 1", maxNumber, line); err != nil {
		return 0, err
	}
	if _, err := t.exec("DELETE FROM sqlite_sequence WHERE name = 'push_failure'"); err != nil {
		return 0, err
	}
	_, err = t.exec("INSERT INTO sqlite_sequence (name, seq) VALUES ('push_failure', ?)", line)
	return takenBack, err
}

// takePage is how many held tasks are in memory at a time.
const takePage = 500

// takeAllBack takes every task from its holder.
func (t *tx) takeAllBack() (n int, err error) {
	for {
		page, err := t.heads("SELECT "+headColumns+"FROM queue q JOIN task t ON t.n = q.task WHERE q.phase = ? LIMIT ?", hub.Leased, takePage)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for _, h := range page {
			if err := t.takeBack(h, "taken from its holder, since the hub was restored from a backup"); err != nil {
				return n, err
			}
		}
		n += len(page)
	}
}

// moveIn gives a restored database its name. Restored by root, it belongs to whoever
// the data directory belongs to, or the hub could not open it.
func moveIn(from, to string) error {
	f, err := os.OpenFile(from, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("sync the database: %w", err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("sync the database: %w", err)
	}
	if _, err := os.Lstat(from + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(errors.New("the restored database is not in one file"), err)
	}
	dir := filepath.Dir(to)
	if err := giveTo(dir, from, filepath.Join(dir, LockFileName)); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("name the database: %w", err)
	}
	return syncDir(dir)
}

// giveTo makes files belong to the owner of a directory, if this is root.
func giveTo(dir string, files ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	for _, file := range files {
		if err := os.Lchown(file, int(owner.Uid), int(owner.Gid)); err != nil {
			return fmt.Errorf("give the restored files to the owner of their directory: %w", err)
		}
	}
	return nil
}
