package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// prune removes what ended before now.
func (b *bed) prune(limit int) int {
	b.Helper()
	out, err := b.s.Prune(b.ctx, b.clock.Now(), limit)
	b.ok(err)
	return out.Tasks
}

func pruneTests(run runner) {
	run("finished tasks go in batches, with all that is theirs", func(b *bed) {
		var gone []*hub.Task
		for i := range 5 {
			t := b.held(withKey(number("k", i), "f"))
			b.follow(t, "m2")
			b.report(says(t, hub.Completed, withEvents(put("a", "1"))))
			gone = append(gone, t)
		}
		b.clock.Advance(24*time.Hour + time.Second)
		b.is("batches", []int{b.prune(2), b.prune(2), b.prune(2), b.prune(2)}, []int{2, 2, 1, 0})
		for _, t := range gone {
			_, err := b.s.Task(b.ctx, refOf(t), everything(), whole())
			b.kind("the task", err, hub.NotFound)
			_, err = b.s.Events(b.ctx, refOf(t), everything(), 0, 10)
			b.kind("its events", err, hub.NotFound)
			b.kind("a message to it", b.trySend(newSend(b.ann, b.dev, to(t)))(), hub.NotFound)
			b.kind("a report on it", b.tryReport(says(t, hub.Completed))(), hub.NotFound)
			b.kind("its cancel", b.tryCancel(t)(), hub.NotFound)
		}
		b.is("tasks", len(b.list(hub.TaskFilter{By: everything()})), 0)
		b.is("activity", len(b.activity(everything())), 0)
		b.is("created with an old key", b.send(newSend(b.ann, b.dev, withKey("k0", "g"))).Created, true)
	})
	run("a task stays while a send to it may still be repeated under its key", func(b *bed) {
		s := newSend(b.ann, b.dev, withKey("k", "f"))
		b.send(s)
		b.report(says(b.claim(b.dev), hub.Completed))
		plain := b.held()
		b.report(says(plain, hub.Completed))
		b.clock.Advance(24*time.Hour - time.Second)
		b.is("pruned", b.prune(10), 1)
		b.is("replayed", b.send(s).Replayed, true)
		b.clock.Advance(2 * time.Second)
		b.is("pruned", b.prune(10), 1)
		b.is("created", b.send(s).Created, true)
	})
	run("the oldest end goes first", func(b *bed) {
		var all []string
		for range 4 {
			t := b.held()
			b.report(says(t, hub.Failed))
			b.clock.Advance(time.Second)
			all = append(all, t.ID)
		}
		b.prune(2)
		b.is("left", sorted(ids(b.list(hub.TaskFilter{By: everything()}))), sorted(all[2:]))
	})
	run("what ended later, and what has not ended, stays", func(b *bed) {
		ready, parked, old := b.ask(b.ann, b.ops), b.parked(), b.held()
		held := b.held()
		b.report(says(old, hub.Completed))
		b.clock.Advance(time.Hour)
		before := b.clock.Now()
		young := b.held()
		b.report(says(young, hub.Completed))
		var want []view
		keep := []*hub.Task{ready, parked, held, young}
		for _, t := range keep {
			want = append(want, b.view(t.ID))
		}
		out, err := b.s.Prune(b.ctx, before, 100)
		b.ok(err)
		b.is("pruned", out, hub.Pruned{Tasks: 1})
		for i, t := range keep {
			b.is("a task that stays", b.view(t.ID), want[i])
		}
		for _, l := range b.activity(everything()) {
			if l.At.Before(before) {
				b.Errorf("a line from before is still there: %+v", l)
			}
		}
		b.is("lines of the young task", len(b.acts(young.ID)), 3)
		b.report(says(held, hub.Completed, withEvents(put("a", "1"))))
		b.follow(parked, "m2")
		b.claimTask(parked)
	})
	run("a feed cursor from before still reads on", func(b *bed) {
		b.report(says(b.held(), hub.Completed))
		p, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 1})
		b.ok(err)
		b.clock.Advance(time.Hour)
		b.prune(100)
		t := b.ask(b.ann, b.dev)
		q, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 10, After: p.Next})
		b.ok(err)
		b.is("lines", []any{len(q.Lines), q.Lines[0].Task}, []any{1, t.ID})
	})
	run("an idle prune does nothing", func(b *bed) {
		b.is("pruned", b.prune(10), 0)
	})
	run("a copy outlives the failed task it repeats", func(b *bed) {
		t := b.held()
		b.report(says(t, hub.Failed))
		c, err := b.s.Requeue(b.ctx, t.ID, newID())
		b.ok(err)
		b.clock.Advance(time.Second)
		b.is("pruned", b.prune(10), 1)
		b.is("history", messageIDs(b.claimTask(c).History), []string{"m1"})
	})
	run("all unfinished tasks of an address can be canceled in batches", func(b *bed) {
		b.report(says(b.heldByOps(), hub.Completed))
		held, parked := b.heldByOps(), b.parked()
		b.held()
		b.ask(b.ann, b.dev)
		other := b.ask(b.ann, b.ops)
		total, left := 0, map[string]bool{}
		for i := range 5 {
			got, err := b.s.CancelQueued(b.ctx, b.dev, 2)
			b.ok(err)
			total += got.Changed
			for _, id := range got.Tasks {
				left[id] = true
			}
			if i == 0 {
				b.is("changed, more", []any{got.Changed, got.More}, []any{2, true})
			}
			if got.Changed == 0 {
				break
			}
		}
		b.is("canceled", []int{total, len(left)}, []int{3, 3})
		for id := range left {
			b.is("state", b.task(id).State, hub.Canceled)
		}
		b.is("another callee's tasks", []hub.State{b.task(held.ID).State, b.task(other.ID).State}, []hub.State{hub.Working, hub.Submitted})
		b.is("a parked task", b.task(parked.ID).State, hub.Canceled)
		b.nothingReady(b.dev)
		b.is("who did it", b.acts(parked.ID)[3].Actor, "hub")
	})
	run("the holder of a task canceled with its address learns of it", func(b *bed) {
		t := b.held()
		_, err := b.s.CancelQueued(b.ctx, b.dev, 10)
		b.ok(err)
		b.is("outcome", b.task(t.ID).CancelOutcome, hub.CancelUnconfirmed)
		b.is("cancel requested", b.beat(beatOf(t)).CancelRequested, true)
	})
}

