package postgres

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Send implements hub.Transitions.
func (s *Store) Send(ctx context.Context, in hub.Send) (hub.Sent, error) {
	caller, err := s.parties.n(ctx, in.Caller)
	if err != nil {
		return hub.Sent{}, storeError(ctx, err)
	}
	callee, err := s.parties.n(ctx, in.Callee)
	if err != nil {
		return hub.Sent{}, storeError(ctx, err)
	}
	if caller == 0 || callee == 0 {
		return hub.Sent{}, hub.ErrTaskNotFound()
	}
	m := &sending{Send: in, caller: caller, callee: callee}
	return write(ctx, s, m.needs(), func(t *tx) (hub.Sent, error) {
		out, err := t.send(m)
		if err == nil && in.Claim != nil {
			c, err := t.claim(callee, *in.Claim)
			out.Claimed, out.Failed = c.Task, c.Failed
			return out, err
		}
		return out, err
	})
}

// sending is a send by known parties.
type sending struct {
	hub.Send
	caller, callee int64
	hash           keyHash
}

func (m *sending) needs() (n needs) {
	if m.Key != nil {
		m.hash = hashKey(m.caller, m.callee, m.Key)
		n.key = &m.hash
	}
	if m.FollowUp != "" {
		n.tasks = []string{m.FollowUp}
	} else {
		n.lane = &laneKey{m.callee, m.caller}
	}
	if m.asksContext() {
		n.question = &question{m.ContextID, m.caller, m.callee}
	}
	if m.Claim != nil {
		n.claim = m.callee
	}
	return n
}

// asksContext: it may answer a question in its context.
func (m *sending) asksContext() bool {
	return m.FollowUp == "" && m.AnswerContext && m.ContextGiven
}

func (t *tx) send(m *sending) (hub.Sent, error) {
	if m.Key != nil {
		h, err := t.replayed(m)
		if err != nil {
			return hub.Sent{}, err
		}
		if h != nil {
			return hub.Sent{Task: t.view(h), Replayed: true}, nil
		}
	}
	h, err := t.sendTarget(m)
	if err != nil {
		return hub.Sent{}, err
	}
	if m.Refuse != nil {
		return hub.Sent{}, m.Refuse
	}
	if m.Push != nil {
		if err := t.roomForPush(h, m.Push, m.Limits); err != nil {
			return hub.Sent{}, err
		}
	}
	out, before := hub.Sent{}, int64(0)
	if h == nil {
		out.Created = true
		h, err = t.accept(m)
	} else {
		out.Answered, before = h.Phase == hub.Parked, h.Seq
		err = t.followUp(h, m)
	}
	if err == nil && m.Push != nil {
		_, err = t.putPush(h, m.Push, before)
	}
	if err != nil {
		return hub.Sent{}, err
	}
	out.Task = t.view(h)
	if m.Key != nil {
		t.addKey(h, m)
	}
	return out, nil
}

// sendTarget gives the existing task that a message is for, nil for a new one.
func (t *tx) sendTarget(m *sending) (*head, error) {
	if m.FollowUp == "" {
		if !m.asksContext() {
			return nil, nil
		}
		return t.openQuestion(m), nil
	}
	h, err := t.head(m.FollowUp)
	switch {
	case err != nil:
		return nil, err
	case h == nil || h.caller != m.caller || h.callee != m.callee:
		return nil, hub.ErrTaskNotFound()
	case m.ContextGiven && m.ContextID != h.ContextID:
		return nil, hub.InvalidField("message.contextId", "the task belongs to another context; leave the context out or send its own")
	case h.State.Terminal():
		return nil, hub.Errorf(hub.Ended, "the task has ended and takes no more messages; send a new task, with the same context to go on from here")
	}
	return h, nil
}

// openQuestion gives the caller's newest task in the context that waits for an answer.
// All of them were read before.
func (t *tx) openQuestion(m *sending) (newest *head) {
	for _, h := range t.heads {
		if h == nil || !h.locked || h.Phase != hub.Parked || h.ContextID != m.ContextID || h.caller != m.caller || h.callee != m.callee {
			continue
		}
		if newest == nil || h.StateAt.After(newest.StateAt) || h.StateAt.Equal(newest.StateAt) && h.n > newest.n {
			newest = h
		}
	}
	return newest
}

// accept makes a new task.
func (t *tx) accept(m *sending) (*head, error) {
	l, err := t.lane(laneKey{m.callee, m.caller}, int64(m.Limits.OpenTasks))
	if err != nil {
		return nil, err
	}
	f, err := t.floor(m.callee)
	if err != nil {
		return nil, err
	}
	if m.Limits.OpenTasks > 0 && l.open >= int64(m.Limits.OpenTasks) {
		e := hub.Errorf(hub.RateLimited, "this caller already has %d unfinished tasks at that address, which is the limit; wait for some to end", m.Limits.OpenTasks)
		e.RetryAfter = 10 * time.Second
		return nil, e
	}
	l.rank = max(l.rank, f.at) + 1
	t.count(laneKey{m.callee, m.caller}, 1)
	h, err := t.newHead(&m.Send, m.caller, m.callee)
	if err != nil {
		return nil, err
	}
	h.rank, h.ranked, h.base = l.rank, true, l.base
	t.insertTask(h, m.Message)
	return h, nil
}

