package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
)

func (p *program) getCommand() *cobra.Command {
	get := &cobra.Command{Use: "get", Short: "Show one thing", Args: asUsed, RunE: p.help}
	var (
		history   int
		artifacts bool
		timeout   *time.Duration
	)
	task := &cobra.Command{
		Use: "task [@handle] ID", Short: "Show a task with all that was said and made",
		Example:           "  holdfast get task @writer 0198… -o json",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			ctx, stop := withTimeout(cmd.Context(), *timeout)
			defer stop()
			t, err := p.taskAt(ctx, args)
			if err != nil {
				return err
			}
			now, err := t.c.Get(ctx, t.to, t.id)
			if err != nil {
				return err
			}
			cutHistory(now, history)
			if !artifacts {
				now.Artifacts = nil
			}
			return p.showTask(now)
		}),
	}
	task.Flags().IntVar(&history, "history", -1, "how many messages of the history to print; all by default")
	task.Flags().BoolVar(&artifacts, "with-artifacts", true, "print the artifacts")
	timeout = addTimeout(task.Flags())
	get.AddCommand(task)
	return get
}

// listFlags select tasks. Those that the a2a command has, too, mean the same there.
type listFlags struct {
	context, status, token, since string
	limit, history                int
	artifacts, pending, sent, all bool
}

func (p *program) listCommand() *cobra.Command {
	lists := &cobra.Command{Use: "list", Short: "List things", Args: asUsed, RunE: p.help}
	var (
		f       listFlags
		timeout *time.Duration
	)
	tasks := &cobra.Command{
		Use: "tasks [@handle]", Short: "List the tasks that you sent or were sent",
		Long:              "List the tasks that you sent or were sent, those whose status changed last first.",
		Example:           "  holdfast list tasks @writer --status failed",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			ctx, stop := withTimeout(cmd.Context(), *timeout)
			defer stop()
			return p.listTasks(ctx, f, args)
		}),
	}
	fl := tasks.Flags()
	fl.StringVar(&f.context, "context", "", "only tasks of this conversation")
	fl.StringVar(&f.status, "status", "", "only tasks in this state, such as working or input-required")
	fl.IntVar(&f.limit, "limit", 0, "how many tasks a page has; 50 by default, at most 100")
	fl.StringVar(&f.token, "page-token", "", "where the page before ended")
	fl.BoolVar(&f.all, "all", false, "all pages")
	fl.StringVar(&f.since, "since", "", "only tasks whose status changed after this time (RFC 3339)")
	fl.BoolVar(&f.pending, "pending", false, "only tasks that you sent and whose end you have not read")
	fl.BoolVar(&f.sent, "sent", false, "only tasks that you sent")
	fl.IntVar(&f.history, "history", 0, "with this many messages of each; reads every task")
	fl.BoolVar(&f.artifacts, "with-artifacts", false, "with the artifacts of each; reads every task")
	timeout = addTimeout(fl)
	lists.AddCommand(tasks)
	return lists
}

func (p *program) listTasks(ctx context.Context, f listFlags, args []string) error {
	since, err := sinceTime(f.since)
	if err != nil {
		return err
	}
	c, to, err := p.clientMaybeAt(args)
	if err != nil {
		return err
	}
	q := client.TaskQuery{
		State: strings.ReplaceAll(f.status, "-", "_"), ContextID: f.context, Pending: f.pending, Sent: f.sent,
		Cursor: f.token, Limit: f.limit,
	}
	tasks, next, err := collect(ctx, c, to, q, f.all, since)
	if err != nil {
		return err
	}
	if f.history > 0 || f.artifacts {
		if err := f.fill(ctx, c, tasks); err != nil {
			return err
		}
	}
	if f.pending {
		return p.taskList(tasks, next, "Nothing is pending.", unread)
	}
	return p.taskList(tasks, next, "There are no such tasks.", remark)
}

// clientMaybeAt is clientAt for an address that may be left out.
func (p *program) clientMaybeAt(args []string) (*client.Client, string, error) {
	if len(args) > 0 {
		return p.clientAt(args[0])
	}
	c, err := p.client()
	return c, "", err
}

func sinceTime(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usagef("--since %q is no time: write it like %s", s, "2026-01-31T08:00:00Z")
	}
	return t, nil
}

// collect fetches one page, or all of them, up to the first task that is too old.
func collect(ctx context.Context, c *client.Client, to string, q client.TaskQuery, all bool, since time.Time) ([]*client.Task, string, error) {
	var tasks []*client.Task
	for {
		some, next, err := c.ListPage(ctx, to, q)
		if err != nil {
			return nil, "", err
		}
		for _, t := range some {
			if at := t.Status.Timestamp; at != nil && !at.After(since) {
				return tasks, "", nil
			}
			tasks = append(tasks, t)
		}
		if !all || next == "" {
			return tasks, next, nil
		}
		q.Cursor = next
	}
}

// fill reads what lists leave out.
func (f listFlags) fill(ctx context.Context, c *client.Client, tasks []*client.Task) error {
	for i, t := range tasks {
		full, err := c.Get(ctx, t.Callee, t.ID)
		if err != nil {
			return err
		}
		cutHistory(full, f.history)
		if !f.artifacts {
			full.Artifacts = nil
		}
		tasks[i] = full
	}
	return nil
}
