package vault

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// bed is a data directory with a store in it, and how its hub would be started.
type bed struct {
	*testing.T
	dir   string
	store *sqlite.Store
	o     Options
	log   bytes.Buffer
}

func newBed(t *testing.T) *bed {
	b := &bed{T: t, dir: t.TempDir()}
	b.o = Options{File: filepath.Join(b.dir, FileName), Make: true, Log: slog.New(slog.NewTextHandler(&b.log, nil))}
	b.reopen()
	t.Cleanup(func() { _ = b.store.Close() })
	return b
}

// reopen opens the store as a new process would.
func (b *bed) reopen() {
	b.Helper()
	if b.store != nil {
		if err := b.store.Close(); err != nil {
			b.Fatal(err)
		}
	}
	store, err := sqlite.Open(b.Context(), sqlite.Options{Dir: b.dir})
	if err != nil {
		b.Fatal(err)
	}
	b.store, b.o.Secrets = store, store
}

// start opens the vault as a hub does when it starts.
func (b *bed) start() *Vault {
	b.Helper()
	v, err := Open(b.Context(), b.o)
	if err != nil {
		b.Fatalf("the hub does not start: %v", err)
	}
	return v
}

// refused checks that a hub does not start, and that the error says some words.
func (b *bed) refused(words ...string) {
	b.Helper()
	_, err := Open(b.Context(), b.o)
	if hub.KindOf(err) != hub.Invalid {
		b.Fatalf("the start gave %v, want a refusal that says what is wrong", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			b.Errorf("%q does not say %q", err, w)
		}
	}
}

