package storetest

import (
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func sendTests(run runner) {
	run("a new task is submitted, ready and complete in every field", func(b *bed) {
		b.clock.Advance(time.Second)
		s := newSend(b.ann, b.dev, inContext("ctx-1"))
		s.Tags, s.Metadata = []byte(`{"team":"red"}`), []byte(`{"n":1}`)
		s.ParentTask, s.ParentCall, s.Run = newID(), newID(), newID()
		s.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		s.Deadline = b.clock.Now().Add(time.Hour)
		got := b.send(s)
		want := &hub.Task{
			ID: s.TaskID, ContextID: "ctx-1",
			Caller: hub.Party{ID: b.ann, Handle: "ann", Kind: hub.KindAgent}, Callee: hub.Party{ID: b.dev, Handle: "dev", Kind: hub.KindAgent},
			State: hub.Submitted, StateAt: b.clock.Now(), Phase: hub.Ready, Seq: 1, Messages: 1,
			Tags: s.Tags, Metadata: s.Metadata, ParentTask: s.ParentTask, ParentCall: s.ParentCall,
			Run: s.Run, Trace: s.Trace, Deadline: s.Deadline, CreatedAt: b.clock.Now(),
		}
		b.is("the task in the answer", got.Task, want)
		b.is("created, answered, replayed", []bool{got.Created, got.Answered, got.Replayed}, []bool{true, false, false})
		b.is("the claimed task", got.Claimed, (*hub.Task)(nil))
		want.History = []hub.Message{{N: 1, Body: s.Message}}
		b.is("the task as read", b.task(s.TaskID), want)
	})
	run("a task without lineage is its own run and has no parents", func(b *bed) {
		t := b.task(b.ask(b.ann, b.dev).ID)
		b.is("run", t.Run, t.ID)
		b.is("parents, trace and origin", []string{t.ParentTask, t.ParentCall, t.Trace, t.RequeueOf}, []string{"", "", "", ""})
		b.is("deadline is never", t.Deadline.IsZero(), true)
	})
	run("event 1 is SUBMITTED, at the time of acceptance", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.is("events", b.events(t.ID), []hub.Event{{Seq: 1, Kind: hub.StatusEvent, At: b.clock.Now(), State: hub.Submitted}})
	})
	run("a send is one line of activity, by its caller", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		lines := b.acts(t.ID)
		if len(lines) != 1 {
			b.Fatalf("got %d lines, want 1: %+v", len(lines), lines)
		}
		lines[0].Cursor = ""
		b.is("the line", lines[0], hub.Activity{
			At: b.clock.Now(), Kind: hub.ActSent, Run: t.Run, Task: t.ID, Seq: 1,
			Actor: "ann", Caller: "ann", Callee: "dev",
		})
	})
	run("a caller may send to itself", func(b *bed) {
		t := b.ask(b.dev, b.dev)
		b.is("claimed", b.claim(b.dev).ID, t.ID)
		b.report(says(&hub.Task{ID: t.ID, Callee: t.Callee, Attempt: 1}, hub.Completed))
	})
	run("a send with a claim takes its own task when nothing else is ready", func(b *bed) {
		got := b.send(newSend(b.ann, b.dev, withClaim))
		if got.Claimed == nil || got.Claimed.ID != got.Task.ID {
			b.Fatalf("claimed %+v, want the sent task", got.Claimed)
		}
		b.is("phase and attempt", []any{got.Claimed.Phase, got.Claimed.Attempt}, []any{hub.Leased, 1})
		b.is("history", messageIDs(got.Claimed.History), []string{"m1"})
		b.is("states", b.states(got.Task.ID), []hub.State{hub.Submitted, hub.Working})
		b.nothingReady(b.dev)
	})
	run("a send with a claim takes the callee's first task", func(b *bed) {
		first := b.ask(b.bob, b.dev)
		b.ask(b.bob, b.ops)
		got := b.send(newSend(b.ann, b.dev, withClaim))
		b.is("claimed", got.Claimed.ID, first.ID)
		b.is("the sent task stays ready", b.task(got.Task.ID).Phase, hub.Ready)
	})
	run("a message with a claim takes what is ready, or nothing", func(b *bed) {
		t := b.held()
		got := b.send(newSend(b.ann, b.dev, to(t), withMessage("m2"), withClaim))
		b.is("claimed while the only task is leased", got.Claimed, (*hub.Task)(nil))
		p := b.report(says(t, hub.InputRequired)).Task
		got = b.send(newSend(b.ann, b.dev, to(p), withMessage("m3"), withClaim))
		if got.Claimed == nil || got.Claimed.ID != t.ID {
			b.Fatalf("the answer's own task was not claimed with it: %+v", got.Claimed)
		}
		b.is("history with the claim", messageIDs(got.Claimed.History), []string{"m1", "m2", "r-input_required", "m3"})
	})
	run("a refused send claims nothing", func(b *bed) {
		ready := b.ask(b.bob, b.dev)
		b.refused("a message to no task, with a claim", hub.NotFound,
			b.trySend(newSend(b.ann, b.dev, withClaim, func(s *hub.Send) { s.FollowUp = newID() })))
		b.claimTask(ready)
	})
	run("queue stats count what is unfinished and how long it has waited", func(b *bed) {
		b.ask(b.ann, b.dev)
		b.clock.Advance(7 * time.Second)
		b.ask(b.bob, b.dev)
		b.askMany(3, b.ann, b.ops)
		b.claim(b.ops)
		b.report(says(b.claim(b.ops), hub.InputRequired))
		b.report(says(b.claim(b.ops), hub.Completed))
		got, err := b.s.QueueStats(b.ctx)
		b.ok(err)
		b.is("stats", got, hub.QueueStats{Ready: 2, Leased: 1, Parked: 1, OldestReady: 7 * time.Second})
		var sum hub.MailboxStats
		for _, a := range []string{b.dev, b.ops} {
			one, err := b.s.MailboxStats(b.ctx, a)
			b.ok(err)
			sum.Ready, sum.Open, sum.OldestReady = sum.Ready+one.Ready, sum.Open+one.Open, max(sum.OldestReady, one.OldestReady)
		}
		b.is("stats of the mailboxes together", sum, hub.MailboxStats{Ready: 2, Open: 4, OldestReady: 7 * time.Second})
	})
	run("queue stats of an idle hub are zero", func(b *bed) {
		b.report(says(b.held(), hub.Completed))
		b.clock.Advance(time.Hour)
		got, err := b.s.QueueStats(b.ctx)
		b.ok(err)
		b.is("stats", got, hub.QueueStats{})
	})
}

