package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

const (
	programPackage = "github.com/holdfast-hub/holdfast/cmd/holdfast"
	// storeDir has the PostgreSQL store, and its migrations below it.
	storeDir = "internal/store/postgres"
)

// The migrations of a next version: first it expands, one table in each, as a release may
// while replicas of the one before run, and then it leaves those behind.
var (
	expands = []string{
		"-- +goose Up\nALTER TABLE task ADD COLUMN note bytea;\nCREATE TABLE note (task uuid PRIMARY KEY);\n",
		"-- +goose Up\nALTER TABLE event ADD COLUMN note integer NOT NULL DEFAULT 0;\n",
		"-- +goose NO TRANSACTION\n-- +goose Up\nDROP INDEX CONCURRENTLY IF EXISTS task_note;\nCREATE INDEX CONCURRENTLY task_note ON task(note) WHERE note IS NOT NULL;\n",
	}
	leavesBehind = "-- +goose Up\nUPDATE meta SET value = '%d' WHERE key = 'oldest_binary';\n"
)

// Replicas of the previous version and of the next run on one database at once, while the
// next one migrates it and after, and tasks go through both.
func TestReplicasOfTwoVersionsSideBySide(t *testing.T) {
	root := moduleRoot(t)
	previous, next := buildPrevious(t, root), buildNext(t, root, expands)
	w := &upgrade{t: t, database: hubproc.Database(t), key: hubproc.MasterKey(t)}
	old := w.start(previous)
	caller, coder := old.Agent("caller"), old.Agent("coder")
	w.add(old)
	stop := w.traffic(caller, coder)
	w.flows("the previous version alone")

	// All replicas of the next version start at once; one migrates.
	var fresh []*hubproc.Hub
	for range 3 {
		h := hubproc.New(t, w.options(next))
		h.Launch()
		fresh = append(fresh, h)
	}
	for _, h := range fresh {
		h.Await()
		w.add(h)
	}
	if names := relations(t, w.database); !regexp.MustCompile(`\btask_note\b`).MatchString(names) {
		t.Fatalf("the next version has not migrated: %s", names)
	}
	w.flows("both versions")
	for _, pair := range [][2]*hubproc.Hub{{old, fresh[0]}, {fresh[1], old}} {
		sent := sendOne(t, at(pair[0], caller), "across")
		w.await(at(pair[1], caller), sent.ID)
	}

	// A replica of the previous version may start again: what was added is nothing to it.
	w.remove(old)
	if _, err := old.Terminate(soon); err != nil {
		t.Fatal(err)
	}
	w.flows("the next version alone")
	old.Start()
	w.add(old)
	w.flows("both versions again")
	stop()
	t.Logf("%d tasks were done", w.done.Load())
}

// A program that is too old for a database says so in one line, and changes nothing.
func TestAProgramThatIsTooOldForTheDatabaseRefuses(t *testing.T) {
	root := moduleRoot(t)
	version := schemaOf(t, root)
	all := append(append([]string{}, expands...), fmt.Sprintf(leavesBehind, version+len(expands)+1))
	previous, next := buildPrevious(t, root), buildNext(t, root, all)
	w := &upgrade{t: t, database: hubproc.Database(t), key: hubproc.MasterKey(t)}
	h := w.start(next)
	before := relations(t, w.database)
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"admin-token"}} {
		cmd := exec.CommandContext(t.Context(), previous, args...)
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), w.options(next).Env...)
		out, err := cmd.CombinedOutput()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != 1 || !oneLine(string(out)) || !bytes.Contains(out, []byte("newer Holdfast")) {
			t.Errorf("%v ended with %v and said: %s", args, err, out)
		}
	}
	if after := relations(t, w.database); after != before {
		t.Errorf("the tables were %s and are %s", before, after)
	}
	h.Agent("goes-on")
}

// upgrade is replicas of several versions on one database, and tasks that go through them.
type upgrade struct {
	t             *testing.T
	database, key string
	mu            sync.Mutex
	replicas      []*hubproc.Hub
	turn, done    atomic.Int64
}

