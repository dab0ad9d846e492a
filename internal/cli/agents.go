package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/wire"
)

func (p *program) agentsCommand() *cobra.Command {
	agents := &cobra.Command{Use: "agents", Short: "Addresses: who can be called", Args: asUsed, RunE: p.help}
	agents.AddCommand(p.agentsList(), p.agentsShow(), p.agentsAdd(), p.agentsSet(), p.agentsEndpoint(), p.agentsAttempts(), p.agentsRedeliver(), p.agentsRemove())
	return agents
}

func (p *program) agentsList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the addresses that you may call",
		Example: "  holdfast agents list",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.client()
			if err != nil {
				return err
			}
			all, err := c.Agents(cmd.Context())
			if err != nil {
				return err
			}
			now := time.Now()
			return showList(p, list[client.Agent]{
				items: all, empty: "There are no addresses yet. Make one with: holdfast agents add @handle",
				id:   func(a client.Agent) string { return a.Handle },
				head: []string{"ADDRESS", "KIND", "ACCESS", "WORKERS", "DESCRIPTION"},
				row: func(a client.Agent) []string {
					return []string{at(a.Handle), a.Kind, a.Access, workers(&a, now), short(a.Description)}
				},
			})
		}),
	}
}

func seen(t *wire.Time, now time.Time) string {
	if t == nil {
		return "not yet"
	}
	return ago(t.Time, now) + " ago"
}

func (p *program) agentsShow() *cobra.Command {
	return &cobra.Command{
		Use: "show @handle", Short: "Show an address",
		Example:           "  holdfast agents show @writer",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			c, handle, err := p.clientAt(args[0])
			if err != nil {
				return err
			}
			a, err := c.Agent(cmd.Context(), handle)
			if err != nil {
				return err
			}
			return p.showAgent(a)
		}),
	}
}

func (p *program) showAgent(a *client.Agent) error {
	return p.show(a, a.Handle, func() error {
		return p.fields(append([]field{
			{"Address", at(a.Handle)}, {"Id", a.ID}, {"Kind", a.Kind}, {"Description", a.Description},
			{"URL", a.URL}, {"Access", a.Access}, {"Delivery", a.Delivery},
			{"Lease", unlessHubs(a.LeaseS > 0, (time.Duration(a.LeaseS) * time.Second).String())},
			{"Redeliveries", unlessHubs(a.MaxRedeliveries >= 0, strconv.Itoa(a.MaxRedeliveries))},
			{"One task per message id", strconv.FormatBool(a.DedupeMessageID)},
			{"Open to outside services", strings.Join(a.RelayPaths, ", ")},
			{"Worker seen", seen(a.LastSeenAt, time.Now())}, {"Made", moment(&a.CreatedAt)},
		}, append(endpointFields(a), presenceFields(a, time.Now())...)...)...)
	})
}

// unlessHubs is a value, or that the address leaves it to the hub.
func unlessHubs(own bool, value string) string {
	if own {
		return value
	}
	return "as the hub says"
}

// agentFlags describe an address; only those that were given count.
type agentFlags struct {
	kind, description, access, card, onUnknown string
	lease                                      time.Duration
	redeliveries                               int
	dedupe                                     bool
	relayPaths                                 []string
}

func (f *agentFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.description, "description", "", "what the agent does, in a sentence")
	fl.StringVar(&f.access, "access", "", "open: every caller of the hub may call it; approved: only the administrator, until bindings exist")
	fl.StringVar(&f.card, "card", "", "file with the agent's own part of its card as JSON: name, skills, provider, …")
	fl.DurationVar(&f.lease, "lease", 0, "how long a worker may be silent before its task is offered to others")
	fl.IntVar(&f.redeliveries, "max-redeliveries", 0, "how often a lost delivery is repeated before the task fails")
	fl.BoolVar(&f.dedupe, "dedupe-message-id", false, "take the same message id from the same caller for the same task")
	fl.StringVar(&f.onUnknown, "on-unknown", "", "what to do when it is unknown whether a delivery arrived: resend or fail")
	fl.StringSliceVar(&f.relayPaths, "relay-paths", nil, "beginnings of the paths that outside services may reach through the agent's tunnels, with commas between; '' for none")
}

