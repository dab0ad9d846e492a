package postgres

import (
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// rows are new events and lines of activity, the most frequent of all, by column. One
// statement for many of them lets a fifth more tasks through than one for each (measured).
type rows struct {
	event struct {
		task                     []uuid.UUID
		seq, kind, at, flags     []int64
		state                    []hub.State
		artifact, body, metadata [][]byte
	}
	line struct {
		at, seq, actor, attempt []int64
		kind                    []string
		task                    []uuid.UUID
		detail                  [][]byte
	}
}

func (w *rows) addEvent(h *head, e *hub.Event, at time.Time, flags int64) {
	x := &w.event
	x.task, x.seq, x.kind, x.at = append(x.task, h.id), append(x.seq, h.Seq), append(x.kind, int64(e.Kind)), append(x.at, at.UnixMilli())
	x.state, x.flags, x.artifact = append(x.state, e.State), append(x.flags, flags), append(x.artifact, orNull([]byte(e.ArtifactID)))
	x.body, x.metadata = append(x.body, orNull(e.Body)), append(x.metadata, orNull(e.Metadata))
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

// insertRows has them inserted: before anything that may read them, and with the next
// flush.
func (c *conn) insertRows() {
	if x := &c.rows.event; len(x.task) > 0 {
		c.exec(`INSERT INTO event (task, seq, kind, at, state, flags, artifact, body, metadata)
			SELECT * FROM unnest($1::uuid[], $2::integer[], $3::smallint[], $4::bigint[], $5::smallint[], $6::smallint[], $7::bytea[], $8::bytea[], $9::bytea[])`,
			x.task, x.seq, x.kind, x.at, x.state, x.flags, x.artifact, x.body, x.metadata)
	}
	if x := &c.rows.line; len(x.task) > 0 {
		c.exec(`INSERT INTO activity (at, kind, task, seq, actor, attempt, detail)
			SELECT at, kind, task, seq, actor, attempt, detail
			FROM unnest($1::bigint[], $2::text[], $3::uuid[], $4::integer[], $5::bigint[], $6::bigint[], $7::bytea[])
				WITH ORDINALITY x(at, kind, task, seq, actor, attempt, detail, n) ORDER BY n`,
			x.at, x.kind, x.task, x.seq, x.actor, x.attempt, x.detail)
	}
	c.rows = rows{}
}
