package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/wire"
)

const sendHelp = `Send a message to an address. It returns once the hub has the task on disk; the
work is done when a worker of the address asks for it, now or after a restart of
anything. TEXT may be - for stdin.

With --wait the result comes on stdout and the exit code tells what became of the
task; see "holdfast help exit-codes". Ctrl-C only stops waiting: the task goes on.

Within the command of "holdfast work --exec" the new task becomes part of the one
being worked on, by HOLDFAST_TASK_ID.`

// sendFlags are those of send. The ones that the a2a command has, too, mean the
// same there.
type sendFlags struct {
	wait, stream, immediate bool
	json, parts, file, data string
	attach                  []string
	task, context           string
	tags                    []string
	parent, key             string
	noParent                bool
	history                 int
	deadline, timeout       time.Duration
}

func (p *program) sendCommand() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use: "send @handle [TEXT…]", Short: "Send a task to an address, or a message to a task", Long: sendHelp,
		Example: `  holdfast send @echo "hello" --wait
  holdfast send @writer --task 0198… "yes, go on" --wait`,
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(atMostOne(cmd, "wait", "stream", "immediate"), atMostOne(cmd, "parent", "no-parent")); err != nil {
				return err
			}
			return p.send(cmd.Context(), f, args[0], args[1:])
		}),
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.wait, "wait", false, "wait until the task has ended or asks something, and print the result")
	fl.BoolVar(&f.stream, "stream", false, "like --wait, and print what happens as it happens")
	fl.BoolVar(&f.immediate, "immediate", false, "return once the task is on disk, which is the default")
	fl.StringVar(&f.json, "json", "", "the message as A2A JSON, instead of TEXT")
	fl.StringVar(&f.parts, "parts", "", "the message's parts as a JSON array")
	fl.StringVar(&f.data, "data", "", "JSON to send as a data part")
	fl.StringVarP(&f.file, "file", "f", "", "file with the message as A2A JSON, - for stdin")
	fl.StringArrayVar(&f.attach, "attach", nil, "file to send as a part (repeatable)")
	fl.StringVar(&f.task, "task", "", "id of the task that the message is for, such as the answer to its question")
	fl.StringVar(&f.context, "context", "", "id of the conversation that the task belongs to")
	fl.StringArrayVar(&f.tags, "tag", nil, "tag of the task, as name=value (repeatable)")
	fl.StringVar(&f.parent, "parent", "", "id of the call that the task is part of")
	fl.BoolVar(&f.noParent, "no-parent", false, "make the task no part of any other, also within work --exec")
	fl.StringVar(&f.key, "idempotency-key", "", "sends with the same key are one send")
	fl.IntVar(&f.history, "history", -1, "how many messages of the history to print")
	fl.DurationVar(&f.deadline, "deadline", 0, "the task fails if it has not ended after this time; 0 for never")
	fl.DurationVar(&f.timeout, "timeout", 0, "with --wait or --stream, stop waiting after this time, with exit code 8; 0 for never")
	return cmd
}

func (p *program) send(ctx context.Context, f sendFlags, ref string, words []string) error {
	out, err := p.composed(f, words)
	if err != nil {
		return err
	}
	c, to, err := p.clientAt(ref)
	if err != nil {
		return err
	}
	if f.key == "" {
		f.key = uuid.NewString()
	}
	opts, err := f.options(out)
	if err != nil {
		return err
	}
	s := &sending{p: p, c: c, to: to, f: f, message: out.message, opts: opts}
	ctx = p.within(ctx)
	if f.stream {
		return s.stream(ctx)
	}
	return s.plain(ctx)
}

// within makes sends part of the task of "work --exec", if this runs in one.
func (p *program) within(ctx context.Context) context.Context {
	id := p.env["HOLDFAST_TASK_ID"]
	if id == "" {
		return ctx
	}
	return client.ContextWithTask(ctx, &client.Task{Task: wire.Task{ID: id, CallID: p.env["HOLDFAST_CALL_ID"]}})
}