func (b *bed) keep(v *Vault, name, secret string) {
	b.Helper()
	sealed, err := v.Seal([]byte(secret), name)
	if err == nil {
		_, err = b.store.AddSecret(b.Context(), name, sealed)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// has checks that a vault opens a secret.
func (b *bed) has(v *Vault, name, want string) {
	b.Helper()
	sealed, err := b.store.Secret(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	if got, err := v.Open(sealed, name); err != nil || string(got) != want {
		b.Errorf("%s: %q, %v; want %q", name, got, err, want)
	}
}

func (b *bed) keyFile() string {
	b.Helper()
	text, err := os.ReadFile(b.o.File)
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (b *bed) setKeyFile(text string) {
	b.Helper()
	if err := os.WriteFile(b.o.File, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
}

func mustKey(t *testing.T) string {
	t.Helper()
	text, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSealedSecretsOpenOnlyWhereTheyBelong(t *testing.T) {
	b := newBed(t)
	v := b.start()
	sealed, err := v.Seal([]byte("hush"), "push/1/a")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Open(sealed, "push/1/a"); err != nil || string(got) != "hush" {
		t.Fatalf("%q, %v", got, err)
	}
	if bytes.Contains(sealed, []byte("hush")) {
		t.Error("the sealed form has the secret in the clear")
	}
	again, err := v.Seal([]byte("hush"), "push/1/a")
	if err != nil || bytes.Equal(sealed, again) {
		t.Errorf("sealed twice gives the same, so who sees both knows that they are the same (%v)", err)
	}
	other := newBed(t).start()
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"about something else": func() ([]byte, error) { return v.Open(sealed, "push/1/b") },
		"under another key":    func() ([]byte, error) { return other.Open(sealed, "push/1/a") },
		"changed":              func() ([]byte, error) { return v.Open(changed, "push/1/a") },
		"cut":                  func() ([]byte, error) { return v.Open(sealed[:10], "push/1/a") },
		"empty":                func() ([]byte, error) { return v.Open(nil, "push/1/a") },
	} {
		if got, err := open(); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestFirstStartMakesAKeyForItsOwnerAlone(t *testing.T) {
	b := newBed(t)
	b.keep(b.start(), "a", "hush")
	info, err := os.Stat(b.o.File)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the key file: %v, %v", info, err)
	}
	before := b.keyFile()
	b.reopen()
	b.has(b.start(), "a", "hush")
	if b.keyFile() != before {
		t.Error("the second start changed the key")
	}
	if files, err := filepath.Glob(b.o.File + "?*"); err != nil || len(files) > 0 {
		t.Errorf("left over: %v, %v", files, err)
	}
}

func TestAKeyWithoutARecordIsUsed(t *testing.T) {
	b := newBed(t) // as after a crash between the two
	key := mustKey(t)
	b.setKeyFile(key)
	b.start()
	if b.keyFile() != key {
		t.Error("the key was replaced")
	}
}

func TestAMissingKeyIsNeverMadeAnew(t *testing.T) {
	b := newBed(t)
	v := b.start()
	if err := os.Remove(b.o.File); err != nil {
		t.Fatal(err)
	}
	b.refused(b.o.File, "is missing", v.KeyID(), envName, "keys reset")
	if _, err := os.Stat(b.o.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key was made: %v", err)
	}
}

func TestAnotherKeyIsRefused(t *testing.T) {
	b := newBed(t)
	v := b.start()
	right := b.keyFile()
	b.setKeyFile(mustKey(t))
	b.refused(v.KeyID(), b.o.File)
	b.o.Value = mustKey(t)
	b.refused(v.KeyID(), envName)
	b.o.Value = right // from the file to the environment
	b.start()
}

func TestKeysThatAreNone(t *testing.T) {
	b := newBed(t)
	for name, text := range map[string]string{
		"empty": "", "words": "hushhush", "base64": base64.StdEncoding.EncodeToString([]byte("hushhushhushhush")), "cut": mustKey(t)[:80],
	} {
		b.setKeyFile(text)
		b.refused(b.o.File, "no master key")
		if text == "" {
			continue // is no value
		}
		b.o.Value = text
		b.refused(envName, "no master key")
		if _, err := Open(t.Context(), b.o); strings.Contains(err.Error(), text) {
			t.Errorf("%s: %q shows what may be a key", name, err)
		}
		b.o.Value = ""
	}
}

func TestAKeyFileOfOthersIsRefused(t *testing.T) {
	b := newBed(t)
	b.start()
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o666} {
		if err := os.Chmod(b.o.File, mode); err != nil {
			t.Fatal(err)
		}
		b.refused(b.o.File, "others", fmt.Sprintf("%04o", mode), "chmod 600", "defaultMode: 0400")
	}
	if err := os.Chmod(b.o.File, 0o400); err != nil {
		t.Fatal(err)
	}
	b.start()
}

// asRoot skips a test of what only root can do.
func asRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
}

// TestRootLeavesTheKeyToItsOwner: whoever runs the hub has to be able to read the key
// that root has made or replaced.
func TestRootLeavesTheKeyToItsOwner(t *testing.T) {
	asRoot(t)
	const hubUser, keyUser = 12345, 12346
	b := newBed(t)
	owned := func(what string, want int) {
		t.Helper()
		if uid, gid, ok := ownerOf(b.o.File); uid != want || gid != want || !ok {
			t.Errorf("%s: the key belongs to %d:%d, want %d", what, uid, gid, want)
		}
		info, err := os.Stat(b.o.File)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", what, info, err)
		}
	}
	give := func(path string, to int) {
		t.Helper()
		if err := os.Chown(path, to, to); err != nil {
			t.Fatal(err)
		}
	}
	give(b.dir, hubUser)
	b.start()
	owned("made", hubUser)
	give(b.o.File, keyUser)
	if _, err := Rotate(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	owned("rotated", keyUser)
	if err := os.Remove(b.o.File); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Reset(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	owned("reset", hubUser)
}

// TestAKeyFileThatMayNotBeReadSaysWhose is run again by itself as a user who may not.
func TestAKeyFileThatMayNotBeReadSaysWhose(t *testing.T) {
	if dir := os.Getenv("HOLDFAST_TEST_UNREADABLE"); dir != "" {
		_, err := readFile(filepath.Join(dir, FileName))
		t.Log(err)
		_, err = readFile(filepath.Join(dir, "closed", FileName))
		t.Log(err)
		return
	}
	asRoot(t)
	dir, err := os.MkdirTemp("", "holdfast-key")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "closed"), 0o700),
		os.WriteFile(filepath.Join(dir, FileName), nil, 0o600), os.WriteFile(filepath.Join(dir, "closed", FileName), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(program, self, 0o755) // where the other user can reach it
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOLDFAST_TEST_UNREADABLE="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, want := range []string{
		"master.key belongs to the user root, and 12345 may not read it",
		"chown 12345 " + filepath.Join(dir, FileName),
		"12345 may not look into the directory of the master key file " + filepath.Join(dir, "closed", FileName),
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is not in: %s", want, out)
		}
	}
}

// TestCheckKeyBeforeTheFirstStart: it says what Open would say, and makes nothing.
func TestCheckKeyBeforeTheFirstStart(t *testing.T) {
	made := filepath.Join(t.TempDir(), FileName)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{File: made, Make: true}, ""},
		{Options{File: made}, "keys new"},
		{Options{Value: mustKey(t)}, ""},
		{Options{Value: "nonsense"}, envName},
	} {
		err := CheckKey(c.o)
		if c.want == "" && err != nil || c.want != "" && (hub.KindOf(err) != hub.Invalid || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.o, err, c.want)
		}
	}
	if _, err := os.Stat(made); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it made a key (%v)", err)
	}
}