func directoryTests(run runner) {
	full := func(b *bed) hub.Address {
		return hub.Address{
			ID: newID(), Handle: "zoe", Kind: hub.KindPerson, Description: "Zoë \x00 🍸", Card: []byte(`{"name":"Zoë"}`),
			Access: hub.Approved, Lease: 90 * time.Second, MaxRedeliveries: 0, DedupeMessageID: true, OnUnknown: "fail",
			RelayPaths: []string{"/hooks/", "/a\"b\\ \x00 🍸"},
			CreatedAt:  b.clock.Now(),
		}
	}
	run("an address is found by handle and by id, as it was made", func(b *bed) {
		a := full(b)
		b.ok(b.s.CreateAddress(b.ctx, a))
		for _, ref := range []string{a.ID, a.Handle} {
			got, err := b.s.Address(b.ctx, ref)
			b.ok(err)
			b.is("address", got, &a)
		}
		for _, ref := range []string{newID(), "nobody", "", "ZOE"} {
			_, err := b.s.Address(b.ctx, ref)
			b.kind("address "+ref, err, hub.NotFound)
		}
	})
	run("a living handle is taken", func(b *bed) {
		a := full(b)
		a.Handle = "ann"
		b.kind("a second ann", b.s.CreateAddress(b.ctx, a), hub.Exists)
		_, err := b.s.Address(b.ctx, a.ID)
		b.kind("its id", err, hub.NotFound)
	})
	run("20 parallel creations of a handle make one address", func(b *bed) {
		made := make([]error, 20)
		crowd(20, 20, func(i int) { made[i] = b.s.CreateAddress(b.ctx, full(b)) })
		n := 0
		for _, err := range made {
			if err == nil {
				n++
			} else {
				b.kind("the others", err, hub.Exists)
			}
		}
		b.is("made", n, 1)
	})
	run("addresses are listed by handle, without the hub's own", func(b *bed) {
		b.address("admin-2", func(a *hub.Address) { a.Kind = hub.KindHub })
		b.address("abe", func(a *hub.Address) { a.Kind = hub.KindPerson })
		all, err := b.s.Addresses(b.ctx)
		b.ok(err)
		var got []string
		for _, a := range all {
			got = append(got, a.Handle)
		}
		b.is("handles", got, []string{"abe", "ann", "bob", "dev", "eve", "ops"})
		a, err := b.s.Address(b.ctx, "admin-2")
		b.ok(err)
		b.is("kind", a.Kind, hub.KindHub)
	})
	run("an update replaces everything but id, handle and creation time", func(b *bed) {
		a := full(b)
		b.ok(b.s.CreateAddress(b.ctx, a))
		b.clock.Advance(time.Hour)
		change := hub.Address{
			ID: a.ID, Handle: "other", Kind: hub.KindAgent, Description: "new", Access: hub.Open,
			Lease: time.Minute, MaxRedeliveries: -1, OnUnknown: "resend", CreatedAt: b.clock.Now(),
			RelayPaths: []string{"/"},
		}
		b.ok(b.s.UpdateAddress(b.ctx, change))
		change.Handle, change.Kind, change.CreatedAt = a.Handle, a.Kind, a.CreatedAt
		got, err := b.s.Address(b.ctx, "zoe")
		b.ok(err)
		b.is("address", got, &change)
		_, err = b.s.Address(b.ctx, "other")
		b.kind("the other handle", err, hub.NotFound)
		change.RelayPaths = nil
		b.ok(b.s.UpdateAddress(b.ctx, change))
		got, err = b.s.Address(b.ctx, "zoe")
		b.ok(err)
		b.is("address that relays nothing", got, &change)
	})
	run("an update counts from the next lost delivery on", func(b *bed) {
		t := b.held()
		a, err := b.s.Address(b.ctx, b.dev)
		b.ok(err)
		a.MaxRedeliveries = 0
		b.ok(b.s.UpdateAddress(b.ctx, *a))
		b.expire()
		b.is("state", b.task(t.ID).State, hub.Failed)
	})
	run("a deleted address is gone, its handle free, its history kept", func(b *bed) {
		t := b.ask(b.ann, b.dev)
		b.ok(b.s.DeleteAddress(b.ctx, b.dev))
		for _, ref := range []string{b.dev, "dev"} {
			_, err := b.s.Address(b.ctx, ref)
			b.kind("address "+ref, err, hub.NotFound)
		}
		all, err := b.s.Addresses(b.ctx)
		b.ok(err)
		b.is("listed", slices.ContainsFunc(all, func(a hub.Address) bool { return a.ID == b.dev }), false)
		got := b.task(t.ID)
		b.is("callee", got.Callee, hub.Party{ID: b.dev, Handle: "dev", Kind: hub.KindAgent})
		again := b.address("dev")
		b.nothingReady(again)
		b.is("the new address sees", len(b.list(hub.TaskFilter{By: only(again)})), 0)
		got, err = b.s.Task(b.ctx, refOf(t), only(b.ann), whole())
		b.ok(err)
		b.is("callee", got.Callee.ID, b.dev)
	})
	run("who has sent to an address still finds it when it is gone, and nobody else does", func(b *bed) {
		find := func(ref string, by hub.Viewer) func() (string, error) {
			return func() (string, error) {
				a, err := b.s.FormerAddress(b.ctx, ref, by)
				if err != nil {
					return "", err
				}
				return a.ID, nil
			}
		}
		found := func(what, want string, f func() (string, error)) {
			b.Helper()
			id, err := f()
			b.ok(err)
			b.is(what, id, want)
		}
		missing := func(what string, f func() (string, error)) {
			b.Helper()
			_, err := f()
			b.kind(what, err, hub.NotFound)
		}
		all := hub.Viewer{All: true}
		missing("by nobody's tasks", find("dev", all))
		b.report(says(b.held(), hub.Completed))
		found("while it lives", b.dev, find("dev", only(b.ann)))
		b.ok(b.s.DeleteAddress(b.ctx, b.dev))
		for _, ref := range []string{b.dev, "dev"} {
			found("by who sent", b.dev, find(ref, only(b.ann)))
			found("by who sees all", b.dev, find(ref, all))
			missing("by somebody else", find(ref, only(b.bob)))
			missing("by itself", find(ref, only(b.dev)))
		}
		missing("nothing", find("nothing", all))
		again := b.address("dev")
		found("not the one that ann has sent nothing to", b.dev, find("dev", only(b.ann)))
		b.ask(b.ann, again)
		found("the newest", again, find("dev", only(b.ann)))
	})
	run("deleted addresses with unfinished tasks are listed after a while", func(b *bed) {
		t := b.parked()
		b.ask(b.ann, b.dev)
		b.report(says(b.heldByOps(), hub.Completed))
		b.ok(b.s.DeleteAddress(b.ctx, b.dev))
		b.ok(b.s.DeleteAddress(b.ctx, b.ops)) // all of its tasks have ended
		b.ok(b.s.DeleteAddress(b.ctx, b.bob)) // it never had any
		at := b.clock.Now()
		deleted := func(before time.Time) []string {
			b.Helper()
			got, err := b.s.DeletedAddresses(b.ctx, before)
			b.ok(err)
			return got
		}
		b.clock.Advance(time.Hour)
		b.is("deleted before they were", deleted(at), nil)
		b.is("deleted since", deleted(at.Add(time.Millisecond)), []string{b.dev})
		_, err := b.s.CancelQueued(b.ctx, b.dev, 1)
		b.ok(err)
		b.is("with one left", deleted(b.clock.Now()), []string{b.dev})
		_, err = b.s.CancelQueued(b.ctx, b.dev, 10)
		b.ok(err)
		b.is("with none left", deleted(b.clock.Now()), nil)
		b.is("state", b.task(t.ID).State, hub.Canceled)
	})
	token := func(b *bed, name string, change ...func(*hub.Token)) hub.Token {
		b.Helper()
		k := hub.Token{
			ID: newID(), Address: b.ann, Handle: "ann", Name: name, Role: hub.RoleAgent, Hash: hash(name), CreatedAt: b.clock.Now(),
		}
		for _, f := range change {
			f(&k)
		}
		b.ok(b.s.CreateToken(b.ctx, k))
		return k
	}
	run("a token is found by its hash alone", func(b *bed) {
		k := token(b, "one", func(k *hub.Token) { k.Role = hub.RoleAdmin; k.ExpiresAt = b.clock.Now().Add(time.Hour) })
		token(b, "two")
		got, err := b.s.TokenByHash(b.ctx, hash("one"))
		b.ok(err)
		b.is("token", got, &k)
		_, err = b.s.TokenByHash(b.ctx, hash("three"))
		b.kind("another hash", err, hub.NotFound)
	})
	run("a hash is of one token only, for ever", func(b *bed) {
		k := token(b, "one")
		again := hub.Token{ID: newID(), Address: b.bob, Role: hub.RoleAgent, Hash: k.Hash, CreatedAt: b.clock.Now()}
		b.kind("a second token", b.s.CreateToken(b.ctx, again), hub.Exists)
		b.ok(b.s.RevokeToken(b.ctx, k.ID))
		b.kind("a second token after the first", b.s.CreateToken(b.ctx, again), hub.Exists)
		_, err := b.s.TokenByHash(b.ctx, k.Hash)
		b.kind("the token", err, hub.NotFound)
	})
	run("a token ends when it expires", func(b *bed) {
		token(b, "one", func(k *hub.Token) { k.ExpiresAt = b.clock.Now().Add(time.Hour) })
		b.clock.Advance(time.Hour - time.Millisecond)
		_, err := b.s.TokenByHash(b.ctx, hash("one"))
		b.ok(err)
		b.clock.Advance(time.Millisecond)
		_, err = b.s.TokenByHash(b.ctx, hash("one"))
		b.kind("an expired token", err, hub.NotFound)
	})
	run("a token ends when it is revoked", func(b *bed) {
		k := token(b, "one")
		b.ok(b.s.RevokeToken(b.ctx, k.ID))
		_, err := b.s.TokenByHash(b.ctx, hash("one"))
		b.kind("a revoked token", err, hub.NotFound)
		all, err := b.s.Tokens(b.ctx, b.ann)
		b.ok(err)
		b.is("listed", len(all), 0)
		b.kind("no token", b.s.RevokeToken(b.ctx, newID()), hub.NotFound)
	})
	run("tokens end with their address", func(b *bed) {
		token(b, "one")
		other := token(b, "two", func(k *hub.Token) { k.Address, k.Handle = b.bob, "bob" })
		b.ok(b.s.DeleteAddress(b.ctx, b.ann))
		_, err := b.s.TokenByHash(b.ctx, hash("one"))
		b.kind("a token of a deleted address", err, hub.NotFound)
		b.address("ann")
		_, err = b.s.TokenByHash(b.ctx, hash("one"))
		b.kind("even once the handle is used again", err, hub.NotFound)
		got, err := b.s.TokenByHash(b.ctx, hash("two"))
		b.ok(err)
		b.is("another address's token", got, &other)
	})
	run("tokens of an address are listed, oldest first", func(b *bed) {
		var want []string
		for i := range 3 {
			want = append(want, token(b, number("t", i)).ID)
			b.clock.Advance(time.Second)
		}
		token(b, "bob's", func(k *hub.Token) { k.Address = b.bob })
		all, err := b.s.Tokens(b.ctx, b.ann)
		b.ok(err)
		var got []string
		for _, k := range all {
			got = append(got, k.ID)
			b.is("address, handle", []string{k.Address, k.Handle}, []string{b.ann, "ann"})
		}
		b.is("tokens", got, want)
	})
	run("the tokens of all addresses are listed, oldest first", func(b *bed) {
		b.ok(b.s.RevokeToken(b.ctx, token(b, "revoked").ID))
		b.clock.Advance(time.Second)
		want := []string{token(b, "ann's").ID}
		b.clock.Advance(time.Second)
		want = append(want, token(b, "bob's", func(k *hub.Token) { k.Address, k.Handle = b.bob, "bob" }).ID)
		all, err := b.s.Tokens(b.ctx, "")
		b.ok(err)
		var got []string
		for _, k := range all {
			got = append(got, k.ID)
		}
		b.is("tokens", got, want)
	})
}

