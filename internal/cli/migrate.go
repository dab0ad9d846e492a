package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
)

func (p *program) migrateCommand() *cobra.Command {
	var (
		from, to, direct, keyFile string
		restart, reopen           bool
	)
	cmd := &cobra.Command{
		Use: "migrate --from DIR --to URL", Short: "Move a whole hub from its data directory to PostgreSQL",
		Long: `Copy everything of a hub from its data directory into an empty PostgreSQL database: ids,
tasks and their events, addresses, tokens, sealed secrets. Workers keep their claims, and
clients their tokens; only cursors of the activity feed begin anew. The hub must not be
running.

All of both sides is read again at the end and compared. Then the hub is PostgreSQL's: none
starts on the directory any more. Interrupted, the same command goes on where it was.

The master key is not copied. The replicas need the one that the hub has.`,
		Example: `  holdfast migrate --from /var/lib/holdfast --to postgres://holdfast:password@db:5432/holdfast
  holdfast serve --database-url postgres://holdfast:password@db:5432/holdfast --master-key-file /var/lib/holdfast/master.key`,
		Args: asUsed,
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", first(p.env["HOLDFAST_DATA"], config.Default().Data), "data directory of the hub (HOLDFAST_DATA)")
	f.StringVar(&to, "to", "", "URL of the database; others on this machine may see a password in it (HOLDFAST_DATABASE_URL)")
	f.StringVar(&direct, "direct", "", "URL of the database past a pooler (HOLDFAST_DATABASE_DIRECT_URL)")
	f.StringVar(&keyFile, "master-key-file", p.env["HOLDFAST_MASTER_KEY_FILE"], "file with the master key; master.key in the data directory if empty (HOLDFAST_MASTER_KEY_FILE)")
	f.BoolVar(&restart, "restart", false, "throw away what was copied before, and begin anew")
	f.BoolVar(&reopen, "reopen", false, "let a hub start on the directory again although it was moved; what has happened since is not there")
	cmd.MarkFlagsMutuallyExclusive("reopen", "restart")
	cmd.RunE = p.run(func(cmd *cobra.Command, _ []string) error {
		if err := dataDir(from); err != nil {
			return err
		}
		cfg := config.Default()
		cfg.Data, cfg.MasterKeyFile, cfg.MasterKey = from, keyFile, p.env["HOLDFAST_MASTER_KEY"]
		if reopen {
			return p.reopenMoved(cmd, cfg)
		}
		cfg.DatabaseURL = first(to, p.env["HOLDFAST_DATABASE_URL"])
		cfg.DatabaseDirectURL = first(direct, p.env["HOLDFAST_DATABASE_DIRECT_URL"])
		if cfg.DatabaseURL == "" {
			return usagef("say where to: --to postgres://user:password@host:5432/name")
		}
		moved, err := app.MoveToPostgres(cmd.Context(), cfg, restart, p.logger(cfg), p.moveProgress())
		if err != nil {
			return copyFailure(err)
		}
		return p.showMove(moved)
	})
	return cmd
}

func (p *program) reopenMoved(cmd *cobra.Command, cfg config.Config) error {
	takenBack, err := app.ReopenMoved(cmd.Context(), cfg.Data, p.logger(cfg))
	if err != nil {
		return copyFailure(err)
	}
	p.note("A hub starts on %s again, as it was when it was moved. Stop the one on PostgreSQL for good.", cfg.Data)
	p.note("Tasks that were unfinished then are offered again, also those that were finished since; %d were held by a worker and were taken back.", takenBack)
	return nil
}

// moveProgress tells on stderr how far a move is, on a terminal more often than in a log.
func (p *program) moveProgress() app.MoveProgress {
	every := 10 * time.Second
	if p.words() && isTerminal(p.err) {
		every = time.Second
	}
	next := time.Now().Add(every)
	return func(step, table string, done, total int64) {
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(every)
		verb := map[string]string{"copy": "Copying", "verify": "Verifying"}[step]
		p.note("%s %s: %d of %d", verb, table, done, total)
	}
}

func (p *program) showMove(m app.Move) error {
	rows := map[string]int64{}
	var words []string
	for _, c := range m.Counts {
		rows[c.Table] = c.Rows
		if c.Rows > 0 {
			words = append(words, fmt.Sprintf("%s %d", c.Table, c.Rows))
		}
	}
	v := map[string]any{"rows": rows, "key_id": m.KeyID}
	return p.show(v, "moved", func() error {
		p.note("The hub was moved and verified. Start it with --database-url, and as many replicas of it as you like.")
		switch {
		case m.KeyFile != "":
			p.note("Its secrets are sealed with the master key %s: give each replica --master-key-file with a copy of %s, or its content in HOLDFAST_MASTER_KEY.", m.KeyID, m.KeyFile)
		case m.KeyID != "":
			p.note("Its secrets are sealed with the master key %s: give each replica the same HOLDFAST_MASTER_KEY.", m.KeyID)
		}
		return p.fields(field{"Rows", strings.Join(words, ", ")})
	})
}