// composed is the message that the flags and words make.
func (p *program) composed(f sendFlags, words []string) (outgoing, error) {
	out, sources, err := p.structured(f)
	if err != nil {
		return outgoing{}, err
	}
	if len(words) > 0 {
		sources++
		body := strings.Join(words, " ")
		if body == "-" {
			b, err := p.readInput("-", maxInput)
			if err != nil {
				return outgoing{}, err
			}
			body = strings.TrimSuffix(string(b), "\n")
		}
		out.message.Parts = append(out.message.Parts, client.Text(body))
	}
	if sources > 1 {
		return outgoing{}, usagef("the message is given more than once: use TEXT, --json, --parts or --file; --data and --attach add to any")
	}
	if f.data != "" {
		part, err := parseData(f.data)
		if err != nil {
			return outgoing{}, usagef("--data is no JSON: %v", err)
		}
		out.message.Parts = append(out.message.Parts, part)
	}
	for _, name := range f.attach {
		part, err := p.filePart(name)
		if err != nil {
			return outgoing{}, err
		}
		out.message.Parts = append(out.message.Parts, part)
	}
	if len(out.message.Parts) == 0 {
		return outgoing{}, usagef("there is no message: give TEXT, --data, --attach, --parts, --json or --file")
	}
	return out, nil
}

// structured is the message that comes as JSON, and from how many places.
func (p *program) structured(f sendFlags) (out outgoing, sources int, err error) {
	if f.json != "" {
		sources++
		if out, err = parseMessage([]byte(f.json)); err != nil {
			return out, sources, usagef("--json is no message: %v", err)
		}
	}
	if f.parts != "" {
		sources++
		if out.message.Parts, err = parseParts([]byte(f.parts)); err != nil {
			return out, sources, usagef("--parts is no array of parts: %v", err)
		}
	}
	if f.file != "" {
		sources++
		b, err := p.readInput(f.file, maxInput)
		if err != nil {
			return out, sources, err
		}
		if out, err = parseMessage(b); err != nil {
			return out, sources, usagef("%s holds no message: %v", f.file, err)
		}
	}
	return out, sources, nil
}

func (f sendFlags) options(out outgoing) ([]client.SendOption, error) {
	opts := []client.SendOption{client.WithIdempotencyKey(f.key)}
	if v := first(f.task, out.task); v != "" {
		opts = append(opts, client.WithTask(v))
	}
	if v := first(f.context, out.context); v != "" {
		opts = append(opts, client.WithContext(v))
	}
	if len(f.tags) > 0 {
		tags := map[string]string{}
		for _, t := range f.tags {
			name, value, ok := strings.Cut(t, "=")
			if !ok || name == "" {
				return nil, usagef("--tag %q should be name=value", t)
			}
			tags[name] = value
		}
		opts = append(opts, client.WithTags(tags))
	}
	if f.parent != "" {
		opts = append(opts, client.WithParent(f.parent))
	}
	if f.noParent {
		opts = append(opts, client.WithoutParent())
	}
	if f.deadline > 0 {
		opts = append(opts, client.WithDeadline(time.Now().Add(f.deadline)))
	}
	return opts, nil
}

// addTimeout adds the flag that bounds a command, as the a2a command has it.
func addTimeout(f *pflag.FlagSet) *time.Duration {
	return f.Duration("timeout", 0, "give up after this time, with exit code 8; 0 for never")
}

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// sending is one send under way.
type sending struct {
	p       *program
	c       *client.Client
	to      string
	f       sendFlags
	message client.Message
	opts    []client.SendOption
}

func (s *sending) plain(ctx context.Context) error {
	t, err := s.c.Send(ctx, s.to, s.message, s.opts...)
	if err != nil {
		return s.cutShort(ctx, "", err)
	}
	if !s.f.wait {
		return s.sent(t)
	}
	ctx, cancel := withTimeout(ctx, s.f.timeout)
	defer cancel()
	id := t.ID
	if t, err = s.p.await(ctx, s.c, s.to, id); err != nil {
		return s.cutShort(ctx, id, err)
	}
	cutHistory(t, s.f.history)
	return s.p.settled(s.to, t)
}

// sent tells that the hub has the task.
func (s *sending) sent(t *client.Task) error {
	cutHistory(t, s.f.history)
	return s.p.show(t, t.ID, func() error {
		err := s.p.fields(field{"Task", t.ID}, field{"State", t.State}, field{"To", at(t.Callee)}, field{"Why it waits", t.Hint})
		s.p.note("It is safe on the hub's disk. To see what became of it: holdfast poll %s --wait", t.ID)
		return err
	})
}

