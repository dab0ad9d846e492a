package storetest

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// config is a push-notification configuration to put.
func config(id string) hub.PushConfig {
	return hub.PushConfig{
		ID: id, URL: "https://example.com/" + id, Version: "1.0", Scheme: "Bearer",
		Token: "a token", Credentials: "some credentials", Sealed: []byte("\x00\xffsealed " + id),
	}
}

func withPush(id string) func(*hub.Send) {
	return func(s *hub.Send) { c := config(id); s.Push = &c }
}

// put adds a configuration for who sent the task.
func (b *bed) put(t *hub.Task, c hub.PushConfig) hub.PushConfig {
	b.Helper()
	got, err := b.s.PutPush(b.ctx, refOf(t), only(t.Caller.ID), c, hub.DefaultLimits())
	b.ok(err)
	return got
}

func (b *bed) push(t *hub.Task, id string) hub.PushConfig {
	b.Helper()
	got, err := b.s.Push(b.ctx, refOf(t), only(t.Caller.ID), id)
	b.ok(err)
	return got
}

// pushes reads all configurations of a task.
func (b *bed) pushes(task string) []hub.PushConfig {
	b.Helper()
	list, err := b.s.TaskPushes(b.ctx, hub.TaskRef{ID: task}, everything())
	b.ok(err)
	return list
}

func (b *bed) pushIDs(t *hub.Task) (ids []string) {
	b.Helper()
	for _, c := range b.pushes(t.ID) {
		ids = append(ids, c.ID)
	}
	return ids
}

func (b *bed) deletePush(t *hub.Task, id string) bool {
	b.Helper()
	had, err := b.s.DeletePush(b.ctx, refOf(t), only(t.Caller.ID), id)
	b.ok(err)
	return had
}

const loan = time.Minute // of configurations

// lend borrows all that is due.
func (b *bed) lend() []hub.PushJob {
	b.Helper()
	jobs, _, err := b.s.LendPushes(b.ctx, 1000, loan)
	b.ok(err)
	return jobs
}

// job borrows all that is due, which must be one configuration.
func (b *bed) job() hub.PushJob {
	b.Helper()
	jobs := b.lend()
	if len(jobs) != 1 {
		b.Fatalf("%d configurations are due, want 1", len(jobs))
	}
	return jobs[0]
}

// idle checks that nothing is due, now or later.
func (b *bed) idle() {
	b.Helper()
	jobs, next, err := b.s.LendPushes(b.ctx, 1000, loan)
	b.ok(err)
	b.is("due, until the next", []any{len(jobs), next}, []any{0, time.Duration(-1)})
}

// settle ends a loan.
func (b *bed) settle(j hub.PushJob, o hub.PushOutcome) {
	b.Helper()
	b.ok(b.s.SettlePush(b.ctx, j, o))
}

func (b *bed) trySettle(j hub.PushJob, o hub.PushOutcome) func() error {
	return func() error { return b.s.SettlePush(b.ctx, j, o) }
}

// done says that all events of a job were delivered.
func done(j hub.PushJob) hub.PushOutcome {
	return hub.PushOutcome{Done: j.Events[len(j.Events)-1].Seq}
}

// deliver borrows what is due, which must be one configuration, and delivers all of it.
func (b *bed) deliver() []int64 {
	b.Helper()
	j := b.job()
	b.settle(j, done(j))
	return seqs(j)
}

func seqs(j hub.PushJob) (list []int64) {
	for _, e := range j.Events {
		list = append(list, e.Seq)
	}
	return list
}

