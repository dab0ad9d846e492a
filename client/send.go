package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

const (
	roleUser  = "user"
	roleAgent = "agent"
	// pollWait is how long one long poll for a task's end waits at the hub.
	pollWait = 30 * time.Second
	// maxWait is the longest that the hub lets one request wait.
	maxWait = time.Minute
)

// SendOption adds to a send.
type SendOption func(*send)

type send struct {
	body    wire.SendRequest
	key     string
	lineage lineage
	err     error
}

// WithContext sends within a context (a conversation). If the callee has an open
// question in it, the message is the answer; else it is a new task of that context.
func WithContext(id string) SendOption { return func(s *send) { s.body.ContextID = id } }

// WithTask sends to a task that exists: the answer to its question, or a message to
// its holder.
func WithTask(id string) SendOption { return func(s *send) { s.body.TaskID = id } }

// WithTags adds tags, by which runs can be found.
func WithTags(tags map[string]string) SendOption { return func(s *send) { s.body.Tags = tags } }

// WithMetadata adds metadata: v as a JSON object.
func WithMetadata(v any) SendOption {
	return func(s *send) {
		p, err := Data(v)
		s.body.Metadata, s.err = p.Data, errors.Join(s.err, err)
	}
}

// WithDeadline makes the task fail if it has not ended by then.
func WithDeadline(at time.Time) SendOption {
	return func(s *send) { s.body.Deadline = wire.At(at) }
}

// WithIdempotencyKey makes sends with the same key one send: the second gives the
// task of the first. It counts until a day after the task has ended. Without the
// option a send has a random key of its own, which makes its retries safe.
func WithIdempotencyKey(key string) SendOption { return func(s *send) { s.key = key } }

// WithParent makes the task part of the call with that id, instead of the task that
// the context's handler works on.
func WithParent(call string) SendOption {
	return func(s *send) { s.lineage.parentCall, s.lineage.none = call, false }
}

// WithoutParent makes the task the root of a run of its own, also in a handler.
func WithoutParent() SendOption {
	return func(s *send) { s.lineage.parentCall, s.lineage.none = "", true }
}

// WithTraceparent sets the W3C trace context that the task keeps.
func WithTraceparent(v string) SendOption { return func(s *send) { s.lineage.traceparent = v } }

// Send sends input to the address to, and returns once the hub has it safely on
// disk; the work is still to be done. Input is a string, a [Message], parts, or
// anything that marshals to JSON, which becomes a data part.
//
// Send repeats what failed for a passing reason; the task is created once whatever
// happens.
func (c *Client) Send(ctx context.Context, to string, input any, opts ...SendOption) (*Task, error) {
	t, _, err := c.send(ctx, to, input, opts)
	return t, err
}

// SendAndWait sends and waits, as long as ctx allows, until the task has ended or
// asks something. Broken connections and restarts of the hub do not end the wait.
// See [Task.Err] for what became of it. If the wait is cut short, the error comes
// with the task as it was last seen.
func (c *Client) SendAndWait(ctx context.Context, to string, input any, opts ...SendOption) (*Task, error) {
	t, err := c.Send(ctx, to, input, opts...)
	if err != nil {
		return nil, err
	}
	return c.wait(ctx, to, t)
}

// Answer answers the question of a task of this caller, or sends its holder another
// message.
func (c *Client) Answer(ctx context.Context, t *Task, input any, opts ...SendOption) (*Task, error) {
	return c.Send(ctx, calleeOf(t), input, slices.Concat(opts, []SendOption{WithTask(t.ID)})...)
}

// calleeOf is the address that a task was sent to, in the form that the hub gave.
func calleeOf(t *Task) string {
	if t.Callee != "" {
		return t.Callee
	}
	return t.CalleeAgentID
}

// send gives the id of the message that was sent, too.
func (c *Client) send(ctx context.Context, to string, input any, opts []SendOption) (*Task, string, error) {
	s, err := newSend(to, input, opts)
	if err != nil {
		return nil, "", err
	}
	h := http.Header{}
	h.Set("Idempotency-Key", s.key)
	s.lineage.set(ctx, h)
	t := new(Task)
	err = c.do(ctx, call{
		method: http.MethodPost, path: agentPath(to, "tasks"), query: url.Values{"wait": {"0"}},
		header: h, body: s.body, out: t, repeat: bounded,
	})
	if err != nil {
		return nil, "", err
	}
	return t, s.body.Message.MessageID, nil
}

func newSend(to string, input any, opts []SendOption) (*send, error) {
	s := &send{}
	for _, o := range opts {
		o(s)
	}
	m, err := messageOf(input, roleUser)
	if err := errors.Join(checkRef("the callee's handle", to), s.err, err); err != nil {
		return nil, err
	}
	if s.key == "" {
		s.key = newID()
	}
	if m.MessageID == "" {
		// The same key must come with the same message, from another process too.
		m.MessageID = idFrom(sha256.Sum256([]byte("message " + s.key)))
	}
	s.body.Message = m
	return s, nil
}

// newID is a random UUID (version 4).
func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:16]) // never fails
	return idFrom(b)
}

