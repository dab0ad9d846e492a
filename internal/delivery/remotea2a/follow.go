package remotea2a

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// grace is how long the hub still waits to learn what an agent calls a task that was
	// canceled meanwhile, so that it can be told.
	grace = 5 * time.Second
	// patience is how often in a row an agent may not be there while its task is followed.
	patience = 5
	// eventsMax bounds what an agent may say of a task in one delivery; the task has
	// limits of its own.
	eventsMax = 50_000
)

// following is one task on its way, and what the agent has said of it.
type following struct {
	*peer
	x       delivery.Delivery
	id      string // what the agent calls it; empty while that is not known
	context string
	linked  atomic.Bool
	begun   bool            // some of it may have reached the agent in this delivery
	told    map[string]bool // the artifacts that the hub has
	asked   bool            // an answer is on its way, so that it asked is old news
	waiting []hub.Message   // that the caller has added and the agent has not got
	silent  bool            // it said that the task has ended, and not with what
	events  int
}

const (
	// forgotten is why a task is lost that its agent has had.
	forgotten = "it has forgotten the task"
	// unsure is why one fails that may have been sent, and is not to be sent twice.
	unsure = "nobody knows whether an earlier delivery has reached it, and its owner does not want it repeated then"
)

// errHub says that the hub takes no more of the task.
var errHub = errors.New("the hub takes no more of the task")

// run brings the task to the agent, or finds it there, and follows it to its end.
func (f *following) run(ctx context.Context) delivery.Outcome {
	ctx, stop := f.late(ctx)
	defer stop()
	done, err := f.start(ctx)
	for tries := 0; done == nil; {
		switch {
		case err != nil && f.id == "":
			return f.unknown(err)
		case errors.Is(err, errHub) || ctx.Err() != nil:
			return delivery.Outcome{Kind: delivery.Lost, Reason: "the hub was no longer at it"}
		case err != nil && !passing(err):
			return outcomeOf(err, true)
		case err != nil:
			if tries++; tries >= patience {
				return outcomeOf(err, true)
			}
		default:
			tries = 0
		}
		if !pause(ctx, min(f.d.opt.PollMin<<min(tries, 10), f.d.opt.PollMax)) {
			continue
		}
		done, err = f.again(ctx)
	}
	return *done
}

// late is ctx, which ends a little later if the task was canceled before the agent has
// said what it calls it.
func (f *following) late(ctx context.Context) (context.Context, func()) {
	out, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), delivery.ErrCanceled) && !f.linked.Load() {
			t := time.AfterFunc(grace, func() { cut(delivery.ErrCanceled) })
			context.AfterFunc(out, func() { t.Stop() })
			return
		}
		cut(context.Cause(ctx))
	})
	return out, func() { stop(); cut(nil) }
}

// passing reports whether a request may succeed later: the agent is not there, or in
// trouble.
func passing(err error) bool {
	k := outcomeOf(err, true).Kind
	return k == delivery.Lost
}

// start finds the task at the agent, or sends it there.
func (f *following) start(ctx context.Context) (*delivery.Outcome, error) {
	e := f.x.Earlier
	switch {
	case e == nil:
	case e.RemoteTask == "":
		if f.x.OnUnknown == "fail" {
			return &delivery.Outcome{Kind: delivery.Refused, Reason: unsure}, nil
		}
	default:
		found, done, err := f.resume(ctx, e)
		if found || err != nil {
			return done, err
		}
		switch {
		case e.Attempt == f.x.Task.Attempt:
			return &delivery.Outcome{Kind: delivery.Lost, Reason: forgotten}, nil
		case f.x.Unsure && f.x.OnUnknown == "fail":
			return &delivery.Outcome{Kind: delivery.Refused, Reason: unsure}, nil
		}
	}
	return f.send(ctx, first(f.x.Task), "", f.x.Task.ContextID)
}

// resume goes on with a task that the agent has. Not found: it has forgotten it, or takes
// no answer to it.
func (f *following) resume(ctx context.Context, e *hub.Dispatch) (found bool, done *delivery.Outcome, err error) {
	t, err := f.get(ctx, e.RemoteTask)
	switch {
	case isNotFound(err):
		return false, nil, nil
	case err != nil && isUnsent(err):
		out := outcomeOf(err, false)
		return true, &out, nil
	case err != nil:
		out := outcomeOf(err, true)
		return true, &out, nil
	}
	if t.state.Interrupted() {
		if a := answer(f.x.Task); a != nil && !f.agent.single {
			f.link(t.id, t.context)
			f.asked = true
			done, err := f.send(ctx, a, t.id, t.context)
			return true, done, err
		}
		if f.agent.single {
			return false, nil, nil
		}
	}
	f.link(t.id, t.context)
	done, err = f.take(&said{task: t})
	return true, done, err
}

