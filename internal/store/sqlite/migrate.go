package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
	moderncsqlite "modernc.org/sqlite"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the newest schema that this binary knows. A database may be
// newer, as long as its oldest_binary is not: migrations expand first.
const schemaVersion = 6

// migrate brings the database at path to this binary's schema, or refuses one
// that is not Holdfast's or that a much newer Holdfast has changed.
func migrate(ctx context.Context, path string) (err error) {
	db := sql.OpenDB(connector{dsn: dsn(path)})
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkOwner(ctx, db, path); err != nil {
		return err
	}
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir)
	if err != nil {
		return fmt.Errorf("prepare the migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate the database: %w", err)
	}
	return nil
}

// checkOwner refuses a database that this binary must not touch.
func checkOwner(ctx context.Context, db *sql.DB, path string) error {
	var tables, meta int
	err := db.QueryRowContext(ctx,
		"SELECT count(*), count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'goose_db_version'").Scan(&tables, &meta)
	if err != nil {
		return hub.Wrap(hub.Unavailable, err, "the database %s cannot be opened; check that it is a SQLite file, that the disk works and that the hub's user may write to it", path)
	}
	if tables == 0 {
		return nil
	}
	var oldest string
	if meta > 0 {
		err = db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'oldest_binary' AND EXISTS (SELECT 1 FROM meta WHERE key = 'application' AND value = 'holdfast')").Scan(&oldest)
	}
	n, convErr := strconv.Atoi(oldest)
	if meta == 0 || err != nil || convErr != nil {
		return notOurs(path, err)
	}
	if n > schemaVersion {
		return tooNew(path, n)
	}
	var backup int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM meta WHERE key = ?", backupMark).Scan(&backup); err != nil {
		return fmt.Errorf("look at the database: %w", err)
	}
	if backup > 0 {
		return hub.Errorf(hub.Invalid, "the database %s is a backup, which has to be restored before a hub starts on it: move it out of the data directory, and run holdfast restore", path)
	}
	return nil
}

func notOurs(path string, cause error) error {
	return hub.Wrap(hub.Invalid, cause, "the database %s is not Holdfast's; choose another one", path)
}

func tooNew(path string, needs int) error {
	return hub.Errorf(hub.Invalid, "the database %s was changed by a newer Holdfast (schema %d, this binary knows %d); install that version again", path, needs, schemaVersion)
}

// dsn is the path of a database as the driver of database/sql wants it. The migrations
// sync fully, whatever the store is told.
func dsn(path string) string {
	q := url.Values{"_pragma": {"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)"}}
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path) + "?" + q.Encode()
}

// connector opens connections without registering a driver by name.
type connector struct{ dsn string }

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) { return c.Driver().Open(c.dsn) }

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return &moderncsqlite.Driver{} }
