package cli

import (
	"bytes"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

const pushHelp = `Push notifications: have the events of a task sent to a URL as they happen.

The hub tries for a time if the URL does not answer, and then gives the event up; what
it gave up is listed by "holdfast push failures" and sent again by "push redeliver".`

func (p *program) pushCommand() *cobra.Command {
	push := &cobra.Command{Use: "push", Short: "Push notifications of the tasks that you sent", Long: pushHelp, Args: asUsed, RunE: p.help}
	push.AddCommand(p.pushList(), p.pushAdd(), p.pushDelete(), p.pushFailures(), p.pushRedeliver())
	return push
}

func (p *program) pushList() *cobra.Command {
	return &cobra.Command{
		Use: "list [@handle] TASK", Short: "List where the events of a task are sent, and how far that has come",
		Example:           "  holdfast push list 0198…",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			t, err := p.taskAt(cmd.Context(), args)
			if err != nil {
				return err
			}
			all, err := t.c.Pushes(cmd.Context(), t.to, t.id)
			if err != nil {
				return err
			}
			return showList(p, list[client.Push]{
				items: all, empty: "The events of this task are sent nowhere. To have them sent: holdfast push add " + t.id + " --to URL",
				id:   func(c client.Push) string { return c.ID },
				head: []string{"ID", "TO", "UP TO EVENT", "GIVEN UP", "NOTE"},
				row: func(c client.Push) []string {
					return []string{c.ID, c.URL, strconv.FormatInt(c.DoneSeq, 10), strconv.Itoa(c.Failed), pushNote(&c)}
				},
			})
		}),
	}
}

// pushNote says what is wrong with a configuration, if anything.
func pushNote(c *client.Push) string {
	if c.Tries == 0 {
		return ""
	}
	return short(fmt.Sprintf("event %d failed %s: %s", c.DoneSeq+1, times(c.Tries), text(c.LastError)))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return strconv.Itoa(n) + " times"
}

// showPush describes one configuration.
func (p *program) showPush(c *client.Push) error {
	scheme := ""
	if c.Authentication != nil {
		scheme = c.Authentication.Scheme
	}
	return p.show(c, c.ID, func() error {
		return p.fields(
			field{"Id", c.ID}, field{"Task", c.TaskID}, field{"To", c.URL}, field{"Authorization", scheme},
			field{"Made", moment(&c.CreatedAt)}, field{"Up to event", strconv.FormatInt(c.DoneSeq, 10)},
			field{"Fails", pushNote(c)}, field{"Fails since", moment(c.FailingSince)}, field{"Next try", moment(c.NextTry)},
		)
	})
}

// pushFlags are those of "push add".
type pushFlags struct{ to, id, scheme, credentials, token string }

func (p *program) pushAdd() *cobra.Command {
	var f pushFlags
	cmd := &cobra.Command{
		Use: "add [@handle] TASK", Short: "Have the events of a task sent to a URL from now on",
		Long: `Have the events of a task sent to a URL from now on; of a task that has ended, its
end. With the --id of one that is there, that one is replaced.

Secrets are read from files, or from stdin with -, so that no other user of this
machine sees them. The hub seals them and never shows them again.`,
		Example: `  holdfast push add 0198… --to https://example.com/hook
  holdfast push add @writer 0198… --to https://example.com/hook --credentials-file key`,
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			r, err := p.pushRequest(cmd, f)
			if err != nil {
				return err
			}
			t, err := p.taskAt(cmd.Context(), args)
			if err != nil {
				return err
			}
			c, err := t.c.AddPush(cmd.Context(), t.to, t.id, r)
			if err != nil {
				return err
			}
			return p.showPush(c)
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.to, "to", "", "the URL to send to")
	fl.StringVar(&f.id, "id", "", "id of the configuration; the hub makes one by default")
	fl.StringVar(&f.credentials, "credentials-file", "", "file with the credentials for the header Authorization")
	fl.StringVar(&f.scheme, "scheme", "Bearer", "scheme of the credentials")
	fl.StringVar(&f.token, "notification-token-file", "", "file with a token that the receiver checks, in a header of its own")
	return cmd
}

