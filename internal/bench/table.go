package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
)

// Row is one line of the table.
type Row struct {
	What     string
	Measured float64
	Unit     string // of Measured and Baseline
	// Baseline is what was measured beside it, and Against says what that is; empty
	// for none.
	Baseline float64
	Against  string
	// Judged is what the bar is about: Measured ÷ Baseline if Ratio, else Measured.
	Ratio bool
	// Bar and Stretch are where Judged should be: at least, or with Less at most.
	// Zero for none.
	Bar, Stretch float64
	Less         bool
}

// Judged is the figure that is held against the bar.
func (r Row) Judged() float64 {
	if r.Ratio {
		return r.Measured / r.Baseline
	}
	return r.Measured
}

// Verdict says in a word whether the bar was met: "stretch", "met", "MISSED", or
// empty for a line without a bar.
func (r Row) Verdict() string {
	switch {
	case r.Bar == 0 && r.Stretch == 0:
		return ""
	case r.Stretch != 0 && r.reaches(r.Stretch):
		return "stretch"
	case r.Bar != 0 && r.reaches(r.Bar):
		return "met"
	}
	return "MISSED"
}

func (r Row) reaches(mark float64) bool {
	if r.Less {
		return r.Judged() <= mark
	}
	return r.Judged() >= mark
}

// printTable prints the lines; those of a short run without a judgement.
func printTable(out io.Writer, rows []Row, short bool) error {
	if len(rows) == 0 {
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "what\tmeasured\tbaseline\tratio\tbar\tstretch\tverdict")
	for _, r := range rows {
		baseline, ratio := "", ""
		if r.Against != "" {
			baseline = figure(r.Baseline) + " " + r.Against
			ratio = strconv.FormatFloat(r.Measured/r.Baseline, 'f', 2, 64)
		}
		verdict := r.Verdict()
		if short && verdict != "" {
			verdict = "-"
		}
		fmt.Fprintf(w, "%s\t%s %s\t%s\t%s\t%s\t%s\t%s\n", r.What, figure(r.Measured), r.Unit, baseline, ratio, r.mark(r.Bar), r.mark(r.Stretch), verdict)
	}
	if err := w.Flush(); err != nil || !short {
		return err
	}
	_, err := fmt.Fprintln(out, "\nA short run shows that everything works and judges nothing: it measures too little, for too short a time.")
	return err
}

func (r Row) mark(v float64) string {
	switch {
	case v == 0:
		return ""
	case r.Less:
		return "≤ " + figure(v)
	}
	return "≥ " + figure(v)
}

// figure writes a number with about three digits.
func figure(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 || v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// median is the middle of some values, the mean of both middles if there are two.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// percentile is the p-th part (0 to 1) of some durations, in milliseconds.
func percentile(values []time.Duration, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	v := slices.Sorted(slices.Values(values))
	i := min(len(v)-1, int(p*float64(len(v))))
	return float64(v[i]) / float64(time.Millisecond)
}