// idFrom is the first half of b in the form of a UUID.
func idFrom(b [32]byte) string {
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// Get gives a task as it is now. An empty to stands for any address, here and
// wherever a task is read by its id.
func (c *Client) Get(ctx context.Context, to, id string) (*Task, error) {
	return c.get(ctx, to, id, 0, bounded)
}

// Poll gives a task once it has ended or asks something, or as it is after wait (at
// most a minute).
func (c *Client) Poll(ctx context.Context, to, id string, wait time.Duration) (*Task, error) {
	return c.get(ctx, to, id, min(wait, maxWait), bounded)
}

func (c *Client) get(ctx context.Context, to, id string, wait time.Duration, how repeat) (*Task, error) {
	if err := checkRef("the task's id", id); err != nil {
		return nil, err
	}
	path := "/v1/tasks/" + url.PathEscape(id)
	if to != "" {
		path = agentPath(to, "tasks", id)
	}
	t := new(Task)
	err := c.do(ctx, call{
		method: http.MethodGet, path: path, query: url.Values{"wait": {seconds(wait)}},
		out: t, wait: wait, repeat: how,
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// Wait waits, as long as ctx allows, until a task has ended or asks something.
// Broken connections and restarts of the hub do not end the wait. If it is cut
// short, the error comes with the task as it was last seen, or nil.
func (c *Client) Wait(ctx context.Context, to, id string) (*Task, error) {
	t, err := c.get(ctx, to, id, pollWait, bounded)
	if err != nil {
		return nil, err
	}
	return c.wait(ctx, to, t)
}

func (c *Client) wait(ctx context.Context, to string, t *Task) (*Task, error) {
	for early := 0; !t.Settled(); {
		start := time.Now()
		now, err := c.get(ctx, to, t.ID, pollWait, patient)
		if err != nil {
			return t, err
		}
		t = now
		if t.Settled() || time.Since(start) > pollWait/2 {
			early = 0
			continue
		}
		// A hub that is about to stop answers at once; do not spin on it.
		early++
		if !pause(ctx, c.retry.jitter(early)) {
			return t, ctxError(ctx, nil)
		}
	}
	return t, nil
}

// Cancel cancels a task. The task is canceled when Cancel returns; its callee learns
// of it soon. Cancelling twice is fine; a task that ended otherwise gives
// ErrNotCancelable.
func (c *Client) Cancel(ctx context.Context, to, id string) (*Task, error) {
	if err := errors.Join(checkRef("the callee's handle", to), checkRef("the task's id", id)); err != nil {
		return nil, err
	}
	t := new(Task)
	err := c.do(ctx, call{
		method: http.MethodPost, path: agentPath(to, "tasks", id, "cancel"), out: t, repeat: bounded,
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// TaskQuery selects tasks; the zero value selects all.
type TaskQuery struct {
	State     string // such as "failed"
	ContextID string
	// Pending keeps tasks that this caller sent and that have not ended, or whose end
	// it has not read.
	Pending bool
	// Sent keeps tasks that this caller sent; without it, a callee sees those that
	// were sent to it as well.
	Sent bool
	// Cursor starts where an earlier page ended.
	Cursor string
	// Limit is how many tasks one page has; 0 for the hub's default.
	Limit int
}

func (q TaskQuery) values() url.Values {
	v := url.Values{}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("state", q.State)
	set("context_id", q.ContextID)
	set("cursor", q.Cursor)
	if q.Pending {
		v.Set("pending", "true")
	}
	if q.Sent {
		v.Set("sent", "true")
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// List gives the tasks that this caller may see at the address to, or at any if to
// is empty, those whose status changed last first. It fetches page after page as the
// loop goes on. The tasks come without history and artifacts; Get has those.
func (c *Client) List(ctx context.Context, to string, q TaskQuery) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		for {
			tasks, next, err := c.ListPage(ctx, to, q)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, t := range tasks {
				if !yield(t, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			q.Cursor = next
		}
	}
}

// ListPage gives one page of what List gives, and the cursor of the next page, empty
// on the last.
func (c *Client) ListPage(ctx context.Context, to string, q TaskQuery) (tasks []*Task, next string, err error) {
	path := "/v1/tasks"
	if to != "" {
		path = agentPath(to, "tasks")
	}
	return getPage[*Task](ctx, c, path, q.values())
}

// Pending gives the tasks that this caller sent, to any address, and that have not
// ended or whose end it has not read yet with Get, Poll or Wait.
func (c *Client) Pending(ctx context.Context) iter.Seq2[*Task, error] {
	return c.List(ctx, "", TaskQuery{Pending: true})
}

// getPage fetches one page of anything.
func getPage[T any](ctx context.Context, c *Client, path string, q url.Values) ([]T, string, error) {
	var l wire.List[T]
	if err := c.do(ctx, call{method: http.MethodGet, path: path, query: q, out: &l, repeat: bounded}); err != nil {
		return nil, "", err
	}
	if l.NextCursor == nil {
		return l.Data, "", nil
	}
	return l.Data, *l.NextCursor, nil
}

// getAll fetches all pages of something that is not long.
func getAll[T any](ctx context.Context, c *Client, path string) ([]T, error) {
	var all []T
	q := url.Values{}
	for {
		page, next, err := getPage[T](ctx, c, path, q)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if next == "" {
			return all, nil
		}
		q.Set("cursor", next)
	}
}
