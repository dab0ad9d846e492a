package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"
)

// maxEvent bounds one event of a stream, and each of its lines, in bytes: the hub's
// largest message with room for the escapes of JSON.
const maxEvent = 32 << 20

var errEventTooLarge = fmt.Errorf("%w: an event of the stream is larger than %d bytes", ErrTooLarge, maxEvent)

// sseEvent is one server-sent event.
type sseEvent struct {
	id   string // of this event alone; empty if it has none
	name string
	data []byte // valid until the next event is read
}

// sseReader reads server-sent events (HTML standard, section 9.2).
type sseReader struct {
	r      *bufio.Reader
	limit  int
	line   []byte
	data   []byte
	skipLF bool // the last line ended with CR, so LF would belong to it
	begun  bool
}

func newSSEReader(r io.Reader, limit int) *sseReader {
	return &sseReader{r: bufio.NewReaderSize(r, 16<<10), limit: limit}
}

// next reads the next event that has data. io.EOF is the end of the stream; an event
// that was not complete by then is dropped, as the standard says.
func (s *sseReader) next() (sseEvent, error) {
	var ev sseEvent
	s.data = s.data[:0]
	has := false
	for {
		line, err := s.readLine()
		if err != nil {
			return sseEvent{}, err
		}
		if len(line) == 0 {
			if has {
				ev.data = bytes.TrimSuffix(s.data, []byte("\n"))
				return ev, nil
			}
			ev = sseEvent{}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) { // "" is a comment
		case "data":
			if len(s.data)+len(value) >= s.limit {
				return sseEvent{}, errEventTooLarge
			}
			s.data = append(append(s.data, value...), '\n')
			has = true
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				ev.id = string(value)
			}
		case "event":
			ev.name = string(value)
		}
	}
}

// readLine reads up to the end of a line: CR, LF or both. What follows the last line
// end is no line.
func (s *sseReader) readLine() ([]byte, error) {
	s.line = s.line[:0]
	for {
		if _, err := s.r.Peek(1); err != nil {
			return nil, err
		}
		chunk, _ := s.r.Peek(s.r.Buffered())
		if s.skipLF {
			s.skipLF = false
			if chunk[0] == '\n' {
				s.discard(1)
				continue
			}
		}
		end := bytes.IndexAny(chunk, "\r\n")
		n := end
		if end < 0 {
			n = len(chunk)
		}
		if len(s.line)+n > s.limit {
			return nil, errEventTooLarge
		}
		s.line = append(s.line, chunk[:n]...)
		if end < 0 {
			s.discard(n)
			continue
		}
		s.skipLF = chunk[end] == '\r'
		s.discard(n + 1)
		return s.withoutMark(), nil
	}
}

// withoutMark drops a byte order mark before the first line.
func (s *sseReader) withoutMark() []byte {
	if s.begun {
		return s.line
	}
	s.begun = true
	return bytes.TrimPrefix(s.line, []byte("\ufeff"))
}

func (s *sseReader) discard(n int) { _, _ = s.r.Discard(n) } // n bytes are buffered

// streamCall is one stream of events and what to do with them.
type streamCall struct {
	call
	// resume sets what the next connection needs to go on after the last event.
	resume func(http.Header)
	// each takes an event; stop ends the stream.
	each func(sseEvent) (stop bool, err error)
	// quiet is called when a connection has ended without a fault and without any
	// event; stop ends the stream. May be nil.
	quiet func(context.Context) (stop bool, err error)
}

// follow keeps a stream going: a connection that broke, fell silent or was closed is
// replaced, after a random pause, as long as ctx allows. Until a first connection has
// stood, the tries are bounded.
func (c *Client) follow(ctx context.Context, s streamCall) error {
	if c.err != nil {
		return c.err
	}
	body, err := encodeBody(s.body)
	if err != nil {
		return err
	}
	stood := false
	for failures := 1; ; failures++ {
		got := 0
		open, stop, err := c.connect(ctx, s, body, &got)
		stood = stood || open
		if err == nil && !stop && got == 0 && s.quiet != nil {
			stop, err = s.quiet(ctx)
		}
		switch {
		case stop:
			return nil
		case ctx.Err() != nil:
			return ctxError(ctx, err)
		case err != nil && !temporary(err):
			return err
		case err != nil && !stood && failures >= c.retry.Tries:
			return err
		}
		if got > 0 {
			failures = 1
		}
		if !pause(ctx, c.delay(failures, err)) {
			return ctxError(ctx, err)
		}
	}
}

var errSilent = errors.New("nothing came for too long, not even a sign of life")

// connect makes one connection and reads it to its end. open tells that it stood;
// got counts the events. No error and no stop: the other side closed it.
func (c *Client) connect(ctx context.Context, s streamCall, body []byte, got *int) (open, stop bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	dog := watch(c.silence, func() { cancel(errSilent) })
	defer dog.stop()

	resp, err := c.openStream(ctx, s, body)
	if err != nil {
		return false, false, silentOr(ctx, s.call, err)
	}
	defer resp.Body.Close()
	events := newSSEReader(dog.reader(resp.Body), maxEvent)
	for {
		ev, err := events.next()
		switch {
		case errors.Is(err, io.EOF):
			return true, false, nil
		case errors.Is(err, errEventTooLarge):
			return true, false, err
		case err != nil:
			return true, false, silentOr(ctx, s.call, unreachable(s.call, err))
		}
		dog.hold()
		stop, err := s.each(ev)
		if err != nil || stop {
			return true, stop, err
		}
		dog.release()
		*got++
	}
}

// silentOr words the end of a connection that the watchdog ended.
func silentOr(ctx context.Context, r call, err error) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return unreachable(r, errSilent)
	}
	return err
}

// openStream requests a stream. Whatever answers with anything but a stream has
// given an error.
func (c *Client) openStream(ctx context.Context, s streamCall, body []byte) (*http.Response, error) {
	req, err := c.request(ctx, s.call, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Accept-Encoding", "identity") // what compresses may hold events back
	s.resume(req.Header)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(s.call, err)
	}
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && media == "text/event-stream" {
		return resp, nil
	}
	defer resp.Body.Close()
	answer, err := readAnswer(resp)
	if err != nil {
		return nil, unreachable(s.call, err)
	}
	return nil, streamRefusal(resp, answer)
}

// streamRefusal is the error in an answer that should have been a stream: JSON-RPC's
// or the API's own.
func streamRefusal(resp *http.Response, answer []byte) error {
	if err := rpcError(resp, answer); err != nil {
		return err
	}
	return answerError(resp, answer)
}

// watchdog calls back when nothing was read for a while.
type watchdog struct {
	d time.Duration
	t *time.Timer
}

func watch(d time.Duration, silent func()) *watchdog {
	return &watchdog{d: d, t: time.AfterFunc(d, silent)}
}

// hold stops the clock while the client itself is busy; release starts it again.
func (w *watchdog) hold()    { w.t.Stop() }
func (w *watchdog) release() { w.t.Reset(w.d) }
func (w *watchdog) stop()    { w.t.Stop() }

// reader starts the clock anew with each read of r.
func (w *watchdog) reader(r io.Reader) io.Reader { return watchedReader{w, r} }

type watchedReader struct {
	dog *watchdog
	r   io.Reader
}

func (r watchedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if n > 0 {
		r.dog.release()
	}
	return n, err
}
