package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Send implements hub.Transitions.
func (s *Store) Send(ctx context.Context, in hub.Send) (hub.Sent, error) {
	return write(ctx, s, func(t *tx) (hub.Sent, error) {
		out, err := t.send(&in)
		if err == nil && in.Claim != nil {
			c, err := t.claim(s.parties.n(in.Callee), *in.Claim)
			out.Claimed, out.Failed = c.Task, c.Failed
			return out, err
		}
		return out, err
	})
}

func (t *tx) send(in *hub.Send) (hub.Sent, error) {
	caller, callee := t.s.parties.n(in.Caller), t.s.parties.n(in.Callee)
	if caller == 0 || callee == 0 {
		return hub.Sent{}, hub.ErrTaskNotFound()
	}
	var hash sum128
	if in.Key != nil {
		hash = hashKey(caller, callee, in.Key)
		h, err := t.replayed(hash, in.Key)
		if err != nil {
			return hub.Sent{}, err
		}
		if h != nil {
			return hub.Sent{Task: &h.Task, Replayed: true}, t.s.load(t.conn, h, hub.Load{})
		}
	}
	h, err := t.sendTarget(in, caller, callee)
	if err != nil {
		return hub.Sent{}, err
	}
	if in.Refuse != nil {
		return hub.Sent{}, in.Refuse
	}
	if in.Push != nil {
		if err := t.roomForPush(h, in.Push, in.Limits); err != nil {
			return hub.Sent{}, err
		}
	}
	out, before := hub.Sent{}, int64(0)
	if h == nil {
		out.Created = true
		h, err = t.accept(in, caller, callee)
	} else {
		out.Answered, before = h.Phase == hub.Parked, h.Seq
		err = t.followUp(h, in, caller)
	}
	if err == nil && in.Push != nil {
		_, err = t.putPush(h, in.Push, before)
	}
	if err != nil {
		return hub.Sent{}, err
	}
	out.Task = &h.Task
	if err := t.s.load(t.conn, h, hub.Load{}); err != nil || in.Key == nil {
		return out, err
	}
	return out, t.addKey(h, hash, in.Key)
}

// sendTarget gives the existing task that a message is for, nil for a new one.
func (t *tx) sendTarget(in *hub.Send, caller, callee int64) (*head, error) {
	if in.FollowUp == "" {
		if !in.AnswerContext || !in.ContextGiven {
			return nil, nil
		}
		list, err := t.heads("SELECT "+headColumns+`FROM task t JOIN queue q ON q.task = t.n
			WHERE t.context = ? AND t.caller = ? AND t.callee = ? AND t.state IN (6, 8) AND q.phase = ?
			ORDER BY t.state_at DESC, t.n DESC LIMIT 1`, in.ContextID, caller, callee, hub.Parked)
		if err != nil || len(list) == 0 {
			return nil, err
		}
		return list[0], nil
	}
	r, err := t.one(headByID+" AND t.caller = ?2 AND t.callee = ?3", in.FollowUp, caller, callee)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, hub.ErrTaskNotFound()
	}
	h := t.s.scanHead(r)
	if in.ContextGiven && in.ContextID != h.ContextID {
		return nil, hub.InvalidField("message.contextId", "the task belongs to another context; leave the context out or send its own")
	}
	if h.State.Terminal() {
		return nil, hub.Errorf(hub.Ended, "the task has ended and takes no more messages; send a new task, with the same context to go on from here")
	}
	return h, nil
}

