package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	zombie "zombiezen.com/go/sqlite"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// CopyOptions say how a database is copied or checked.
type CopyOptions struct {
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// Progress, if not nil, is called now and then: which step is under way, and how many
	// bytes of how many are done. A step that cannot tell has zeros.
	Progress func(step string, done, total int64)
}

func (o CopyOptions) progress(step string, done, total int64) {
	if o.Progress != nil {
		o.Progress(step, done, total)
	}
}

func (o CopyOptions) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

// Copy describes a copy of a database.
type Copy struct {
	// Taken is when a backup was taken: what was committed before is in it. It is zero for
	// a copy that Backup has not made.
	Taken time.Time
	// Bytes is the size of the file.
	Bytes int64
	// Schema is the newest migration that the copy has seen.
	Schema int
	// Tasks is how many tasks there are, Unfinished how many of them have not ended.
	Tasks, Unfinished int64
}

// backupMark is the key in meta that only a backup has, with the time it was taken, in
// milliseconds. The store does not open such a database: see Restore.
const backupMark = "backup_at"

const (
	// copyPages is how many pages are copied at a time: a megabyte, so that whoever
	// interrupts does not wait, and progress shows.
	copyPages = 256
	// copySync is after how many bytes the copy is synced. The hub's own syncs, on the
	// same disk, would have to wait for all that has piled up.
	copySync = 16 << 20
)

// Backup copies the database of a data directory, whether a hub uses it or not, into a
// new file that nobody but its owner may read. It checks the copy, and when it returns
// without an error the file is on disk; before that there is no such file, only one
// whose name ends with ".partial".
//
// It copies the pages of one read snapshot. WAL keeps that from holding up the writer;
// the hub's log cannot be emptied meanwhile, and grows. VACUUM INTO would give a file
// without free pages, for several times the work.
//
// Errors are of kind Exists when there is such a file already, NotFound when there is no
// database, Unavailable when there is no room, and Invalid when the database is not
// Holdfast's or too new.
func Backup(ctx context.Context, dir, to string, opt CopyOptions) (_ Copy, err error) {
	if err := mustBeNew(to); err != nil {
		return Copy{}, err
	}
	src, err := openSource(ctx, filepath.Join(dir, FileName))
	if err != nil {
		return Copy{}, err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	part, err := createPartial(to)
	if err != nil {
		return Copy{}, err
	}
	defer func() { err = errors.Join(err, part.end()) }()
	taken := opt.now()
	if err := part.fill(ctx, src, opt); err != nil {
		return Copy{}, err
	}
	done, err := part.finish(ctx, opt, func(c *conn) error {
		_, err := c.exec("INSERT OR REPLACE INTO meta VALUES (?, ?)", backupMark, strconv.FormatInt(taken.UnixMilli(), 10))
		return err
	})
	if err != nil {
		return Copy{}, err
	}
	return done, part.publish()
}

func mustBeNew(path string) error {
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the file to write: %w", err)
	}
	return hub.Errorf(hub.Exists, "%s exists already, and backups replace nothing; choose another name, such as one with the date", path)
}

// openSource opens a database of Holdfast's to be read, and changes nothing about it.
func openSource(ctx context.Context, path string) (*conn, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, hub.Wrap(hub.NotFound, err, "there is no database %s that can be read", path)
	}
	c, err := openFile(ctx, path, zombie.OpenReadOnly, "query_only = 1", "cache_size = -2000")
	if err == nil {
		if err = ours(c, path); err == nil {
			return c, nil
		}
		err = errors.Join(err, c.close())
	}
	var refused *hub.Error
	if errors.As(err, &refused) || ctx.Err() != nil {
		return nil, err
	}
	return nil, hub.Wrap(hub.Unavailable, err, "the database %s cannot be read; check that it is a SQLite file and whole, and that you may write to its directory, which SQLite needs while it reads", path)
}

