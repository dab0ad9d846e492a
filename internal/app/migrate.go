package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
	"github.com/holdfast-hub/holdfast/internal/store/transfer"
	"github.com/holdfast-hub/holdfast/internal/vault"
)

// Move is what MoveToPostgres has moved.
type Move struct {
	// Counts is how many rows each table has, the same on both sides.
	Counts []transfer.Count
	// KeyID is the id of the master key that the hub's secrets are sealed with, which the
	// replicas need; empty if it has none. KeyFile is where it is, if in a file.
	KeyID, KeyFile string
}

// MoveProgress is told how many rows of how many of a table are done. The steps are copy
// and verify.
type MoveProgress = transfer.Progress

// MoveToPostgres copies the hub of a data directory, which must not be running, into an
// empty PostgreSQL database, verifies the copy, and then lets no hub start on the
// directory any more. Interrupted, it goes on when it is called again. With restart, it
// throws away what an earlier call has copied. Of cfg, Data, DatabaseURL,
// DatabaseDirectURL and the settings of the master key count.
func MoveToPostgres(ctx context.Context, cfg config.Config, restart bool, log *slog.Logger, p MoveProgress) (out Move, err error) {
	from, err := sqlite.OpenExport(ctx, sqlite.Options{Dir: cfg.Data, Log: log})
	if hub.KindOf(err) == hub.Exists {
		return out, hub.Wrap(hub.Exists, err, "the hub that uses %s is running: stop it, run this again, and start it with --database-url", cfg.Data)
	}
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	url := cfg.DatabaseURL
	if cfg.DatabaseDirectURL != "" { // no pooler is needed here
		url = cfg.DatabaseDirectURL
	}
	to, err := postgres.OpenImport(ctx, url)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if out.Counts, err = transfer.Copy(ctx, from, to, restart, p); err != nil {
		return out, err
	}
	opt := vaultOptions(cfg, nil, log)
	out.KeyID, _ = vault.Check(ctx, from, opt)
	if out.KeyID != "" && opt.Value == "" {
		out.KeyFile = opt.File
	}
	return out, from.Moved(ctx)
}

// ReopenMoved makes a hub that was moved start again on its old data directory, and says
// how many claims were taken back: see sqlite.Reopen.
func ReopenMoved(ctx context.Context, dataDir string, log *slog.Logger) (takenBack int, err error) {
	return sqlite.Reopen(ctx, sqlite.Options{Dir: dataDir, Log: log})
}
