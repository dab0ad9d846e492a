package storetest

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// model is hub.Store at its plainest: everything in memory, one lock, no indexes.
// The random walk compares a store with it. The suite's own test runs the suite on
// it, so model and tests keep each other honest.
type model struct {
	mu      sync.Mutex
	now     func() time.Time
	tasks   []*modelTask // in the order of their acceptance
	boxes   map[string]*mailbox
	keys    map[modelKey]*keyed
	lines   []line
	written int // lines ever
	addrs   []*hub.Address
	tokens  []*hub.Token
	secrets map[string][]byte // sealed, by name

	loans    int64 // ever
	failures []modelFailure
	failed   int // failures ever

	dispatched int // ever
	instances  []hub.Instance
	stopped    bool
}

// mailbox is what fairness remembers of a callee.
type mailbox struct {
	floor int
	last  map[string]int // rank by caller
}

type modelKey struct {
	caller, callee string
	hash           [32]byte
}

type keyed struct {
	fingerprint [32]byte
	task        *modelTask
}

// line is a line of the feed and whose it is.
type line struct {
	hub.Activity
	caller, callee string
	n              int
}

// anything stands for a message in the hub's own words.
var anything = []byte("in the hub's own words")

// modelTask is a task and what the store keeps beside it.
type modelTask struct {
	hub.Task
	events   []hub.Event
	messages []hub.Message
	question int           // number of the message that is the open question, or 0
	asked    map[int]int64 // by the number of a question, its event
	pushes   []*modelPush
	// dispatches are the hub's own deliveries, in order.
	dispatches []*modelDispatch

	rank    int
	claim   hub.ClaimSpec    // of the newest claim
	until   time.Time        // when that claim runs out
	open    bool             // the newest claim may still report
	lapsed  bool             // some claim lapsed
	seen    map[int]bool     // messages that some holder was handed
	digests map[int][32]byte // by attempt: what it settled the task with
	late    map[int]bool     // by attempt: its late reply was noted
}

func newModel(now func() time.Time) *model {
	return &model{
		now:   now,
		boxes: map[string]*mailbox{}, keys: map[modelKey]*keyed{}, secrets: map[string][]byte{},
	}
}

func newModelTask() *modelTask {
	return &modelTask{asked: map[int]int64{}, seen: map[int]bool{}, digests: map[int][32]byte{}, late: map[int]bool{}}
}

// lock begins an operation.
func (m *model) lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	if m.stopped {
		m.mu.Unlock()
		return nil, hub.Errorf(hub.Unavailable, "the store is closed")
	}
	return m.mu.Unlock, nil
}

func (m *model) find(id string) *modelTask {
	for _, t := range m.tasks {
		if t.ID == id {
			return t
		}
	}
	return nil
}

func (m *model) box(callee string) *mailbox {
	if m.boxes[callee] == nil {
		m.boxes[callee] = &mailbox{last: map[string]int{}}
	}
	return m.boxes[callee]
}

func (m *model) party(id string) hub.Party {
	for _, a := range m.addrs {
		if a.ID == id {
			return hub.Party{ID: id, Handle: a.Handle, Kind: a.Kind}
		}
	}
	return hub.Party{ID: id}
}

// note adds a line to the feed.
func (m *model) note(t *modelTask, kind hub.ActivityKind, actor, detail string) {
	m.written++
	m.lines = append(m.lines, line{hub.Activity{
		Cursor: fmt.Sprint("c", m.written), At: m.now(), Kind: kind, Run: t.Run,
		Task: t.ID, Seq: t.Seq, Actor: actor, Caller: t.Caller.Handle, Callee: t.Callee.Handle,
		Attempt: t.Attempt, Detail: detail,
	}, t.Caller.ID, t.Callee.ID, m.written})
}

// emit adds an event; a status becomes the task's.
func (m *model) emit(t *modelTask, e hub.Event) {
	t.Seq++
	e.Seq, e.At = t.Seq, m.now()
	t.events = append(t.events, e)
	if e.Kind == hub.StatusEvent {
		t.State, t.StateAt, t.StatusMessage = e.State, e.At, e.Body
	}
	for _, p := range t.pushes {
		if p.due.IsZero() {
			p.due = m.now()
		}
	}
}

func (m *model) status(t *modelTask, s hub.State, body []byte) {
	m.emit(t, hub.Event{Kind: hub.StatusEvent, State: s, Body: body})
}

// header is the task without history and artifacts.
func (t *modelTask) header() *hub.Task {
	h := t.Task
	h.Messages, h.Pushes = len(t.messages), len(t.pushes)
	return &h
}

