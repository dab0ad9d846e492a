package sqlite

import (
	"context"
	"errors"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// sealedColumn is a column with sealed secrets, in a table that has a rowid. When the
// secret of a row is dropped, the row goes.
type sealedColumn struct {
	table, column string
	// about is an expression over the table's columns: what a row's secret was sealed
	// about, exactly as it was given to hub.Sealer.
	about string
}

// sealedColumns is every place where the store keeps what the vault sealed. A table
// that gets such a column gets a line here, or its secrets cannot be read any more
// after the master key was replaced.
func sealedColumns() []sealedColumn {
	return []sealedColumn{
		{table: "secret", column: "sealed", about: "name"},
		{table: "push", column: "sealed", about: "'push/' || (SELECT t.id FROM task t WHERE t.n = push.k >> 20) || '/' || push.id"}, // hub.PushAbout
		{table: "endpoint", column: "sealed", about: "'endpoint/' || (SELECT a.id FROM address a WHERE a.n = endpoint.address)"},    // hub.EndpointAbout
	}
}

// Secret implements hub.Secrets.
func (s *Store) Secret(ctx context.Context, name string) (sealed []byte, err error) {
	err = s.read(ctx, func(c *conn) (err error) {
		sealed, err = secret(c, name)
		return err
	})
	return sealed, err
}

func secret(c *conn, name string) ([]byte, error) {
	r, err := c.one("SELECT sealed FROM secret WHERE name = ?", name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, hub.Errorf(hub.NotFound, "there is no such secret")
	}
	return r.blob(0), nil
}

// AddSecret implements hub.Secrets.
func (s *Store) AddSecret(ctx context.Context, name string, sealed []byte) ([]byte, error) {
	return write(ctx, s, func(t *tx) ([]byte, error) {
		if _, err := t.exec("INSERT INTO secret (name, sealed) VALUES (?, ?) ON CONFLICT DO NOTHING", name, sealed); err != nil {
			return nil, err
		}
		return secret(t.conn, name)
	})
}

// Reseal implements hub.Secrets.
func (s *Store) Reseal(ctx context.Context, f func(sealed []byte, about string) ([]byte, error), name string, value []byte) error {
	return s.write(ctx, func(t *tx) (err error) {
		// Zeros over all that is replaced, so that an old key opens nothing that is left.
		if _, err := t.conn.exec("PRAGMA secure_delete = ON"); err != nil {
			return err
		}
		defer func() {
			_, end := t.conn.exec("PRAGMA secure_delete = FAST")
			err = errors.Join(err, end)
		}()
		if _, err := t.exec("DELETE FROM secret WHERE name = ?", name); err != nil {
			return err
		}
		for _, column := range sealedColumns() {
			if f == nil {
				break
			}
			if err := reseal(t, column, f); err != nil {
				return err
			}
		}
		_, err = t.exec("INSERT INTO secret (name, sealed) VALUES (?, ?)", name, value)
		return err
	})
}

// resealPage is how many secrets are in memory at a time.
const resealPage = 500

// reseal replaces or drops the secrets of a column.
func reseal(t *tx, column sealedColumn, f func(sealed []byte, about string) ([]byte, error)) error {
	for after := int64(-1 << 63); ; {
		page, err := sealedPage(t.conn, column, after)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, row := range page {
			after = row.id
			fresh, err := f(row.sealed, row.about)
			if err != nil {
				return err
			}
			if err := replaceSealed(t, column, row.id, fresh); err != nil {
				return err
			}
		}
	}
}

type sealedRow struct {
	id     int64
	sealed []byte
	about  string
}

func sealedPage(c *conn, column sealedColumn, after int64) (page []sealedRow, err error) {
	err = c.each("SELECT rowid, "+column.column+", "+column.about+" FROM "+column.table+
		" WHERE rowid > ? AND "+column.column+" IS NOT NULL ORDER BY rowid LIMIT ?", []any{after, resealPage},
		func(r row) (bool, error) {
			page = append(page, sealedRow{r.int(0), r.blob(1), r.text(2)})
			return true, nil
		})
	return page, err
}

func replaceSealed(t *tx, column sealedColumn, id int64, fresh []byte) error {
	if len(fresh) == 0 {
		_, err := t.exec("DELETE FROM "+column.table+" WHERE rowid = ?", id)
		return err
	}
	_, err := t.exec("UPDATE "+column.table+" SET "+column.column+" = ? WHERE rowid = ?", fresh, id)
	return err
}
