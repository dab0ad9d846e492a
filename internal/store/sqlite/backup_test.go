package sqlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	zombie "zombiezen.com/go/sqlite"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// sender sends tasks from one address of a store to another.
type sender struct {
	*Store
	text string
	n    atomic.Int64
}

func newSender(t testing.TB, s *Store) *sender {
	t.Helper()
	for _, h := range []string{"you", "dev"} {
		if err := s.CreateAddress(t.Context(), address(h)); err != nil {
			t.Fatal(err)
		}
	}
	return &sender{Store: s, text: "hello"}
}

// send sends a task with an idempotency key, and gives its id when that is durable.
func (s *sender) send(ctx context.Context) (string, error) {
	return s.sendKeyed(ctx, s.n.Add(1))
}

func (s *sender) sendKeyed(ctx context.Context, n int64) (string, error) {
	in := hub.Send{
		TaskID: fmt.Sprintf("task-%d", s.n.Add(1)), ContextID: "c", Caller: "id-you", Callee: "id-dev",
		Message: canon.TextMessage("m", false, s.text), Limits: hub.DefaultLimits(), Key: &hub.Key{},
	}
	in.Limits.OpenTasks = 0
	binary.BigEndian.PutUint64(in.Key.Hash[:], uint64(n))
	sent, err := s.Send(ctx, in)
	if err != nil {
		return "", err
	}
	return sent.Task.ID, nil
}

func (s *sender) claim(t testing.TB) *hub.Task {
	t.Helper()
	c, err := s.Claim(t.Context(), "id-dev", hub.ClaimSpec{Lease: time.Hour, Attempts: 5})
	if err != nil || c.Task == nil {
		t.Fatalf("claiming gave %v, %v", c.Task, err)
	}
	return c.Task
}

func (s *sender) report(t testing.TB, task string, attempt int, state hub.State) error {
	t.Helper()
	_, err := s.Report(t.Context(), hub.Report{Callee: "id-dev", Task: task, Attempt: attempt, State: state, Limits: hub.DefaultLimits(), Digest: [32]byte{byte(attempt), byte(state)}})
	return err
}

func (s *sender) task(t testing.TB, id string) (*hub.Task, error) {
	t.Helper()
	return s.Task(t.Context(), hub.TaskRef{ID: id}, hub.Viewer{All: true}, hub.Load{History: -1})
}

// restored takes a backup of a data directory, restores it elsewhere and opens that.
func restored(t testing.TB, dir string) (*sender, Restored) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backup.db")
	if _, err := Backup(t.Context(), dir, file, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	return restore(t, file)
}

func restore(t testing.TB, file string) (*sender, Restored) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	out, err := Restore(t.Context(), file, dir, CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	x := &sender{Store: s}
	x.n.Store(1_000_000)
	return x, out
}

func TestABackupUnderLoadHasAllThatWasAcknowledgedBefore(t *testing.T) {
	src := newSender(t, openTemp(t))
	src.text = strings.Repeat("hello ", 500) // so that the copy takes several steps
	var acked []string
	for range 500 {
		id, err := src.send(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		acked = append(acked, id)
	}
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var during atomic.Int64
	for range 8 {
		load.Go(func() {
			for ctx.Err() == nil {
				if _, err := src.send(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
					return
				}
				during.Add(1)
			}
		})
	}
	steps, before := 0, int64(0)
	file := filepath.Join(t.TempDir(), "backup.db")
	done, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{Progress: func(step string, _, _ int64) {
		if step != "copy" {
			return
		}
		// The load has to go on while the copy is made, and the copy has to end all the same.
		if steps++; steps == 1 {
			before = during.Load()
		} else if steps > 100 {
			stop()
		}
		for n := during.Load() + 20; during.Load() < n && ctx.Err() == nil && !t.Failed(); {
			_, _ = src.Address(ctx, "dev")
		}
	}})
	stop()
	load.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if steps < 2 || steps > 100 {
		t.Fatalf("the copy was made in %d steps", steps)
	}
	// The senders may each have had one that was committed and not yet counted.
	if first, last := int64(len(acked)), int64(len(acked))+before+8; done.Tasks < first || done.Tasks > last {
		t.Errorf("the backup has %d tasks, want between %d and %d: none that came while it was made", done.Tasks, first, last)
	}
	verified, err := Verify(t.Context(), file, CopyOptions{})
	if err != nil || verified != done {
		t.Errorf("the file has %+v (%v), but Backup said %+v", verified, err, done)
	}
	got, _ := restore(t, file)
	for _, id := range acked {
		if _, err := got.task(t, id); err != nil {
			t.Fatalf("%s was acknowledged before: %v", id, err)
		}
	}
	if id, err := got.sendKeyed(t.Context(), 1); err != nil || id != acked[0] {
		t.Errorf("the key of the first send gives %s (%v), want %s again", id, err, acked[0])
	}
	if id, err := got.send(t.Context()); err != nil || slices.Contains(acked, id) {
		t.Errorf("a new send gave %s, %v", id, err)
	}
	if err := got.report(t, got.claim(t).ID, 0, hub.Completed); err == nil {
		t.Error("a report that does not name its claim was taken, though others may hold one of the same task")
	}
}

