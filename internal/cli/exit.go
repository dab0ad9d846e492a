package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/wire"
)

// The exit codes. Scripts depend on them: a number never changes its meaning.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitNotAllowed  = 4
	exitConflict    = 5
	exitUnreachable = 6
	exitRunning     = 8
	exitFailed      = 10
	exitCanceled    = 11
	exitRejected    = 12
	exitInput       = 13
	exitAuth        = 14
	exitInterrupted = 130
)

const exitCodesHelp = `Exit codes:

    0  success
    1  an error that no other code fits
    2  usage: the command line, or what was sent, can never work as it is
    3  not found, or not yours to see
    4  not permitted, or not authenticated
    5  conflict: the name is taken, the task has ended, the claim has lapsed, another
       hub uses the data directory
    6  the hub cannot be reached
    8  not done yet: the task still runs, or nothing came within the time

What became of the task, from send --wait, send --stream, subscribe and poll:

    0  completed
    8  it still runs
   10  failed
   11  canceled
   12  rejected
   13  the callee asks a question
   14  the callee needs a permission or credential

  130  interrupted by Ctrl-C; a task that was sent goes on

The command of "work --exec" answers with a code, too; see "holdfast work --help".`

// exitCodesTopic is no command but a page of the help.
func exitCodesTopic() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "What the exit codes mean", Long: exitCodesHelp}
}

// failure is an error with its exit code and what to do about it.
type failure struct {
	exit      int
	code      string // stable, for programs
	message   string
	hint      string // may be empty
	requestID string // may be empty
	logged    bool   // the hub's log tells more than the message
}

// Error implements error.
func (f *failure) Error() string { return f.message }

// outcome ends the program with a code after everything has been said.
type outcome int

// Error implements error.
func (o outcome) Error() string { return fmt.Sprintf("exit code %d", int(o)) }

// usagef is an error of usage.
func usagef(format string, args ...any) error {
	return &failure{exit: exitUsage, code: "usage", message: fmt.Sprintf(format, args...)}
}

// usage makes what cobra says of a command line an error of usage.
func (p *program) usage(err error) error {
	if _, ok := errors.AsType[*failure](err); ok {
		return err
	}
	return &failure{exit: exitUsage, code: "usage", message: strings.TrimSpace(err.Error()), hint: "holdfast help shows the commands, and holdfast COMMAND --help how to use one"}
}

// stateExit is the exit code that tells what became of a task.
func stateExit(state string) int {
	switch state {
	case client.StateCompleted:
		return exitOK
	case client.StateFailed:
		return exitFailed
	case client.StateCanceled:
		return exitCanceled
	case client.StateRejected:
		return exitRejected
	case client.StateInputRequired:
		return exitInput
	case client.StateAuthRequired:
		return exitAuth
	}
	return exitRunning
}

// tell ends the program with the code of a state.
func tell(state string) error {
	if code := stateExit(state); code != exitOK {
		return outcome(code)
	}
	return nil
}

// finish says what went wrong, if anything, and gives the exit code.
func (p *program) finish(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	if o, ok := errors.AsType[outcome](err); ok {
		return int(o)
	}
	f := p.classify(ctx, err)
	p.complain(f)
	return f.exit
}

// complain writes an error to stderr: in words, or as JSON for programs.
func (p *program) complain(f *failure) {
	if p.output.machine() {
		type body struct {
			Code      string `json:"code"`
			Message   string `json:"message"`
			Hint      string `json:"hint,omitempty"`
			RequestID string `json:"request_id,omitempty"`
		}
		_ = writeJSON(p.err, map[string]body{"error": {f.code, f.message, f.hint, f.requestID}}, false) // nowhere else to say it
		return
	}
	p.note("holdfast: %s", clean(f.message))
	if f.hint != "" {
		p.note("%s", f.hint)
	}
	if f.logged && f.requestID != "" {
		p.note("The hub's log has more under request %s.", f.requestID)
	}
}