// withHistory is the task with its newest n messages, all if negative.
func (t *modelTask) withHistory(n int) *hub.Task {
	h := t.header()
	for _, m := range t.messages {
		if m.N != t.question {
			h.History = append(h.History, m)
		}
	}
	if n >= 0 && len(h.History) > n {
		h.History = h.History[len(h.History)-n:]
	}
	return h
}

func (t *modelTask) say(body []byte, fromCallee bool) int {
	body = bytes.Clone(body)
	n := len(t.messages) + 1
	t.messages = append(t.messages, hub.Message{N: n, Body: body, FromCallee: fromCallee})
	return n
}

// offer puts a task into the ready order at the floor.
func (m *model) offer(t *modelTask) {
	t.Phase, t.Due, t.LeaseUntil = hub.Ready, time.Time{}, time.Time{}
	t.rank = m.box(t.Callee.ID).floor
}

func (t *modelTask) size() (bytes int64) {
	for _, e := range t.events {
		bytes += int64(len(e.Body) + len(e.Metadata))
	}
	for _, x := range t.messages {
		bytes += int64(len(x.Body))
	}
	return bytes
}

// Send implements hub.Transitions.
func (m *model) Send(ctx context.Context, s hub.Send) (r hub.Sent, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return r, err
	}
	defer unlock()
	t, replayed, err := m.replayed(s)
	switch {
	case err != nil:
		return r, err
	case replayed:
		r.Replayed = true
	default:
		t = m.find(s.FollowUp)
		if s.FollowUp == "" && s.AnswerContext && s.ContextGiven {
			t = m.openQuestion(s)
		}
		var before int64
		if t != nil {
			before = t.Seq
		}
		if s.FollowUp == "" && t == nil {
			r.Created = true
			t, err = m.accept(s)
		} else {
			r.Answered, err = m.message(t, s)
		}
		if err != nil {
			return hub.Sent{}, err
		}
		if s.Push != nil {
			m.putPush(t, *s.Push, before)
		}
		if s.Key != nil {
			m.keys[modelKey{s.Caller, s.Callee, s.Key.Hash}] = &keyed{s.Key.Fingerprint, t}
		}
	}
	r.Task = t.header()
	if s.Claim != nil {
		c := m.claimFirst(s.Callee, *s.Claim)
		r.Claimed, r.Failed = c.Task, c.Failed
	}
	return r, nil
}

func (m *model) replayed(s hub.Send) (*modelTask, bool, error) {
	if s.Key == nil {
		return nil, false, nil
	}
	k := m.keys[modelKey{s.Caller, s.Callee, s.Key.Hash}]
	if k == nil || k.task.Phase == hub.Done && m.now().Sub(k.task.EndedAt) >= 24*time.Hour {
		return nil, false, nil
	}
	if k.fingerprint != s.Key.Fingerprint {
		return nil, false, hub.Errorf(hub.KeyReused, "this idempotency key came with another request")
	}
	return k.task, true, nil
}

func (m *model) openQuestion(s hub.Send) *modelTask {
	var newest *modelTask
	for _, t := range m.tasks {
		if t.Phase == hub.Parked && t.ContextID == s.ContextID &&
			t.Caller.ID == s.Caller && t.Callee.ID == s.Callee &&
			(newest == nil || !t.StateAt.Before(newest.StateAt)) {
			newest = t
		}
	}
	return newest
}

func (m *model) accept(s hub.Send) (*modelTask, error) {
	if s.Refuse != nil {
		return nil, s.Refuse
	}
	open := 0
	for _, t := range m.tasks {
		if t.Phase != hub.Done && t.Caller.ID == s.Caller && t.Callee.ID == s.Callee {
			open++
		}
	}
	if open >= s.Limits.OpenTasks {
		e := hub.Errorf(hub.RateLimited, "too many unfinished tasks")
		e.RetryAfter = time.Second
		return nil, e
	}
	if s.Push != nil {
		if err := (*modelTask)(nil).roomForPush(s.Push.ID, s.Limits); err != nil {
			return nil, err
		}
	}
	t := newModelTask()
	t.Task = hub.Task{
		ID: s.TaskID, ContextID: s.ContextID, Caller: m.party(s.Caller), Callee: m.party(s.Callee),
		Tags: s.Tags, Metadata: s.Metadata, ParentTask: s.ParentTask, ParentCall: s.ParentCall,
		Run: s.Run, Trace: s.Trace, Deadline: s.Deadline, CreatedAt: m.now(),
	}
	m.enter(t, s.Message)
	box := m.box(s.Callee)
	t.Phase, t.rank = hub.Ready, max(box.floor, box.last[s.Caller])+1
	box.last[s.Caller] = t.rank
	m.note(t, hub.ActSent, t.Caller.Handle, "")
	return t, nil
}

