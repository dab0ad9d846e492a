package delivery_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// book keeps dispatches in memory.
type book struct {
	store *sqlite.Store
	mu    sync.Mutex
	all   []*hub.Dispatch
	open  map[*hub.Dispatch]bool
	told  map[string]hub.CancelOutcome
}

func (b *book) find(task string, attempt int) *hub.Dispatch {
	for _, x := range b.all {
		if x.Task == task && x.Attempt == attempt {
			return x
		}
	}
	return nil
}

func (b *book) BeginDispatch(_ context.Context, d hub.Dispatch) (earlier *hub.Dispatch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.all {
		if x.Task != d.Task {
			continue
		}
		if b.open[x] && x.Outcome == "" {
			x.Outcome, x.Sent = "lost", true
		}
		b.open[x] = false
		if x.Sent || x.RemoteTask != "" {
			copied := *x
			earlier = &copied
		}
	}
	if b.open == nil {
		b.open, b.told = map[*hub.Dispatch]bool{}, map[string]hub.CancelOutcome{}
	}
	b.all = append(b.all, &d)
	b.open[&d] = true
	return earlier, nil
}

func (b *book) LinkDispatch(_ context.Context, task string, attempt int, remoteTask, remoteContext string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.find(task, attempt)
	x.RemoteTask, x.RemoteContext, x.Sent = remoteTask, remoteContext, true
	return nil
}

func (b *book) EndDispatch(_ context.Context, e hub.DispatchEnd) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	x := b.find(e.Task, e.Attempt)
	if x == nil {
		return hub.ErrTaskNotFound()
	}
	x.Outcome, x.Sent, x.Status, x.Detail, x.Took = e.Outcome, e.Sent, e.Status, e.Detail, e.Took
	b.open[x] = e.Keep
	return nil
}

func (b *book) ListDispatches(_ context.Context, f hub.DispatchFilter) (p hub.DispatchPage, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range slices.Backward(b.all) {
		if (f.Task == "" || x.Task == f.Task) && len(p.Dispatches) < f.Limit {
			p.Dispatches = append(p.Dispatches, *x)
		}
	}
	return p, nil
}

func (b *book) CanceledDispatches(ctx context.Context, addresses []string, after time.Duration, limit int) (out []hub.Dispatch, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.all {
		t, err := b.store.Task(ctx, hub.TaskRef{ID: x.Task}, hub.Viewer{All: true}, hub.Load{})
		if err != nil {
			return nil, err
		}
		if b.open[x] && t.State == hub.Canceled && slices.Contains(addresses, x.Address) && time.Since(x.BegunAt) >= after && len(out) < limit {
			out = append(out, *x)
		}
	}
	return out, nil
}

func (b *book) SettleCancel(_ context.Context, task string, attempt int, o hub.CancelOutcome) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open[b.find(task, attempt)] = false
	b.told[task] = o
	return nil
}

// outcomes are those of the dispatches of a task, in order.
func (b *book) outcomes(task string) (list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, x := range b.all {
		if x.Task == task {
			list = append(list, x.Outcome)
		}
	}
	return list
}

// canceled is the outcome of the cancel of a task.
func (b *book) canceled(task string) hub.CancelOutcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told[task]
}
