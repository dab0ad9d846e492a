package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Cancel implements hub.Transitions.
func (s *Store) Cancel(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (*hub.Task, error) {
	return write(ctx, s, needs{tasks: []string{ref.ID}}, func(t *tx) (*hub.Task, error) {
		h, me, err := t.findSeen(ref, by)
		switch {
		case err != nil:
			return nil, err
		case h == nil || (!by.All && h.caller != me):
			return nil, hub.ErrTaskNotFound()
		case h.State == hub.Canceled:
			return t.view(h), nil
		case h.State.Terminal():
			return nil, hub.Errorf(hub.NotCancelable, "the task has already ended as %s and cannot be canceled", h.State)
		}
		if err := t.cancel(h, nil, me); err != nil {
			return nil, err
		}
		return t.view(h), nil
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
	return write(ctx, s, needs{}, func(t *tx) (hub.Swept, error) {
		var out hub.Swept
		n, err := s.parties.n(ctx, callee)
		if err != nil {
			return out, err
		}
		list, err := t.lockSome("callee = $1", "task", limit, n)
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

// lockSome locks rows of queue that a condition is true of and nobody else has locked,
// and gives their tasks in that order.
func (t *tx) lockSome(where, order string, limit int, args ...any) (list []*head, err error) {
	var ids []uuid.UUID
	err = t.each("SELECT task FROM queue WHERE "+where+" ORDER BY "+order+" LIMIT "+number(limit)+" FOR UPDATE SKIP LOCKED", args, func(r row) error {
		ids = append(ids, r.id(0))
		return nil
	})
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	t.later("SELECT "+txColumns+headFrom+"WHERE t.id = ANY($1::uuid[])", []any{ids}, func(r row) error {
		t.know(r).locked = true
		return nil
	})
	t.readClock(false)
	if err := t.flush(); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if h := t.heads[id]; h != nil {
			list = append(list, h)
		}
	}
	return list, t.nameAll()
}

// Requeue implements hub.Transitions.
func (s *Store) Requeue(ctx context.Context, task, newID string) (*hub.Task, error) {
	return write(ctx, s, needs{tasks: []string{task}}, func(t *tx) (*hub.Task, error) {
		h, err := t.head(task)
		switch {
		case err != nil:
			return nil, err
		case h == nil:
			return nil, hub.ErrTaskNotFound()
		case h.Phase == hub.Leased:
			return t.takeBack(h)
		case h.Phase == hub.Ready:
			return t.hurry(h)
		case h.State == hub.Failed && newID != "":
			return t.repeat(h, newID)
		}
		return nil, hub.Errorf(hub.Conflict, "the task is %s (%s); only a failed task, one that a callee holds, and one that waits for a callee can be requeued", h.State, h.Phase)
	})
}

// takeBack takes a task from its holder, whose claim ends with it.
func (t *tx) takeBack(h *head) (*hub.Task, error) {
	t.closeAttempt(h, attemptTaken, nil)
	h.open, h.lapse = false, true
	if err := t.offer(h); err != nil {
		return nil, err
	}
	t.saveQueue(h)
	t.log(h, hub.ActRequeued, actorHub, "taken from its holder by hand")
	return t.view(h), nil
}

// hurry ends the backoff of a ready task, if it has one.
func (t *tx) hurry(h *head) (*hub.Task, error) {
	if h.ranked {
		return t.view(h), nil
	}
	if err := t.offer(h); err != nil {
		return nil, err
	}
	t.saveQueue(h)
	t.log(h, hub.ActRequeued, actorHub, "offered at once by hand")
	return t.view(h), nil
}

// repeat sends a failed task once more, as a new one.
func (t *tx) repeat(old *head, id string) (*hub.Task, error) {
	r, err := t.one("SELECT (SELECT 1 FROM address WHERE n = $1 AND deleted_at IS NULL), (SELECT body FROM message WHERE task = $2 AND n = 1)", old.callee, old.id)
	if err != nil {
		return nil, err
	}
	if r.null(0) {
		return nil, hub.Errorf(hub.Conflict, "the address that the task was sent to has been deleted and takes no more work")
	}
	f, err := t.floor(old.callee)
	if err != nil {
		return nil, err
	}
	h, err := t.newHead(&hub.Send{
		TaskID: id, ContextID: old.ContextID, Tags: old.Tags, Metadata: old.Metadata,
		ParentTask: old.ParentTask, ParentCall: old.ParentCall, Run: old.Run, Trace: old.Trace,
	}, old.caller, old.callee)
	if err != nil {
		return nil, err
	}
	h.RequeueOf = old.ID
	if old.Run == old.ID {
		h.Run = id
	}
	h.rank, h.ranked, h.base = f.at, true, -1
	t.count(laneKey{old.callee, old.caller}, 1)
	t.insertTask(h, r.blob(1))
	t.log(h, hub.ActRequeued, actorHub, "repeats "+old.ID)
	return t.view(h), nil
}
