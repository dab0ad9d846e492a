package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const junit = `<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="tests.compatibility.grpc.test_status_codes.TestGrpcStatusCodes" name="test_version_not_supported_returns_unimplemented"><failure message="FAILED_PRECONDITION">long</failure></testcase>
<testcase classname="tests.compatibility.core_operations.test_requirements" name="test_must_requirement[CORE-SEND-001-grpc]"/>
<testcase classname="tests.compatibility.core_operations.test_error_handling.TestCap" name="test_off"><skipped type="pytest.skip" message="it is on"/></testcase>
<testcase classname="tests.compatibility.core_operations.test_x" name="test_should"><skipped type="pytest.xfail" message="not met"/></testcase>
<testcase classname="tests.compatibility.core_operations.test_x" name="test_broken"><error message="no card"/></testcase>
</testsuite></testsuites>`

func cases(t *testing.T) []testCase {
	t.Helper()
	file := filepath.Join(t.TempDir(), "junit.xml")
	if err := os.WriteFile(file, []byte(junit), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readJUnit(file)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReadJUnit(t *testing.T) {
	want := []testCase{
		{node: "tests/compatibility/grpc/test_status_codes.py::TestGrpcStatusCodes::test_version_not_supported_returns_unimplemented", outcome: fail, why: "FAILED_PRECONDITION"},
		{node: "tests/compatibility/core_operations/test_requirements.py::test_must_requirement[CORE-SEND-001-grpc]", outcome: pass},
		{node: "tests/compatibility/core_operations/test_error_handling.py::TestCap::test_off", outcome: skip, why: "it is on"},
		{node: "tests/compatibility/core_operations/test_x.py::test_should", outcome: expected, why: "not met"},
		{node: "tests/compatibility/core_operations/test_x.py::test_broken", outcome: fail, why: "no card"},
	}
	if d := cmp.Diff(want, cases(t), cmp.AllowUnexported(testCase{})); d != "" {
		t.Error(d)
	}
}

// sample is the results of a run in which one test was skipped at first.
func sample(t *testing.T) *results {
	t.Helper()
	all := cases(t)
	off, version := all[2].node, all[0].node
	r := &results{tables: map[string]*table{}}
	r.add10("abc", map[string]requirement{
		"CORE-SEND-001": {"MUST", "PASS", map[string]string{"grpc": "PASS", "jsonrpc": "PASS"}, nil},
		"CORE-CAP-001":  {"MUST", "SKIPPED", map[string]string{"jsonrpc": "SKIPPED"}, []string{off}},
		"GRPC-ERR-002":  {"MUST", "FAIL", map[string]string{"grpc": "FAIL"}, []string{version}},
		"CARD-SIGN-001": {"MUST", "NOT TESTED", nil, nil},
	}, map[string]requirement{"CORE-CAP-001": {Transports: map[string]string{"jsonrpc": "PASS"}}},
		merge(all, []testCase{{node: off, outcome: pass}}))
	return r
}

// TestResults: what passed only in the second run counts, what is on the list differs,
// and all else that did not pass is a problem.
func TestResults(t *testing.T) {
	r := sample(t)
	for id, want := range map[string]map[string]string{
		"CORE-SEND-001": {"gRPC": pass, "JSON-RPC": pass}, "CORE-CAP-001": {"JSON-RPC": pass}, "GRPC-ERR-002": {"gRPC": differs},
	} {
		if d := cmp.Diff(want, r.tables[section10].rows[id].cells); d != "" {
			t.Errorf("%s: %s", id, d)
		}
	}
	err := r.problems()
	if err == nil || strings.Contains(err.Error(), "test_off") || strings.Contains(err.Error(), "version") ||
		!strings.Contains(err.Error(), "test_should") || !strings.Contains(err.Error(), "test_broken") {
		t.Errorf("problems: %v", err)
	}
	if s := r.summary(); !strings.Contains(s, "100.0 % of MUST (3 of 3") {
		t.Error(s)
	}
}

// TestFile: what was written can be read again, and what got worse is told.
func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.md")
	if before, err := readResults(file); err != nil || len(before.tables) != 0 {
		t.Fatalf("no file: %+v, %v", before, err)
	}
	r := sample(t)
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	before, err := readResults(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.worseThan(before); err != nil {
		t.Errorf("the same is worse: %v", err)
	}
	r.tables[section10].rows["CORE-CAP-001"].cells["JSON-RPC"] = skip
	delete(r.tables[section10].rows, "CORE-SEND-001")
	r.tables[section10].rows["GRPC-ERR-002"].cells["gRPC"] = fail // differed before
	got := r.worseThan(before)
	want := "A2A 1.0: CORE-CAP-001 over JSON-RPC passed before, and is now: skip\n" +
		"A2A 1.0: CORE-SEND-001 over JSON-RPC passed before, and is now: not there\n" +
		"A2A 1.0: CORE-SEND-001 over gRPC passed before, and is now: not there"
	if got == nil || got.Error() != want {
		t.Errorf("got %v, want %s", got, want)
	}

	other := &results{tables: map[string]*table{}}
	other.keep(before)
	if err := other.write(file + "2"); err != nil {
		t.Fatal(err)
	}
	one, _ := os.ReadFile(file)
	two, _ := os.ReadFile(file + "2")
	if string(one) != string(two) {
		t.Errorf("what was not measured changed:\n%s\n%s", one, two)
	}
}

// TestHiddenFailure: the kit tells of one result for each transport only, which may
// hide a failure.
func TestHiddenFailure(t *testing.T) {
	got := cellsOf(requirement{"MUST", "FAIL", map[string]string{"jsonrpc": "PASS"}, []string{"x"}}, requirement{}, []testCase{{node: "x", outcome: fail}})
	if got["JSON-RPC"] != fail {
		t.Errorf("got %v", got)
	}
}