func keyTests(run runner) {
	run("the same key and fingerprint give the first task and change nothing", func(b *bed) {
		t := b.ask(b.ann, b.dev, withKey("k", "f"))
		var got hub.Sent
		b.unchanged("a replay", func() (err error) {
			got, err = b.s.Send(b.ctx, newSend(b.ann, b.dev, withKey("k", "f"), withMessage("m-again")))
			return err
		})
		b.is("created, answered, replayed", []bool{got.Created, got.Answered, got.Replayed}, []bool{false, false, true})
		b.is("task", got.Task, t)
	})
	run("a replay gives the task as it is now", func(b *bed) {
		t := b.held(withKey("k", "f"))
		b.report(says(t, hub.Completed))
		got := b.send(newSend(b.ann, b.dev, withKey("k", "f")))
		b.is("task and state", []any{got.Task.ID, got.Task.State, got.Replayed}, []any{t.ID, hub.Completed, true})
	})
	run("another fingerprint is refused", func(b *bed) {
		b.ask(b.ann, b.dev, withKey("k", "f"))
		b.refused("a reused key", hub.KeyReused, b.trySend(newSend(b.ann, b.dev, withKey("k", "g"))))
	})
	run("a reused key claims nothing", func(b *bed) {
		b.ask(b.ann, b.dev, withKey("k", "f"))
		b.refused("a reused key", hub.KeyReused, b.trySend(newSend(b.ann, b.dev, withKey("k", "g"), withClaim)))
	})
	run("another caller or callee has its own keys", func(b *bed) {
		seen := map[string]bool{}
		for _, s := range []hub.Send{
			newSend(b.ann, b.dev, withKey("k", "f")), newSend(b.bob, b.dev, withKey("k", "f")),
			newSend(b.ann, b.ops, withKey("k", "g")), newSend(b.ann, b.dev, withKey("l", "f")),
		} {
			got := b.send(s)
			b.is("created", got.Created, true)
			seen[got.Task.ID] = true
		}
		b.is("tasks", len(seen), 4)
	})
	run("only a key deduplicates", func(b *bed) {
		s := newSend(b.ann, b.dev)
		b.send(s)
		s.TaskID = newID()
		b.is("created", b.send(s).Created, true)
		b.is("tasks", len(b.list(hub.TaskFilter{By: only(b.ann)})), 2)
	})
	run("a refused send leaves no key behind", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.cancel(t)
		b.refused("a message to an ended task", hub.Ended, b.trySend(newSend(b.ann, b.dev, to(t), withKey("k", "f"))))
		b.is("created with that key", b.send(newSend(b.ann, b.dev, withKey("k", "g"))).Created, true)
	})
	run("a send refused for its rate leaves no key behind", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		s := newSend(b.ann, b.dev, withKey("k", "f"))
		s.Limits.OpenTasks = 1
		b.refused("one task too many", hub.RateLimited, b.trySend(s))
		b.cancel(t)
		b.is("created with that key", b.send(s).Created, true)
	})
	run("keys work for follow-ups too", func(b *bed) {
		t := b.parked()
		answer := newSend(b.ann, b.dev, to(t), withMessage("m2"), withKey("k", "f"))
		b.is("answered", b.send(answer).Answered, true)
		var got hub.Sent
		b.unchanged("a replayed answer", func() (err error) { got, err = b.s.Send(b.ctx, answer); return err })
		b.is("answered, replayed", []bool{got.Answered, got.Replayed}, []bool{false, true})
		b.refused("another message with that key", hub.KeyReused,
			b.trySend(newSend(b.ann, b.dev, to(t), withMessage("m3"), withKey("k", "g"))))
	})
	run("a follow-up is replayed even after the task has ended", func(b *bed) {
		t := b.held()
		s := newSend(b.ann, b.dev, to(t), withMessage("m2"), withKey("k", "f"))
		b.send(s)
		b.report(says(t, hub.Completed))
		b.is("replayed", b.send(s).Replayed, true)
	})
	run("a send that is to be refused is still replayed, and its task authorised first", func(b *bed) {
		answered := b.parked()
		t := b.ask(b.ann, b.dev, withKey("k", "f"))
		answer := newSend(b.ann, b.dev, to(answered), withMessage("m2"), withKey("a", "f"))
		b.send(answer)
		refuse := func(s *hub.Send) { s.Refuse = hub.InvalidField("url", "no") }
		b.is("replayed", b.send(newSend(b.ann, b.dev, withKey("k", "f"), refuse)).Task.ID, t.ID)
		refuse(&answer)
		b.is("replayed answer", b.send(answer).Replayed, true)
		b.refused("a new task", hub.Invalid, b.trySend(newSend(b.ann, b.dev, withKey("l", "f"), refuse)))
		b.refused("a message", hub.Invalid, b.trySend(newSend(b.ann, b.dev, to(t), refuse)))
		b.refused("a stranger's message", hub.NotFound, b.trySend(newSend(b.bob, b.dev, to(t), refuse)))
		b.is("created with that key", b.send(newSend(b.ann, b.dev, withKey("l", "g"))).Created, true)
	})
	run("a replay is not refused by limits that only new tasks meet", func(b *bed) {
		s := newSend(b.ann, b.dev, withKey("k", "f"))
		s.Limits.OpenTasks = 1
		b.send(s)
		b.is("replayed", b.send(s).Replayed, true)
	})
	run("a key counts until 24 hours after the end", func(b *bed) {
		s := newSend(b.ann, b.dev, withKey("k", "f"))
		t := b.send(s).Task
		b.clock.Advance(72 * time.Hour)
		b.is("replayed while unfinished", b.send(s).Replayed, true)
		b.cancel(t)
		b.pass(24*time.Hour - time.Second)
		b.is("replayed just before", b.send(s).Replayed, true)
		b.kind("another request just before", b.trySend(newSend(b.ann, b.dev, withKey("k", "g")))(), hub.KeyReused)
		b.pass(2 * time.Second)
		got := b.send(newSend(b.ann, b.dev, withKey("k", "g")))
		b.is("created just after", got.Created, true)
		b.is("replayed with the new task", b.send(newSend(b.ann, b.dev, withKey("k", "g"))).Task.ID, got.Task.ID)
	})
	run("20 parallel identical sends make one task", func(b *bed) {
		got := make([]hub.Sent, 20)
		crowd(20, 20, func(i int) {
			var err error
			got[i], err = b.s.Send(b.ctx, newSend(b.ann, b.dev, withKey("k", "f")))
			b.okAll(err)
		})
		b.noFailure()
		created := 0
		for _, r := range got {
			b.is("task", r.Task.ID, got[0].Task.ID)
			b.is("either created or replayed", r.Created, !r.Replayed)
			if r.Created {
				created++
			}
		}
		b.is("created", created, 1)
		b.is("tasks", ids(b.list(hub.TaskFilter{By: everything()})), []string{got[0].Task.ID})
		b.claimTask(got[0].Task)
		b.nothingReady(b.dev)
	})
	run("a replay with a claim claims what is ready", func(b *bed) {
		s := newSend(b.ann, b.dev, withKey("k", "f"), withClaim)
		first := b.send(s)
		b.is("claimed with the first send", first.Claimed.ID, first.Task.ID)
		second := b.send(s)
		b.is("replayed and nothing claimed", []any{second.Replayed, second.Claimed}, []any{true, (*hub.Task)(nil)})
		other := b.ask(b.bob, b.dev)
		third := b.send(s)
		b.is("replayed", third.Replayed, true)
		b.is("claimed", third.Claimed.ID, other.ID)
	})
}

