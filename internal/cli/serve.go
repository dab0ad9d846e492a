package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const serveHelp = `Run a hub until Ctrl-C. Everything it keeps is in the data directory, which only one
hub may use at a time.

At the first start it makes an admin token and prints it on stderr, once. Every
setting can be given in the environment, too: --public-url as HOLDFAST_PUBLIC_URL.`

func (p *program) serveCommand() *cobra.Command {
	cfg := config.Default()
	cmd := &cobra.Command{
		Use: "serve", Short: "Run a hub", Long: serveHelp,
		Example: `  holdfast serve
  holdfast serve --listen :7420 --data /var/lib/holdfast --public-url https://hub.example.com`,
		Args: asUsed,
	}
	addSettings(cmd.Flags(), &cfg)
	cmd.RunE = p.run(func(cmd *cobra.Command, _ []string) error {
		if err := cfg.ApplyEnv(p.lookup, cmd.Flags().Changed); err != nil {
			return usagef("%v", err)
		}
		if err := cfg.Validate(); err != nil {
			return unsettled(err)
		}
		return p.serve(cmd.Context(), cfg)
	})
	return cmd
}

// addSettings makes flags of the settings that may be flags.
func addSettings(f *pflag.FlagSet, cfg *config.Config) {
	for _, s := range cfg.Settings() {
		if s.EnvOnly {
			continue
		}
		flag := f.VarPF(s.Value, s.Name, "", s.Doc+" ("+s.Env()+")")
		if s.Value.Type() == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

func (p *program) lookup(name string) (string, bool) {
	v, ok := p.env[name]
	return v, ok
}

// memoryTarget is from how much memory on Go collects more eagerly, in bytes. It is no
// limit; GOMEMLIMIT in the environment has the last word.
const memoryTarget = 1 << 30

func (p *program) serve(ctx context.Context, cfg config.Config) error {
	if v, _ := p.lookup("GOGC"); v == "" { // the environment has the last word
		defer boundGarbage()()
	}
	if v, _ := p.lookup("GOMEMLIMIT"); v == "" {
		debug.SetMemoryLimit(memoryTarget)
	}
	cfg.Version = version()
	if cfg.TLSCert != "" {
		if _, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey); err != nil {
			return usagef("--tls-cert %s and --tls-key %s cannot be used: %v", cfg.TLSCert, cfg.TLSKey, err)
		}
	}
	served, err := app.New(ctx, cfg, p.logger(cfg))
	if err != nil {
		return unstarted(err)
	}
	if err := served.Banner(p.err); err != nil {
		return err
	}
	return served.Run(ctx)
}

// unsettled gives the error of settings that cannot work its exit code.
func unsettled(err error) error {
	if errors.Is(err, config.ErrDatabaseURL) {
		return &failure{exit: exitError, code: "database", message: err.Error()}
	}
	return usagef("%v", err)
}

// unstarted gives the error of a hub that could not start its exit code.
func unstarted(err error) error {
	if failed := databaseFailure(err); failed != nil {
		return failed
	}
	e, ok := errors.AsType[*hub.Error](err)
	switch {
	case ok && e.Kind == hub.Exists:
		return &failure{exit: exitConflict, code: "in_use", message: e.Message}
	case errors.Is(err, syscall.EADDRINUSE):
		return &failure{exit: exitConflict, code: "in_use", message: err.Error()}
	case ok && e.Kind == hub.Invalid:
		return usagef("%s", e.Message)
	}
	return err
}

func (p *program) logger(cfg config.Config) *slog.Logger {
	opt := &slog.HandlerOptions{Level: cfg.LogLevel}
	if cfg.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(p.err, opt))
	}
	return slog.New(slog.NewTextHandler(p.err, opt))
}
