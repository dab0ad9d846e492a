package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

// Send accepts a message: it is durable when Send returns. It never waits for the
// callee; SendAndWait does.
func (e *Engine) Send(ctx context.Context, p hub.Principal, r SendRequest) (SendResult, error) {
	in, ignored, err := e.prepare(ctx, p, &r)
	if err != nil {
		return SendResult{}, err
	}
	out, err := e.accept(ctx, in)
	out.LineageIgnored = ignored
	return out, err
}

// SendAndWait is Send and then Wait. For a new task it waits from before the commit,
// so that nothing need be read until the task has settled, or at all if limit is 0.
//
// The send stands whatever becomes of the wait: if the task cannot be read, it is
// given as it was accepted, since an error would make the client send once more. Only
// the end of ctx is an error then; nobody is there to be told.
func (e *Engine) SendAndWait(ctx context.Context, p hub.Principal, r SendRequest, limit time.Duration, load hub.Load) (SendResult, error) {
	in, ignored, err := e.prepare(ctx, p, &r)
	if err != nil {
		return SendResult{}, err
	}
	w := e.tasks.join(in.TaskID)
	defer e.tasks.leave(in.TaskID, w)
	out, err := e.accept(ctx, in)
	if err != nil {
		return SendResult{}, err
	}
	out.LineageIgnored = ignored
	ref := hub.TaskRef{Callee: in.Callee, ID: out.Task.ID}
	var t *hub.Task
	switch {
	case out.Created && limit <= 0:
		t = asSent(out.Task, in.Message, load)
	case out.Created && !hub.Large(len(in.Message)):
		t, err = e.await(ctx, p, ref, w, in.Message, limit, load)
	case out.Created:
		// Not to be held while it waits; what it waits for is read.
		in.Message = nil
		hub.GiveBack(ctx)
		t, err = e.await(ctx, p, ref, w, nil, limit, load)
	default:
		t, err = e.wait(ctx, p, ref, limit, load)
	}
	switch {
	case err == nil:
		out.Task = t
	case ctx.Err() != nil:
		return out, err
	default:
		e.opt.Log.WarnContext(ctx, "an accepted task could not be read back", "task", out.Task.ID, "error", err)
	}
	return out, nil
}

// asSent is a new task with what load asks for.
func asSent(head *hub.Task, message []byte, load hub.Load) *hub.Task {
	t := *head
	if load.History != 0 {
		t.History = []hub.Message{{N: 1, Body: message}}
	}
	if load.Artifacts {
		t.Artifacts = [][]byte{}
	}
	return &t
}

// prepare checks a send and fills it in, without changing anything.
func (e *Engine) prepare(ctx context.Context, p hub.Principal, r *SendRequest) (in hub.Send, lineageIgnored bool, err error) {
	callee, err := e.callable(ctx, p, r.To)
	if err != nil {
		return in, false, err
	}
	if err := e.rates.allow(p.Address, callee.ID); err != nil {
		return in, false, err
	}
	if in, err = e.newSend(p, callee, r); err != nil {
		return in, false, err
	}
	if err := e.inlinePush(ctx, r, &in); err != nil {
		return in, false, err
	}
	lineageIgnored, err = e.lineage(ctx, p, r, &in)
	return in, lineageIgnored, err
}

// accept commits a send, together with the claim of a poller that waits for it.
func (e *Engine) accept(ctx context.Context, in hub.Send) (SendResult, error) {
	pl := e.pollers.reserve(in.Callee)
	if pl != nil {
		in.Claim = &pl.spec
	}
	// Whoever sent it may go away; what they sent is still taken or refused whole.
	sent, err := e.store.Send(context.WithoutCancel(ctx), in)
	e.settle(pl, sent, err)
	if err != nil {
		return SendResult{}, err
	}
	e.sent(in.Callee, sent)
	e.failed(sent.Failed)
	return SendResult{Task: sent.Task, Created: sent.Created, Replayed: sent.Replayed}, nil
}

// settle gives a reserved poller its task, or lets it look again.
func (e *Engine) settle(pl *poller, sent hub.Sent, err error) {
	if pl == nil {
		return
	}
	if err == nil && sent.Claimed != nil {
		e.changed(sent.Claimed, hint{state: sent.Claimed.State})
	}
	if err != nil || sent.Claimed == nil {
		pl.offer(nil)
		return
	}
	pl.offer(sent.Claimed)
}