// send sends a message, and takes what the agent says to it: all, if it streams.
func (f *following) send(ctx context.Context, message []byte, task, remoteContext string) (*delivery.Outcome, error) {
	done, err := f.sendOnce(ctx, message, task, remoteContext)
	if isOtherVersion(err) && f.agent.binding == jsonRPC && f.id == "" {
		other := *f.agent // which has no card, or a wrong one
		other.v03 = !other.v03
		f.agent = &other
		f.d.agents.keep(f.url, &other)
		done, err = f.sendOnce(ctx, message, task, remoteContext)
	}
	return done, err
}

func (f *following) sendOnce(ctx context.Context, message []byte, task, remoteContext string) (*delivery.Outcome, error) {
	params := f.sendParams(message, task, remoteContext)
	f.begun = true
	if f.agent.streams {
		return f.stream(ctx, opStream, task, params)
	}
	result, err := f.call(ctx, opSend, task, params)
	if err != nil {
		return nil, err
	}
	s, err := parse(result, f.agent.v03)
	if err != nil {
		return nil, err
	}
	return f.take(s)
}

// again looks at a task that the agent has, and follows it further if it streams.
func (f *following) again(ctx context.Context) (*delivery.Outcome, error) {
	f.heed(ctx)
	t, err := f.get(ctx, f.id)
	if isNotFound(err) {
		return &delivery.Outcome{Kind: delivery.Lost, Reason: forgotten}, nil
	}
	if err != nil {
		return nil, err
	}
	done, err := f.take(&said{task: t})
	if done != nil || err != nil || !f.agent.streams || f.silent {
		return done, err
	}
	done, err = f.stream(ctx, opSubscribe, f.id, idParams(f.id))
	var refused *agentError
	if errors.As(err, &refused) { // it does not do that, or the task has just ended
		return nil, nil
	}
	return done, err
}

// listens reports whether the agent can be told more of the task just now.
func (f *following) listens() bool { return f.id != "" && !f.agent.single }

// listen is where what the caller adds comes from, nil while the agent cannot be told.
func (f *following) listen() <-chan hub.Message {
	if !f.listens() {
		return nil
	}
	return f.x.Messages
}

// heed passes on what the caller has added meanwhile. What does not arrive is kept, and
// tried again; an agent that takes no more to a task gets nothing.
func (f *following) heed(ctx context.Context) {
	for f.listens() {
		if len(f.waiting) == 0 {
			select {
			case m := <-f.x.Messages:
				f.waiting = append(f.waiting, m)
			default:
				return
			}
		}
		_, err := f.call(ctx, opSend, f.id, f.sendParams(f.waiting[0].Body, f.id, f.context))
		if err != nil && passing(err) {
			return
		}
		if err != nil {
			f.d.opt.Log.WarnContext(ctx, "a message to a task under way was not taken by its agent", "task", f.x.Task.ID, "error", err)
		}
		f.waiting = f.waiting[1:]
	}
}

// unknown is the outcome of a send of which nobody knows what came of it.
func (f *following) unknown(err error) delivery.Outcome {
	out := outcomeOf(err, false)
	if out.Kind == delivery.Lost && f.begun && f.x.OnUnknown == "fail" && out.Status == 0 {
		out.Kind = delivery.Refused
		out.Reason += "; nobody knows whether it has the task, and its owner does not want it repeated then"
	}
	return out
}

// link keeps what the agent calls the task.
func (f *following) link(id, remoteContext string) {
	if id == f.id && (remoteContext == "" || remoteContext == f.context) {
		return
	}
	f.id, f.context = id, remoteContext
	if f.x.Link != nil {
		f.x.Link(id, remoteContext)
	}
	f.linked.Store(true)
}

