package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// oldestServer is the oldest version of PostgreSQL that has what the store uses.
const oldestServer = 14

// connectTime bounds how long a connection may take to be made.
const connectTime = 5 * time.Second

// poolConfig is how the store connects.
func poolConfig(opt *Options) (*pgxpool.Config, error) {
	if !strings.HasPrefix(opt.URL, "postgres://") && !strings.HasPrefix(opt.URL, "postgresql://") {
		return nil, hub.Errorf(hub.Invalid, "the database URL has to begin with postgres://, as in postgres://user:password@host:5432/holdfast")
	}
	cfg, err := pgxpool.ParseConfig(opt.URL)
	if err != nil {
		// The cause may quote the URL, and with it the password.
		return nil, hub.Errorf(hub.Invalid, "the database URL cannot be read; write it as postgres://user:password@host:5432/holdfast, with special characters in the password percent-encoded")
	}
	switch cfg.ConnConfig.DefaultQueryExecMode {
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec:
	default:
		return nil, hub.Errorf(hub.Invalid, "the database URL has a default_query_exec_mode that the hub cannot use; leave it out, or set it to cache_describe for an old PgBouncer")
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTime
	}
	if _, set := cfg.ConnConfig.RuntimeParams["application_name"]; !set {
		cfg.ConnConfig.RuntimeParams["application_name"] = "holdfast"
	}
	cfg.MaxConns = int32(opt.Conns)
	cfg.MinIdleConns = 1
	cfg.MaxConnLifetimeJitter = 10 * time.Minute
	cfg.HealthCheckPeriod = 10 * time.Second
	return cfg, nil
}

// checkServer refuses a server that is too old, or that takes no writes.
func checkServer(ctx context.Context, c *pgx.Conn) error {
	var number int
	var version string
	var standby bool
	err := c.QueryRow(ctx, "SELECT current_setting('server_version_num')::integer, current_setting('server_version'), pg_is_in_recovery()").
		Scan(&number, &version, &standby)
	if err != nil {
		return err
	}
	if err := checkVersion(number, version); err != nil {
		return err
	}
	if standby {
		return hub.Errorf(hub.Invalid, "the database server is a read-only standby; name the primary in the database URL")
	}
	var encoding string
	if err := c.QueryRow(ctx, "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = current_database()").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return hub.Errorf(hub.Invalid, "the database %s has the encoding %s; create one with ENCODING 'UTF8'", fmt.Sprintf("%q", c.Config().Database), encoding)
	}
	return nil
}

func checkVersion(number int, version string) error {
	if number >= oldestServer*10_000 {
		return nil
	}
	return hub.Errorf(hub.Invalid, "the database server is PostgreSQL %s; the hub needs %d or later", version, oldestServer)
}

// connect makes one connection apart from the pool, which remembers no statements: what
// it is for changes what they are about.
func connect(ctx context.Context, base *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg := base.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeDescribeExec
	return pgx.ConnectConfig(ctx, cfg)
}