// sent gives the hints of a send, and wakes a poller if a task is ready that the
// send itself did not hand out.
func (e *Engine) sent(callee string, sent hub.Sent) {
	if sent.Replayed {
		return
	}
	e.changed(sent.Task, hint{state: sent.Task.State, said: !sent.Created})
	if (sent.Created || sent.Answered) && (sent.Claimed == nil || sent.Claimed.ID != sent.Task.ID) {
		e.pollers.wake(callee)
	}
}

func (e *Engine) newSend(p hub.Principal, callee *hub.Address, r *SendRequest) (hub.Send, error) {
	in := hub.Send{
		Caller: p.Address, Callee: callee.ID, TaskID: e.opt.NewID(), ContextID: r.ContextID, ContextGiven: r.ContextID != "",
		FollowUp: r.TaskID, AnswerContext: r.AnswerContext, Tags: r.Tags, Metadata: r.Metadata,
		Deadline: r.Deadline, Trace: plausibleTrace(r.Traceparent), Limits: e.opt.Limits,
	}
	if !in.ContextGiven {
		in.ContextID = e.opt.NewID()
	}
	if !r.Deadline.IsZero() && !r.Deadline.After(e.opt.Now()) {
		return in, hub.InvalidField("deadline", "the deadline has passed already")
	}
	if !plausibleKey(r.IdempotencyKey) {
		return in, hub.InvalidField("Idempotency-Key", "a key is at most %d printable ASCII characters", maxKey)
	}
	in.Key = sendKey(p, callee, r)
	m := canon.Message{ID: r.MessageID, Body: r.Message}
	if m.ID == "" {
		m.SetID(e.opt.NewID())
	}
	in.Message = m.Body
	return in, nil
}

func plausibleKey(key string) bool {
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(key) <= maxKey
}

// plausibleTrace keeps a W3C traceparent of version 00, which has this length, and drops
// what is none: the tracing of others is no reason to refuse their work.
func plausibleTrace(header string) string {
	if len(header) != 55 {
		return ""
	}
	for i, c := range []byte(header) {
		dash := i == 2 || i == 35 || i == 52
		hex := '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
		if dash != (c == '-') || !dash && !hex {
			return ""
		}
	}
	return header
}

// sendKey is the idempotency key of a send: the one that came with it or, where the
// address wants that, its messageId. Anybody can be anonymous, so that has none.
func sendKey(p hub.Principal, callee *hub.Address, r *SendRequest) *hub.Key {
	name := "key\x00" + r.IdempotencyKey
	if r.IdempotencyKey == "" {
		if !callee.DedupeMessageID || r.MessageID == "" {
			return nil
		}
		name = "message\x00" + r.MessageID
	}
	if p.Role == hub.RoleAnonymous {
		return nil
	}
	h := sha256.New()
	for _, part := range [][]byte{r.Message, []byte(r.ContextID), []byte(r.TaskID), r.Tags, r.Metadata} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	k := &hub.Key{Hash: sha256.Sum256([]byte(name))}
	h.Sum(k.Fingerprint[:0])
	return k
}

// lineage resolves what the send says it is part of. Holdfast-Task counts if that
// task was addressed to the caller, X-Parent-Call if the caller may see that call;
// the former wins. What does not count is ignored: the send starts a new run.
func (e *Engine) lineage(ctx context.Context, p hub.Principal, r *SendRequest, in *hub.Send) (ignored bool, err error) {
	if r.HoldfastTask != "" {
		parent, err := e.store.Task(ctx, hub.TaskRef{Callee: p.Address, ID: r.HoldfastTask}, p.Viewer(), hub.Load{})
		if err == nil {
			in.ParentTask, in.ParentCall, in.Run = parent.ID, parent.CallID(), parent.Run
			return false, nil
		}
		if hub.KindOf(err) != hub.NotFound {
			return false, err
		}
	}
	if r.ParentCall != "" {
		parent, err := e.store.Task(ctx, hub.TaskRef{ID: r.ParentCall}, hub.Viewer{All: true}, hub.Load{})
		if err != nil && hub.KindOf(err) != hub.NotFound {
			return false, err
		}
		if err == nil && (p.Admin() || parent.Caller.ID == p.Address || parent.Callee.ID == p.Address) {
			in.ParentTask, in.ParentCall, in.Run = parent.ID, parent.CallID(), parent.Run
			return false, nil
		}
	}
	return r.HoldfastTask != "" || r.ParentCall != "", nil
}