func TestABackupIsOneFileForItsOwnerAlone(t *testing.T) {
	src := newSender(t, openTemp(t))
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.db")
	// What a backup leaves that was killed is overwritten, whoever may read it.
	if err := os.WriteFile(file+".partial", []byte(strings.Repeat("half of an older one", 9_999)), 0o644); err != nil {
		t.Fatal(err)
	}
	done, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 || list[0].Name() != "backup.db" {
		t.Errorf("the directory has %v, want the backup alone (%v)", list, err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode() != 0o600 || info.Size() != done.Bytes {
		t.Errorf("the backup is %v (%v), want mode 0600 and %d bytes", info, err, done.Bytes)
	}
	head, err := os.ReadFile(file)
	if err != nil || head[18] != 1 || head[19] != 1 {
		t.Errorf("the header says that the file needs a log beside it: %v, %v", head[18:20], err)
	}
	if _, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{}); hub.KindOf(err) != hub.Exists {
		t.Errorf("a second backup to the same file gave %v", err)
	}
	if again, err := os.ReadFile(file); err != nil || string(again) != string(head) {
		t.Errorf("the first backup was changed (%v)", err)
	}
}

func TestABackupThatFailsLeavesNothing(t *testing.T) {
	src := newSender(t, openTemp(t))
	left := func(dir string) (names []string) {
		list, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			names = append(names, e.Name())
		}
		return names
	}
	t.Run("interrupted", func(t *testing.T) {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Backup(ctx, src.opt.Dir, filepath.Join(dir, "b"), CopyOptions{Progress: func(string, int64, int64) { cancel() }})
		if err == nil {
			t.Error("it went through")
		}
		if names := left(dir); len(names) > 0 {
			t.Errorf("it left %v", names)
		}
	})
	t.Run("of nothing", func(t *testing.T) {
		dir, empty := t.TempDir(), t.TempDir()
		if _, err := Backup(t.Context(), empty, filepath.Join(dir, "b"), CopyOptions{}); hub.KindOf(err) != hub.NotFound {
			t.Errorf("it gave %v", err)
		}
		if names := append(left(dir), left(empty)...); len(names) > 0 {
			t.Errorf("it left %v", names)
		}
	})
	t.Run("two at a time", func(t *testing.T) {
		dir := t.TempDir()
		file := filepath.Join(dir, "b")
		var second error
		_, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{Progress: func(step string, _, _ int64) {
			if step == "check" {
				_, second = Backup(t.Context(), src.opt.Dir, file, CopyOptions{})
			}
		}})
		if err != nil || hub.KindOf(second) != hub.Exists {
			t.Errorf("the first gave %v, the second %v", err, second)
		}
		if _, err := Verify(t.Context(), file, CopyOptions{}); err != nil {
			t.Error(err)
		}
	})
	t.Run("into no directory", func(t *testing.T) {
		_, err := Backup(t.Context(), src.opt.Dir, filepath.Join(t.TempDir(), "none", "b"), CopyOptions{})
		if hub.KindOf(err) != hub.Unavailable || !strings.Contains(err.Error(), "directory exists") {
			t.Errorf("it gave %v", err)
		}
	})
	t.Run("through a link", func(t *testing.T) {
		dir, victim := t.TempDir(), filepath.Join(t.TempDir(), "victim")
		if err := os.Symlink(victim, filepath.Join(dir, "b.partial")); err != nil {
			t.Fatal(err)
		}
		if _, err := Backup(t.Context(), src.opt.Dir, filepath.Join(dir, "b"), CopyOptions{}); err == nil {
			t.Error("it followed the link")
		}
		if _, err := os.Stat(victim); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what the link points to was made (%v)", err)
		}
	})
}

