package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

func (p *program) adminTokenCommand() *cobra.Command {
	cfg := config.Default()
	cmd := &cobra.Command{
		Use: "admin-token", Short: "Make a new admin token and revoke the old ones",
		Long: `Make a new admin token for the hub of a data directory or a database, and revoke all
earlier ones. Whoever may use these may do this. The hub of a directory must not be running;
replicas on a database may, and take the old tokens for some seconds more. None must be
started again with a HOLDFAST_ADMIN_TOKEN that was revoked here.`,
		Example: "  holdfast admin-token --data ./holdfast-data",
		Args:    asUsed,
	}
	database := p.databaseFlags(cmd, &cfg)
	cmd.Flags().StringVar(&cfg.Data, "data", first(p.env["HOLDFAST_DATA"], cfg.Data), "data directory of the hub (HOLDFAST_DATA)")
	cmd.RunE = p.run(func(cmd *cobra.Command, _ []string) error {
		database()
		if err := dataOf(cfg); err != nil {
			return err
		}
		if p.env["HOLDFAST_ADMIN_TOKEN"] != "" {
			p.note("HOLDFAST_ADMIN_TOKEN is set here. If that is one of the tokens that are revoked now, the hub will refuse to start with it: unset it where the hub is started, or choose a value that was never used.")
		}
		secret, err := app.ReplaceAdmin(cmd.Context(), cfg, p.logger(cfg))
		if failed := databaseFailure(err); failed != nil {
			return failed
		}
		if e, ok := errors.AsType[*hub.Error](err); ok && e.Kind == hub.Exists {
			return &failure{exit: exitConflict, code: "hub_running", message: e.Message}
		}
		if err != nil {
			return err
		}
		v := map[string]string{"token": secret}
		return p.show(v, secret, func() error {
			p.note("The new admin token, shown only this once; earlier ones are revoked:")
			_, err := fmt.Fprintln(p.out, secret)
			return err
		})
	})
	return cmd
}

// dataOf is dataDir for a hub that may be on a database.
func dataOf(cfg config.Config) error {
	if cfg.DatabaseURL != "" {
		return nil
	}
	return dataDir(cfg.Data)
}

// dataDir refuses a directory that no hub has used: a typing error is no reason to
// begin a new one.
func dataDir(dir string) error {
	used, err := app.HasData(dir)
	if err != nil || used {
		return err
	}
	return &failure{exit: exitNotFound, code: "no_data", message: "there is no hub's data in " + dir, hint: "Name the directory that the hub was started with: --data DIR"}
}
