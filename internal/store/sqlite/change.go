package sqlite

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
	r, err := t.one(headByID+" AND t.callee = ?2", id, t.s.parties.n(callee))
	if err != nil || r == nil {
		return nil, err
	}
	return t.s.scanHead(r), nil
}

// heads collects tasks before they are changed, since a query must not run while
// its own rows change.
func (t *tx) heads(sql string, args ...any) (list []*head, err error) {
	err = t.each(sql, args, func(r row) (bool, error) {
		list = append(list, t.s.scanHead(r))
		return true, nil
	})
	return list, err
}

// addEvent appends an event and counts it.
func (t *tx) addEvent(h *head, e hub.Event) error {
	h.Seq++
	h.bytes += int64(len(e.Body) + len(e.Metadata))
	flags := 0
	if e.Append {
		flags |= flagAppend
	}
	if e.LastChunk {
		flags |= flagLast
	}
	_, err := t.exec("INSERT INTO event (k, kind, at, state, artifact, flags, body, metadata) VALUES (?,?,?,?,?,?,?,?)",
		key(h.n, h.Seq), int(e.Kind), t.now, e.State, optional(e.ArtifactID), flags, e.Body, e.Metadata)
	if err != nil || h.Pushes == 0 {
		return err
	}
	return t.wakePushes(h)
}

// setStatus appends a status event and makes it the task's status.
func (t *tx) setStatus(h *head, e hub.Event) error {
	e.Kind = hub.StatusEvent
	if err := t.addEvent(h, e); err != nil {
		return err
	}
	h.State, h.StateAt, h.StatusMessage, h.statusSeq = e.State, t.now, e.Body, 0
	if len(e.Body) > 0 {
		h.statusSeq = h.Seq
	}
	return nil
}

// addMessage appends to the history; a question (seq > 0) has its body in its event.
func (t *tx) addMessage(h *head, fromCallee bool, seq int64, body []byte) error {
	h.Messages++
	var seqArg any
	if seq > 0 {
		seqArg = seq
	} else {
		h.bytes += int64(len(body))
	}
	_, err := t.exec("INSERT INTO message (k, from_callee, undelivered, seq, body) VALUES (?,?,0,?,?)",
		key(h.n, int64(h.Messages)), fromCallee, seqArg, body)
	return err
}

// saveStatus writes a task's row after its status changed, saveProgress after
// anything else; the latter leaves the indexes by status alone.
func (t *tx) saveStatus(h *head) error {
	_, err := t.exec(`UPDATE task SET state = ?, state_at = ?, status_seq = ?, seq = ?, messages = ?, bytes = ?,
		attempt = ?, failures = ?, cancel_outcome = ?, error = ?, claimed_at = ? WHERE n = ?`,
		h.State, h.StateAt, h.statusSeq, h.Seq, h.Messages, h.bytes,
		h.Attempt, h.Failures, h.CancelOutcome, optional(h.Error), h.ClaimedAt, h.n)
	return err
}

func (t *tx) saveProgress(h *head) error {
	_, err := t.exec("UPDATE task SET seq = ?, messages = ?, bytes = ?, attempt = ?, claimed_at = ? WHERE n = ?",
		h.Seq, h.Messages, h.bytes, h.Attempt, h.ClaimedAt, h.n)
	return err
}

// saveQueue writes an unfinished task's row in the queue.
func (t *tx) saveQueue(h *head) error {
	var rank any
	if h.ranked {
		rank = h.rank
	}
	if h.Phase != hub.Leased {
		h.LeaseUntil = time.Time{}
	}
	_, err := t.exec(`UPDATE queue SET phase = ?, rank = ?, due_at = ?, lease_until = ?, lease_ms = ?, attempt = ?, failures = ?,
		open = ?, provisional = ?, lapsed = ?, seen = ? WHERE task = ?`,
		h.Phase, rank, due(h), h.LeaseUntil, h.leaseFor.Milliseconds(), h.Attempt, h.Failures,
		h.open, h.provisional, h.lapse, h.seen, h.n)
	return err
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
	floor, err := t.floor(h.callee)
	h.Phase, h.ranked, h.rank, h.Due, h.provisional = hub.Ready, true, floor, time.Time{}, false
	return err
}

