package sqlite

import (
	"errors"
	"fmt"
	"slices"
	"time"

	zombie "zombiezen.com/go/sqlite"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// conn is one connection with its prepared statements. It is not safe for
// concurrent use.
type conn struct {
	c     *zombie.Conn
	stmts map[string]*stmt
}

// stmt is a prepared statement and the buffer that its rows are read into.
type stmt struct {
	*zombie.Stmt
	dest row
}

// row is one result row; it is valid until its statement runs again.
type row []value

// value is a column: an integer, text or a blob, or NULL.
type value struct {
	kind zombie.ColumnType
	n    int64
	s    string
	b    []byte
}

func (r row) int(i int) int64   { return r[i].n }
func (r row) null(i int) bool   { return r[i].kind == zombie.TypeNull }
func (r row) text(i int) string { return r[i].s }
func (r row) blob(i int) []byte { return r[i].b }
func (r row) flag(i int) bool   { return r[i].n != 0 }

// time reads milliseconds since the epoch; NULL is the zero time.
func (r row) time(i int) time.Time {
	if r.null(i) {
		return time.Time{}
	}
	return time.UnixMilli(r[i].n).UTC()
}

// optional is text that is NULL when empty.
type optional string

// openConn opens a connection and sets it up. How long to wait for a lock comes
// first, since switching to WAL may already have to wait.
func openConn(path, synchronous string, readOnly bool) (*conn, error) {
	zc, err := zombie.OpenConn(path, zombie.OpenReadWrite)
	if err != nil {
		return nil, err
	}
	zc.SetBusyTimeout(busyTimeout)
	c := &conn{c: zc, stmts: make(map[string]*stmt)}
	for _, pragma := range pragmas(synchronous, readOnly) {
		if _, err := c.exec("PRAGMA " + pragma); err != nil {
			return nil, errors.Join(fmt.Errorf("PRAGMA %s: %w", pragma, err), c.close())
		}
	}
	return c, nil
}

// busyTimeout is how long a connection waits for another one's lock. Only starting
// hubs and tools that look at the file hold any.
const busyTimeout = 10 * time.Second

func pragmas(synchronous string, readOnly bool) []string {
	list := []string{
		"journal_mode = WAL", "synchronous = " + synchronous,
		"temp_store = MEMORY", "wal_autocheckpoint = 8000",
		"journal_size_limit = 67108864", "trusted_schema = OFF",
	}
	// In KiB. The writer touches more: the keys of sends lie all over their index.
	if readOnly {
		return append(list, "cache_size = -8000", "query_only = 1")
	}
	// What is deleted is overwritten with zeros where that writes no further page.
	return append(list, "cache_size = -32000", "secure_delete = FAST")
}

func (c *conn) close() error { return c.c.Close() } // finalizes the statements, too

func (c *conn) prepare(sql string) (*stmt, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	zs, err := c.c.Prepare(sql)
	if err != nil {
		return nil, fmt.Errorf("prepare %.60q: %w", sql, err)
	}
	s := &stmt{Stmt: zs, dest: make(row, zs.ColumnCount())}
	c.stmts[sql] = s
	return s, nil
}

// bind binds arguments: an empty blob or optional text and a zero time are NULL, a
// time is milliseconds.
func (s *stmt) bind(args []any) {
	for i, a := range args {
		p := i + 1
		switch x := a.(type) {
		case int64:
			s.BindInt64(p, x)
		case int:
			s.BindInt64(p, int64(x))
		case string:
			s.BindText(p, x)
		case []byte:
			if len(x) == 0 {
				s.BindNull(p)
			} else {
				s.BindBytes(p, x)
			}
		case time.Time:
			if x.IsZero() {
				s.BindNull(p)
			} else {
				s.BindInt64(p, x.UnixMilli())
			}
		case bool:
			s.BindBool(p, x)
		case hub.State:
			s.BindInt64(p, int64(x))
		case hub.Phase:
			s.BindInt64(p, int64(x))
		case hub.CancelOutcome:
			s.BindInt64(p, int64(x))
		case optional:
			if x == "" {
				s.BindNull(p)
			} else {
				s.BindText(p, string(x))
			}
		case nil:
			s.BindNull(p)
		default:
			panic(fmt.Sprintf("sqlite: cannot bind %T", a))
		}
	}
}

// read copies the current row out of SQLite.
func (s *stmt) read() {
	for i := range s.dest {
		v := value{kind: s.ColumnType(i)}
		switch v.kind {
		case zombie.TypeInteger:
			v.n = s.ColumnInt64(i)
		case zombie.TypeText:
			v.s = s.ColumnText(i)
		case zombie.TypeBlob:
			v.b = make([]byte, s.ColumnLen(i))
			s.ColumnBytes(i, v.b)
		case zombie.TypeNull, zombie.TypeFloat: // there are no floats in the schema
		}
		s.dest[i] = v
	}
}

// exec runs a statement and gives the number of rows it changed.
func (c *conn) exec(sql string, args ...any) (int, error) {
	err := c.each(sql, args, func(row) (bool, error) { return true, nil })
	return c.c.Changes(), err
}

// insert runs an INSERT and gives the new row's id.
func (c *conn) insert(sql string, args ...any) (int64, error) {
	_, err := c.exec(sql, args...)
	return c.c.LastInsertRowID(), err
}

// one gives the first row of a query, or nil.
func (c *conn) one(sql string, args ...any) (r row, err error) {
	err = c.each(sql, args, func(x row) (bool, error) {
		r = x
		return false, nil
	})
	return r, err
}

// each calls f for each row of a query until f says stop. f must not run the same
// statement again.
func (c *conn) each(sql string, args []any, f func(r row) (more bool, err error)) (err error) {
	s, err := c.prepare(sql)
	if err != nil {
		return err
	}
	s.bind(args)
	defer func() {
		if end := s.Reset(); err == nil {
			err = end
		}
	}()
	for {
		if more, err := s.Step(); err != nil || !more {
			return err
		}
		s.read()
		if more, err := f(s.dest); err != nil || !more {
			return err
		}
	}
}

const unavailableMessage = "the hub's database cannot be used just now and nothing was changed; try again"

// storeError turns a failure of the database into what the hub answers: a store
// that cannot work just now is Unavailable, everything else is a bug.
func storeError(err error) error {
	var refused *hub.Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	if broken(err) {
		return hub.Wrap(hub.Unavailable, err, unavailableMessage)
	}
	return err
}

// broken reports whether err says that the database itself fails, so that the
// whole transaction is in doubt, not one statement of it.
func broken(err error) bool {
	return err != nil && slices.Contains([]zombie.ResultCode{
		zombie.ResultBusy, zombie.ResultLocked, zombie.ResultNoMem, zombie.ResultReadOnly, zombie.ResultInterrupt,
		zombie.ResultIOErr, zombie.ResultCorrupt, zombie.ResultFull, zombie.ResultCantOpen, zombie.ResultNotADB,
	}, zombie.ErrCode(err).ToPrimary())
}