func pushTests(run runner) {
	run("a configuration reads back as it was put, its secrets only sealed", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		want := config("p/\x00é")
		got := b.put(t, want)
		want.Token, want.Credentials, want.Task, want.CreatedAt, want.Cursor = "", "", t.ID, b.clock.Now(), 1
		b.is("given by put", got, want)
		b.is("given by get", b.push(t, want.ID), want)
		b.is("listed", b.pushes(t.ID), []hub.PushConfig{want})
		bare := hub.PushConfig{ID: strings.Repeat("x", 256), URL: "http://h", Version: "0.3"}
		b.put(t, bare)
		bare.Task, bare.CreatedAt, bare.Cursor = t.ID, b.clock.Now(), 1
		b.is("without secrets", b.push(t, bare.ID), bare)
	})
	run("an id is of one task, and lists are in the order of creation", func(b *bed) {
		t, u := b.ask(b.ann, b.dev), b.ask(b.bob, b.dev)
		for _, id := range []string{"c", "a", "b"} {
			b.put(t, config(id))
		}
		b.put(u, config("a"))
		b.deletePush(u, "a")
		b.is("those of the other task", b.pushIDs(t), []string{"c", "a", "b"})
		b.is("counted", []int{b.task(t.ID).Pushes, b.task(u.ID).Pushes}, []int{3, 0})
		_, err := b.s.Push(b.ctx, refOf(u), only(b.bob), "a")
		b.kind("a configuration that the task has not got", err, hub.NotFound)
	})
	run("the same id again replaces, and goes on where it was", func(b *bed) {
		t := b.held()
		b.put(t, config("a"))
		b.put(t, config("b"))
		b.clock.Advance(time.Second)
		b.report(reports(t, put("x", "1")))
		c := config("a")
		c.URL, c.Version, c.Scheme, c.Sealed = "https://other", "0.3", "", nil
		got := b.put(t, c)
		b.is("order", b.pushIDs(t), []string{"a", "b"})
		b.is("cursor", []any{got.Cursor, got.CreatedAt}, []any{int64(2), b.clock.Now().Add(-time.Second)})
		b.is("what is new", []any{got.URL, got.Version, got.Scheme, got.Sealed}, []any{c.URL, "0.3", "", []byte(nil)})
		b.is("counted", b.task(t.ID).Pushes, 2)
	})
	run("a task has at most so many configurations", func(b *bed) {
		t, other := b.ask(b.ann, b.dev), b.ask(b.ann, b.dev)
		few := hub.DefaultLimits()
		few.Pushes = 2
		add := func(t *hub.Task, id string) func() error {
			return func() error {
				_, err := b.s.PutPush(b.ctx, refOf(t), only(b.ann), config(id), few)
				return err
			}
		}
		b.ok(add(t, "a")())
		b.ok(add(t, "b")())
		b.refused("one too many", hub.TooLarge, add(t, "c"))
		s := newSend(b.ann, b.dev, to(t), withPush("c"), withKey("k", "f"))
		s.Limits = few
		b.refused("one too many with a message", hub.TooLarge, b.trySend(s))
		s = newSend(b.ann, b.dev, withPush("c"), withKey("k", "f"))
		s.Limits.Pushes = 0
		b.refused("one too many with a new task", hub.TooLarge, b.trySend(s))
		b.ok(add(t, "a")())
		b.ok(add(other, "c")())
		b.deletePush(t, "a")
		b.ok(add(t, "c")())
	})
	run("only who sent a task, and who sees all, has to do with its configurations", func(b *bed) {
		t := b.held(withPush("a"))
		failure := b.failOnce(t)
		for what, by := range map[string]hub.Viewer{"callee": only(b.dev), "another caller": only(b.bob), "nobody": only("")} {
			b.notTheirs(what, refOf(t), by, failure)
		}
		b.notTheirs("at another address", hub.TaskRef{Callee: b.ops, ID: t.ID}, only(b.ann), "")
		b.notTheirs("a missing task", hub.TaskRef{ID: newID()}, everything(), "")
		_, err := b.s.PutPush(b.ctx, refOf(t), everything(), config("b"), hub.DefaultLimits())
		b.ok(err)
		_, err = b.s.Push(b.ctx, refOf(t), everything(), "b")
		b.ok(err)
		_, err = b.s.DeletePush(b.ctx, refOf(t), everything(), "b")
		b.ok(err)
		_, err = b.s.Redeliver(b.ctx, everything(), failure)
		b.ok(err)
	})
	run("a deleted configuration is gone with what it had to deliver", func(b *bed) {
		t := b.held(withPush("a"))
		b.failOnce(t)
		b.is("deleted", b.deletePush(t, "a"), true)
		b.is("due", len(b.lend()), 0)
		b.is("failures", b.failures(everything(), ""), nil)
		b.unchanged("deleting it again", func() error {
			b.is("deleted again", b.deletePush(t, "a"), false)
			return nil
		})
		b.report(reports(t, put("x", "1")))
		b.idle()
		b.put(t, config("a"))
		b.report(says(t, hub.Completed))
		b.is("events of a new one with that id", b.deliver(), []int64{4})
	})
	run("a configuration wants the events after it was put", func(b *bed) {
		t := b.held()
		b.put(t, config("a"))
		b.idle()
		b.report(reports(t, put("x", "1"), progress("p")))
		j := b.job()
		b.is("events", j.Events, b.events(t.ID)[2:])
		b.is("about", []any{j.Context, j.Caller, j.Callee, j.Ended, j.Config.Cursor}, []any{t.ContextID, t.Caller, t.Callee, false, int64(2)})
		b.settle(j, done(j))
		b.idle()
		b.is("cursor", b.push(t, "a").Cursor, int64(4))
	})
	run("a configuration of a finished task wants its end", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Completed, withEvents(put("x", "1"))))
		b.put(t, config("a"))
		j := b.job()
		b.is("events, ended", []any{seqs(j), j.Ended}, []any{[]int64{4}, true})
		b.settle(j, done(j))
		b.put(t, config("a"))
		b.idle()
	})
	run("one that comes with a new task wants all events", func(b *bed) {
		sent := b.send(newSend(b.ann, b.dev, withPush("a"), withClaim))
		b.is("counted", []int{sent.Task.Pushes, sent.Claimed.Pushes}, []int{1, 1})
		b.is("events", b.deliver(), []int64{1, 2})
	})
	run("one that comes with a message wants the events of that send onwards", func(b *bed) {
		t, p := b.held(), b.parked()
		b.send(newSend(b.ann, b.dev, to(t), withPush("a")))
		b.idle()
		b.send(newSend(b.ann, b.dev, to(p), withPush("b")))
		j := b.job()
		b.is("of the answer", []any{j.Config.ID, seqs(j), j.Events[0].State}, []any{"b", []int64{4}, hub.Working})
		s := newSend(b.ann, b.dev, inContext(p.ContextID), withPush("c"))
		s.AnswerContext = true
		b.settle(j, done(j))
		b.is("a new task, since nothing is asked", b.send(s).Created, true)
		b.is("all of its events", b.deliver(), []int64{1})
	})
	run("a repeated send puts no configuration again", func(b *bed) {
		s := newSend(b.ann, b.dev, withPush("a"), withKey("k", "f"))
		t := b.send(s).Task
		b.deletePush(t, "a")
		b.is("replayed", b.send(s).Replayed, true)
		b.is("configurations", b.pushIDs(t), nil)
	})
	run("a refused send puts none", func(b *bed) {
		t := b.held()
		s := newSend(b.ann, b.dev, to(t), withPush("a"))
		s.Limits.Messages = 1
		b.refused("a message too many", hub.TooLarge, b.trySend(s))
		b.refused("a stranger's message", hub.NotFound, b.trySend(newSend(b.bob, b.dev, to(t), withPush("a"))))
		b.report(says(t, hub.Completed))
		b.refused("a message after the end", hub.Ended, b.trySend(newSend(b.ann, b.dev, to(t), withPush("a"))))
	})
	run("a copy of a failed task has no configurations", func(b *bed) {
		t := b.held(withPush("a"))
		b.report(says(t, hub.Failed))
		c, err := b.s.Requeue(b.ctx, t.ID, newID())
		b.ok(err)
		b.is("configurations", []any{c.Pushes, len(b.pushes(c.ID)), b.pushIDs(t)}, []any{0, 0, []string{"a"}})
	})
	endTests(run)
	pushUpkeepTests(run)
}

