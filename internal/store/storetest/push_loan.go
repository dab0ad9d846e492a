package storetest

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func loanTests(run runner) {
	run("what is lent is lent to nobody else until the loan ends", func(b *bed) {
		t := b.held(withPush("a"))
		jobs, next, err := b.s.LendPushes(b.ctx, 10, loan)
		b.ok(err)
		b.is("lent, until the next", []any{len(jobs), next}, []any{1, loan})
		b.is("next try while it is out", b.push(t, "a").NextTry, time.Time{})
		b.clock.Advance(loan - time.Second)
		jobs, next, err = b.s.LendPushes(b.ctx, 10, loan)
		b.ok(err)
		b.is("lent, until the next", []any{len(jobs), next}, []any{0, time.Second})
		b.clock.Advance(time.Second)
		b.is("lent again", seqs(b.job()), []int64{1, 2})
	})
	run("a settlement under another loan than the newest changes nothing", func(b *bed) {
		t := b.held(withPush("a"))
		old := b.job()
		b.clock.Advance(loan)
		j := b.job()
		b.refused("the older loan", hub.Conflict, b.trySettle(old, done(old)))
		b.settle(j, done(j))
		b.refused("the same loan again", hub.Conflict, b.trySettle(j, hub.PushOutcome{Error: "no"}))
		b.report(says(t, hub.Completed))
		b.refused("the same loan, with something due", hub.Conflict, b.trySettle(j, done(j)))
		b.is("events", b.deliver(), []int64{3})
	})
	run("a loan whose time is over can be settled until it is lent again", func(b *bed) {
		b.held(withPush("a"))
		j := b.job()
		b.clock.Advance(2 * loan)
		b.settle(j, done(j))
		b.idle()
	})
	run("a configuration deleted while on loan takes no settlement, nor does its successor", func(b *bed) {
		t := b.held(withPush("a"))
		j := b.job()
		b.deletePush(t, "a")
		b.refused("gone", hub.NotFound, b.trySettle(j, done(j)))
		b.put(t, config("a"))
		b.report(reports(t, put("x", "1")))
		b.refused("another one, not lent", hub.Conflict, b.trySettle(j, done(j)))
		k := b.job()
		b.refused("another one, lent", hub.Conflict, b.trySettle(j, done(k)))
		b.settle(k, done(k))
	})
	run("an event that comes during a loan is due when it ends", func(b *bed) {
		t := b.held(withPush("a"))
		j := b.job()
		b.report(reports(t, put("x", "1")))
		b.is("due meanwhile", len(b.lend()), 0)
		b.settle(j, done(j))
		b.is("next try", b.push(t, "a").NextTry, b.clock.Now())
		b.is("events", b.deliver(), []int64{3})
		b.idle()
	})
	run("a failure counts a try and puts off what is left; a delivery forgets it", func(b *bed) {
		t := b.held(withPush("a"))
		began := b.clock.Now()
		b.settle(b.job(), hub.PushOutcome{Done: 1, Error: "refused", Retry: time.Minute})
		c := b.push(t, "a")
		b.is("cursor, tries, error", []any{c.Cursor, c.Tries, c.LastError}, []any{int64(1), 1, "refused"})
		b.is("since, next", []time.Time{c.FailedSince, c.NextTry}, []time.Time{began, began.Add(time.Minute)})
		b.report(reports(t, put("x", "1")))
		jobs, next, err := b.s.LendPushes(b.ctx, 10, loan)
		b.ok(err)
		b.is("a new event hastens nothing", []any{len(jobs), next}, []any{0, time.Minute})
		b.clock.Advance(time.Minute)
		j := b.job()
		b.is("lent with", []any{seqs(j), j.Config.Tries, j.Config.FailedSince}, []any{[]int64{2, 3}, 1, began})
		b.settle(j, hub.PushOutcome{Error: "again", Retry: time.Second})
		c = b.push(t, "a")
		b.is("tries, error, since", []any{c.Tries, c.LastError, c.FailedSince}, []any{2, "again", began})
		b.clock.Advance(time.Second)
		b.settle(b.job(), hub.PushOutcome{Done: 2, Retry: time.Second})
		c = b.push(t, "a")
		b.is("after a delivery", []any{c.Cursor, c.Tries, c.LastError, c.FailedSince}, []any{int64(2), 0, "", time.Time{}})
		b.is("what is left was put off", c.NextTry, b.clock.Now().Add(time.Second))
		b.is("due", len(b.lend()), 0)
		b.clock.Advance(time.Second)
		b.is("events", b.deliver(), []int64{3})
		b.is("nothing was given up", b.failures(everything(), ""), nil)
		b.is("in the activity", b.count(t.ID, hub.ActPushFailed), 0)
	})
	run("a delivery beyond the last event, or before the cursor, moves nothing", func(b *bed) {
		t := b.held(withPush("a"))
		b.settle(b.job(), hub.PushOutcome{Done: 100})
		b.is("cursor", b.push(t, "a").Cursor, int64(2))
		b.report(reports(t, put("x", "1")))
		b.settle(b.job(), hub.PushOutcome{Done: 1, Error: "no"})
		c := b.push(t, "a")
		b.is("cursor, tries", []any{c.Cursor, c.Tries}, []any{int64(2), 1})
		b.settle(b.job(), hub.PushOutcome{Done: 3, Error: "nothing is left that could fail", Retry: time.Hour})
		b.idle()
		b.is("tries", b.push(t, "a").Tries, 0)
	})
	run("the longest wait comes first, so many at a time", func(b *bed) {
		var want, got []string
		for i := range 5 { // the youngest is due first
			t := b.ask(b.ann, b.dev, withPush("a"))
			b.settle(b.job(), hub.PushOutcome{Error: "no", Retry: time.Duration(10-i) * time.Second})
			want = append([]string{t.ID}, want...)
		}
		b.clock.Advance(time.Minute)
		for i := range 3 {
			jobs, next, err := b.s.LendPushes(b.ctx, 2, loan)
			b.ok(err)
			for _, j := range jobs {
				got = append(got, j.Config.Task)
			}
			b.is("until the next", next, []time.Duration{0, 0, loan}[i])
		}
		b.is("tasks", got, want)
	})
	run("a configuration that fails holds up no other", func(b *bed) {
		t := b.held(withPush("a"))
		b.put(t, config("b"))
		b.settle(b.job(), hub.PushOutcome{Error: "no", Retry: time.Hour})
		b.report(says(t, hub.Completed))
		j := b.job()
		b.is("due", []any{j.Config.ID, seqs(j), j.Ended}, []any{"b", []int64{3}, true})
	})
	run("a job brings at most so many events, and of large ones few", func(b *bed) {
		t := b.held()
		b.put(t, config("a"))
		many := make([]hub.Event, 100)
		for i := range many {
			many[i] = put("x", "1")
		}
		b.report(reports(t, many...))
		b.is("events", []int{len(b.deliver()), len(b.deliver())}, []int{64, 36})
		large := put("y", strings.Repeat("x", 700<<10))
		b.report(says(t, hub.Completed, withEvents(large, large, large)))
		j := b.job()
		b.is("large ones, ended", []any{seqs(j), j.Ended}, []any{[]int64{103, 104}, false})
		b.settle(j, done(j))
		j = b.job()
		b.is("the rest, ended", []any{seqs(j), j.Ended}, []any{[]int64{105, 106}, true})
	})
	run("parallel loans never give one configuration twice", func(b *bed) {
		const many = 60
		for range many / 2 {
			b.put(b.held(withPush("a")), config("b"))
		}
		for _, t := range b.list(hub.TaskFilter{By: everything()}) {
			b.report(says(b.task(t.ID), hub.Completed))
		}
		var mu sync.Mutex
		seen := map[string]int{}
		crowd(16, 40, func(int) {
			jobs, _, err := b.s.LendPushes(b.ctx, 3, loan)
			b.okAll(err)
			mu.Lock()
			defer mu.Unlock()
			for _, j := range jobs {
				seen[j.Config.Task+j.Config.ID]++
			}
		})
		b.is("lent", len(seen), many)
		for id, n := range seen {
			if n != 1 {
				b.Errorf("%s was lent %d times at once", id, n)
			}
		}
	})
	changedOnLoanTests(run)
}