func (s *sending) stream(ctx context.Context) error {
	v := s.p.viewer(s.to)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for e, err := range s.c.Stream(ctx, s.to, s.message, s.opts...) {
		if err != nil {
			v.line()
			return s.cutShort(ctx, v.t.ID, err)
		}
		if s.f.timeout > 0 && !v.seen { // the time runs from when the hub has the task
			timer := time.AfterFunc(s.f.timeout, func() { cancel(context.DeadlineExceeded) })
			defer timer.Stop()
		}
		if err := v.event(e); err != nil {
			return err
		}
		if client.Settled(e.State()) {
			break
		}
	}
	return v.end()
}

// cutShort explains an end before the task's: the user's, or the timeout's. The id
// is empty if the hub has not confirmed the task.
func (s *sending) cutShort(ctx context.Context, id string, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if id != "" {
		return s.p.detached(ctx, s.to, id)
	}
	s.p.note("Interrupted before the hub confirmed the task. Sending it again with --idempotency-key %s cannot make it twice.", s.f.key)
	return outcome(exitInterrupted)
}

// detached tells how to come back to a task that goes on.
func (p *program) detached(ctx context.Context, to, id string) error {
	code, why := exitInterrupted, "Interrupted"
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		code, why = exitRunning, "The time is up"
	}
	p.note("%s; task %s goes on. To come back to it: holdfast poll @%s %s --wait", why, id, to, id)
	return outcome(code)
}

// await waits for a task, with a sign of life on a terminal.
func (p *program) await(ctx context.Context, c *client.Client, to, id string) (*client.Task, error) {
	stop := p.spin("waiting for @" + to)
	defer stop()
	return c.Wait(ctx, to, id)
}

// settled prints the end of a wait: the result on stdout, how it ended on stderr
// and in the exit code.
func (p *program) settled(to string, t *client.Task) error {
	err := p.show(t, t.ID, func() error {
		if err := p.result(resultParts(t)); err != nil {
			return err
		}
		p.verdict(to, t, true)
		return nil
	})
	if err != nil {
		return err
	}
	return tell(t.State)
}

// resultParts is what the caller is to read: the artifacts; if there are none, the
// closing message or the question.
func resultParts(t *client.Task) []client.Part {
	var parts []client.Part
	for _, a := range t.Artifacts {
		parts = append(parts, a.Parts...)
	}
	question := t.Settled() && !t.Ended()
	if m := t.Status.Message; m != nil && (question || len(parts) == 0 && t.State == client.StateCompleted) {
		return m.Parts
	}
	return parts
}

// verdict says in words how a task stands; said tells that its question was printed.
func (p *program) verdict(to string, t *client.Task, said bool) {
	why := ""
	if s := oneLine(taskError(&t.Task)); s != "" {
		why = ": " + s
	}
	switch t.State {
	case client.StateCompleted:
		p.note("Task %s is completed.", t.ID)
	case client.StateInputRequired, client.StateAuthRequired:
		if said && isTerminal(p.out) {
			why = "." // it stands right above
		}
		verb, next := "asks", "To answer"
		if t.State == client.StateAuthRequired {
			verb, next = "needs a permission or credential", "Once it has that, or to hand it over"
		}
		p.note("@%s %s%s\n%s: holdfast send @%s --task %s \"…\" --wait", to, verb, why, next, to, t.ID)
	case client.StateFailed, client.StateCanceled, client.StateRejected:
		verb := map[string]string{"failed": "has failed", "canceled": "was canceled", "rejected": "was rejected"}[t.State]
		p.note("Task %s %s%s", t.ID, verb, why)
	default:
		p.note("Task %s is %s.", t.ID, t.State)
		if t.Hint != "" {
			p.note("It waits: %s.", t.Hint)
		}
	}
}

// cutHistory keeps the last n messages; all if n is negative.
func cutHistory(t *client.Task, n int) {
	if n >= 0 && len(t.History) > n {
		t.History = t.History[len(t.History)-n:]
	}
}

// spin shows on a terminal that something goes on. The function that it gives ends
// that.
func (p *program) spin(what string) (stop func()) {
	w, ok := p.err.(*os.File)
	if !ok || !p.words() || !isTerminal(p.err) || p.env["TERM"] == "dumb" {
		return func() {}
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(120 * time.Millisecond)
		defer tick.Stop()
		start, frames := time.Now(), []rune("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
		for i := 0; ; i++ {
			fmt.Fprintf(w, "\r%c %s, %s ", frames[i%len(frames)], what, time.Since(start).Round(time.Second))
			select {
			case <-done:
				fmt.Fprint(w, "\r\x1b[K")
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(done); <-gone }
}
