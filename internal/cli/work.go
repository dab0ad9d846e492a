package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/holdfast-hub/holdfast/client"
)

const workHelp = `Make an agent of a shell command: it is run for each task of the address. With the
address's own token @handle may be left out; with the admin token, a token of the
address is made for as long as this runs. If it cannot be ended, the next one that is run
on this machine for the address ends it.

The command finds
  the text of the message          on stdin
  the whole task as JSON           in the file that HOLDFAST_TASK_FILE names
  ids                              HOLDFAST_TASK_ID, HOLDFAST_CALL_ID, HOLDFAST_CONTEXT_ID,
                                   HOLDFAST_CLAIM_ID, HOLDFAST_ATTEMPT
  the answer to its question       HOLDFAST_ANSWER, once it has asked one
  the hub, to call on              HOLDFAST_URL, HOLDFAST_TOKEN

so that "holdfast send" in it makes a part of the same run, and
"holdfast reply $HOLDFAST_TASK_ID --state working --text …" tells how far it is, and prints
nothing.

Its exit code decides:
   0  completed; stdout is the artifact, a data part with --json
  12  rejected; stdout, or the end of stderr, says why
  13  it asks the caller; stdout is the question
  14  it needs a permission or credential; stdout says which
  any other: failed, with the end of stderr

When the task is canceled or its lease lost, the command and all it has started get
SIGTERM, and SIGKILL two seconds later. Ctrl-C lets running commands finish.`

type workFlags struct {
	exec             string
	json             bool
	concurrency, max int
	lease, drain     time.Duration
}

func (p *program) workCommand() *cobra.Command {
	var f workFlags
	cmd := &cobra.Command{
		Use: "work [@handle] --exec CMD", Short: "Make an agent of a shell command", Long: workHelp,
		Example: `  holdfast work @upper --exec "tr a-z A-Z"
  holdfast work --token-file coder.token --concurrency 4 --exec ./coder.sh`,
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			if f.exec == "" {
				return usagef(`--exec is missing: the command to run for each task, such as --exec "tr a-z A-Z"`)
			}
			if f.concurrency < 1 || f.max < 0 {
				return usagef("--concurrency has to be at least 1, and --max at least 0")
			}
			return p.work(cmd.Context(), f, args)
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.exec, "exec", "", "shell command to run for each task")
	fl.BoolVar(&f.json, "json", false, "stdout is JSON and becomes a data part")
	fl.IntVar(&f.concurrency, "concurrency", 1, "how many tasks to work on at once")
	fl.IntVar(&f.max, "max", 0, "stop after this many tasks; 0 for never")
	fl.DurationVar(&f.lease, "lease", time.Minute, "how long the hub waits for a sign of life before it offers a task to others")
	fl.DurationVar(&f.drain, "drain", time.Minute, "how long running commands may take to finish after Ctrl-C")
	return cmd
}

func (p *program) work(ctx context.Context, f workFlags, args []string) error {
	s, err := p.station(ctx, args)
	if err != nil {
		return err
	}
	defer s.leave()
	w := &worker{p: p, f: f, station: s}
	if p.words() {
		p.note("Working for @%s at %s; Ctrl-C to stop.", s.handle, s.c.URL())
	}
	n, err := s.c.Serve(ctx, w.handle,
		client.Concurrency(f.concurrency), client.MaxTasks(f.max), client.Lease(f.lease), client.Drain(f.drain))
	if p.words() {
		p.note("Worked on %d tasks.", n)
	}
	return err
}

// station is where a worker works: the hub, its address and the credential for it.
type station struct {
	c             *client.Client
	handle, token string
	leave         func()
}

// station settles as whom to work: the credential's own address, or for the
// administrator the one that was named, with a token for the time being.
func (p *program) station(ctx context.Context, args []string) (station, error) {
	c, handle, err := p.clientMaybeAt(args)
	if err != nil {
		return station{}, err
	}
	a, err := p.access()
	if err != nil {
		return station{}, err
	}
	who, err := c.Whoami(ctx)
	if err != nil {
		return station{}, err
	}
	admin := slices.Contains(who.Roles, "admin")
	switch {
	case handle == "" && admin:
		return station{}, usagef("name the address to work for, such as @coder: this token acts as @%s, the administrator, whom nobody sends tasks", who.Handle)
	case handle == "", handle == who.Handle:
		return station{c: c, handle: who.Handle, token: a.token, leave: func() {}}, nil
	case !admin:
		return station{}, &failure{exit: exitNotAllowed, code: "not_permitted", message: fmt.Sprintf("this token acts as @%s and cannot work for @%s", who.Handle, handle), hint: "Use a token of that address: holdfast tokens add @" + handle}
	}
	return p.lend(ctx, c, handle)
}

// lend makes a token of the address that ends with the worker. What a worker on this
// machine left behind because it was killed, or could not reach the hub any more, ends
// first.
func (p *program) lend(ctx context.Context, admin *client.Client, handle string) (station, error) {
	p.endLeftTokens(ctx, admin, handle)
	t, err := admin.CreateToken(ctx, handle, client.TokenRequest{Name: lentName(os.Getpid())})
	if err != nil {
		return station{}, err
	}
	leave := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if err := admin.RevokeToken(ctx, t.ID); err != nil && !errors.Is(err, client.ErrNotFound) {
			p.note("The token %s of this worker could not be revoked: %v\nTo do it by hand: holdfast tokens revoke %s", t.ID, err, t.ID)
		}
	}
	return station{c: p.clientOf(admin.URL(), t.Token), handle: handle, token: t.Token, leave: leave}, nil
}

// lentName names the token of the worker that is a process of this machine.
func lentName(process int) string {
	host, _ := os.Hostname() // only a name
	return fmt.Sprintf("work on %s, process %d", first(host, "some machine"), process)
}

// endLeftTokens ends the tokens that were lent to workers on this machine that are no more.
// That one cannot be ended keeps nobody from working: the next worker tries again.
func (p *program) endLeftTokens(ctx context.Context, admin *client.Client, handle string) {
	tokens, err := admin.Tokens(ctx, handle)
	if err != nil {
		p.note("The tokens of @%s could not be looked through for those of workers that are no more: %v", handle, err)
		return
	}
	for _, t := range tokens {
		process, lent := lentTo(t.Name)
		if !lent || process != os.Getpid() && unix.Kill(process, 0) != unix.ESRCH {
			continue
		}
		if err := admin.RevokeToken(ctx, t.ID); err != nil && !errors.Is(err, client.ErrNotFound) {
			p.note("The token %s of a worker that is no more could not be revoked: %v", t.ID, err)
		}
	}
}

// lentTo gives the process that a token of this name was lent to, if it was one of this
// machine's.
func lentTo(name string) (process int, ok bool) {
	_, number, found := strings.Cut(name, ", process ")
	process, err := strconv.Atoi(number)
	return process, found && err == nil && process > 0 && name == lentName(process)
}