func (t *tx) floor(callee int64) (int64, error) {
	r, err := t.one("SELECT floor FROM mailbox WHERE callee = ?", callee)
	if err != nil || r == nil {
		return 0, err
	}
	return r.int(0), nil
}

// closeAttempt says how the newest claim ended. A claim gets its row only then; while
// it is open, the queue has all there is to know of it.
func (t *tx) closeAttempt(h *head, outcome int, digest []byte) error {
	if h.Attempt == 0 {
		return nil
	}
	_, err := t.exec(`INSERT INTO attempt (k, claimed_at, outcome, ended_at, digest, late) VALUES (?,?,?,?,?,0)
		ON CONFLICT DO UPDATE SET outcome = excluded.outcome, ended_at = excluded.ended_at, digest = coalesce(excluded.digest, digest)`,
		attemptKey(h.n, h.Attempt), h.ClaimedAt, outcome, t.now, digest)
	return err
}

// log writes a line of the activity feed.
func (t *tx) log(h *head, kind hub.ActivityKind, actor int64, detail string) error {
	t.s.lastLine++
	_, err := t.exec("INSERT INTO activity (id, at, kind, task, seq, actor, attempt, detail) VALUES (?,?,?,?,?,?,?,?)",
		t.s.lastLine, t.now, string(kind), h.n, h.Seq, actor, h.Attempt, optional(detail))
	return err
}

var endKinds = map[hub.State]hub.ActivityKind{
	hub.Completed: hub.ActCompleted, hub.Failed: hub.ActFailed, hub.Rejected: hub.ActRejected, hub.Canceled: hub.ActCanceled,
}

// end brings a task to a terminal state; h.Error and h.CancelOutcome are set
// before. Its place in the queue goes, and what its holder never saw is marked.
func (t *tx) end(h *head, state hub.State, message []byte, actor int64, digest []byte) error {
	h.EndedAt = t.now
	if err := t.setStatus(h, hub.Event{State: state, Body: message}); err != nil {
		return err
	}
	if h.open {
		if err := t.closeAttempt(h, attemptEnded, digest); err != nil {
			return err
		}
	}
	h.Phase, h.ranked, h.open, h.LeaseUntil, h.Due = hub.Done, false, false, time.Time{}, time.Time{}
	if _, err := t.exec(`UPDATE task SET state = ?, state_at = ?, status_seq = ?, seq = ?, messages = ?, bytes = ?,
		attempt = ?, failures = ?, cancel_outcome = ?, error = ?, ended_at = ? WHERE n = ?`,
		h.State, h.StateAt, h.statusSeq, h.Seq, h.Messages, h.bytes,
		h.Attempt, h.Failures, h.CancelOutcome, optional(h.Error), h.EndedAt, h.n); err != nil {
		return err
	}
	if _, err := t.exec("DELETE FROM queue WHERE task = ?", h.n); err != nil {
		return err
	}
	if _, err := t.exec("UPDATE lane SET open = open - 1 WHERE callee = ? AND caller = ?", h.callee, h.caller); err != nil {
		return err
	}
	if err := t.log(h, endKinds[state], actor, h.Error); err != nil {
		return err
	}
	return t.markUndelivered(h)
}

func (t *tx) markUndelivered(h *head) error {
	if h.Handouts() == 0 || h.seen >= h.Messages {
		return nil
	}
	n, err := t.exec("UPDATE message SET undelivered = 1 WHERE k > ? AND k <= ? AND from_callee = 0",
		key(h.n, int64(h.seen)), key(h.n, maxNumber))
	if err != nil || n == 0 {
		return err
	}
	return t.log(h, hub.ActUndelivered, actorHub, "the task ended before its callee saw the last messages")
}

// fail ends a task as FAILED in the hub's own words.
func (t *tx) fail(h *head, why string) error {
	h.Error = why
	return t.end(h, hub.Failed, canon.TextMessage(hubMessageID(h), true, why), actorHub, nil)
}

// hubMessageID names the message with which the hub itself ends a task.
func hubMessageID(h *head) string { return h.ID + "-hub" }
