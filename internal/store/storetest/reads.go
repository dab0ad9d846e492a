package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func visibilityTests(run runner) {
	// who asks, at which address, for which task; all see nothing.
	type asker struct {
		name         string
		address, ref string
		task         func(t *hub.Task) string
	}
	same := func(t *hub.Task) string { return t.ID }
	none := func(*hub.Task) string { return newID() }
	askers := func(b *bed) []asker {
		return []asker{
			{"a stranger", b.eve, b.dev, same},
			{"a stranger at another address", b.eve, b.ops, same},
			{"the caller at another address", b.ann, b.ops, same},
			{"the caller at its own address", b.ann, b.ann, same},
			{"a stranger at any address", b.eve, "", same},
			{"the caller at an address that does not exist", b.ann, newID(), same},
			{"the caller of no task", b.ann, b.dev, none},
			{"the callee of no task", b.dev, b.dev, none},
			{"the callee at another address", b.dev, b.ops, same},
			{"nobody", "", b.dev, same},
		}
	}
	// alike checks that all refusals are one and the same NotFound and change nothing.
	alike := func(b *bed, what string, errs []error) {
		b.Helper()
		for _, err := range errs {
			b.kind(what, err, hub.NotFound)
			var e, first *hub.Error
			if errors.As(err, &e) && errors.As(errs[0], &first) && (e.Code != first.Code || e.Message != first.Message || e.Field != first.Field) {
				b.Errorf("%s: the refusals differ: %q and %q", what, e.Message, first.Message)
			}
		}
	}
	run("reads by others are one and the same not found", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "1")))
		var errs []error
		for _, a := range askers(b) {
			ref := hub.TaskRef{Callee: a.ref, ID: a.task(t)}
			got, err := b.s.Task(b.ctx, ref, only(a.address), whole())
			b.is("task for "+a.name, got, (*hub.Task)(nil))
			errs = append(errs, err)
			p, err := b.s.Events(b.ctx, ref, only(a.address), 0, 10)
			b.is("events for "+a.name, p, hub.EventPage{})
			errs = append(errs, err)
		}
		alike(b, "reads", errs)
	})
	run("the caller, the callee and the administrator see the task", func(b *bed) {
		t := b.held()
		for _, by := range []hub.Viewer{only(b.ann), only(b.dev), everything(), {Address: b.eve, All: true}} {
			got, err := b.s.Task(b.ctx, refOf(t), by, hub.Load{})
			b.ok(err)
			b.is("id", got.ID, t.ID)
			p, err := b.s.Events(b.ctx, refOf(t), by, 0, 10)
			b.ok(err)
			b.is("events", len(p.Events), 2)
			got, err = b.s.Task(b.ctx, hub.TaskRef{ID: t.ID}, by, hub.Load{})
			b.ok(err)
			b.is("id at any address", got.ID, t.ID)
		}
		_, err := b.s.Task(b.ctx, hub.TaskRef{Callee: b.ops, ID: t.ID}, everything(), hub.Load{})
		b.kind("the administrator at another address", err, hub.NotFound)
	})
	run("cancels by others are the same not found", func(b *bed) {
		t := b.held()
		before := b.world()
		var errs []error
		for _, a := range append(askers(b), asker{"the callee", b.dev, b.dev, same}) {
			_, err := b.s.Cancel(b.ctx, hub.TaskRef{Callee: a.ref, ID: a.task(t)}, only(a.address))
			errs = append(errs, err)
		}
		alike(b, "cancels", errs)
		b.is("the store", b.world(), before)
	})
	run("messages by others are the same not found", func(b *bed) {
		for _, t := range []*hub.Task{b.held(), b.parked()} {
			before := b.world()
			var errs []error
			for i, s := range []hub.Send{
				newSend(b.eve, b.dev, to(t)), newSend(b.bob, b.dev, to(t)), newSend(b.dev, b.dev, to(t)),
				newSend(b.ann, b.ops, to(t)), newSend(b.ann, b.ann, to(t)),
				newSend(b.ann, b.dev, func(s *hub.Send) { s.FollowUp = newID() }),
			} {
				if i%2 == 1 { // what else is wrong with it does not show
					s.ContextID, s.ContextGiven = "other", true
				}
				errs = append(errs, b.trySend(s)())
			}
			alike(b, "messages", errs)
			b.is("the store", b.world(), before)
		}
	})
	run("messages by others to an ended task are the same not found", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Completed))
		alike(b, "messages", []error{
			b.trySend(newSend(b.eve, b.dev, to(t)))(), b.trySend(newSend(b.ann, b.ops, to(t)))(),
			b.trySend(newSend(b.ann, b.dev, func(s *hub.Send) { s.FollowUp = newID() }))(),
		})
	})
	run("reports and heartbeats by others are the same not found", func(b *bed) {
		t := b.held()
		before := b.world()
		var errs []error
		for _, callee := range []string{b.ops, b.eve, b.ann, newID()} {
			r, h := says(t, hub.Completed), beatOf(t)
			r.Callee, h.Callee = callee, callee
			errs = append(errs, b.tryReport(r)(), b.tryBeat(h)())
			r.Attempt, h.Attempt = 9, 9
			errs = append(errs, b.tryReport(r)(), b.tryBeat(h)())
		}
		r, h := says(t, hub.Completed), beatOf(t)
		r.Task, h.Task = newID(), newID()
		errs = append(errs, b.tryReport(r)(), b.tryBeat(h)())
		alike(b, "reports", errs)
		b.is("the store", b.world(), before)
	})
	run("lists show what the viewer sent or was sent, and no more", func(b *bed) {
		one, two := b.ask(b.ann, b.dev), b.ask(b.bob, b.dev)
		three := b.ask(b.dev, b.ops)
		for _, c := range []struct {
			by   hub.Viewer
			want []*hub.Task
		}{
			{only(b.ann), []*hub.Task{one}}, {only(b.bob), []*hub.Task{two}},
			{only(b.dev), []*hub.Task{one, two, three}}, {only(b.ops), []*hub.Task{three}},
			{only(b.eve), nil}, {only(""), nil}, {everything(), []*hub.Task{one, two, three}},
		} {
			p, err := b.s.Tasks(b.ctx, hub.TaskFilter{By: c.by, Limit: 10, Total: true})
			b.ok(err)
			b.is("tasks", sorted(ids(p.Tasks)), sorted(ids(c.want)))
			b.is("total", p.Total, len(c.want))
		}
	})
}