// accept makes a new task.
func (t *tx) accept(in *hub.Send, caller, callee int64) (*head, error) {
	t.wrote = true
	r, err := t.one(`INSERT INTO lane (callee, caller, rank, open)
		VALUES (?1, ?2, coalesce((SELECT floor FROM mailbox WHERE callee = ?1), 0) + 1, 1)
		ON CONFLICT DO UPDATE SET rank = max(rank + 1, excluded.rank), open = open + 1 WHERE ?3 <= 0 OR open < ?3
		RETURNING rank`, callee, caller, in.Limits.OpenTasks)
	if err != nil {
		return nil, err
	}
	if r == nil {
		t.wrote = false
		e := hub.Errorf(hub.RateLimited, "this caller already has %d unfinished tasks at that address, which is the limit; wait for some to end", in.Limits.OpenTasks)
		e.RetryAfter = 10 * time.Second
		return nil, e
	}
	h := newHead(in, caller, callee, t.now)
	h.rank, h.ranked = r.int(0), true
	return h, t.insertTask(h, in.Message)
}

func newHead(in *hub.Send, caller, callee int64, now time.Time) *head {
	h := &head{caller: caller, callee: callee}
	h.Task = hub.Task{
		ID: in.TaskID, ContextID: in.ContextID, State: hub.Submitted, StateAt: now, Phase: hub.Ready,
		Tags: in.Tags, Metadata: in.Metadata, ParentTask: in.ParentTask, ParentCall: in.ParentCall,
		Run: in.Run, Trace: in.Trace, Deadline: in.Deadline, CreatedAt: now,
	}
	if h.Run == "" {
		h.Run = h.ID
	}
	return h
}

// insertTask writes the rows of a new task, whose lane has been charged.
func (t *tx) insertTask(h *head, message []byte) (err error) {
	h.Caller, h.Callee = t.s.parties.party(h.caller), t.s.parties.party(h.callee)
	h.n, err = t.insert(`INSERT INTO task (id, context, caller, callee, state, state_at, status_seq, seq, messages, bytes, attempt, failures, cancel_outcome,
		tags, metadata, parent_task, parent_call, run, trace, requeue_of, deadline, created_at, polls)
		VALUES (?,?,?,?,?,?,0,1,1,?,0,0,0,?,?,?,?,?,?,?,?,?,0)`,
		h.ID, h.ContextID, h.caller, h.callee, h.State, h.StateAt, len(message)+len(h.Tags)+len(h.Metadata),
		h.Tags, h.Metadata, optional(h.ParentTask), optional(h.ParentCall), h.Run, optional(h.Trace), optional(h.RequeueOf),
		h.Deadline, h.CreatedAt)
	if err != nil {
		return err
	}
	if err := t.addEvent(h, hub.Event{Kind: hub.StatusEvent, State: hub.Submitted}); err != nil {
		return err
	}
	if err := t.addMessage(h, false, 0, message); err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO queue (task, callee, caller, phase, rank, due_at, deadline, lease_ms, attempt, failures, open, provisional, lapsed, seen)
		VALUES (?,?,?,?,?,?,?,0,0,0,0,0,0,0)`, h.n, h.callee, h.caller, h.Phase, h.rank, h.Deadline, h.Deadline); err != nil {
		return err
	}
	return t.log(h, hub.ActSent, h.caller, "")
}

// followUp adds a message to an unfinished task; a parked one it answers.
func (t *tx) followUp(h *head, in *hub.Send, caller int64) error {
	if h.Messages+1 > in.Limits.Messages || h.bytes+int64(len(in.Message)) > in.Limits.Bytes {
		return hub.Errorf(hub.TooLarge, "the task has as many messages or bytes as a task may have; cancel it or wait for its end, and send a new one")
	}
	if err := t.addMessage(h, false, 0, in.Message); err != nil {
		return err
	}
	if h.Phase != hub.Parked {
		if err := t.saveProgress(h); err != nil {
			return err
		}
		return t.log(h, hub.ActMessage, caller, "")
	}
	if err := t.setStatus(h, hub.Event{State: hub.Working}); err != nil {
		return err
	}
	if err := t.offer(h); err != nil {
		return err
	}
	if err := t.saveStatus(h); err != nil {
		return err
	}
	if err := t.saveQueue(h); err != nil {
		return err
	}
	return t.log(h, hub.ActAnswered, caller, "")
}
