package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	zombie "zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// copied says how a row of each table becomes the same row of another task: the number
// of the task is :by higher, and it came :by ms later. Columns that are not named stay
// as they are.
var copied = []struct {
	table   string
	columns map[string]string
}{
	{"task", map[string]string{"n": "n + :by", "id": "substr(id, 1, 24) || printf('%012x', n + :by)", "state_at": "state_at + :by", "created_at": "created_at + :by"}},
	{"queue", map[string]string{"task": "task + :by", "rank": "rank + :by"}},
	{"event", map[string]string{"k": "k + (:by << 20)", "at": "at + :by"}},
	{"message", map[string]string{"k": "k + (:by << 20)"}},
	{"idempotency", map[string]string{"k": "k + (:by << 20)", "hash": "randomblob(16)"}},
	{"activity", map[string]string{"id": "id + :by", "task": "task + :by", "at": "at + :by"}},
}

// multiply doubles the tasks of a store that is not open, each of which waits for its
// callee, until there are n, within a few seconds for a million. It knows the tables,
// and nothing of what they mean: what is measured on them is what the store does.
func multiply(dir string, n int) (err error) {
	c, err := zombie.OpenConn(filepath.Join(dir, sqlite.FileName), zombie.OpenReadWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := sqlitex.ExecuteTransient(c, "PRAGMA synchronous = OFF", nil); err != nil {
		return err
	}
	// The last copy is to be of now, as tasks come in the order of their numbers.
	if err := sqlitex.ExecuteTransient(c, "UPDATE task SET state_at = state_at - ?1, created_at = created_at - ?1", &sqlitex.ExecOptions{Args: []any{n}}); err != nil {
		return err
	}
	for {
		have, err := sqlitex.ResultInt(c.Prep("SELECT max(n) FROM task"))
		if err != nil {
			return err
		}
		by := min(have, n-have)
		if by <= 0 {
			break
		}
		if err := double(c, have, by); err != nil {
			return err
		}
	}
	if err := sqlitex.ExecuteScript(c, indexKeys, nil); err != nil {
		return err
	}
	return sqlitex.ExecuteTransient(c, "PRAGMA wal_checkpoint(TRUNCATE)", nil)
}

// double adds copies of the first tasks to those that there are.
func double(c *zombie.Conn, have, by int) (err error) {
	defer sqlitex.Save(c)(&err)
	for _, t := range copied {
		var names, values []string
		err := sqlitex.Execute(c, "SELECT name FROM pragma_table_info(?)", &sqlitex.ExecOptions{
			Args: []any{t.table},
			ResultFunc: func(s *zombie.Stmt) error {
				name := s.ColumnText(0)
				value, ok := t.columns[name]
				if !ok {
					value = name
				}
				names, values = append(names, name), append(values, value)
				return nil
			},
		})
		if err != nil {
			return err
		}
		sql := fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s ORDER BY 1 LIMIT %d", t.table,
			strings.Join(names, ", "), strings.ReplaceAll(strings.Join(values, ", "), ":by", fmt.Sprint(have)), t.table, by)
		if err := sqlitex.Execute(c, sql, nil); err != nil {
			return err
		}
	}
	return nil
}

// indexKeys brings the tables that follow from others up to date. Nobody will send the
// copied keys again, so where they are in the index does not matter.
const indexKeys = `
INSERT OR IGNORE INTO idempotency_index SELECT random(), k FROM idempotency ORDER BY 1;
UPDATE meta SET value = (SELECT CAST(max(k) AS TEXT) FROM idempotency) WHERE key = 'keys_indexed';
UPDATE lane SET rank = (SELECT max(rank) FROM queue), open = (SELECT count(*) FROM queue q WHERE q.caller = lane.caller);
`
