package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The sections of the file, one for each kit.
const (
	section10 = "A2A 1.0"
	section03 = "A2A 0.3"
)

// The verdicts on a test or requirement, besides pass and fail.
const (
	differs = "differs" // it fails and is on the list of what may
	skipped = "skipped"
	other   = "n/a" // it is for another transport
	none    = "no test"
)

// verdicts is all of them, as the summary has them. Of those of several tests the last
// one counts.
var verdicts = []string{none, other, pass, differs, skipped, fail}

// results is what came of the kits: a table for each.
type results struct{ tables map[string]*table }

// table is what came of one kit.
type table struct {
	about  about
	raw    string // as it is in the file, below its heading
	rows   map[string]row
	bad    []string          // what did not pass and is on no list
	counts map[string]counts // by level
	own    map[string]int    // by level, of requirements without a test, what the hub's own tests cover
	top    []string          // its lines of the summary
}

// about is which kit was run, when, and on which hub.
type about struct{ kit, date, hub string }

// counts is how many there are of each verdict.
type counts map[string]int

// row is a requirement or test, and what came of it over each transport.
type row struct {
	level string // or category
	cells map[string]string
}

// columns10 are the transports as the kit for 1.0 calls them, and as the table does.
// What the kit has under no transport is the last.
var columns10 = []struct{ key, title string }{
	{"jsonrpc", "JSON-RPC"}, {"http_json", "HTTP+JSON"}, {"grpc", "gRPC"}, {"agent_card", "card"},
}

// add10 makes the table of the kit for 1.0. again is what it said of requirements in
// the second run.
func (r *results) add10(on about, all, again map[string]requirement, cases []testCase) {
	t := newTable(on, exceptions, cases)
	var untested, second []string
	for _, id := range slices.Sorted(maps.Keys(all)) {
		req := all[id]
		if len(req.Transports) == 0 {
			untested = append(untested, fmt.Sprintf("| %s | %s | %s |", id, req.Level, covered[id]))
			t.count(req.Level, none)
			if len(covered[id].tests) > 0 {
				t.own[req.Level]++
			}
			continue
		}
		for transport, outcome := range req.Transports {
			if _, ok := again[id].Transports[transport]; ok && outcome == "SKIPPED" && !slices.Contains(second, id) {
				second = append(second, id)
			}
		}
		cells := cellsOf(req, again[id], cases)
		t.rows[id] = row{req.Level, cells}
		t.count(req.Level, worst(cells))
	}
	var titles []string
	for _, c := range columns10 {
		titles = append(titles, c.title)
	}
	parts := []string{
		"An empty cell: the requirement is about other transports, or the kit tests it there only.",
		t.markdown("requirement", "level", titles), differences(exceptions, cases),
	}
	if len(second) > 0 {
		parts = append(parts, "Tested in the second run, at an address that has less: "+strings.Join(second, ", ")+".")
	}
	if len(untested) > 0 {
		parts = append(parts, "The kit has no test for these. Names are those of the hub's own tests, in internal/face/a2a if nothing else is said.",
			"| requirement | level | covered by |\n| --- | --- | --- |\n"+strings.Join(untested, "\n"))
	}
	t.raw = strings.Join(parts, "\n\n")
	t.sum(section10, "requirements with a test", []string{"MUST", "SHOULD", "MAY"})
	r.tables[section10] = t
}

// worst is the verdict on a requirement over all transports.
func worst(cells map[string]string) string {
	at := 0
	for _, cell := range cells {
		at = max(at, slices.Index(verdicts, cell))
	}
	return verdicts[at]
}

// cellsOf is what came of a requirement over each transport. What was skipped for
// want of something to refuse counts as in the second run.
func cellsOf(req, again requirement, cases []testCase) map[string]string {
	differing, failing := false, false
	for _, c := range cases {
		if c.outcome != pass && slices.Contains(req.TestIDs, c.node) {
			differing = differing || excused(exceptions, c) != nil
			failing = failing || excused(exceptions, c) == nil
		}
	}
	cells, unexplained := map[string]string{}, req.Status == "FAIL"
	for transport, outcome := range req.Transports {
		if second, ok := again.Transports[transport]; outcome == "SKIPPED" && ok {
			outcome = second
		}
		cell := map[string]string{"PASS": pass, "SKIPPED": skipped}[outcome]
		switch {
		case cell != "":
		case differing && !failing:
			cell = differs
		default:
			cell = fail
		}
		unexplained = unexplained && cell == pass
		cells[columnOf(transport)] = cell
	}
	if unexplained { // a later test over the same transport hides one that failed
		for transport := range cells {
			cells[transport] = fail
			if differing && !failing {
				cells[transport] = differs
			}
		}
	}
	return cells
}