// noFailure ends the test if another goroutine has failed it.
func (b *bed) noFailure() {
	b.Helper()
	if b.Failed() {
		b.FailNow()
	}
}

func limitTests(run runner) {
	run("a caller's unfinished tasks at a callee are limited", func(b *bed) {
		s := newSend(b.ann, b.dev)
		s.Limits.OpenTasks = 2
		again := func() hub.Send { s.TaskID = newID(); return s }
		first := b.send(again()).Task
		b.send(again())
		b.refused("the third", hub.RateLimited, b.trySend(again()))
		other := again()
		other.Caller = b.bob
		b.send(other)
		other = again()
		other.Callee = b.ops
		b.send(other)
		b.follow(first, "m2") // not a new task
		held := b.claimTask(first)
		b.refused("the third, with one leased", hub.RateLimited, b.trySend(again()))
		b.report(says(held, hub.InputRequired))
		b.refused("the third, with one parked", hub.RateLimited, b.trySend(again()))
		b.cancel(first)
		b.is("created once one has ended", b.send(again()).Created, true)
	})
	run("every way to end a task frees its place", func(b *bed) {
		s := newSend(b.ann, b.dev)
		s.Limits.OpenTasks = 1
		again := func() *hub.Task { s.TaskID = newID(); return b.send(s).Task }
		for _, state := range []hub.State{hub.Completed, hub.Failed, hub.Rejected} {
			again()
			b.report(says(b.claim(b.dev), state))
		}
		s.Deadline = b.clock.Now().Add(time.Second)
		again()
		b.pass(2 * time.Second)
		s.Deadline = time.Time{}
		again()
		_, err := b.s.CancelQueued(b.ctx, b.dev, 10)
		b.ok(err)
		again()
		b.kind("one too many", b.trySend(newSend(b.ann, b.dev, func(n *hub.Send) { n.Limits = s.Limits }))(), hub.RateLimited)
	})
	run("the open tasks limit holds under concurrency", func(b *bed) {
		made := make([]bool, 40)
		crowd(20, len(made), func(i int) {
			s := newSend(b.ann, b.dev)
			s.Limits.OpenTasks = 7
			_, err := b.s.Send(b.ctx, s)
			made[i] = err == nil
			if err != nil && hub.KindOf(err) != hub.RateLimited {
				b.okAll(err)
			}
		})
		n := 0
		for _, ok := range made {
			if ok {
				n++
			}
		}
		b.is("accepted", n, 7)
	})
	run("a task's messages are limited", func(b *bed) {
		t := b.held()
		s := newSend(b.ann, b.dev, to(t))
		s.Limits.Messages = 3
		b.send(s)
		b.send(s)
		b.refused("the fourth", hub.TooLarge, b.trySend(s))
		s.Key = &hub.Key{Hash: hash("k"), Fingerprint: hash("f")}
		b.refused("the fourth, with a key", hub.TooLarge, b.trySend(s))
		b.report(says(t, hub.Completed))
	})
	run("a task's events are limited, but it can always end", func(b *bed) {
		for _, end := range []hub.State{hub.Completed, hub.Failed, hub.Rejected} {
			t := b.held() // 2 events
			r := reports(t, put("a", "1"), more("a", "2"), progress("p"))
			r.Limits.Events = 5
			b.report(r)
			b.refused("one more event", hub.TooLarge, b.tryReport(r))
			q := says(t, hub.InputRequired)
			q.Limits.Events = 5
			b.refused("a question", hub.TooLarge, b.tryReport(q))
			e := says(t, end, withEvents(put("b", "1")))
			e.Limits.Events = 5
			b.refused("an end with one more artifact", hub.TooLarge, b.tryReport(e))
			w := says(t, hub.Working)
			w.Limits.Events = 5
			b.refused("a status with a message", hub.TooLarge, b.tryReport(w))
			w.Message = nil
			b.report(w) // no event
			e = says(t, end)
			e.Limits.Events = 5
			b.is("state", b.report(e).Task.State, end)
		}
	})
	run("a refused report renews and applies nothing, not even in part", func(b *bed) {
		t := b.held()
		b.clock.Advance(time.Minute)
		r := reports(t, put("a", "1"), put("b", "1"), put("c", "1"))
		r.Limits.Events = 4 // room for two of the three
		b.refused("too many events", hub.TooLarge, b.tryReport(r))
	})
	run("a task's size is limited, but it can always end", func(b *bed) {
		t := b.held()
		big := strings.Repeat("x", 1000)
		r := reports(t, put("a", big))
		r.Limits.Bytes = 10_000
		n := 0
		for ; n < 20; n++ {
			if _, err := b.s.Report(b.ctx, r); err != nil {
				b.kind("too large", err, hub.TooLarge)
				break
			}
		}
		if n < 8 || n > 10 {
			b.Errorf("%d artifacts of 1 kB fitted into 10 kB", n)
		}
		b.refused("an artifact too many", hub.TooLarge, b.tryReport(r))
		s := newSend(b.ann, b.dev, to(t), func(s *hub.Send) {
			s.Message = []byte(`{"messageId":"m2","role":"ROLE_USER","parts":[{"text":"` + big + `"}]}`)
			s.Limits.Bytes = 10_000
		})
		b.refused("a message too many", hub.TooLarge, b.trySend(s))
		e := says(t, hub.Completed, withEvents(put("b", big)))
		e.Limits.Bytes = 10_000
		b.refused("an end with an artifact", hub.TooLarge, b.tryReport(e))
		e = says(t, hub.Completed)
		e.Limits.Bytes = 10_000
		e.Message = []byte(`{"messageId":"m3","role":"ROLE_AGENT","parts":[{"text":"` + big + `"}]}`)
		b.report(e)
		b.is("state", b.task(t.ID).State, hub.Completed)
	})
	run("a report that is too large is the same refusal with a claim, and claims nothing", func(b *bed) {
		t := b.held()
		b.ask(b.bob, b.dev)
		r := reports(t, put("a", "1"))
		r.Limits.Events = 2
		r.Next = &hub.ClaimSpec{Lease: lease}
		b.refused("too many events", hub.TooLarge, b.tryReport(r))
	})
}

