package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
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
// newer, as long as its oldest_binary is not: migrations expand first, for replicas of the
// version before run on while one of this migrates. Each changes one table, so that it
// waits for no lock while it holds another. An index is built CONCURRENTLY, in a migration
// with NO TRANSACTION that first drops what a build that broke off may have left of it;
// that of a partitioned table on each partition, and then ON ONLY the table.
const schemaVersion = 3

const (
	// migrateLock is the advisory lock of whoever migrates.
	migrateLock = 0x686f6c6466617374 // "holdfast"
	// lockTime is how long a change of the schema may wait for a lock, while all others
	// wait behind it.
	lockTime = 5 * time.Second
	// askEvery is how often a start asks whether another replica has finished.
	askEvery = 100 * time.Millisecond
	// migrateTime is how long a start waits for another replica that migrates.
	migrateTime = 10 * time.Minute
)

// migrate brings the database to this binary's schema, or refuses one that is not
// Holdfast's or that a much newer Holdfast has changed. Of replicas that start at once
// one migrates, and the others wait for it. If existing is set, it makes no hub's tables
// where there are none.
func migrate(ctx context.Context, base *pgx.ConnConfig, existing bool) (err error) {
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
	tx, err := lockMigrations(ctx, c)
	if err != nil {
		return connectError(base, err)
	}
	defer func() { err = errors.Join(err, ignoreDone(tx.Rollback(context.WithoutCancel(ctx)))) }()
	current, err := checkOwner(ctx, tx, base.Database)
	if err != nil {
		return connectError(base, err)
	}
	switch {
	case current >= schemaVersion:
		return nil
	case current == 0 && existing:
		return hub.Errorf(hub.NotFound, "no hub has used the database %q yet; name the one that the replicas have in their database URL", base.Database)
	}
	// What was read above keeps its snapshot until the next statement of this kind, and an
	// index that is built CONCURRENTLY waits for it.
	if _, err := tx.Exec(ctx, "SELECT 1"); err != nil {
		return connectError(base, err)
	}
	err = up(ctx, base)
	for try := 1; conflicted(err) && try < triesMax; try++ {
		err = up(ctx, base)
	}
	if err == nil {
		err = noteFirst(ctx, tx)
	}
	return connectError(base, err)
}

// firstKey is the key in meta of what firstMigration gives.
const firstKey = "first_migration"

// firstMigration tells the first migration, which is edited in place until the first
// release, from its other forms. No database goes from one of them to another.
func firstMigration() (string, error) {
	sql, err := migrations.ReadFile("migrations/00001_init.sql")
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(sql)
	return hex.EncodeToString(sum[:8]), nil
}

// noteFirst notes with which form of it the database was made, and ends the transaction.
func noteFirst(ctx context.Context, tx pgx.Tx) error {
	first, err := firstMigration()
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "INSERT INTO meta VALUES ($1, $2) ON CONFLICT (key) DO NOTHING", firstKey, first); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// checkFirst refuses a database that was made with another form.
func checkFirst(ctx context.Context, tx pgx.Tx, name string) error {
	first, err := firstMigration()
	if err != nil {
		return err
	}
	var other bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM meta WHERE key = $1 AND value <> $2)", firstKey, first).Scan(&other); err != nil || !other {
		return err
	}
	return hub.Errorf(hub.Invalid, "the database %q was made by a build from before the first release, which has other tables; use that build, or a new database", name)
}

// Probe looks at a database as Open would, changes nothing, and gives the version of its
// schema: 0 if no hub has used it. Errors are those of Open.
func Probe(ctx context.Context, url string) (schema int, err error) {
	cfg, err := poolConfig(&Options{URL: url, Conns: 1})
	if err != nil {
		return 0, err
	}
	c, err := connect(ctx, cfg.ConnConfig)
	if err != nil {
		return 0, connectError(cfg.ConnConfig, err)
	}
	defer func() { _ = c.Close(context.WithoutCancel(ctx)) }()
	if err := checkServer(ctx, c); err != nil {
		return 0, connectError(cfg.ConnConfig, err)
	}
	err = pgx.BeginTxFunc(ctx, c, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		schema, err = checkOwner(ctx, tx, cfg.ConnConfig.Database)
		return err
	})
	return schema, connectError(cfg.ConnConfig, err)
}

// lockMigrations waits until nobody else migrates, and gives the transaction that has the
// lock: a transaction's, so that it works through PgBouncer. The migrations run on a
// connection of their own meanwhile. It asks now and then: a statement that waits for the
// lock would itself be waited for by an index that is built CONCURRENTLY.
func lockMigrations(ctx context.Context, c *pgx.Conn) (pgx.Tx, error) {
	again := time.NewTicker(askEvery)
	defer again.Stop()
	for {
		tx, err := c.Begin(ctx)
		if err != nil {
			return nil, err
		}
		var locked bool
		if err := tx.QueryRow(ctx, "SELECT pg_try_advisory_xact_lock($1)", int64(migrateLock)).Scan(&locked); err != nil || locked {
			return tx, err
		}
		if err := tx.Rollback(ctx); err != nil {
			return nil, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
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
	if broken(err) || forbidden(err) {
		return 0, err
	}
	if err != nil {
		foreign.Cause = err
		return 0, foreign
	}
	if oldest > schemaVersion {
		return 0, hub.Errorf(hub.Invalid, "the database %q was changed by a newer Holdfast (schema %d, this binary knows %d); install that version again", name, oldest, schemaVersion)
	}
	if err := checkFirst(ctx, tx, name); err != nil {
		return 0, err
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
