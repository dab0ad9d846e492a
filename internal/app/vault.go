package app

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/signing"
	"github.com/holdfast-hub/holdfast/internal/store/postgres"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
	"github.com/holdfast-hub/holdfast/internal/vault"
)

// MasterKeyFile is the name of the master key's file in a data directory.
const MasterKeyFile = vault.FileName

// openVault opens what seals secrets, and the keys that the hub signs with.
func (a *App) openVault(ctx context.Context) (err error) {
	if a.vault, err = vault.Open(ctx, vaultOptions(a.cfg, a.store, a.log)); err != nil {
		return err
	}
	a.keys, err = signing.Load(ctx, a.store, a.vault)
	return err
}

// checkMasterKey looks at the key of a hub that starts for the first time on its data
// directory, and of one on a database, which may be empty. For any other openVault knows
// better what is wrong.
func (a *App) checkMasterKey() error {
	if a.cfg.DatabaseURL == "" {
		used, err := HasData(a.cfg.Data)
		if err != nil || used {
			return err
		}
	}
	return vault.CheckKey(vaultOptions(a.cfg, nil, a.log))
}

func vaultOptions(cfg config.Config, secrets hub.Secrets, log *slog.Logger) vault.Options {
	o := vault.Options{Secrets: secrets, Value: cfg.MasterKey, File: cfg.MasterKeyFile, Log: log}
	if o.File == "" {
		o.File, o.Make = filepath.Join(cfg.Data, MasterKeyFile), true
	}
	return o
}

// NewMasterKey makes a master key for a hub that takes it from its environment or from
// a file that the operator makes.
func NewMasterKey() (string, error) { return vault.NewKey() }

// RotateMasterKey replaces the master key of a hub that is not running: see
// vault.Rotate. Of cfg, Data and the settings of the master key count.
func RotateMasterKey(ctx context.Context, cfg config.Config, log *slog.Logger) (done vault.Rotated, err error) {
	err = withVault(ctx, cfg, log, func(o vault.Options) error {
		done, err = vault.Rotate(ctx, o)
		return err
	})
	return done, err
}

// ResetMasterKey gives up the secrets of a hub whose master key is lost: see
// vault.Reset. The hub must not be running.
func ResetMasterKey(ctx context.Context, cfg config.Config, log *slog.Logger) (id string, dropped int, err error) {
	err = withVault(ctx, cfg, log, func(o vault.Options) error {
		id, dropped, err = vault.Reset(ctx, o)
		return err
	})
	return id, dropped, err
}

// withVault runs f on the secrets of a hub that is not running.
func withVault(ctx context.Context, cfg config.Config, log *slog.Logger, f func(vault.Options) error) error {
	return withStore(ctx, cfg, log, func(s hub.Store) error {
		if replicas, ok := s.(*postgres.Store); ok {
			if err := replicas.MustBeAlone(ctx); err != nil {
				return err
			}
		}
		return f(vaultOptions(cfg, s, log))
	})
}

// withStore runs f on the store of a hub that is not running, or whose replicas may. There
// has to be one.
func withStore(ctx context.Context, cfg config.Config, log *slog.Logger, f func(hub.Store) error) (err error) {
	if cfg.DatabaseURL != "" {
		return withPostgres(ctx, cfg, log, func(s *postgres.Store) error { return f(s) })
	}
	dataDir := cfg.Data
	if _, err := os.Stat(filepath.Join(dataDir, sqlite.FileName)); err != nil {
		return hub.Wrap(hub.NotFound, err, "there is no hub's data in %s; name the directory with --data", dataDir)
	}
	store, err := sqlite.Open(ctx, sqlite.Options{Dir: dataDir, Log: log})
	if hub.KindOf(err) == hub.Exists {
		return hub.Wrap(hub.Exists, err, "the hub that uses %s is running: stop it, run this again, and start it", dataDir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	return f(store)
}