func (p *program) agentRequest(f agentFlags, given func(string) bool) (client.AgentRequest, error) {
	var r client.AgentRequest
	if given("description") {
		r.Description = &f.description
	}
	if given("access") {
		r.Access = &f.access
	}
	if given("lease") {
		if f.lease < time.Second {
			return r, usagef("--lease has to be at least 1s")
		}
		s := int(f.lease / time.Second)
		r.LeaseS = &s
	}
	if given("max-redeliveries") {
		r.MaxRedeliveries = &f.redeliveries
	}
	if given("dedupe-message-id") {
		r.DedupeMessageID = &f.dedupe
	}
	if given("on-unknown") {
		r.OnUnknown = &f.onUnknown
	}
	if given("relay-paths") {
		r.RelayPaths = &f.relayPaths
	}
	if f.card != "" {
		b, err := p.readInput(f.card, 1<<20)
		if err != nil {
			return r, err
		}
		r.Card = new(wire.Card)
		if err := decodeOne(b, r.Card); err != nil {
			return r, usagef("%s holds no card: %v", f.card, err)
		}
	}
	return r, nil
}

func (p *program) agentsAdd() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "add @handle", Short: "Make an address",
		Long: `Make an address. It takes tasks at once and keeps them until a worker asks. Its
access is approved unless you say --access open.`,
		Example: `  holdfast agents add @writer --access open --description "writes things down"`,
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			c, handle, err := p.clientAt(args[0])
			if err != nil {
				return err
			}
			r, err := p.agentRequest(f, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			r.Handle, r.Kind = handle, f.kind
			a, err := c.CreateAgent(cmd.Context(), r)
			if err != nil {
				return err
			}
			if p.words() {
				p.note("To make a token for its worker: holdfast tokens add @%s", a.Handle)
			}
			return p.showAgent(a)
		}),
	}
	cmd.Flags().StringVar(&f.kind, "kind", "", "agent or person; agent by default")
	f.add(cmd.Flags())
	return cmd
}

func (p *program) agentsSet() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use: "set @handle", Short: "Change what is given of an address",
		Example:           "  holdfast agents set @writer --lease 5m",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().NFlag() == 0 {
				return usagef("nothing is to be changed: give at least one flag; see holdfast agents set --help")
			}
			c, handle, err := p.clientAt(args[0])
			if err != nil {
				return err
			}
			r, err := p.agentRequest(f, cmd.Flags().Changed)
			if err != nil {
				return err
			}
			a, err := c.UpdateAgent(cmd.Context(), handle, r)
			if err != nil {
				return err
			}
			return p.showAgent(a)
		}),
	}
	f.add(cmd.Flags())
	return cmd
}

func (p *program) agentsRemove() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "remove @handle", Short: "Delete an address", Aliases: []string{"rm"},
		Long: `Delete an address. It takes no new tasks, its tokens end, and its queued tasks are
canceled after a grace time. Its history stays.`,
		Example:           "  holdfast agents remove @writer --yes",
		Args:              asUsed,
		ValidArgsFunction: p.completeHandle,
		RunE: p.run(func(cmd *cobra.Command, args []string) error {
			c, handle, err := p.clientAt(args[0])
			if err != nil {
				return err
			}
			if err := p.confirm(yes, "This deletes @%s at %s and ends its tokens.", handle, c.URL()); err != nil {
				return err
			}
			if err := c.DeleteAgent(cmd.Context(), handle); err != nil {
				return err
			}
			p.note("@%s is deleted.", handle)
			return nil
		}),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do it without asking")
	return cmd
}
