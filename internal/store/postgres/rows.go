package postgres

import (
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// rows are what a transaction has to write, by table and column: one statement for all
// rows of a table lets more than twice the tasks through than one for each (measured).
// A task that changes several times is written once, as it is in the end.
type rows struct {
	heads   []*head // that have changed
	event   eventRows
	message messageRows
	chunk   artifactRows
	attempt attemptRows
	key     keyRows
	line    lineRows
}

// The tables, by column.
type (
	eventRows struct {
		task                     []uuid.UUID
		seq, kind, at, flags     []int64
		state                    []hub.State
		artifact, body, metadata [][]byte
	}
	messageRows struct {
		task       []uuid.UUID
		n          []int64
		fromCallee []bool
		seq        []pgtype.Int8
		body       [][]byte
	}
	artifactRows struct {
		at       map[artifactKey]int // which row is whose
		task     []uuid.UUID
		id       [][]byte
		n, start []int64
	}
	attemptRows struct {
		at                 map[attemptKey]int // which row is whose
		task               []uuid.UUID
		n, outcome         []int64
		claimedAt, endedAt []pgtype.Int8
		digest             [][]byte
	}
	keyRows struct {
		hash, fingerprint [][]byte
		task              []uuid.UUID
	}
	lineRows struct {
		at, seq, actor, attempt []int64
		kind                    []string
		task                    []uuid.UUID
		detail                  [][]byte
	}
	attemptKey struct {
		task uuid.UUID
		n    int
	}
)

// change notes that a task's rows have to be written.
func (w *rows) change(h *head) {
	if !h.listed {
		h.listed = true
		w.heads = append(w.heads, h)
	}
}

func (w *rows) addEvent(h *head, e *hub.Event, at time.Time, flags int64) {
	x := &w.event
	x.task, x.seq, x.kind, x.at = append(x.task, h.id), append(x.seq, h.Seq), append(x.kind, int64(e.Kind)), append(x.at, at.UnixMilli())
	x.state, x.flags, x.artifact = append(x.state, e.State), append(x.flags, flags), append(x.artifact, orNull([]byte(e.ArtifactID)))
	x.body, x.metadata = append(x.body, orNull(e.Body)), append(x.metadata, orNull(e.Metadata))
}

// addMessage adds the task's newest message; seq is 0 unless it is that of its event.
func (w *rows) addMessage(h *head, fromCallee bool, seq int64, body []byte) {
	x := &w.message
	x.task, x.n, x.fromCallee = append(x.task, h.id), append(x.n, int64(h.Messages)), append(x.fromCallee, fromCallee)
	x.seq, x.body = append(x.seq, pgtype.Int8{Int64: seq, Valid: seq > 0}), append(x.body, orNull(body))
}

// startArtifact notes that the content of an artifact starts with the newest event.
func (w *rows) startArtifact(h *head, id string) {
	x, k := &w.chunk, artifactKey{h.ID, id}
	if i, ok := x.at[k]; ok {
		x.start[i] = h.Seq
		return
	}
	if x.at == nil {
		x.at = map[artifactKey]int{}
	}
	x.at[k] = len(x.task)
	x.task, x.id, x.n, x.start = append(x.task, h.id), append(x.id, []byte(id)), append(x.n, h.Seq), append(x.start, h.Seq)
}

// endAttempt notes how the newest claim ended.
func (w *rows) endAttempt(h *head, outcome int, at time.Time, digest []byte) {
	x, k := &w.attempt, attemptKey{h.id, h.Attempt}
	if i, ok := x.at[k]; ok {
		x.outcome[i], x.endedAt[i] = int64(outcome), millis(at)
		if len(digest) > 0 {
			x.digest[i] = digest
		}
		return
	}
	if x.at == nil {
		x.at = map[attemptKey]int{}
	}
	x.at[k] = len(x.task)
	x.task, x.n, x.claimedAt = append(x.task, h.id), append(x.n, int64(h.Attempt)), append(x.claimedAt, millis(h.ClaimedAt))
	x.outcome, x.endedAt, x.digest = append(x.outcome, int64(outcome)), append(x.endedAt, millis(at)), append(x.digest, orNull(digest))
}

func (w *rows) addKey(h *head, hash, fingerprint []byte) {
	x := &w.key
	x.hash, x.task, x.fingerprint = append(x.hash, hash), append(x.task, h.id), append(x.fingerprint, fingerprint)
}

func (w *rows) addLine(h *head, kind hub.ActivityKind, at time.Time, actor int64, detail string) {
	x := &w.line
	x.at, x.kind, x.task, x.seq = append(x.at, at.UnixMilli()), append(x.kind, string(kind)), append(x.task, h.id), append(x.seq, h.Seq)
	x.actor, x.attempt, x.detail = append(x.actor, actor), append(x.attempt, int64(h.Attempt)), append(x.detail, orNull([]byte(detail)))
}

// orNull is what keeps an empty value as NULL.
func orNull(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// millis is a time as the tables have it; NULL for none.
func millis(t time.Time) pgtype.Int8 {
	if t.IsZero() {
		return pgtype.Int8{}
	}
	return pgtype.Int8{Int64: t.UnixMilli(), Valid: true}
}

// writeRows has them written with the next flush, before whatever is queued after them.
func (c *conn) writeRows() {
	w := &c.rows
	if len(w.heads)+len(w.event.task)+len(w.message.task)+len(w.chunk.task)+len(w.attempt.task)+len(w.key.task)+len(w.line.task) == 0 {
		return
	}
	c.writeHeads(w.heads)
	if x := &w.event; len(x.task) > 0 {
		c.queue(`INSERT INTO event (task, seq, kind, at, state, flags, artifact, body, metadata)
			SELECT * FROM unnest($1::uuid[], $2::integer[], $3::smallint[], $4::bigint[], $5::smallint[], $6::smallint[], $7::bytea[], $8::bytea[], $9::bytea[])`,
			x.task, x.seq, x.kind, x.at, x.state, x.flags, x.artifact, x.body, x.metadata)
	}
	if x := &w.message; len(x.task) > 0 {
		c.queue(`INSERT INTO message (task, n, from_callee, undelivered, seq, body)
			SELECT task, n, from_callee, false, seq, body
			FROM unnest($1::uuid[], $2::integer[], $3::boolean[], $4::integer[], $5::bytea[]) x(task, n, from_callee, seq, body)`,
			x.task, x.n, x.fromCallee, x.seq, x.body)
	}
	if x := &w.chunk; len(x.task) > 0 {
		c.queue(`INSERT INTO artifact (task, id, n, start) SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::integer[], $4::integer[])
			ON CONFLICT (task, id) DO UPDATE SET start = excluded.start`, x.task, x.id, x.n, x.start)
	}
	c.writeRest(w)
	*w = rows{}
}

func (c *conn) writeRest(w *rows) {
	if x := &w.attempt; len(x.task) > 0 {
		c.queue(`INSERT INTO attempt (task, n, claimed_at, outcome, ended_at, digest, late)
			SELECT task, n, claimed_at, outcome, ended_at, digest, false
			FROM unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bytea[]) x(task, n, claimed_at, outcome, ended_at, digest)
			ON CONFLICT (task, n) DO UPDATE SET outcome = excluded.outcome, ended_at = excluded.ended_at, digest = coalesce(excluded.digest, attempt.digest)`,
			x.task, x.n, x.claimedAt, x.outcome, x.endedAt, x.digest)
	}
	if x := &w.key; len(x.task) > 0 {
		c.queue("INSERT INTO idempotency (hash, task, fingerprint) SELECT * FROM unnest($1::bytea[], $2::uuid[], $3::bytea[])", x.hash, x.task, x.fingerprint)
	}
	if x := &w.line; len(x.task) > 0 {
		c.queue(`INSERT INTO activity (xid, at, kind, task, seq, actor, attempt, detail)
			SELECT `+lineOrder+`, at, kind, task, seq, actor, attempt, detail
			FROM unnest($1::bigint[], $2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[], $7::bytea[])
				WITH ORDINALITY x(at, kind, task, seq, actor, attempt, detail, n) ORDER BY n`,
			x.at, x.kind, x.task, x.seq, x.actor, x.attempt, x.detail)
	}
}
