package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

	moderncsqlite "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// conn is one driver connection with its prepared statements. It is not safe for
// concurrent use.
type conn struct {
	dc    driver.Conn
	stmts map[string]*stmt
	args  []driver.NamedValue
}

// stmt is a prepared statement and the buffer that its rows are read into.
type stmt struct {
	driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
	dest  row
}

// row is one result row; it is valid until its statement runs again.
type row []driver.Value

func (r row) int(i int) int64 {
	n, _ := r[i].(int64)
	return n
}

func (r row) null(i int) bool { return r[i] == nil }

func (r row) text(i int) string {
	s, _ := r[i].(string)
	return s
}

func (r row) blob(i int) []byte {
	b, _ := r[i].([]byte)
	return b
}

func (r row) flag(i int) bool { return r.int(i) != 0 }

// time reads milliseconds since the epoch; NULL is the zero time.
func (r row) time(i int) time.Time {
	ms, ok := r[i].(int64)
	if !ok {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

func openConn(dsn string) (*conn, error) {
	dc, err := (&moderncsqlite.Driver{}).Open(dsn)
	if err != nil {
		return nil, err
	}
	return &conn{dc: dc, stmts: make(map[string]*stmt)}, nil
}

func (c *conn) close() error {
	var errs []error
	for _, s := range c.stmts {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.dc.Close())...)
}

func (c *conn) prepare(sql string) (*stmt, error) {
	if s, ok := c.stmts[sql]; ok {
		return s, nil
	}
	ds, err := c.dc.Prepare(sql)
	if err != nil {
		return nil, fmt.Errorf("prepare %.60q: %w", sql, err)
	}
	s := &stmt{Stmt: ds}
	var ok bool
	if s.exec, ok = ds.(driver.StmtExecContext); !ok {
		return nil, errors.New("the SQLite driver has no StmtExecContext")
	}
	if s.query, ok = ds.(driver.StmtQueryContext); !ok {
		return nil, errors.New("the SQLite driver has no StmtQueryContext")
	}
	c.stmts[sql] = s
	return s, nil
}

// bind turns arguments into driver values: every integer becomes an int64, every
// nil or zero-length slice NULL, every time milliseconds (NULL when zero).
func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, a := range args {
		var v driver.Value
		switch x := a.(type) {
		case int64:
			v = x
		case string:
			v = x
		case int:
			v = int64(x)
		case []byte:
			if len(x) > 0 {
				v = x
			}
		case time.Time:
			if !x.IsZero() {
				v = x.UnixMilli()
			}
		case bool:
			v = int64(0)
			if x {
				v = int64(1)
			}
		case hub.State:
			v = int64(x)
		case hub.Phase:
			v = int64(x)
		case hub.CancelOutcome:
			v = int64(x)
		case optional:
			if x != "" {
				v = string(x)
			}
		case nil:
		default:
			panic(fmt.Sprintf("sqlite: cannot bind %T", a))
		}
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return c.args
}

// optional is text that is NULL when empty.
type optional string

// exec runs a statement and gives the number of rows it changed.
func (c *conn) exec(sql string, args ...any) (int64, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return 0, err
	}
	res, err := s.exec.ExecContext(context.Background(), c.bind(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// insert runs an INSERT and gives the new row's id.
func (c *conn) insert(sql string, args ...any) (int64, error) {
	s, err := c.prepare(sql)
	if err != nil {
		return 0, err
	}
	res, err := s.exec.ExecContext(context.Background(), c.bind(args))
	if err != nil {
		return 0, err
	}
	return res.LastInsertId()
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
	rows, err := s.query.QueryContext(context.Background(), c.bind(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if s.dest == nil {
		s.dest = make(row, len(rows.Columns()))
	}
	for {
		if err := rows.Next(s.dest); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
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
	var e *moderncsqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_NOMEM, lib.SQLITE_READONLY, lib.SQLITE_INTERRUPT,
		lib.SQLITE_IOERR, lib.SQLITE_CORRUPT, lib.SQLITE_FULL, lib.SQLITE_CANTOPEN, lib.SQLITE_NOTADB:
		return true
	}
	return false
}
