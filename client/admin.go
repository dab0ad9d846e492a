package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// Whoami says who this client's token acts as.
func (c *Client) Whoami(ctx context.Context) (*Whoami, error) {
	return one[Whoami](ctx, c, call{method: http.MethodGet, path: "/v1/whoami", repeat: bounded})
}

// Info gives the state of the hub; for the administrator.
func (c *Client) Info(ctx context.Context) (*Info, error) {
	return one[Info](ctx, c, call{method: http.MethodGet, path: "/v1/admin/info", repeat: bounded})
}

// Agents lists the addresses that this caller may know of.
func (c *Client) Agents(ctx context.Context) ([]Agent, error) {
	return getAll[Agent](ctx, c, "/v1/agents")
}

// Agent gives an address by handle or id.
func (c *Client) Agent(ctx context.Context, ref string) (*Agent, error) {
	return atAgent[Agent](ctx, c, ref, call{method: http.MethodGet, repeat: bounded})
}

// CreateAgent creates an address; for the administrator. ErrConflict if the handle
// is taken.
func (c *Client) CreateAgent(ctx context.Context, r AgentRequest) (*Agent, error) {
	return one[Agent](ctx, c, call{method: http.MethodPost, path: "/v1/agents", body: r, repeat: unsent})
}

// UpdateAgent changes what is given of an address; for the administrator.
func (c *Client) UpdateAgent(ctx context.Context, ref string, r AgentRequest) (*Agent, error) {
	return atAgent[Agent](ctx, c, ref, call{method: http.MethodPatch, body: r, repeat: bounded})
}

// SetEndpoint says where the hub delivers the tasks of an address, "me" for the caller's
// own; for the administrator and the agent itself. The secret of the signatures is in the
// answer that made the endpoint and nowhere else.
func (c *Client) SetEndpoint(ctx context.Context, ref string, r EndpointRequest) (*Agent, error) {
	return atAgent[Agent](ctx, c, ref, call{method: http.MethodPut, body: r, repeat: unsent}, "endpoint")
}

// Attempts lists the tries of the hub to bring tasks to an address, "me" for the caller's
// own, the newest first, at most limit of them (0 for the hub's default); those of one
// task alone if task is not empty. It gives the cursor to read on from, empty on the last
// page. For the administrator and the agent itself.
func (c *Client) Attempts(ctx context.Context, ref, task, cursor string, limit int) (attempts []Attempt, next string, err error) {
	if err := checkRef("the handle", ref); err != nil {
		return nil, "", err
	}
	q := url.Values{}
	for name, value := range map[string]string{"task": task, "cursor": cursor} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return getPage[Attempt](ctx, c, agentPath(ref, "attempts"), q)
}

// Redeliver has an unfinished task of the caller's own address delivered again at once.
// ErrConflict if it has ended or waits for its caller.
func (c *Client) Redeliver(ctx context.Context, id string) (*Task, error) {
	if err := checkRef("the task's id", id); err != nil {
		return nil, err
	}
	return one[Task](ctx, c, call{
		method: http.MethodPost, path: "/v1/agents/me/tasks/" + url.PathEscape(id) + "/redeliver", repeat: unsent,
	})
}

// DeleteAgent deletes an address; for the administrator. Its history stays.
func (c *Client) DeleteAgent(ctx context.Context, ref string) error {
	_, err := atAgent[struct{}](ctx, c, ref, call{method: http.MethodDelete, repeat: unsent})
	return err
}

// CreateToken makes a token that acts as an address; for the administrator. The
// secret is in the answer and nowhere else.
func (c *Client) CreateToken(ctx context.Context, ref string, r TokenRequest) (*Token, error) {
	return atAgent[Token](ctx, c, ref, call{method: http.MethodPost, body: r, repeat: unsent}, "tokens")
}

// Tokens lists the tokens of an address, without their secrets; for the
// administrator.
func (c *Client) Tokens(ctx context.Context, ref string) ([]Token, error) {
	if err := checkRef("the handle", ref); err != nil {
		return nil, err
	}
	return getAll[Token](ctx, c, agentPath(ref, "tokens"))
}

// AllTokens lists the tokens of all addresses, without their secrets, in the order of
// the handles; for the administrator.
func (c *Client) AllTokens(ctx context.Context) ([]Token, error) {
	return getAll[Token](ctx, c, "/v1/tokens")
}

// RevokeToken ends a token; for the administrator. What it has open is closed within
// 30 s.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	if err := checkRef("the token's id", id); err != nil {
		return err
	}
	err := c.do(ctx, call{method: http.MethodDelete, path: "/v1/tokens/" + url.PathEscape(id), repeat: unsent})
	return err
}

// Requeue offers a task again; for the administrator. One that is being worked on is
// taken from its holder; one that waits for its next delivery waits no longer; one that
// has failed stays as it is, and a copy of it is sent, which is what Requeue gives.
func (c *Client) Requeue(ctx context.Context, id string) (*Task, error) {
	if err := checkRef("the task's id", id); err != nil {
		return nil, err
	}
	return one[Task](ctx, c, call{
		method: http.MethodPost, path: "/v1/tasks/" + url.PathEscape(id) + "/requeue", repeat: unsent,
	})
}

// one makes a call that answers with one thing.
func one[T any](ctx context.Context, c *Client, r call) (*T, error) {
	out := new(T)
	r.out = out
	if err := c.do(ctx, r); err != nil {
		return nil, err
	}
	return out, nil
}

// atAgent makes a call about an address.
func atAgent[T any](ctx context.Context, c *Client, ref string, r call, below ...string) (*T, error) {
	if err := checkRef("the handle", ref); err != nil {
		return nil, err
	}
	r.path = agentPath(ref, below...)
	return one[T](ctx, c, r)
}

const activityPath = "/api/activity"

// ActivityPage gives at most limit lines (0 for the hub's default) of the feed after
// a cursor, oldest first; an empty cursor is the oldest that is kept. It gives the
// cursor to read on from, too, which is there even if no lines are.
func (c *Client) ActivityPage(ctx context.Context, after string, limit int) (lines []Activity, next string, err error) {
	q := url.Values{}
	if after != "" {
		q.Set("after", after)
	}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	return getPage[Activity](ctx, c, activityPath, q)
}

// FollowActivity gives the lines of the feed after a cursor as they come, until ctx
// ends; an empty cursor means from now on. Broken connections and restarts of the hub
// are got over, without gap or duplicate from the cursor or the first line on.
func (c *Client) FollowActivity(ctx context.Context, after string) iter.Seq2[Activity, error] {
	return func(yield func(Activity, error) bool) {
		cursor := after
		err := c.follow(ctx, streamCall{
			call: call{method: http.MethodGet, path: activityPath},
			resume: func(h http.Header) {
				if cursor != "" {
					h.Set("Last-Event-ID", cursor)
				}
			},
			each: func(ev sseEvent) (stop bool, err error) {
				var line Activity
				if err := json.Unmarshal(ev.data, &line); err != nil {
					return false, &Error{Status: http.StatusOK, Code: "bad_answer", Message: "a line of the feed is no JSON of the expected shape"}
				}
				if ev.id != "" {
					cursor = ev.id
				}
				return !yield(line, nil), nil
			},
		})
		if err != nil {
			yield(Activity{}, err)
		}
	}
}