func columnOf(transport string) string {
	for _, c := range columns10 {
		if c.key == transport {
			return c.title
		}
	}
	return columns10[len(columns10)-1].title
}

// add03 makes the table of the kit for 0.3, from the tests over each transport.
func (r *results) add03(on about, by map[string][]testCase) {
	var all []testCase
	var titles []string
	for _, transport := range transports03 {
		titles = append(titles, transport.name)
		all = append(all, by[transport.name]...)
	}
	t := newTable(on, exceptions03, all)
	for _, transport := range transports03 {
		for _, c := range by[transport.name] {
			name := strings.TrimPrefix(strings.TrimPrefix(c.node, "tests/optional/"), "tests/")
			if t.rows[name].cells == nil {
				t.rows[name] = row{c.level, map[string]string{}}
			}
			cell := verdict(exceptions03, c)
			t.count(c.level, cell)
			t.rows[name].cells[transport.name] = cell
		}
	}
	t.raw = strings.Join([]string{t.markdown("test", "category", titles), differences(exceptions03, all)}, "\n\n")
	t.sum(section03, "tests over three transports", []string{"mandatory", "capabilities"})
	r.tables[section03] = t
}

// verdict is the verdict on a test.
func verdict(list []exception, c testCase) string {
	e := excused(list, c)
	switch {
	case c.outcome == pass:
		return pass
	case e != nil && e.other:
		return other
	case c.outcome == skip:
		return skipped
	case e != nil:
		return differs
	}
	return fail
}

// newTable is a table without rows that knows what did not pass without an excuse.
func newTable(on about, list []exception, cases []testCase) *table {
	t := &table{about: on, rows: map[string]row{}, counts: map[string]counts{}, own: map[string]int{}}
	for _, c := range cases {
		if c.outcome != pass && excused(list, c) == nil {
			t.bad = append(t.bad, fmt.Sprintf("%s: %s: %s", c.outcome, c.node, firstLine(c.why)))
		}
	}
	return t
}

func (t *table) count(level, verdict string) {
	if t.counts[level] == nil {
		t.counts[level] = counts{}
	}
	t.counts[level][verdict]++
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// markdown writes the rows.
func (t *table) markdown(what, level string, columns []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s | %s | %s |\n|%s\n", what, level, strings.Join(columns, " | "), strings.Repeat(" --- |", len(columns)+2))
	for _, id := range slices.Sorted(maps.Keys(t.rows)) {
		fmt.Fprintf(&b, "| %s | %s |", id, t.rows[id].level)
		for _, c := range columns {
			fmt.Fprintf(&b, " %s |", t.rows[id].cells[c])
		}
		b.WriteString("\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// differences lists the tests that fell under each exception.
func differences(list []exception, cases []testCase) string {
	var b strings.Builder
	tests := map[string]map[string]bool{} // by reason
	for _, c := range cases {
		if e := excused(list, c); e != nil {
			if tests[e.reason] == nil {
				tests[e.reason] = map[string]bool{}
			}
			tests[e.reason]["`"+shorten(c.node)+"`"] = true
		}
	}
	if len(tests) == 0 {
		return "All that is there passes."
	}
	b.WriteString("What does not pass, and why:\n")
	for _, reason := range slices.Sorted(maps.Keys(tests)) {
		fmt.Fprintf(&b, "\n- %s (%s)", reason, strings.Join(slices.Sorted(maps.Keys(tests[reason])), ", "))
	}
	return b.String()
}

// problems is an error that lists what did not pass and may not, nil if there is none.
func (r *results) problems() error {
	var errs []error
	for _, name := range []string{section10, section03} {
		if t := r.tables[name]; t != nil {
			for _, line := range t.bad {
				errs = append(errs, errors.New(name+": "+line))
			}
		}
	}
	return errors.Join(errs...)
}

// worseThan is an error that lists what passed before and no longer does.
func (r *results) worseThan(before *results) error {
	var errs []error
	for _, name := range []string{section10, section03} {
		now, old := r.tables[name], before.tables[name]
		if now == nil || old == nil {
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(old.rows)) {
			for _, transport := range slices.Sorted(maps.Keys(old.rows[id].cells)) {
				was, is := old.rows[id].cells[transport], now.rows[id].cells[transport]
				if was == pass && is != pass {
					errs = append(errs, fmt.Errorf("%s: %s over %s passed before, and is now: %s", name, id, transport, or(is, "not there")))
				}
			}
		}
	}
	return errors.Join(errs...)
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
