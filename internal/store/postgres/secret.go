package postgres

import (
	"context"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// sealedRow is a row with a sealed secret, wherever it is kept.
type sealedRow struct {
	sealed []byte
	about  string // exactly as it was given to hub.Sealer
	set    func(t *tx, fresh []byte)
	drop   func(t *tx)
}

// sealedColumns is every place where the store keeps what the vault sealed. A table
// that gets such a column gets a line here, or its secrets cannot be read any more
// after the master key was replaced. Each locks its table against changes.
func sealedColumns() []func(t *tx) ([]sealedRow, error) {
	return []func(t *tx) ([]sealedRow, error){sealedSecrets, sealedPushes, sealedEndpoints}
}

func sealedSecrets(t *tx) (list []sealedRow, err error) {
	t.conn.exec("LOCK TABLE secret IN SHARE ROW EXCLUSIVE MODE")
	err = t.each("SELECT name, sealed FROM secret", nil, func(r row) error {
		name := r.text(0)
		list = append(list, sealedRow{
			sealed: r.blob(1), about: name,
			set:  func(t *tx, fresh []byte) { t.exec("UPDATE secret SET sealed = $2 WHERE name = $1", name, fresh) },
			drop: func(t *tx) { t.exec("DELETE FROM secret WHERE name = $1", name) },
		})
		return nil
	})
	return list, err
}

func sealedPushes(t *tx) (list []sealedRow, err error) {
	t.conn.exec("LOCK TABLE push IN SHARE ROW EXCLUSIVE MODE")
	err = t.each("SELECT task, n, id, sealed FROM push WHERE sealed IS NOT NULL", nil, func(r row) error {
		task, n := r.id(0), r.int(1)
		list = append(list, sealedRow{
			sealed: r.blob(3), about: hub.PushAbout(task.String(), r.text(2)),
			set: func(t *tx, fresh []byte) {
				t.exec("UPDATE push SET sealed = $3 WHERE task = $1 AND n = $2", task, n, fresh)
			},
			drop: func(t *tx) { dropPush(t, task, n) },
		})
		return nil
	})
	return list, err
}

func sealedEndpoints(t *tx) (list []sealedRow, err error) {
	t.conn.exec("LOCK TABLE endpoint IN SHARE ROW EXCLUSIVE MODE")
	err = t.each("SELECT e.address, a.id, e.sealed FROM endpoint e JOIN address a ON a.n = e.address", nil, func(r row) error {
		address := r.int(0)
		list = append(list, sealedRow{
			sealed: r.blob(2), about: hub.EndpointAbout(r.text(1)),
			set: func(t *tx, fresh []byte) {
				t.exec("UPDATE endpoint SET sealed = $2 WHERE address = $1", address, fresh)
			},
			drop: func(t *tx) { t.exec("DELETE FROM endpoint WHERE address = $1", address) },
		})
		return nil
	})
	return list, err
}

// dropPush removes a configuration with all that is its.
func dropPush(t *tx, task uuid.UUID, n int64) {
	t.exec("DELETE FROM push_failure WHERE task = $1 AND push = $2", task, n)
	t.exec("DELETE FROM push WHERE task = $1 AND n = $2", task, n)
	t.exec("UPDATE task SET pushes = pushes - 1 WHERE id = $1", task)
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
	r, err := c.one("SELECT sealed FROM secret WHERE name = $1", name)
	if err != nil {
		return nil, err
	}
	if r == nil {
		return nil, hub.Errorf(hub.NotFound, "there is no such secret")
	}
	return r.blob(0), nil
}

// AddSecret implements hub.Secrets. Where several replicas add one at once, the one that
// commits first is kept, and the others wait for it.
func (s *Store) AddSecret(ctx context.Context, name string, sealed []byte) ([]byte, error) {
	return solo(ctx, s, func(t *tx) ([]byte, error) {
		t.exec("INSERT INTO secret (name, sealed) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", name, sealed)
		return secret(t.conn, name)
	})
}

// Reseal implements hub.Secrets. PostgreSQL overwrites nothing: what is replaced goes
// with the next VACUUM, and stays in the write-ahead log and in backups.
func (s *Store) Reseal(ctx context.Context, f func(sealed []byte, about string) ([]byte, error), name string, value []byte) error {
	return s.solo(ctx, func(t *tx) error {
		t.exec("DELETE FROM secret WHERE name = $1", name)
		for _, rows := range sealedColumns() {
			if f == nil {
				break
			}
			list, err := rows(t)
			if err != nil {
				return err
			}
			for _, r := range list {
				fresh, err := f(r.sealed, r.about)
				switch {
				case err != nil:
					return err
				case len(fresh) == 0:
					r.drop(t)
				default:
					r.set(t, fresh)
				}
			}
		}
		t.exec("INSERT INTO secret (name, sealed) VALUES ($1, $2)", name, value)
		return nil
	})
}
