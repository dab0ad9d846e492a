package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

func (p *program) subscribeCommand() *cobra.Command {
	var (
		after   int64
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use: "subscribe [@handle] ID", Short: "Show what happens to a task until it ends",
		Long: `Show a task as it is, and then what happens to it, until it ends. A question does
not end it, because the answer may come from elsewhere. Broken connections and
restarts of the hub are got over without gap or duplicate. The exit code tells what
became of the task.`,
		Example:           "  holdfast subscribe @writer 0198… -o jsonl",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			ctx, cancel := withTimeout(cmd.Context(), timeout)
			defer cancel()
			t, err := p.taskAt(ctx, args)
			if err != nil {
				return err
			}
			var opts []client.SubscribeOption
			if after >= 0 {
				opts = append(opts, client.After(after))
			}
			return p.subscribe(ctx, t, opts)
		}),
	}
	cmd.Flags().Int64Var(&after, "after", -1, "begin after the event with this number")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "stop after this time, with exit code 8; 0 for never")
	return cmd
}

func (p *program) subscribe(ctx context.Context, t taskRef, opts []client.SubscribeOption) error {
	v := p.viewer(t.to)
	v.t.ID = t.id
	for e, err := range t.c.Subscribe(ctx, t.to, t.id, opts...) {
		if err != nil && ctx.Err() != nil {
			return v.interrupted(ctx, t.id)
		}
		if err != nil {
			return err
		}
		if err := v.event(e); err != nil {
			return err
		}
	}
	if v.t.State == "" { // all events were seen before
		now, err := t.c.Get(ctx, t.to, t.id)
		if err != nil {
			return err
		}
		v.t = *now
	}
	return v.end()
}
