package sqlite

import (
	"context"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Cancel implements hub.Transitions.
func (s *Store) Cancel(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (*hub.Task, error) {
	return write(ctx, s, func(t *tx) (*hub.Task, error) {
		h, err := s.find(t.conn, ref, by)
		if err != nil {
			return nil, err
		}
		actor := s.parties.n(by.Address)
		switch {
		case h == nil || (!by.All && h.caller != actor):
			return nil, hub.ErrTaskNotFound()
		case h.State == hub.Canceled:
			return &h.Task, s.load(t.conn, h, hub.Load{})
		case h.State.Terminal():
			return nil, hub.Errorf(hub.NotCancelable, "the task has already ended as %s and cannot be canceled", h.State)
		}
		return &h.Task, t.cancel(h, nil, actor)
	})
}

func (t *tx) cancel(h *head, message []byte, actor int64) error {
	untold, err := t.untold(h)
	if err != nil {
		return err
	}
	h.CancelOutcome = hub.CancelConfirmed
	if h.open || untold {
		h.CancelOutcome = hub.CancelUnconfirmed
	}
	return t.end(h, hub.Canceled, message, actor, nil)
}

// CancelQueued implements hub.Transitions.
func (s *Store) CancelQueued(ctx context.Context, callee string, limit int) (hub.Swept, error) {
	return write(ctx, s, func(t *tx) (hub.Swept, error) {
		var out hub.Swept
		list, err := t.heads("SELECT "+headColumns+`FROM queue q JOIN task t ON t.n = q.task
			WHERE t.callee = ? LIMIT ?`, s.parties.n(callee), limit)
		if err != nil {
			return out, err
		}
		for _, h := range list {
			why := canon.TextMessage(hubMessageID(h), true, "The address this task was sent to has been deleted.")
			if err := t.cancel(h, why, actorHub); err != nil {
				return out, err
			}
			out.Tasks = append(out.Tasks, h.ID)
		}
		out.Changed, out.More = len(list), len(list) == limit
		return out, nil
	})
}

// Requeue implements hub.Transitions.
func (s *Store) Requeue(ctx context.Context, task, newID string) (*hub.Task, error) {
	return write(ctx, s, func(t *tx) (*hub.Task, error) {
		h, err := s.find(t.conn, hub.TaskRef{ID: task}, hub.Viewer{All: true})
		switch {
		case err != nil:
			return nil, err
		case h == nil:
			return nil, hub.ErrTaskNotFound()
		case h.Phase == hub.Leased:
			if err := t.takeBack(h, "taken from its holder by hand"); err != nil {
				return nil, err
			}
			return &h.Task, s.load(t.conn, h, hub.Load{})
		case h.Phase == hub.Ready:
			if err := t.hurry(h); err != nil {
				return nil, err
			}
			return &h.Task, s.load(t.conn, h, hub.Load{})
		case h.State == hub.Failed && newID != "":
			return t.repeat(h, newID)
		}
		return nil, hub.Errorf(hub.Conflict, "the task is %s (%s); only a failed task, one that a callee holds, and one that waits for a callee can be requeued", h.State, h.Phase)
	})
}

// takeBack takes a task from its holder, whose claim ends with it.
func (t *tx) takeBack(h *head, why string) error {
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
	return t.log(h, hub.ActRequeued, actorHub, why)
}

// hurry ends the backoff of a ready task, if it has one.
func (t *tx) hurry(h *head) error {
	if h.ranked {
		return nil
	}
	if err := t.offer(h); err != nil {
		return err
	}
	if err := t.saveQueue(h); err != nil {
		return err
	}
	return t.log(h, hub.ActRequeued, actorHub, "offered at once by hand")
}

// repeat sends a failed task once more, as a new one.
func (t *tx) repeat(old *head, id string) (*hub.Task, error) {
	r, err := t.one("SELECT 1 FROM address WHERE n = ? AND deleted_at IS NULL", old.callee)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, hub.Errorf(hub.Conflict, "the address that the task was sent to has been deleted and takes no more work")
	}
	if r, err = t.one("SELECT body FROM message WHERE k = ?", key(old.n, 1)); err != nil {
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
