package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func reportTests(run runner) {
	for state, kind := range map[hub.State]hub.ActivityKind{
		hub.Completed: hub.ActCompleted, hub.Failed: hub.ActFailed, hub.Rejected: hub.ActRejected,
	} {
		run("a terminal report ends the task as "+state.String(), func(b *bed) {
			t := b.held()
			b.clock.Advance(time.Second)
			got := b.report(says(t, state))
			b.is("replayed", got.Replayed, false)
			want := *t
			want.State, want.StateAt, want.EndedAt = state, b.clock.Now(), b.clock.Now()
			want.Phase, want.Seq, want.LeaseUntil, want.History = hub.Done, 3, time.Time{}, nil
			want.StatusMessage = agentMsg("r-" + state.String())
			if state == hub.Failed {
				want.Error = "it broke"
			}
			b.is("the task in the answer", got.Task, &want)
			want.History = []hub.Message{{N: 1, Body: msg("m1")}}
			b.is("the task as read", b.task(t.ID), &want)
			b.is("the last event", b.events(t.ID)[2], hub.Event{
				Seq: 3, Kind: hub.StatusEvent, At: b.clock.Now(), State: state, Body: agentMsg("r-" + state.String()),
			})
			b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed, kind})
			b.is("actor", b.acts(t.ID)[2].Actor, "dev")
		})
	}
	run("a question parks the task and sets failures to 0", func(b *bed) {
		t := b.held()
		b.expire()
		b.pass(time.Minute)
		t = b.claimTask(t)
		b.is("failures before", t.Failures, 1)
		got := b.report(says(t, hub.InputRequired)).Task
		b.is("phase, state, failures, ended", []any{got.Phase, got.State, got.Failures, got.EndedAt.IsZero()},
			[]any{hub.Parked, hub.InputRequired, 0, true})
		b.is("status message", string(got.StatusMessage), string(agentMsg("r-input_required")))
		b.expire()
		b.is("phase much later", b.task(t.ID).Phase, hub.Parked)
	})
	run("events alone are applied in order, numbered on and kept as they are", func(b *bed) {
		t := b.held()
		b.clock.Advance(time.Second)
		last := more("a", "2")
		last.LastChunk, last.Metadata = true, []byte(`{"k":1}`)
		got := b.report(reports(t, put("a", "1"), progress("p1"), last)).Task
		b.is("state, phase, seq", []any{got.State, got.Phase, got.Seq}, []any{hub.Working, hub.Leased, int64(5)})
		b.is("status message", string(got.StatusMessage), string(agentMsg("p1")))
		want := []hub.Event{put("a", "1"), progress("p1"), last}
		for i := range want {
			want[i].Seq, want[i].At = int64(i+3), b.clock.Now()
		}
		b.is("events", b.events(t.ID)[2:], want)
		b.is("progress lines", b.count(t.ID, hub.ActProgress), 1)
	})
	run("progress is no part of the history", func(b *bed) {
		t := b.held()
		b.report(reports(t, progress("p1"), progress("p2")))
		b.report(says(t, hub.Completed))
		b.is("history", messageIDs(b.task(t.ID).History), []string{"m1"})
	})
	run("a status sets the time of the status, an artifact does not", func(b *bed) {
		t := b.held()
		b.clock.Advance(time.Second)
		b.report(reports(t, put("a", "1")))
		b.is("after an artifact", b.task(t.ID).StateAt, t.StateAt)
		b.report(reports(t, progress("p")))
		b.is("after a status", b.task(t.ID).StateAt, b.clock.Now())
	})
	run("WORKING with a message is an event and renews", func(b *bed) {
		t := b.held()
		b.clock.Advance(time.Minute)
		got := b.report(says(t, hub.Working)).Task
		b.is("seq, lease", []any{got.Seq, got.LeaseUntil}, []any{int64(3), b.clock.Now().Add(lease)})
		b.is("status message", string(got.StatusMessage), string(agentMsg("r-working")))
	})
	run("WORKING without a message only renews", func(b *bed) {
		t := b.held()
		b.clock.Advance(time.Minute)
		got := b.report(says(t, hub.Working, func(r *hub.Report) { r.Message = nil })).Task
		b.is("seq, lease", []any{got.Seq, got.LeaseUntil}, []any{int64(2), b.clock.Now().Add(lease)})
		b.is("time of the status", got.StateAt, t.StateAt)
	})
	run("every answer carries the status message", func(b *bed) {
		t := b.held()
		want := string(agentMsg("p"))
		b.report(reports(t, progress("p")))
		b.is("after a message", string(b.follow(t, "m2").Task.StatusMessage), want)
		b.is("after an artifact", string(b.report(reports(t, put("a", "1"))).Task.StatusMessage), want)
		b.is("after a renewal", string(b.report(says(t, hub.Working, func(r *hub.Report) { r.Message = nil })).Task.StatusMessage), want)
		got, err := b.s.Requeue(b.ctx, t.ID, newID())
		b.ok(err)
		b.is("after a requeue", string(got.StatusMessage), want)
		b.is("with a claim", string(b.claimTask(t).StatusMessage), want)
	})
	run("events and an end go together, the end last", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Completed, withEvents(put("a", "1"), progress("p"), put("b", "1"))))
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working, hub.Working, hub.Completed})
		b.is("artifacts", b.artifacts(t.ID), map[string][]string{"a": {"1"}, "b": {"1"}})
		b.is("activity", slices.DeleteFunc(b.happened(t.ID), func(k hub.ActivityKind) bool { return k == hub.ActProgress }),
			[]hub.ActivityKind{hub.ActSent, hub.ActClaimed, hub.ActCompleted})
	})
	run("events and a question go together", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.InputRequired, withEvents(put("a", "1"))))
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working, hub.InputRequired})
		b.is("artifacts", b.artifacts(t.ID), map[string][]string{"a": {"1"}})
	})
	run("a question or an end may come without a message", func(b *bed) {
		t := b.held()
		bare := func(r *hub.Report) { r.Message = nil }
		b.report(says(t, hub.InputRequired, bare))
		b.is("history while it is open", messageIDs(b.task(t.ID).History), []string{"m1"})
		b.follow(t, "m2")
		c := b.claimTask(t)
		b.report(says(c, hub.Completed, bare))
		got := b.task(t.ID)
		b.is("status message", got.StatusMessage, []byte(nil))
		b.is("what the caller said", slices.DeleteFunc(messageIDs(got.History), func(s string) bool { return s == "" }), []string{"m1", "m2"})
	})
	run("a report with next claims the callee's first ready task", func(b *bed) {
		t := b.held()
		b.ask(b.ann, b.ops)
		first, second := b.ask(b.bob, b.dev), b.ask(b.bob, b.dev)
		got := b.report(says(t, hub.Completed, withNext))
		if got.Next == nil || got.Next.ID != first.ID {
			b.Fatalf("next is %+v, want %s", got.Next, first.ID)
		}
		b.is("phase, attempt, history", []any{got.Next.Phase, got.Next.Attempt, messageIDs(got.Next.History)},
			[]any{hub.Leased, 1, []string{"m1"}})
		got = b.report(says(got.Next, hub.Working, withNext))
		b.is("next", got.Next.ID, second.ID)
		b.is("next when nothing is ready", b.report(says(got.Next, hub.Failed, withNext)).Next, (*hub.Task)(nil))
	})
	run("a replayed report with next claims too", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Completed))
		ready := b.ask(b.bob, b.dev)
		got := b.report(says(t, hub.Completed, withNext))
		b.is("replayed", got.Replayed, true)
		b.is("next", got.Next.ID, ready.ID)
	})
	run("a refused report with next claims nothing", func(b *bed) {
		t := b.held()
		ready := b.ask(b.bob, b.dev)
		b.refused("a report under no claim", hub.Conflict, b.tryReport(says(t, hub.Completed, withNext, underAttempt(7))))
		b.refused("a bad append", hub.Invalid, b.tryReport(says(t, hub.Completed, withNext, withEvents(more("z", "1")))))
		b.report(says(t, hub.Completed))
		_, err := b.s.Report(b.ctx, says(t, hub.Failed, withNext))
		b.kind("a late report", err, hub.Conflict)
		b.claimTask(ready)
	})
	run("a report on a task of another callee or none is not found", func(b *bed) {
		t := b.held()
		other := says(t, hub.Completed)
		other.Callee = b.ops
		b.refused("a report by another callee", hub.NotFound, b.tryReport(other))
		other.Callee = b.ann
		b.refused("a report by the caller", hub.NotFound, b.tryReport(other))
		other = says(t, hub.Completed)
		other.Task = newID()
		b.refused("a report on no task", hub.NotFound, b.tryReport(other))
	})
}

