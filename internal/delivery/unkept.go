package delivery

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// unkept is a hub.Dispatches that keeps nothing.
type unkept struct{}

// BeginDispatch implements hub.Dispatches.
func (unkept) BeginDispatch(context.Context, hub.Dispatch) (*hub.Dispatch, error) {
	return nil, nil //nolint:nilnil // as the interface says
}

// LinkDispatch implements hub.Dispatches.
func (unkept) LinkDispatch(context.Context, string, int, string, string) error { return nil }

// EndDispatch implements hub.Dispatches.
func (unkept) EndDispatch(context.Context, hub.DispatchEnd) error { return nil }

// ListDispatches implements hub.Dispatches.
func (unkept) ListDispatches(context.Context, hub.DispatchFilter) (hub.DispatchPage, error) {
	return hub.DispatchPage{}, nil
}

// CanceledDispatches implements hub.Dispatches.
func (unkept) CanceledDispatches(context.Context, []string, time.Duration, int) ([]hub.Dispatch, error) {
	return nil, nil
}

// SettleCancel implements hub.Dispatches.
func (unkept) SettleCancel(context.Context, string, int, hub.CancelOutcome) error { return nil }
