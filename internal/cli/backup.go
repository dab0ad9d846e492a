package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/wire"
)

func (p *program) backupCommand() *cobra.Command {
	var data, to string
	cmd := &cobra.Command{
		Use: "backup --to FILE", Short: "Copy the database of a hub to a file, while it runs",
		Long: `Copy the database of a data directory to a new file, while a hub runs on it or not, and
check the copy. Everything that the hub had acknowledged when this began is in it. The
file appears when it is whole; until then its name ends with ".partial".

The master key is never in it. The secrets in the file are sealed, and whoever has the
file alone cannot read them; but without the key a hub does not start on it. Keep a copy
of the key in another place. Tasks and messages are not sealed: guard the file like the
hub.`,
		Example: "  holdfast backup --data /var/lib/holdfast --to /var/backups/holdfast-$(date +%F).db",
		Args:    asUsed,
	}
	cmd.Flags().StringVar(&data, "data", first(p.env["HOLDFAST_DATA"], config.Default().Data), "data directory of the hub (HOLDFAST_DATA)")
	cmd.Flags().StringVar(&to, "to", "", "file to make; there must be none of that name")
	cmd.RunE = p.run(func(cmd *cobra.Command, _ []string) error {
		if to == "" {
			return usagef("say which file to make: --to FILE")
		}
		if p.env["HOLDFAST_DATABASE_URL"] != "" && !cmd.Flags().Changed("data") {
			return usagef("HOLDFAST_DATABASE_URL says that the hub is in PostgreSQL: back that up with pg_dump or continuous archiving, and a restored database is made ready with holdfast restore --database-url; for a data directory, name it with --data")
		}
		if err := dataDir(data); err != nil {
			return err
		}
		b, err := app.MakeBackup(cmd.Context(), data, to, p.progress())
		if err != nil {
			return copyFailure(err)
		}
		if b.KeyID != "" {
			p.note("Its secrets are sealed with the master key %s, which is not in it. Without that key no hub starts on it: keep a copy in another place.", b.KeyID)
		}
		return p.showBackup(to, b, nil)
	})
	return cmd
}

func (p *program) restoreCommand() *cobra.Command {
	var (
		from  string
		check bool
	)
	cmd := &cobra.Command{
		Use: "restore --from FILE", Short: "Make the database of a hub from a backup, or check one, or make a restored PostgreSQL database ready",
		Long: `Make the database of a data directory from a backup, after checking all of it. The
directory must hold no hub's data. With --check, only check the backup; the exit code is 1
if it is damaged, or if a hub would not start on it because its master key is not there.

The hub then knows what it knew when the backup was taken; what happened since is lost.
Nobody can mistake the restored hub for the lost one: workers that took tasks since are
refused (409) when they report, and tasks that were held are offered again, which counts
as no failure. Tasks that ended since are done once more, and callers have to send again
what they sent since. Tokens that were revoked since are valid again.

The master key is looked for where the hub would: in HOLDFAST_MASTER_KEY, in
--master-key-file, or in the file master.key of the data directory. If it is not there
yet, this says so, and the hub does not start before it is.

A hub in PostgreSQL is backed up and restored with what PostgreSQL has, such as pg_dump and
pg_restore. After that, and before any replica starts, run this with --database-url and
without --from: it sets the hub apart from the lost one in the same way.`,
		Example: `  holdfast restore --from /var/backups/holdfast-2026-03-01.db --check
  holdfast restore --from /var/backups/holdfast-2026-03-01.db --data /var/lib/holdfast
  holdfast restore --database-url postgres://holdfast:password@db:5432/holdfast`,
		Args: asUsed,
	}
	settings := p.dataSettings(cmd)
	cmd.Flags().StringVar(&from, "from", "", "the backup")
	cmd.Flags().BoolVar(&check, "check", false, "only check the backup, and write nothing")
	cmd.RunE = p.run(func(cmd *cobra.Command, _ []string) error {
		cfg, err := settings()
		if err != nil {
			return err
		}
		if cfg.DatabaseURL != "" {
			return p.fenceRestored(cmd, cfg, from != "" || check)
		}
		if from == "" {
			return usagef("say which backup: --from FILE")
		}
		if check {
			return p.checkBackup(cmd, cfg, from)
		}
		b, takenBack, err := app.RestoreBackup(cmd.Context(), cfg, from, p.progress())
		if err != nil {
			return copyFailure(err)
		}
		p.noteRestored(cfg, b, takenBack)
		return p.showBackup(from, b, map[string]any{"data": cfg.Data, "taken_back": takenBack, "key_in_place": b.KeyProblem == nil})
	})
	return cmd
}

