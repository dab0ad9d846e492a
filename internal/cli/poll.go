package cli

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

func (p *program) pollCommand() *cobra.Command {
	var (
		wait    bool
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use: "poll [@handle] [ID]", Short: "See what became of a task that you sent",
		Long: `See what became of a task that you sent: the result if it has ended, else how it
stands and why it waits. Reading the end takes the task off the list of pending
ones. Without an ID it is the newest pending task, of the address if one is given.
The exit code tells the state: 8 while it runs.`,
		Example: `  holdfast poll @writer
  holdfast poll 0198… --wait --timeout 10m`,
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			ctx, cancel := withTimeout(cmd.Context(), timeout)
			defer cancel()
			t, err := p.pollRef(ctx, args)
			if err != nil {
				return err
			}
			return p.poll(ctx, t, wait || timeout > 0)
		}),
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the task has ended or asks something")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "wait for at most this time, then exit with code 8")
	return cmd
}

func (p *program) poll(ctx context.Context, t taskRef, wait bool) error {
	var (
		now *client.Task
		err error
	)
	if wait {
		now, err = p.await(ctx, t.c, t.to, t.id)
	} else {
		now, err = t.c.Get(ctx, t.to, t.id)
	}
	if err != nil && ctx.Err() != nil {
		return p.detached(ctx, t.to, t.id)
	}
	if err != nil {
		return err
	}
	return p.settled(t.to, now)
}

// pollRef finds the task: named, or the newest pending one.
func (p *program) pollRef(ctx context.Context, args []string) (taskRef, error) {
	if len(args) == 2 || len(args) == 1 && isTaskID(args[0]) {
		return p.taskAt(ctx, args)
	}
	if len(args) == 0 {
		c, err := p.client()
		if err != nil {
			return taskRef{}, err
		}
		return newestPending(ctx, c, "")
	}
	c, to, err := p.clientAt(args[0])
	if err != nil {
		return taskRef{}, err
	}
	return newestPending(ctx, c, to)
}

// newestPending is the pending task that was sent last, to an address if one is
// given.
func newestPending(ctx context.Context, c *client.Client, to string) (taskRef, error) {
	var newest *client.Task
	for t, err := range c.List(ctx, to, client.TaskQuery{Pending: true, Limit: 100}) {
		if err != nil {
			return taskRef{}, err
		}
		if newest == nil || t.CreatedAt.After(newest.CreatedAt.Time) {
			newest = t
		}
	}
	if newest == nil {
		where := ""
		if to != "" {
			where = " at @" + to
		}
		return taskRef{}, &failure{exit: exitNotFound, code: "nothing_pending", message: "you have no pending task" + where, hint: "Tasks whose end you have read are in: holdfast list tasks"}
	}
	return taskRef{c, newest.Callee, newest.ID}, nil
}

func (p *program) pendingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pending [@handle]", Short: "List the tasks that you sent and whose end you have not read",
		Example:           "  holdfast pending -q",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			q := listFlags{pending: true, all: true}
			return p.listTasks(cmd.Context(), q, args)
		}),
	}
	return cmd
}

func (p *program) cancelCommand() *cobra.Command {
	var timeout *time.Duration
	cmd := &cobra.Command{
		Use: "cancel [@handle] ID", Short: "Cancel a task",
		Long: `Cancel a task. It is canceled when this returns; its worker learns of it within
moments. Cancelling twice is fine, and a task that ended otherwise gives code 5.`,
		Example:           "  holdfast cancel @writer 0198…",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			ctx, stop := withTimeout(cmd.Context(), *timeout)
			defer stop()
			t, err := p.taskAt(ctx, args)
			if err != nil {
				return err
			}
			now, err := t.c.Cancel(ctx, t.to, t.id)
			if errors.Is(err, client.ErrNotCancelable) {
				f := p.classify(cmd.Context(), err)
				f.hint = "To see how it ended: holdfast poll " + t.id + "\nTo send a new task: holdfast send " + at(t.to) + " TEXT"
				return f
			}
			if err != nil {
				return err
			}
			return p.show(now, now.ID, func() error {
				return p.fields(field{"Task", now.ID}, field{"State", now.State}, field{"To", at(now.Callee)})
			})
		}),
	}
	timeout = addTimeout(cmd.Flags())
	return cmd
}
