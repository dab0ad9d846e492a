package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
)

// DatabaseError is why a hub cannot use its PostgreSQL database.
type DatabaseError struct{ err error }

// Error implements error.
func (e *DatabaseError) Error() string { return e.err.Error() }

// Unwrap gives the store's error, which is a hub.Error if it says what to do.
func (e *DatabaseError) Unwrap() error { return e.err }

// upkeepPatience bounds what a command does on a hub's database at once.
const upkeepPatience = 10 * time.Minute

// withPostgres runs f on the database of a hub. There has to be one.
func withPostgres(ctx context.Context, cfg config.Config, log *slog.Logger, f func(*postgres.Store) error) error {
	s, err := postgres.Open(ctx, postgres.Options{
		URL: cfg.DatabaseURL, DirectURL: cfg.DatabaseDirectURL, Log: log, Existing: true, Conns: 2, Patience: upkeepPatience,
	})
	if err != nil {
		return &DatabaseError{err}
	}
	return errors.Join(f(s), s.Close())
}

// FenceRestored makes a hub's database that was restored from a dump ready for its
// replicas, none of which may run: see postgres.Fence.
func FenceRestored(ctx context.Context, cfg config.Config, log *slog.Logger) (takenBack int, err error) {
	err = withPostgres(ctx, cfg, log, func(s *postgres.Store) error {
		takenBack, err = s.Fence(ctx)
		return err
	})
	return takenBack, err
}

// CheckDatabase looks at the database of a hub, changes nothing, and reports whether a hub
// has used it.
func CheckDatabase(ctx context.Context, url string) (used bool, err error) {
	schema, err := postgres.Probe(ctx, url)
	if err != nil {
		return false, &DatabaseError{err}
	}
	return schema > 0, nil
}

// openPostgres opens the store of a hub with replicas, metered.
func (a *App) openPostgres(ctx context.Context) error {
	s, err := postgres.Open(ctx, postgres.Options{
		URL: a.cfg.DatabaseURL, DirectURL: a.cfg.DatabaseDirectURL, Log: a.log, Observe: a.metrics.batch, Changed: a.othersChanged,
	})
	if err != nil {
		return &DatabaseError{err}
	}
	a.store = &meteredStore{Store: s, count: a.metrics.transitions}
	a.alone, a.now = s.Alone, s.Time
	a.metrics.watchQueue(a.store)
	return nil
}

// othersChanged passes on what another replica has changed.
func (a *App) othersChanged(c hub.Change) {
	if heed := a.heed.Load(); heed != nil {
		(*heed)(c)
	}
}

// alwaysAlone is for a hub that has no replicas.
func alwaysAlone(_ context.Context, f func() error) error { return f() }
