package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// databaseFlags makes flags of where a hub's database is, for commands that also take a
// data directory. Call what it gives once the flags are read: a directory that is named on
// the command line counts before a database in the environment.
func (p *program) databaseFlags(cmd *cobra.Command, cfg *config.Config) func() {
	f := cmd.Flags()
	f.StringVar(&cfg.DatabaseURL, "database-url", "", "URL of the hub's PostgreSQL database, in place of a data directory; others on this machine may see a password in it (HOLDFAST_DATABASE_URL)")
	return func() {
		if !f.Changed("database-url") && !f.Changed("data") {
			cfg.DatabaseURL = p.env["HOLDFAST_DATABASE_URL"]
		}
		if cfg.DatabaseURL != "" {
			cfg.DatabaseDirectURL = p.env["HOLDFAST_DATABASE_DIRECT_URL"]
		}
	}
}

// hubOf says in words which hub the settings name; a database URL has a password in it.
func hubOf(cfg config.Config) string {
	if cfg.DatabaseURL != "" {
		return "the database of --database-url"
	}
	return cfg.Data
}

// databaseFailure gives the error of a database that cannot be used its exit code, and one
// line; nil for another error.
func databaseFailure(err error) error {
	if _, ok := errors.AsType[*app.DatabaseError](err); !ok {
		return nil
	}
	if e, ok := errors.AsType[*hub.Error](err); ok {
		exit := exitError
		if e.Kind == hub.NotFound {
			exit = exitNotFound
		}
		return &failure{exit: exit, code: "database", message: e.Message}
	}
	return &failure{exit: exitError, code: "database", message: strings.Join(strings.Fields(err.Error()), " ")}
}
