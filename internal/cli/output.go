package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/mattn/go-isatty"
	"github.com/spf13/pflag"

	"github.com/holdfast-hub/holdfast/wire"
)

// The forms of output.
const (
	formTable = "table"
	formJSON  = "json"
	formLines = "jsonl"
	formNone  = "none"
)

// outputFlags say how results are written.
type outputFlags struct {
	form  string
	quiet bool
	color string
}

func (o *outputFlags) add(f *pflag.FlagSet) {
	f.StringVarP(&o.form, "output", "o", "", "form of the output: table, json, jsonl or none (HOLDFAST_OUTPUT; table)")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print only the id; of an address its handle, of a new token its secret")
	f.StringVar(&o.color, "color", "auto", "colour: auto, always or never; auto honours NO_COLOR")
}

func (o *outputFlags) check(env map[string]string) error {
	if o.form == "" {
		o.form = env["HOLDFAST_OUTPUT"]
	}
	if o.form == "" || o.form == "text" { // the a2a command calls it text
		o.form = formTable
	}
	switch o.form {
	case formTable, formJSON, formLines, formNone:
	default:
		wrong := o.form
		o.form = formTable
		return usagef("there is no output form %q: choose table, json, jsonl or none", wrong)
	}
	switch o.color {
	case "auto", "always", "never":
		return nil
	}
	return usagef("--color %q is not known: choose auto, always or never", o.color)
}

// machine reports whether a program reads the output.
func (o *outputFlags) machine() bool { return o.form == formJSON || o.form == formLines }

// words reports whether a person reads the output.
func (p *program) words() bool { return p.output.form == formTable && !p.output.quiet }

// show prints one thing: its id for -q, itself as JSON, or as table prints it.
func (p *program) show(v any, id string, table func() error) error {
	switch {
	case p.output.form == formNone:
		return nil
	case p.output.quiet:
		_, err := fmt.Fprintln(p.out, id)
		return err
	case p.output.form == formTable:
		return table()
	}
	return writeJSON(p.out, v, p.output.form == formJSON)
}

// list is a page of things to print.
type list[T any] struct {
	items []T
	next  string // cursor of the next page
	id    func(T) string
	// head names the columns, row fills them.
	head []string
	row  func(T) []string
	// empty says in words that there are none.
	empty string
}

// showList prints a list in the form that was asked for.
func showList[T any](p *program, l list[T]) error {
	switch {
	case p.output.form == formNone:
		return nil
	case p.output.quiet:
		return showEach(l.items, func(v T) error {
			_, err := fmt.Fprintln(p.out, l.id(v))
			return err
		})
	case p.output.form == formLines:
		return showEach(l.items, func(v T) error { return writeJSON(p.out, v, false) })
	case p.output.form == formJSON:
		return writeJSON(p.out, page(l.items, l.next), true)
	}
	if len(l.items) == 0 {
		p.note("%s", l.empty)
		return nil
	}
	rows := make([][]string, 0, len(l.items))
	for _, v := range l.items {
		rows = append(rows, l.row(v))
	}
	if err := p.table(l.head, rows); err != nil {
		return err
	}
	if l.next != "" {
		p.note("There is more: --page-token %s", l.next)
	}
	return nil
}

func showEach[T any](items []T, f func(T) error) error {
	for _, v := range items {
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

// page is a list as the API writes it.
func page[T any](items []T, next string) any {
	if items == nil {
		items = []T{}
	}
	var cursor *string
	if next != "" {
		cursor = &next
	}
	return struct {
		Data []T     `json:"data"`
		Next *string `json:"next_cursor"`
	}{items, cursor}
}

// writeJSON writes one line of JSON, or indented JSON for the eye.
func writeJSON(w io.Writer, v any, indent bool) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if indent {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(v)
}

// table prints rows below a head.
func (p *program) table(head []string, rows [][]string) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	colored, states := p.colored(p.out), slices.Index(head, "STATE")
	for i, row := range append([][]string{head}, rows...) {
		for j, cell := range row {
			if cell = oneLine(cell); cell == "" {
				cell = "-"
			}
			if colored {
				cell = paint(cell, i == 0, j == states)
			}
			row[j] = cell
		}
		fmt.Fprintln(w, strings.Join(row, "\t")) // Flush gives the error
	}
	return w.Flush()
}

// field is a line of a description.
type field struct{ name, value string }

// fields prints those that have a value.
func (p *program) fields(all ...field) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	for _, f := range all {
		if f.value != "" {
			fmt.Fprintf(w, "%s:\t%s\n", f.name, oneLine(f.value)) // Flush gives the error
		}
	}
	return w.Flush()
}

// paint colours a cell. All codes have the same length, so that columns stay even.
func paint(cell string, head, state bool) string {
	code := "00"
	switch {
	case head:
		code = "01"
	case !state:
	case cell == "completed":
		code = "32"
	case cell == "failed", cell == "rejected":
		code = "31"
	case cell == "input_required", cell == "auth_required":
		code = "33"
	case cell == "working", cell == "submitted":
		code = "36"
	}
	return "\x1b[" + code + "m" + cell + "\x1b[0m"
}

// colored reports whether what is written to w may have colour.
func (p *program) colored(w io.Writer) bool {
	switch p.output.color {
	case "always":
		return true
	case "never":
		return false
	}
	return p.env["NO_COLOR"] == "" && p.env["TERM"] != "dumb" && isTerminal(w)
}

// isTerminal reports whether a person sits at the other end.
func isTerminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// clean takes from a text of others what could command a terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// oneLine is clean for a cell of a table.
func oneLine(s string) string { return strings.Join(strings.Fields(clean(s)), " ") }

// moment writes a time for people, in the zone of the logs and of JSON.
func moment(t *wire.Time) string {
	if t == nil || t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// ago writes how long something is past.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return ""
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// confirm asks before something is destroyed. Without a terminal it never asks: the
// user has to say --yes.
func (p *program) confirm(yes bool, format string, args ...any) error {
	if yes {
		return nil
	}
	what := fmt.Sprintf(format, args...)
	if !isTerminal(p.in) || !isTerminal(p.err) {
		return usagef("%s To do it without being asked, add --yes.", what)
	}
	fmt.Fprintf(p.err, "%s Go on? [y/N] ", what)
	var answer string
	_, _ = fmt.Fscanln(p.in, &answer) // an empty line is a no
	if answer = strings.ToLower(answer); answer == "y" || answer == "yes" {
		return nil
	}
	return &failure{exit: exitError, code: "declined", message: "nothing was changed"}
}
