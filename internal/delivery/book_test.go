package delivery_test

import (
	"slices"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// outcomes are those of the dispatches of a task, in order.
func (b *bed) outcomes(t *hub.Task) (list []string) {
	b.Helper()
	page, err := b.store.ListDispatches(b.Context(), hub.DispatchFilter{Task: t.ID})
	if err != nil {
		b.Fatal(err)
	}
	for i := range page.Dispatches {
		list = append(list, page.Dispatches[i].Outcome)
	}
	slices.Reverse(list)
	return list
}

// canceled is the outcome of the cancel of a task.
func (b *bed) canceled(t *hub.Task) hub.CancelOutcome {
	b.Helper()
	got, err := b.store.Task(b.Context(), hub.TaskRef{ID: t.ID}, hub.Viewer{All: true}, hub.Load{})
	if err != nil {
		b.Fatal(err)
	}
	return got.CancelOutcome
}