// enter takes a new task in.
func (m *model) enter(t *modelTask, message []byte) {
	if t.Run == "" {
		t.Run = t.ID
	}
	m.tasks = append(m.tasks, t)
	m.status(t, hub.Submitted, nil)
	t.say(message, false)
}

func (m *model) message(t *modelTask, s hub.Send) (answered bool, err error) {
	switch {
	case t == nil || t.Caller.ID != s.Caller || t.Callee.ID != s.Callee:
		return false, hub.ErrTaskNotFound()
	case s.ContextGiven && s.ContextID != t.ContextID:
		return false, hub.InvalidField("message.contextId", "the task is in another context")
	case t.Phase == hub.Done:
		return false, hub.Errorf(hub.Ended, "the task has ended")
	case s.Refuse != nil:
		return false, s.Refuse
	case len(t.messages) >= s.Limits.Messages, t.size()+int64(len(s.Message)) > s.Limits.Bytes:
		return false, hub.Errorf(hub.TooLarge, "the task is full")
	}
	if s.Push != nil {
		if err := t.roomForPush(s.Push.ID, s.Limits); err != nil {
			return false, err
		}
	}
	answered = t.Phase == hub.Parked
	t.say(s.Message, false)
	if !answered {
		m.note(t, hub.ActMessage, t.Caller.Handle, "")
		return false, nil
	}
	t.question = 0
	m.status(t, hub.Working, nil)
	m.offer(t)
	m.note(t, hub.ActAnswered, t.Caller.Handle, "")
	return true, nil
}

// Claim implements hub.Transitions.
func (m *model) Claim(ctx context.Context, callee string, c hub.ClaimSpec) (hub.Claimed, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return hub.Claimed{}, err
	}
	defer unlock()
	return m.claimFirst(callee, c), nil
}

func (m *model) claimFirst(callee string, c hub.ClaimSpec) (out hub.Claimed) {
	t := m.firstReady(callee)
	for ; t != nil && c.Attempts > 0 && t.Attempt >= c.Attempts; t = m.firstReady(callee) {
		m.end(t, hub.Failed, anything, string(anything), "hub")
		out.Failed = append(out.Failed, t.ID)
	}
	if t != nil {
		out.Task = m.take(t, c)
	}
	return out
}

func (m *model) firstReady(callee string) (t *modelTask) {
	for _, x := range m.tasks {
		if x.Phase == hub.Ready && x.Due.IsZero() && x.Callee.ID == callee && (t == nil || x.rank < t.rank) {
			t = x
		}
	}
	return t
}

// take gives a ready task to its callee.
func (m *model) take(t *modelTask, c hub.ClaimSpec) *hub.Task {
	m.box(t.Callee.ID).floor = t.rank
	t.Attempt++
	t.claim, t.open = c, true
	t.Phase, t.ClaimedAt = hub.Leased, m.now()
	t.until = m.now().Add(c.Lease)
	if c.Ack > 0 {
		t.until = m.now().Add(c.Ack)
	}
	t.LeaseUntil = t.until
	if t.State != hub.Working {
		m.status(t, hub.Working, nil)
	}
	for _, x := range t.messages {
		t.seen[x.N] = true
	}
	m.note(t, hub.ActClaimed, t.Callee.Handle, "")
	out := t.load(whole())
	if c.Dispatch != nil && t.Attempt == 1 {
		m.noteDispatch(t, c.Dispatch)
		out.Dispatched = true
	}
	return out
}

// Release implements hub.Transitions.
func (m *model) Release(ctx context.Context, callee, task string, attempt int) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	t := m.find(task)
	switch {
	case t == nil || t.Callee.ID != callee:
		return hub.ErrTaskNotFound()
	case t.Phase != hub.Leased || t.Attempt != attempt:
		return hub.ErrClaimLapsed()
	}
	m.offer(t)
	m.note(t, hub.ActReleased, "hub", "")
	return nil
}

// addressed gives a task of the callee, and the claim that attempt stands for; 0 if
// for none.
func (m *model) addressed(callee, task string, attempt int) (*modelTask, int, error) {
	t := m.find(task)
	if t == nil || t.Callee.ID != callee {
		return nil, 0, hub.ErrTaskNotFound()
	}
	if attempt == 0 && !t.lapsed {
		attempt = t.Attempt
	}
	return t, attempt, nil
}