func (w *upgrade) options(program string) hubproc.Options {
	opt := hubproc.On(w.database, w.key)
	opt.Command = []string{program, "serve"}
	return opt
}

func (w *upgrade) start(program string) *hubproc.Hub { return hubproc.Start(w.t, w.options(program)) }

func (w *upgrade) add(h *hubproc.Hub) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.replicas = append(w.replicas, h)
}

// remove takes a replica out of the load balancer; what is under way on it ends.
func (w *upgrade) remove(h *hubproc.Hub) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.replicas {
		if w.replicas[i] == h {
			w.replicas = append(w.replicas[:i:i], w.replicas[i+1:]...)
			return
		}
	}
}

// next is the replica whose turn it is.
func (w *upgrade) next() *hubproc.Hub {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replicas[int(w.turn.Add(1))%len(w.replicas)]
}

// traffic sends, claims and answers tasks until it is stopped, each request on the next
// replica. Whoever is cut off or told to come back (503) does.
func (w *upgrade) traffic(caller, coder *hubproc.Client) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	loop := func(f func(context.Context) error) {
		all.Go(func() {
			for ctx.Err() == nil {
				if err := f(ctx); err != nil && ctx.Err() == nil {
					w.t.Error(err)
					return
				}
			}
		})
	}
	for range 2 {
		loop(func(ctx context.Context) error { return w.send(ctx, caller) })
		loop(func(ctx context.Context) error { return w.work(ctx, coder) })
	}
	w.t.Cleanup(func() { cancel(); all.Wait() })
	return func() { cancel(); all.Wait() }
}

// try makes a request again and again until it is answered otherwise than with 503.
func (w *upgrade) try(ctx context.Context, c *hubproc.Client, method, path string, body any, header ...string) (hubproc.Answer, error) {
	for again := time.NewTicker(20 * time.Millisecond); ; {
		got, err := at(w.next(), c).Do(ctx, method, path, body, header...)
		if ctx.Err() != nil {
			return got, ctx.Err()
		}
		if err == nil && got.Status != 503 {
			return got, nil
		}
		<-again.C
	}
}

func (w *upgrade) send(ctx context.Context, c *hubproc.Client) error {
	key := "k" + strconv.FormatInt(w.turn.Add(1), 10)
	got, err := w.try(ctx, c, "POST", "/v1/agents/coder/tasks?wait=20", send("hi"), "Idempotency-Key", key)
	if err != nil {
		return err
	}
	var sent task
	if err := json.Unmarshal(got.Body, &sent); err != nil || !got.OK() {
		return fmt.Errorf("a send got %d %s", got.Status, got.Body)
	}
	for sent.State != "completed" {
		got, err := w.try(ctx, c, "GET", "/v1/agents/coder/tasks/"+sent.ID+"?wait=20", nil)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(got.Body, &sent); err != nil || !got.OK() || sent.State == "failed" {
			return fmt.Errorf("the task got %d %s", got.Status, got.Body)
		}
	}
	w.done.Add(1)
	return nil
}

func (w *upgrade) work(ctx context.Context, c *hubproc.Client) error {
	got, err := w.try(ctx, c, "GET", "/v1/agents/me/tasks/next?wait=5", nil)
	if err != nil || got.Status == 204 {
		return err
	}
	var k task
	if err := json.Unmarshal(got.Body, &k); err != nil || !got.OK() {
		return fmt.Errorf("a claim got %d %s", got.Status, got.Body)
	}
	got, err = w.try(ctx, c, "POST", "/v1/agents/me/tasks/"+k.ID+"/result", object{"state": "completed", "artifacts": []object{{"parts": []object{{"text": "done"}}}}}, "X-Claim", k.ClaimID)
	if err == nil && !got.OK() {
		return fmt.Errorf("a report got %d %s", got.Status, got.Body)
	}
	return err
}

