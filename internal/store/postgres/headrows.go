package postgres

import (
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// taskRows are rows of task, by column: what changes of one, and what a new one has
// besides.
type taskRows struct {
	id                                              []uuid.UUID
	state, statusSeq, seq, messages, bytes          []int64
	attempt, failures, outcome                      []int64
	stateAt                                         []int64
	err                                             [][]byte
	claimedAt, endedAt                              []pgtype.Int8
	context, tags, metadata, parentTask, parentCall [][]byte
	run, trace, requeueOf                           [][]byte
	caller, callee, createdAt                       []int64
	deadline                                        []pgtype.Int8
}

func (x *taskRows) add(h *head) {
	x.id, x.state, x.stateAt = append(x.id, h.id), append(x.state, int64(h.State)), append(x.stateAt, h.StateAt.UnixMilli())
	x.statusSeq, x.seq, x.messages = append(x.statusSeq, h.statusSeq), append(x.seq, h.Seq), append(x.messages, int64(h.Messages))
	x.bytes, x.attempt, x.failures = append(x.bytes, h.bytes), append(x.attempt, int64(h.Attempt)), append(x.failures, int64(h.Failures))
	x.outcome, x.err = append(x.outcome, int64(h.CancelOutcome)), append(x.err, orNull([]byte(h.Error)))
	x.claimedAt, x.endedAt = append(x.claimedAt, millis(h.ClaimedAt)), append(x.endedAt, millis(h.EndedAt))
}

func (x *taskRows) addNew(h *head) {
	x.add(h)
	x.context, x.caller, x.callee = append(x.context, []byte(h.ContextID)), append(x.caller, h.caller), append(x.callee, h.callee)
	x.tags, x.metadata = append(x.tags, orNull(h.Tags)), append(x.metadata, orNull(h.Metadata))
	x.parentTask, x.parentCall = append(x.parentTask, orNull([]byte(h.ParentTask))), append(x.parentCall, orNull([]byte(h.ParentCall)))
	x.run, x.trace, x.requeueOf = append(x.run, []byte(h.Run)), append(x.trace, orNull([]byte(h.Trace))), append(x.requeueOf, orNull([]byte(h.RequeueOf)))
	x.createdAt, x.deadline = append(x.createdAt, h.CreatedAt.UnixMilli()), append(x.deadline, millis(h.Deadline))
}

// queueRows are rows of queue, by column.
type queueRows struct {
	task                                    []uuid.UUID
	phase, leaseMS, attempt, failures, seen []int64
	base                                    []int64
	rank, due, lease                        []pgtype.Int8
	open, provisional, lapsed               []bool
}

func (x *queueRows) add(h *head) {
	lease := millis(h.LeaseUntil)
	if h.Phase != hub.Leased {
		lease = pgtype.Int8{}
	}
	x.task, x.phase, x.rank = append(x.task, h.id), append(x.phase, int64(h.Phase)), append(x.rank, pgtype.Int8{Int64: h.rank, Valid: h.ranked})
	x.base = append(x.base, h.base)
	x.due, x.lease, x.leaseMS = append(x.due, millis(due(h))), append(x.lease, lease), append(x.leaseMS, h.leaseFor.Milliseconds())
	x.attempt, x.failures, x.seen = append(x.attempt, int64(h.Attempt)), append(x.failures, int64(h.Failures)), append(x.seen, int64(h.seen))
	x.open, x.provisional, x.lapsed = append(x.open, h.open), append(x.provisional, h.provisional), append(x.lapsed, h.lapse)
}

// writeHeads has the rows of tasks and of their places in the queue written.
func (c *conn) writeHeads(heads []*head) {
	var fresh, changed taskRows
	var places, moved queueRows
	var gone []uuid.UUID
	for _, h := range heads {
		switch {
		case h.fresh:
			fresh.addNew(h)
			places.add(h)
			if h.Phase == hub.Done {
				gone = append(gone, h.id)
			}
		case h.Phase == hub.Done && h.placed:
			gone = append(gone, h.id)
		case h.placed:
			moved.add(h)
		}
		if !h.fresh && h.saved {
			changed.add(h)
		}
		h.listed, h.fresh, h.saved, h.placed = false, false, false, false
	}
	c.insertTasks(&fresh, &places)
	c.updateTasks(&changed)
	c.updateQueue(&moved)
	if len(gone) > 0 {
		c.queue("DELETE FROM queue WHERE task = ANY($1::uuid[])", gone)
	}
}

// insertTasks has new tasks written, which are numbered in the order of their acceptance.
func (c *conn) insertTasks(x *taskRows, q *queueRows) {
	if len(x.id) == 0 {
		return
	}
	c.queue(`WITH x AS (
			SELECT *, nextval('task_n_seq') AS n FROM unnest($1::uuid[], $2::bytea[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bigint[],
				$7::integer[], $8::integer[], $9::integer[], $10::bigint[], $11::bigint[], $12::integer[], $13::smallint[], $14::bytea[],
				$15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[], $19::bytea[], $20::bytea[], $21::bytea[], $22::bigint[], $23::bigint[], $24::bigint[], $25::bigint[],
				$26::smallint[], $27::bigint[], $28::bigint[], $29::bigint[], $30::bigint[], $31::boolean[], $32::boolean[], $33::boolean[], $34::integer[], $35::bigint[])
				x(id, context, caller, callee, state, state_at, status_seq, seq, messages, bytes, attempt, failures, cancel_outcome, error,
				tags, metadata, parent_task, parent_call, run, trace, requeue_of, deadline, created_at, claimed_at, ended_at,
				phase, rank, due_at, lease_until, lease_ms, open, provisional, lapsed, seen, base)),
		t AS (INSERT INTO task (id, n, context, caller, callee, state, state_at, status_seq, seq, messages, bytes, attempt, failures, cancel_outcome, error,
				tags, metadata, parent_task, parent_call, run, trace, requeue_of, deadline, created_at, claimed_at, ended_at, pushes, polls)
			OVERRIDING SYSTEM VALUE
			SELECT id, n, context, caller, callee, state, state_at, status_seq, seq, messages, bytes, attempt, failures, cancel_outcome, error,
				tags, metadata, parent_task, parent_call, run, trace, requeue_of, deadline, created_at, claimed_at, ended_at, 0, 0 FROM x)
		INSERT INTO queue (task, n, callee, caller, phase, rank, due_at, deadline, lease_until, lease_ms, attempt, failures, open, provisional, lapsed, seen)
			SELECT id, n, callee, caller, phase,
				rank + CASE WHEN base >= 0 THEN (SELECT greatest(l.rank - base, 0) FROM lane l WHERE l.callee = x.callee AND l.caller = x.caller) ELSE 0 END, due_at, deadline, lease_until, lease_ms, attempt, failures, open, provisional, lapsed, seen FROM x`,
		x.id, x.context, x.caller, x.callee, x.state, x.stateAt,
		x.statusSeq, x.seq, x.messages, x.bytes, x.attempt, x.failures, x.outcome, x.err,
		x.tags, x.metadata, x.parentTask, x.parentCall, x.run, x.trace, x.requeueOf, x.deadline, x.createdAt, x.claimedAt, x.endedAt,
		q.phase, q.rank, q.due, q.lease, q.leaseMS, q.open, q.provisional, q.lapsed, q.seen, q.base)
}

func (c *conn) updateTasks(x *taskRows) {
	if len(x.id) == 0 {
		return
	}
	c.queue(`UPDATE task t SET state = x.state, state_at = x.state_at, status_seq = x.status_seq, seq = x.seq, messages = x.messages, bytes = x.bytes,
			attempt = x.attempt, failures = x.failures, cancel_outcome = x.cancel_outcome, error = x.error, claimed_at = x.claimed_at, ended_at = x.ended_at
		FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::integer[], $5::integer[], $6::integer[], $7::bigint[],
			$8::bigint[], $9::integer[], $10::smallint[], $11::bytea[], $12::bigint[], $13::bigint[])
			x(id, state, state_at, status_seq, seq, messages, bytes, attempt, failures, cancel_outcome, error, claimed_at, ended_at)
		WHERE t.id = x.id`,
		x.id, x.state, x.stateAt, x.statusSeq, x.seq, x.messages, x.bytes,
		x.attempt, x.failures, x.outcome, x.err, x.claimedAt, x.endedAt)
}

func (c *conn) updateQueue(x *queueRows) {
	if len(x.task) == 0 {
		return
	}
	c.queue(`UPDATE queue q SET phase = x.phase, rank = x.rank, due_at = x.due_at, lease_until = x.lease_until, lease_ms = x.lease_ms,
			attempt = x.attempt, failures = x.failures, open = x.open, provisional = x.provisional, lapsed = x.lapsed, seen = x.seen
		FROM unnest($1::uuid[], $2::smallint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
			$7::bigint[], $8::integer[], $9::boolean[], $10::boolean[], $11::boolean[], $12::integer[])
			x(task, phase, rank, due_at, lease_until, lease_ms, attempt, failures, open, provisional, lapsed, seen)
		WHERE q.task = x.task`,
		x.task, x.phase, x.rank, x.due, x.lease, x.leaseMS, x.attempt, x.failures, x.open, x.provisional, x.lapsed, x.seen)
}