// notTheirs checks that a viewer gets nothing of a task's configurations.
func (b *bed) notTheirs(what string, ref hub.TaskRef, by hub.Viewer, failure string) {
	b.Helper()
	calls := map[string]func() error{
		"put":    func() error { _, err := b.s.PutPush(b.ctx, ref, by, config("a"), hub.DefaultLimits()); return err },
		"get":    func() error { _, err := b.s.Push(b.ctx, ref, by, "a"); return err },
		"list":   func() error { _, err := b.s.TaskPushes(b.ctx, ref, by); return err },
		"delete": func() error { _, err := b.s.DeletePush(b.ctx, ref, by, "a"); return err },
	}
	if ref.Callee == "" || failure != "" { // it takes no address
		calls["failures"] = func() error { _, _, err := b.s.PushFailures(b.ctx, by, ref.ID, "", 10); return err }
	}
	if failure != "" {
		calls["redeliver"] = func() error { _, err := b.s.Redeliver(b.ctx, by, failure); return err }
		b.is("all failures for "+what, b.failures(by, ""), nil)
	}
	for op, call := range calls {
		b.refused(what+": "+op, hub.NotFound, call)
	}
}

func endTests(run runner) {
	ends := map[string]func(b *bed, t *hub.Task){
		"a result":       func(b *bed, t *hub.Task) { b.report(says(t, hub.Completed)) },
		"a result alone": func(b *bed, t *hub.Task) { b.report(says(t, hub.Rejected, func(r *hub.Report) { r.Message = nil })) },
		"a cancel":       func(b *bed, t *hub.Task) { b.cancel(t) },
		"a question":     func(b *bed, t *hub.Task) { b.report(says(t, hub.InputRequired)) },
		"lost leases": func(b *bed, _ *hub.Task) {
			none := hub.DefaultLimits()
			none.Redeliveries = 0
			b.clock.Advance(lease + time.Second)
			_, err := b.s.Sweep(b.ctx, 10, true, none)
			b.ok(err)
		},
		"a deadline":         func(b *bed, _ *hub.Task) { b.pass(20 * time.Hour) },
		"a deleted address":  func(b *bed, _ *hub.Task) { _, err := b.s.CancelQueued(b.ctx, b.dev, 10); b.ok(err) },
		"too many hand-outs": (*bed).handOutTooOften,
	}
	for what, end := range ends {
		run("due after "+what, func(b *bed) {
			t := b.held(withDeadline(b.clock.Now().Add(10 * time.Hour)))
			b.put(t, config("a"))
			end(b, t)
			j := b.job()
			now := b.task(t.ID)
			b.is("events, ended", []any{seqs(j), j.Ended}, []any{[]int64{3}, now.Phase == hub.Done})
			b.is("state", j.Events[0].State, now.State)
			b.is("settled", now.State.Settled(), true)
		})
	}
}

