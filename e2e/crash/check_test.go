package crash

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "modernc.org/sqlite" // the driver

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// checkAPI checks through the API that every acknowledged task is there as
// acknowledged, and that subscribers saw what is there.
func (w *world) checkAPI() {
	for id, r := range w.ledger.snapshot() {
		var t task
		if err := w.callers[r.caller].Call(w.ctx, "GET", "/v1/agents/"+r.callee+"/tasks/"+id, nil, &t); err != nil {
			w.problem("an acknowledged task is missing: %v", err)
			continue
		}
		if t.Input.Message.text() != r.payload {
			w.problem("task %s was sent with %q and has %q", id, r.payload, t.Input.Message.text())
		}
		w.checkEnd(r, t)
	}
	for _, f := range w.seen.tasks {
		again := followed{record: f.record}
		if ended, err := w.stream(w.ctx, &again); !ended {
			w.problem("task %s was followed to its end, and now its stream has none: %v", f.id, err)
		}
		if !slices.Equal(again.events, f.events) {
			w.problem("task %s: a subscriber saw %d events, and now there are other %d", f.id, len(f.events), len(again.events))
		}
	}
}

func (w *world) checkEnd(r record, t task) {
	switch {
	case !terminal(t.State):
		w.problem("task %s is stuck: %s", t.ID, t.State)
	case r.canceled && t.State != "canceled":
		w.problem("the acknowledged cancel of task %s is undone: %s", t.ID, t.State)
	case r.end != "" && t.State != r.end:
		w.problem("the acknowledged end of task %s was %s and now is %s", t.ID, r.end, t.State)
	}
	var content strings.Builder
	for _, a := range t.Artifacts {
		content.WriteString(message{Parts: a.Parts}.text())
	}
	if r.end == "completed" && !strings.Contains(content.String(), r.artifacts[len(r.artifacts)-1]) {
		w.problem("the acknowledged artifact of task %s is missing: it has %q", t.ID, content.String())
	}
	for _, text := range r.messages {
		n := 0
		for _, m := range t.History {
			if m.text() == text {
				n++
			}
		}
		if n != 1 {
			w.problem("the acknowledged message %q is %d times in task %s", text, n, t.ID)
		}
	}
}

