package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

// Beat is the answer to a heartbeat.
type Beat = wire.Heartbeat

// hold is a claim in the hands of its callee.
type hold struct {
	c     *Client
	id    string
	claim string
	// task is the task as it was claimed, nil if only the claim is known.
	task   *Task
	cancel context.CancelCauseFunc // of the handler's context

	messages chan Message // new messages of the caller, for the handler; nil outside Serve

	mu       sync.Mutex
	settling bool                    // a settling report is on its way or has arrived
	intent   *Result                 // what was to be reported when a settling report did not arrive
	lost     error                   // why the claim is no longer worth anything
	after    int                     // the number of the newest message that is here; negative if unknown
	inbox    []wire.HeartbeatMessage // came with heartbeats and is not handed on yet

	textMu sync.Mutex // orders the chunks of texts
	texts  map[string]*text
}

// text is an artifact that grows by AppendText.
type text struct {
	name string
	all  []byte
	sent bool // the hub has the artifact
}

// newHold makes t a task that this client holds.
func newHold(c *Client, t *Task, cancel context.CancelCauseFunc) *Task {
	t.hold = &hold{c: c, id: t.ID, claim: t.ClaimID, task: t, cancel: cancel, after: len(t.History)}
	return t
}

// Claim gives a task by its id and that of its claim, to report on it from another
// process than the one that claimed it. Nothing but these two is known of it.
func (c *Client) Claim(task, claim string) *Task {
	t := &Task{Task: wire.Task{ID: task, ClaimID: claim}}
	t.hold = &hold{c: c, id: task, claim: claim, cancel: func(error) {}, after: -1}
	return t
}

// Received gives a task that was sent to this address, in the hands of its newest
// claim, to report on it from another process than the one that claimed it.
func (c *Client) Received(ctx context.Context, id string) (*Task, error) {
	if err := checkRef("the task's id", id); err != nil {
		return nil, err
	}
	t := new(Task)
	err := c.do(ctx, call{method: http.MethodGet, path: agentPath("me", "tasks", id), out: t, repeat: bounded})
	if err != nil {
		return nil, err
	}
	return newHold(c, t, func(error) {}), nil
}

func (t *Task) held() (*hold, error) {
	if t.hold == nil {
		return nil, ErrNotHeld
	}
	return t.hold, nil
}

// Reply reports on a held task: its end, a question, or with the state "working"
// that it is still being worked on. After an end or a question the claim is settled,
// and what the handler returns does not count any more.
//
// The report is repeated until it arrives, as the client's Retry says; it is applied
// once. If the claim has lapsed the error is ErrLeaseLost, or ErrCanceled.
func (t *Task) Reply(ctx context.Context, r Result) (*Task, error) {
	h, err := t.held()
	if err != nil {
		return nil, err
	}
	rep := report{Result: r, how: bounded, whole: true}
	var reply wire.ResultReply
	if r.State == StateWorking {
		reply, err = h.post(ctx, rep)
		err = h.judge(ctx, err)
	} else {
		reply, err = h.settle(ctx, rep)
	}
	if err != nil {
		return nil, err
	}
	return &Task{Task: reply.Task}, nil
}

// settle makes a report that needs no answer. err is what went wrong in making it.
func (t *Task) settle(ctx context.Context, r Result, err error) error {
	if err != nil {
		return err
	}
	h, err := t.held()
	if err != nil {
		return err
	}
	_, err = h.settle(ctx, report{Result: r, how: bounded})
	return err
}

// Done reports that the task is completed. The result is what a handler may return:
// nil, a string, data, parts, artifacts or a message.
func (t *Task) Done(ctx context.Context, result any) error {
	r, err := completed(result)
	return t.settle(ctx, r, err)
}

// Ask asks the caller a question: a string, a [Message], parts or data. The task
// waits for the answer without holding anything up; the handler should return. Once
// the caller has answered, the task is handed out again, with the answer in
// [Task.Answer].
func (t *Task) Ask(ctx context.Context, question any) error {
	r, err := withMessage(StateInputRequired, question)
	return t.settle(ctx, r, err)
}

// AskAuth is Ask for a permission or credential that the caller has to provide.
func (t *Task) AskAuth(ctx context.Context, question any) error {
	r, err := withMessage(StateAuthRequired, question)
	return t.settle(ctx, r, err)
}

// Fail reports that the task has failed, and why, in at most 4,000 characters.
func (t *Task) Fail(ctx context.Context, why string) error {
	return t.settle(ctx, failed(why), nil)
}

// Reject reports that the callee will not do the task, and why.
func (t *Task) Reject(ctx context.Context, why string) error {
	if why == "" {
		return t.settle(ctx, Result{State: StateRejected}, nil)
	}
	r, err := withMessage(StateRejected, why)
	return t.settle(ctx, r, err)
}

