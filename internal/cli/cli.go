// Package cli is the command line of Holdfast: the hub itself (serve, demo), and the
// commands with which callers, callees and administrators use one from a shell.
//
// Each command has a file of its own. They talk to a hub through the public SDK
// only, so what they can do every program can do. Data goes to stdout, everything
// else to stderr; exit.go has the meaning of the exit codes.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// program is one run of the command line: its surroundings and global flags.
type program struct {
	in       io.Reader
	out, err io.Writer
	env      map[string]string
	hub      hubFlags
	output   outputFlags
	// begun is set once the command line was understood; errors before are of usage.
	begun bool
}

// Main runs the command that args name, without the program's own name, and gives
// its exit code. ctx ends when the user interrupts. env is in the form of
// os.Environ; only Holdfast's own variables, NO_COLOR and TERM are taken from it.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env []string) int {
	p := &program{in: stdin, out: stdout, err: oneAtATime(stderr), env: environment(env)}
	root := p.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !p.begun {
		err = p.usage(err)
	}
	return p.finish(ctx, err)
}

func environment(env []string) map[string]string {
	m := make(map[string]string, len(env))
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}

// oneAtATime makes w safe for the several goroutines that have something to say. A
// file is already.
func oneAtATime(w io.Writer) io.Writer {
	if _, ok := w.(*os.File); ok {
		return w
	}
	return &lockedWriter{w: w}
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

const rootHelp = `Holdfast is a durable task hub for A2A agents. It takes tasks for an address,
keeps them on disk, and hands them to the agent behind it when that asks.

Start a hub with "holdfast serve", or see one at work with "holdfast demo".
Every other command talks to the hub at HOLDFAST_URL (http://127.0.0.1:7420)
as the address of HOLDFAST_TOKEN. Addresses are written @handle.`

// The headings of the list of commands.
const (
	groupHub    = "hub"
	groupCaller = "caller"
	groupCallee = "callee"
	groupAdmin  = "admin"
)

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use: "holdfast", Short: "A durable task hub for A2A agents", Long: rootHelp,
		Version:      versionLine(),
		SilenceUsage: true, SilenceErrors: true,
		Args: asUsed, RunE: p.help,
	}
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return misused(cmd, "%v", err) })
	p.hub.add(root.PersistentFlags())
	p.output.add(root.PersistentFlags())
	root.AddGroup(
		&cobra.Group{ID: groupHub, Title: "The hub:"},
		&cobra.Group{ID: groupCaller, Title: "Callers:"},
		&cobra.Group{ID: groupCallee, Title: "Callees:"},
		&cobra.Group{ID: groupAdmin, Title: "Administration:"},
	)
	in := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	in(groupHub, p.serveCommand(), p.demoCommand(), p.doctorCommand(), p.benchCommand(), p.adminTokenCommand(), p.keysCommand(), p.backupCommand(), p.restoreCommand(), p.migrateCommand())
	in(groupCaller, p.sendCommand(), p.pollCommand(), p.pendingCommand(), p.subscribeCommand(), p.cancelCommand(), p.getCommand(), p.listCommand(), p.pushCommand())
	in(groupCallee, p.workCommand(), p.tunnelCommand(), p.nextCommand(), p.replyCommand())
	in(groupAdmin, p.agentsCommand(), p.tokensCommand(), p.requeueCommand(), p.activityCommand())
	root.AddCommand(p.whoamiCommand(), p.versionCommand(), exitCodesTopic())
	return root
}

// run is the body of a command. Whatever it returns is no error of usage, unless it
// says so itself.
func (p *program) run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := p.output.check(p.env); err != nil {
			return err
		}
		p.begun = true
		return f(cmd, args)
	}
}

// help is the body of a command that only has commands below it.
func (p *program) help(cmd *cobra.Command, _ []string) error {
	p.begun = true
	return cmd.Help()
}

// note tells the user something that is no data.
func (p *program) note(format string, args ...any) {
	fmt.Fprintf(p.err, format+"\n", args...)
}