func fencingTests(run runner) {
	run("after a new claim the old one can do nothing and the new one is intact", func(b *bed) {
		old := b.held()
		b.expire()
		b.pass(time.Minute)
		c := b.claimTask(old)
		b.clock.Advance(time.Second)
		b.refused("the old claim's heartbeat", hub.Conflict, b.tryBeat(beatOf(old)))
		b.refused("the old claim's artifact", hub.Conflict, b.tryReport(reports(old, put("a", "old"))))
		b.refused("the old claim's progress", hub.Conflict, b.tryReport(says(old, hub.Working)))
		b.refused("the old claim's question", hub.Conflict, b.tryReport(says(old, hub.InputRequired)))
		b.refused("the old claim's result", hub.Conflict, b.tryReport(says(old, hub.Completed)))
		b.is("the new lease", b.task(c.ID).LeaseUntil, c.LeaseUntil)
		b.report(says(c, hub.Completed, withEvents(put("a", "new"))))
		b.is("the new result", b.artifacts(c.ID), map[string][]string{"a": {"new"}})
		b.refused("the old claim's heartbeat at the end", hub.Conflict, b.tryBeat(beatOf(old)))
		b.is("a finished task is not offered again", b.pass(24*time.Hour).Changed, 0)
		b.nothingReady(b.dev)
	})
	run("a claim after a release, a requeue or a lapsed hand-out fences too", func(b *bed) {
		lose := map[string]func(t *hub.Task){
			"release": func(t *hub.Task) { b.ok(b.s.Release(b.ctx, b.dev, t.ID, t.Attempt)) },
			"requeue": func(t *hub.Task) { _, err := b.s.Requeue(b.ctx, t.ID, newID()); b.ok(err) },
		}
		for how, f := range lose {
			old := b.held()
			f(old)
			c := b.claimTask(old)
			b.refused("a result after "+how, hub.Conflict, b.tryReport(says(old, hub.Completed)))
			b.report(says(c, hub.Completed))
		}
	})
	run("a report after expiry is accepted until the task is claimed again", func(b *bed) {
		t := b.held()
		b.clock.Advance(lease + time.Hour) // nobody has swept
		got := b.report(reports(t, put("a", "1"))).Task
		b.is("phase, failures, lease", []any{got.Phase, got.Failures, got.LeaseUntil}, []any{hub.Leased, 0, b.clock.Now().Add(lease)})
		b.is("swept", b.sweep().Changed, 0)
	})
	run("a report in backoff takes the task back", func(b *bed) {
		t := b.held()
		b.expire()
		b.is("due", b.task(t.ID).Due.IsZero(), false)
		got := b.report(reports(t, put("a", "1"))).Task
		b.is("phase, lease", []any{got.Phase, got.LeaseUntil}, []any{hub.Leased, b.clock.Now().Add(lease)})
		b.pass(2 * time.Minute)
		b.nothingReady(b.dev)
		b.is("state", b.report(says(t, hub.Completed)).Task.State, hub.Completed)
	})
	run("a report takes the task back from the ready order", func(b *bed) {
		t := b.held()
		b.expire()
		b.pass(time.Minute)
		b.is("phase", b.task(t.ID).Phase, hub.Ready)
		b.is("phase", b.report(says(t, hub.Working)).Task.Phase, hub.Leased)
		b.nothingReady(b.dev)
		b.report(says(t, hub.Completed))
	})
	run("a result in backoff or from the ready order ends the task", func(b *bed) {
		for _, wait := range []time.Duration{0, time.Minute} {
			t := b.held()
			b.expire()
			b.pass(wait)
			b.is("state", b.report(says(t, hub.Completed)).Task.State, hub.Completed)
			b.pass(time.Hour)
			b.nothingReady(b.dev)
		}
	})
	run("a heartbeat takes the task back too", func(b *bed) {
		for _, wait := range []time.Duration{0, time.Minute} {
			t := b.held()
			b.expire()
			b.pass(wait)
			b.is("lease", b.beat(beatOf(t)).LeaseUntil, b.clock.Now().Add(lease))
			b.is("phase", b.task(t.ID).Phase, hub.Leased)
			b.nothingReady(b.dev)
			b.report(says(t, hub.Completed))
		}
	})
	run("a task taken back can be lost again", func(b *bed) {
		t := b.held()
		b.expire()
		b.beat(beatOf(t))
		b.expire()
		got := b.task(t.ID)
		b.is("phase, failures", []any{got.Phase, got.Failures}, []any{hub.Ready, 2})
		b.pass(time.Minute)
		b.is("attempt", b.claimTask(t).Attempt, 2)
	})
	run("a report on a task never claimed is a conflict", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		for _, n := range []int{0, 1, 2} {
			b.refused(fmt.Sprint("a report under attempt ", n), hub.Conflict, b.tryReport(says(t, hub.Completed, underAttempt(n))))
			h := beatOf(t)
			h.Attempt = n
			b.refused(fmt.Sprint("a heartbeat under attempt ", n), hub.Conflict, b.tryBeat(h))
		}
	})
	run("a report under a claim that is yet to come is a conflict", func(b *bed) {
		t := b.held()
		b.refused("attempt 2 of 1", hub.Conflict, b.tryReport(says(t, hub.Completed, underAttempt(2))))
	})
	run("attempt 0 stands for the newest claim while none has lapsed", func(b *bed) {
		t := b.held()
		anon := *t
		anon.Attempt = 0
		b.beat(beatOf(&anon))
		b.report(reports(&anon, put("a", "1")))
		b.report(says(&anon, hub.InputRequired))
		b.follow(t, "m2")
		b.refused("attempt 0 before the next claim", hub.Conflict, b.tryReport(says(&anon, hub.Completed)))
		b.claimTask(t)
		b.is("state", b.report(says(&anon, hub.Completed)).Task.State, hub.Completed)
	})
	run("attempt 0 is refused once a lease has expired, even if the claim is renewed", func(b *bed) {
		t := b.held()
		anon := *t
		anon.Attempt = 0
		b.expire()
		b.refused("in backoff", hub.Conflict, b.tryReport(says(&anon, hub.Completed)))
		b.refused("a heartbeat in backoff", hub.Conflict, b.tryBeat(beatOf(&anon)))
		b.beat(beatOf(t))
		b.refused("after a renewal", hub.Conflict, b.tryReport(says(&anon, hub.Completed)))
		b.expire()
		b.pass(time.Minute)
		c := b.claimTask(t)
		b.refused("after a new claim", hub.Conflict, b.tryReport(says(&anon, hub.Completed)))
		b.report(says(c, hub.Completed))
	})
	run("attempt 0 is refused once a hand-out went unconfirmed", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.provisional()
		b.pass(6 * time.Second)
		c := b.claimTask(t)
		anon := *c
		anon.Attempt = 0
		b.refused("attempt 0", hub.Conflict, b.tryReport(says(&anon, hub.Completed)))
		b.report(says(c, hub.Completed))
	})
	run("a claim that ended with a question is over", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.InputRequired))
		calls := map[string]func() error{
			"a result":         b.tryReport(says(t, hub.Completed)),
			"another question": b.tryReport(says(t, hub.AuthRequired)),
			"progress":         b.tryReport(says(t, hub.Working)),
			"an artifact":      b.tryReport(reports(t, put("a", "1"))),
			"a heartbeat":      b.tryBeat(beatOf(t)),
		}
		for what, call := range calls {
			b.refused(what+" while parked", hub.Conflict, call)
		}
		b.follow(t, "m2")
		for what, call := range calls {
			b.refused(what+" once answered", hub.Conflict, call)
		}
		b.is("attempt", b.claimTask(t).Attempt, 2)
	})
	run("reports racing under two claims leave one result", func(b *bed) {
		for range 20 {
			old := b.held()
			b.ok(b.s.Release(b.ctx, b.dev, old.ID, 1))
			results := make([]error, 2)
			crowd(2, 2, func(i int) {
				t := old
				if i == 1 {
					c, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease})
					b.okAll(err)
					if c.Task == nil { // the old claim's result came first
						results[i] = hub.ErrClaimLapsed()
						return
					}
					t = c.Task
				}
				_, results[i] = b.s.Report(b.ctx, says(t, hub.Completed, withEvents(put("a", number("", i)))))
			})
			if (results[0] == nil) == (results[1] == nil) {
				b.Fatalf("not exactly one result was accepted: %v", results)
			}
			won := map[bool]string{true: "0", false: "1"}[results[0] == nil]
			b.is("the result", b.artifacts(old.ID), map[string][]string{"a": {won}})
		}
	})
}

