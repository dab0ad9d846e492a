package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// stream follows one task: first the task as it is, unless it was resumed after an
// event, then each event.
type stream struct {
	task  string
	first *hub.Task
	// events is nil when the task had ended before the stream began.
	events *engine.Stream
	// lineageIgnored: see sent.
	lineageIgnored bool
	// v03 is how the stream looks to a client that is older than 1.0, else nil.
	v03 *viewV03
}

// frame is one StreamResponse of a stream (spec section 3.2.3) and the number after
// which to resume once a client has it. Either task or event is set.
type frame struct {
	seq   int64
	task  *hub.Task
	event *hub.Event
	final bool // the stream of a client older than 1.0 ends with this event
}

// batch is frames that came together; there is no more after the task's end, or when
// the hub shuts down.
type batch struct {
	frames []frame
	more   bool
}

// next waits for the next frames. When ctx ends before there are any, nothing is
// lost: the next call gives them.
func (s *stream) next(ctx context.Context) (batch, error) {
	if t := s.first; t != nil {
		s.first = nil
		return batch{frames: []frame{{seq: t.Seq, task: t}}, more: s.events != nil}, nil
	}
	events, more, err := s.events.Next(ctx)
	if errors.Is(err, io.EOF) { // the hub shuts down; the client resumes
		return batch{}, nil
	}
	if err != nil {
		return batch{}, &interrupted{err}
	}
	b := batch{frames: make([]frame, len(events)), more: more}
	for i := range events {
		b.frames[i] = frame{seq: events[i].Seq, event: &events[i]}
	}
	return b, nil
}

// interrupted is an error that a stream cannot go on after, unlike one of writing to
// a client that has gone.
type interrupted struct{ error }

// Unwrap gives the error itself.
func (i *interrupted) Unwrap() error { return i.error }

// append appends a frame as JSON.
func (s *stream) append(dst []byte, f frame) []byte {
	if s.v03 != nil {
		return s.v03.append(dst, s, f)
	}
	if f.task != nil {
		return append(canon.AppendTask(append(dst, `{"task":`...), f.task), '}')
	}
	return canon.AppendStreamResponse(dst, s.task, s.events.ContextID(), f.event)
}

// sink is where the results of a stream go.
type sink interface {
	// Comment is called after every silence, and before the first result if that may
	// take a while.
	Comment() error
	// result sends a StreamResponse, begun with the binding's open, which is event seq
	// of its task.
	result(seq int64, result []byte) error
	// interrupt ends the stream with an error.
	interrupt(f *fault)
}

// sseSink sends results as server-sent events (spec sections 9.4.2 and 11.7), whose ids
// are the numbers of the task's events. Comments fill silence and have no id, so that
// a client never resumes from something that was no event; nor has an error one.
type sseSink struct {
	*httpx.SSE
	b binding
}

func (s sseSink) result(seq int64, result []byte) error {
	return s.Event(strconv.FormatInt(seq, 10), "", s.b.end(result))
}

func (s sseSink) interrupt(f *fault) { _ = s.Event("", "", s.b.fail(nil, f)) }

// sinkOf is where the results of a request's stream go: to the binding itself, if it is
// a sink.
func sinkOf(w http.ResponseWriter, r *http.Request, b binding) sink {
	if own, ok := b.(sink); ok {
		return own
	}
	return sseSink{httpx.StartSSE(w, r), b}
}

// serveStream answers a request with a stream of results.
func (f *face) serveStream(w http.ResponseWriter, r *http.Request, b binding, s *stream) {
	noteLineage(w, s.lineageIgnored)
	out := sinkOf(w, r, b)
	if s.first == nil && out.Comment() != nil { // tells the client that it is connected
		return
	}
	var buf []byte
	emit := func(got batch) (bool, error) {
		for _, fr := range got.frames {
			buf = s.append(b.open(buf[:0]), fr)
			if err := out.result(fr.seq, buf); err != nil {
				return false, err
			}
		}
		return got.more, nil
	}
	next := s.next
	if s.v03 != nil {
		next = s.nextV03
	}
	err := httpx.Follow(r.Context(), out, next, emit)
	var cause *interrupted
	if errors.As(err, &cause) {
		out.interrupt(translate(r.Context(), f.opt.Log, cause.error))
	}
}
