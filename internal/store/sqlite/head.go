package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// numberBits is how many bits of a row key number the rows of one task.
const numberBits = 20

// maxNumber is the highest such number; limits are clamped to it.
const maxNumber = 1<<numberBits - 1

// key is the row key of a task's number-th event, message or attempt.
func key(task, number int64) int64 { return task<<numberBits | number }

func number(k int64) int64 { return k & maxNumber }

// attemptKey is the row key of a task's attempt.
func attemptKey(task int64, attempt int) int64 { return key(task, int64(hub.Handouts(attempt))) }

// head is everything about a task but its payloads: its row, and while it is
// unfinished its row in the queue.
type head struct {
	hub.Task
	n, caller, callee int64
	// statusSeq is the event whose body is the status message, 0 if there is none.
	statusSeq int64
	bytes     int64

	rank                     int64
	ranked                   bool // in the ready order
	leaseFor                 time.Duration
	open, provisional, lapse bool
	seen                     int
	asOf                     bool // as it was after event Seq, which is not the newest
	woken                    bool // its push-notification configurations are due
}

const headColumns = `t.n, t.id, t.context, t.caller, t.callee, t.state, t.state_at, t.status_seq, t.seq, t.messages, t.bytes,
	t.attempt, t.failures, t.cancel_outcome, t.error, t.tags, t.metadata, t.parent_task, t.parent_call, t.run, t.trace, t.requeue_of,
	t.deadline, t.created_at, t.claimed_at, t.ended_at, t.read_at, t.polled_at, t.polls,
	q.phase, q.rank, q.due_at, q.lease_until, q.lease_ms, q.attempt, q.failures, q.open, q.provisional, q.lapsed, q.seen, t.pushes `

const headByID = "SELECT " + headColumns + "FROM task t LEFT JOIN queue q ON q.task = t.n WHERE t.id = ?1"

func (s *Store) scanHead(r row) *head {
	h := &head{
		n: r.int(0), caller: r.int(3), callee: r.int(4), statusSeq: r.int(7), bytes: r.int(10),
		rank: r.int(30), ranked: !r.null(30), leaseFor: time.Duration(r.int(33)) * time.Millisecond,
		open: r.flag(36), provisional: r.flag(37), lapse: r.flag(38), seen: int(r.int(39)),
	}
	h.Task = hub.Task{
		ID: r.text(1), ContextID: r.text(2), State: hub.State(r.int(5)), StateAt: r.time(6), Seq: r.int(8), Messages: int(r.int(9)),
		Attempt: int(r.int(11)), Failures: int(r.int(12)), CancelOutcome: hub.CancelOutcome(r.int(13)),
		Error: r.text(14), Tags: r.blob(15), Metadata: r.blob(16),
		ParentTask: r.text(17), ParentCall: r.text(18), Run: r.text(19), Trace: r.text(20), RequeueOf: r.text(21), Pushes: int(r.int(40)),
		Deadline: r.time(22), CreatedAt: r.time(23), ClaimedAt: r.time(24), EndedAt: r.time(25),
		ReadAt: r.time(26), LastPolledAt: r.time(27), PollCount: int(r.int(28)), Phase: hub.Done,
	}
	h.Caller, h.Callee = s.parties.party(h.caller), s.parties.party(h.callee)
	if r.null(29) {
		return h
	}
	h.Phase, h.LeaseUntil = hub.Phase(r.int(29)), r.time(32)
	h.Attempt, h.Failures = int(r.int(34)), int(r.int(35))
	if h.Phase == hub.Ready && !h.ranked {
		h.Due = r.time(31)
	}
	return h
}

// find gives the task with that id, or nil unless it is addressed to callee and
// the viewer may see it.
func (s *Store) find(c *conn, ref hub.TaskRef, by hub.Viewer) (*head, error) {
	r, err := c.one(headByID+` AND (?2 = 0 OR t.callee = ?2) AND (?3 OR t.caller = ?4 OR t.callee = ?4)`,
		ref.ID, s.refN(ref.Callee), by.All, s.parties.n(by.Address))
	if err != nil || r == nil {
		return nil, err
	}
	return s.scanHead(r), nil
}

// refN is the number of a callee id; -1, which matches nothing, if there is none.
func (s *Store) refN(callee string) int64 {
	if callee == "" {
		return 0
	}
	if n := s.parties.n(callee); n != 0 {
		return n
	}
	return -1
}

// size is about how many bytes of payload a load of the task gives.
func (h *head) size(load hub.Load) int64 {
	if load.History != 0 || load.Artifacts {
		return h.bytes
	}
	return int64(len(h.Metadata) + len(h.Tags))
}

// loadFor is load for a request, which needs room for what is large.
func (s *Store) loadFor(ctx context.Context, c *conn, h *head, load hub.Load) error {
	if err := hub.Reserve(ctx, h.size(load)); err != nil {
		return err
	}
	return s.load(c, h, load)
}

