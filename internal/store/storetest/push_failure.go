package storetest

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// failures reads all pages of the failures that a viewer sees.
func (b *bed) failures(by hub.Viewer, task string) (all []hub.PushFailure) {
	b.Helper()
	for cursor := ""; ; {
		list, next, err := b.s.PushFailures(b.ctx, by, task, cursor, 100)
		b.ok(err)
		all = append(all, list...)
		if next == "" {
			return all
		}
		if next == cursor || len(all) > 100_000 {
			b.Fatal("the pages of failures do not come to an end")
		}
		cursor = next
	}
}

// giveUp borrows all that is due and gives the first event of each up.
func (b *bed) giveUp(why string) {
	b.Helper()
	for _, j := range b.lend() {
		b.settle(j, hub.PushOutcome{Error: why, GiveUp: true})
	}
}

// failOnce has all that is due give its first event up, and names the newest failure
// of the task.
func (b *bed) failOnce(t *hub.Task) string {
	b.Helper()
	b.giveUp("no")
	return b.failures(everything(), t.ID)[0].ID
}

func failureTests(run runner) {
	run("an event that is given up is skipped and kept as a failure", func(b *bed) {
		t := b.held(withPush("a"))
		began := b.clock.Now()
		b.settle(b.job(), hub.PushOutcome{Error: "refused", Retry: time.Second})
		b.clock.Advance(time.Second)
		b.settle(b.job(), hub.PushOutcome{Error: "refused again", Retry: time.Hour, GiveUp: true})
		got := b.failures(only(b.ann), "")
		b.is("failures", len(got), 1)
		b.is("failure", got[0], hub.PushFailure{
			ID: got[0].ID, Task: t.ID, Config: "a", URL: config("a").URL, Seq: 1, At: b.clock.Now(), Tries: 2, Reason: "refused again",
		})
		c := b.push(t, "a")
		b.is("cursor, tries, failed", []any{c.Cursor, c.Tries, c.Failed}, []any{int64(1), 0, 1})
		b.is("since the first failure, tried next at once", []time.Time{c.FailedSince, c.NextTry}, []time.Time{began, b.clock.Now()})
		b.is("why", c.LastError, "refused again")
		b.is("events", b.deliver(), []int64{2})
		c = b.push(t, "a")
		b.is("after a delivery", []any{c.Failed, c.LastError, c.FailedSince}, []any{1, "", time.Time{}})
		b.idle()
	})
	run("some delivered and the next given up", func(b *bed) {
		t := b.held(withPush("a"))
		b.report(reports(t, put("x", "1"), put("x", "2")))
		b.settle(b.job(), hub.PushOutcome{Done: 2, Error: "no", GiveUp: true})
		b.is("failed", b.failures(only(b.ann), t.ID)[0].Seq, int64(3))
		b.is("events", b.deliver(), []int64{4})
	})
	run("the activity notes the first of a row and the end, for all but the callee", func(b *bed) {
		t := b.held(withPush("a"))
		b.report(reports(t, put("x", "1")))
		for range 3 {
			b.giveUp("no")
		}
		b.is("lines after a row of three", b.count(t.ID, hub.ActPushFailed), 1)
		b.report(reports(t, put("x", "1"), put("x", "2")))
		b.settle(b.job(), hub.PushOutcome{Done: 4})
		b.giveUp("no")
		b.is("lines after another row", b.count(t.ID, hub.ActPushFailed), 2)
		b.report(says(t, hub.Completed))
		b.giveUp("no")
		b.is("lines after the end", b.count(t.ID, hub.ActPushFailed), 3)
		b.is("failures", len(b.failures(everything(), "")), 5)
		lines := func(by hub.Viewer) (n int) {
			for _, l := range b.activity(by) {
				if l.Kind == hub.ActPushFailed {
					n++
					b.is("who", l.Actor, "hub")
				}
			}
			return n
		}
		b.is("seen by caller, callee, another", []int{lines(only(b.ann)), lines(only(b.dev)), lines(only(b.bob))}, []int{3, 0, 0})
	})
	run("failures are listed page by page, newest first, of one's own tasks", func(b *bed) {
		var tasks []*hub.Task
		for i := range 6 {
			caller := b.ann
			if i%2 == 1 {
				caller = b.bob
			}
			t := b.ask(caller, b.dev, withPush("a"))
			b.giveUp(number("no ", i))
			tasks = append(tasks, t)
		}
		reasons := func(list []hub.PushFailure) (out []string) {
			for _, f := range list {
				out = append(out, f.Reason)
			}
			return out
		}
		b.is("Ann's", reasons(b.failures(only(b.ann), "")), []string{"no 4", "no 2", "no 0"})
		b.is("all", len(b.failures(everything(), "")), 6)
		b.is("of one task", reasons(b.failures(only(b.bob), tasks[3].ID)), []string{"no 3"})
		first, next, err := b.s.PushFailures(b.ctx, everything(), "", "", 4)
		b.ok(err)
		rest, last, err := b.s.PushFailures(b.ctx, everything(), "", next, 4)
		b.ok(err)
		b.is("pages", [][]string{reasons(first), reasons(rest)}, [][]string{{"no 5", "no 4", "no 3", "no 2"}, {"no 1", "no 0"}})
		b.is("cursor of the last page", last, "")
		_, next, err = b.s.PushFailures(b.ctx, only(b.ann), "", "", 3)
		b.ok(err)
		b.is("cursor of a page that is just full", next, "")
		for _, bad := range []string{"x", "!", "!" + first[0].ID} {
			_, _, err = b.s.PushFailures(b.ctx, everything(), "", bad, 4)
			b.kind("a cursor of nobody's: "+bad, err, hub.Invalid)
		}
	})
	run("the newest failures of a configuration are kept", func(b *bed) {
		t := b.held(withPush("a"))
		for range 11 {
			many := make([]hub.Event, 100)
			for i := range many {
				many[i] = put("x", "1")
			}
			b.report(reports(t, many...))
		}
		for j := b.lend(); len(j) > 0; j = b.lend() {
			b.settle(j[0], hub.PushOutcome{Error: "no", GiveUp: true})
		}
		list := b.failures(only(b.ann), t.ID)
		b.is("kept", []any{len(list), list[0].Seq, list[999].Seq}, []any{1000, int64(1102), int64(103)})
		b.is("counted", b.push(t, "a").Failed, 1102)
	})
	run("a failure that is taken up again is delivered before all else, and later events once more", func(b *bed) {
		t := b.held(withPush("a"))
		b.put(t, config("b"))
		b.report(reports(t, put("x", "1"), put("x", "2")))
		b.giveUp("no")                                                             // 1 of a, 3 of b
		b.settle(b.lend()[0], hub.PushOutcome{Done: 2, Error: "no", GiveUp: true}) // 3 of a
		b.clock.Advance(2 * loan)
		for _, j := range b.lend() {
			b.settle(j, done(j))
		}
		b.idle()
		mine := b.failures(only(b.ann), "")
		b.is("failures", len(mine), 3)
		got, err := b.s.Redeliver(b.ctx, only(b.ann), mine[0].ID) // 3 of a
		b.ok(err)
		b.is("configuration", []any{got.ID, got.Cursor, got.Failed, got.NextTry}, []any{"a", int64(2), 1, b.clock.Now()})
		b.is("events", b.deliver(), []int64{3, 4})
		b.is("left", len(b.failures(only(b.ann), "")), 2)
		b.refused("once more", hub.NotFound, func() error { _, err := b.s.Redeliver(b.ctx, only(b.ann), mine[0].ID); return err })
		_, err = b.s.Redeliver(b.ctx, only(b.ann), mine[2].ID) // 1 of a
		b.ok(err)
		b.is("events", b.deliver(), []int64{1, 2, 3, 4})
		b.is("of the other configuration", len(b.failures(only(b.ann), "")), 1)
		b.idle()
	})
	run("with an earlier failure taken up again, the later ones are gone, too", func(b *bed) {
		t := b.held(withPush("a"))
		b.giveUp("no")
		b.giveUp("no")
		b.idle()
		list := b.failures(only(b.ann), "")
		got, err := b.s.Redeliver(b.ctx, only(b.ann), list[1].ID)
		b.ok(err)
		b.is("failed", got.Failed, 0)
		b.is("failures", b.failures(only(b.ann), ""), nil)
		b.giveUp("still no")
		b.is("given up again", b.failures(only(b.ann), t.ID)[0].Reason, "still no")
		b.refused("by the name of one before", hub.NotFound, func() error { _, err := b.s.Redeliver(b.ctx, only(b.ann), list[1].ID); return err })
		b.is("lines", b.count(t.ID, hub.ActPushFailed), 2)
	})
	run("what is no failure cannot be taken up again", func(b *bed) {
		t := b.held(withPush("a"))
		id := b.failOnce(t)
		for _, bad := range []string{"", "x", "!" + id} {
			b.refused("failure "+bad, hub.NotFound, func() error { _, err := b.s.Redeliver(b.ctx, everything(), bad); return err })
		}
		b.deletePush(t, "a")
		b.refused("of a deleted configuration", hub.NotFound, func() error { _, err := b.s.Redeliver(b.ctx, everything(), id); return err })
	})
}
