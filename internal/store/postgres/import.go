package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// moveID is the key in meta of the id of the hub that was copied here, and moveState
	// that of how far it is.
	moveID    = "move_id"
	moveState = "move_state"
	// movePlace and the name of a table is the key of the last row that has arrived.
	movePlace = "move_place_"

	moving = "copying"
	moved  = "done"
)

// Import puts a hub that is copied from another store into an empty database. It
// implements transfer.Target. It works alone: no replica runs on the database meanwhile.
type Import struct {
	c *pgx.Conn
	// weeks are those that have partitions.
	weeks map[time.Time]bool
}

// OpenImport opens a database to copy a hub into it, and makes its tables. Errors are
// those of Open; also Exists if another process copies into it just now.
func OpenImport(ctx context.Context, url string) (_ *Import, err error) {
	cfg, err := poolConfig(&Options{URL: url, Conns: 1})
	if err != nil {
		return nil, err
	}
	if err := migrate(ctx, cfg.ConnConfig, false); err != nil {
		return nil, err
	}
	c, err := connect(ctx, cfg.ConnConfig)
	if err != nil {
		return nil, connectError(cfg.ConnConfig, err)
	}
	var alone bool
	err = c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(importLock)).Scan(&alone)
	if err == nil && !alone {
		err = hub.Errorf(hub.Exists, "another process copies a hub into this database; let it finish")
	}
	if err != nil {
		return nil, errors.Join(connectError(cfg.ConnConfig, err), c.Close(ctx))
	}
	return &Import{c, map[time.Time]bool{}}, nil
}

// importLock is the advisory lock of whoever copies a hub into the database.
const importLock = migrateLock + 2

// Close closes the connection.
func (m *Import) Close() error { return m.c.Close(context.Background()) }

// Begin implements transfer.Target.
func (m *Import) Begin(ctx context.Context, id string, restart bool) (arrived bool, err error) {
	err = m.in(ctx, func(tx pgx.Tx) error {
		have, state, err := moveOf(ctx, tx)
		if err != nil {
			return err
		}
		switch {
		case have == id && state == moved:
			arrived = true
			return nil
		case have == id && state == moving && !restart:
			return nil
		case state == moving && !restart:
			return hub.Errorf(hub.Conflict, "a part of another hub is in this database, or of this one before it ran again; to throw that away and begin anew, add --restart")
		case state == moving:
			if err := truncate(ctx, tx); err != nil {
				return err
			}
		default:
			if err := mustBeEmpty(ctx, tx); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, "INSERT INTO meta VALUES ($1, $2), ($3, $4) ON CONFLICT (key) DO UPDATE SET value = excluded.value", moveID, id, moveState, moving)
		return err
	})
	return arrived, err
}

// moveOf gives the id of the hub that was or is being copied here and how far that is;
// both are empty if none was.
func moveOf(ctx context.Context, tx pgx.Tx) (id, state string, err error) {
	err = tx.QueryRow(ctx, "SELECT coalesce(max(value) FILTER (WHERE key = $1), ''), coalesce(max(value) FILTER (WHERE key = $2), '') FROM meta", moveID, moveState).
		Scan(&id, &state)
	return id, state, err
}

// mustBeEmpty refuses a database that a hub has used, or uses.
func mustBeEmpty(ctx context.Context, tx pgx.Tx) error {
	var used, runs bool
	err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM address) OR EXISTS (SELECT 1 FROM task) OR EXISTS (SELECT 1 FROM secret), EXISTS (SELECT 1 FROM replica WHERE seen_at > clock_timestamp() - "+replicaSilence+")").
		Scan(&used, &runs)
	switch {
	case err != nil:
		return err
	case runs:
		return hub.Errorf(hub.Exists, "a hub runs on this database; stop all its replicas, and name a database that no hub has used")
	case used:
		return hub.Errorf(hub.Exists, "this database has a hub in it already; name one that no hub has used")
	}
	return nil
}

