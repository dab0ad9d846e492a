package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/wire"
)

func (p *program) agentsAttempts() *cobra.Command {
	var (
		task, cursor string
		limit        int
	)
	cmd := &cobra.Command{
		Use: "attempts @handle", Short: "List the tries of the hub to bring tasks to an agent, newest first",
		Long: `List the tries of the hub to bring tasks to an agent that has an endpoint or a tunnel,
newest first. To have a task delivered again: holdfast agents redeliver TASK`,
		Example:           "  holdfast agents attempts @writer --task 0198…",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			if task != "" && !isTaskID(task) {
				return usagef("%q is no id of a task; holdfast list tasks shows them", task)
			}
			c, handle, err := p.clientAt(args[0])
			if err != nil {
				return err
			}
			all, next, err := c.Attempts(cmd.Context(), handle, task, cursor, limit)
			if err != nil {
				return err
			}
			now := time.Now()
			return showList(p, list[client.Attempt]{
				items: all, next: next, empty: "The hub has brought it no task yet.",
				id:   func(x client.Attempt) string { return x.TaskID },
				head: []string{"TASK", "ATTEMPT", "BY", "AGE", "OUTCOME", "STATUS", "TOOK", "DETAIL"},
				row:  func(x client.Attempt) []string { return attemptRow(&x, now) },
			})
		}),
	}
	fl := cmd.Flags()
	fl.StringVar(&task, "task", "", "only those of this task")
	fl.IntVar(&limit, "limit", 0, "how many a page has; 50 by default, at most 100")
	fl.StringVar(&cursor, "page-token", "", "where the page before ended")
	return cmd
}

func attemptRow(x *client.Attempt, now time.Time) []string {
	status := ""
	if x.Status != 0 {
		status = strconv.Itoa(x.Status)
	}
	by := strings.TrimSpace(x.Delivery + " " + x.Instance)
	took := (time.Duration(x.LatencyMS) * time.Millisecond).String()
	return []string{x.TaskID, strconv.Itoa(x.Attempt), by, ago(x.BegunAt.Time, now), x.Outcome, status, took, short(x.Detail)}
}

func (p *program) agentsRedeliver() *cobra.Command {
	return &cobra.Command{
		Use: "redeliver TASK", Short: "Have a task delivered again at once",
		Long: `Have a task delivered again at once: one that waits for its next delivery, or one that is
held, which is taken from its holder. With the token of the agent that the task was sent
to, or the administrator's; for the administrator a task that has failed is sent again,
too, as a new one.`,
		Example: "  holdfast agents redeliver 0198…",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			if !isTaskID(args[0]) {
				return usagef("%q is no id of a task; holdfast list tasks shows them", args[0])
			}
			c, err := p.client()
			if err != nil {
				return err
			}
			who, err := c.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			again := c.Redeliver
			if slices.Contains(who.Roles, "admin") {
				again = c.Requeue
			}
			t, err := again(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.showTask(t)
		}),
	}
}

// workers says in a few words who works for an address.
func workers(a *client.Agent, now time.Time) string {
	switch x := a.Presence; {
	case x != nil && x.Trouble != nil:
		return "cannot be reached"
	case x != nil && len(x.Connected) > 0:
		return fmt.Sprintf("%d connected", len(x.Connected))
	case a.Delivery != "pull" && a.Delivery != "inbox":
		return a.Delivery
	}
	return seen(a.LastSeenAt, now)
}

// presenceFields describe who is connected for an address and what waits, where that may
// be seen.
func presenceFields(a *client.Agent, now time.Time) []field {
	x := a.Presence
	if x == nil {
		return nil
	}
	var fields []field
	if x.Waiting != nil && x.Unfinished != nil {
		what := fmt.Sprintf("%d of %d unfinished", *x.Waiting, *x.Unfinished)
		if x.OldestWaitMS != nil && *x.Waiting > 0 {
			what += fmt.Sprintf(", the longest for %v", (time.Duration(*x.OldestWaitMS) * time.Millisecond).Round(time.Second))
		}
		fields = append(fields, field{"Tasks that wait", what})
	}
	for i := range x.Connected {
		fields = append(fields, field{"Connected", instance(&x.Connected[i], now)})
	}
	if a.Endpoint == nil {
		fields = append(fields, troubleFields(x.Trouble)...)
	}
	return fields
}

// instance describes a connected copy of an agent.
func instance(i *wire.Instance, now time.Time) string {
	what := fmt.Sprintf("%s, %d slots", i.Name, i.Slots)
	if i.Busy != nil {
		what = fmt.Sprintf("%s, %d of %d slots busy", i.Name, *i.Busy, i.Slots)
	}
	what += ", for " + ago(i.Since.Time, now)
	if i.Replica != "" {
		what += ", at " + i.Replica
	}
	return what
}

// troubleFields say why nothing can be delivered.
func troubleFields(x *wire.EndpointTrouble) []field {
	if x == nil {
		return nil
	}
	return []field{{"Cannot be reached", x.Reason}, {"Since", moment(&x.Since)}, {"Next try", moment(&x.NextTry)}}
}
