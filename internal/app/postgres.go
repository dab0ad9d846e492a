package app

import (
	"context"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
)

// openPostgres opens the store of a hub with replicas, metered.
func (a *App) openPostgres(ctx context.Context) error {
	s, err := postgres.Open(ctx, postgres.Options{
		URL: a.cfg.DatabaseURL, DirectURL: a.cfg.DatabaseDirectURL, Log: a.log, Observe: a.metrics.batch, Changed: a.othersChanged,
	})
	if err != nil {
		return err
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