// take reports what the agent says. It gives the outcome once that is known.
func (f *following) take(s *said) (*delivery.Outcome, error) {
	if f.events++; f.events > eventsMax {
		return &delivery.Outcome{Kind: delivery.Refused, Reason: "it says too much of the task"}, nil
	}
	switch {
	case s.message != nil:
		if f.id != "" { // it is not said to end anything
			return nil, f.progress(hub.Report{State: hub.Working, Message: s.message})
		}
		return answered(hub.Report{State: hub.Completed, Message: s.message}), nil
	case s.artifact != nil:
		if f.foreign(s.taskID) {
			return nil, nil
		}
		return nil, f.progress(hub.Report{Events: []hub.Event{f.event(s)}})
	case f.foreign(s.task.id):
		return nil, nil
	}
	if s.task.id != "" {
		f.link(s.task.id, s.task.context)
	}
	if f.asked && s.task.state.Interrupted() && !s.status {
		f.asked = false // the task as it was before the answer
		return nil, nil
	}
	if s.status && s.task.state == hub.Completed && len(f.told) == 0 && s.task.message == nil {
		f.silent = true // some agents do not say in their streams what they have done
		return nil, nil
	}
	return f.settle(s.task)
}

// foreign reports whether an agent speaks of another task than this one.
func (f *following) foreign(id string) bool { return f.id != "" && id != "" && id != f.id }

// event is an artifact as the hub's task has it.
func (f *following) event(s *said) hub.Event {
	known := f.told[s.artifact.ID]
	f.told[s.artifact.ID] = true
	return hub.Event{
		Kind: hub.ArtifactEvent, ArtifactID: s.artifact.ID, Body: s.artifact.Body,
		Append: s.append && known, LastChunk: s.last,
	}
}

// settle takes a task as the agent has it.
func (f *following) settle(t *remoteTask) (*delivery.Outcome, error) {
	r := hub.Report{State: t.state, Message: t.message}
	for i := range t.artifacts {
		r.Events = append(r.Events, f.event(&said{artifact: &t.artifacts[i], last: true}))
	}
	switch {
	case t.state == hub.Canceled:
		return &delivery.Outcome{Kind: delivery.Refused, Reason: "it canceled the task"}, nil
	case t.state == hub.Completed && len(f.told) == 0 && t.message == nil && t.answer != nil:
		r.Events = []hub.Event{answerOf(t.answer)}
	case t.state == hub.Failed:
		r.Error = "the agent failed"
		if text := textOf(t.message); text != "" {
			r.Error = text
		}
		if t.message == nil {
			r.Message = canon.TextMessage(uuid.Must(uuid.NewV7()).String(), true, r.Error)
		}
	case t.state.Settled():
	case len(r.Events) > 0:
		return nil, f.progress(hub.Report{Events: r.Events})
	case t.state == hub.Working && t.message != nil:
		return nil, f.progress(hub.Report{State: hub.Working, Message: t.message})
	default:
		return nil, nil
	}
	return answered(r), nil
}

// answerOf is the artifact that the last message of an agent is that reports none.
func answerOf(message []byte) hub.Event {
	body := members(message, func(name string, value []byte) (string, []byte) {
		switch name {
		case "parts":
			return name, value
		case "messageId":
			return "artifactId", value
		}
		return "", nil
	})
	a, err := canon.ParseArtifact(body, "artifact", canon.V1Report)
	if err != nil { // which cannot be: its parts are those of a message
		a = canon.Artifact{ID: "answer", Body: []byte(`{"artifactId":"answer","parts":[{"text":""}]}`)}
	}
	return hub.Event{Kind: hub.ArtifactEvent, ArtifactID: a.ID, Body: a.Body, LastChunk: true}
}

// progress reports what the agent is at.
func (f *following) progress(r hub.Report) error {
	if f.x.Progress == nil {
		return nil
	}
	if err := f.x.Progress(r); err != nil {
		return errHub
	}
	return nil
}

// answered is the outcome of a report, with a digest that is the same for the same one.
func answered(r hub.Report) *delivery.Outcome {
	h := sha256.New()
	h.Write([]byte{byte(r.State)})
	h.Write(r.Message)
	h.Write([]byte(r.Error))
	for _, e := range r.Events {
		h.Write([]byte(e.ArtifactID))
		h.Write(e.Body)
	}
	copy(r.Digest[:], h.Sum(nil))
	return &delivery.Outcome{Kind: delivery.Answered, Report: r}
}

// pause waits; false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