func changedOnLoanTests(run runner) {
	run("replaced while on loan, what the loan delivers is delivered again", func(b *bed) {
		t := b.held(withPush("a"))
		j := b.job()
		c := config("a")
		c.URL = "https://other"
		b.put(t, c)
		b.is("due while the loan is out", len(b.lend()), 0)
		b.settle(j, done(j))
		j = b.job()
		b.is("to, events", []any{j.Config.URL, seqs(j)}, []any{"https://other", []int64{1, 2}})
		b.put(t, c)
		b.settle(j, hub.PushOutcome{Error: "no", GiveUp: true})
		got := b.push(t, "a")
		b.is("a failure of what was replaced does not count", []any{got.Tries, got.Cursor, got.Failed, got.LastError}, []any{0, int64(0), 0, ""})
		b.is("events", b.deliver(), []int64{1, 2})
	})
	run("replaced while it waits to be tried again, it is tried at once", func(b *bed) {
		t := b.held(withPush("a"))
		b.settle(b.job(), hub.PushOutcome{Error: "no", Retry: time.Hour})
		b.clock.Advance(time.Second)
		got := b.put(t, config("a"))
		b.is("tries, error, since", []any{got.Tries, got.LastError, got.FailedSince}, []any{0, "", time.Time{}})
		b.is("events", b.deliver(), []int64{1, 2})
	})
	run("taken up again while on loan, a failure is delivered after the loan", func(b *bed) {
		t := b.held(withPush("a"))
		failure := b.failOnce(t)
		j := b.job()
		b.is("lent", seqs(j), []int64{2})
		got, err := b.s.Redeliver(b.ctx, only(b.ann), failure)
		b.ok(err)
		b.is("cursor", got.Cursor, int64(0))
		b.is("due while the loan is out", len(b.lend()), 0)
		b.settle(j, done(j))
		b.is("events", b.deliver(), []int64{1, 2})
	})
	run("a loan that never ends is over in time, also when the configuration was replaced", func(b *bed) {
		t := b.held(withPush("a"))
		b.job()
		b.put(t, config("a"))
		b.clock.Advance(loan)
		j := b.job()
		b.settle(j, done(j))
		b.idle()
	})
	run("a release ends all loans", func(b *bed) {
		t := b.held(withPush("a"))
		b.put(b.held(withPush("b")), config("c"))
		b.settle(b.lend()[1], hub.PushOutcome{Error: "no", Retry: time.Hour})
		b.clock.Advance(time.Second)
		b.ok(b.s.ReleasePushes(b.ctx))
		j := b.job()
		b.is("what waited to be tried again still waits", []any{j.Config.ID, j.Config.Task}, []any{"a", t.ID})
		b.settle(j, done(j))
		b.unchanged("a release when all is settled", func() error { return b.s.ReleasePushes(b.ctx) })
	})
}