func TestANamedFileHasToBeThere(t *testing.T) {
	b := newBed(t)
	b.o.Make, b.o.File = false, filepath.Join(t.TempDir(), "key")
	b.refused(b.o.File, "keys new")
	b.setKeyFile(" " + mustKey(t) + "\r\n")
	b.start()
	b.o.File = t.TempDir()
	if err := os.Chmod(b.o.File, 0o700); err != nil {
		t.Fatal(err)
	}
	b.refused(b.o.File)
	b.o.File = ""
	b.refused(envName)
}

func TestNothingPrintsTheKey(t *testing.T) {
	b := newBed(t)
	v := b.start()
	raw, err := base64.StdEncoding.DecodeString(b.keyFile())
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		for _, x := range []any{v, *v, &struct{ V *Vault }{v}} {
			shown := fmt.Sprintf(verb, x)
			if strings.Contains(shown, b.keyFile()) || strings.Contains(shown, fmt.Sprintf("%x", raw[len(raw)-16:])) {
				t.Errorf("%s of %T shows the key", verb, x)
			}
		}
	}
}

// Several hubs may start on one empty database at once.
func TestHubsThatStartTogetherAgree(t *testing.T) {
	b := newBed(t)
	b.o.Value = mustKey(t)
	errs := make(chan error, 10)
	for range cap(errs) {
		go func() {
			_, err := Open(t.Context(), b.o)
			errs <- err
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// errDied stands for the death of the process.
var errDied = errors.New("killed")

// dieAfter rotates, and dies after a step.
func (b *bed) dieAfter(step string) {
	b.Helper()
	_, err := rotate(b.Context(), b.o, func(s string) error {
		if s == step {
			return errDied
		}
		return nil
	})
	if !errors.Is(err, errDied) {
		b.Fatalf("the rotation did not come to the step %q: %v", step, err)
	}
	b.reopen()
}

// opensNothing checks that a key is good for nothing any more.
func (b *bed) opensNothing(key string) {
	b.Helper()
	k, err := parseKey(key)
	if err != nil {
		b.Fatal(err)
	}
	r, err := readRecord(b.Context(), b.store)
	if err != nil {
		b.Fatal(err)
	}
	if r.fits(k) || r.successor(k) != nil {
		b.Error("the old key still opens the vault")
	}
}

func TestRotationOfAFile(t *testing.T) {
	b := newBed(t)
	v := b.start()
	b.keep(v, "a", "hush")
	old := b.keyFile()
	done, err := Rotate(t.Context(), b.o)
	if err != nil || done.Old != v.KeyID() || done.New == done.Old || done.Value != "" || done.Resumed {
		t.Fatalf("%+v, %v", done, err)
	}
	b.reopen()
	fresh := b.start()
	if fresh.KeyID() != done.New || b.keyFile() == old {
		t.Error("the hub does not use the new key")
	}
	b.has(fresh, "a", "hush")
	b.opensNothing(old)
	if b.log.Len() > 0 {
		t.Errorf("warned: %s", &b.log)
	}
	b.setKeyFile(old)
	b.refused(done.New, done.Old)
}

func TestRotationThatIsKilledAfterAStep(t *testing.T) {
	for _, step := range []string{"reseal", "write", "forget"} {
		t.Run(step, func(t *testing.T) {
			b := newBed(t)
			v := b.start()
			b.keep(v, "a", "hush")
			old := b.keyFile()
			b.dieAfter(step)

			v = b.start()
			b.has(v, "a", "hush")
			b.keep(v, "b", "made meanwhile")
			b.reopen()
			if warned := strings.Contains(b.log.String(), "keys rotate again"); warned != (step == "reseal") {
				t.Errorf("the start said: %s", &b.log)
			}
			done, err := Rotate(t.Context(), b.o)
			if err != nil || done.Resumed != (step == "reseal") {
				t.Fatalf("%+v, %v", done, err)
			}
			b.reopen()
			v = b.start()
			b.has(v, "a", "hush")
			b.has(v, "b", "made meanwhile")
			b.opensNothing(old)
		})
	}
}

// With the key in the environment, a hub starts with the old value until it first
// started with the new one.
func TestRotationOfAValue(t *testing.T) {
	b := newBed(t)
	b.o.Value = mustKey(t)
	old := b.o.Value
	b.keep(b.start(), "a", "hush")
	done, err := Rotate(t.Context(), b.o)
	if err != nil || done.Value == "" || done.Value == old {
		t.Fatalf("%+v, %v", done.New, err)
	}
	if _, err := os.Stat(b.o.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key file was made as well: %v", err)
	}
	b.reopen()
	v := b.start()
	b.has(v, "a", "hush")
	b.keep(v, "b", "made under the old value")
	if !strings.Contains(b.log.String(), envName+" still has the old one") {
		t.Errorf("the start with the old value said: %s", &b.log)
	}
	again, err := Rotate(t.Context(), b.o) // the printed value was lost
	if err != nil || again.Value != done.Value || !again.Resumed {
		t.Errorf("printed again: %v, resumed %t, %v", again.New, again.Resumed, err)
	}
	b.o.Value = done.Value
	b.reopen()
	v = b.start()
	b.has(v, "a", "hush")
	b.has(v, "b", "made under the old value")
	b.opensNothing(old)
	b.o.Value = old
	b.refused(done.New, done.Old)
}

func TestRotationAfterRotationBeforeAStart(t *testing.T) {
	b := newBed(t)
	b.o.Value = mustKey(t)
	b.keep(b.start(), "a", "hush")
	keys := []string{b.o.Value}
	for range 3 {
		done, err := Rotate(t.Context(), b.o)
		if err != nil {
			t.Fatal(err)
		}
		b.o.Value = done.Value
		keys = append(keys, done.Value)
	}
	b.has(b.start(), "a", "hush")
	for _, key := range keys[:3] {
		b.opensNothing(key)
	}
}

// failing is a store that cannot write.
type failing struct{ hub.Secrets }

func (failing) Reseal(context.Context, func([]byte, string) ([]byte, error), string, []byte) error {
	return errDied
}

func TestRotationThatFailsChangesNothing(t *testing.T) {
	b := newBed(t)
	v := b.start()
	key := b.keyFile()
	o := b.o
	o.Secrets = failing{b.store}
	if _, err := Rotate(t.Context(), o); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	b.keep(v, "a", "hush")
	sealedElsewhere, err := v.Seal([]byte("hush"), "elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.AddSecret(t.Context(), "damaged", sealedElsewhere); err != nil {
		t.Fatal(err)
	}
	if _, err := Rotate(t.Context(), b.o); !errors.Is(err, errSealed) || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("with a damaged secret: %v", err)
	}
	b.has(b.start(), "a", "hush")
	if b.keyFile() != key {
		t.Error("the key file changed")
	}
}

// A rotation is of use only if nothing of the database can be opened with the old key.
func TestRotationLeavesNothingSealedUnderTheOldKey(t *testing.T) {
	b := newBed(t)
	v := b.start()
	var old [][]byte
	for i := range 300 { // many pages
		name := fmt.Sprint("key/", i)
		b.keep(v, name, strings.Repeat("hush", 20+i))
		sealed, err := b.store.Secret(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		old = append(old, sealed)
	}
	if _, err := Rotate(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Close(); err != nil {
		t.Fatal(err)
	}
	left, files := 0, 0
	for _, name := range []string{sqlite.FileName, sqlite.FileName + "-wal"} {
		data, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			continue
		}
		files++
		for _, sealed := range old {
			if bytes.Contains(data, sealed[len(sealed)-40:]) {
				left++
			}
		}
	}
	if left > 0 || files == 0 {
		t.Errorf("%d of %d secrets are still there, sealed with the old key (%d files)", left, len(old), files)
	}
	b.reopen()
}

func TestAKeyFileThatIsALinkStaysOne(t *testing.T) {
	b := newBed(t)
	real := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(real, []byte(mustKey(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, b.o.File); err != nil {
		t.Fatal(err)
	}
	b.start()
	if _, err := Rotate(t.Context(), b.o); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(b.o.File); err != nil || to != real {
		t.Errorf("%s, %v", to, err)
	}
	b.start()
}

func TestResetGivesUpWhatTheLostKeySealed(t *testing.T) {
	b := newBed(t)
	v := b.start()
	b.keep(v, "a", "hush")
	if _, _, err := Reset(t.Context(), b.o); hub.KindOf(err) != hub.Conflict {
		t.Errorf("with the right key: %v", err)
	}
	if err := os.Remove(b.o.File); err != nil {
		t.Fatal(err)
	}
	id, dropped, err := Reset(t.Context(), b.o)
	if err != nil || dropped != 1 || id == v.KeyID() {
		t.Fatalf("%s, %d dropped, %v", id, dropped, err)
	}
	b.reopen()
	v = b.start()
	if v.KeyID() != id {
		t.Errorf("the key is %s, want %s", v.KeyID(), id)
	}
	if _, err := b.store.Secret(t.Context(), "a"); hub.KindOf(err) != hub.NotFound {
		t.Errorf("the lost secret: %v", err)
	}
	b.keep(v, "a", "made anew")
	b.has(v, "a", "made anew")
}

func TestResetKeepsWhatTheGivenKeyOpens(t *testing.T) {
	b := newBed(t)
	lost := b.start()
	b.keep(lost, "lost", "hush")
	text := mustKey(t)
	k, err := parseKey(text)
	if err != nil {
		t.Fatal(err)
	}
	b.keep(&Vault{k}, "kept", "hush")
	b.o.Value = text
	if _, dropped, err := Reset(t.Context(), b.o); err != nil || dropped != 1 {
		t.Fatalf("%d dropped, %v", dropped, err)
	}
	b.has(b.start(), "kept", "hush")
}

func FuzzParseKey(f *testing.F) {
	text, err := NewKey()
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{"", text, text[:40], text + text, "\n" + text + "\n", "AAAA", "CAEQAQ=="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k, err := parseKey(s)
		if err != nil {
			if !errors.Is(err, errNoKey) {
				t.Errorf("the error %v may show the key", err)
			}
			return
		}
		sealed, err := k.seal([]byte("hush"), "a")
		if err != nil {
			return // a key that parses may be too short to be used; a start notices
		}
		again, err := parseKey(k.text)
		if err != nil {
			t.Fatalf("what was read is written so that it cannot be read: %v", err)
		}
		if got, err := again.open(sealed, "a"); err != nil || string(got) != "hush" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Check says what a start would, and changes nothing.
func TestCheck(t *testing.T) {
	b := newBed(t)
	check := func(o Options) (string, string) {
		t.Helper()
		id, err := Check(t.Context(), b.store, o)
		if err == nil {
			return id, ""
		}
		if hub.KindOf(err) != hub.Invalid {
			t.Errorf("it gave %v", err)
		}
		return id, err.Error()
	}
	if id, problem := check(b.o); id != "" || problem != "" {
		t.Errorf("before anything was sealed it says %q, %q", id, problem)
	}
	if _, err := os.Stat(b.o.File); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it made a key (%v)", err)
	}
	key := b.start().KeyID()
	if id, problem := check(b.o); id != key || problem != "" {
		t.Errorf("with the right key it says %q, %q, want %q", id, problem, key)
	}
	missing := b.o
	missing.File += ".none"
	if id, problem := check(missing); id != key || !strings.Contains(problem, "is missing") {
		t.Errorf("without the key it says %q, %q", id, problem)
	}
	other, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if id, problem := check(Options{Value: other}); id != key || !strings.Contains(problem, "sealed with the master key "+key) {
		t.Errorf("with another key it says %q, %q", id, problem)
	}
}