// pushRequest reads what the flags name.
func (p *program) pushRequest(cmd *cobra.Command, f pushFlags) (client.PushRequest, error) {
	r := client.PushRequest{ID: f.id, URL: f.to}
	switch {
	case f.to == "":
		return r, misused(cmd, "--to is missing: the URL to send to (--url is that of the hub)")
	case f.credentials == "-" && f.token == "-":
		return r, misused(cmd, "stdin cannot be both the credentials and the token: put one of them into a file")
	}
	var err error
	if f.token != "" {
		if r.Token, err = p.readSecret(f.token); err != nil {
			return r, err
		}
	}
	if f.credentials != "" {
		r.Authentication = &client.PushAuth{Scheme: f.scheme}
		r.Authentication.Credentials, err = p.readSecret(f.credentials)
	}
	return r, err
}

// readSecret reads a secret of one line from a file; - is stdin.
func (p *program) readSecret(name string) (string, error) {
	b, err := p.readInput(name, maxTokenFile)
	if err != nil {
		return "", err
	}
	secret := string(bytes.TrimSpace(b))
	if secret == "" {
		return "", usagef("%s is empty", name)
	}
	return secret, nil
}

func (p *program) pushDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete [@handle] TASK CONFIG", Short: "Have no more events of a task sent", Aliases: []string{"rm"},
		Long:              "Have no more events of a task sent. When this returns, nothing is on its way any more.",
		Example:           "  holdfast push delete 0198… 0199… --yes",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			t, err := p.taskAt(cmd.Context(), args[:last])
			if err != nil {
				return err
			}
			if err := p.confirm(yes, "This deletes the configuration %s with what it still has to send.", args[last]); err != nil {
				return err
			}
			if err := t.c.DeletePush(cmd.Context(), t.to, t.id, args[last]); err != nil {
				return err
			}
			p.note("Nothing more is sent for %s.", args[last])
			return nil
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it without asking")
	return cmd
}

func (p *program) pushFailures() *cobra.Command {
	var (
		task, cursor string
		limit        int
	)
	cmd := &cobra.Command{
		Use: "failures", Short: "List the notifications that were given up, newest first",
		Example: "  holdfast push failures --task 0198…",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, _ []string) error {
			if task != "" && !isTaskID(task) {
				return usagef("%q is no id of a task; holdfast list tasks shows them", task)
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			all, next, err := c.PushFailures(cmd.Context(), task, cursor, limit)
			if err != nil {
				return err
			}
			now := time.Now()
			return showList(p, list[client.PushFailure]{
				items: all, next: next, empty: "No notification was given up.",
				id:   func(x client.PushFailure) string { return x.ID },
				head: []string{"ID", "TASK", "EVENT", "TO", "AGE", "TRIES", "REASON"},
				row: func(x client.PushFailure) []string {
					return []string{x.ID, x.TaskID, strconv.FormatInt(x.Seq, 10), x.URL, ago(x.At.Time, now), strconv.Itoa(x.Tries), short(x.Reason)}
				},
			})
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&task, "task", "", "only those of this task")
	fl.IntVar(&limit, "limit", 0, "how many a page has; 50 by default, at most 100")
	fl.StringVar(&cursor, "page-token", "", "where the page before ended")
	return cmd
}

func (p *program) pushRedeliver() *cobra.Command {
	return &cobra.Command{
		Use: "redeliver ID", Short: "Send a notification that was given up again",
		Long:    "Send a notification that was given up again. The events that followed it are sent once more after it.",
		Example: "  holdfast push redeliver $(holdfast push failures --limit 1 -q)",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			c, err := p.client()
			if err != nil {
				return err
			}
			now, err := c.RedeliverPush(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if p.words() {
				p.note("It is sent again, and what followed it.")
			}
			return p.showPush(now)
		}),
	}
}
