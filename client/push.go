package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
)

// Pushes lists where the events of a task that this caller sent are sent, oldest
// first, with how far that has come. to is the callee.
func (c *Client) Pushes(ctx context.Context, to, task string) ([]Push, error) {
	if err := checkTask(to, task); err != nil {
		return nil, err
	}
	return getAll[Push](ctx, c, agentPath(to, "tasks", task, "push"))
}

// AddPush has the events of a task that this caller sent, from now on, sent to a URL.
// One with the same id is replaced, so that giving an id makes AddPush safe to repeat.
func (c *Client) AddPush(ctx context.Context, to, task string, r PushRequest) (*Push, error) {
	if err := checkTask(to, task); err != nil {
		return nil, err
	}
	again := unsent
	if r.ID != "" {
		again = bounded
	}
	return one[Push](ctx, c, call{method: http.MethodPost, path: agentPath(to, "tasks", task, "push"), body: r, repeat: again})
}

// DeletePush ends what AddPush began: nothing is sent for it once DeletePush has
// returned nil. That there is no such configuration is no error.
func (c *Client) DeletePush(ctx context.Context, to, task, id string) error {
	if err := checkTask(to, task); err != nil {
		return err
	}
	if err := checkRef("the configuration's id", id); err != nil {
		return err
	}
	return c.do(ctx, call{method: http.MethodDelete, path: agentPath(to, "tasks", task, "push", id), repeat: bounded})
}

// PushFailures gives a page of the notifications that were given up, newest first: of
// the tasks that this caller sent, for the administrator of all. task, if not empty,
// is the one whose are wanted; cursor is where the page before ended; limit is 0 for
// the hub's default. next is empty on the last page.
func (c *Client) PushFailures(ctx context.Context, task, cursor string, limit int) (failures []PushFailure, next string, err error) {
	q := url.Values{}
	for name, value := range map[string]string{"task": task, "cursor": cursor} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return getPage[PushFailure](ctx, c, "/v1/push/failures", q)
}

// RedeliverPush sends a notification that was given up again, and once more those that
// followed it.
func (c *Client) RedeliverPush(ctx context.Context, failure string) (*Push, error) {
	if err := checkRef("the failure's id", failure); err != nil {
		return nil, err
	}
	return one[Push](ctx, c, call{method: http.MethodPost, path: "/v1/push/failures/" + url.PathEscape(failure) + "/redeliver", repeat: unsent})
}

// checkTask refuses an empty reference to a task.
func checkTask(to, task string) error {
	return errors.Join(checkRef("the callee's handle", to), checkRef("the task's id", task))
}
