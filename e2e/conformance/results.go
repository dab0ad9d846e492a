package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
)

// The sections of the file, one for each kit.
const (
	section10 = "A2A 1.0"
	section03 = "A2A 0.3"
)

// results is what came of the kits: a table for each.
type results struct{ tables map[string]*table }

// table is what came of one kit.
type table struct {
	raw     string // as it is in the file, below its heading
	rows    map[string]row
	bad     []string // what did not pass and is on no list
	summary string
}

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
func (r *results) add10(revision string, all, again map[string]requirement, cases []testCase) {
	t := newTable(exceptions, cases)
	var untested, second []string
	must, met := 0, 0
	for _, id := range slices.Sorted(maps.Keys(all)) {
		req := all[id]
		if len(req.Transports) == 0 {
			untested = append(untested, id)
			continue
		}
		for transport, outcome := range req.Transports {
			if _, ok := again[id].Transports[transport]; ok && outcome == "SKIPPED" && !slices.Contains(second, id) {
				second = append(second, id)
			}
		}
		cells := cellsOf(req, again[id], cases)
		t.rows[id] = row{req.Level, cells}
		if req.Level == "MUST" {
			if must++; ok(cells) {
				met++
			}
		}
	}
	var titles []string
	for _, c := range columns10 {
		titles = append(titles, c.title)
	}
	t.summary = fmt.Sprintf("%s: %.1f %% of MUST (%d of %d requirements), apart from what is documented as differing\n", section10, percent(met, must), met, must)
	t.raw = strings.Join([]string{
		"The kit's revision is " + revision + ".", t.markdown("requirement", "level", titles), differences(exceptions, cases),
		"Tested in the second run, at an address that has less: " + strings.Join(second, ", ") + ".",
		"The kit has no test for " + strings.Join(untested, ", ") + ".",
	}, "\n\n")
	r.tables[section10] = t
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
		cell := strings.ToLower(outcome)
		if outcome == "SKIPPED" {
			cell = skip
		}
		if cell == fail && differing && !failing {
			cell = differs
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
func (r *results) add03(revision string, by map[string][]testCase) {
	var all []testCase
	var titles []string
	for _, transport := range transports03 {
		titles = append(titles, transport.name)
		all = append(all, by[transport.name]...)
	}
	t := newTable(exceptions03, all)
	met, run := map[string]int{}, map[string]int{}
	for _, transport := range transports03 {
		for _, c := range by[transport.name] {
			name := strings.TrimPrefix(strings.TrimPrefix(c.node, "tests/optional/"), "tests/")
			if t.rows[name].cells == nil {
				t.rows[name] = row{c.level, map[string]string{}}
			}
			cell := c.outcome
			if excused(exceptions03, c) != nil {
				cell = differs
			} else {
				run[c.level]++
			}
			if cell == pass {
				met[c.level]++
			}
			t.rows[name].cells[transport.name] = cell
		}
	}
	for _, level := range slices.Sorted(maps.Keys(run)) {
		t.summary += fmt.Sprintf("%s: %d of %d %s tests over three transports, apart from what is documented as differing\n", section03, met[level], run[level], level)
	}
	t.raw = strings.Join([]string{
		"The kit's revision is " + revision + ".", t.markdown("test", "category", titles), differences(exceptions03, all),
	}, "\n\n")
	r.tables[section03] = t
}

// newTable is a table without rows that knows what did not pass without an excuse.
func newTable(list []exception, cases []testCase) *table {
	t := &table{rows: map[string]row{}}
	for _, c := range cases {
		if c.outcome != pass && excused(list, c) == nil {
			t.bad = append(t.bad, fmt.Sprintf("%s: %s: %s", c.outcome, c.node, firstLine(c.why)))
		}
	}
	return t
}

// ok reports whether nothing failed.
func ok(cells map[string]string) bool {
	for _, cell := range cells {
		if cell != pass && cell != differs {
			return false
		}
	}
	return true
}

func percent(part, whole int) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
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
		return "Nothing differs."
	}
	b.WriteString("What differs, and why:\n")
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

// keep takes over what was not measured this time.
func (r *results) keep(before *results) {
	for name, t := range before.tables {
		if r.tables[name] == nil {
			r.tables[name] = t
		}
	}
}

// summary is a line for each kit that was run.
func (r *results) summary() string {
	var b strings.Builder
	for _, name := range []string{section10, section03} {
		if t := r.tables[name]; t != nil {
			b.WriteString(t.summary)
		}
	}
	return b.String()
}

const preface = `# Results of the A2A conformance kits

This file is made by ` + "`make conformance TCK=dir TCK03=dir`" + `, and is not to be edited. [A2A
conformance](conformance.md) says what the kits are run against.

- *pass*: every test passed.
- *differs*: a test fails or is skipped that may, for the reason below the table.
`

// write writes the file.
func (r *results) write(file string) error {
	var b strings.Builder
	b.WriteString(preface)
	for _, name := range []string{section10, section03} {
		if t := r.tables[name]; t != nil {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", name, strings.TrimSpace(t.raw))
		}
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	return nil
}

// readResults reads the file as write wrote it; one that is not there has nothing in it.
func readResults(file string) (*results, error) {
	r := &results{tables: map[string]*table{}}
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the results of before: %w", err)
	}
	for part := range strings.SplitSeq("\n"+string(data), "\n## ") {
		name, raw, _ := strings.Cut(part, "\n")
		if name == section10 || name == section03 {
			r.tables[name] = &table{raw: raw, rows: readRows(raw)}
		}
	}
	return r, nil
}

// readRows reads the rows of a section's table.
func readRows(raw string) map[string]row {
	rows, titles := map[string]row{}, []string(nil)
	for line := range strings.SplitSeq(raw, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || len(cells) < 3 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if titles == nil {
			titles = cells
			continue
		}
		is := row{level: cells[1], cells: map[string]string{}}
		for i := 2; i < len(cells) && i < len(titles); i++ {
			is.cells[titles[i]] = cells[i]
		}
		rows[cells[0]] = is
	}
	return rows
}