func (t *tx) newHead(in *hub.Send, caller, callee int64) (*head, error) {
	id, err := uuid.Parse(in.TaskID)
	if err != nil {
		return nil, fmt.Errorf("the id of a new task: %w", err)
	}
	h := &head{id: id, n: t.newest(), caller: caller, callee: callee}
	h.Task = hub.Task{
		ID: in.TaskID, ContextID: in.ContextID, State: hub.Submitted, StateAt: t.now, Phase: hub.Ready,
		Tags: in.Tags, Metadata: in.Metadata, ParentTask: in.ParentTask, ParentCall: in.ParentCall,
		Run: in.Run, Trace: in.Trace, Deadline: in.Deadline, CreatedAt: t.now,
	}
	if h.Run == "" {
		h.Run = h.ID
	}
	return h, t.s.name(t.ctx, h)
}

// insertTask writes the rows of a new task, whose lane has been charged.
func (t *tx) insertTask(h *head, message []byte) {
	h.bytes = int64(len(message) + len(h.Tags) + len(h.Metadata))
	h.fresh = true
	t.rows.change(h)
	h.locked, t.heads[h.id] = true, h
	t.addEvent(h, hub.Event{Kind: hub.StatusEvent, State: hub.Submitted})
	h.Messages, h.first = 1, message
	t.rows.addMessage(h, false, 0, message)
	t.becameReady(h)
	t.log(h, hub.ActSent, h.caller, "")
}

// followUp adds a message to an unfinished task; a parked one it answers.
func (t *tx) followUp(h *head, m *sending) error {
	if h.Messages+1 > m.Limits.Messages || h.bytes+int64(len(m.Message)) > m.Limits.Bytes {
		return hub.Errorf(hub.TooLarge, "the task has as many messages or bytes as a task may have; cancel it or wait for its end, and send a new one")
	}
	t.addMessage(h, false, 0, m.Message)
	if h.Phase != hub.Parked {
		t.save(h)
		t.changed.task(h.ID) // its holder's heartbeat may wait for it
		t.log(h, hub.ActMessage, m.caller, "")
		return nil
	}
	t.setStatus(h, hub.Event{State: hub.Working})
	if err := t.offer(h); err != nil {
		return err
	}
	t.save(h)
	t.saveQueue(h)
	t.log(h, hub.ActAnswered, m.caller, "")
	return nil
}

// keyLife is how long an idempotency key counts after the end of its task.
const keyLife = 24 * time.Hour

// keyRow is what is kept with a key.
type keyRow struct {
	task        uuid.UUID
	fingerprint []byte
}

// readKeys has the keys that a batch needs read, with their tasks.
func (t *tx) readKeys(p *plan) {
	if len(p.keys) == 0 {
		return
	}
	hashes := make([][]byte, len(p.keys))
	for i, k := range p.keys {
		hashes[i] = k[:]
		t.sent[k] = nil
	}
	t.later("SELECT "+txColumns+", i.hash, i.fingerprint FROM idempotency i JOIN task t ON t.id = i.task LEFT JOIN queue q ON q.task = t.id WHERE i.hash = ANY($1::bytea[])",
		[]any{hashes}, func(r row) error {
			t.sent[keyHash(r[txWidth])] = &keyRow{task: t.know(r).id, fingerprint: r.blob(txWidth + 1)}
			return nil
		})
}

// replayed gives the task of an earlier send with the same key, nil if there was
// none or its key has expired.
func (t *tx) replayed(m *sending) (*head, error) {
	found := t.sent[m.hash]
	if found == nil {
		return nil, nil
	}
	h := t.heads[found.task]
	if h == nil {
		return nil, fmt.Errorf("the task %s of an idempotency key was not read", found.task)
	}
	if !h.EndedAt.IsZero() && t.now.Sub(h.EndedAt) >= keyLife {
		t.sent[m.hash] = nil
		// A send that is refused now is refused without the key, too.
		t.conn.exec("DELETE FROM idempotency WHERE hash = $1", m.hash[:])
		return nil, nil
	}
	if !bytes.Equal(found.fingerprint, half(m.Key.Fingerprint)) {
		return nil, hub.Errorf(hub.KeyReused, "this idempotency key came before with another request; use a new key for a new request")
	}
	return h, nil
}

// addKey keeps the key of a send.
func (t *tx) addKey(h *head, m *sending) {
	fingerprint := half(m.Key.Fingerprint)
	t.wrote = true
	t.rows.addKey(h, m.hash[:], fingerprint)
	t.sent[m.hash] = &keyRow{task: h.id, fingerprint: fingerprint}
}
