package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// maxNumber is the highest number of an event, message or attempt of a task.
const maxNumber = 1<<31 - 2

// head is everything about a task but its payloads: its row, and while it is
// unfinished its row in the queue.
type head struct {
	hub.Task
	id                uuid.UUID
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
	locked                   bool // by this transaction

	// What has to be written of it, by writeRows: all if it is fresh, else its row in
	// task, its row in queue. listed: it is on the list.
	fresh, saved, placed, listed bool
	// base is the rank of its lane that the rank of a fresh one follows from; negative for none.
	base int64
	// first is its first message if it was accepted in this transaction.
	first []byte
}

const headColumns = `t.id, t.context, t.n, t.caller, t.callee, t.state, t.state_at, t.status_seq, t.seq, t.messages, t.bytes,
	t.attempt, t.failures, t.cancel_outcome, t.error, t.tags, t.metadata, t.parent_task, t.parent_call, t.run, t.trace, t.requeue_of,
	t.deadline, t.created_at, t.claimed_at, t.ended_at, t.read_at, t.polled_at, t.polls,
	q.phase, q.rank, q.due_at, q.lease_until, q.lease_ms, q.attempt, q.failures, q.open, q.provisional, q.lapsed, q.seen, t.pushes`

// headWidth is how many columns these are, statusColumn the body of the status message
// after them.
const (
	headWidth    = 41
	statusColumn = `, (SELECT e.body FROM event e WHERE e.task = t.id AND e.seq = t.status_seq) `
)

const headFrom = " FROM task t LEFT JOIN queue q ON q.task = t.id "

