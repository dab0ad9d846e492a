package a2a

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// handler is A2A's operations (spec section 3.1) on the hub, whatever the binding.
// Its methods take decoded requests of a caller that may call the address, and end
// with a *hub.Error, a *fault, or an error that is for the log alone.
type handler struct {
	engine *engine.Engine
	// blocking is how long a blocking send waits.
	blocking time.Duration
}

// caller is who asks, which address they ask, and what came with the request
// besides its parameters (spec section 3.2.6): header values as they were sent,
// empty where there was none.
type caller struct {
	principal hub.Principal
	address   *hub.Address

	idempotencyKey, holdfastTask, parentCall, traceparent string
	lastEventID                                           string
	// extensions are those that the client supports.
	extensions []string
	// offer is what the address offers.
	offer offer
}

// ref names a task at the caller's address.
func (c *caller) ref(id string) engine.Ref { return engine.Ref{Callee: c.address.ID, Task: id} }

// addressed refuses a request that was routed to one address and names another, and
// one of a client that does not support what the address requires.
func (c *caller) addressed(tenant string) error {
	if tenant == "" || tenant == c.address.Handle {
		return c.offer.check(c.extensions)
	}
	return hub.InvalidField("tenant", "is another one than the address in the URL; leave it out or send the address's handle")
}

// sent is the answer to a send.
type sent struct {
	task *hub.Task
	// message is the canonical message to give in place of the task, or nil: see
	// bareReply.
	message []byte
	// lineageIgnored: a lineage header did not count.
	lineageIgnored bool
}

// SendMessage sends a message and, unless told to return immediately, waits until
// the task has ended or asks something, or the blocking limit has passed; then it
// gives the task as it is (spec sections 3.1.1 and 3.2.2).
func (h *handler) SendMessage(ctx context.Context, c *caller, r sendMessage) (sent, error) {
	req, err := sendRequest(c, r)
	if err != nil {
		return sent{}, err
	}
	wait := h.blocking
	if r.returnImmediately {
		wait = 0
	}
	res, err := h.engine.SendAndWait(ctx, c.principal, req, wait, hub.Load{History: r.history, Artifacts: true})
	return sent{task: res.Task, message: bareReply(r, res.Task), lineageIgnored: res.LineageIgnored}, r.push.located(err)
}

// SendStreamingMessage sends a message and follows its task (spec section 3.1.2).
// If the task ends before it can be followed, or is a replay's that had ended, the
// stream is the task alone.
func (h *handler) SendStreamingMessage(ctx context.Context, c *caller, r sendMessage) (*stream, error) {
	if err := c.offer.stream(); err != nil {
		return nil, err
	}
	req, err := sendRequest(c, r)
	if err != nil {
		return nil, err
	}
	res, err := h.engine.Send(ctx, c.principal, req)
	if err != nil {
		return nil, r.push.located(err)
	}
	s, err := h.follow(ctx, c, res.Task.ID, fromSnapshot, r.history)
	if err != nil && hub.KindOf(err) == hub.Ended {
		s = &stream{task: res.Task.ID}
		s.first, err = h.engine.Task(ctx, c.principal, c.ref(s.task), hub.Load{History: r.history, Artifacts: true})
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		// The send stands: an error would make the client send once more.
		s = &stream{task: res.Task.ID, first: res.Task}
	}
	s.lineageIgnored = res.LineageIgnored
	return s, nil
}

// sendRequest puts together what a send says, and refuses what this hub cannot do.
func sendRequest(c *caller, r sendMessage) (engine.SendRequest, error) {
	if err := c.addressed(r.tenant); err != nil {
		return engine.SendRequest{}, err
	}
	req := engine.SendRequest{
		To:             c.address.ID,
		MessageID:      r.message.ID,
		ContextID:      r.message.ContextID,
		TaskID:         r.message.TaskID,
		Message:        r.message.Body,
		Metadata:       r.metadata,
		IdempotencyKey: c.idempotencyKey,
		HoldfastTask:   c.holdfastTask,
		ParentCall:     c.parentCall,
		Traceparent:    c.traceparent,
	}
	if r.push == nil {
		return req, nil
	}
	req.Push = &r.push.config
	if err := c.offer.push(); err != nil {
		return req, err
	}
	return req, c.addressed(r.push.tenant)
}

// GetTask gives a task (spec section 3.1.3).
func (h *handler) GetTask(ctx context.Context, c *caller, r taskRequest) (*hub.Task, error) {
	if err := c.addressed(r.tenant); err != nil {
		return nil, err
	}
	return h.engine.Task(ctx, c.principal, c.ref(r.id), hub.Load{History: r.history, Artifacts: true})
}

// page is the answer to ListTasks.
type page struct {
	hub.TaskPage
	size int // the page size that counted
}

// ListTasks lists the tasks at the address that the caller may see, those whose
// status changed last first (spec section 3.1.4).
func (h *handler) ListTasks(ctx context.Context, c *caller, r listTasks) (page, error) {
	if err := c.addressed(r.tenant); err != nil {
		return page{}, err
	}
	p, err := h.engine.Tasks(ctx, c.principal, c.address.ID, hub.TaskFilter{
		Context: r.context,
		State:   r.state,
		Since:   r.since,
		Cursor:  r.pageToken,
		Limit:   r.pageSize,
		Total:   true,
		Load:    hub.Load{History: r.history, Artifacts: r.artifacts},
	})
	return page{TaskPage: p, size: r.pageSize}, err
}

// CancelTask cancels a task and gives it (spec section 3.1.5).
func (h *handler) CancelTask(ctx context.Context, c *caller, r taskRequest) (*hub.Task, error) {
	if err := c.addressed(r.tenant); err != nil {
		return nil, err
	}
	if _, err := h.engine.Cancel(ctx, c.principal, c.ref(r.id)); err != nil {
		return nil, err
	}
	return h.engine.Task(ctx, c.principal, c.ref(r.id), hub.Load{History: r.history, Artifacts: true})
}

// SubscribeToTask follows a task: from a snapshot, which a task that has ended has
// no use for (spec section 3.1.6), or from after the event that Last-Event-ID names.
func (h *handler) SubscribeToTask(ctx context.Context, c *caller, r taskRequest) (*stream, error) {
	if err := c.offer.stream(); err != nil {
		return nil, err
	}
	if err := c.addressed(r.tenant); err != nil {
		return nil, err
	}
	after, err := resumeAfter(c.lastEventID)
	if err != nil {
		return nil, err
	}
	return h.follow(ctx, c, r.id, after, r.history)
}

// fromSnapshot starts a stream with the task as it is.
const fromSnapshot = -1

// resumeAfter reads Last-Event-ID: the number of the last event that the client
// has, or fromSnapshot if it has none.
func resumeAfter(header string) (int64, error) {
	if header == "" {
		return fromSnapshot, nil
	}
	n, err := strconv.ParseInt(header, 10, 64)
	if err != nil || n < 0 || header[0] == '+' {
		return 0, hub.InvalidField("", "Last-Event-ID must be the id of an event of this task; leave it out to start with the task as it is")
	}
	return n, nil
}

// follow begins a stream; Ended for a snapshot of a task that has ended.
func (h *handler) follow(ctx context.Context, c *caller, id string, after int64, history int) (*stream, error) {
	events, err := h.engine.Subscribe(ctx, c.principal, c.ref(id), after, hub.Load{History: history, Artifacts: true})
	if err != nil {
		return nil, err
	}
	return &stream{task: id, first: events.Snapshot(), events: events}, nil
}
