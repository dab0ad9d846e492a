// Package interop lets A2A clients in other languages, as their makers released them,
// call an agent of the hub. They are installed from their registries into a folder
// that git ignores, once for each list of packages.
package interop

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// TestPythonV03 lets Python clients that are older than A2A 1.0 do all they can.
func TestPythonV03(t *testing.T) {
	if testing.Short() {
		t.Skip("installs packages")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	for _, c := range []struct {
		name, script string
		packages     []string
	}{
		{"a2a-sdk 0.3", "a2a_sdk_v03.py", []string{"a2a-sdk[http-server]==0.3.26"}},
		{"fasta2a 0.5", "fasta2a_client.py", []string{"fasta2a==0.5.0", "httpx==0.28.1"}},
		{"fasta2a, the newest", "fasta2a_client.py", []string{"fasta2a==2.1.1", "httpx==0.28.1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			packages := install(t, python, c.packages)
			h := testhub.Start(t)
			work(t, client.New(h.URL, h.Agent("coder")))
			cmd := exec.CommandContext(within(t, 2*time.Minute), python, filepath.Join("testdata", c.script))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+packages, "PYTHONDONTWRITEBYTECODE=1",
				"AGENT_URL="+h.URL+"/a/coder", "AGENT_TOKEN="+h.Agent("caller"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// work does the tasks of an agent until the test ends: it echoes, fails, asks, tells
// how it is going, or takes for ever, as it is told.
func work(t *testing.T, c *client.Client) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, err := c.Serve(ctx, perform, client.Concurrency(4))
		done <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the agent: %v", err)
		}
	})
}

func perform(ctx context.Context, t *client.Task) (any, error) {
	switch t.Text() {
	case "fail":
		return nil, errors.New("no such file")
	case "ask":
		if answer := t.AnswerText(); answer != "" {
			return "you want " + answer, nil
		}
		return nil, t.Ask(ctx, "which?")
	case "stream":
		for i, chunk := range []string{"one ", "two ", "three"} {
			if err := t.AppendText(ctx, "out", chunk, i == 2); err != nil {
				return nil, err
			}
		}
		return nil, nil
	case "hold":
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return "ANSWER " + t.Text(), nil
}

// within is a context of the test that ends before too long.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// install gives a folder with Python packages, which it fills if nobody has before.
// Without a network a test that needs them is skipped, but never in CI.
func install(t *testing.T, python string, packages []string) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".cache", "e2e-python"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(python + "\n" + strings.Join(packages, "\n")))
	dir := filepath.Join(root, hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(dir); err == nil {
		return dir
	} else if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	fresh, err := os.MkdirTemp(root, "new-") // beside dir, so that a rename is enough
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(fresh)
	args := append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", fresh}, packages...)
	if out, err := exec.CommandContext(within(t, 5*time.Minute), python, args...).CombinedOutput(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("installing %v: %v\n%s", packages, err, out)
		}
		t.Skipf("%v cannot be installed: %v\n%s", packages, err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, there := os.Stat(dir); there != nil { // nobody else was faster
			t.Fatal(err)
		}
	}
	return dir
}