// Progress tells those who follow the task how the work is going, in words.
func (t *Task) Progress(ctx context.Context, words string) error {
	m, err := messageOf(words, roleAgent)
	if err != nil {
		return err
	}
	// Repeating it would at worst tell the same twice.
	return t.events(ctx, bounded, wire.Event{Status: &wire.EventStatus{State: StateWorking, Message: &m}})
}

// Artifact publishes an artifact before the task ends. One with the id, or without
// an id the name, of an earlier one replaces it.
func (t *Task) Artifact(ctx context.Context, a Artifact) error {
	return t.events(ctx, bounded, wire.Event{Artifact: &a, LastChunk: true})
}

// Events reports events as they are. An event that appends is not repeated when its
// fate is unknown; then the error is ErrUnreachable.
func (t *Task) Events(ctx context.Context, events ...wire.Event) error {
	how := bounded
	for _, e := range events {
		if e.Append {
			how = unsent
		}
	}
	return t.events(ctx, how, events...)
}

func (t *Task) events(ctx context.Context, how repeat, events ...wire.Event) error {
	h, err := t.held()
	if err != nil {
		return err
	}
	return h.events(ctx, how, events)
}

func (h *hold) events(ctx context.Context, how repeat, events []wire.Event) error {
	if err := h.usable(); err != nil {
		return err
	}
	err := h.c.do(ctx, call{
		method: http.MethodPost, path: agentPath("me", "tasks", h.id, "events"), header: h.header(),
		body: wire.EventsRequest{Events: events}, repeat: how,
	})
	return h.judge(ctx, err)
}

// AppendText adds a chunk to a text artifact of that name, and so streams a text as
// it comes into being; last says that it is complete. The first chunk of a claim
// begins the artifact anew.
//
// A chunk never counts twice: when it is unknown whether one arrived, the whole text
// so far is sent in place of it.
func (t *Task) AppendText(ctx context.Context, name, chunk string, last bool) error {
	h, err := t.held()
	if err != nil {
		return err
	}
	h.textMu.Lock()
	defer h.textMu.Unlock()
	x := h.text(name)
	x.all = append(x.all, chunk...)
	if x.sent {
		err := h.events(ctx, unsent, []wire.Event{x.event(chunk, true, last)})
		if err == nil || !temporary(err) {
			return err
		}
	}
	err = h.events(ctx, bounded, []wire.Event{x.event(string(x.all), false, last)})
	x.sent = err == nil
	return err
}

func (h *hold) text(name string) *text {
	if h.texts == nil {
		h.texts = map[string]*text{}
	}
	if h.texts[name] == nil {
		h.texts[name] = &text{name: name}
	}
	return h.texts[name]
}

func (x *text) event(s string, more, last bool) wire.Event {
	return wire.Event{
		Artifact: &Artifact{ArtifactID: x.name, Name: x.name, Parts: []Part{Text(s)}},
		Append:   more, LastChunk: last,
	}
}

// Messages gives the messages that the caller sends while the handler works, as they
// come with the heartbeats. It is closed when the handler's context ends or the task
// is settled, and nil outside Serve.
func (t *Task) Messages() <-chan Message {
	if t.hold == nil {
		return nil
	}
	return t.hold.messages
}

// Heartbeat keeps the lease of a held task, which Serve does by itself. It gives the
// caller's new messages, and ErrCanceled or ErrLeaseLost if the work is to be
// dropped.
func (t *Task) Heartbeat(ctx context.Context) (Beat, error) {
	h, err := t.held()
	if err != nil {
		return Beat{}, err
	}
	b, err := h.beat(ctx)
	if err == nil && b.CancelRequested {
		err = ErrCanceled
	}
	b.Messages = h.unread()
	return b, err
}

// beat sends a heartbeat and takes its verdict to heart. The messages that came with
// it go to the inbox.
func (h *hold) beat(ctx context.Context) (Beat, error) {
	r := call{
		method: http.MethodPost, path: agentPath("me", "tasks", h.id, "heartbeat"), header: h.header(), repeat: bounded,
	}
	h.mu.Lock()
	if after := h.after; after >= 0 {
		r.body = wire.HeartbeatRequest{After: &after}
	}
	h.mu.Unlock()
	var b Beat
	r.out = &b
	err := h.c.do(ctx, r)
	switch {
	case lapsed(err):
		return b, h.lose(fmt.Errorf("%w: %w", ErrLeaseLost, err))
	case err != nil:
		return b, err
	case b.CancelRequested:
		_ = h.lose(ErrCanceled)
	}
	h.keepFresh(b.Messages)
	return b, nil
}

// keepFresh keeps the messages that came neither with the claim nor with an earlier
// heartbeat.
func (h *hold) keepFresh(messages []wire.HeartbeatMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, m := range messages {
		if m.N > h.after && !h.known(m.MessageID) {
			h.inbox = append(h.inbox, m)
		}
		h.after = max(h.after, m.N)
	}
}

// unread empties the inbox.
func (h *hold) unread() []wire.HeartbeatMessage {
	h.mu.Lock()
	defer h.mu.Unlock()
	messages := h.inbox
	h.inbox = nil
	return messages
}