// A hub that was killed leaves its log, which has what the database has not.
func TestABackupOfAKilledHubHasItsLog(t *testing.T) {
	src := newSender(t, openTemp(t))
	id, err := src.send(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{FileName, FileName + "-wal"} { // as the disk has them now
		b, err := os.ReadFile(filepath.Join(src.opt.Dir, name))
		if err != nil || len(b) == 0 {
			t.Fatalf("%s has %d bytes (%v)", name, len(b), err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := restored(t, dir)
	if _, err := got.task(t, id); err != nil {
		t.Error(err)
	}
	whole, _ := restore(t, filepath.Join(dir, FileName)) // a plain copy does, too
	if _, err := whole.task(t, id); err != nil {
		t.Error(err)
	}
}

func TestDamageIsFound(t *testing.T) {
	src := newSender(t, openTemp(t))
	for range 2_000 {
		if _, err := src.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "backup.db")
	if _, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damage := map[string]func(b []byte) []byte{
		"cut short":   func(b []byte) []byte { return b[:len(b)/2] },
		"a page lost": func(b []byte) []byte { clear(b[40*4096 : 41*4096]); return b },
		"all noise":   func([]byte) []byte { return []byte(strings.Repeat("no database", 1_000)) },
		"empty":       func([]byte) []byte { return nil },
		"an index with other values": func(b []byte) []byte {
			path := filepath.Join(t.TempDir(), "x")
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := openFile(t.Context(), path, zombie.OpenReadWrite)
			if err != nil {
				t.Fatal(err)
			}
			for _, sql := range []string{
				"PRAGMA writable_schema = ON",
				"UPDATE sqlite_schema SET sql = 'CREATE INDEX task_context ON task(run)' WHERE name = 'task_context'",
				"PRAGMA schema_version = 9999", "REINDEX task_context",
				"UPDATE sqlite_schema SET sql = 'CREATE INDEX task_context ON task(context)' WHERE name = 'task_context'",
			} {
				if _, err := c.exec(sql); err != nil {
					t.Fatal(sql, err)
				}
			}
			if err := c.close(); err != nil {
				t.Fatal(err)
			}
			b, err = os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
	}
	for name, f := range damage {
		t.Run(name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad.db")
			if err := os.WriteFile(bad, f(slices.Clone(good)), 0o600); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "data")
			_, err := Restore(t.Context(), bad, dir, CopyOptions{})
			if kind := hub.KindOf(err); kind != hub.Unavailable && kind != hub.Invalid {
				t.Errorf("it gave %v", err)
			}
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the data directory was made (%v)", err)
			}
		})
	}
}

func TestARestoreReplacesNothing(t *testing.T) {
	src := newSender(t, openTemp(t))
	file := filepath.Join(t.TempDir(), "backup.db")
	if _, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), file, src.opt.Dir, CopyOptions{}); hub.KindOf(err) != hub.Exists || !strings.Contains(err.Error(), "in use") && !strings.Contains(err.Error(), "another hub is using") {
		t.Errorf("into the directory of a running hub: %v", err)
	}
	if err := src.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(src.opt.Dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), file, src.opt.Dir, CopyOptions{}); hub.KindOf(err) != hub.Exists || !strings.Contains(err.Error(), "holds a hub's data") {
		t.Errorf("into the directory of a stopped hub: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(src.opt.Dir, FileName)); err != nil || string(after) != string(before) {
		t.Errorf("its database was changed (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(src.opt.Dir, workDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was left there (%v)", err)
	}
}

