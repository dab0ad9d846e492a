package engine

import (
	"context"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Dispatches lists the hub's own deliveries to an address; who asks was authorised.
func (e *Engine) Dispatches(ctx context.Context, f hub.DispatchFilter) (hub.DispatchPage, error) {
	return e.store.ListDispatches(ctx, f)
}

// Dispatch gives the newest delivery of a task that the hub made itself; nil if it makes
// none to the task's address.
func (e *Engine) Dispatch(ctx context.Context, t *hub.Task) (*hub.Dispatch, error) {
	if _, ok := e.Standing(t.Callee.ID); !ok || t.Handouts() == 0 {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	page, err := e.Dispatches(ctx, hub.DispatchFilter{Task: t.ID, Limit: 1})
	if err != nil || len(page.Dispatches) == 0 {
		return nil, err
	}
	return &page.Dispatches[0], nil
}

// Connected lists the connected instances of an address, or of all if it is empty,
// wherever they are connected.
func (e *Engine) Connected(ctx context.Context, address string) ([]hub.Instance, error) {
	return e.store.Instances(ctx, address)
}

// Mailbox counts what is unfinished of an address.
func (e *Engine) Mailbox(ctx context.Context, address string) (hub.MailboxStats, error) {
	return e.store.MailboxStats(ctx, address)
}
