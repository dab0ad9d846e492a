package remotea2a

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/egress"
)

// stream does an operation that streams, and takes what comes until the stream ends. That
// it ends is no end of the task: without an outcome the task is looked at again.
func (f *following) stream(ctx context.Context, op operation, task string, params []byte) (*delivery.Outcome, error) {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	silent := time.AfterFunc(f.d.opt.Silence, cut)
	defer silent.Stop()
	req, err := f.request(ctx, op, task, params)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream, application/json")
	resp, err := f.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	next, err := f.source(resp, op, func() { silent.Reset(f.d.opt.Silence) })
	if err != nil {
		return nil, err
	}
	if next == nil {
		body, err := readAll(resp.Body, f.d.opt.MaxAnswer)
		if err != nil {
			return nil, err
		}
		return f.one(body)
	}
	return f.takeAll(ctx, inOrder(ctx, next))
}

// takeAll takes the events of a stream until it ends, and passes on what the caller adds
// meanwhile, however long the agent says nothing.
func (f *following) takeAll(ctx context.Context, events <-chan streamed) (*delivery.Outcome, error) {
	for {
		var e streamed
		select {
		case e = <-events:
		case m := <-f.listen():
			f.waiting = append(f.waiting, m)
			f.heed(ctx)
			continue
		case <-ctx.Done(): // then the reading ends as well
			return nil, ctx.Err()
		}
		if len(e.data) > 0 {
			if done, err := f.one(e.data); done != nil || err != nil {
				return done, err
			}
			if f.silent {
				return nil, nil
			}
			f.heed(ctx)
		}
		switch {
		case errors.Is(e.err, io.EOF):
			if f.id == "" {
				return nil, &garbled{"its stream ended before it said anything of the task"}
			}
			return nil, nil
		case e.err != nil:
			return nil, e.err
		}
	}
}

// streamed is an event, or why there are no more.
type streamed struct {
	data []byte
	err  error
}

// inOrder reads events while others do something else: up to the first error, or the end
// of ctx, which ends the reading, too.
func inOrder(ctx context.Context, next func() ([]byte, error)) <-chan streamed {
	events := make(chan streamed)
	go func() {
		for {
			data, err := next()
			select {
			case events <- streamed{data, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return events
}

// source gives what reads the events of an answer one by one, at the end with io.EOF; nil
// if the agent does not stream after all. alive is called when anything comes.
func (p *peer) source(resp *http.Response, op operation, alive func()) (next func() ([]byte, error), err error) {
	switch {
	case p.agent.binding == overGRPC:
		a, err := p.answerOfGRPC(resp, op)
		if err != nil {
			return nil, err
		}
		return func() ([]byte, error) {
			data, err := a.next()
			alive()
			return data, err
		}, nil
	case !isStream(resp):
		return nil, nil
	}
	lines := bufio.NewReaderSize(resp.Body, 32<<10)
	return func() ([]byte, error) { return readEvent(lines, p.d.opt.MaxAnswer, alive) }, nil
}

// one takes one event, or the one answer of an agent that does not stream after all.
func (f *following) one(data []byte) (*delivery.Outcome, error) {
	result, err := f.result(data)
	if err != nil {
		return nil, err
	}
	s, err := parse(result, f.agent.v03)
	if err != nil {
		return nil, err
	}
	return f.take(s)
}

func isStream(resp *http.Response) bool {
	mediaType, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return err == nil && mediaType == "text/event-stream"
}

// readEvent reads the data of the next event of a stream (the format is that of HTML,
// section 9.2). alive is called for each line, comments included.
func readEvent(r *bufio.Reader, limit int64, alive func()) (data []byte, err error) {
	for {
		line, err := readLine(r, limit)
		if err != nil {
			return data, err
		}
		alive()
		switch name, value, _ := bytes.Cut(line, []byte(":")); {
		case len(line) == 0 && len(data) > 0:
			return data, nil
		case string(name) == "data":
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		}
		if int64(len(data)) > limit {
			return nil, tooLarge()
		}
	}
}

// readLine reads a line of at most limit bytes, without its end.
func readLine(r *bufio.Reader, limit int64) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case int64(len(line)) > limit:
			return nil, tooLarge()
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return line, err
		}
		return bytes.TrimRight(line, "\r\n"), nil
	}
}

func tooLarge() error {
	return &egress.Error{Reason: egress.TooLarge, Message: "an event is larger than the hub takes", Sent: true}
}