// scanHead reads headColumns. The parties are not known yet.
func scanHead(r row) *head {
	h := &head{
		id: r.id(0), n: r.int(2), caller: r.int(3), callee: r.int(4), statusSeq: r.int(7), bytes: r.int(10),
		rank: r.int(30), ranked: !r.null(30), leaseFor: time.Duration(r.int(33)) * time.Millisecond,
		open: r.flag(36), provisional: r.flag(37), lapse: r.flag(38), seen: int(r.int(39)),
	}
	h.Task = hub.Task{
		ID: h.id.String(), ContextID: r.text(1), State: hub.State(r.int(5)), StateAt: r.time(6), Seq: r.int(8), Messages: int(r.int(9)),
		Attempt: int(r.int(11)), Failures: int(r.int(12)), CancelOutcome: hub.CancelOutcome(r.int(13)),
		Error: r.text(14), Tags: r.blob(15), Metadata: r.blob(16),
		ParentTask: r.text(17), ParentCall: r.text(18), Run: r.text(19), Trace: r.text(20), RequeueOf: r.text(21),
		Deadline: r.time(22), CreatedAt: r.time(23), ClaimedAt: r.time(24), EndedAt: r.time(25),
		ReadAt: r.time(26), LastPolledAt: r.time(27), PollCount: int(r.int(28)), Pushes: int(r.int(40)), Phase: hub.Done,
	}
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

// scanStatus reads headColumns and statusColumn.
func scanStatus(r row) *head {
	h := scanHead(r)
	h.StatusMessage = r.blob(headWidth)
	return h
}

// name fills in the parties of tasks.
func (s *Store) name(ctx context.Context, list ...*head) error {
	for _, h := range list {
		if h == nil || h.Caller.ID != "" {
			continue
		}
		var err error
		if h.Caller, err = s.parties.party(ctx, h.caller); err != nil {
			return err
		}
		if h.Callee, err = s.parties.party(ctx, h.callee); err != nil {
			return err
		}
	}
	return nil
}

// sees reports whether the viewer, whose address has the number me, may see the task at
// the address that was asked; 0 stands for any.
func (h *head) sees(callee, me int64, all bool) bool {
	return (callee == 0 || h.callee == callee) && (all || h.caller == me || h.callee == me)
}

// find reads the task with that id, nil unless it is addressed to callee and the viewer
// may see it.
func (s *Store) find(c *conn, ref hub.TaskRef, by hub.Viewer) (*head, error) {
	id, ok := parseID(ref.ID)
	if !ok {
		return nil, nil
	}
	callee, me, err := s.numbers(c.ctx, ref, by)
	if err != nil {
		return nil, err
	}
	var h *head
	err = c.each("SELECT "+headColumns+statusColumn+headFrom+"WHERE t.id = $1", []any{id}, func(r row) error {
		h = scanStatus(r)
		return nil
	})
	if err != nil || h == nil || !h.sees(callee, me, by.All) {
		return nil, err
	}
	return h, s.name(c.ctx, h)
}

// numbers gives the numbers of the address that was asked, 0 for any and -1, which is
// nobody's, for one there is not, and of the viewer's address.
func (s *Store) numbers(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (callee, me int64, err error) {
	if ref.Callee != "" {
		if callee, err = s.parties.n(ctx, ref.Callee); err != nil {
			return 0, 0, err
		}
		if callee == 0 {
			callee = -1
		}
	}
	me, err = s.parties.n(ctx, by.Address)
	return callee, me, err
}

// size is about how many bytes of payload a load of the task gives.
func (h *head) size(load hub.Load) int64 {
	if load.History != 0 || load.Artifacts {
		return h.bytes
	}
	return int64(len(h.Metadata) + len(h.Tags))
}

// loadFor is load for a request, which needs room for what is large.
func loadFor(ctx context.Context, c *conn, h *head, load hub.Load) error {
	if err := hub.Reserve(ctx, h.size(load)); err != nil {
		return err
	}
	return loadInto(c, h, load)
}

// loadInto reads what Load asks for into the head's task.
func loadInto(c *conn, h *head, load hub.Load) error {
	if load.AsOf > 0 && load.AsOf < h.Seq {
		if err := h.goBack(c, load.AsOf); err != nil {
			return err
		}
	}
	done := func() error { return nil }
	if load.Artifacts {
		done = loadArtifacts(c, h, &h.Task)
	}
	if load.History != 0 {
		loadHistory(c, h, &h.Task, load.History)
	}
	if err := c.flush(); err != nil {
		return err
	}
	return done()
}

// goBack makes the head that of the task as it was after an event.
func (h *head) goBack(c *conn, seq int64) error {
	r, err := c.one("SELECT seq, at, state, body FROM event WHERE task = $1 AND seq <= $2 AND kind = 1 ORDER BY seq DESC LIMIT 1", h.id, seq)
	if err != nil || r == nil {
		return err
	}
	h.Seq, h.asOf = seq, true
	h.StateAt, h.State, h.StatusMessage, h.statusSeq = r.time(1), hub.State(r.int(2)), r.blob(3), 0
	if len(h.StatusMessage) > 0 {
		h.statusSeq = r.int(0)
	}
	return nil
}

// loadHistory has the newest limit messages (all if negative) read into a task, oldest
// first, leaving out the question that is the current status message.
func loadHistory(c *conn, h *head, into *hub.Task, limit int) {
	into.History = []hub.Message{}
	if h.Messages == 1 { // most tasks, most of the time
		c.later("SELECT undelivered, body FROM message WHERE task = $1 AND n = 1", []any{h.id}, func(r row) error {
			into.History = append(into.History, hub.Message{N: 1, Undelivered: r.flag(0), Body: r.blob(1)})
			return nil
		})
		return
	}
	messagesAfter(c, h, 0, func(m hub.Message) {
		into.History = append(into.History, m)
		if limit > 0 && len(into.History) > limit {
			into.History = into.History[1:]
		}
	})
}

// messagesAfter has the messages with a number above n read.
func messagesAfter(c *conn, h *head, n int, f func(hub.Message)) {
	c.later(`SELECT m.n, m.from_callee, m.undelivered, coalesce(m.body, e.body) FROM message m
		LEFT JOIN event e ON e.task = m.task AND e.seq = m.seq
		WHERE m.task = $1 AND m.n > $2 AND (m.seq IS NULL OR (m.seq <> $3 AND m.seq <= $4)) ORDER BY m.n`,
		[]any{h.id, n, h.statusSeq, h.Seq},
		func(r row) error {
			f(hub.Message{N: int(r.int(0)), FromCallee: r.flag(1), Undelivered: r.flag(2), Body: r.blob(3)})
			return nil
		})
}

// fewEvents is up to how many events all are read to fold the artifacts, without a
// look at where each one starts.
const fewEvents = 64

// loadArtifacts has the events of the artifacts read; what it gives folds them into a
// task once that is done. A first chunk starts its artifact anew, so what came before
// the last of those need not be read.
func loadArtifacts(c *conn, h *head, into *hub.Task) (fold func() error) {
	into.Artifacts = [][]byte{}
	if h.Seq <= 2 { // submitted, working
		return func() error { return nil }
	}
	var order []string // by first appearance
	chunks := make(map[string][][]byte)
	from := "1"
	known := h.Seq > fewEvents && !h.asOf
	if known {
		from = "(SELECT coalesce(min(start), 2147483647) FROM artifact WHERE task = $1)"
		c.later("SELECT id FROM artifact WHERE task = $1 ORDER BY n", []any{h.id}, func(r row) error {
			order = append(order, r.text(0))
			return nil
		})
	}
	c.later("SELECT artifact, flags, body FROM event WHERE task = $1 AND seq >= "+from+" AND seq <= $2 AND kind = 2 ORDER BY seq",
		[]any{h.id, h.Seq}, func(r row) error {
			id := r.text(0)
			if r.int(1)&flagAppend == 0 {
				if chunks[id] == nil && !known {
					order = append(order, id)
				}
				chunks[id] = chunks[id][:0]
			}
			chunks[id] = append(chunks[id], r.blob(2))
			return nil
		})
	return func() error {
		for _, id := range order {
			whole, err := canon.FoldAll(chunks[id])
			if err != nil {
				return err
			}
			into.Artifacts = append(into.Artifacts, whole)
		}
		return nil
	}
}
