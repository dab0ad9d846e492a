package cli

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

func (p *program) keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "keys", Short: "Make, replace or give up the master key that secrets are sealed with",
		Args: asUsed, RunE: p.help,
	}
	cmd.AddCommand(p.keysNew(), p.keysRotate(), p.keysReset())
	return cmd
}

// keySettings is dataSettings for a directory that holds data.
func (p *program) keySettings(cmd *cobra.Command) func() (config.Config, error) {
	settings := p.dataSettings(cmd)
	return func() (config.Config, error) {
		cfg, err := settings()
		if err != nil {
			return cfg, err
		}
		return cfg, dataOf(cfg)
	}
}

// dataSettings takes where a hub's data and its master key are: flags of cmd, else the
// environment. Call what it gives once the flags are read.
func (p *program) dataSettings(cmd *cobra.Command) func() (config.Config, error) {
	cfg := config.Default()
	cmd.Flags().StringVar(&cfg.Data, "data", first(p.env["HOLDFAST_DATA"], cfg.Data), "data directory of the hub (HOLDFAST_DATA)")
	cmd.Flags().StringVar(&cfg.MasterKeyFile, "master-key-file", p.env["HOLDFAST_MASTER_KEY_FILE"], "file with the master key; master.key in the data directory if empty (HOLDFAST_MASTER_KEY_FILE)")
	database := p.databaseFlags(cmd, &cfg)
	return func() (config.Config, error) {
		database()
		cfg.MasterKey = p.env["HOLDFAST_MASTER_KEY"]
		if err := cfg.Validate(); err != nil {
			return cfg, unsettled(err)
		}
		return cfg, nil
	}
}

// keyFailure gives the error of a command on a hub's keys its exit code.
func keyFailure(err error) error {
	if failed := databaseFailure(err); failed != nil {
		return failed
	}
	e, ok := errors.AsType[*hub.Error](err)
	if !ok {
		return err
	}
	f := &failure{exit: exitError, code: e.Code, message: e.Message}
	switch e.Kind {
	case hub.Exists:
		f.exit, f.code = exitConflict, "hub_running"
	case hub.Conflict:
		f.exit = exitConflict
	case hub.Invalid:
		f.exit = exitUsage
	default:
		f.message = e.Error() // with its cause: whoever runs this owns the files
	}
	return f
}

func (p *program) keysNew() *cobra.Command {
	return &cobra.Command{
		Use: "new", Short: "Print a new master key",
		Long: `Print a new master key, for a hub that takes it from HOLDFAST_MASTER_KEY or from a
--master-key-file. A hub that has secrets already takes no other key than its own: to
replace that, use "holdfast keys rotate".`,
		Example: "  (umask 077; holdfast keys new > /etc/holdfast/master.key)",
		Args:    asUsed,
		RunE: p.run(func(*cobra.Command, []string) error {
			key, err := app.NewMasterKey()
			if err != nil {
				return err
			}
			return p.showKey(key)
		}),
	}
}

// showKey prints a master key and nothing else, so that it can go into a file.
func (p *program) showKey(key string) error {
	return p.show(map[string]string{"master_key": key}, key, func() error {
		_, err := fmt.Fprintln(p.out, key)
		return err
	})
}

func (p *program) keysRotate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate", Short: "Replace the master key and seal all secrets anew",
		Long: `Replace the master key of the hub of a data directory or a database, and seal all its
secrets with the new one. Neither the hub nor any replica must be running. If this is interrupted, the hub starts all the
same; run it again to finish.

A key in a file is replaced in that file; replicas on other machines need a copy of it. A key in HOLDFAST_MASTER_KEY has to be replaced
by you: the new one is printed, and until the hub has started with it once, the old one
works, too. Run this again with the old one to see the new one again.

Copies of the database from before still need the key that they were made with.`,
		Example: "  holdfast keys rotate --data ./holdfast-data",
		Args:    asUsed,
	}
	settings := p.keySettings(cmd)
	cmd.RunE = p.run(func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings()
		if err != nil {
			return err
		}
		done, err := app.RotateMasterKey(cmd.Context(), cfg, p.logger(cfg))
		if err != nil {
			return keyFailure(err)
		}
		what := "The master key %s was replaced with %s."
		if done.Resumed {
			what = "The master key %s had been replaced with %s already, and that is finished now."
		}
		if done.Value == "" {
			file := first(cfg.MasterKeyFile, filepath.Join(cfg.Data, app.MasterKeyFile))
			p.note(what+" The new one is in %s: copy it to where you keep it, apart from backups of the data, and keep the old one as long as backups need it.", done.Old, done.New, file)
			return p.show(map[string]string{"key_id": done.New, "file": file}, done.New, func() error { return nil })
		}
		if done.Resumed {
			what = "The master key %s was replaced with %s before; this is that one again."
		}
		p.note(what+" Start the hub with this HOLDFAST_MASTER_KEY from now on; the old value works until the hub has started with the new one:", done.Old, done.New)
		return p.showKey(done.Value)
	})
	return cmd
}

func (p *program) keysReset() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reset", Short: "Give up the sealed secrets, when their master key is lost",
		Long: `Drop every secret that the present master key cannot open, and go on with that key. If the
hub takes it from a file and there is none, one is made. Neither the hub nor any replica
must be running.

This is for a master key that is lost for good. Tasks, addresses and tokens are not
sealed and stay. What is lost: push-notification configurations that have a token or
credentials, so their callers are not notified any more; and the keys that sign agent
cards and notifications, which are made anew, so whoever remembers the old public keys
has to fetch the new ones.`,
		Example: "  holdfast keys reset --data ./holdfast-data --yes",
		Args:    asUsed,
	}
	settings := p.keySettings(cmd)
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it without asking")
	cmd.RunE = p.run(func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings()
		if err != nil {
			return err
		}
		if err := p.confirm(yes, "This drops the secrets of the hub in %s that its master key cannot open.", hubOf(cfg)); err != nil {
			return err
		}
		id, dropped, err := app.ResetMasterKey(cmd.Context(), cfg, p.logger(cfg))
		if err != nil {
			return keyFailure(err)
		}
		p.note("%d secrets were dropped. The master key is %s.", dropped, id)
		return p.show(map[string]any{"key_id": id, "dropped": dropped}, id, func() error { return nil })
	})
	return cmd
}
