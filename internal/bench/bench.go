// Package bench measures what the hub costs, each figure next to a baseline taken
// in the same run on the same machine: a server that answers the same requests and
// does nothing else (the null hub), and the in-memory handler of the A2A Go SDK.
// The ratio then says something about the hub and not about the machine.
//
// Where PostgreSQL is installed, a server of its own is started for the lines of that
// store; the rate of single-row inserts that pgbench reaches on it is the baseline.
//
// Hub and baselines run as processes of their own, started from this program's own
// executable; the load comes from this process. The hub is what `serve` starts:
// authentication, validation, idempotency keys and syncing to disk are on.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// The benches, in the order in which they run.
const (
	Throughput = "throughput" // send, claim, reply, answer with 64 blocking callers
	Pickup     = "pickup"     // from a send to the worker that waits for it
	Flat       = "flat"       // a million tasks against a thousand
	Parked     = "parked"     // 100,000 parked tasks, and a restart with them
	Polls      = "polls"      // 10,000 open long polls
	Tunnels    = "tunnels"    // 1,000 open tunnels
	Deliveries = "deliveries" // what going through the hub adds to a call of an agent

	// The same on PostgreSQL, where it is installed.
	PostgresThroughput = "postgres-throughput" // against pgbench, with one to three replicas
	PostgresPickup     = "postgres-pickup"     // from a send at one replica to a worker at another
	PostgresFlat       = "postgres-flat"       // a million tasks against a thousand, and beside an open snapshot
)

// Names lists the benches.
func Names() []string {
	return []string{Throughput, Pickup, Flat, Parked, Polls, Tunnels, Deliveries, PostgresThroughput, PostgresPickup, PostgresFlat}
}

// Groups are names for several benches: those of each store.
func Groups() map[string][]string {
	all := Names()
	return map[string][]string{"sqlite": all[:7], "postgres": all[7:]}
}

// Options say what to measure and how.
type Options struct {
	// Only names the benches to run, or groups of them; all if empty.
	Only []string
	// Short takes a minute in all and lower counts: to see that everything works, not
	// to judge.
	Short bool
	// Rounds is how often each candidate is measured, in turns; 3 if zero, and 2 if
	// zero and Short.
	Rounds int
	// Duration is how long one measurement lasts; 6 s if zero, and 1 s if Short too.
	Duration time.Duration
	// Callers and Workers are how many wait at once; 64 each if zero.
	Callers, Workers int
	// Tasks is how many tasks Flat loads; 1,000,000 if zero, and 20,000 if Short too.
	Tasks int
	// Parked is how many tasks Parked parks; 100,000 if zero, and 3,000 if Short too.
	Parked int
	// Polls is how many polls are open at once; 10,000 if zero, and 500 if Short too.
	Polls int
	// Dir is where the temporary data directories are made; the system's temporary
	// directory if empty. It should be on a disk, since what is measured syncs to it.
	Dir string
	// Self are the arguments with which this executable calls Run again: for the
	// baselines, which are told by the environment what to be. {"bench"} if empty.
	Self []string
	// Tunnel are the arguments with which it opens a tunnel; those of "holdfast tunnel"
	// are added to them. {"tunnel"} if empty.
	Tunnel []string
	// Serve are the arguments with which this executable serves a hub; --listen and
	// --data are added to them. {"serve"} if empty.
	Serve []string
	// Progress gets a line for each thing that takes long; standard error if nil.
	Progress io.Writer
}

func (o Options) withDefaults() Options {
	pick := func(full, short int) int {
		if o.Short {
			return short
		}
		return full
	}
	setInt(&o.Rounds, pick(3, 2))
	setInt(&o.Callers, 64)
	setInt(&o.Workers, 64)
	setInt(&o.Tasks, pick(1_000_000, 20_000))
	setInt(&o.Parked, pick(100_000, 3_000))
	setInt(&o.Polls, pick(10_000, 500))
	if o.Duration == 0 {
		o.Duration = time.Duration(pick(6, 1)) * time.Second
	}
	if len(o.Only) == 0 {
		o.Only = Names()
	}
	if len(o.Self) == 0 {
		o.Self = []string{"bench"}
	}
	if len(o.Tunnel) == 0 {
		o.Tunnel = []string{"tunnel"}
	}
	if len(o.Serve) == 0 {
		o.Serve = []string{"serve"}
	}
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	return o
}

func setInt(p *int, def int) {
	if *p == 0 {
		*p = def
	}
}

// Run measures and prints a table to out. An error means that a measurement could
// not be made; a bar that is missed is in the table.
//
// In a process that Run itself started it serves a baseline instead, until its
// standard input ends.
func Run(ctx context.Context, opt Options, out io.Writer) error {
	if role := os.Getenv(roleVariable); role != "" {
		return serveBaseline(ctx, role, os.Stdin, os.Stdout)
	}
	rows, err := Measure(ctx, opt)
	return errors.Join(err, printTable(out, rows, opt.Short))
}

// Measure measures and gives the lines of the table: with an error, those that
// could be measured before it.
func Measure(ctx context.Context, opt Options) ([]Row, error) {
	opt = opt.withDefaults()
	benches := map[string]func(context.Context, *run) error{
		Throughput: throughput, Pickup: pickup, Flat: flat, Parked: parked, Polls: polls, Tunnels: tunnels, Deliveries: deliveries,
		PostgresThroughput: onPostgres(pgThroughput), PostgresPickup: onPostgres(pgPickup), PostgresFlat: onPostgres(pgFlat),
	}
	var only []string
	for _, name := range opt.Only {
		group := Groups()[name]
		if benches[name] == nil && group == nil {
			return nil, fmt.Errorf("there is no bench %q; there are: %s, and all of sqlite or postgres", name, strings.Join(Names(), ", "))
		}
		only = append(append(only, group...), name)
	}
	r := &run{Options: opt}
	for _, name := range Names() {
		if !slices.Contains(only, name) {
			continue
		}
		r.name = name
		if err := benches[name](ctx, r); err != nil {
			return r.rows, fmt.Errorf("bench %s: %w", name, err)
		}
	}
	return r.rows, nil
}

// run is one call of Measure.
type run struct {
	Options
	name string
	rows []Row
}

func (r *run) progress(format string, args ...any) {
	fmt.Fprintf(r.Progress, "bench "+r.name+": "+format+"\n", args...)
}

func (r *run) add(row Row) { r.rows = append(r.rows, row) }
