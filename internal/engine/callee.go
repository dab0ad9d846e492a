package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Report applies what a callee reports of a task that it holds; it is durable when
// Report returns.
func (e *Engine) Report(ctx context.Context, p hub.Principal, r ReportRequest) (ReportResult, error) {
	attempt, err := attemptOf(r.Task, r.Claim)
	if err != nil {
		return ReportResult{}, err
	}
	in := hub.Report{
		Callee: p.Address, Task: r.Task, Attempt: attempt, Events: r.Events, State: r.State,
		Message: r.Message, Error: r.Error, Digest: r.Digest, Limits: e.opt.Limits,
	}
	if in.Digest == ([32]byte{}) && r.State.Settled() {
		in.Digest = reportDigest(&in)
	}
	if r.Next != nil {
		spec, err := e.claimSpec(ctx, p, *r.Next)
		if err != nil {
			return ReportResult{}, err
		}
		in.Next = &spec
		e.seen.Store(p.Address, now())
	}
	out, err := e.store.Report(context.WithoutCancel(ctx), in)
	if err != nil {
		return ReportResult{}, err
	}
	if !out.Replayed {
		e.changed(out.Task, hint{state: out.Task.State, whole: whole(out.Task, r.Events)})
	}
	if out.Next != nil {
		e.changed(out.Next, hint{state: out.Next.State})
	}
	e.failed(out.Failed)
	return ReportResult{Task: out.Task, Next: out.Next}, nil
}

// reportDigest tells one settling report from another.
func reportDigest(r *hub.Report) (sum [32]byte) {
	h := sha256.New()
	part := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	part([]byte{byte(r.State)})
	part(r.Message)
	part([]byte(r.Error))
	for i := range r.Events {
		part(r.Events[i].Body)
	}
	h.Sum(sum[:0])
	return sum
}

// whole is a task that has ended with its artifacts, if the report that ended it
// brought all of them, else nil. Most tasks have three statuses and a result.
func whole(t *hub.Task, events []hub.Event) *hub.Task {
	if !t.State.Terminal() || t.Seq != int64(3+len(events)) || len(events) > 1 {
		return nil
	}
	out := *t
	out.Artifacts = make([][]byte, 0, len(events))
	for i := range events {
		if events[i].Kind != hub.ArtifactEvent {
			return nil
		}
		out.Artifacts = append(out.Artifacts, events[i].Body)
	}
	return &out
}

// Heartbeat renews a claim and hands over what its holder has not seen; see
// hub.Transitions.
func (e *Engine) Heartbeat(ctx context.Context, p hub.Principal, task, claim string, after int) (hub.Beat, error) {
	attempt, err := attemptOf(task, claim)
	if err != nil {
		return hub.Beat{}, err
	}
	return e.store.Heartbeat(context.WithoutCancel(ctx), hub.Heartbeat{Callee: p.Address, Task: task, Attempt: attempt, After: after})
}

// attemptOf reads a claim id, 0 if there is none.
func attemptOf(task, claim string) (int, error) {
	if claim == "" {
		return 0, nil
	}
	n, ok := hub.ParseClaimID(task, claim)
	if !ok {
		return 0, hub.ErrNoSuchClaim()
	}
	return n, nil
}

// Cancel ends a task for its caller or the administrator, and tells its holder with
// the next heartbeat.
func (e *Engine) Cancel(ctx context.Context, p hub.Principal, r Ref) (*hub.Task, error) {
	ref, err := e.ref(ctx, p, r)
	if err != nil {
		return nil, err
	}
	t, err := e.store.Cancel(context.WithoutCancel(ctx), ref, p.Viewer())
	if err != nil {
		return nil, err
	}
	e.changed(t, hint{state: t.State})
	e.looked(p, t, 0)
	return t, nil
}

// Requeue offers a task again that is held or waits to be delivered again, or repeats a
// failed one as a new task; for the administrator.
func (e *Engine) Requeue(ctx context.Context, p hub.Principal, task string) (*hub.Task, error) {
	if !p.Admin() {
		return nil, hub.Errorf(hub.NotPermitted, "only the hub's administrator can requeue a task")
	}
	return e.requeue(ctx, task, e.opt.NewID())
}

func (e *Engine) requeue(ctx context.Context, task, copied string) (*hub.Task, error) {
	t, err := e.store.Requeue(context.WithoutCancel(ctx), task, copied)
	if err != nil {
		return nil, err
	}
	e.changed(t, hint{state: t.State})
	e.pollers.wake(t.Callee.ID)
	if e.opt.Deliveries != nil {
		e.opt.Deliveries.Probe(t.Callee.ID)
	}
	return t, nil
}

// DeliverAgain has an unfinished task of p's address delivered again at once: one that waits
// is tried without waiting any longer, and one that is held is taken from its holder.
// NotFound unless the task is addressed to p, Conflict if it has ended or waits for its
// caller.
func (e *Engine) DeliverAgain(ctx context.Context, p hub.Principal, task string) (*hub.Task, error) {
	t, err := e.store.Task(ctx, hub.TaskRef{Callee: p.Address, ID: task}, hub.Viewer{Address: p.Address}, hub.Load{})
	if err != nil {
		return nil, err
	}
	if t.State.Terminal() {
		return nil, hub.Errorf(hub.Conflict, "the task has ended as %s; the administrator can requeue it if it failed, as a new task", t.State)
	}
	return e.requeue(ctx, task, "") // nor is it repeated if it fails just now
}