func (h *hold) known(messageID string) bool {
	if messageID == "" || h.task == nil {
		return false
	}
	for _, m := range h.task.History {
		if m.MessageID == messageID {
			return true
		}
	}
	return h.task.Input != nil && h.task.Input.Message.MessageID == messageID
}

// lapsed reports whether the hub says that this claim holds the task no longer.
func lapsed(err error) bool {
	return errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound)
}

// lose notes why the claim is worth nothing any more and ends the handler's context.
// A claim that was settled meanwhile was not lost.
func (h *hold) lose(why error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.settling {
		return ErrSettled
	}
	if h.lost == nil {
		h.lost = why
		h.cancel(why)
	}
	return h.lost
}

// usable is an error if reporting has become pointless.
func (h *hold) usable() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.usableLocked()
}

func (h *hold) usableLocked() error {
	switch {
	case h.lost != nil:
		return h.lost
	case h.settling:
		return ErrSettled
	}
	return nil
}

// judge makes sense of the answer to a report: a conflict means that the task was
// canceled or the lease lost, and a heartbeat knows which.
func (h *hold) judge(ctx context.Context, err error) error {
	if !lapsed(err) {
		return err
	}
	b, berr := h.beat(ctx)
	switch {
	case berr == nil && b.CancelRequested:
		return fmt.Errorf("%w: %w", ErrCanceled, err)
	case berr == nil:
		return err // the claim is alive: the report itself was refused
	}
	return h.lose(fmt.Errorf("%w: %w", ErrLeaseLost, err))
}

// report is a result on its way to the hub.
type report struct {
	Result
	how repeat
	// next, if not nil, asks for the next task along with it.
	next url.Values
	// whole asks for all of the task in the answer, rather than its head.
	whole bool
}

// settle makes the one report that ends the claim.
func (h *hold) settle(ctx context.Context, r report) (wire.ResultReply, error) {
	if err := h.begin(); err != nil {
		return wire.ResultReply{}, err
	}
	reply, err := h.post(ctx, r)
	h.mu.Lock()
	h.settling, h.intent = err == nil, nil
	if err != nil && (temporary(err) || ctx.Err() != nil) {
		h.intent = &r.Result
	}
	h.mu.Unlock()
	return reply, h.judge(ctx, err)
}

func (h *hold) begin() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.usableLocked(); err != nil {
		return err
	}
	h.settling = true
	return nil
}

func (h *hold) post(ctx context.Context, r report) (wire.ResultReply, error) {
	var reply wire.ResultReply
	req := call{
		method: http.MethodPost, path: agentPath("me", "tasks", h.id, "result"), header: h.header(),
		query: r.next, body: r.Result, out: &reply, repeat: r.how,
	}
	if r.next == nil {
		req.out = &reply.Task
	}
	if !r.whole {
		req.header.Set("Prefer", "return=minimal")
	}
	err := h.c.do(ctx, req)
	return reply, err
}

func (h *hold) header() http.Header {
	hd := http.Header{}
	if h.claim != "" {
		hd.Set("X-Claim", h.claim)
	}
	return hd
}

// unsettled tells whether the handler has left the settling to Serve, and what it
// had meant to report if that did not arrive.
func (h *hold) unsettled() (intent *Result, yes bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.intent, !h.settling && h.lost == nil
}

// isSettling reports whether the claim is on its way to its end.
func (h *hold) isSettling() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.settling
}

// keep sends heartbeats until ctx ends, or the claim is settled or lost, and passes
// the caller's messages to the handler.
func (h *hold) keep(ctx context.Context, every time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer close(h.messages)
	var queue []Message
	for {
		out, head := h.offer(queue)
		select {
		case <-ctx.Done():
			return
		case out <- head:
			queue = queue[1:]
		case <-timer.C:
			if h.isSettling() {
				return
			}
			_, err := h.beat(ctx)
			for _, m := range h.unread() {
				queue = append(queue, m.Message)
			}
			if err != nil {
				timer.Reset(every / 4)
			} else {
				timer.Reset(every)
			}
		}
	}
}

// offer is the case of a select that hands over the oldest message, one that never
// happens if there is none.
func (h *hold) offer(queue []Message) (chan<- Message, Message) {
	if len(queue) == 0 {
		return nil, Message{}
	}
	return h.messages, queue[0]
}

// Release gives the task back: the hub offers it again at once, and that is no
// failure. That this claim no longer holds it is no error: then there is nothing to
// give back.
func (t *Task) Release(ctx context.Context) error {
	h, err := t.held()
	if err != nil {
		return err
	}
	err = h.c.do(ctx, call{
		method: http.MethodPost, path: agentPath("me", "tasks", h.id, "release"),
		header: http.Header{"X-Claim": {h.claim}}, repeat: bounded,
	})
	if lapsed(err) {
		return nil
	}
	return err
}
