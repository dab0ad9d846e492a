package cli

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

func (p *program) nextCommand() *cobra.Command {
	var wait, lease time.Duration
	cmd := &cobra.Command{
		Use: "next", Short: "Take the next task of your address, to do it by hand",
		Long: `Take the next task of your address. It is yours until the lease ends: answer it
with "holdfast reply", or it is offered to others. Exit code 8 means that there was
none.`,
		Example: "  holdfast next --wait 30s",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, _ []string) error {
			if wait < 0 || wait > time.Minute {
				return usagef("--wait has to be between 0s and 1m")
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			opts := []client.WorkOption{client.Wait(wait)}
			if lease > 0 {
				opts = append(opts, client.Lease(lease))
			}
			t, err := c.Next(cmd.Context(), opts...)
			if errors.Is(err, client.ErrNoTask) {
				return &failure{exit: exitRunning, code: "no_task", message: "no task is ready", hint: "To wait for one: holdfast next --wait 60s"}
			}
			if err != nil {
				return err
			}
			return p.taken(t)
		}),
	}
	cmd.Flags().DurationVar(&wait, "wait", 0, "how long to wait for a task, at most 1m")
	cmd.Flags().DurationVar(&lease, "lease", 0, "how long the task is yours; what the address has by default")
	return cmd
}

func (p *program) taken(t *client.Task) error {
	err := p.showTask(t)
	if err == nil && p.words() {
		p.note("\nTo answer: holdfast reply %s --claim %s --text \"…\"", t.ID, t.ClaimID)
	}
	return err
}
