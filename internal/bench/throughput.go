package bench

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"
)

// callerAddresses is how many addresses the callers of a load share: a hub limits
// what one caller may send.
const callerAddresses = 8

// busyWorkers is how many workers take their next task from the reply: so few that
// there is one, as it is where the SDK does this.
const busyWorkers = 16

// hubTarget starts a hub with a callee and the addresses of some callers.
func (r *run) hubTarget(ctx context.Context, callers int) (*hubProcess, *target, error) {
	h, err := r.startHub(ctx)
	if err != nil {
		return nil, nil, err
	}
	t, err := h.target(ctx, callers)
	if err != nil {
		h.stop()
		return nil, nil, err
	}
	return h, t, nil
}

// target makes a hub's callee and the addresses of some callers.
func (h *hubProcess) target(ctx context.Context, callers int) (t *target, err error) {
	t = &target{name: "hub", process: h.process}
	if t.callers, err = h.agents(ctx, "caller", callers); err == nil {
		t.worker, err = h.agent(ctx, workerHandle)
	}
	if err != nil {
		return nil, fmt.Errorf("set the hub up: %w", err)
	}
	return t, nil
}

// nullTarget starts a null hub, which takes any token.
func (r *run) nullTarget(ctx context.Context) (*target, error) {
	p, err := r.startBaseline(ctx, roleNull)
	if err != nil {
		return nil, err
	}
	return &target{name: "null hub", process: p, callers: []string{"none"}, worker: "none"}, nil
}

// throughput measures whole lives of tasks per second: blocking send, claim, reply,
// answer.
func throughput(ctx context.Context, r *run) error {
	h, hub, err := r.hubTarget(ctx, callerAddresses)
	if err != nil {
		return err
	}
	defer h.stop()
	null, err := r.nullTarget(ctx)
	if err != nil {
		return err
	}
	defer null.kill()
	sdk, err := r.startBaseline(ctx, roleSDK)
	if err != nil {
		return err
	}
	defer sdk.kill()
	hubNext, nullNext := *hub, *null
	hubNext.name, hubNext.next = "hub, next=1", true
	nullNext.name, nullNext.next = "null hub, next=1", true
	// A reply brings the next task only where tasks wait for workers, not the other
	// way round.
	hubNext.workers, nullNext.workers = busyWorkers, busyWorkers
	targets := []*target{hub, null, {name: "a2a-go", process: sdk, rpc: "/"}, &hubNext, &nullNext}
	rates, err := r.compare(ctx, targets)
	if err != nil {
		return err
	}
	const life = "send → claim → reply → answer"
	r.add(Row{What: life, Measured: rates[0], Unit: "tasks/s", Baseline: rates[1], Against: "null hub", Ratio: true, Bar: .30, Stretch: .45})
	r.add(Row{What: life + ", next=1", Measured: rates[3], Unit: "tasks/s", Baseline: rates[1], Against: "null hub", Ratio: true, Bar: .30, Stretch: .60})
	r.add(Row{What: life, Measured: rates[0], Unit: "tasks/s", Baseline: rates[2], Against: "a2a-go", Ratio: true, Bar: 3, Stretch: 5})
	r.add(Row{What: life + ", next=1", Measured: rates[3], Unit: "tasks/s", Baseline: rates[2], Against: "a2a-go", Ratio: true, Bar: 3, Stretch: 6.5})
	r.add(Row{What: "for comparison: both with next=1", Measured: rates[3], Unit: "tasks/s", Baseline: rates[4], Against: "null hub, next=1", Ratio: true})
	return nil
}

// compare measures targets in turns and gives the median rate of each.
func (r *run) compare(ctx context.Context, targets []*target) ([]float64, error) {
	rates := make([][]float64, len(targets))
	for round := range r.Rounds {
		each, err := r.round(ctx, round, targets)
		if err != nil {
			return nil, err
		}
		for i := range each {
			rates[i] = append(rates[i], each[i])
		}
	}
	medians := make([]float64, len(targets))
	for i := range rates {
		medians[i] = median(rates[i])
	}
	return medians, nil
}

// round measures each target once and gives the rates.
func (r *run) round(ctx context.Context, round int, targets []*target) ([]float64, error) {
	rates := make([]float64, len(targets))
	for i, t := range targets {
		s, err := t.closedLoop(ctx, r.Callers, cmp.Or(t.workers, r.Workers), min(r.Duration/3, 2*time.Second), r.Duration)
		if err != nil {
			return nil, err
		}
		r.progress("round %d of %d: %-16s %6.0f tasks/s, p50 %.1f ms, p99 %.1f ms, %.0f µs of CPU per task",
			round+1, r.Rounds, t.name, s.rate, s.p50, s.p99, s.cpu)
		rates[i] = s.rate
	}
	return rates, nil
}

// pickupRate is how many tasks per second are sent to see how soon a waiting worker
// has each.
const pickupRate = 300

// pickup measures the time from the moment that a send is written to the moment
// that a worker that waits for it has it, at a fixed rate that does not wait for
// anybody.
func pickup(ctx context.Context, r *run) error {
	h, hub, err := r.hubTarget(ctx, callerAddresses)
	if err != nil {
		return err
	}
	defer h.stop()
	null, err := r.nullTarget(ctx)
	if err != nil {
		return err
	}
	defer null.kill()
	p50, p99, err := r.pickups(ctx, []*target{hub, null})
	if err != nil {
		return err
	}
	what := "pick-up at " + strconv.Itoa(pickupRate) + " tasks/s, "
	r.add(Row{What: what + "p50", Measured: p50[0], Unit: "ms", Baseline: p50[1], Against: "null hub", Bar: 1.5, Stretch: .9, Less: true})
	r.add(Row{What: what + "p99", Measured: p99[0], Unit: "ms", Baseline: p99[1], Against: "null hub", Bar: 8, Stretch: 4, Less: true})
	return nil
}

// pickups measures two targets in turns and gives the medians of their percentiles.
func (r *run) pickups(ctx context.Context, targets []*target) (p50, p99 [2]float64, err error) {
	var all50, all99 [2][]float64
	for round := range r.Rounds {
		for i, t := range targets {
			waits, err := t.openLoop(ctx, r.Workers, pickupRate, r.Duration)
			if err != nil {
				return p50, p99, err
			}
			half, most := percentile(waits, .5), percentile(waits, .99)
			r.progress("round %d of %d: %-8s p50 %.2f ms, p99 %.2f ms of %d", round+1, r.Rounds, t.name, half, most, len(waits))
			all50[i], all99[i] = append(all50[i], half), append(all99[i], most)
		}
	}
	for i := range targets {
		p50[i], p99[i] = median(all50[i]), median(all99[i])
	}
	return p50, p99, nil
}
