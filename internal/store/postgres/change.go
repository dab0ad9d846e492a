package postgres

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// The ways a claim ends, as kept in attempt.outcome.
const (
	attemptEnded = iota + 1
	attemptAsked
	attemptReleased
	attemptExpired
	attemptUnconfirmed
	attemptTaken // requeued by hand
	attemptLost
)

// The bits of event.flags.
const (
	flagAppend = 1 << iota
	flagLast
)

// actorHub is the hub itself as an actor.
const actorHub = 0

// findFor gives a task for a change: nil unless it is addressed to callee.
func (t *tx) findFor(id, callee string) (*head, error) {
	h, err := t.head(id)
	if err != nil || h == nil || h.Callee.ID != callee {
		return nil, err
	}
	return h, nil
}

// findSeen gives a task for a change: nil unless it is addressed to ref's callee and the
// viewer may see it.
func (t *tx) findSeen(ref hub.TaskRef, by hub.Viewer) (h *head, me int64, err error) {
	callee, me, err := t.s.numbers(t.ctx, ref, by)
	if err != nil {
		return nil, me, err
	}
	h, err = t.head(ref.ID)
	if err != nil || h == nil || !h.sees(callee, me, by.All) {
		return nil, me, err
	}
	return h, me, nil
}

// view is the task as it is now, for an answer: without history and artifacts.
func (t *tx) view(h *head) *hub.Task {
	out := h.Task
	loadStatus(t.conn, h, &out)
	return &out
}

// loadStatus has the status message read into a task, unless it is known.
func loadStatus(c *conn, h *head, into *hub.Task) {
	if h.statusSeq > 0 && len(h.StatusMessage) == 0 {
		c.later("SELECT body FROM event WHERE task = $1 AND seq = $2", []any{h.id, h.statusSeq}, func(r row) error {
			into.StatusMessage = r.blob(0)
			return nil
		})
	}
}

// addEvent appends an event and counts it.
func (t *tx) addEvent(h *head, e hub.Event) {
	h.Seq++
	h.bytes += int64(len(e.Body) + len(e.Metadata))
	flags := int64(0)
	if e.Append {
		flags |= flagAppend
	}
	if e.LastChunk {
		flags |= flagLast
	}
	t.wrote = true
	t.rows.addEvent(h, &e, t.now, flags)
	t.changed.task(h.ID)
	if h.Pushes > 0 {
		t.wakePushes(h)
	}
}

// setStatus appends a status event and makes it the task's status.
func (t *tx) setStatus(h *head, e hub.Event) {
	e.Kind = hub.StatusEvent
	t.addEvent(h, e)
	h.State, h.StateAt, h.StatusMessage, h.statusSeq = e.State, t.now, e.Body, 0
	if len(e.Body) > 0 {
		h.statusSeq = h.Seq
	}
}

// addMessage appends to the history; a question (seq > 0) has its body in its event.
func (t *tx) addMessage(h *head, fromCallee bool, seq int64, body []byte) {
	h.Messages++
	if seq == 0 {
		h.bytes += int64(len(body))
	}
	t.wrote = true
	t.rows.addMessage(h, fromCallee, seq, body)
}

// save has a task's row written.
func (t *tx) save(h *head) {
	t.wrote, h.saved = true, true
	t.rows.change(h)
}

// saveQueue has an unfinished task's row in the queue written, and that of one that has
// ended removed.
func (t *tx) saveQueue(h *head) {
	if h.Phase != hub.Leased {
		h.LeaseUntil = time.Time{}
	}
	t.wrote, h.placed = true, true
	t.rows.change(h)
}

// due is when a sweep has to look at the task: the end of its lease or backoff, or
// its deadline, whichever comes first.
func due(h *head) time.Time {
	at := h.Deadline
	for _, x := range []time.Time{h.LeaseUntil, h.Due} {
		if !x.IsZero() && (at.IsZero() || x.Before(at)) {
			at = x
		}
	}
	return at
}

// lease gives the task to its holder for a while, or for a while longer.
func (h *head) lease(now time.Time, d time.Duration) {
	h.Phase, h.ranked, h.Due, h.LeaseUntil = hub.Leased, false, time.Time{}, now.Add(d)
}

// offer puts a task into the ready order at the floor, where what comes back goes.
func (t *tx) offer(h *head) error {
	f, err := t.floor(h.callee)
	if err != nil {
		return err
	}
	h.Phase, h.ranked, h.rank, h.Due, h.provisional = hub.Ready, true, f.at, time.Time{}, false
	t.becameReady(h)
	return nil
}

// floor gives where a callee's ready order stands.
func (t *tx) floor(callee int64) (*floor, error) {
	if f := t.floors[callee]; f != nil {
		return f, nil
	}
	var at int64
	err := t.each("SELECT floor FROM mailbox WHERE callee = $1", []any{callee}, func(r row) error {
		at = r.int(0)
		return nil
	})
	t.knowFloor(callee, at)
	return t.floors[callee], err
}

// closeAttempt says how the newest claim ended. A claim gets its row only then; while
// it is open, the queue has all there is to know of it.
func (t *tx) closeAttempt(h *head, outcome int, digest []byte) {
	if h.Attempt == 0 {
		return
	}
	t.wrote = true
	t.rows.endAttempt(h, outcome, t.now, digest)
}

// log writes a line of the activity feed.
func (t *tx) log(h *head, kind hub.ActivityKind, actor int64, detail string) {
	t.wrote = true
	t.rows.addLine(h, kind, t.now, actor, detail)
}

// endKind is what the activity calls an end.
func endKind(s hub.State) hub.ActivityKind {
	switch s {
	case hub.Completed:
		return hub.ActCompleted
	case hub.Rejected:
		return hub.ActRejected
	case hub.Canceled:
		return hub.ActCanceled
	default:
		return hub.ActFailed
	}
}

// end brings a task to a terminal state; h.Error and h.CancelOutcome are set
// before. Its place in the queue goes, and what its holder never saw is marked.
func (t *tx) end(h *head, state hub.State, message []byte, actor int64, digest []byte) error {
	h.EndedAt = t.now
	t.setStatus(h, hub.Event{State: state, Body: message})
	if h.open {
		t.closeAttempt(h, attemptEnded, digest)
	}
	h.Phase, h.ranked, h.open, h.LeaseUntil, h.Due = hub.Done, false, false, time.Time{}, time.Time{}
	t.save(h)
	t.saveQueue(h)
	t.count(laneKey{h.callee, h.caller}, -1)
	t.log(h, endKind(state), actor, h.Error)
	return t.markUndelivered(h)
}

func (t *tx) markUndelivered(h *head) error {
	if h.Handouts() == 0 || h.seen >= h.Messages {
		return nil
	}
	n, err := t.execNow("UPDATE message SET undelivered = true WHERE task = $1 AND n > $2 AND NOT from_callee", h.id, h.seen)
	if err != nil || n == 0 {
		return err
	}
	t.log(h, hub.ActUndelivered, actorHub, "the task ended before its callee saw the last messages")
	return nil
}

// fail ends a task as FAILED in the hub's own words.
func (t *tx) fail(h *head, why string) error {
	h.Error = why
	return t.end(h, hub.Failed, canon.TextMessage(hubMessageID(h), true, why), actorHub, nil)
}

// hubMessageID names the message with which the hub itself ends a task.
func hubMessageID(h *head) string { return h.ID + "-hub" }