func replayTests(run runner) {
	for _, state := range []hub.State{hub.Completed, hub.Failed, hub.Rejected, hub.InputRequired, hub.AuthRequired} {
		run("the same report again changes nothing: "+state.String(), func(b *bed) {
			t := b.held()
			r := says(t, state, withEvents(put("a", "1")))
			first := b.report(r)
			b.clock.Advance(time.Second)
			var got hub.Reported
			b.unchanged("a replay", func() (err error) { got, err = b.s.Report(b.ctx, r); return err })
			b.is("replayed", got.Replayed, true)
			b.is("task", got.Task, first.Task)
			r.Attempt = 0
			b.unchanged("a replay without a claim", func() (err error) { got, err = b.s.Report(b.ctx, r); return err })
			b.is("replayed", got.Replayed, true)
		})
	}
	run("a question is replayed even once it is answered", func(b *bed) {
		t := b.held()
		r := says(t, hub.InputRequired)
		b.report(r)
		b.follow(t, "m2")
		var got hub.Reported
		b.unchanged("a replay", func() (err error) { got, err = b.s.Report(b.ctx, r); return err })
		b.is("replayed, phase", []any{got.Replayed, got.Task.Phase}, []any{true, hub.Ready})
	})
	run("a different result after the end is refused and noted once per claim", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Completed))
		before := b.view(t.ID)
		for range 3 {
			b.kind("a late result", b.tryReport(says(t, hub.Failed))(), hub.Conflict)
			b.kind("a late result with an artifact", b.tryReport(says(t, hub.Completed, withEvents(put("a", "1"))))(), hub.Conflict)
		}
		b.is("the task and its events", b.view(t.ID), before)
		b.is("late replies", b.count(t.ID, hub.ActLateReply), 1)
		late := b.acts(t.ID)[3]
		b.is("the note", []any{late.Kind, late.Actor, late.Attempt, late.Seq}, []any{hub.ActLateReply, "dev", 1, int64(3)})
	})
	run("the same words after another's result are late, not a replay", func(b *bed) {
		old := b.held()
		b.expire()
		b.pass(time.Minute)
		c := b.claimTask(old)
		b.report(says(c, hub.Completed))
		b.kind("the old claim's equal result", b.tryReport(says(old, hub.Completed))(), hub.Conflict)
		b.is("state", b.task(old.ID).State, hub.Completed)
	})
	run("a question is replayed even under an older claim", func(b *bed) {
		old := b.held()
		r := says(old, hub.InputRequired)
		b.report(r)
		b.follow(old, "m2")
		c := b.claimTask(old)
		var got hub.Reported
		b.unchanged("a replay", func() (err error) { got, err = b.s.Report(b.ctx, r); return err })
		b.is("replayed, attempt", []any{got.Replayed, got.Task.Attempt}, []any{true, c.Attempt})
		b.refused("another question", hub.Conflict, b.tryReport(says(old, hub.AuthRequired)))
	})
	run("late replies are noted for each claim", func(b *bed) {
		old := b.held()
		b.expire()
		b.pass(time.Minute)
		b.report(says(b.claimTask(old), hub.Completed))
		for range 2 {
			b.kind("the old claim's result", b.tryReport(says(old, hub.Failed))(), hub.Conflict)
			b.kind("the new claim's second result", b.tryReport(says(old, hub.Failed, underAttempt(2)))(), hub.Conflict)
			b.kind("a result under no claim", b.tryReport(says(old, hub.Failed, underAttempt(3)))(), hub.Conflict)
		}
		b.is("late replies", b.count(old.ID, hub.ActLateReply), 2)
	})
	run("progress after the end is refused", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Completed))
		before := b.view(t.ID)
		b.kind("progress", b.tryReport(says(t, hub.Working))(), hub.Conflict)
		b.kind("an artifact", b.tryReport(reports(t, put("a", "1")))(), hub.Conflict)
		b.is("the task and its events", b.view(t.ID), before)
	})
	run("equal progress twice is two events", func(b *bed) {
		t := b.held()
		b.report(reports(t, progress("p")))
		b.report(reports(t, progress("p")))
		b.is("seq", b.task(t.ID).Seq, int64(4))
	})
	run("20 parallel identical results end the task once", func(b *bed) {
		t := b.held()
		replayed := make([]bool, 20)
		crowd(20, 20, func(i int) {
			got, err := b.s.Report(b.ctx, says(t, hub.Completed, withEvents(put("a", "1"))))
			b.okAll(err)
			replayed[i] = got.Replayed
		})
		n := 0
		for _, r := range replayed {
			if !r {
				n++
			}
		}
		b.is("applied", n, 1)
		b.is("states", b.states(t.ID), []hub.State{hub.Submitted, hub.Working, hub.Completed})
	})
}

