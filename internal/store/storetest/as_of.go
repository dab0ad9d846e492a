package storetest

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// asOf reads a task as it was after an event.
func (b *bed) asOf(t *hub.Task, seq int64) *hub.Task {
	b.Helper()
	load := whole()
	load.AsOf = seq
	got, err := b.s.Task(b.ctx, refOf(t), only(t.Caller.ID), load)
	b.ok(err)
	return got
}

func asOfTests(run runner) {
	run("a task as it was after each of its events is what a reader saw then", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		var then []*hub.Task // by event, from 1
		note := func() {
			b.Helper()
			now := b.task(t.ID)
			if now.Seq != int64(len(then)+1) {
				b.Fatalf("event %d is newest, want %d", now.Seq, len(then)+1)
			}
			then = append(then, now)
		}
		note()
		c := b.claimTask(t)
		note()
		for _, e := range []hub.Event{put("x", "1"), progress("p1"), more("x", "2"), put("y", "3"), put("x", "4")} {
			b.clock.Advance(time.Second)
			b.report(reports(c, e))
			note()
		}
		b.report(says(c, hub.InputRequired))
		note()
		b.follow(t, "m2")
		note()
		c = b.claimTask(t)
		b.report(says(c, hub.AuthRequired, func(r *hub.Report) { r.Message = agentMsg("q2") }))
		note()
		b.follow(t, "m3")
		note()
		b.report(says(b.claimTask(t), hub.Failed))
		note()
		for i, want := range then {
			got := b.asOf(t, int64(i+1))
			b.is(number("state, seq, at event ", i+1), []any{got.State, got.StateAt, got.Seq}, []any{want.State, want.StateAt, want.Seq})
			b.is(number("status message at event ", i+1), got.StatusMessage, want.StatusMessage)
			b.is(number("artifacts at event ", i+1), got.Artifacts, want.Artifacts)
			b.is(number("agent's messages at event ", i+1), fromCallee(got), fromCallee(want))
			b.is(number("how many messages it has now, at event ", i+1), got.Messages, then[len(then)-1].Messages)
		}
		b.is("all of the caller's messages", messageIDs(b.asOf(t, 1).History), []string{"m1", "m2", "m3"})
		b.is("as of a later event than there is", b.asOf(t, 1000), b.task(t.ID))
	})
	run("of many events, a replaced artifact is as it was", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("x", "old"), put("y", "1")))
		for range 100 {
			b.report(reports(t, more("x", ".")))
		}
		b.report(reports(t, put("x", "new"), put("y", "2")))
		b.is("before", texts(b.asOf(t, 5).Artifacts), texts([][]byte{artifact("x", "old", "."), artifact("y", "1")}))
		for _, seq := range []int64{80, 104} { // at 105 it is replaced
			dots := []string{"old"}
			for range seq - 4 {
				dots = append(dots, ".")
			}
			b.is("later", texts(b.asOf(t, seq).Artifacts), texts([][]byte{artifact("x", dots...), artifact("y", "1")}))
		}
		b.is("now", texts(b.asOf(t, 106).Artifacts), texts(b.task(t.ID).Artifacts))
	})
	run("no messages and artifacts where none are asked for", func(b *bed) {
		t := b.parked()
		got, err := b.s.Task(b.ctx, refOf(t), only(b.ann), hub.Load{AsOf: 2})
		b.ok(err)
		b.is("state, message", []any{got.State, got.StatusMessage}, []any{hub.Working, []byte(nil)})
		b.is("loaded", len(got.History)+len(got.Artifacts), 0)
	})
}

// fromCallee is the messages of a history that the callee wrote.
func fromCallee(t *hub.Task) (list []hub.Message) {
	for _, m := range t.History {
		if m.FromCallee {
			list = append(list, m)
		}
	}
	return list
}
