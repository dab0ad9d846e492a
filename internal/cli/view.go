package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-hub/holdfast/client"
)

// viewer prints what happens to a task as it happens: what it makes on stdout, what
// else there is to say on stderr; or each event as a line of JSON.
type viewer struct {
	p    *program
	to   string
	t    client.Task // as far as it is known
	seq  int64
	seen bool // an event came
	// shown are the artifacts of which something was printed; open is a line that has
	// not ended yet.
	shown map[string]bool
	open  bool
}

func (p *program) viewer(to string) *viewer {
	return &viewer{p: p, to: to, shown: map[string]bool{}}
}

func (v *viewer) event(e client.Event) error {
	if e.Task != nil && !v.seen && v.p.output.quiet {
		fmt.Fprintln(v.p.out, e.Task.ID)
	}
	v.seen, v.seq = true, max(v.seq, e.Seq)
	t, before := v.t.ID, v.t.State
	v.t.Fold(e)
	v.t.ID = first(v.t.ID, t)
	switch {
	case v.p.output.quiet, v.p.output.form == formNone:
		return nil
	case v.p.output.machine():
		return writeJSON(v.p.out, e, false)
	}
	if e.Status != nil && e.Status.State == before && e.Text() == "" {
		return nil // nothing new
	}
	return v.say(e)
}

// say tells an event in words.
func (v *viewer) say(e client.Event) error {
	switch {
	case e.Task != nil:
		v.p.note("Task %s is with @%s: %s.", e.Task.ID, v.to, e.Task.State)
		for _, a := range e.Task.Artifacts {
			if err := v.artifact(a, false); err != nil {
				return err
			}
		}
	case e.Artifact != nil:
		return v.artifact(*e.Artifact, e.Append)
	case e.Status != nil && !client.Settled(e.Status.State):
		if isTerminal(v.p.out) { // elsewhere a result stays in one piece
			v.line()
		}
		if s := oneLine(e.Text()); s != "" {
			v.p.note("%s: %s", e.Status.State, s)
		} else {
			v.p.note("%s", e.Status.State)
		}
	}
	return nil
}

// artifact prints a piece of an artifact behind the one before, so that a text that
// comes in chunks reads as one.
func (v *viewer) artifact(a client.Artifact, more bool) error {
	if !more || !v.shown[a.ArtifactID] {
		v.line()
	}
	v.shown[a.ArtifactID] = true
	body := content(a.Parts)
	if isTerminal(v.p.out) {
		body = clean(body)
	}
	if body != "" {
		v.open = !strings.HasSuffix(body, "\n")
	}
	_, err := fmt.Fprint(v.p.out, body)
	return err
}

// line ends a line that is open.
func (v *viewer) line() {
	if v.open {
		fmt.Fprintln(v.p.out)
		v.open = false
	}
}

// end says how the task stands, and gives the exit code for it.
func (v *viewer) end() error {
	v.line()
	if v.p.words() && v.t.ID != "" {
		if len(v.shown) == 0 {
			if err := v.p.result(resultParts(&v.t)); err != nil {
				return err
			}
		}
		v.p.verdict(v.to, &v.t, len(v.shown) == 0)
	}
	return tell(v.t.State)
}

// interrupted tells how to come back.
func (v *viewer) interrupted(ctx context.Context, id string) error {
	v.line()
	code := v.p.detached(ctx, v.to, id)
	if v.seq > 0 {
		v.p.note("To see the events from here on: holdfast subscribe @%s %s --after %d", v.to, id, v.seq)
	}
	return code
}