func (b *bed) handOutTooOften(t *hub.Task) {
	b.ok(b.s.Release(b.ctx, b.dev, t.ID, t.Attempt))
	c, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease, Attempts: 1})
	b.ok(err)
	b.is("failed", c.Failed, []string{t.ID})
}

func pushUpkeepTests(run runner) {
	run("a task stays until its configurations have nothing left to deliver", func(b *bed) {
		t := b.held(withPush("a"))
		b.put(t, config("b"))
		b.report(says(t, hub.Completed))
		b.clock.Advance(100 * time.Hour)
		b.is("pruned before anything", b.prune(10), 0)
		jobs := b.lend()
		b.is("pruned while on loan", b.prune(10), 0)
		b.settle(jobs[0], done(jobs[0]))
		b.settle(jobs[1], hub.PushOutcome{Done: 2, Error: "no", GiveUp: true})
		b.is("failures", len(b.failures(only(b.ann), "")), 1)
		b.is("pruned when all is done", b.prune(10), 1)
		b.is("failures", b.failures(everything(), ""), nil)
		b.kind("a settlement", b.trySettle(jobs[0], done(jobs[0]))(), hub.NotFound)
		b.idle()
	})
	run("what nobody fetches does not keep its task for ever", func(b *bed) {
		t := b.ask(b.ann, b.dev, withPush("a"))
		b.claim(b.dev)
		b.report(says(t, hub.Completed))
		b.clock.Advance(hub.PushPatience - time.Hour)
		b.is("pruned in time", b.prune(10), 0)
		b.clock.Advance(2 * time.Hour)
		b.is("pruned afterwards", b.prune(10), 1)
		b.idle()
	})
	run("resealing covers configurations, and drops those whose secrets it drops", func(b *bed) {
		t, u := b.ask(b.ann, b.dev, withPush("a")), b.ask(b.bob, b.dev, withPush("a"))
		bare := config("none")
		bare.Sealed = nil
		b.put(t, bare)
		b.put(t, config("b"))
		b.put(t, config("gone"))
		b.failOnce(t)
		gone := hub.PushAbout(t.ID, "gone")
		b.ok(b.s.Reseal(b.ctx, func(sealed []byte, about string) ([]byte, error) {
			if about == gone {
				return nil, nil
			}
			return again(sealed, about)
		}, "check", []byte("new")))
		b.is("configurations", b.pushIDs(t), []string{"a", "none", "b"})
		b.is("counted", b.task(t.ID).Pushes, 3)
		for _, x := range []struct {
			t  *hub.Task
			id string
		}{{t, "a"}, {t, "b"}, {u, "a"}} {
			want := fmt.Sprintf("%s again about push/%s/%s", config(x.id).Sealed, x.t.ID, x.id)
			b.is("resealed", string(b.push(x.t, x.id).Sealed), want)
		}
		b.is("without a secret", b.push(t, "none").Sealed, nil)
	})
	run("configurations, what they have to deliver and loans outlive the store", func(b *bed) {
		if b.h.Reopen == nil {
			b.Skip("this store keeps nothing")
		}
		t := b.held(withPush("a"))
		b.put(t, config("b"))
		b.failOnce(t)
		b.report(says(t, hub.Completed))
		before, out := b.world(), b.lend()
		b.s = b.h.Reopen(b.TB)
		b.is("due while a loan from before is out", len(b.lend()), 0)
		b.ok(b.s.ReleasePushes(b.ctx))
		after := b.world()
		for _, w := range []world{before, after} { // NextTry moved with the loan
			for _, list := range w.Pushes {
				for i := range list {
					list[i].NextTry = time.Time{}
				}
			}
		}
		b.is("all", after, before)
		jobs := b.lend()
		b.is("due after the release", len(jobs), len(out))
		for i, j := range jobs {
			b.is("events", j.Events, out[i].Events)
			b.refused("a settlement from before", hub.Conflict, b.trySettle(out[i], done(out[i])))
			b.settle(j, done(j))
		}
		b.idle()
	})
	run("every event is delivered once and in order, while much happens at once", func(b *bed) {
		b.busy(8, 3, 12)
	})
}