// truncate throws away what has arrived of a hub.
func truncate(ctx context.Context, tx pgx.Tx) error {
	rows, err := tx.Query(ctx, `SELECT c.relname FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace
		AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname NOT IN ('meta', 'goose_db_version')`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for i, name := range names {
		names[i] = pgx.Identifier{name}.Sanitize()
	}
	if _, err := tx.Exec(ctx, "TRUNCATE "+strings.Join(names, ", ")+" RESTART IDENTITY"); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "DELETE FROM meta WHERE starts_with(key, $1)", movePlace)
	return err
}

// Reached implements transfer.Target.
func (m *Import) Reached(ctx context.Context, table string) (int64, error) {
	var place string
	err := m.c.QueryRow(ctx, "SELECT value FROM meta WHERE key = $1", movePlace+table).Scan(&place)
	if errors.Is(err, pgx.ErrNoRows) {
		return -1, nil
	}
	if err != nil {
		return 0, importError(err)
	}
	return strconv.ParseInt(place, 10, 64)
}

// Write implements transfer.Target.
func (m *Import) Write(ctx context.Context, table string, columns []string, rows [][]any, last int64) error {
	if err := addWeeksFor(ctx, m.c, m.weeks, table, columns, rows); err != nil {
		return importError(err)
	}
	return m.in(ctx, func(tx pgx.Tx) error {
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value", movePlace+table, strconv.FormatInt(last, 10))
		return err
	})
}

// All implements transfer.Target.
func (m *Import) All(ctx context.Context, table string, columns []string, f func(row []any) error) error {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = pgx.Identifier{c}.Sanitize()
	}
	rows, err := m.c.Query(ctx, "SELECT "+strings.Join(names, ", ")+" FROM "+pgx.Identifier{table}.Sanitize())
	if err != nil {
		return importError(err)
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return importError(err)
		}
		for i, v := range values {
			values[i] = neutral(v)
		}
		if err := f(values); err != nil {
			return err
		}
	}
	return importError(rows.Err())
}

// neutral is a value as transfer.Source has it.
func neutral(v any) any {
	switch x := v.(type) {
	case int16:
		return int64(x)
	case int32:
		return int64(x)
	case string:
		return []byte(x)
	}
	return v
}

// selfNumbered is the columns that count by themselves, and go on after what was copied.
var selfNumbered = [...][2]string{{"address", "n"}, {"task", "n"}, {"activity", "id"}, {"push_failure", "id"}}

// Finish implements transfer.Target.
func (m *Import) Finish(ctx context.Context) error {
	if _, err := m.c.Exec(ctx, "ANALYZE"); err != nil {
		return importError(err)
	}
	return m.in(ctx, func(tx pgx.Tx) error {
		for _, x := range selfNumbered {
			if _, err := tx.Exec(ctx, fmt.Sprintf("SELECT setval(pg_get_serial_sequence('%s', '%s'), max(%s)) FROM %s HAVING max(%s) IS NOT NULL", x[0], x[1], x[1], x[0], x[1])); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "SELECT setval('push_loan', max(loan)) FROM push HAVING max(loan) > 0"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM meta WHERE starts_with(key, $1)", movePlace); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE meta SET value = $2 WHERE key = $1", moveState, moved)
		return err
	})
}

// in runs f in a transaction.
func (m *Import) in(ctx context.Context, f func(pgx.Tx) error) error {
	return importError(pgx.BeginFunc(ctx, m.c, f))
}

// importError says in one line what an interrupted copy means.
func importError(err error) error {
	var refused *hub.Error
	if err == nil || errors.As(err, &refused) || !broken(err) {
		return err
	}
	return hub.Wrap(hub.Unavailable, err, "the connection to the database broke, or it takes no more just now; run the same command again, and it goes on where it was")
}

// mustBeWhole refuses a database that a hub has been copied into by half.
func mustBeWhole(ctx context.Context, c interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) error {
	var state sql.NullString
	if err := c.QueryRow(ctx, "SELECT max(value) FROM meta WHERE key = $1", moveState).Scan(&state); err != nil {
		return err
	}
	if state.String == moving {
		return hub.Errorf(hub.Invalid, "a hub is being moved into this database and has not arrived yet; run holdfast migrate again to finish that, and then start this")
	}
	return nil
}
