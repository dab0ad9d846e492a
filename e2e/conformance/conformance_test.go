package main

import (
	"os"
	"path/filepath"
	"slices"
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
	r.add10(about{"kit abc", "2030-01-02", "hub def"}, map[string]requirement{
		"CORE-SEND-001": {"MUST", "PASS", map[string]string{"grpc": "PASS", "jsonrpc": "PASS"}, nil},
		"CORE-CAP-001":  {"MUST", "SKIPPED", map[string]string{"jsonrpc": "SKIPPED"}, []string{off}},
		"GRPC-ERR-002":  {"MUST", "FAIL", map[string]string{"grpc": "FAIL"}, []string{version}},
		"CORE-HIST-001": {"SHOULD", "PASS", map[string]string{"grpc": "PASS"}, nil},
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
	want := "- A2A 1.0, MUST: of all requirements with a test, 2 of 3 (66.7 %) pass; apart from the documented list, 2 of 2 (100.0 %); the kit has no test of 1 more, of which the hub's own tests cover 1\n" +
		"- A2A 1.0, SHOULD: of all requirements with a test, 1 of 1 (100.0 %) pass\n"
	if d := cmp.Diff(want, r.summary()); d != "" {
		t.Error(d)
	}
	if !strings.Contains(r.tables[section10].raw, "| CARD-SIGN-001 | MUST | `TestCanonicalCard`") {
		t.Error(r.tables[section10].raw)
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
	r.tables[section10].rows["CORE-CAP-001"].cells["JSON-RPC"] = skipped
	delete(r.tables[section10].rows, "CORE-SEND-001")
	r.tables[section10].rows["GRPC-ERR-002"].cells["gRPC"] = fail // differed before
	got := r.worseThan(before)
	want := "A2A 1.0: CORE-CAP-001 over JSON-RPC passed before, and is now: skipped\n" +
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

// TestVerdicts: a skip is no pass, whoever excuses it, and an excuse is for the tests that
// it names only.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		node, outcome, why, over, want string
		excused                        bool
	}{
		{node: "x.py::test_json_rpc_batch_requests", outcome: pass, want: pass},
		{node: "x.py::test_json_rpc_batch_requests", outcome: skip, why: "Test specific to JSON-RPC", want: other, excused: true},
		{node: "x.py::test_new", outcome: skip, why: "Test specific to JSON-RPC", want: skipped},
		{node: "x.py::test_streaming_connection_resilience", outcome: skip, why: "flaky", want: skipped, excused: true},
		{node: "x.py::test_tls_version", outcome: skip, why: "not HTTPS", want: skipped},
		{node: "x.py::test_new", outcome: skip, why: "flaky", want: skipped},
		{node: "x.py::test_new", outcome: skip, why: "no schemes declared", want: skipped},
		{node: "x.py::test_http_to_https_redirect", outcome: fail, why: "got status code 400", want: differs, excused: true},
		{node: "x.py::test_https_url_in_agent_card", outcome: expected, why: "no https in agent card", want: fail},
		{node: "x.py::test_invalid_authentication", outcome: skip, over: "gRPC", why: "no schemes declared", want: skipped, excused: true},
		{node: "x.py::test_invalid_authentication", outcome: skip, over: "JSON-RPC", why: "no schemes declared", want: skipped},
		{node: "x.py::test_new", outcome: expected, want: fail},
		{node: "x.py::test_message_send_valid_file_part", outcome: fail, over: "gRPC", want: differs, excused: true},
		{node: "x.py::test_message_send_valid_file_part", outcome: fail, over: "JSON-RPC", want: fail},
	} {
		is := testCase{node: c.node, outcome: c.outcome, why: c.why, over: c.over}
		if got, excuse := verdict(exceptions03, is), excused(exceptions03, is) != nil; got != c.want || excuse != c.excused {
			t.Errorf("%s that is %s because of %q over %q: %s, excused: %t", c.node, c.outcome, c.why, c.over, got, excuse)
		}
	}
}

// TestGuardedRun: a test that found no credentials or no TLS is run again, and counts as it
// comes out then, be it worse.
func TestGuardedRun(t *testing.T) {
	first := []testCase{
		{node: "a", outcome: pass, why: "HTTPS"}, {node: "b", outcome: skip, why: "SUT is not HTTPS"},
		{node: "c", outcome: expected, why: "no https in agent card"}, {node: "d", outcome: skip, why: "No security schemes declared"},
		{node: "e", outcome: skip, why: "flaky"},
	}
	var again []string
	for _, c := range first {
		if unguarded(c) {
			again = append(again, c.node)
		}
	}
	if want := []string{"b", "c", "d"}; !slices.Equal(again, want) {
		t.Errorf("run again are %v, want %v", again, want)
	}
	second := []testCase{{node: "b", outcome: pass}, {node: "c", outcome: fail}, {node: "d", outcome: pass}}
	want := []testCase{first[0], second[0], second[1], second[2], first[4]}
	if d := cmp.Diff(want, mergeAll(first, second), cmp.AllowUnexported(testCase{})); d != "" {
		t.Error(d)
	}
}

// TestExceptionsNameTheirTests: one that does not would hide what is new.
func TestExceptionsNameTheirTests(t *testing.T) {
	for _, e := range slices.Concat(exceptions, exceptions03) {
		if len(e.tests) == 0 || e.reason == "" || e.outcome == "" {
			t.Errorf("%+v", e)
		}
	}
}

// TestCovered: the tests that the file names are there.
func TestCovered(t *testing.T) {
	source := map[string]string{}
	for id, c := range covered {
		for _, name := range c.tests {
			dir, test, found := strings.Cut(name, ": ")
			if !found {
				dir, test = "internal/face/a2a", name
			}
			if source[dir] == "" {
				source[dir] = testsIn(t, dir)
			}
			test, sub, _ := strings.Cut(test, "/")
			if !strings.Contains(source[dir], "func "+test+"(t *testing.T)") || !strings.Contains(source[dir], `{"`+sub) {
				t.Errorf("%s: there is no test %s", id, name)
			}
		}
		if len(c.tests) == 0 && c.note == "" {
			t.Errorf("%s: neither tests nor a reason", id)
		}
	}
}

// testsIn is the text of a package's tests.
func testsIn(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", dir, files, err)
	}
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