func sorted(s []string) []string { s = slices.Clone(s); slices.Sort(s); return s }

func listTests(run runner) {
	run("the task whose status changed last comes first", func(b *bed) {
		var want []string
		for range 5 {
			want = append(want, b.ask(b.ann, b.dev).ID)
			b.clock.Advance(time.Second)
		}
		slices.Reverse(want)
		b.is("order", ids(b.list(hub.TaskFilter{By: only(b.ann)})), want)
		first := b.claim(b.dev) // the oldest changes its status
		want = append([]string{first.ID}, slices.DeleteFunc(want, func(s string) bool { return s == first.ID })...)
		b.is("order after a claim", ids(b.list(hub.TaskFilter{By: only(b.ann)})), want)
		b.is("order for the callee", ids(b.list(hub.TaskFilter{By: only(b.dev)})), want)
		b.is("order for the administrator", ids(b.list(hub.TaskFilter{By: everything()})), want)
	})
	run("filters select by callee, context, state and time, alone and together", func(b *bed) {
		b.ask(b.ann, b.ops, inContext("c1"))
		b.clock.Advance(time.Second)
		since := b.clock.Now()
		b.held(inContext("c2"))
		b.ask(b.ann, b.dev, inContext("c1"))
		b.clock.Advance(time.Second)
		b.report(says(b.claim(b.ops), hub.Completed))
		b.ask(b.bob, b.dev, inContext("c1"))
		all := b.list(hub.TaskFilter{By: everything()})
		for _, f := range []hub.TaskFilter{
			{}, {Callee: b.dev}, {Callee: b.eve}, {Context: "c1"}, {Context: "none"}, {State: hub.Working},
			{State: hub.Submitted}, {State: hub.Rejected}, {Since: since}, {Since: since.Add(time.Millisecond)},
			{Since: since.Add(time.Hour)}, {Callee: b.dev, Context: "c1"}, {Callee: b.ops, State: hub.Completed},
			{Context: "c1", State: hub.Completed, Since: since}, {Sent: true}, {Pending: true}, {Sent: true, Callee: b.dev},
		} {
			for _, by := range []hub.Viewer{everything(), only(b.ann), only(b.bob), only(b.dev), only(b.eve), {Address: b.ann, All: true}} {
				f.By, f.Limit, f.Total = by, 2, true
				var want []string
				for _, t := range all {
					if (selects{f}).match(&modelTask{Task: *t}) {
						want = append(want, t.ID)
					}
				}
				what := fmt.Sprintf("the tasks of %+v", f)
				b.is(what, sorted(ids(b.list(f))), sorted(want))
				p, err := b.s.Tasks(b.ctx, f)
				b.ok(err)
				b.is("the total of "+what, p.Total, len(want))
			}
		}
	})
	run("since means at that time or later", func(b *bed) {
		b.ask(b.ann, b.dev)
		b.clock.Advance(time.Second)
		at := b.clock.Now()
		t := b.ask(b.ann, b.ops)
		for since, want := range map[time.Time][]string{at: {t.ID}, at.Add(-time.Millisecond): {t.ID}, at.Add(time.Millisecond): {}} {
			b.is("tasks", ids(b.list(hub.TaskFilter{By: only(b.ann), Since: since})), want)
		}
	})
	run("pages are complete and free of duplicates, also when times tie", func(b *bed) {
		const n = 60
		want := b.askMany(n/2, b.ann, b.dev) // all at one time
		b.clock.Advance(time.Second)
		want = append(want, b.askMany(n/2, b.ann, b.ops)...)
		for _, limit := range []int{1, 7, n - 1, n, n + 1} {
			for _, by := range []hub.Viewer{only(b.ann), everything()} {
				got := b.list(hub.TaskFilter{By: by, Limit: limit})
				b.is(fmt.Sprint("tasks in pages of ", limit), sorted(ids(got)), sorted(want))
				for i := 1; i < len(got); i++ {
					if got[i].StateAt.After(got[i-1].StateAt) {
						b.Fatalf("task %d is newer than the one before it", i)
					}
				}
			}
		}
		b.is("tasks of dev", len(b.list(hub.TaskFilter{By: only(b.ann), Callee: b.dev, Limit: 7})), n/2)
		b.is("tasks for dev", len(b.list(hub.TaskFilter{By: only(b.dev), Limit: 7})), n/2)
	})
	run("a page has no next when nothing follows", func(b *bed) {
		b.askMany(4, b.ann, b.dev)
		f := hub.TaskFilter{By: only(b.ann), Limit: 2}
		p, err := b.s.Tasks(b.ctx, f)
		b.ok(err)
		f.Cursor = p.Next
		p, err = b.s.Tasks(b.ctx, f)
		b.ok(err)
		b.is("tasks and next", []any{len(p.Tasks), p.Next}, []any{2, ""})
	})
	run("tasks that change while a list is read do not make it skip others", func(b *bed) {
		var all []string
		for range 10 {
			all = append(all, b.ask(b.ann, b.dev).ID)
			b.clock.Advance(time.Second)
		}
		f := hub.TaskFilter{By: only(b.ann), Limit: 3}
		seen := map[string]bool{}
		for {
			p, err := b.s.Tasks(b.ctx, f)
			b.ok(err)
			for _, t := range p.Tasks {
				seen[t.ID] = true
			}
			if f.Cursor = p.Next; f.Cursor == "" {
				break
			}
			b.clock.Advance(time.Second)
			b.claim(b.dev) // the oldest jumps to the front, behind the reader
			b.ask(b.bob, b.dev)
		}
		for i, id := range all[3:] { // the three that moved may be missed
			if !seen[id] {
				b.Errorf("task %d was skipped", i+3)
			}
		}
	})
	run("the total counts all that match, on every page, if asked for", func(b *bed) {
		b.askMany(5, b.ann, b.dev)
		f := hub.TaskFilter{By: only(b.ann), Limit: 2, Total: true}
		for range 2 {
			p, err := b.s.Tasks(b.ctx, f)
			b.ok(err)
			b.is("total", p.Total, 5)
			f.Cursor = p.Next
		}
		f.Total = false
		p, err := b.s.Tasks(b.ctx, f)
		b.ok(err)
		b.is("total unasked", p.Total, 0)
	})
	run("a list loads what it is asked to load", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.report(says(t, hub.Completed, withEvents(put("a", "1"))))
		for _, l := range []hub.Load{{}, {History: 1}, {History: -1, Artifacts: true}, {Artifacts: true}} {
			want, err := b.s.Task(b.ctx, refOf(t), only(b.ann), l)
			b.ok(err)
			b.is(fmt.Sprintf("with %+v", l), b.list(hub.TaskFilter{By: only(b.ann), Load: l}), []*hub.Task{want})
		}
	})
	run("a history is trimmed to its newest messages", func(b *bed) {
		t := b.parked()
		b.follow(t, "m2")
		b.follow(t, "m3")
		for n, want := range map[int][]string{
			0: nil, 1: {"m3"}, 2: {"m2", "m3"}, 3: {"r-input_required", "m2", "m3"}, 4: {"m1", "r-input_required", "m2", "m3"},
			99: {"m1", "r-input_required", "m2", "m3"}, -1: {"m1", "r-input_required", "m2", "m3"},
		} {
			got, err := b.s.Task(b.ctx, refOf(t), only(b.ann), hub.Load{History: n})
			b.ok(err)
			b.is(fmt.Sprint("newest ", n), messageIDs(got.History), want)
		}
	})
	run("an open question does not count towards the trimmed history", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.report(says(t, hub.InputRequired))
		for n, want := range map[int][]string{0: nil, 1: {"m2"}, 2: {"m1", "m2"}} {
			got, err := b.s.Task(b.ctx, refOf(t), only(b.ann), hub.Load{History: n})
			b.ok(err)
			b.is(fmt.Sprint("newest ", n), messageIDs(got.History), want)
			b.is("the question", string(got.StatusMessage), string(agentMsg("r-input_required")))
		}
	})
	run("a cursor it did not make is invalid", func(b *bed) {
		b.askMany(3, b.ann, b.dev)
		for _, c := range garbage {
			_, err := b.s.Tasks(b.ctx, hub.TaskFilter{By: only(b.ann), Limit: 2, Cursor: c})
			b.kind(fmt.Sprintf("cursor %.20q", c), err, hub.Invalid)
		}
	})
	run("a task is pending until its caller has read its end", func(b *bed) {
		t := b.held()
		other := b.ask(b.bob, b.dev)
		pending := func() []string {
			b.Helper()
			return ids(b.list(hub.TaskFilter{By: only(b.ann), Pending: true}))
		}
		mark := func(m hub.ReadMark) { b.Helper(); b.ok(b.s.MarkRead(b.ctx, []hub.ReadMark{m})) }
		b.is("pending while unfinished", pending(), []string{t.ID})
		mark(hub.ReadMark{Task: t.ID, Polls: 2})
		b.is("pending after polls", pending(), []string{t.ID})
		b.report(says(t, hub.Completed))
		b.is("pending while unread", pending(), []string{t.ID})
		b.is("pending for the callee", len(b.list(hub.TaskFilter{By: only(b.dev), Pending: true})), 0)
		b.clock.Advance(time.Second)
		before := b.view(t.ID)
		mark(hub.ReadMark{Task: t.ID, Polls: 1, End: true})
		b.is("pending when read", pending(), nil)
		b.is("pending of another caller", ids(b.list(hub.TaskFilter{By: only(b.bob), Pending: true})), []string{other.ID})
		before.Task.ReadAt, before.Task.LastPolledAt, before.Task.PollCount = b.clock.Now(), b.clock.Now(), 3
		b.is("the task", b.view(t.ID), before)
	})
	run("read marks come in batches and skip tasks that are gone", func(b *bed) {
		all := b.askMany(5, b.ann, b.dev)
		marks := []hub.ReadMark{{Task: newID(), Polls: 1, End: true}}
		for i, id := range all {
			marks = append(marks, hub.ReadMark{Task: id, Polls: i + 1})
		}
		b.ok(b.s.MarkRead(b.ctx, marks))
		for i, id := range all {
			b.is("polls", b.task(id).PollCount, i+1)
		}
		b.ok(b.s.MarkRead(b.ctx, nil))
	})
}

