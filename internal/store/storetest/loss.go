package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// lossOf says that the delivery under a claim was lost.
func lossOf(t *hub.Task, reason string) hub.Loss {
	return hub.Loss{Callee: t.Callee.ID, Task: t.ID, Attempt: t.Attempt, Reason: reason, Limits: hub.DefaultLimits()}
}

// lose loses a delivery.
func (b *bed) lose(t *hub.Task, change ...func(*hub.Loss)) *hub.Task {
	b.Helper()
	l := lossOf(t, "it answered 503")
	for _, f := range change {
		f(&l)
	}
	got, err := b.s.Lose(b.ctx, l)
	b.ok(err)
	return got
}

func lossTests(run runner) {
	run("a lost delivery waits out a backoff and is then ready at the floor", func(b *bed) {
		t := b.held()
		got := b.lose(t)
		b.is("phase, state, failures, attempt", []any{got.Phase, got.State, got.Failures, got.Attempt}, []any{hub.Ready, hub.Working, 1, 1})
		b.is("due", got.Due, b.clock.Now().Add(hub.DefaultLimits().BackoffMin))
		b.is("as read", b.task(t.ID).Due, got.Due)
		b.nothingReady(b.dev)
		b.pass(hub.DefaultLimits().BackoffMin + time.Millisecond)
		b.claimTask(t)
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed, hub.ActLost, hub.ActClaimed})
		line := b.acts(t.ID)[2]
		if line.Actor != "hub" || !strings.Contains(line.Detail, "it answered 503") {
			b.Errorf("the line %+v does not say who noted it and why", line)
		}
	})
	run("a loss may ask for more patience than the backoff has", func(b *bed) {
		got := b.lose(b.held(), func(l *hub.Loss) { l.After = 10 * time.Minute })
		b.is("due", got.Due, b.clock.Now().Add(10*time.Minute))
		got = b.lose(b.held(), func(l *hub.Loss) { l.After = time.Millisecond })
		b.is("due", got.Due, b.clock.Now().Add(hub.DefaultLimits().BackoffMin))
	})
	run("losses and lapses count together, and the last one fails the task with the reason", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		for i := range 6 {
			c := b.claimTask(t)
			if i == 2 {
				b.expire()
			} else {
				b.lose(c)
			}
			b.pass(time.Minute)
		}
		now := b.task(t.ID)
		b.is("state, phase, failures", []any{now.State, now.Phase, now.Failures}, []any{hub.Failed, hub.Done, 6})
		if !strings.Contains(now.Error, "6 times") || !strings.Contains(now.Error, "it answered 503") {
			b.Errorf("the task says too little of why it failed: %q", now.Error)
		}
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working, hub.Failed})
		b.nothingReady(b.dev)
	})
	run("an address decides its own redeliveries of losses", func(b *bed) {
		callee := b.address("zero", func(a *hub.Address) { a.MaxRedeliveries = 0 })
		b.ask(b.ann, callee)
		b.is("state", b.lose(b.claim(callee)).State, hub.Failed)
	})
	run("a lost claim may still report until the task is claimed again", func(b *bed) {
		t := b.held()
		b.lose(t)
		b.report(says(t, hub.Completed))
		b.is("state", b.task(t.ID).State, hub.Completed)
		b.nothingReady(b.dev)
	})
	run("a report without its claim is not taken after a loss", func(b *bed) {
		t := b.held()
		b.lose(t)
		unnamed := *t
		unnamed.Attempt = 0
		b.kind("the report", b.tryReport(says(&unnamed, hub.Completed))(), hub.Conflict)
	})
	run("only the claim that holds the task can lose it", func(b *bed) {
		t := b.held()
		refuse := func(what string, kind hub.Kind, change func(*hub.Loss)) {
			b.Helper()
			l := lossOf(t, "no")
			change(&l)
			_, err := b.s.Lose(b.ctx, l)
			b.kind(what, err, kind)
		}
		refuse("another callee", hub.NotFound, func(l *hub.Loss) { l.Callee = b.ops })
		refuse("no such task", hub.NotFound, func(l *hub.Loss) { l.Task = newID() })
		refuse("no claim", hub.Conflict, func(l *hub.Loss) { l.Attempt = 0 })
		refuse("a claim that never was", hub.Conflict, func(l *hub.Loss) { l.Attempt = 2 })
		b.lose(t)
		refuse("once more", hub.Conflict, func(*hub.Loss) {})
		b.pass(time.Minute)
		b.claimTask(t)
		refuse("an older claim", hub.Conflict, func(*hub.Loss) {})
		b.cancel(t)
		refuse("after the end", hub.Conflict, func(l *hub.Loss) { l.Attempt = 2 })
		b.is("state", b.task(t.ID).State, hub.Canceled)
	})
	run("a deadline comes before the end of a backoff", func(b *bed) {
		deadline := b.clock.Now().Add(30 * time.Second)
		b.send(newSend(b.ann, b.dev, func(s *hub.Send) { s.Deadline = deadline }))
		got := b.lose(b.claim(b.dev), func(l *hub.Loss) { l.After = time.Hour })
		b.is("due", got.Due, deadline)
	})
	run("a heartbeat can change the lease, and leave the messages to be seen by others", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		h := beatOf(t)
		h.Lease, h.Unread = 3*lease, true
		got, err := b.s.Heartbeat(b.ctx, h)
		b.ok(err)
		b.is("lease, messages", []any{got.LeaseUntil, len(got.Messages)}, []any{b.clock.Now().Add(3 * lease), 0})
		b.is("changed", b.pass(2*lease).Changed, 0)
		got, err = b.s.Heartbeat(b.ctx, beatOf(t))
		b.ok(err)
		b.is("then, lease and messages", []any{got.LeaseUntil, len(got.Messages)}, []any{b.clock.Now().Add(3 * lease), 1})
	})
	run("whoever passes messages on says how far that came", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		b.follow(t, "m3")
		h := beatOf(t)
		h.Unread = true
		for after, unseen := range map[int]bool{-1: true, 2: true} {
			h.After = after
			got, err := b.s.Heartbeat(b.ctx, h)
			b.ok(err)
			b.is(fmt.Sprint("unseen after ", after), got.Unseen, unseen)
		}
		h.Unread, h.After = false, -1
		got, err := b.s.Heartbeat(b.ctx, h)
		b.ok(err)
		b.is("messages that are left", len(got.Messages), 1)
		h.Unread = true
		got, err = b.s.Heartbeat(b.ctx, h)
		b.ok(err)
		b.is("unseen in the end", got.Unseen, false)
	})
	run("a cancel that is still to be passed on is not confirmed", func(b *bed) {
		t := b.held()
		b.cancel(t)
		h := beatOf(t)
		h.Unread = true
		got, err := b.s.Heartbeat(b.ctx, h)
		b.ok(err)
		b.is("asked, outcome", []any{got.CancelRequested, b.task(t.ID).CancelOutcome}, []any{true, hub.CancelUnconfirmed})
	})
	run("messages that only a blind heartbeat passed by are undelivered at the end", func(b *bed) {
		t := b.held()
		b.follow(t, "m2")
		h := beatOf(t)
		h.Unread = true
		_, err := b.s.Heartbeat(b.ctx, h)
		b.ok(err)
		b.report(says(t, hub.Completed))
		b.is("lines", b.count(t.ID, hub.ActUndelivered), 1)
	})
}