// flows waits until more tasks are done.
func (w *upgrade) flows(with string) {
	w.t.Helper()
	from := w.done.Load()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for until := time.Now().Add(30 * time.Second); w.done.Load() < from+25; <-again.C {
		if time.Now().After(until) || w.t.Failed() {
			w.t.Fatalf("with %s, only %d tasks were done", with, w.done.Load()-from)
		}
	}
}

// await waits until a replica has a task as completed.
func (w *upgrade) await(c *hubproc.Client, id string) {
	w.t.Helper()
	var got task
	must(w.t, c.Call(within(w.t, 30*time.Second), "GET", "/v1/agents/coder/tasks/"+id+"?wait=20", nil, &got))
	if got.State != "completed" {
		w.t.Errorf("the task is %s", got.State)
	}
}

// moduleRoot is where the module is.
func moduleRoot(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	must(t, err)
	return string(bytes.TrimSpace(out))
}

// buildPrevious builds the program of the previous commit. It builds the present one where
// there is no previous commit, or where that has other tables under the same number:
// until the first release the first migration is edited in place, and no database goes
// from one of its forms to another.
func buildPrevious(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unpack(t.Context(), root, "HEAD^", dir); err != nil {
		t.Logf("there is no previous commit here (%v): the present program stands for it", err)
		return build(t, root)
	}
	files, err := filepath.Glob(filepath.Join(dir, storeDir, "migrations", "*.sql"))
	must(t, err)
	for _, file := range files {
		then, err := os.ReadFile(file)
		must(t, err)
		now, err := os.ReadFile(filepath.Join(root, storeDir, "migrations", filepath.Base(file)))
		if err != nil || !bytes.Equal(then, now) {
			t.Logf("the previous commit has another %s, so its program cannot share a database with the present one, which stands for it", filepath.Base(file))
			return build(t, root)
		}
	}
	return build(t, dir)
}

// unpack writes the files of a commit into a directory.
func unpack(ctx context.Context, root, commit, dir string) error {
	cmd := exec.CommandContext(ctx, "git", "-C", root, "archive", "--format=tar", commit)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	files, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		body, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := errors.Join(files.MkdirAll(filepath.Dir(h.Name), 0o755), files.WriteFile(h.Name, body, 0o644)); err != nil {
			return err
		}
	}
}

// schemaVersion finds the version of the schema in the store's source.
var schemaVersion = regexp.MustCompile(`const schemaVersion = (\d+)`)

func schemaOf(t *testing.T, root string) int {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, storeDir, "migrate.go"))
	must(t, err)
	m := schemaVersion.FindSubmatch(source)
	if m == nil {
		t.Fatal("the store does not say which version its schema has")
	}
	n, err := strconv.Atoi(string(m[1]))
	must(t, err)
	return n
}

// buildNext builds the present program with further migrations.
func buildNext(t *testing.T, root string, migrations []string) string {
	t.Helper()
	dir, version := t.TempDir(), schemaOf(t, root)
	replace := map[string]string{}
	put := func(name string, body []byte) {
		file := filepath.Join(dir, filepath.Base(name))
		must(t, os.WriteFile(file, body, 0o644))
		replace[filepath.Join(root, storeDir, name)] = file
	}
	source, err := os.ReadFile(filepath.Join(root, storeDir, "migrate.go"))
	must(t, err)
	for i, sql := range migrations {
		put(fmt.Sprintf("migrations/%05d_next.sql", version+1+i), []byte(sql))
	}
	put("migrate.go", schemaVersion.ReplaceAll(source, fmt.Appendf(nil, "const schemaVersion = %d", version+len(migrations))))
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	file := filepath.Join(dir, "overlay.json")
	must(t, os.WriteFile(file, overlay, 0o644))
	return build(t, root, "-overlay", file)
}

// build builds the program of a tree.
func build(t *testing.T, tree string, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast")
	args := append([]string{"build", "-buildvcs=false", "-o", path}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, programPackage)...)
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	return path
}