// renew is what every accepted sign of life does.
func (m *model) renew(t *modelTask) {
	t.Phase, t.Due, t.claim.Ack = hub.Leased, time.Time{}, 0
	t.until = m.now().Add(t.claim.Lease)
	t.LeaseUntil = t.until
}

// Report implements hub.Transitions.
func (m *model) Report(ctx context.Context, r hub.Report) (got hub.Reported, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return got, err
	}
	defer unlock()
	t, attempt, err := m.addressed(r.Callee, r.Task, r.Attempt)
	if err != nil {
		return got, err
	}
	if d, settled := t.digests[attempt]; settled && r.State.Settled() && d == r.Digest {
		got.Replayed = true
	} else if err := m.apply(t, attempt, r); err != nil {
		return got, err
	}
	got.Task = t.header()
	if r.Next != nil {
		c := m.claimFirst(r.Callee, *r.Next)
		got.Next, got.Failed = c.Task, c.Failed
	}
	return got, nil
}

func (m *model) apply(t *modelTask, attempt int, r hub.Report) error {
	if t.Phase == hub.Done {
		m.lateReply(t, attempt, r)
		return hub.ErrClaimLapsed()
	}
	if !t.open || attempt != t.Attempt {
		return hub.ErrClaimLapsed()
	}
	if err := t.accepts(r); err != nil {
		return err
	}
	m.renew(t)
	for _, e := range r.Events {
		m.emit(t, e)
	}
	if len(r.Events) > 0 || r.State == hub.Working && r.Message != nil {
		defer m.note(t, hub.ActProgress, t.Callee.Handle, "")
	}
	switch {
	case r.State == hub.Working && r.Message != nil:
		m.status(t, hub.Working, r.Message)
	case r.State.Interrupted():
		m.park(t, r)
	case r.State.Terminal():
		t.digests[t.Attempt] = r.Digest
		m.end(t, r.State, r.Message, r.Error, t.Callee.Handle)
	}
	return nil
}

func (m *model) lateReply(t *modelTask, attempt int, r hub.Report) {
	if !r.State.Settled() || attempt < 1 || attempt > t.Attempt || t.late[attempt] {
		return
	}
	t.late[attempt] = true
	if t.CancelOutcome == hub.CancelUnconfirmed && attempt == t.Attempt {
		t.CancelOutcome = hub.CancelAlreadyFinished
	}
	m.note(t, hub.ActLateReply, t.Callee.Handle, "")
}

// accepts checks a report's events and size.
func (t *modelTask) accepts(r hub.Report) error {
	if r.State.Terminal() && len(r.Events) == 0 {
		return nil
	}
	known := map[string]bool{}
	for _, e := range t.events {
		known[e.ArtifactID] = true
	}
	events, size := t.Seq, t.size()+int64(len(r.Message))
	for i, e := range r.Events {
		if e.Kind == hub.ArtifactEvent && e.Append && !known[e.ArtifactID] {
			return hub.InvalidField(fmt.Sprintf("events[%d]", i), "there is no artifact %q to append to", e.ArtifactID)
		}
		known[e.ArtifactID] = true
		events++
		size += int64(len(e.Body) + len(e.Metadata))
	}
	if r.State.Settled() || r.State == hub.Working && r.Message != nil {
		events++
	}
	if r.State.Interrupted() && len(t.messages) >= r.Limits.Messages ||
		events > t.Seq && (events > r.Limits.Events || size > r.Limits.Bytes) {
		return hub.Errorf(hub.TooLarge, "the task is full")
	}
	return nil
}

func (m *model) park(t *modelTask, r hub.Report) {
	t.Phase, t.LeaseUntil, t.Failures = hub.Parked, time.Time{}, 0
	t.open, t.digests[t.Attempt] = false, r.Digest
	m.status(t, r.State, r.Message)
	if r.Message != nil {
		t.question = t.say(r.Message, true)
		t.asked[t.question] = t.Seq
	}
	m.note(t, hub.ActAsked, t.Callee.Handle, "")
}

// end ends a task, whoever wants it.
func (m *model) end(t *modelTask, s hub.State, message []byte, why, actor string) {
	t.Phase, t.Due, t.LeaseUntil, t.open = hub.Done, time.Time{}, time.Time{}, false
	t.EndedAt, t.Error, t.question = m.now(), why, 0
	m.status(t, s, message)
	m.note(t, map[hub.State]hub.ActivityKind{
		hub.Completed: hub.ActCompleted, hub.Failed: hub.ActFailed,
		hub.Canceled: hub.ActCanceled, hub.Rejected: hub.ActRejected,
	}[s], actor, why)
	unseen := false
	for i, x := range t.messages {
		if !x.FromCallee && !t.seen[x.N] && t.Attempt > 0 {
			t.messages[i].Undelivered, unseen = true, true
		}
	}
	if unseen {
		m.note(t, hub.ActUndelivered, "hub", "")
	}
}