// artifacts is the texts of a task's artifacts by id.
func (b *bed) artifacts(id string) map[string][]string {
	b.Helper()
	all := map[string][]string{}
	for _, raw := range b.task(id).Artifacts {
		var a struct {
			ArtifactID string `json:"artifactId"`
			Parts      []struct {
				Text string `json:"text"`
			} `json:"parts"`
		}
		if err := json.Unmarshal(raw, &a); err != nil {
			b.Fatalf("artifact %s: %v", raw, err)
		}
		texts := []string{}
		for _, p := range a.Parts {
			texts = append(texts, p.Text)
		}
		all[a.ArtifactID] = texts
	}
	return all
}

func artifactTests(run runner) {
	run("appended chunks join the artifact", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "Hello, ")))
		b.report(reports(t, more("a", "wor"), more("a", "ld", "!")))
		b.is("artifacts", b.artifacts(t.ID), map[string][]string{"a": {"Hello, ", "wor", "ld", "!"}})
		b.is("seq", b.task(t.ID).Seq, int64(5))
	})
	run("an artifact with a known id replaces it in its place", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "1"), more("a", "2"), put("b", "1")))
		b.report(reports(t, put("a", "3")))
		b.report(reports(t, more("a", "4")))
		got := b.task(t.ID).Artifacts
		b.is("order and content", []string{string(got[0]), string(got[1])},
			[]string{string(artifact("a", "3", "4")), string(artifact("b", "1"))})
	})
	run("an append to an artifact that is not there refuses the whole report", func(b *bed) {
		t := b.held()
		r := reports(t, put("a", "1"), progress("p"), more("b", "1"))
		b.refused("a bad append", hub.Invalid, b.tryReport(r))
		_, err := b.s.Report(b.ctx, r)
		var e *hub.Error
		if errors.As(err, &e) {
			b.is("field", e.Field, "events[2]")
		}
		b.refused("a bad append with an end", hub.Invalid, b.tryReport(says(t, hub.Completed, withEvents(more("b", "1")))))
		b.report(says(t, hub.Completed))
	})
	run("an append may follow its artifact in the same report", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "1"), more("a", "2"), more("a", "3")))
		b.is("artifacts", b.artifacts(t.ID), map[string][]string{"a": {"1", "2", "3"}})
	})
	run("artifact ids are of their task alone", func(b *bed) {
		one, two := b.held(), b.held()
		b.report(reports(one, put("a", "1")))
		b.refused("an append to another task's artifact", hub.Invalid, b.tryReport(reports(two, more("a", "2"))))
	})
	run("a later claim goes on with the artifacts of an earlier one", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.InputRequired, withEvents(put("a", "1"))))
		b.follow(t, "m2")
		b.report(says(b.claimTask(t), hub.Completed, withEvents(more("a", "2"))))
		b.is("artifacts", b.artifacts(t.ID), map[string][]string{"a": {"1", "2"}})
	})
	run("artifacts are left out unless asked for", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "1")))
		got, err := b.s.Task(b.ctx, refOf(t), everything(), hub.Load{History: -1})
		b.ok(err)
		b.is("artifacts", got.Artifacts == nil, true)
	})
	run("what a reader folds is what a subscriber folds", func(b *bed) {
		t := b.held()
		b.report(reports(t, put("a", "1"), put("b", "1"), more("a", "2"), put("b"), more("b", "2"), put("c", "x")))
		got := b.view(t.ID)
		b.is("artifacts", texts(got.Task.Artifacts), texts(fold(got.Events)))
	})
	run("10,000 chunks cost the same each and come back in order", func(b *bed) {
		const reportsOf, chunks = 100, 100
		t := b.held()
		b.report(reports(t, put("a")))
		took := make([]time.Duration, reportsOf)
		var want []string
		for i := range took {
			events := make([]hub.Event, chunks)
			for j := range events {
				text := fmt.Sprint(i*chunks+j, strings.Repeat("x", 20))
				want, events[j] = append(want, text), more("a", text)
			}
			began := time.Now()
			b.report(reports(t, events...))
			took[i] = time.Since(began)
		}
		early, late := median(took[:20]), median(took[reportsOf-20:])
		if late > 4*early+10*time.Millisecond {
			b.Errorf("the first reports of %d chunks took %v, the last %v", chunks, early, late)
		}
		began := time.Now()
		b.is("content", b.artifacts(t.ID), map[string][]string{"a": want})
		if d := time.Since(began); d > 5*time.Second {
			b.Errorf("reading them back took %v", d)
		}
	})
}

