package storetest

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func followUpTests(run runner) {
	run("an answer makes a parked task ready again", func(b *bed) {
		t := b.parked()
		b.clock.Advance(time.Second)
		got := b.send(newSend(b.ann, b.dev, to(t), withMessage("m2")))
		b.is("created, answered, replayed", []bool{got.Created, got.Answered, got.Replayed}, []bool{false, true, false})
		b.is("state, phase", []any{got.Task.State, got.Task.Phase}, []any{hub.Working, hub.Ready})
		b.is("the status changed now", got.Task.StateAt, b.clock.Now())
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working, hub.InputRequired, hub.Working})
		whole := b.task(t.ID)
		b.is("history", messageIDs(whole.History), []string{"m1", "r-input_required", "m2"})
		b.is("who said it", []bool{whole.History[0].FromCallee, whole.History[1].FromCallee, whole.History[2].FromCallee}, []bool{false, true, false})
		b.is("numbers", []int{whole.History[0].N, whole.History[1].N, whole.History[2].N}, []int{1, 2, 3})
		b.is("status message", string(whole.StatusMessage), "")
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed, hub.ActAsked, hub.ActAnswered})
	})
	run("the open question is the status message and not in the history", func(b *bed) {
		t := b.task(b.parked().ID)
		b.is("status message", string(t.StatusMessage), string(agentMsg("r-input_required")))
		b.is("history", messageIDs(t.History), []string{"m1"})
	})
	run("the next claim after an answer sees the question and the answer", func(b *bed) {
		t := b.parked()
		b.follow(t, "m2")
		c := b.claimTask(t)
		b.is("attempt", c.Attempt, 2)
		b.is("history", messageIDs(c.History), []string{"m1", "r-input_required", "m2"})
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working, hub.InputRequired, hub.Working})
	})
	run("an answered task comes before tasks that wait for their first claim", func(b *bed) {
		t := b.parked()
		b.askMany(5, b.bob, b.dev)
		b.follow(t, "m2")
		b.claimTask(t)
	})
	run("AUTH_REQUIRED parks and is answered in the same way", func(b *bed) {
		t := b.held()
		got := b.report(says(t, hub.AuthRequired)).Task
		b.is("state, phase", []any{got.State, got.Phase}, []any{hub.AuthRequired, hub.Parked})
		b.nothingReady(b.dev)
		b.is("answered", b.follow(t, "m2").Answered, true)
		b.claimTask(t)
	})
	run("a message to a ready task waits for the claim", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		got := b.follow(t, "m2")
		b.is("created, answered, replayed", []bool{got.Created, got.Answered, got.Replayed}, []bool{false, false, false})
		b.is("state, phase, seq", []any{got.Task.State, got.Task.Phase, got.Task.Seq}, []any{hub.Submitted, hub.Ready, int64(1)})
		c := b.claimTask(t)
		b.is("history", messageIDs(c.History), []string{"m1", "m2"})
		b.is("handed over again", b.beat(beatOf(c)).Messages, nil)
		b.report(says(c, hub.Completed))
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActMessage, hub.ActClaimed, hub.ActCompleted})
	})
	run("a message to a leased task changes no state and no lease", func(b *bed) {
		t := b.held()
		before := b.task(t.ID)
		b.clock.Advance(time.Second)
		got := b.follow(t, "m2").Task
		b.is("state, phase, seq, attempt", []any{got.State, got.Phase, got.Seq, got.Attempt}, []any{hub.Working, hub.Leased, int64(2), 1})
		b.is("lease and time of the status", []time.Time{got.LeaseUntil, got.StateAt}, []time.Time{before.LeaseUntil, before.StateAt})
	})
	run("a message to a leased task is handed over by one heartbeat", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.follow(t, "m3")
		got := b.beat(beatOf(t)).Messages
		b.is("messages", got, []hub.Message{{N: 2, Body: msg("m2")}, {N: 3, Body: msg("m3")}})
		b.is("messages again", b.beat(beatOf(t)).Messages, nil)
		b.follow(t, "m4")
		b.is("later messages", messageIDs(b.beat(beatOf(t)).Messages), []string{"m4"})
	})
	run("a heartbeat that says what it has seen gets what follows, again and again", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.follow(t, "m3")
		h := beatOf(t)
		for _, c := range []struct {
			after int
			want  []string
		}{{1, []string{"m2", "m3"}}, {1, []string{"m2", "m3"}}, {2, []string{"m3"}}, {3, nil}, {99, nil}} {
			h.After = c.after
			b.is("messages", messageIDs(b.beat(h).Messages), c.want)
		}
	})
	run("messages never handed over go to the next claim and are then seen", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.expire()
		b.pass(time.Minute)
		c := b.claimTask(t)
		b.is("history", messageIDs(c.History), []string{"m1", "m2"})
		b.is("handed over again", b.beat(beatOf(c)).Messages, nil)
		b.report(says(c, hub.Completed))
		b.is("undelivered lines", b.count(t.ID, hub.ActUndelivered), 0)
	})
	run("messages that no holder saw are marked undelivered at the end", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.beat(beatOf(t))
		b.follow(t, "m3")
		b.report(says(t, hub.Completed))
		var undelivered []bool
		for _, m := range b.task(t.ID).History {
			undelivered = append(undelivered, m.Undelivered)
		}
		b.is("undelivered", undelivered, []bool{false, false, true})
		b.is("undelivered lines", b.count(t.ID, hub.ActUndelivered), 1)
	})
	run("messages that a holder says it has seen are not undelivered", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		h := beatOf(t)
		h.After = 2
		b.beat(h)
		b.report(says(t, hub.Completed))
		b.is("undelivered lines", b.count(t.ID, hub.ActUndelivered), 0)
	})
	run("a cancel marks unseen messages undelivered too", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.cancel(t)
		b.is("undelivered", b.task(t.ID).History[1].Undelivered, true)
		b.is("undelivered lines", b.count(t.ID, hub.ActUndelivered), 1)
	})
	run("messages that were seen are not marked", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.beat(beatOf(t))
		b.report(says(t, hub.Completed))
		b.is("undelivered", b.task(t.ID).History[1].Undelivered, false)
		b.is("undelivered lines", b.count(t.ID, hub.ActUndelivered), 0)
	})
	run("a question parks although messages are unseen; they go along with the answer", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.is("phase", b.report(says(t, hub.InputRequired)).Task.Phase, hub.Parked)
		b.nothingReady(b.dev)
		b.follow(t, "m3")
		b.is("history", messageIDs(b.claimTask(t).History), []string{"m1", "m2", "r-input_required", "m3"})
	})
	run("a message in backoff stays there", func(b *bed) {
		t := b.held()
		b.expire()
		b.follow(t, "m2")
		b.nothingReady(b.dev)
		b.pass(time.Minute)
		b.is("history", messageIDs(b.claimTask(t).History), []string{"m1", "m2"})
	})
	run("another context than the task's is invalid", func(b *bed) {
		for _, t := range []*hub.Task{b.heldByOps(), b.parked(), b.ask(b.ann, b.dev)} {
			s := newSend(b.ann, t.Callee.ID, to(t), inContext("other"))
			b.refused("a message in another context", hub.Invalid, b.trySend(s))
			s.ContextID = t.ContextID
			b.send(s)
			s.ContextID, s.ContextGiven = newID(), false
			b.send(s)
		}
	})
	run("an ended task takes no message", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Completed))
		b.refused("a message", hub.Ended, b.trySend(newSend(b.ann, b.dev, to(t))))
	})
	run("an answer by context alone answers the open question there", func(b *bed) {
		t := b.parked()
		s := newSend(b.ann, b.dev, inContext(t.ContextID), withMessage("m2"))
		s.AnswerContext = true
		got := b.send(s)
		b.is("task, created, answered", []any{got.Task.ID, got.Created, got.Answered}, []any{t.ID, false, true})
		s.TaskID = newID()
		got = b.send(s) // nothing is open any more
		b.is("created, answered", []bool{got.Created, got.Answered}, []bool{true, false})
		b.is("context", got.Task.ContextID, t.ContextID)
	})
	run("an answer by context needs the same caller, callee and context", func(b *bed) {
		t := b.parked()
		for _, s := range []hub.Send{
			newSend(b.bob, b.dev, inContext(t.ContextID)), newSend(b.ann, b.ops, inContext(t.ContextID)),
			newSend(b.ann, b.dev, inContext("other")),
		} {
			s.AnswerContext = true
			b.is("created", b.send(s).Created, true)
		}
		b.is("created without asking for an answer", b.send(newSend(b.ann, b.dev, inContext(t.ContextID))).Created, true)
		b.is("phase", b.task(t.ID).Phase, hub.Parked)
	})
	run("an answer by context leaves tasks without a question alone", func(b *bed) {
		t := b.held()
		s := newSend(b.ann, b.dev, inContext(t.ContextID))
		s.AnswerContext = true
		b.is("created", b.send(s).Created, true)
		b.is("messages", len(b.task(t.ID).History), 1)
	})
	run("two questions and answers keep their order", func(b *bed) {
		t := b.parked()
		b.follow(t, "m2")
		c := b.claimTask(t)
		b.report(says(c, hub.InputRequired, func(r *hub.Report) { r.Message = agentMsg("q2") }))
		b.follow(t, "m3")
		c = b.claimTask(t)
		b.report(says(c, hub.Completed))
		b.is("history", messageIDs(b.task(t.ID).History), []string{"m1", "r-input_required", "m2", "q2", "m3"})
	})
	run("racing answers: one answers, the other is a message", func(b *bed) {
		for range 10 {
			t := b.parked()
			answered := make([]bool, 2)
			crowd(2, 2, func(i int) {
				got, err := b.s.Send(b.ctx, newSend(b.ann, b.dev, to(t), withMessage(number("x", i))))
				b.okAll(err)
				answered[i] = got.Answered
			})
			b.is("exactly one answered", answered[0] != answered[1], true)
			c := b.claimTask(t)
			b.is("messages", len(c.History), 4)
			b.nothingReady(b.dev)
		}
	})
}

// heldByOps gives a new task of Ann's that Ops holds.
func (b *bed) heldByOps() *hub.Task {
	b.Helper()
	return b.claimTask(b.ask(b.ann, b.ops))
}