// busy has many callees report while several senders deliver, and checks what every
// configuration was sent.
func (b *bed) busy(tasks, senders, reportsEach int) {
	var held []*hub.Task
	for range tasks {
		held = append(held, b.held(withPush("a")))
		b.put(held[len(held)-1], config("b"))
	}
	var mu sync.Mutex
	sent := map[string][]int64{}
	out := map[string]bool{}
	var ended atomic.Int64
	deliver := func() {
		jobs, _, err := b.s.LendPushes(b.ctx, 3, time.Hour)
		b.okAll(err)
		for _, j := range jobs {
			id := j.Config.Task + j.Config.ID
			mu.Lock()
			if out[id] {
				b.Errorf("%s is on loan twice at once", id)
			}
			out[id] = true
			sent[id] = append(sent[id], seqs(j)...)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			out[id] = false
			mu.Unlock()
			b.okAll(b.s.SettlePush(b.ctx, j, done(j)))
		}
	}
	crowd(tasks+senders, tasks+senders, func(i int) {
		if i >= tasks {
			for ended.Load() < int64(tasks) && !b.Failed() {
				deliver()
			}
			return
		}
		defer ended.Add(1)
		for range reportsEach {
			_, err := b.s.Report(b.ctx, reports(held[i], put("x", "1"), progress("p")))
			b.okAll(err)
		}
		_, err := b.s.Report(b.ctx, says(held[i], hub.Completed))
		b.okAll(err)
	})
	for range 2 * tasks {
		deliver()
	}
	b.idle()
	for _, t := range held {
		var want []int64
		for _, e := range b.events(t.ID) {
			want = append(want, e.Seq)
		}
		b.is("sent to the one that came with the task", sent[t.ID+"a"], want)
		b.is("sent to the one that came later", sent[t.ID+"b"], slices.Clone(want[2:]))
	}
}
