package arch

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// -update writes what the tests of this file would else complain about.
var update = flag.Bool("update", false, "write the generated parts of the documentation")

// TestSettingsAreDocumented holds the table of docs/settings.md equal to
// internal/config.
func TestSettingsAreDocumented(t *testing.T) {
	var want strings.Builder
	want.WriteString("| flag | environment | default | meaning |\n| --- | --- | --- | --- |\n")
	cfg := config.Default()
	for _, s := range cfg.Settings() {
		name, value := "`--"+s.Name+"`", s.Value.String()
		if s.EnvOnly {
			name = "none, it is a secret"
		}
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&want, "| %s | `%s` | %s | %s |\n", name, s.Env(), value, s.Doc)
	}
	generated(t, "docs/settings.md", "settings", want.String())
}

// TestActivityKindsAreDocumented holds the kinds that docs/operations.md lists equal
// to those of internal/hub.
func TestActivityKindsAreDocumented(t *testing.T) {
	source := read(t, "internal/hub/task.go")
	rows := regexp.MustCompile(`(?m)^\tAct\w+ +ActivityKind = "(\w+)" +// (.+)$`).FindAllStringSubmatch(source, -1)
	if len(rows) < 10 || rows[0][1] != string(hub.ActSent) {
		t.Fatalf("found %d kinds of activity in internal/hub/task.go; has their form changed?", len(rows))
	}
	var want strings.Builder
	want.WriteString("| kind | what happened |\n| --- | --- |\n")
	for _, r := range rows {
		fmt.Fprintf(&want, "| `%s` | %s |\n", r[1], r[2])
	}
	generated(t, "docs/operations.md", "activity", want.String())
}

// generated compares the part of a page between two comments with what it should be.
func generated(t *testing.T, page, name, want string) {
	t.Helper()
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	text := read(t, page)
	before, rest, ok := strings.Cut(text, begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no part between %q and %q", page, begin, end)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s is out of date; run: go test ./internal/arch -update\n%s", page, cmp.Diff(want, got))
	}
	if err := os.WriteFile(filepath.Join(root, page), []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestMetricsAreDocumented finds each metric of the hub on docs/operations.md, and
// none there that the hub does not have.
func TestMetricsAreDocumented(t *testing.T) {
	have := names(t, `"(holdfast_[a-z_]+)"`, "internal/app")
	told := regexp.MustCompile("(?m)^\\| `(holdfast_[a-z_]+)").FindAllStringSubmatch(read(t, "docs/operations.md"), -1)
	var list []string
	for _, m := range told {
		list = append(list, m[1])
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if len(have) == 0 {
		t.Fatal("found no metrics in internal/app; has their form changed?")
	}
	if diff := cmp.Diff(have, list); diff != "" {
		t.Errorf("metrics of the hub (-) and of docs/operations.md (+):\n%s", diff)
	}
}

// names finds what the first group of a pattern matches in a package's code.
func names(t *testing.T, pattern, dir string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var list []string
	sources, err := fs.Glob(os.DirFS(root), dir+"/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		for _, m := range re.FindAllStringSubmatch(read(t, name), -1) {
			list = append(list, m[1])
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
)

// TestLinksLeadSomewhere follows the links between the pages of this repository,
// headings included.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			where := page
			if target != "" {
				where = path.Join(path.Dir(page), target)
			}
			if _, err := os.Stat(filepath.Join(root, where)); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, where)), anchor) {
				t.Errorf("%s links to %s, but there is no such heading", page, m[1])
			}
		}
	}
}

// pages are the documentation.
func pages(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"*.md", "docs/*.md"} {
		found, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	if len(list) < 5 {
		t.Fatalf("found the pages %q only", list)
	}
	return list
}

// anchors are the names of a page's headings, as GitHub makes them.
func anchors(text string) []string {
	var list []string
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(name, " ", "-"))
	}
	return list
}

// TestEveryPageIsInTheIndex finds each page of docs/ on docs/README.md.
func TestEveryPageIsInTheIndex(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range pages(t) {
		name, in := strings.CutPrefix(page, "docs/")
		if in && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestProgramsInTheDocumentationBuild compiles each Go program that a page shows.
func TestProgramsInTheDocumentationBuild(t *testing.T) {
	program := regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```$")
	module, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	var dirs []string
	for _, page := range pages(t) {
		for i, m := range program.FindAllStringSubmatch(read(t, page), -1) {
			dir := fmt.Sprintf("internal/arch/shown/%s%d", strings.TrimSuffix(path.Base(page), ".md"), i)
			file := filepath.Join(t.TempDir(), "main.go")
			if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			overlay.Replace[filepath.Join(module, dir, "main.go")] = file
			dirs = append(dirs, "./"+dir)
		}
	}
	if len(dirs) == 0 {
		t.Fatal("found no programs in the documentation")
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(list, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", t.TempDir(), "-overlay", list}, dirs...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go build: %v\n%s", err, out)
	}
}

// TestTheTourWorks pastes the tour of the README into a shell.
func TestTheTourWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program and runs it")
	}
	_, tour, _ := strings.Cut(read(t, "README.md"), "\n## A tour")
	tour, _, _ = strings.Cut(tour, "\n## ")
	var script strings.Builder
	for _, m := range regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(tour, -1) {
		script.WriteString(m[1])
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "holdfast"), "./cmd/holdfast")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	pasted := strings.Replace(script.String(), "go build -o holdfast ./cmd/holdfast\n", "", 1)
	free := freeAddress(t)
	pasted = strings.ReplaceAll(pasted, "127.0.0.1:7420", free)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", pasted)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(dir, "config"), "HOLDFAST_LISTEN="+free)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that all of it can be ended
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the tour: %v", err)
	}
	for _, want := range []string{"no worker has asked for @shout", "NOBODY IS THERE YET", "HELLO", "OVER /V1", "OVER A2A"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the tour does not print %q", want)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("the tour leaves %v behind (%v)", left, err)
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// freeAddress is one on loopback that nobody listens on just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