// load reads what Load asks for into the head's task.
func (s *Store) load(c *conn, h *head, load hub.Load) error {
	if load.AsOf > 0 && load.AsOf < h.Seq {
		if err := h.goBack(c, load.AsOf); err != nil {
			return err
		}
	}
	if h.statusSeq > 0 && h.StatusMessage == nil {
		r, err := c.one("SELECT body FROM event WHERE k = ?", key(h.n, h.statusSeq))
		if err != nil {
			return err
		}
		if r != nil {
			h.StatusMessage = r.blob(0)
		}
	}
	if load.History != 0 {
		if err := loadHistory(c, h, load.History); err != nil {
			return err
		}
	}
	if load.Artifacts {
		return loadArtifacts(c, h)
	}
	return nil
}

// goBack makes the head that of the task as it was after an event.
func (h *head) goBack(c *conn, seq int64) error {
	r, err := c.one("SELECT k, at, state, body FROM event WHERE k > ? AND k <= ? AND kind = 1 ORDER BY k DESC LIMIT 1", key(h.n, 0), key(h.n, seq))
	if err != nil || r == nil {
		return err
	}
	h.Seq, h.asOf = seq, true
	h.StateAt, h.State, h.StatusMessage, h.statusSeq = r.time(1), hub.State(r.int(2)), r.blob(3), 0
	if len(h.StatusMessage) > 0 {
		h.statusSeq = number(r.int(0))
	}
	return nil
}

// loadHistory reads the newest limit messages (all if negative), oldest first,
// leaving out the question that is the current status message.
func loadHistory(c *conn, h *head, limit int) error {
	if h.Messages == 1 { // most tasks, most of the time
		r, err := c.one("SELECT undelivered, body FROM message WHERE k = ?", key(h.n, 1))
		if err == nil && r != nil {
			h.History = []hub.Message{{N: 1, Undelivered: r.flag(0), Body: r.blob(1)}}
		}
		return err
	}
	list, err := messagesAfter(c, h, 0)
	if err != nil {
		return err
	}
	if limit > 0 && len(list) > limit {
		list = list[len(list)-limit:]
	}
	h.History = list
	return nil
}

// messagesAfter reads the messages with a number above n.
func messagesAfter(c *conn, h *head, n int) ([]hub.Message, error) {
	list := []hub.Message{}
	err := c.each(`SELECT m.k, m.from_callee, m.undelivered, coalesce(m.body, e.body) FROM message m
		LEFT JOIN event e ON e.k = (?3 << 20 | m.seq)
		WHERE m.k > ?1 AND m.k <= ?2 AND (m.seq IS NULL OR (m.seq <> ?4 AND m.seq <= ?5)) ORDER BY m.k`,
		[]any{key(h.n, int64(n)), key(h.n, maxNumber), h.n, h.statusSeq, h.Seq},
		func(r row) (bool, error) {
			list = append(list, hub.Message{N: int(number(r.int(0))), FromCallee: r.flag(1), Undelivered: r.flag(2), Body: r.blob(3)})
			return true, nil
		})
	return list, err
}

// fewEvents is up to how many events all are read to fold the artifacts, without a
// look at where each one starts.
const fewEvents = 64

// loadArtifacts folds the artifacts from their events. A first chunk starts its
// artifact anew, so what came before the last of those need not be read.
func loadArtifacts(c *conn, h *head) error {
	h.Artifacts = [][]byte{}
	if h.Seq <= 2 { // submitted, working
		return nil
	}
	from := int64(1)
	if h.Seq > fewEvents && !h.asOf {
		r, err := c.one("SELECT min(start) FROM artifact WHERE task = ?", h.n)
		if err != nil || r.null(0) {
			return err
		}
		from = r.int(0)
	}
	var order []string // by first appearance
	chunks := make(map[string][][]byte)
	err := c.each("SELECT artifact, flags, body FROM event WHERE k >= ? AND k <= ? AND kind = 2 ORDER BY k",
		[]any{key(h.n, from), key(h.n, h.Seq)}, func(r row) (bool, error) {
			id := r.text(0)
			if r.int(1)&flagAppend == 0 {
				if chunks[id] == nil {
					order = append(order, id)
				}
				chunks[id] = chunks[id][:0]
			}
			chunks[id] = append(chunks[id], r.blob(2))
			return true, nil
		})
	if err != nil {
		return err
	}
	if from > 1 {
		if order, err = artifactOrder(c, h); err != nil {
			return err
		}
	}
	for _, id := range order {
		whole, err := canon.FoldAll(chunks[id])
		if err != nil {
			return err
		}
		h.Artifacts = append(h.Artifacts, whole)
	}
	return nil
}

// artifactOrder is the artifacts in the order of their first appearance, which may
// lie before the events that were read.
func artifactOrder(c *conn, h *head) (ids []string, err error) {
	err = c.each("SELECT id FROM artifact WHERE task = ? ORDER BY n", []any{h.n}, func(r row) (bool, error) {
		ids = append(ids, r.text(0))
		return true, nil
	})
	return ids, err
}
