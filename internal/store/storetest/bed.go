package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// bed is a store with a few addresses in it: the ground that a test stands on. Ann
// and Bob are callers, Eve is a stranger, Dev and Ops are callees.
type bed struct {
	testing.TB
	ctx                     context.Context
	h                       Harness
	s                       hub.Store
	clock                   *Clock
	ann, bob, eve, dev, ops string // address ids
}

const lease = 10 * time.Minute // of claims, unless a test says otherwise

func newBed(t testing.TB, h Harness) *bed {
	b := &bed{TB: t, ctx: t.Context(), h: h, s: h.Store, clock: h.Clock}
	handles := []string{"ann", "bob", "eve", "dev", "ops"}
	ids := []*string{&b.ann, &b.bob, &b.eve, &b.dev, &b.ops}
	together(len(handles), func(i int) { *ids[i] = b.address(handles[i]) })
	return b
}

// address adds an address and gives its id.
func (b *bed) address(handle string, change ...func(*hub.Address)) string {
	b.Helper()
	a := hub.Address{
		ID: newID(), Handle: handle, Kind: hub.KindAgent, Access: hub.Open,
		MaxRedeliveries: -1, OnUnknown: "resend", CreatedAt: b.clock.Now(), RelayPaths: []string{"/hooks/"},
	}
	for _, f := range change {
		f(&a)
	}
	b.ok(b.s.CreateAddress(b.ctx, a))
	return a.ID
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// ok ends the test if there is an error.
func (b *bed) ok(err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("unexpected error: %v", err)
	}
}

// wholeBytes compares payloads at once, not byte by byte.
var wholeBytes = cmp.FilterValues(func(a, b []byte) bool { return len(a)+len(b) > 0 }, cmp.Comparer(bytes.Equal))