// fenceRestored makes a database ready that PostgreSQL's own tools have restored.
func (p *program) fenceRestored(cmd *cobra.Command, cfg config.Config, backup bool) error {
	if backup {
		return usagef("--from and --check are about backups of a data directory; restore a PostgreSQL database with pg_restore first, and then run this with --database-url alone. For a directory, name it with --data")
	}
	takenBack, err := app.FenceRestored(cmd.Context(), cfg, p.logger(cfg))
	if err != nil {
		return keyFailure(err)
	}
	p.note("The hub in the database is set apart from the one before the restore; start its replicas. %d tasks were held by a worker and are offered again; workers that still hold any are refused. Tokens that were revoked since the backup are valid again.", takenBack)
	return p.show(map[string]any{"taken_back": takenBack}, "", func() error { return nil })
}

func (p *program) checkBackup(cmd *cobra.Command, cfg config.Config, file string) error {
	b, err := app.CheckBackup(cmd.Context(), cfg, file, p.progress())
	if err != nil {
		return copyFailure(err)
	}
	p.note("The backup is whole.")
	if err := p.showBackup(file, b, map[string]any{"key_in_place": b.KeyProblem == nil}); err != nil {
		return err
	}
	if b.KeyProblem != nil {
		return &failure{
			exit: exitError, code: "master_key", message: "the backup is whole, but a hub does not start on it: " + publicWords(b.KeyProblem),
			hint: "With --data, --master-key-file or HOLDFAST_MASTER_KEY say where the key is that the hub will have.",
		}
	}
	p.noteKey(b)
	return nil
}

// noteKey says whether the master key that a backup needs is where a hub would look.
func (p *program) noteKey(b app.Backup) {
	switch {
	case b.KeyProblem != nil:
		p.note("WARNING: a hub does not start on this yet: %s.", publicWords(b.KeyProblem))
	case b.KeyID != "":
		p.note("Its master key %s is in place.", b.KeyID)
	}
}

// publicWords is what an error says without its cause.
func publicWords(err error) string {
	if e, ok := errors.AsType[*hub.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

// noteRestored says what is not as it was.
func (p *program) noteRestored(cfg config.Config, b app.Backup, takenBack int) {
	when := "when the copy was made"
	if !b.Taken.IsZero() {
		when = fmt.Sprintf("at %s (%s ago)", b.Taken.Format("2006-01-02 15:04:05 UTC"), ago(b.Taken, time.Now()))
	}
	p.note("The hub in %s is as it was %s. What happened after that is lost:", cfg.Data, when)
	p.note("- Unfinished tasks are offered again, also those that were finished since; %d were held by a worker and were taken back. Workers that still hold any are refused.", takenBack)
	p.note("- Tokens that were revoked since are valid again, and newer ones are not: look at holdfast tokens list, and make a new admin token with holdfast admin-token if it was replaced.")
	p.noteKey(b)
}

// showBackup describes a backup on stdout; more is for programs.
func (p *program) showBackup(file string, b app.Backup, more map[string]any) error {
	v := map[string]any{
		"file": file, "taken_at": nil, "bytes": b.Bytes, "schema": b.Schema,
		"tasks": b.Tasks, "unfinished": b.Unfinished, "key_id": b.KeyID,
	}
	var taken *wire.Time
	if !b.Taken.IsZero() {
		taken = &wire.Time{Time: b.Taken}
		v["taken_at"] = taken
	}
	for name, value := range more {
		v[name] = value
	}
	return p.show(v, file, func() error {
		return p.fields(field{"Backup", file}, field{"Taken", moment(taken)}, field{"Size", megabytes(b.Bytes)},
			field{"Tasks", fmt.Sprintf("%d, of them %d unfinished", b.Tasks, b.Unfinished)}, field{"Master key", b.KeyID})
	})
}

func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// copyFailure gives the error of a backup or restore its exit code.
func copyFailure(err error) error {
	e, ok := errors.AsType[*hub.Error](err)
	if !ok {
		return err
	}
	f := &failure{exit: exitError, code: e.Code, message: e.Message}
	switch e.Kind {
	case hub.Exists:
		f.exit = exitConflict
	case hub.NotFound:
		f.exit = exitNotFound
	case hub.Invalid:
		f.exit = exitUsage
	default:
		f.message = e.Error() // with its cause: whoever runs this owns the files
	}
	return f
}

// progress tells on stderr how far a copy is, on a terminal more often than in a log.
func (p *program) progress() app.Progress {
	every := 10 * time.Second
	if p.words() && isTerminal(p.err) {
		every = time.Second
	}
	next := time.Now().Add(every)
	return func(step string, done, total int64) {
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(every)
		switch step {
		case "copy":
			p.note("Copying: %d %% of %s", done*100/max(1, total), megabytes(total))
		case "check":
			p.note("Checking the copy")
		case "prepare":
			p.note("Preparing the database")
		}
	}
}