func payloadTests(run runner) {
	text := `a\u0000b \u001f \\ \" / é 日本 🍸 \ud83c\udf78 <&>  `
	run("bytes in are bytes out", func(b *bed) {
		s := newSend(b.ann, b.dev)
		s.Message = []byte(`{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + text + `"},{"data":9007199254740993}]}`)
		s.Metadata = []byte(`{"a\u0000b":1,"big":123456789012345678901234567890,"f":1.0,"e":1e2}`)
		s.Tags = []byte(`{"k\u0000":"` + text + `"}`)
		b.send(s)
		t := b.claim(b.dev)
		b.is("message to the callee", string(t.History[0].Body), string(s.Message))
		e := hub.Event{
			Kind: hub.ArtifactEvent, ArtifactID: "a\x00🍸", LastChunk: true,
			Body:     []byte(`{"artifactId":"a\u0000🍸","parts":[{"text":"` + text + `"},{"data":9007199254740993}]}`),
			Metadata: []byte(`{"x\u0000":9007199254740993}`),
		}
		r := says(t, hub.Failed, withEvents(e))
		r.Message = []byte(`{"messageId":"r1","role":"ROLE_AGENT","parts":[{"text":"` + text + `"}]}`)
		r.Error = "broke: \x00 🍸 é"
		b.report(r)
		got := b.view(t.ID)
		b.is("message", string(got.Task.History[0].Body), string(s.Message))
		b.is("tags", string(got.Task.Tags), string(s.Tags))
		b.is("metadata", string(got.Task.Metadata), string(s.Metadata))
		b.is("status message", string(got.Task.StatusMessage), string(r.Message))
		b.is("error", got.Task.Error, r.Error)
		b.is("artifact", string(got.Task.Artifacts[0]), string(e.Body))
		ev := got.Events[2]
		b.is("event body", string(ev.Body), string(e.Body))
		b.is("event metadata", string(ev.Metadata), string(e.Metadata))
		b.is("artifact id and last chunk", []any{ev.ArtifactID, ev.LastChunk, ev.Append}, []any{e.ArtifactID, true, false})
		b.is("end event body", string(got.Events[3].Body), string(r.Message))
	})
	run("a message and an artifact of 1 MiB come back whole", func(b *bed) {
		big := strings.Repeat(`🍸\u0000`, 1<<20/10)
		s := newSend(b.ann, b.dev)
		s.Message = []byte(`{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"` + big + `"}]}`)
		b.send(s)
		t := b.claim(b.dev)
		e := hub.Event{Kind: hub.ArtifactEvent, ArtifactID: "a", Body: []byte(`{"artifactId":"a","parts":[{"text":"` + big + `"}]}`)}
		b.report(says(t, hub.Completed, withEvents(e)))
		got := b.task(t.ID)
		if string(t.History[0].Body) != string(s.Message) || string(got.History[0].Body) != string(s.Message) {
			b.Error("the message changed")
		}
		if string(got.Artifacts[0]) != string(e.Body) {
			b.Error("the artifact changed")
		}
	})
	run("what a caller does with its bytes afterwards does not matter", func(b *bed) {
		s := newSend(b.ann, b.dev)
		s.Message = msg("before")
		t := b.send(s).Task
		copy(s.Message, "XXXXXXXXXXXXXXXXXXXXXXXXXX")
		b.is("message", messageIDs(b.task(t.ID).History), []string{"before"})
	})
	run("absent tags, metadata and messages are nil, not empty", func(b *bed) {
		t := b.task(b.ask(b.ann, b.dev).ID)
		b.is("nil", []bool{t.Tags == nil, t.Metadata == nil, t.StatusMessage == nil}, []bool{true, true, true})
		b.is("nil event body", b.events(t.ID)[0].Body == nil, true)
	})
}
