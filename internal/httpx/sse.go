package httpx

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	// HeartbeatEvery is how often an idle stream carries a comment.
	HeartbeatEvery = 15 * time.Second
	// writeTime is how long a client may take to accept what is written to it.
	writeTime = 30 * time.Second
)

// Stream writes an answer in parts. Every part goes out at once and has its own
// deadline: a client that does not read loses the stream. It is not for concurrent use.
type Stream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	limit time.Duration
}

// StartStream begins a stream as the answer to a request: the status 200 and the
// headers go out with the first part.
func StartStream(w http.ResponseWriter, r *http.Request) *Stream {
	limit := writeTime
	if d, ok := r.Context().Value(writeKey{}).(time.Duration); ok {
		limit = d
	}
	if rec := recorderOf(w); rec != nil {
		rec.stream = true
	}
	return &Stream{w: w, rc: http.NewResponseController(w), limit: limit}
}

// SSE writes a stream of server-sent events.
type SSE struct {
	*Stream
	buf []byte
}

// StartSSE begins a stream of events as the answer to a request.
func StartSSE(w http.ResponseWriter, r *http.Request) *SSE {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // a proxy that honours it does not hold events back
	return &SSE{Stream: StartStream(w, r)}
}

type writeKey struct{}

// WithWriteLimit makes the streams of a context give up on a client that has not
// accepted a write within d, in place of half a minute.
func WithWriteLimit(ctx context.Context, d time.Duration) context.Context {
	return context.WithValue(ctx, writeKey{}, d)
}

// Event sends one event. An empty id or name is left out; data may have several
// lines. Neither id nor name may contain a line end.
func (s *SSE) Event(id, name string, data []byte) error {
	if strings.ContainsAny(id, "\r\n\x00") || strings.ContainsAny(name, "\r\n") {
		return errors.New("an event's id and name have one line each")
	}
	s.buf = s.buf[:0]
	if id != "" {
		s.buf = append(append(append(s.buf, "id: "...), id...), '\n')
	}
	if name != "" {
		s.buf = append(append(append(s.buf, "event: "...), name...), '\n')
	}
	s.buf = appendData(s.buf, data)
	s.buf = append(s.buf, '\n')
	return s.flush()
}

// appendData adds a data line for each line of data, however its lines end.
func appendData(buf, data []byte) []byte {
	for {
		i := bytes.IndexAny(data, "\r\n")
		if i < 0 {
			return append(append(append(buf, "data: "...), data...), '\n')
		}
		buf = append(append(append(buf, "data: "...), data[:i]...), '\n')
		if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		data = data[i+1:]
	}
}

// Comment sends a line that clients ignore: it keeps the connection alive and
// finds out whether anybody is there.
func (s *SSE) Comment() error {
	s.buf = append(s.buf[:0], ":\n\n"...)
	return s.flush()
}

func (s *SSE) flush() error {
	if err := s.Send(s.buf); err != nil {
		return err
	}
	if cap(s.buf) > 1<<20 {
		s.buf = nil // one large event does not cost the stream its memory for ever
	}
	return nil
}

// Send sends one part within the write limit. The deadline is lifted afterwards,
// because on HTTP/2 it would end an idle stream.
func (s *Stream) Send(part []byte) error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(s.limit)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := s.w.Write(part); err != nil {
		return err
	}
	if err := s.rc.Flush(); err != nil {
		return err
	}
	if err := s.rc.SetWriteDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// Follow sends what next gives until emit says that there is no more, next fails or
// ctx ends. next waits; whenever it has waited for HeartbeatEvery its context ends
// with context.DeadlineExceeded, a comment goes out and it is asked again, so it
// must lose nothing when that happens.
func Follow[T any](ctx context.Context, s interface{ Comment() error }, next func(context.Context) (T, error), emit func(T) (more bool, err error)) error {
	for {
		item, err := waitNext(ctx, next)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			if err := s.Comment(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if more, err := emit(item); err != nil || !more {
			return err
		}
	}
}

func waitNext[T any](ctx context.Context, next func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, HeartbeatEvery)
	defer cancel()
	return next(ctx)
}