func durabilityTests(run runner) {
	// again runs f only on stores that can be reopened.
	again := func(name string, f func(b *bed, reopen func())) {
		run(name, func(b *bed) {
			if b.h.Reopen == nil {
				b.Skip("this store keeps nothing")
			}
			f(b, func() { b.Helper(); b.s = b.h.Reopen(b.TB) })
		})
	}
	again("everything is the same after it is opened again", func(b *bed, reopen func()) {
		lost := b.held()
		b.expire()
		b.follow(b.held(), "m2")
		b.parked()
		b.ask(b.ann, b.dev, withKey("k", "f"))
		done := b.heldByOps()
		b.report(says(done, hub.Completed, withEvents(put("a", "1"), more("a", "2"))))
		b.cancel(b.heldByOps())
		b.ok(b.s.CreateToken(b.ctx, hub.Token{ID: newID(), Address: b.ann, Role: hub.RoleAgent, Hash: hash("t"), CreatedAt: b.clock.Now()}))
		before := b.world()
		addrs, err := b.s.Addresses(b.ctx)
		b.ok(err)
		reopen()
		b.is("the store", b.world(), before)
		now, err := b.s.Addresses(b.ctx)
		b.ok(err)
		b.is("addresses", now, addrs)
		_, err = b.s.TokenByHash(b.ctx, hash("t"))
		b.ok(err)
		b.is("replayed", b.send(newSend(b.ann, b.dev, withKey("k", "f"))).Replayed, true)
		b.is("due", b.task(lost.ID).Due.IsZero(), false)
	})
	again("leases, backoffs, deadlines and order go on after it is opened again", func(b *bed, reopen func()) {
		t := b.held()
		lost := b.held()
		b.clock.Advance(lease / 2)
		b.beat(beatOf(t))
		dead := b.ask(b.ann, b.ops, withDeadline(b.clock.Now().Add(lease)))
		b.askMany(20, b.ann, b.dev)
		reopen()
		b.pass(lease/2 + time.Second)
		b.is("failures", []int{b.task(t.ID).Failures, b.task(lost.ID).Failures}, []int{0, 1})
		reopen()
		b.pass(time.Minute)
		b.claimTask(lost)
		late := b.ask(b.bob, b.dev)
		b.claim(b.dev)
		reopen()
		seen := false
		for range 3 {
			seen = seen || b.claim(b.dev).ID == late.ID
		}
		b.is("bob's turn came", seen, true)
		b.report(says(t, hub.Completed))
		b.pass(lease)
		b.is("state", b.task(dead.ID).State, hub.Failed)
	})
	again("a replay under the same claim is known after it is opened again", func(b *bed, reopen func()) {
		t := b.held()
		b.report(says(t, hub.Completed))
		reopen()
		b.is("replayed", b.report(says(t, hub.Completed)).Replayed, true)
		b.kind("a late result", b.tryReport(says(t, hub.Failed))(), hub.Conflict)
		reopen()
		b.kind("a late result", b.tryReport(says(t, hub.Failed))(), hub.Conflict)
		b.is("late replies", b.count(t.ID, hub.ActLateReply), 1)
	})
	again("feed and list cursors stay good after it is opened again", func(b *bed, reopen func()) {
		b.askMany(5, b.ann, b.dev)
		p, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 2})
		b.ok(err)
		q, err := b.s.Tasks(b.ctx, hub.TaskFilter{By: everything(), Limit: 2})
		b.ok(err)
		reopen()
		p, err = b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 9, After: p.Next})
		b.ok(err)
		q, err = b.s.Tasks(b.ctx, hub.TaskFilter{By: everything(), Limit: 9, Cursor: q.Next})
		b.ok(err)
		b.is("the rest", []int{len(p.Lines), len(q.Tasks)}, []int{3, 3})
	})
	again("closed while busy, every call returns and what was acknowledged is there", func(b *bed, reopen func()) {
		for range 3 {
			s := b.s
			var mu sync.Mutex
			acked := map[string]hub.State{}
			ack := func(id string, state hub.State) { mu.Lock(); acked[id] = state; mu.Unlock() }
			started := make(chan struct{}, 1000)
			done := make(chan struct{})
			go func() {
				defer close(done)
				crowd(16, 16, func(int) {
					for {
						sent, err := s.Send(b.ctx, newSend(b.ann, b.dev, withClaim))
						if err != nil {
							return
						}
						ack(sent.Task.ID, 0)
						if sent.Claimed != nil {
							if _, err := s.Report(b.ctx, says(sent.Claimed, hub.Completed)); err != nil {
								return
							}
							ack(sent.Claimed.ID, hub.Completed)
						}
						select {
						case started <- struct{}{}:
						default:
						}
					}
				})
			}()
			for range 30 {
				<-started
			}
			b.ok(s.Close())
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				b.Fatal("calls hang after the store was closed")
			}
			reopen()
			for id, state := range acked {
				t := b.task(id)
				if state != 0 {
					b.is("state", t.State, state)
				}
				b.events(id)
			}
		}
	})
	run("a closed store answers with an error and does not hang", func(b *bed) {
		t := b.held()
		b.ok(b.s.Close())
		calls := map[string]func() error{
			"send": b.trySend(newSend(b.ann, b.dev)), "report": b.tryReport(says(t, hub.Completed)),
			"heartbeat": b.tryBeat(beatOf(t)), "cancel": b.tryCancel(t),
			"claim":    func() error { _, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: lease}); return err },
			"task":     func() error { _, err := b.s.Task(b.ctx, refOf(t), everything(), whole()); return err },
			"tasks":    func() error { _, err := b.s.Tasks(b.ctx, hub.TaskFilter{By: everything(), Limit: 1}); return err },
			"activity": func() error { _, err := b.s.Activity(b.ctx, hub.ActivityQuery{By: everything(), Limit: 1}); return err },
			"ping":     func() error { return b.s.Ping(b.ctx) },
		}
		for what, call := range calls {
			b.kind(what+" on a closed store", call(), hub.Unavailable)
		}
	})
	run("an open store says that it is well", func(b *bed) { b.ok(b.s.Ping(b.ctx)) })
	run("a context that has ended: an error, and all of it happened or nothing", func(b *bed) {
		t := b.held()
		gone, cancel := context.WithCancel(b.ctx)
		cancel()
		s := newSend(b.ann, b.dev, withKey("k", "f"))
		_, err := b.s.Send(gone, s)
		b.is("the context's error from a send", errors.Is(err, context.Canceled), true)
		r := says(t, hub.Completed, withEvents(put("a", "1"), progress("p")))
		_, err = b.s.Report(gone, r)
		b.is("the context's error from a report", errors.Is(err, context.Canceled), true)
		_, err = b.s.Cancel(gone, refOf(t), only(b.ann))
		b.is("the context's error from a cancel", errors.Is(err, context.Canceled), true)
		b.whole(s, r, t)
	})
	run("a context that ends meanwhile: all of it happened or nothing", func(b *bed) {
		for i := range 60 {
			t := b.held()
			s := newSend(b.bob, b.ops, withKey(number("k", i), "f"))
			r := says(t, hub.Completed, withEvents(put("a", "1"), progress("p")))
			ctx, cancel := context.WithCancel(b.ctx)
			crowd(3, 3, func(j int) {
				switch j {
				case 0:
					_, _ = b.s.Send(ctx, s)
				case 1:
					_, _ = b.s.Report(ctx, r)
				default:
					for range i * i { // sooner or later
						runtime.Gosched()
					}
					cancel()
				}
			})
			cancel()
			b.whole(s, r, t)
		}
	})
}

// whole checks that a send and a report whose outcome is unknown happened in full or
// not at all, and that sending them again makes them happen once.
func (b *bed) whole(s hub.Send, r hub.Report, t *hub.Task) {
	b.Helper()
	got := b.send(s)
	b.is("either created now or replayed", got.Created, !got.Replayed)
	b.is("events of the sent task", len(b.events(got.Task.ID)), 1)
	now := b.task(t.ID)
	if now.State == hub.Working {
		b.is("seq of a report that did not happen", now.Seq, int64(2))
		b.report(r)
	}
	if now = b.task(t.ID); now.State == hub.Completed {
		b.is("artifacts", b.artifacts(t.ID), map[string][]string{"a": {"1"}})
	}
	b.is("events", fmt.Sprint(b.states(t.ID)), map[bool]string{
		true:  fmt.Sprint([]hub.State{hub.Submitted, hub.Working, hub.Working, hub.Completed}),
		false: fmt.Sprint([]hub.State{hub.Submitted, hub.Working, hub.Canceled}),
	}[now.State == hub.Completed])
}