// garbage is cursors that no store makes.
var garbage = [...]string{
	"x", "-1", "0x10", " ", "null", "a.b.c", "9999999999999999999999", "%00", "\x00", "é", "1e5",
	strings.Repeat("9", 5000), "!!!!", "' OR 1=1 --",
}

func eventTests(run runner) {
	run("events page by number, with the state in the same snapshot", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "1"), more("a", "2"), more("a", "3")))
		all := b.events(t.ID)
		for _, c := range []struct {
			after    int64
			limit    int
			from, to int
		}{{0, 2, 0, 2}, {2, 2, 2, 4}, {4, 2, 4, 5}, {5, 2, 5, 5}, {99, 2, 5, 5}, {0, 100, 0, 5}, {3, 1, 3, 4}} {
			p, err := b.s.Events(b.ctx, refOf(t), only(b.ann), c.after, c.limit)
			b.ok(err)
			b.is(fmt.Sprint("events after ", c.after), p.Events, all[c.from:c.to])
			b.is("the rest", []any{p.Context, p.State, p.Last}, []any{t.ContextID, hub.Working, int64(5)})
		}
		b.report(says(t, hub.Completed))
		p, err := b.s.Events(b.ctx, refOf(t), only(b.dev), 6, 10)
		b.ok(err)
		b.is("at the end", []any{len(p.Events), p.State, p.Last}, []any{0, hub.Completed, int64(6)})
	})
	run("a page of events is bounded by bytes and never empty before the end", func(b *bed) {
		t := b.held()
		big := strings.Repeat("x", 300<<10)
		for i := range 10 {
			b.report(reports(t, put(number("a", i), big)))
		}
		b.report(reports(t, put("huge", strings.Repeat("y", 2<<20))))
		var after int64
		pages, seen := 0, int64(0)
		for {
			p, err := b.s.Events(b.ctx, refOf(t), only(b.ann), after, 1000)
			b.ok(err)
			if len(p.Events) == 0 {
				break
			}
			size := 0
			for _, e := range p.Events[:len(p.Events)-1] {
				size += len(e.Body)
			}
			if size > 1<<20+64<<10 {
				b.Errorf("a page of %d events has %d bytes before its last", len(p.Events), size)
			}
			for _, e := range p.Events {
				if seen++; e.Seq != seen {
					b.Fatalf("event %d comes as number %d", e.Seq, seen)
				}
			}
			after = p.Events[len(p.Events)-1].Seq
			pages++
		}
		b.is("events", seen, int64(13))
		if pages < 3 {
			b.Errorf("5 MB of events came in %d pages", pages)
		}
	})
	run("readers that follow a task see each event once and in order", func(b *bed) {
		t := b.held()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 50 {
				_, err := b.s.Report(b.ctx, reports(t, put("a", number("", i)), progress("p")))
				b.okAll(err)
			}
			_, err := b.s.Report(b.ctx, says(t, hub.Completed))
			b.okAll(err)
		}()
		crowd(4, 4, func(int) {
			var seen int64
			for {
				p, err := b.s.Events(b.ctx, refOf(t), only(b.ann), seen, 7)
				if err != nil {
					b.okAll(err)
					return
				}
				for _, e := range p.Events {
					if seen++; e.Seq != seen {
						b.Errorf("event %d comes as number %d", e.Seq, seen)
						return
					}
				}
				if p.Last < seen || p.State.Terminal() && p.Last != 103 {
					b.Errorf("the newest event is said to be %d in state %v after event %d", p.Last, p.State, seen)
				}
				if p.State.Terminal() && seen == p.Last {
					return
				}
			}
		})
		<-done
	})
	run("a task is read as it is at one moment", func(b *bed) {
		t := b.held()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 60 {
				_, err := b.s.Report(b.ctx, reports(t, put("a", number("", i)), put("b", number("", i)), progress(number("p", i))))
				b.okAll(err)
			}
		}()
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			got := b.task(t.ID)
			n := (got.Seq - 2) / 3
			if n == 0 {
				continue
			}
			last := number("", int(n-1))
			if d := cmp.Diff(texts(got.Artifacts), []string{string(artifact("a", last)), string(artifact("b", last))}); d != "" ||
				string(got.StatusMessage) != string(agentMsg("p"+last)) {
				b.Fatalf("at event %d the task does not fit together: %s %s", got.Seq, texts(got.Artifacts), got.StatusMessage)
			}
		}
	})
}