// is reports a difference between what a test got and what it wants; nil wants
// nothing, and nothing is nil or empty.
func (b *bed) is(what string, got, want any) {
	b.Helper()
	if want == nil {
		if reflect.ValueOf(got).Len() > 0 {
			b.Errorf("%s: got %v, want nothing", what, got)
		}
		return
	}
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), wholeBytes); d != "" {
		b.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// kind checks that an error is a refusal of a kind, with words for the client.
func (b *bed) kind(what string, err error, want hub.Kind) {
	b.Helper()
	var e *hub.Error
	if !errors.As(err, &e) {
		b.Errorf("%s: got error %v, want a *hub.Error of kind %d", what, err, want)
		return
	}
	if e.Kind != want {
		b.Errorf("%s: got kind %d (%v), want kind %d", what, e.Kind, err, want)
	}
	if e.Message == "" || e.Code == "" {
		b.Errorf("%s: the refusal %#v has no code or no message", what, e)
	}
}

// refused checks that a call is refused with a kind and changes nothing at all.
func (b *bed) refused(what string, want hub.Kind, call func() error) {
	b.Helper()
	before := b.world()
	b.kind(what, call(), want)
	b.is("the store after the refused call: "+what, b.world(), before)
}

// unchanged checks that a call succeeds and changes nothing at all.
func (b *bed) unchanged(what string, call func() error) {
	b.Helper()
	before := b.world()
	b.ok(call())
	b.is("the store after a call that changes nothing: "+what, b.world(), before)
}

// Payloads.

func msg(id string) []byte {
	return []byte(`{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"hi"}]}`)
}

func agentMsg(id string) []byte {
	return []byte(`{"messageId":"` + id + `","role":"ROLE_AGENT","parts":[{"text":"so"}]}`)
}

func artifact(id string, texts ...string) []byte {
	parts := make([]map[string]string, len(texts))
	for i, s := range texts {
		parts[i] = map[string]string{"text": s}
	}
	p, _ := json.Marshal(parts)
	return []byte(`{"artifactId":"` + id + `","parts":` + string(p) + `}`)
}

// put is an event that brings an artifact, more one that appends to it.
func put(id string, texts ...string) hub.Event {
	return hub.Event{Kind: hub.ArtifactEvent, ArtifactID: id, Body: artifact(id, texts...)}
}

func more(id string, texts ...string) hub.Event {
	e := put(id, texts...)
	e.Append = true
	return e
}

// progress is a WORKING status with a message.
func progress(id string) hub.Event {
	return hub.Event{Kind: hub.StatusEvent, State: hub.Working, Body: agentMsg(id)}
}

func hash(s string) [32]byte { return sha256.Sum256([]byte(s)) }

// Sends.

// newSend is a send of a new task with message m1.
func newSend(caller, callee string, change ...func(*hub.Send)) hub.Send {
	s := hub.Send{
		Caller: caller, Callee: callee, TaskID: newID(), ContextID: newID(),
		Message: msg("m1"), Limits: hub.DefaultLimits(),
	}
	for _, f := range change {
		f(&s)
	}
	return s
}

func withKey(key, fingerprint string) func(*hub.Send) {
	return func(s *hub.Send) { s.Key = &hub.Key{Hash: hash(key), Fingerprint: hash(fingerprint)} }
}

func withMessage(id string) func(*hub.Send) { return func(s *hub.Send) { s.Message = msg(id) } }

func withDeadline(at time.Time) func(*hub.Send) { return func(s *hub.Send) { s.Deadline = at } }

func withClaim(s *hub.Send) { s.Claim = &hub.ClaimSpec{Lease: lease} }

// inContext names the context of a send.
func inContext(id string) func(*hub.Send) {
	return func(s *hub.Send) { s.ContextID, s.ContextGiven = id, true }
}

// to makes a send a follow-up.
func to(t *hub.Task) func(*hub.Send) { return func(s *hub.Send) { s.FollowUp = t.ID } }

// send sends, and must succeed.
func (b *bed) send(s hub.Send) hub.Sent {
	b.Helper()
	r, err := b.s.Send(b.ctx, s)
	b.ok(err)
	if r.Task == nil {
		b.Fatal("a send that succeeded gave no task")
	}
	return r
}

// ask sends a new task.
func (b *bed) ask(caller, callee string, change ...func(*hub.Send)) *hub.Task {
	b.Helper()
	return b.send(newSend(caller, callee, change...)).Task
}

// follow sends a message to a task of Ann's at Dev.
func (b *bed) follow(t *hub.Task, id string) hub.Sent {
	b.Helper()
	return b.send(newSend(b.ann, b.dev, to(t), withMessage(id)))
}

// trySend gives the error of a send.
func (b *bed) trySend(s hub.Send) func() error {
	return func() error { _, err := b.s.Send(b.ctx, s); return err }
}

// Claims.

// maybeClaim claims what is ready, if anything is.
func (b *bed) maybeClaim(callee string) *hub.Task {
	b.Helper()
	got, err := b.s.Claim(b.ctx, callee, hub.ClaimSpec{Lease: lease})
	b.ok(err)
	return got.Task
}

// claim claims what must be ready.
func (b *bed) claim(callee string) *hub.Task {
	b.Helper()
	t := b.maybeClaim(callee)
	if t == nil {
		b.Fatal("nothing was ready to be claimed")
	}
	return t
}

// claimTask claims, and the task must be this one.
func (b *bed) claimTask(t *hub.Task) *hub.Task {
	b.Helper()
	c := b.claim(t.Callee.ID)
	if c.ID != t.ID {
		b.Fatalf("claimed task %s, want %s", c.ID, t.ID)
	}
	return c
}

// nothingReady checks that there is nothing to claim.
func (b *bed) nothingReady(callee string) {
	b.Helper()
	if t := b.maybeClaim(callee); t != nil {
		b.Fatalf("claimed task %s, want none", t.ID)
	}
}

// held gives a new task of Ann's that Dev holds.
func (b *bed) held(change ...func(*hub.Send)) *hub.Task {
	b.Helper()
	return b.claimTask(b.ask(b.ann, b.dev, change...))
}

// parked gives a new task of Ann's whose question she has not answered.
func (b *bed) parked() *hub.Task {
	b.Helper()
	t := b.held()
	return b.report(says(t, hub.InputRequired)).Task
}

// Reports.

// says is a report of the claim t with a state; the digest follows from what it says.
func says(t *hub.Task, state hub.State, change ...func(*hub.Report)) hub.Report {
	r := hub.Report{
		Callee: t.Callee.ID, Task: t.ID, Attempt: t.Attempt, State: state,
		Limits: hub.DefaultLimits(),
	}
	if state != hub.StateUnspecified {
		r.Message = agentMsg("r-" + state.String())
	}
	if state == hub.Failed {
		r.Error = "it broke"
	}
	for _, f := range change {
		f(&r)
	}
	if r.State.Settled() {
		r.Digest = hash(fmt.Sprint(r.State, string(r.Message), r.Events, r.Error))
	}
	return r
}

// reports is a report of events alone.
func reports(t *hub.Task, events ...hub.Event) hub.Report {
	return says(t, hub.StateUnspecified, func(r *hub.Report) { r.Events = events })
}

func withEvents(events ...hub.Event) func(*hub.Report) {
	return func(r *hub.Report) { r.Events = events }
}

func withNext(r *hub.Report) { r.Next = &hub.ClaimSpec{Lease: lease} }

func underAttempt(n int) func(*hub.Report) { return func(r *hub.Report) { r.Attempt = n } }

// report reports, and must succeed.
func (b *bed) report(r hub.Report) hub.Reported {
	b.Helper()
	got, err := b.s.Report(b.ctx, r)
	b.ok(err)
	if got.Task == nil {
		b.Fatal("a report that succeeded gave no task")
	}
	return got
}

func (b *bed) tryReport(r hub.Report) func() error {
	return func() error { _, err := b.s.Report(b.ctx, r); return err }
}

// Heartbeats, cancels and time.

func beatOf(t *hub.Task) hub.Heartbeat {
	return hub.Heartbeat{Callee: t.Callee.ID, Task: t.ID, Attempt: t.Attempt, After: -1}
}

func (b *bed) beat(h hub.Heartbeat) hub.Beat {
	b.Helper()
	got, err := b.s.Heartbeat(b.ctx, h)
	b.ok(err)
	return got
}

func (b *bed) tryBeat(h hub.Heartbeat) func() error {
	return func() error { _, err := b.s.Heartbeat(b.ctx, h); return err }
}

func refOf(t *hub.Task) hub.TaskRef { return hub.TaskRef{Callee: t.Callee.ID, ID: t.ID} }

func only(address string) hub.Viewer { return hub.Viewer{Address: address} }

func everything() hub.Viewer { return hub.Viewer{All: true} }

func whole() hub.Load { return hub.Load{History: -1, Artifacts: true} }

// cancel cancels a task for its caller.
func (b *bed) cancel(t *hub.Task) *hub.Task {
	b.Helper()
	got, err := b.s.Cancel(b.ctx, refOf(t), only(t.Caller.ID))
	b.ok(err)
	return got
}

func (b *bed) tryCancel(t *hub.Task) func() error {
	return func() error { _, err := b.s.Cancel(b.ctx, refOf(t), only(t.Caller.ID)); return err }
}

// sweep does all that is due.
func (b *bed) sweep() hub.Swept {
	b.Helper()
	got, err := b.s.Sweep(b.ctx, 1000, true, hub.DefaultLimits())
	b.ok(err)
	return got
}

// pass lets time pass and sweeps.
func (b *bed) pass(d time.Duration) hub.Swept {
	b.Helper()
	b.clock.Advance(d)
	return b.sweep()
}

// expire lets the lease of every claim run out.
func (b *bed) expire() { b.Helper(); b.pass(lease + time.Second) }

// Reads.

// view is all that can be read of one task.
type view struct {
	Task   *hub.Task
	Events []hub.Event
}

// task reads a whole task as the administrator does.
func (b *bed) task(id string) *hub.Task {
	b.Helper()
	t, err := b.s.Task(b.ctx, hub.TaskRef{ID: id}, everything(), whole())
	b.ok(err)
	return t
}

// events reads all events of a task and checks that they are dense and begin with
// SUBMITTED, and that nothing follows a terminal one.
func (b *bed) events(id string) []hub.Event {
	b.Helper()
	var all []hub.Event
	for {
		var after int64
		if len(all) > 0 {
			after = all[len(all)-1].Seq
		}
		p, err := b.s.Events(b.ctx, hub.TaskRef{ID: id}, everything(), after, 10_000)
		b.ok(err)
		all = append(all, p.Events...)
		if len(p.Events) == 0 {
			b.checkEvents(all, p)
			return all
		}
	}
}

func (b *bed) checkEvents(all []hub.Event, p hub.EventPage) {
	b.Helper()
	for i, e := range all {
		if e.Seq != int64(i+1) {
			b.Fatalf("event %d has the number %d", i+1, e.Seq)
		}
		if e.Kind == hub.StatusEvent && e.State.Terminal() && i != len(all)-1 {
			b.Errorf("%d events follow the terminal event %d", len(all)-1-i, e.Seq)
		}
	}
	if len(all) == 0 || all[0].Kind != hub.StatusEvent || all[0].State != hub.Submitted {
		b.Errorf("the first event is not the status SUBMITTED: %+v", all)
	}
	if p.Last != int64(len(all)) {
		b.Errorf("the newest event is said to be %d, but there are %d", p.Last, len(all))
	}
}

func (b *bed) view(id string) view {
	b.Helper()
	return view{b.task(id), b.events(id)}
}

// states is the states of a task's status events, in order.
func (b *bed) states(id string) []hub.State {
	b.Helper()
	var s []hub.State
	for _, e := range b.events(id) {
		if e.Kind == hub.StatusEvent {
			s = append(s, e.State)
		}
	}
	return s
}

// list reads all pages of a filter.
func (b *bed) list(f hub.TaskFilter) []*hub.Task {
	b.Helper()
	if f.Limit == 0 {
		f.Limit = 100
	}
	var all []*hub.Task
	for {
		p, err := b.s.Tasks(b.ctx, f)
		b.ok(err)
		all = append(all, p.Tasks...)
		if p.Next == "" {
			return all
		}
		if len(all) > 100_000 || p.Next == f.Cursor {
			b.Fatal("the pages do not come to an end")
		}
		f.Cursor = p.Next
	}
}

func ids(tasks []*hub.Task) []string {
	s := make([]string, len(tasks))
	for i, t := range tasks {
		s[i] = t.ID
	}
	return s
}

// activity reads the whole feed as far as the viewer may see it.
func (b *bed) activity(by hub.Viewer) []hub.Activity {
	b.Helper()
	var all []hub.Activity
	q := hub.ActivityQuery{By: by, Limit: 500}
	for {
		p, err := b.s.Activity(b.ctx, q)
		b.ok(err)
		if p.Next == "" {
			b.Fatal("an activity page has no cursor to read on from")
		}
		all = append(all, p.Lines...)
		if len(p.Lines) == 0 && p.Next == q.After {
			return all
		}
		q.After = p.Next
	}
}

// acts is the lines of the feed about one task.
func (b *bed) acts(id string) []hub.Activity {
	b.Helper()
	var of []hub.Activity
	for _, l := range b.activity(everything()) {
		if l.Task == id {
			of = append(of, l)
		}
	}
	return of
}

// happened is the kinds of those lines.
func (b *bed) happened(id string) []hub.ActivityKind {
	b.Helper()
	var kinds []hub.ActivityKind
	for _, l := range b.acts(id) {
		kinds = append(kinds, l.Kind)
	}
	return kinds
}

// count counts the lines of a kind about one task.
func (b *bed) count(id string, kind hub.ActivityKind) int {
	b.Helper()
	n := 0
	for _, k := range b.happened(id) {
		if k == kind {
			n++
		}
	}
	return n
}

// world is all that can be read of a store's tasks, for comparing before and after.
type world struct {
	Tasks    map[string]view
	Activity []hub.Activity
	Stats    hub.QueueStats
	Pushes   map[string][]hub.PushConfig
	Failures []hub.PushFailure
}

func (b *bed) world() world {
	b.Helper()
	w := world{Tasks: map[string]view{}, Activity: b.activity(everything()), Pushes: map[string][]hub.PushConfig{}}
	for _, t := range b.list(hub.TaskFilter{By: everything()}) {
		w.Tasks[t.ID] = b.view(t.ID)
		if t.Pushes > 0 {
			w.Pushes[t.ID] = b.pushes(t.ID)
		}
	}
	w.Failures = b.failures(everything(), "")
	var err error
	w.Stats, err = b.s.QueueStats(b.ctx)
	b.ok(err)
	return w
}

// messageIDs names the messages of a history.
func messageIDs(history []hub.Message) []string {
	var s []string
	for _, m := range history {
		var body struct {
			MessageID string `json:"messageId"`
		}
		_ = json.Unmarshal(m.Body, &body)
		s = append(s, body.MessageID)
	}
	return s
}

// Concurrency.

// together calls f with 0 to n-1 from many goroutines and waits for them all.
func together(n int, f func(i int)) { crowd(32, n, f) }

// crowd is together with a given number of goroutines.
func crowd(workers, n int, f func(i int)) {
	var wg sync.WaitGroup
	var next atomic.Int64
	for range min(workers, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// okAll is ok for use outside of the test's own goroutine.
func (b *bed) okAll(err error) {
	if err != nil {
		b.Errorf("unexpected error: %v", err)
	}
}

// askMany sends n tasks at once and gives their ids.
func (b *bed) askMany(n int, caller, callee string) []string {
	b.Helper()
	out := make([]string, n)
	together(n, func(i int) {
		s := newSend(caller, callee)
		_, err := b.s.Send(b.ctx, s)
		b.okAll(err)
		out[i] = s.TaskID
	})
	if b.Failed() {
		b.FailNow()
	}
	return out
}

func number(prefix string, i int) string { return prefix + strconv.Itoa(i) }