// checkCopy checks a copy of the database of a hub that does not run, so that the
// hub itself has to recover the original. With ended, every task must have ended.
func checkCopy(t *testing.T, dir string, acked map[string]record, ended bool) (problems []string) {
	t.Helper()
	to := t.TempDir()
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(filepath.Join(to, sqlite.FileName+suffix), filepath.Join(dir, sqlite.FileName+suffix)); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = os.RemoveAll(to) }() // there are many
	db, err := sql.Open("sqlite", filepath.Join(to, sqlite.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	f := &book{t: t, db: db, sql: sqliteTables}
	pragma := "PRAGMA quick_check"
	if ended {
		pragma = "PRAGMA integrity_check"
	}
	f.each(pragma, func(verdict string) {
		if verdict != "ok" {
			f.problem("%s: %s", pragma, verdict)
		}
	})
	f.check(acked, ended)
	return f.problems
}

// check checks all that a database of either kind has to hold.
func (f *book) check(acked map[string]record, ended bool) {
	f.t.Helper()
	f.load()
	f.checkEvents()
	f.checkQueue(ended)
	f.checkAttempts()
	f.checkActivity()
	f.checkCounts()
	f.checkPayloads()
	f.checkKeys()
	for _, r := range acked {
		f.checkAcked(r)
	}
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if os.IsNotExist(err) && strings.HasSuffix(from, "-wal") {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(0o600))
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// querier is a database or a transaction, which sees one state of it.
type querier interface {
	Query(query string, args ...any) (*sql.Rows, error)
}

// book is a database under examination.
type book struct {
	t        *testing.T
	db       querier
	sql      tables
	problems []string
	tasks    map[string]*row // by what the database calls them
	byID     map[string]*row
}

// row is a task with what belongs to it.
type row struct {
	seq, attempt, claimed int64
	n, id                 string
	state                 hub.State
	ended                 bool
	phase                 hub.Phase // zero without a queue row
	events                []event
	messages              []string
	lines                 []line // of the activity
}

type event struct {
	seq   int64
	kind  hub.EventKind
	state hub.State
	body  string
}

func (f *book) problem(format string, args ...any) {
	f.problems = append(f.problems, fmt.Sprintf(format, args...))
}

// each gives the first column of each row, as text, to a function.
func (f *book) each(query string, do func(string)) {
	f.rows(query, func(scan func(...any)) {
		var s string
		scan(&s)
		do(s)
	})
}

// rows gives each row of a query to a function.
func (f *book) rows(query string, do func(scan func(...any))) {
	f.t.Helper()
	rows, err := f.db.Query(query)
	if err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		do(func(to ...any) {
			if err := rows.Scan(to...); err != nil {
				f.t.Fatalf("%s: %v", query, err)
			}
		})
	}
	if err := rows.Err(); err != nil {
		f.problem("%s: %v", query, err)
	}
}

// of gives the task of a row that must have one.
func (f *book) of(n, what string) *row {
	r := f.tasks[n]
	if r == nil {
		f.problem("%s of task %s, which there is not", what, n)
		return &row{}
	}
	return r
}

func (f *book) load() {
	f.tasks, f.byID = map[string]*row{}, map[string]*row{}
	f.rows(f.sql.tasks, func(scan func(...any)) {
		r := new(row)
		scan(&r.n, &r.id, &r.state, &r.seq, &r.attempt, &r.claimed, &r.ended)
		f.tasks[r.n], f.byID[r.id] = r, r
	})
	f.rows(f.sql.events, func(scan func(...any)) {
		var n string
		var e event
		scan(&n, &e.seq, &e.kind, &e.state, &e.body)
		r := f.of(n, "an event")
		r.events = append(r.events, e)
	})
	f.rows(f.sql.messages, func(scan func(...any)) {
		var n, body string
		scan(&n, &body)
		r := f.of(n, "a message")
		r.messages = append(r.messages, body)
	})
}

// checkEvents: dense from 1, SUBMITTED first, the task's state last, and the end, if
// there is one, last of all and once.
func (f *book) checkEvents() {
	for _, r := range f.tasks {
		state, end := hub.StateUnspecified, 0
		for i, e := range r.events {
			if e.seq != int64(i+1) {
				f.problem("task %s: event %d where %d was due", r.id, e.seq, i+1)
			}
			if e.kind == hub.StatusEvent {
				state = e.state
			}
			if e.kind == hub.StatusEvent && e.state.Terminal() {
				end++
				if i != len(r.events)-1 {
					f.problem("task %s: event %d is its end and not the last of %d", r.id, e.seq, len(r.events))
				}
			}
		}
		switch {
		case len(r.events) == 0 || r.events[0].state != hub.Submitted:
			f.problem("task %s does not begin with SUBMITTED", r.id)
		case int64(len(r.events)) != r.seq:
			f.problem("task %s has %d events and says %d", r.id, len(r.events), r.seq)
		case state != r.state:
			f.problem("task %s is %v and its last status event says %v", r.id, r.state, state)
		case r.ended != (end == 1) || r.ended != r.state.Terminal():
			f.problem("task %s: ended %v, %d terminal events, state %v", r.id, r.ended, end, r.state)
		}
	}
}

// checkAttempts: each attempt that has ended has its row, numbered from 1, and none
// began before the one before had ended. The newest may be open, and then has none.
func (f *book) checkAttempts() {
	count, ended := map[string]int64{}, map[string]int64{}
	begun := func(r *row, attempt, at int64) {
		if at < ended[r.n] {
			f.problem("task %s: attempt %d began while the one before was open", r.id, attempt)
		}
	}
	f.rows(f.sql.attempts, func(scan func(...any)) {
		var n string
		var attempt, claimed, end int64
		scan(&n, &attempt, &claimed, &end)
		r := f.of(n, "an attempt")
		count[n]++
		if attempt != count[n] {
			f.problem("task %s: attempt %d where %d was due", r.id, attempt, count[n])
		}
		begun(r, attempt, claimed)
		ended[n] = end
	})
	for n, r := range f.tasks {
		open := r.phase == hub.Leased && count[n] == r.attempt-1
		if open {
			begun(r, r.attempt, r.claimed)
		}
		if !open && count[n] != r.attempt {
			f.problem("task %s (%v) has %d ended attempts and says %d", r.id, r.phase, count[n], r.attempt)
		}
	}
}

// checkActivity: what the feed tells of each task is its life, and its end if it has ended.
func (f *book) checkActivity() {
	f.rows(f.sql.activity, func(scan func(...any)) {
		var n string
		var l line
		scan(&n, &l.kind, &l.seq, &l.attempt)
		r := f.of(n, "an activity line")
		r.lines = append(r.lines, l)
	})
	for _, r := range f.tasks {
		l, why := follow(r.lines)
		if why != "" {
			f.problem("task %s: %s", r.id, why)
		}
		if l.attempt != r.attempt || l.seq > r.seq || l.end.Terminal() != r.ended || r.ended && l.end != r.state {
			f.problem("task %s (attempt %d, %d events, %v) has the activity %v", r.id, r.attempt, r.seq, r.state, r.lines)
		}
	}
}

// checkQueue: there is a row for every unfinished task and no other.
func (f *book) checkQueue(ended bool) {
	f.rows(f.sql.queue, func(scan func(...any)) {
		var n string
		var phase hub.Phase
		scan(&n, &phase)
		f.of(n, "a queue row").phase = phase
	})
	for _, r := range f.tasks {
		if (r.phase != 0) == r.ended {
			f.problem("task %s: phase %v, ended %v", r.id, r.phase, r.ended)
		}
		if ended && !r.ended {
			f.problem("task %s has not ended: %v", r.id, r.state)
		}
	}
}

// checkCounts: what is counted for the limit of open tasks is what there is.
func (f *book) checkCounts() {
	f.rows(`SELECT l.callee, l.caller, l.open, count(q.task) FROM lane l LEFT JOIN queue q ON q.callee = l.callee AND q.caller = l.caller
		GROUP BY l.callee, l.caller HAVING l.open <> count(q.task)`, func(scan func(...any)) {
		var callee, caller, open, queued int64
		scan(&callee, &caller, &open, &queued)
		f.problem("caller %d has %d open tasks at callee %d and is counted with %d", caller, queued, callee, open)
	})
}

// checkPayloads: no message is there twice, whatever was repeated.
func (f *book) checkPayloads() {
	where := map[string]string{}
	for _, r := range f.tasks {
		for _, m := range r.messages {
			text := textOf(m)
			if other := where[text]; other != "" {
				f.problem("the message %q is in task %s and in %s", text, other, r.id)
			}
			where[text] = r.id
		}
	}
}

// checkKeys: every message has its key, and whoever sends it again finds that.
func (f *book) checkKeys() {
	keys := map[string]int{}
	f.rows(f.sql.keys, func(scan func(...any)) {
		var n string
		var found bool
		scan(&n, &found)
		f.of(n, "an idempotency key")
		keys[n]++
		if !found {
			f.problem("a key of task %s is not in the index", n)
		}
	})
	for n, r := range f.tasks {
		if keys[n] != len(r.messages) {
			f.problem("task %s has %d messages and %d keys", r.id, len(r.messages), keys[n])
		}
	}
}

// textOf is the text of a message's or artifact's only part, good enough for texts
// without quotes.
func textOf(body string) string {
	_, rest, _ := strings.Cut(body, `"text":"`)
	text, _, _ := strings.Cut(rest, `"`)
	return text
}

// checkAcked: what was acknowledged is there.
func (f *book) checkAcked(a record) {
	r := f.byID[a.id]
	if r == nil {
		f.problem("the acknowledged task %s is missing", a.id)
		return
	}
	if len(r.messages) == 0 || textOf(r.messages[0]) != a.payload {
		f.problem("the acknowledged task %s has not its message %q", a.id, a.payload)
	}
	if a.canceled && r.state != hub.Canceled {
		f.problem("the acknowledged cancel of task %s is not in effect: %v", a.id, r.state)
	}
	if a.end != "" && r.state.String() != a.end {
		f.problem("the acknowledged end of task %s was %s and is %v", a.id, a.end, r.state)
	}
	for _, text := range a.messages {
		if !slices.ContainsFunc(r.messages, func(m string) bool { return textOf(m) == text }) {
			f.problem("the acknowledged message %q of task %s is missing", text, a.id)
		}
	}
	for _, text := range slices.Concat(a.asked, a.artifacts) {
		if !slices.ContainsFunc(r.events, func(e event) bool { return textOf(e.body) == text }) {
			f.problem("task %s has no event with the acknowledged %q", a.id, text)
		}
	}
}
