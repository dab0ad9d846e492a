package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/holdfast-hub/holdfast/internal/bench"
)

// benchCommand measures this machine; see package bench.
func (p *program) benchCommand() *cobra.Command {
	var o bench.Options
	c := &cobra.Command{
		Use: "bench", Short: "Measure what a hub costs on this machine, beside baselines",
		Long: "Measure what a hub costs on this machine. Each figure stands beside a baseline from\n" +
			"the same run: a server that does nothing but answer, and the in-memory handler of\n" +
			"the A2A Go SDK. Hubs are started for it, on free ports and in temporary directories.",
		Example: "  holdfast bench --short\n  holdfast bench --only throughput,pickup\n  holdfast bench --only postgres",
		Args:    asUsed,
		RunE: p.run(func(cmd *cobra.Command, _ []string) error {
			o.Progress = p.err
			return bench.Run(cmd.Context(), o, p.out)
		}),
	}
	f := c.Flags()
	f.StringSliceVar(&o.Only, "only", nil, "the benches to run: "+strings.Join(bench.Names(), ", ")+"; or sqlite or postgres for all of a store")
	f.BoolVar(&o.Short, "short", false, "take a minute in all, with lower counts: to see that it works, not to judge")
	f.IntVar(&o.Rounds, "rounds", 0, "how often each is measured, in turns (3, or 2 with --short)")
	f.DurationVar(&o.Duration, "duration", 0, "how long one measurement lasts (6s, or 1s with --short)")
	f.StringVar(&o.Dir, "dir", "", "where the hubs keep their data; on a disk, since they sync to it (the system's temporary directory)")
	return c
}
