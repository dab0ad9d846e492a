package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

//go:embed migrations/*.sql
var migrations embed.FS

// schemaVersion is the newest schema that this binary knows. A database may be
// newer, as long as its oldest_binary is not: migrations expand first.
const schemaVersion = 1

const (
	// migrateLock is the advisory lock of whoever migrates.
	migrateLock = 0x686f6c6466617374 // "holdfast"
	// lockTime is how long a change of the schema may wait for a lock, while all others
	// wait behind it.
	lockTime = 5 * time.Second
	// migrateTime is how long a start waits for another replica that migrates.
	migrateTime = 10 * time.Minute
)

// migrate brings the database to this binary's schema, or refuses one that is not
// Holdfast's or that a much newer Holdfast has changed. Of replicas that start at once
// one migrates, and the others wait for it.
func migrate(ctx context.Context, base *pgx.ConnConfig) (err error) {
	ctx, cancel := context.WithTimeout(ctx, migrateTime)
	defer cancel()
	c, err := connect(ctx, base)
	if err != nil {
		return connectError(base, err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if err := checkServer(ctx, c); err != nil {
		return connectError(base, err)
	}
	// The lock is a transaction's, so that it works through PgBouncer; the migrations
	// run on a connection of their own meanwhile.
	tx, err := c.Begin(ctx)
	if err != nil {
		return connectError(base, err)
	}
	defer func() { err = errors.Join(err, ignoreDone(tx.Rollback(context.WithoutCancel(ctx)))) }()
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrateLock)); err != nil {
		return connectError(base, err)
	}
	current, err := checkOwner(ctx, tx, base.Database)
	if err != nil {
		return connectError(base, err)
	}
	if current >= schemaVersion {
		return nil
	}
	return connectError(base, up(ctx, base))
}

func ignoreDone(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

// up runs the migrations that are missing.
func up(ctx context.Context, base *pgx.ConnConfig) (err error) {
	cfg := base.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	db := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, fmt.Sprintf("SET lock_timeout = %d", lockTime.Milliseconds()))
		return err
	}))
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, dir)
	if err != nil {
		return fmt.Errorf("prepare the migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// checkOwner refuses a database that this binary must not touch, and gives the version
// of its schema, 0 if it is empty.
func checkOwner(ctx context.Context, tx pgx.Tx, name string) (int, error) {
	var tables int
	var meta, goose bool
	err := tx.QueryRow(ctx, `SELECT count(*) FILTER (WHERE c.relname <> 'goose_db_version'), count(*) FILTER (WHERE c.relname = 'meta') > 0,
		count(*) FILTER (WHERE c.relname = 'goose_db_version') > 0
		FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p')`).Scan(&tables, &meta, &goose)
	if err != nil {
		return 0, err
	}
	if tables == 0 {
		return 0, nil
	}
	foreign := hub.Errorf(hub.Invalid, "the database %q is another program's; create one for the hub alone and name it in the database URL", name)
	if !meta || !goose {
		return 0, foreign
	}
	oldest, err := oldestBinary(ctx, tx)
	if err != nil {
		foreign.Cause = err
		return 0, foreign
	}
	if oldest > schemaVersion {
		return 0, hub.Errorf(hub.Invalid, "the database %q was changed by a newer Holdfast (schema %d, this binary knows %d); install that version again", name, oldest, schemaVersion)
	}
	var current sql.NullInt64
	if err := tx.QueryRow(ctx, "SELECT max(version_id) FROM goose_db_version WHERE is_applied").Scan(&current); err != nil {
		return 0, err
	}
	return int(current.Int64), nil
}

// oldestBinary is the schema that a binary must know; an error if the database is not
// Holdfast's.
func oldestBinary(ctx context.Context, tx pgx.Tx) (int, error) {
	var oldest string
	err := tx.QueryRow(ctx, "SELECT value FROM meta WHERE key = 'oldest_binary' AND EXISTS (SELECT 1 FROM meta WHERE key = 'application' AND value = 'holdfast')").Scan(&oldest)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(oldest)
}