func texts(bodies [][]byte) []string {
	out := make([]string, len(bodies))
	for i, x := range bodies {
		out[i] = string(x)
	}
	return out
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

func heartbeatTests(run runner) {
	run("a heartbeat renews the lease by what was asked for and changes nothing else", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		got, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: 42 * time.Second})
		b.ok(err)
		c := got.Task
		b.is("lease", c.LeaseUntil, b.clock.Now().Add(42*time.Second))
		before := b.view(t.ID)
		b.clock.Advance(40 * time.Second)
		until := b.clock.Now().Add(42 * time.Second)
		b.is("beat", b.beat(beatOf(c)), hub.Beat{State: hub.Working, LeaseUntil: until})
		before.Task.LeaseUntil = until
		b.is("task and events", b.view(t.ID), before)
		b.is("swept", b.pass(40*time.Second).Changed, 0)
		b.is("swept", b.pass(3*time.Second).Changed, 1)
	})
	run("heartbeats leave no activity", func(b *bed) {
		t := b.held()
		b.beat(beatOf(t))
		b.is("activity", b.happened(t.ID), []hub.ActivityKind{hub.ActSent, hub.ActClaimed})
	})
	run("a heartbeat is not found for another callee or no task", func(b *bed) {
		h := beatOf(b.held())
		h.Callee = b.ops
		b.refused("another callee", hub.NotFound, b.tryBeat(h))
		h.Callee, h.Task = b.dev, newID()
		b.refused("no task", hub.NotFound, b.tryBeat(h))
	})
	run("a heartbeat after the end is a conflict", func(b *bed) {
		for _, state := range []hub.State{hub.Completed, hub.Failed, hub.Rejected} {
			t := b.held()
			b.report(says(t, state))
			b.refused("a heartbeat after "+state.String(), hub.Conflict, b.tryBeat(beatOf(t)))
		}
	})
}