// openFile opens a database for one job, which ends with ctx.
func openFile(ctx context.Context, path string, flag zombie.OpenFlags, pragmas ...string) (*conn, error) {
	zc, err := zombie.OpenConn(path, flag)
	if err != nil {
		return nil, err
	}
	zc.SetInterrupt(ctx.Done())
	zc.SetBusyTimeout(busyTimeout)
	c := &conn{c: zc, stmts: make(map[string]*stmt)}
	for _, pragma := range append([]string{"trusted_schema = OFF", "temp_store = MEMORY"}, pragmas...) {
		if _, err := c.exec("PRAGMA " + pragma); err != nil {
			return nil, errors.Join(fmt.Errorf("PRAGMA %s: %w", pragma, err), c.close())
		}
	}
	return c, nil
}

// ours refuses a database that is not Holdfast's, or too new for this binary.
func ours(c *conn, path string) error {
	r, err := c.one("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'")
	if err != nil {
		return err
	}
	if r == nil {
		return notOurs(path, nil)
	}
	r, err = c.one("SELECT value FROM meta WHERE key = 'oldest_binary' AND EXISTS (SELECT 1 FROM meta WHERE key = 'application' AND value = 'holdfast')")
	if broken(err) {
		return err
	}
	if err != nil || r == nil {
		return notOurs(path, err)
	}
	oldest, err := strconv.Atoi(r.text(0))
	switch {
	case err != nil:
		return notOurs(path, err)
	case oldest > schemaVersion:
		return tooNew(path, oldest)
	}
	return nil
}

// describe says what a copy holds.
func describe(c *conn) (out Copy, err error) {
	r, err := c.one(`SELECT (SELECT coalesce(max(version_id), 0) FROM goose_db_version),
		(SELECT count(*) FROM task), (SELECT count(*) FROM queue), (SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?)`, backupMark)
	if err != nil {
		return out, fmt.Errorf("look at the copy: %w", err)
	}
	return Copy{Schema: int(r.int(0)), Tasks: r.int(1), Unfinished: r.int(2), Taken: r.time(3)}, nil
}

// check has SQLite look for damage, and says damaged if there is any. The quick one
// leaves out whether each index fits its table.
func check(c *conn, how, damaged string) error {
	var found string
	err := c.each("PRAGMA "+how+"(3)", nil, func(r row) (bool, error) {
		if r.text(0) != "ok" {
			found += "; " + strings.ReplaceAll(r.text(0), "\n", " ")
		}
		return true, nil
	})
	if err != nil && zombie.ErrCode(err).ToPrimary() != zombie.ResultCorrupt {
		return fmt.Errorf("check the copy: %w", err)
	}
	if err == nil && found == "" {
		return nil
	}
	return hub.Wrap(hub.Unavailable, errors.Join(err, errors.New(how+found)), "%s", damaged)
}

// partial is a copy that is being made, next to the place where it will be.
type partial struct {
	path string
	f    *os.File // holds its lock
	done bool
}

// createPartial begins a copy. What an earlier one left that was killed is overwritten.
func createPartial(to string) (*partial, error) {
	p := &partial{path: to}
	name := p.name()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, hub.Wrap(hub.Unavailable, err, "%s cannot be written; check that its directory exists and that you may write to it", name)
	}
	p.f = f
	if err := p.begin(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p, nil
}

func (p *partial) name() string { return p.path + ".partial" }

