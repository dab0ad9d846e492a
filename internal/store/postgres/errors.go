package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// unavailable is the answer while the database does not work.
func unavailable(cause error) *hub.Error {
	e := hub.Wrap(hub.Unavailable, cause, "the hub's database cannot be used just now and nothing was changed; try again")
	e.RetryAfter = time.Second
	return e
}

// unknown is the answer when the connection was lost while a transaction was committed.
func unknown(cause error) *hub.Error {
	e := hub.Doubtful(cause, "the hub lost its database at this very moment, so this may have happened or not; try again, with the same idempotency key if there was one")
	e.RetryAfter = time.Second
	return e
}

func errClosed() *hub.Error {
	return hub.Errorf(hub.Unavailable, "the hub is shutting down; try again")
}

// storeError turns a failure of the database into what the hub answers: a database that
// cannot work just now is Unavailable, everything else is a bug. ctx is the request's.
func storeError(ctx context.Context, err error) error {
	var refused *hub.Error
	switch {
	case err == nil || errors.As(err, &refused):
		return err
	case ctx.Err() != nil:
		return gone(ctx)
	case broken(err):
		return unavailable(err)
	}
	return err
}

// gone is what a caller is told whose context ended: a deadline means that the database
// was too slow, anything else that the caller itself has left.
func gone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return unknown(ctx.Err())
	}
	return ctx.Err()
}

// The classes of SQLSTATE that say that the database itself fails, not the statement.
var brokenClasses = [...]string{
	"08", // connection
	"25", // of the transaction: read-only, ended because it was idle
	"53", // out of resources
	"57", // operator intervention: shutdown, canceled
	"58", // system error
	"XX", // internal error
	"55", // not available: a lock
}

// broken reports whether err says that the database cannot work just now.
func broken(err error) bool {
	if err == nil {
		return false
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return true
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		for _, class := range brokenClasses {
			if strings.HasPrefix(pg.Code, class) {
				return true
			}
		}
		return conflicted(err)
	}
	var netErr net.Error
	var connect *pgconn.ConnectError
	// What is no answer of the server is one that did not come.
	return errors.As(err, &netErr) || errors.As(err, &connect) || pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn") ||
		strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "closed pool")
}

// rejected reports whether the database has said no to a transaction, which then did not
// take place. Any other error may have hidden a yes.
func rejected(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (conflicted(err) || !broken(err))
}

// conflicted reports whether a transaction only met another one and may be run again.
func conflicted(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "40P01" || pg.Code == "40001" || pg.Code == "55P03")
}

// forbidden reports whether the database's user has no right to do this.
func forbidden(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

// connectError says in one line why a hub cannot use its database and what to do. It
// names the server, never the password.
func connectError(cfg *pgx.ConnConfig, err error) error {
	var refused *hub.Error
	if err == nil || errors.As(err, &refused) {
		return err
	}
	where := fmt.Sprintf("the database %q at %s", cfg.Database, net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port)))
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch pg.Code {
		case "28P01", "28000":
			return hub.Wrap(hub.Invalid, err, "%s refuses the user %q; check the user and password in the database URL and the server's pg_hba.conf", where, cfg.User)
		case "3D000":
			return hub.Wrap(hub.Invalid, err, "%s does not exist; create it (CREATE DATABASE %s) or name another in the database URL", where, pgx.Identifier{cfg.Database}.Sanitize())
		case "42501":
			return hub.Wrap(hub.Invalid, err, "the user %q may not create or use tables in %s; make it the database's owner (ALTER DATABASE … OWNER TO …)", cfg.User, where)
		case "53300":
			return hub.Wrap(hub.Unavailable, err, "%s has no connection left; raise its max_connections or stop what else uses it", where)
		case "57P03":
			return hub.Wrap(hub.Unavailable, err, "%s is starting or stopping; try again", where)
		case "55P03":
			return hub.Wrap(hub.Unavailable, err, "%s is being used or migrated by another program that holds its tables; try again", where)
		}
		return fmt.Errorf("use %s: %w", where, err)
	}
	return hub.Wrap(hub.Unavailable, err, "%s cannot be reached; check that it runs, that host and port in the database URL are right and that no firewall is in between", where)
}