// classify gives an error its exit code and a hint.
func (p *program) classify(ctx context.Context, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	f := &failure{exit: exitError, code: "error", message: err.Error()}
	if e, ok := errors.AsType[*client.Error](err); ok {
		f.code, f.message, f.requestID, f.logged = e.Code, e.Message, e.RequestID, e.Status >= 500
		if field, ok := e.Details["field"].(string); ok && field != "" {
			f.message += " (field " + field + ")"
		}
	}
	switch {
	case ctx.Err() != nil:
		f.exit, f.code, f.message = exitInterrupted, "interrupted", "interrupted"
	case errors.Is(err, client.ErrUnreachable):
		f.exit, f.code, f.hint = exitUnreachable, "unreachable", p.unreachableHint(err)
	case errors.Is(err, context.DeadlineExceeded):
		f.exit, f.code, f.hint = exitRunning, "timeout", "Give it more time with --timeout."
	case errors.Is(err, client.ErrUnauthenticated):
		f.exit, f.hint = exitNotAllowed, "Set HOLDFAST_TOKEN, or give --token-file. Whoever holds the hub's data directory can make a new admin token with: holdfast admin-token"
	case errors.Is(err, client.ErrNotPermitted):
		f.exit = exitNotAllowed
		p.ifMissing(ctx, f)
	case errors.Is(err, client.ErrNotFound):
		f.exit = exitNotFound
	case conflict(err):
		f.exit, f.hint = exitConflict, p.endedHint(err)
		if f.code == "error" {
			f.code = "conflict"
		}
	case errors.Is(err, client.ErrInvalid), errors.Is(err, client.ErrTooLarge):
		f.exit = exitUsage
		if f.code == "error" {
			f.code = "invalid"
		}
	}
	return f
}

// endedHint says what can be done where a task takes no more messages.
func (p *program) endedHint(err error) string {
	if !errors.Is(err, client.ErrEnded) {
		return ""
	}
	return fmt.Sprintf("To see how it ended: holdfast get task ID\nTo send a new task: holdfast send @%s TEXT, with --context CONTEXT_ID to go on from there", first(p.hub.handle, "HANDLE"))
}

func conflict(err error) bool {
	for _, target := range []error{
		client.ErrConflict, client.ErrEnded, client.ErrNotCancelable, client.ErrLeaseLost, client.ErrCanceled, client.ErrSettled,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// unreachableHint says what to do about a hub that cannot be reached.
func (p *program) unreachableHint(err error) string {
	url := first(p.hub.used, defaultURL)
	host := strings.TrimPrefix(strings.TrimPrefix(url, "http://"), "https://")
	var name x509.HostnameError
	e, answered := errors.AsType[*client.Error](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case answered && e.Code == client.CodeHTTPSRequired:
		return "The hub there speaks HTTPS; try https://" + host
	case errors.Is(err, http.ErrSchemeMismatch):
		return "The hub there speaks plain HTTP; try http://" + host
	case errors.As(err, &name):
		return "The certificate is for other names than this URL has; use one of them."
	case untrusted:
		return "The certificate is not trusted; set SSL_CERT_FILE to the file of its CA, or use http://… if the hub speaks that."
	}
	return fmt.Sprintf("Is a hub running at %s? Start one with: holdfast serve. Another hub is chosen with --url or HOLDFAST_URL.", url)
}

// ifMissing says what "not permitted" means to the administrator, who may call every
// address: that there is none. Others are not told which of the two it is.
func (p *program) ifMissing(ctx context.Context, f *failure) {
	if p.hub.asked == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	who, err := p.hub.asked.Whoami(ctx)
	if err != nil || !slices.Contains(who.Roles, "admin") {
		return
	}
	if _, err := p.hub.asked.Agent(ctx, p.hub.handle); !errors.Is(err, client.ErrNotFound) {
		return
	}
	f.exit, f.code = exitNotFound, "not_found"
	f.message, f.hint = "there is no address @"+p.hub.handle, "holdfast agents list shows them."
}

// taskError is the text that tells why a task ended as it did, if there is one.
func taskError(t *wire.Task) string {
	if t.Error != nil {
		return *t.Error
	}
	if t.Status.Message != nil {
		return client.PartText(t.Status.Message.Parts)
	}
	return ""
}
