package postgres

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// conn is a connection and the statements that wait to be sent on it together. It is
// not safe for concurrent use.
type conn struct {
	c     *pgx.Conn
	ctx   context.Context // of the transaction: it ends when that has taken too long
	batch *pgx.Batch
	// rows are those that wait to be written together.
	rows rows
	// asked: something waits whose answer is wanted, since asked was set to false.
	asked bool
	// trips is how many round trips were made.
	trips int
}

func newConn(ctx context.Context, c *pgx.Conn) *conn {
	return &conn{c: c, ctx: ctx, batch: &pgx.Batch{}}
}

// exec has a statement sent with the next flush, which has its error. It comes after
// the rows that wait to be written, as do all others.
func (c *conn) exec(sql string, args ...any) {
	c.writeRows()
	c.queue(sql, args...)
}

func (c *conn) queue(sql string, args ...any) { c.batch.Queue(sql, bind(args)...) }

// later has a query sent with the next flush, which then calls f for each of its rows.
func (c *conn) later(sql string, args []any, f func(r row) error) {
	c.writeRows()
	c.asked = true
	c.batch.Queue(sql, bind(args)...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := f(rows.RawValues()); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// flush sends what waits, in one round trip.
func (c *conn) flush() error {
	c.writeRows()
	if c.batch.Len() == 0 {
		return nil
	}
	b := c.batch
	c.batch, c.asked = &pgx.Batch{}, false
	c.trips++
	return c.c.SendBatch(c.ctx, b).Close()
}

// each sends what waits and a query, and calls f for each of its rows. f must not use
// the connection.
func (c *conn) each(sql string, args []any, f func(r row) error) error {
	c.later(sql, args, f)
	return c.flush()
}

// one gives the first row of a query, or nil.
func (c *conn) one(sql string, args ...any) (first row, err error) {
	err = c.each(sql, args, func(r row) error {
		if first == nil {
			first = r.clone()
		}
		return nil
	})
	return first, err
}

// execNow sends what waits and a statement, and gives the number of rows it changed.
func (c *conn) execNow(sql string, args ...any) (n int, err error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	tag, err := c.c.Exec(c.ctx, sql, bind(args)...)
	return int(tag.RowsAffected()), err
}

// row is one result row in PostgreSQL's binary format; it is valid only until the next.
type row [][]byte

func (r row) clone() row {
	c := make(row, len(r))
	for i, v := range r {
		if v != nil {
			c[i] = append([]byte{}, v...)
		}
	}
	return c
}

func (r row) null(i int) bool   { return r[i] == nil }
func (r row) text(i int) string { return string(r[i]) }

// int reads a number of any width, or a boolean as 0 or 1; NULL is 0.
func (r row) int(i int) int64 {
	switch b := r[i]; len(b) {
	case 0:
		return 0
	case 1:
		return int64(b[0])
	case 2:
		return int64(int16(binary.BigEndian.Uint16(b)))
	case 4:
		return int64(int32(binary.BigEndian.Uint32(b)))
	case 8:
		return int64(binary.BigEndian.Uint64(b))
	default:
		panic(fmt.Sprintf("postgres: %d bytes are no number", len(b)))
	}
}

func (r row) flag(i int) bool { return r.int(i) != 0 }

func (r row) blob(i int) []byte {
	if len(r[i]) == 0 {
		return nil
	}
	return append([]byte{}, r[i]...)
}

func (r row) id(i int) uuid.UUID {
	if r[i] == nil {
		return uuid.Nil
	}
	return uuid.UUID(r[i])
}

// time reads milliseconds since the epoch; NULL is the zero time.
func (r row) time(i int) time.Time {
	if r.null(i) {
		return time.Time{}
	}
	return time.UnixMilli(r.int(i)).UTC()
}

// optional is text that is NULL when empty.
type optional string

// bind turns arguments into what the driver encodes: an empty blob or optional text and
// a zero time are NULL, a time is milliseconds, text is bytes.
func bind(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		out[i] = bound(a)
	}
	return out
}

func bound(a any) any {
	switch x := a.(type) {
	case string:
		return []byte(x)
	case []byte:
		if len(x) == 0 {
			return nil
		}
	case optional:
		if x == "" {
			return nil
		}
		return []byte(x)
	case time.Time:
		if x.IsZero() {
			return nil
		}
		return x.UnixMilli()
	case uuid.UUID:
		return pgtype.UUID{Bytes: x, Valid: true}
	case []hub.State:
		list := make([]int64, len(x))
		for i := range x {
			list[i] = int64(x[i])
		}
		return list
	case []uuid.UUID:
		list := make([]pgtype.UUID, len(x))
		for i := range x {
			list[i] = pgtype.UUID{Bytes: x[i], Valid: true}
		}
		return list
	case hub.State:
		return int64(x)
	case hub.Phase:
		return int64(x)
	case hub.CancelOutcome:
		return int64(x)
	}
	return a
}

// parseID reads a task's id; none has any other than a UUID in its usual form.
func parseID(s string) (uuid.UUID, bool) {
	id, err := uuid.Parse(s)
	return id, err == nil && id.String() == s
}