func TestARestoreThatIsInterruptedLeavesNoHub(t *testing.T) {
	src := newSender(t, openTemp(t))
	file := filepath.Join(t.TempDir(), "backup.db")
	if _, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"check", "copy", "prepare"} {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		_, err := Restore(ctx, file, dir, CopyOptions{Progress: func(step string, _, _ int64) {
			if step == at {
				cancel()
			}
		}})
		if err == nil {
			t.Errorf("interrupted at %q it went through", at)
		}
		for _, name := range []string{FileName, workDir} {
			if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("interrupted at %q it left %s (%v)", at, name, err)
			}
		}
		// What is left when it is killed is in the way of no second try.
		if err := os.MkdirAll(filepath.Join(dir, workDir, "x"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := Restore(t.Context(), file, dir, CopyOptions{}); err != nil {
			t.Errorf("the second try gave %v", err)
		}
	}
}

func TestABackupThatWasPutInPlaceByHandIsNotStarted(t *testing.T) {
	src := newSender(t, openTemp(t))
	dir := t.TempDir()
	if _, err := Backup(t.Context(), src.opt.Dir, filepath.Join(dir, FileName), CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: dir}); hub.KindOf(err) != hub.Invalid || !strings.Contains(err.Error(), "holdfast restore") {
		t.Errorf("opening it gave %v", err)
	}
}

func TestRestoredByRootTheFilesAreTheDirectorysOwners(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root may give files away")
	}
	src := newSender(t, openTemp(t))
	file, dir := filepath.Join(t.TempDir(), "backup.db"), t.TempDir()
	if _, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 4242, 4343); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), file, dir, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 {
		t.Fatalf("the directory has %v, want the database and the lock (%v)", list, err)
	}
	for _, e := range list {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != 4242 || s.Gid != 4343 || info.Mode() != 0o600 {
			t.Errorf("%s is %v of %d:%d", e.Name(), info.Mode(), s.Uid, s.Gid)
		}
	}
}