// Heartbeat implements hub.Transitions.
func (m *model) Heartbeat(ctx context.Context, h hub.Heartbeat) (got hub.Beat, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return got, err
	}
	defer unlock()
	t, attempt, err := m.addressed(h.Callee, h.Task, h.Attempt)
	if err != nil {
		return got, err
	}
	if t.State == hub.Canceled && attempt == t.Attempt && attempt > 0 {
		return m.tellCancel(t, h.Unread), nil
	}
	if !t.open || attempt != t.Attempt {
		return got, hub.ErrClaimLapsed()
	}
	if h.Lease > 0 {
		t.claim.Lease = h.Lease
	}
	m.renew(t)
	got = hub.Beat{State: t.State, LeaseUntil: t.until}
	for _, x := range t.messages {
		if h.Unread {
			t.seen[x.N] = t.seen[x.N] || x.N <= h.After
			got.Unseen = got.Unseen || !t.seen[x.N]
			continue
		}
		if !x.FromCallee && (h.After >= 0 && x.N > h.After || h.After < 0 && !t.seen[x.N]) {
			got.Messages = append(got.Messages, x)
		}
		t.seen[x.N] = true // handed over before, now, or seen by what After says
	}
	return got, nil
}

func (m *model) tellCancel(t *modelTask, unread bool) hub.Beat {
	if t.CancelOutcome == hub.CancelUnconfirmed && !unread {
		t.CancelOutcome = hub.CancelConfirmed
		m.note(t, hub.ActCancelSeen, t.Callee.Handle, "")
	}
	return hub.Beat{State: hub.Canceled, CancelRequested: true}
}

// Cancel implements hub.Transitions.
func (m *model) Cancel(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (*hub.Task, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t := m.visible(ref, by)
	if t == nil || !by.All && t.Caller.ID != by.Address {
		return nil, hub.ErrTaskNotFound()
	}
	if t.Phase == hub.Done && t.State != hub.Canceled {
		return nil, hub.Errorf(hub.NotCancelable, "the task has ended as %s", t.State)
	}
	if t.Phase != hub.Done {
		m.cancel(t, nil, m.party(by.Address).Handle)
	}
	return t.header(), nil
}

func (m *model) cancel(t *modelTask, message []byte, actor string) {
	t.CancelOutcome = hub.CancelConfirmed
	if untold := t.untold(); t.open || untold {
		t.CancelOutcome = hub.CancelUnconfirmed
	}
	m.end(t, hub.Canceled, message, "", actor)
}

// Requeue implements hub.Transitions.
func (m *model) Requeue(ctx context.Context, task, newID string) (*hub.Task, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t := m.find(task)
	switch {
	case t == nil:
		return nil, hub.ErrTaskNotFound()
	case t.Phase == hub.Leased:
		t.open, t.lapsed = false, true
		m.offer(t)
		m.note(t, hub.ActRequeued, hub.AdminHandle, "")
		return t.header(), nil
	case t.Phase == hub.Ready:
		if !t.Due.IsZero() {
			m.offer(t)
			m.note(t, hub.ActRequeued, hub.AdminHandle, "")
		}
		return t.header(), nil
	case t.State == hub.Failed && newID != "":
		return m.copyOf(t, newID).header(), nil
	}
	return nil, hub.Errorf(hub.Conflict, "only a leased or a failed task can be requeued")
}

func (m *model) copyOf(t *modelTask, id string) *modelTask {
	c := newModelTask()
	c.Task = hub.Task{
		ID: id, ContextID: t.ContextID, Caller: t.Caller, Callee: t.Callee, Tags: t.Tags,
		Metadata: t.Metadata, ParentTask: t.ParentTask, ParentCall: t.ParentCall,
		Trace: t.Trace, RequeueOf: t.ID, CreatedAt: m.now(),
	}
	if t.Run != t.ID {
		c.Run = t.Run
	}
	m.enter(c, t.messages[0].Body)
	m.offer(c)
	m.note(c, hub.ActSent, c.Caller.Handle, "")
	m.note(c, hub.ActRequeued, hub.AdminHandle, "")
	return c
}

// Ping implements hub.Store.
func (m *model) Ping(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err == nil {
		unlock()
	}
	return err
}

// Close implements hub.Store.
func (m *model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped = true
	return nil
}
