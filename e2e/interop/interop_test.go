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
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// TestPythonV03 lets Python clients that are older than A2A 1.0 do all they can.
func TestPythonV03(t *testing.T) { eachStore(t, pythonV03) }

func pythonV03(t *testing.T, on func(*config.Config)) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages")
	}
	python := interpreter(t, "python3")
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
			h := testhub.Start(t, on)
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

// javaScriptSDK is the official SDK, and what its gRPC needs.
var javaScriptSDK = []string{"@a2a-js/sdk@1.3.0", "@grpc/grpc-js@1.14.7", "@bufbuild/protobuf@2.17.0"}

// TestOfficialSDKs lets the official SDKs of A2A 1.0 for other languages do all they can,
// over each binding.
func TestOfficialSDKs(t *testing.T) { eachStore(t, officialSDKs) }

func officialSDKs(t *testing.T, on func(*config.Config)) {
	t.Helper()
	if testing.Short() {
		t.Skip("installs packages")
	}
	for _, c := range []struct {
		name, interpreter string
		command           func(t *testing.T, interpreter string) *exec.Cmd
	}{
		{"Python", "python3", func(t *testing.T, python string) *exec.Cmd {
			cmd := exec.CommandContext(within(t, 3*time.Minute), python, filepath.Join("testdata", "a2a_sdk.py"))
			cmd.Env = append(os.Environ(), "PYTHONPATH="+install(t, python, []string{"a2a-sdk[grpc]==1.3.0"}), "PYTHONDONTWRITEBYTECODE=1")
			return cmd
		}},
		{"JavaScript", "node", func(t *testing.T, node string) *exec.Cmd {
			packages := installNode(t, javaScriptSDK)
			script := nodeScript(t, packages, "a2a_js.mjs")
			cmd := exec.CommandContext(within(t, 3*time.Minute), node, script)
			cmd.Env = os.Environ()
			return cmd
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd := c.command(t, interpreter(t, c.interpreter))
			h := testhub.Start(t, on, receiversHere)
			work(t, client.New(h.URL, h.Agent("coder")))
			cmd.Env = append(cmd.Env, "AGENT_URL="+h.URL+"/a/coder", "AGENT_TOKEN="+h.Agent("caller"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// receiversHere lets the hub notify receivers on this machine.
func receiversHere(cfg *config.Config) { cfg.EgressAllowLocal = "1024-65535" }

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

// interpreter finds a program. Where it is not installed a test that needs it is skipped,
// but never in CI.
func interpreter(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(name + " is not installed")
	}
	return path
}

// install gives a folder with Python packages.
func install(t *testing.T, python string, packages []string) string {
	t.Helper()
	return installed(t, "e2e-python", python, packages, func(fresh string) *exec.Cmd {
		args := append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", fresh}, packages...)
		return exec.CommandContext(within(t, 5*time.Minute), python, args...)
	})
}

// installNode gives a folder with Node packages, in its node_modules.
func installNode(t *testing.T, packages []string) string {
	t.Helper()
	return installed(t, "e2e-node", "npm", packages, func(fresh string) *exec.Cmd {
		args := append([]string{"install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", fresh}, packages...)
		return exec.CommandContext(within(t, 5*time.Minute), "npm", args...)
	})
}

// nodeScript copies a script to where it finds its packages, and gives its path.
func nodeScript(t *testing.T, packages, name string) string {
	t.Helper()
	code, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(packages, name)
	if err := os.WriteFile(path, code, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// installed gives a folder with packages, which it fills if nobody has before. Without a
// network a test that needs them is skipped, but never in CI.
func installed(t *testing.T, kind, tool string, packages []string, command func(fresh string) *exec.Cmd) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", ".cache", kind))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(tool + "\n" + strings.Join(packages, "\n")))
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
	if out, err := command(fresh).CombinedOutput(); err != nil {
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
