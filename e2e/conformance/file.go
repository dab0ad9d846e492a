package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// sum makes the table's lines of the summary: the run, then a sentence and counts for
// each level.
func (t *table) sum(section, what string, levels []string) {
	t.top = []string{fmt.Sprintf("| %s | %s | %s | %s |", section, t.about.kit, t.about.date, t.about.hub)}
	for _, level := range levels {
		c := t.counts[level]
		tested := c[pass] + c[differs] + c[skipped] + c[fail]
		if tested == 0 {
			continue
		}
		line := fmt.Sprintf("- %s, %s: of all %s, %s pass", section, level, what, share(c[pass], tested))
		if c[differs]+c[skipped] > 0 {
			line += fmt.Sprintf("; apart from the documented list, %s", share(c[pass], c[pass]+c[fail]))
		}
		if c[none] > 0 {
			line += fmt.Sprintf("; the kit has no test of %d more, of which the hub's own tests cover %d", c[none], t.own[level])
		}
		cells := []string{section, level}
		for _, v := range verdicts[1:] {
			cells = append(cells, fmt.Sprint(c[v]))
		}
		t.top = append(t.top, line, "| "+strings.Join(append(cells, fmt.Sprint(c[none])), " | ")+" |")
	}
}

// share says how many of how many, also in per cent.
func share(part, whole int) string {
	percent := 100.0
	if whole > 0 {
		percent = 100 * float64(part) / float64(whole)
	}
	return fmt.Sprintf("%d of %d (%.1f %%)", part, whole, percent)
}

// keep takes over what was not measured this time.
func (r *results) keep(before *results) {
	for name, t := range before.tables {
		if r.tables[name] == nil {
			r.tables[name] = t
		}
	}
}

// lines are those of the summary that begin like one of them, of all kits.
func (r *results) lines(begin string, columns int) string {
	var b strings.Builder
	for _, name := range []string{section10, section03} {
		if t := r.tables[name]; t != nil {
			for _, line := range t.top {
				if strings.HasPrefix(line, begin) && strings.Count(line, "|") == columns {
					b.WriteString(line + "\n")
				}
			}
		}
	}
	return b.String()
}

// summary is a line for each level of each kit that was run.
func (r *results) summary() string { return r.lines("- ", 0) }

const preface = `# Results of the A2A conformance kits

This file is made by ` + "`make conformance TCK=dir TCK03=dir`" + `, and is not to be edited. [A2A
conformance](conformance.md) says what the kits are run against.

## Summary

| specification | kit | run on | hub |
| --- | --- | --- | --- |
%s
%s
| specification | level | n/a | pass | differs | skipped | fail | no test |
| --- | --- | --- | --- | --- | --- | --- | --- |
%s
For A2A 1.0 a requirement counts once, with the worst verdict that it has over any transport.
For 0.3 a test counts once for each transport.

- *pass*: every test passed.
- *differs*: a test fails, and is on the list below the table of those that may.
- *skipped*: the kit does not run a test, for the reason on that list. It counts as not passed.
- *n/a*: the test is for another transport.
- *fail*: a test fails, and nothing excuses it.
- *no test*: the kit has the requirement on its list, and no test of it.
`

// write writes the file.
func (r *results) write(file string) error {
	var b strings.Builder
	fmt.Fprintf(&b, preface, r.lines("| ", runColumns), r.lines("- ", 0), r.lines("| ", countColumns))
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

// How many bars the rows of the summary's tables have.
const (
	runColumns   = 5
	countColumns = 9
)

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
	top, _, _ := strings.Cut(string(data), "\n## "+section10)
	for part := range strings.SplitSeq("\n"+string(data), "\n## ") {
		name, raw, _ := strings.Cut(part, "\n")
		if name == section10 || name == section03 {
			r.tables[name] = &table{raw: raw, rows: readRows(raw), top: linesOf(top, name)}
		}
	}
	return r, nil
}

// linesOf picks the lines of a section from the summary.
func linesOf(summary, section string) []string {
	var lines []string
	for line := range strings.SplitSeq(summary, "\n") {
		if strings.HasPrefix(line, "| "+section+" ") || strings.HasPrefix(line, "- "+section+",") {
			lines = append(lines, line)
		}
	}
	return lines
}

// readRows reads the rows of a section's first table.
func readRows(raw string) map[string]row {
	rows, titles := map[string]row{}, []string(nil)
	for line := range strings.SplitSeq(raw, "\n") {
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if titles != nil && line == "" {
			break
		}
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
