package client

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/holdfast-hub/holdfast/wire"
)

// Event is one thing that happened to a task: Task, Status or Artifact is set.
type Event struct {
	// Seq numbers the changes of a task from 1. Of a Task it is the number of the
	// newest change in it.
	Seq int64 `json:"seq"`
	// Task is the task as it was when the stream began; it comes first if at all.
	Task *Task `json:"task,omitempty"`
	// Status is a new state, or a message about the work.
	Status *Status `json:"status,omitempty"`
	// Artifact is a new artifact, one that replaces another with its id, or, with
	// Append, further parts of it. LastChunk says that no more will be appended.
	Artifact  *Artifact       `json:"artifact,omitempty"`
	Append    bool            `json:"append,omitempty"`
	LastChunk bool            `json:"last_chunk,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// Text is the text that came with the event: of the status's message, or of the
// artifact's parts.
func (e Event) Text() string {
	switch {
	case e.Artifact != nil:
		return PartText(e.Artifact.Parts)
	case e.Status != nil && e.Status.Message != nil:
		return PartText(e.Status.Message.Parts)
	}
	return ""
}

// State is the state that the event puts the task in, empty if it does not.
func (e Event) State() string {
	switch {
	case e.Status != nil:
		return e.Status.State
	case e.Task != nil:
		return e.Task.State
	}
	return ""
}

// Stream sends input like [Client.Send] and gives what happens to the task, in
// order, without gap or duplicate, until it has ended. The first event has the task
// itself, and so its id. A question of the callee does not end the stream, because
// the answer may come from elsewhere; break, or answer within the loop.
//
// A connection that breaks or falls silent, and a hub that restarts, are got over as
// long as ctx allows. Breaking out of the loop closes the stream; the task goes on.
func (c *Client) Stream(ctx context.Context, to string, input any, opts ...SendOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		t, message, err := c.send(ctx, to, input, opts)
		if err != nil {
			yield(Event{}, err)
			return
		}
		f := &following{c: c, to: to, id: t.ID, last: fromSnapshot, yield: yield}
		if t.Input != nil && t.Input.Message.MessageID == message {
			// The send made the task, so its story is told from the first event.
			f.last = 0
			if !yield(Event{Task: t}, nil) {
				return
			}
		}
		f.run(ctx)
	}
}

// SubscribeOption adds to a subscription.
type SubscribeOption func(*following)

// After gives the events after the one with that number, and no Task before them. It
// works for tasks that have ended, too.
func After(seq int64) SubscribeOption { return func(f *following) { f.last = seq } }

// Subscribe gives what happens to a task, as [Client.Stream] does: first the task as
// it is, then its events until it has ended. For a task that has ended, the task is
// all there is.
func (c *Client) Subscribe(ctx context.Context, to, id string, opts ...SubscribeOption) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := errors.Join(checkRef("the callee's handle", to), checkRef("the task's id", id)); err != nil {
			yield(Event{}, err)
			return
		}
		f := &following{c: c, to: to, id: id, last: fromSnapshot, yield: yield}
		for _, o := range opts {
			o(f)
		}
		f.run(ctx)
	}
}

// fromSnapshot is the place in a stream before the task itself.
const fromSnapshot = -1

// following is a stream of one task and how far it has come.
type following struct {
	c     *Client
	to    string
	id    string
	last  int64 // the newest event that was given, or fromSnapshot
	over  bool  // the task has ended, so an empty stream means that nothing is left
	yield func(Event, error) bool
}

func (f *following) run(ctx context.Context) {
	err := f.c.follow(ctx, streamCall{
		call: call{
			method: http.MethodPost, path: "/a/" + url.PathEscape(strings.TrimPrefix(f.to, "@")),
			header: http.Header{"A2a-Version": {"1.0"}},
			body:   rpcRequest{"2.0", 1, "SubscribeToTask", map[string]string{"id": f.id}},
		},
		resume: func(h http.Header) {
			if f.last != fromSnapshot {
				h.Set("Last-Event-ID", strconv.FormatInt(f.last, 10))
			}
		},
		each:  f.each,
		quiet: f.quiet,
	})
	if e, ok := errors.AsType[*Error](err); ok && e.Code == codeUnsupported && f.last == fromSnapshot {
		err = f.giveEnded(ctx)
	}
	if err != nil {
		f.yield(Event{}, err)
	}
}

// giveEnded gives a task that ended before it was subscribed to.
func (f *following) giveEnded(ctx context.Context) error {
	t, err := f.c.Get(ctx, f.to, f.id)
	if err != nil {
		return err
	}
	f.yield(Event{Task: t}, nil)
	return nil
}

// quiet finds out whether a connection that was closed without an event means the
// end: the hub may as well be about to stop.
func (f *following) quiet(ctx context.Context) (stop bool, err error) {
	if f.over {
		return true, nil
	}
	t, err := f.c.Get(ctx, f.to, f.id)
	if err != nil {
		return false, err
	}
	f.over = t.Ended()
	return false, nil
}

// each gives one event on.
func (f *following) each(ev sseEvent) (stop bool, err error) {
	var a rpcAnswer
	if err := json.Unmarshal(ev.data, &a); err != nil {
		return false, &Error{Status: http.StatusOK, Code: "bad_answer", Message: "an event of the stream is no JSON of the expected shape"}
	}
	if a.Error != nil {
		return false, rpcError(nil, ev.data)
	}
	if a.Result == nil {
		return false, nil
	}
	seq, _ := strconv.ParseInt(ev.id, 10, 64) // 0 if it has none
	if seq > 0 && seq <= f.last {
		return false, nil // given before
	}
	e, ok := f.event(seq, a.Result)
	if !ok {
		return false, nil
	}
	if seq > 0 {
		f.last = seq
	}
	if !f.yield(e, nil) {
		return true, nil
	}
	return Ended(e.State()), nil
}

// event translates; ok is false for what this version does not know.
func (f *following) event(seq int64, r *a2aResponse) (e Event, ok bool) {
	e.Seq = seq
	switch {
	case r.Task != nil:
		t := &Task{Task: r.Task.wire()}
		t.Callee = strings.TrimPrefix(f.to, "@")
		e.Task = t
	case r.StatusUpdate != nil:
		s := r.StatusUpdate.Status.wire()
		e.Status, e.Metadata = &s, r.StatusUpdate.Metadata
	case r.ArtifactUpdate != nil:
		u := r.ArtifactUpdate
		a := u.Artifact.wire()
		e.Artifact, e.Append, e.LastChunk, e.Metadata = &a, u.Append, u.LastChunk, u.Metadata
	default:
		return e, false
	}
	return e, true
}

// Fold applies the event to a task, as the hub does, so that after the last event of
// a stream the task holds all of it.
func (t *Task) Fold(e Event) {
	switch {
	case e.Task != nil:
		*t = *e.Task
	case e.Status != nil:
		t.Status, t.State = *e.Status, e.Status.State
	case e.Artifact != nil:
		t.foldArtifact(e)
	}
}

func (t *Task) foldArtifact(e Event) {
	for i := range t.Artifacts {
		a := &t.Artifacts[i]
		if a.ArtifactID != e.Artifact.ArtifactID {
			continue
		}
		if e.Append {
			a.Parts = append(a.Parts, e.Artifact.Parts...)
		} else {
			*a = clone(*e.Artifact)
		}
		return
	}
	t.Artifacts = append(t.Artifacts, clone(*e.Artifact))
}

// clone makes an artifact whose parts can be appended to.
func clone(a wire.Artifact) wire.Artifact {
	a.Parts = append([]Part(nil), a.Parts...)
	return a
}
