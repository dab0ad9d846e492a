package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

func (p *program) whoamiCommand() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "Say which hub you talk to, and as whom",
		Example: "  holdfast whoami",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.client()
			if err != nil {
				return err
			}
			who, err := c.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			return p.show(who, who.IdentityID, func() error {
				return p.fields(field{"Hub", c.URL()}, field{"You are", at(who.Handle)}, field{"Role", strings.Join(who.Roles, ", ")}, field{"By", who.AuthMethod})
			})
		}),
	}
}

func (p *program) requeueCommand() *cobra.Command {
	return &cobra.Command{
		Use: "requeue ID", Short: "Offer a task again: a failed one as a copy, a held one by taking it from its worker",
		Example: "  holdfast requeue 0198…",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			c, err := p.client()
			if err != nil {
				return err
			}
			if !isTaskID(args[0]) {
				return usagef("%q is no id of a task; holdfast list tasks shows them", args[0])
			}
			t, err := c.Requeue(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.show(t, t.ID, func() error {
				return p.fields(field{"Task", t.ID}, field{"State", t.State}, field{"To", at(t.Callee)}, field{"Repeats task", t.RequeueOf}, field{"Why it waits", t.Hint})
			})
		}),
	}
}

func (p *program) activityCommand() *cobra.Command {
	var (
		follow bool
		after  string
		limit  int
	)
	cmd := &cobra.Command{
		Use: "activity", Short: "Show what happens on the hub, as far as you may see it",
		Long: `Show what happened on the hub, oldest first, as far as you may see it. With --follow
it shows what happens from now on, or after a cursor, until Ctrl-C.`,
		Example: "  holdfast activity --follow",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.client()
			if err != nil {
				return err
			}
			if follow {
				return p.followActivity(cmd.Context(), c, after, limit)
			}
			return p.pastActivity(cmd.Context(), c, after, limit)
		}),
	}
	cmd.Flags().BoolVar(&follow, "follow", false, "go on with what happens from now on")
	cmd.Flags().StringVar(&after, "after", "", "begin after this cursor")
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after this many lines; 0 for all")
	return cmd
}

func (p *program) followActivity(ctx context.Context, c *client.Client, after string, limit int) error {
	n := 0
	for line, err := range c.FollowActivity(ctx, after) {
		if err != nil {
			return err
		}
		if err := p.activityLine(line); err != nil {
			return err
		}
		if n++; n == limit {
			return nil
		}
	}
	return ctx.Err()
}

// activityPage is how many lines one request asks for.
const activityPage = 500

func (p *program) pastActivity(ctx context.Context, c *client.Client, after string, limit int) error {
	var all []client.Activity
	for {
		lines, next, err := c.ActivityPage(ctx, after, activityPage)
		if err != nil {
			return err
		}
		for _, line := range lines {
			if p.output.form != formJSON {
				if err := p.activityLine(line); err != nil {
					return err
				}
			}
			if all = append(all, line); len(all) == limit {
				return p.activityEnd(all, line.Cursor)
			}
		}
		if len(lines) == 0 || next == "" {
			return p.activityEnd(all, next)
		}
		after = next
	}
}

// activityEnd prints all lines at once for the form that needs that.
func (p *program) activityEnd(all []client.Activity, next string) error {
	if p.output.form != formJSON || p.output.quiet {
		return nil
	}
	return writeJSON(p.out, page(all, next), true)
}

// activityLine prints a line as it comes.
func (p *program) activityLine(a client.Activity) error {
	switch {
	case p.output.form == formNone:
		return nil
	case p.output.quiet:
		_, err := fmt.Fprintln(p.out, a.TaskID)
		return err
	case p.output.machine():
		return writeJSON(p.out, a, false)
	}
	detail := ""
	if a.Detail != "" {
		detail = "  " + short(a.Detail)
	}
	_, err := fmt.Fprintf(p.out, "%s  %-15s @%s → @%s  %s  by %s%s\n", moment(&a.At), oneLine(a.Kind), oneLine(a.Caller), oneLine(a.Callee), a.TaskID, actor(a.Actor), detail)
	return err
}

// actor is who did something: an address, or the hub itself.
func actor(who string) string {
	if who == "" || who == "hub" {
		return "the hub"
	}
	return at(oneLine(who))
}
