package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The outcomes of a test.
const (
	pass = "pass"
	fail = "fail"
	skip = "skip"
	// expected is what pytest calls an expected failure: the kit's way to say that a
	// SHOULD or MAY is not met.
	expected = "xfail"
)

// checkout is a kit to run.
type checkout struct {
	dir string
	tmp string    // for its reports
	out io.Writer // gets what pytest says
	env []string  // is added to its environment
}

// testCase is one test of a kit, and what came out.
type testCase struct {
	node    string // pytest's name for it
	outcome string
	why     string // it did not pass
	level   string // or category
	over    string // the transport, if the kit was told which to take
}

// pytest runs tests of the kit and reads what came of each. That some fail is no
// error; that they could not be run is.
func (c checkout) pytest(ctx context.Context, report string, args ...string) ([]testCase, error) {
	junit := report + ".xml"
	cmd := exec.CommandContext(ctx, c.python(), append([]string{"-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "--junitxml=" + junit}, args...)...)
	cmd.Dir = c.dir
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), c.env...)
	cmd.Stdout, cmd.Stderr = c.out, c.out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: some failed
		return nil, fmt.Errorf("run the kit in %s: %w; its environment is made there with: python3 -m venv .venv && .venv/bin/pip install -e $PWD", c.dir, err)
	}
	return readJUnit(junit)
}

// python is the interpreter of the kit's own environment, if it has one.
func (c checkout) python() string {
	own := filepath.Join(c.dir, ".venv", "bin", "python")
	if abs, err := filepath.Abs(own); err == nil {
		if _, err := os.Stat(abs); err == nil {
			return abs
		}
	}
	return "python3"
}

// about describes a run of the kit.
func (c checkout) about(ctx context.Context) about {
	kit := "a2a-tck " + git(ctx, c.dir, "rev-parse", "--short=12", "HEAD")
	if tag := git(ctx, c.dir, "describe", "--tags", "--exact-match"); tag != unknown {
		kit += ", tag " + tag
	}
	var version struct{ Branch, CommitHash string }
	if data, err := os.ReadFile(filepath.Join(c.dir, "specification", "version.json")); err == nil && json.Unmarshal(data, &version) == nil {
		kit += fmt.Sprintf(", with the specification %s (%.12s)", version.Branch, version.CommitHash)
	}
	hub := "revision " + git(ctx, ".", "rev-parse", "--short=12", "HEAD")
	if git(ctx, ".", "status", "--porcelain", "--", "*.go", "go.mod") != "" {
		hub += " and changes that were not committed"
	}
	return about{kit, time.Now().UTC().Format(time.DateOnly), hub}
}

const unknown = "of unknown revision"

func git(ctx context.Context, dir string, args ...string) string {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", dir}, args...)...).Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(out))
}

// readJUnit reads pytest's report in JUnit's format.
func readJUnit(file string) ([]testCase, error) {
	type reason struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
	}
	var report struct {
		Cases []struct {
			Class   string  `xml:"classname,attr"`
			Name    string  `xml:"name,attr"`
			Failure *reason `xml:"failure"`
			Error   *reason `xml:"error"`
			Skipped *reason `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = xml.Unmarshal(data, &report)
	}
	if err != nil {
		return nil, fmt.Errorf("read pytest's report: %w", err)
	}
	var all []testCase
	for _, c := range report.Cases {
		t := testCase{node: nodeOf(c.Class, c.Name), outcome: pass}
		switch {
		case c.Failure != nil:
			t.outcome, t.why = fail, c.Failure.Message
		case c.Error != nil:
			t.outcome, t.why = fail, c.Error.Message
		case c.Skipped != nil && c.Skipped.Type == "pytest.xfail":
			t.outcome, t.why = expected, c.Skipped.Message
		case c.Skipped != nil:
			t.outcome, t.why = skip, c.Skipped.Message
		}
		all = append(all, t)
	}
	return all, nil
}

// nodeOf is pytest's name for a test of the report: the class there is the path of the
// file with dots, and then that of a class if there is one.
func nodeOf(class, name string) string {
	parts := strings.Split(class, ".")
	for i, p := range parts {
		if strings.HasPrefix(p, "test_") {
			node := strings.Join(parts[:i+1], "/") + ".py"
			return strings.Join(append(append([]string{node}, parts[i+1:]...), name), "::")
		}
	}
	return class + "::" + name
}

// nodesOf is the names of the tests with an outcome.
func nodesOf(all []testCase, outcome string) []string {
	var nodes []string
	for _, t := range all {
		if t.outcome == outcome {
			nodes = append(nodes, t.node)
		}
	}
	return nodes
}

// merge takes from a second run what the first one skipped.
func merge(first, second []testCase) []testCase {
	again := map[string]testCase{}
	for _, t := range second {
		again[t.node] = t
	}
	merged := make([]testCase, 0, len(first))
	for _, t := range first {
		if other, ok := again[t.node]; ok && t.outcome == skip {
			t = other
		}
		merged = append(merged, t)
	}
	return merged
}

// mergeAll takes from a second run what it has, whatever the first one said.
func mergeAll(first, second []testCase) []testCase {
	again := map[string]testCase{}
	for _, t := range second {
		again[t.node] = t
	}
	merged := make([]testCase, 0, len(first))
	for _, t := range first {
		if other, ok := again[t.node]; ok {
			t = other
		}
		merged = append(merged, t)
	}
	return merged
}

// requirement is what the kit for 1.0 says of one requirement of the specification.
type requirement struct {
	Level      string            `json:"level"`
	Status     string            `json:"status"`
	Transports map[string]string `json:"transports"`
	TestIDs    []string          `json:"test_ids"`
}

// readRequirements reads the kit's own report.
func readRequirements(file string) (map[string]requirement, error) {
	var report struct {
		PerRequirement map[string]requirement `json:"per_requirement"`
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &report)
	}
	if err != nil {
		return nil, fmt.Errorf("read the kit's report: %w", err)
	}
	return report.PerRequirement, nil
}
