package sqlite

import (
	"context"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Cancel implements hub.Transitions.
func (s *Store) Cancel(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (out *hub.Task, err error) {
	err = s.write(ctx, func(t *tx) error {
		h, err := s.find(t.conn, ref, by)
		if err != nil {
			return err
		}
		actor := s.parties.n(by.Address)
		if h == nil || (!by.All && h.caller != actor) {
			return hub.ErrTaskNotFound()
		}
		out = &h.Task
		if h.State == hub.Canceled {
			return s.load(t.conn, h, hub.Load{})
		}
		if h.State.Terminal() {
			return hub.Errorf(hub.NotCancelable, "the task has already ended as %s and cannot be canceled", h.State)
		}
		return t.cancel(h, nil, actor)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (t *tx) cancel(h *head, message []byte, actor int64) error {
	h.CancelOutcome = hub.CancelConfirmed
	if h.open {
		h.CancelOutcome = hub.CancelUnconfirmed
	}
	return t.end(h, hub.Canceled, message, actor, nil)
}

// CancelQueued implements hub.Transitions.
func (s *Store) CancelQueued(ctx context.Context, callee string, limit int) (out hub.Swept, err error) {
	err = s.write(ctx, func(t *tx) error {
		list, err := t.heads("SELECT "+headColumns+`FROM queue q JOIN task t ON t.n = q.task
			WHERE t.callee = ? LIMIT ?`, s.parties.n(callee), limit)
		if err != nil {
			return err
		}
		for _, h := range list {
			why := canon.TextMessage(hubMessageID(h), true, "The address this task was sent to has been deleted.")
			if err := t.cancel(h, why, actorHub); err != nil {
				return err
			}
			out.Tasks = append(out.Tasks, h.ID)
		}
		out.Changed, out.More = len(list), len(list) == limit
		return nil
	})
	if err != nil {
		return hub.Swept{}, err
	}
	return out, nil
}

// Requeue implements hub.Transitions.
func (s *Store) Requeue(ctx context.Context, task, newID string) (out *hub.Task, err error) {
	err = s.write(ctx, func(t *tx) error {
		h, err := s.find(t.conn, hub.TaskRef{ID: task}, hub.Viewer{All: true})
		if err != nil {
			return err
		}
		switch {
		case h == nil:
			return hub.ErrTaskNotFound()
		case h.Phase == hub.Leased:
			out = &h.Task
			return t.takeBack(h)
		case h.State == hub.Failed:
			out, err = t.repeat(h, newID)
			return err
		}
		return hub.Errorf(hub.Conflict, "the task is %s (%s); only a failed task, or one that a callee holds, can be requeued", h.State, h.Phase)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// takeBack takes a task from its holder, whose claim ends with it.
func (t *tx) takeBack(h *head) error {
	if err := t.closeAttempt(h, attemptTaken, nil); err != nil {
		return err
	}
	h.open, h.lapse = false, true
	if err := t.offer(h); err != nil {
		return err
	}
	if err := t.saveQueue(h); err != nil {
		return err
	}
	return t.log(h, hub.ActRequeued, actorHub, "taken from its holder by hand")
}

// repeat sends a failed task once more, as a new one.
func (t *tx) repeat(old *head, id string) (*hub.Task, error) {
	r, err := t.one("SELECT body FROM message WHERE k = ?", key(old.n, 1))
	if err != nil {
		return nil, err
	}
	body := r.blob(0)
	h := newHead(&hub.Send{
		TaskID: id, ContextID: old.ContextID, Tags: old.Tags, Metadata: old.Metadata,
		ParentTask: old.ParentTask, ParentCall: old.ParentCall, Run: old.Run, Trace: old.Trace,
	}, old.caller, old.callee, t.now)
	h.RequeueOf = old.ID
	if old.Run == old.ID {
		h.Run = id
	}
	if h.rank, err = t.floor(h.callee); err != nil {
		return nil, err
	}
	h.ranked = true
	if _, err := t.exec("UPDATE lane SET open = open + 1 WHERE callee = ? AND caller = ?", h.callee, h.caller); err != nil {
		return nil, err
	}
	if err := t.insertTask(h, body); err != nil {
		return nil, err
	}
	return &h.Task, t.log(h, hub.ActRequeued, actorHub, "repeats "+old.ID)
}