func activityTests(run runner) {
	story := func(b *bed) (t *hub.Task) {
		t = b.parked()
		b.follow(t, "m2")
		b.report(says(b.claimTask(t), hub.Completed))
		return t
	}
	run("the feed tells the story of a task in order", func(b *bed) {
		s := newSend(b.ann, b.dev)
		s.Run = newID()
		b.send(s)
		t := b.claim(b.dev)
		b.report(says(t, hub.Completed, withEvents(put("a", "1"))))
		for _, l := range b.acts(t.ID) {
			b.is("the line's run, caller, callee", []string{l.Run, l.Caller, l.Callee}, []string{s.Run, "ann", "dev"})
		}
		t = story(b)
		b.is("kinds", b.happened(t.ID), []hub.ActivityKind{
			hub.ActSent, hub.ActClaimed, hub.ActAsked, hub.ActAnswered, hub.ActClaimed, hub.ActCompleted,
		})
		var actors []string
		var attempts []int
		for _, l := range b.acts(t.ID) {
			actors, attempts = append(actors, l.Actor), append(attempts, l.Attempt)
		}
		b.is("actors", actors, []string{"ann", "dev", "dev", "ann", "dev", "dev"})
		b.is("attempts of claims and reports", []int{attempts[1], attempts[2], attempts[4], attempts[5]}, []int{1, 1, 2, 2})
	})
	run("pages join up, whatever their size, from any line's cursor", func(b *bed) {
		for range 4 {
			story(b)
		}
		all := b.activity(everything())
		b.is("lines", len(all), 24)
		for _, limit := range []int{1, 5, 23, 24, 100} {
			var got []hub.Activity
			q := hub.ActivityQuery{By: everything(), Limit: limit}
			for len(got) < 1000 {
				p, err := b.s.Activity(b.ctx, q)
				b.ok(err)
				if len(p.Lines) > limit {
					b.Errorf("a page of %d has %d lines", limit, len(p.Lines))
				}
				got = append(got, p.Lines...)
				if p.Next == q.After {
					break
				}
				q.After = p.Next
			}
			b.is(fmt.Sprint("lines in pages of ", limit), got, all)
		}
		for i, l := range all {
			p, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 100, After: l.Cursor})
			b.ok(err)
			b.is(fmt.Sprint("lines after line ", i), p.Lines, all[i+1:])
		}
	})
	run("a reader at the end finds what comes later", func(b *bed) {
		p, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 10})
		b.ok(err)
		b.is("lines of an idle hub", p.Lines, nil)
		t := b.ask(b.ann, b.dev)
		p, err = b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 10, After: p.Next})
		b.ok(err)
		b.is("task", p.Lines[0].Task, t.ID)
		b.claimTask(t)
		p, err = b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 10, After: p.Next})
		b.ok(err)
		b.is("lines", len(p.Lines), 1)
		b.is("kind", p.Lines[0].Kind, hub.ActClaimed)
	})
	run("the tail is the newest lines, oldest first", func(b *bed) {
		for range 3 {
			story(b)
		}
		all := b.activity(everything())
		for _, limit := range []int{1, 5, len(all), 100} {
			p, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: limit, Tail: true})
			b.ok(err)
			b.is(fmt.Sprint("tail of ", limit), p.Lines, all[max(0, len(all)-limit):])
			p, err = b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: limit, After: p.Next})
			b.ok(err)
			b.is("after the tail", p.Lines, nil)
		}
	})
	run("a viewer sees the lines of its tasks and no others", func(b *bed) {
		mine := story(b)
		b.ask(b.bob, b.ops)
		other := b.ask(b.bob, b.dev)
		for by, want := range map[string][]string{b.ann: {mine.ID}, b.dev: {mine.ID, other.ID}, b.eve: nil, b.ops: nil} {
			seen := map[string]bool{}
			for _, l := range b.activity(only(by)) {
				seen[l.Task] = true
			}
			if by == b.ops {
				b.is("tasks that ops sees", len(seen), 1)
				continue
			}
			var got []string
			for id := range seen {
				got = append(got, id)
			}
			b.is("tasks in the feed", sorted(got), sorted(want))
		}
	})
	run("a viewer whose lines are few among many still gets them all", func(b *bed) {
		first := b.ask(b.eve, b.dev)
		b.askMany(2000, b.ann, b.ops)
		last := b.ask(b.eve, b.dev)
		var got []string
		for _, l := range b.activity(only(b.eve)) {
			got = append(got, l.Task)
		}
		b.is("tasks", got, []string{first.ID, last.ID})
	})
	run("a cursor it did not make is invalid", func(b *bed) {
		b.ask(b.ann, b.dev)
		for _, c := range garbage {
			_, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 2, After: c})
			b.kind(fmt.Sprintf("cursor %.20q", c), err, hub.Invalid)
		}
	})
	run("lines carry the number of the event that they tell of", func(b *bed) {
		t := story(b)
		var seqs []int64
		for _, l := range b.acts(t.ID) {
			seqs = append(seqs, l.Seq)
		}
		b.is("numbers", seqs, []int64{1, 2, 3, 4, 4, 5})
	})
}