// begin takes the file for this process and empties it.
func (p *partial) begin() error {
	if err := unix.Flock(int(p.f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return hub.Wrap(hub.Exists, err, "another process is writing %s; let it finish", p.name())
	}
	// Whoever had the lock may have given the file its name, which is no longer ours.
	now, err := os.Lstat(p.name())
	if err != nil {
		return hub.Wrap(hub.Exists, err, "another process was writing %s; try again with another name", p.name())
	}
	mine, err := p.f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(now, mine) {
		return hub.Errorf(hub.Exists, "another process was writing %s; try again with another name", p.name())
	}
	return errors.Join(p.f.Chmod(0o600), p.f.Truncate(0))
}

// fill copies all pages of a database, as they are at one moment.
func (p *partial) fill(ctx context.Context, src *conn, opt CopyOptions) (err error) {
	size, err := snapshot(src)
	if err != nil {
		return fmt.Errorf("read the database: %w", err)
	}
	defer func() {
		_, end := src.exec("COMMIT")
		err = p.explain(errors.Join(err, end))
	}()
	if err := p.room(size); err != nil {
		return err
	}
	dst, err := openFile(ctx, p.name(), zombie.OpenReadWrite, "journal_mode = OFF", "synchronous = OFF", "cache_size = -2000")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.close()) }()
	b, err := zombie.NewBackup(dst.c, "", src.c, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for synced := int64(0); ; {
		more, err := b.Step(copyPages)
		if err != nil {
			return err
		}
		done := size - size*int64(b.Remaining())/max(1, int64(b.PageCount()))
		opt.progress("copy", done, size)
		if !more {
			return nil
		}
		if done-synced >= copySync {
			synced = done
			if err := p.f.Sync(); err != nil {
				return err
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// snapshot begins a read that sees the database as it is now, and gives its size.
func snapshot(c *conn) (bytes int64, err error) {
	if _, err := c.exec("BEGIN"); err != nil {
		return 0, err
	}
	pages, err := c.one("PRAGMA page_count")
	if err != nil {
		return 0, err
	}
	bytes = pages.int(0)
	size, err := c.one("PRAGMA page_size")
	if err != nil {
		return 0, err
	}
	return bytes * size.int(0), nil
}

// room refuses a copy that the disk has no room for, rather than fill it: the hub may
// need it.
func (p *partial) room(bytes int64) error {
	var disk unix.Statfs_t
	if err := unix.Fstatfs(int(p.f.Fd()), &disk); err != nil {
		return fmt.Errorf("look at the disk: %w", err)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < bytes+copyPages<<12 {
		return hub.Errorf(hub.Unavailable, "there is no room for %s: it needs %d MB and its disk has %d MB left; make room, or write to another disk", p.path, bytes>>20+1, free>>20)
	}
	return nil
}

// explain says in words that the disk is full.
func (p *partial) explain(err error) error {
	if err == nil || !errors.Is(err, unix.ENOSPC) && zombie.ErrCode(err).ToPrimary() != zombie.ResultFull {
		return err
	}
	return hub.Wrap(hub.Unavailable, err, "the disk of %s is full; nothing of it was kept. Make room, or write to another disk", p.path)
}

// finish makes the copy one file that needs no other beside it, with what f changes,
// checks it and syncs it.
func (p *partial) finish(ctx context.Context, opt CopyOptions, f func(*conn) error) (out Copy, err error) {
	// Exclusive, so that what WAL shares between processes is no file.
	c, err := openFile(ctx, p.name(), zombie.OpenReadWrite, "locking_mode = EXCLUSIVE", "synchronous = OFF", "secure_delete = ON", "journal_mode = DELETE")
	if err != nil {
		return out, p.explain(err)
	}
	defer func() {
		err = p.explain(errors.Join(err, c.close()))
		if err == nil {
			err = p.sync(&out)
		}
	}()
	if err := f(c); err != nil {
		return out, err
	}
	opt.progress("check", 0, 0)
	if err := check(c, "quick_check", "the copy is damaged, so the database is, or the disk of "+p.path+"; nothing was kept. Keep all earlier backups, try another disk, and see docs/run-a-hub.md"); err != nil {
		return out, err
	}
	return describe(c)
}

func (p *partial) sync(out *Copy) error {
	info, err := p.f.Stat()
	if err != nil {
		return err
	}
	out.Bytes = info.Size()
	return p.f.Sync()
}

// publish gives the copy its name.
func (p *partial) publish() error {
	if err := mustBeNew(p.path); err != nil {
		return err
	}
	if err := os.Rename(p.name(), p.path); err != nil {
		return fmt.Errorf("name the copy: %w", err)
	}
	p.done = true
	return syncDir(filepath.Dir(p.path))
}

// end removes a copy that was not published.
func (p *partial) end() error {
	var errs []error
	if !p.done {
		for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
			if err := os.Remove(p.name() + suffix); !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(append(errs, p.f.Close())...)
}

// syncDir makes the names in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// SecretIn reads a named secret, as the vault sealed it, from the database in a file.
// It is a hub.Error of kind NotFound if there is none.
func SecretIn(ctx context.Context, file, name string) (sealed []byte, err error) {
	c, err := openSource(ctx, file)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	r, err := c.one("SELECT 1 FROM sqlite_schema WHERE name = 'secret'") // not in the first schema
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, hub.Errorf(hub.NotFound, "there is no such secret")
	}
	return secret(c, name)
}