// A hub goes on after its backup, hands tasks out and is lost. The restored one hands
// the same tasks out to others.
func TestClaimsFromAfterTheBackupCountForNothing(t *testing.T) {
	src := newSender(t, openTemp(t))
	for range 3 {
		if _, err := src.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	held, asked := src.claim(t), src.claim(t)
	if err := src.report(t, asked.ID, asked.Attempt, hub.InputRequired); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup.db")
	if _, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	lost := map[string][]int{held.ID: {held.Attempt}}
	late := src.claim(t)
	lost[late.ID] = append(lost[late.ID], late.Attempt)
	for range 3 { // the one that was held is taken back and claimed, again and again
		if _, err := src.Requeue(t.Context(), held.ID, "x"); err != nil {
			t.Fatal(err)
		}
		lost[held.ID] = append(lost[held.ID], src.claim(t).Attempt)
	}
	for round := range 2 { // restored twice, the second forgets what the first handed out
		clock := CopyOptions{Now: func() time.Time { return time.Now().Add(time.Duration(round) * time.Second) }}
		dir := t.TempDir()
		done, err := Restore(t.Context(), file, dir, clock)
		if err != nil || done.TakenBack != 1 || done.Tasks != 3 || done.Unfinished != 3 {
			t.Fatalf("the restore says %+v, %v", done, err)
		}
		got := &sender{Store: openIn(t, dir)}
		for range 2 {
			task := got.claim(t)
			if slices.Contains(lost[task.ID], task.Attempt) {
				t.Fatalf("claim %d of %s comes again", task.Attempt, task.ID)
			}
			for _, attempt := range append(lost[task.ID], 0) {
				if err := got.report(t, task.ID, attempt, hub.Completed); hub.KindOf(err) != hub.Conflict {
					t.Errorf("a report under claim %d of before gave %v", attempt, err)
				}
			}
			if task.Failures != 0 || task.Handouts() > 2 {
				t.Errorf("the task was claimed %d times and failed %d", task.Handouts(), task.Failures)
			}
			if again, err := got.task(t, task.ID); err != nil || again.State != hub.Working || again.Attempt != task.Attempt {
				t.Errorf("after that the task is %+v, %v", again, err)
			}
			lost[task.ID] = append(lost[task.ID], task.Attempt)
		}
		if open, err := got.task(t, asked.ID); err != nil || open.State != hub.InputRequired || open.Phase != hub.Parked {
			t.Errorf("the task with a question is %+v, %v", open, err)
		}
		for id, attempts := range lost {
			newest := attempts[len(attempts)-1]
			if err := got.report(t, id, newest, hub.Completed); err != nil {
				t.Errorf("a report under the claim that counts gave %v", err)
			}
			if err := got.report(t, id, newest, hub.Completed); err != nil {
				t.Errorf("the same again gave %v", err)
			}
		}
	}
}

// The hub hands a task out so and so often at the most. A restore neither counts as that
// nor takes it back.
func TestARestoreDoesNotUseUpHandouts(t *testing.T) {
	src := newSender(t, openTemp(t))
	id, err := src.send(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := src.Release(t.Context(), "id-dev", id, src.claim(t).Attempt); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := restored(t, src.opt.Dir)
	for n := 4; n <= 5; n++ {
		task := got.claim(t)
		if task.Handouts() != n {
			t.Errorf("it is handed out the %dth time, want the %dth", task.Handouts(), n)
		}
		if err := got.Release(t.Context(), "id-dev", id, task.Attempt); err != nil {
			t.Fatal(err)
		}
	}
	c, err := got.Claim(t.Context(), "id-dev", hub.ClaimSpec{Lease: time.Hour, Attempts: 5})
	if err != nil || !slices.Equal(c.Failed, []string{id}) {
		t.Errorf("the 6th hand-out of 5 gave %+v, %v", c, err)
	}
	if task, err := got.task(t, id); err != nil || !strings.Contains(task.Error, "handed out 5 times") {
		t.Errorf("it failed with %v, %v", task, err)
	}
}

func TestCursorsFromAfterTheBackupGoOn(t *testing.T) {
	src := newSender(t, openTemp(t))
	if _, err := src.send(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup.db")
	if _, err := Backup(t.Context(), src.opt.Dir, file, CopyOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := src.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	read := func(s *sender, after string) hub.ActivityPage {
		t.Helper()
		page, err := s.Activity(t.Context(), hub.ActivityQuery{By: hub.Viewer{All: true}, After: after, Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	cursor := read(src, "").Next
	got, _ := restore(t, file)
	if page := read(got, cursor); len(page.Lines) != 0 {
		t.Errorf("a cursor of before the restore gives %+v before anything has happened", page)
	}
	id, err := got.send(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if page := read(got, cursor); len(page.Lines) != 1 || page.Lines[0].Task != id {
		t.Errorf("a cursor of before the restore gives %+v, want what has happened since", page)
	}
	if err := got.Close(); err != nil {
		t.Fatal(err)
	}
	again := &sender{Store: openIn(t, got.opt.Dir)}
	if page := read(again, cursor); len(page.Lines) != 1 {
		t.Errorf("after a start it gives %+v", page)
	}
}

// Whoever adds a table decides what a restored hub owes to those who remember more of it
// than the hub does.
func TestRestoreThinksOfEveryTable(t *testing.T) {
	decided := map[string]string{
		"address": "ids are random; what was made after the backup is gone", "token": "likewise; those that were revoked count again, of which the command warns",
		"task": "ids are random; row numbers are seen in list cursors only, which place, not name", "queue": "fenced",
		"mailbox": "an order, nobody remembers it", "lane": "likewise", "event": "by task; docs/run-a-hub.md tells who follows a task", "message": "by task",
		"artifact": "by task", "attempt": "by task, numbered by hand-out", "idempotency": "keys that came after the backup are new again",
		"idempotency_index": "likewise", "activity": "fenced", "meta": "", "secret": "sealed", "push": "loans end with each start; deliveries may repeat",
		"push_failure": "fenced", "goose_db_version": "", "endpoint": "as it was; what was set after the backup is gone",
		"dispatch": "those that were open stay so until their task is dispatched again, which follows what the agent has of it, or canceled, of which the agent is told",
	}
	s := openTemp(t)
	c, err := openFile(t.Context(), filepath.Join(s.opt.Dir, FileName), zombie.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.close() }()
	err = c.each("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'", nil, func(r row) (bool, error) {
		if _, ok := decided[r.text(0)]; !ok {
			t.Errorf("table %s is new: does restoring it need anything? See fence, and note it here", r.text(0))
		}
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
