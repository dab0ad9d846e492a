package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// maxAnswer bounds what is read of an answer: a task at its limit of 64 MiB, with
	// room for the escapes of JSON.
	maxAnswer = 160 << 20
	// maxRetryAfter is the longest Retry-After that is waited for.
	maxRetryAfter = time.Minute
	// pollSlack is how late the answer to a long poll may be.
	pollSlack = 15 * time.Second
)

// repeat says when a call may be made again.
type repeat int

const (
	// never: one try; the caller of the call has a loop of its own.
	never repeat = iota
	// unsent: only if nothing of it can have happened.
	unsent
	// bounded: as Client.retry says; the call is safe to repeat.
	bounded
	// patient: until the context ends; the call is safe to repeat.
	patient
)

// call is one request to the hub and how it may be repeated.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	body         any // marshalled as JSON; nil for none
	out          any // what a 2xx answer is decoded into; nil to drop it
	// wait is how long the hub may take by design.
	wait   time.Duration
	repeat repeat
}

// do makes a call and repeats it as it may be.
func (c *Client) do(ctx context.Context, r call) error {
	if c.err != nil {
		return c.err
	}
	body, err := encodeBody(r.body)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		sent, err := c.try(ctx, r, body)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctxError(ctx, err)
		}
		if !c.again(r.repeat, try, sent, err) {
			return err
		}
		if !pause(ctx, c.delay(try, err)) {
			return ctxError(ctx, err)
		}
	}
}

func encodeBody(v any) ([]byte, error) {
	if v == nil {
		return nil, nil
	}
	b, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("the request cannot be encoded as JSON: %w", err)
	}
	return b, nil
}

// marshal is json.Marshal without the escapes that are for HTML pages.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// try makes one request. sent is false if it certainly never left.
func (c *Client) try(ctx context.Context, r call, body []byte) (sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit(r))
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent = true },
	})
	req, err := c.request(ctx, r, body)
	if err != nil {
		return false, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return sent, unreachable(r, err)
	}
	defer resp.Body.Close()
	answer, err := readAnswer(resp)
	if err != nil {
		return true, unreachable(r, err)
	}
	if resp.StatusCode/100 != 2 {
		return true, answerError(resp, answer)
	}
	return true, decodeAnswer(r, resp, answer)
}

// limit bounds one try. A long poll sends nothing large, so an answer that is late is
// soon noticed.
func (c *Client) limit(r call) time.Duration {
	if r.wait > 0 {
		return r.wait + min(c.timeout, pollSlack)
	}
	return c.timeout
}

func (c *Client) request(ctx context.Context, r call, body []byte) (*http.Request, error) {
	u := c.base + r.path
	if len(r.query) > 0 {
		u += "?" + r.query.Encode()
	}
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u, rd)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %s cannot be requested", ErrInvalid, r.method, r.path)
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json")
	}
	req.Header.Set("User-Agent", c.agent)
	c.authorize(req.Header)
	return req, nil
}

// unreachable words a failed exchange without the URL, which is in the error of
// net/http already.
func unreachable(r call, err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	return fmt.Errorf("%w: %s %s: %w", ErrUnreachable, r.method, r.path, err)
}

func readAnswer(resp *http.Response) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	return b, err
}

func decodeAnswer(r call, resp *http.Response, answer []byte) error {
	if r.out == nil || len(bytes.TrimSpace(answer)) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, r.out); err != nil {
		return &Error{
			Status: resp.StatusCode, Code: "bad_answer", RequestID: resp.Header.Get("X-Request-Id"),
			Message: fmt.Sprintf("the answer to %s %s is no JSON of the expected shape; is this the URL of a Holdfast hub?", r.method, r.path),
		}
	}
	return nil
}

// again decides whether a failed try is repeated.
func (c *Client) again(how repeat, try int, sent bool, err error) bool {
	if !temporary(err) {
		return false
	}
	e, answered := errors.AsType[*Error](err)
	if answered && e.RetryAfter > maxRetryAfter {
		return false
	}
	switch how {
	case patient:
		return true
	case bounded:
		return try < c.retry.Tries
	case unsent:
		return try < c.retry.Tries && (!sent || answered && e.untouched())
	}
	return false
}

// delay is how long to wait after the try-th failure.
func (c *Client) delay(try int, err error) time.Duration {
	d := c.retry.jitter(try)
	if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
		return e.RetryAfter + d
	}
	return d
}

// jitter is a random time up to Min doubled with each failure, at most Max: many
// clients that lost the same hub do not come back in step.
func (r Retry) jitter(failures int) time.Duration {
	limit := max(r.Min, time.Millisecond)
	for i := 1; i < failures && limit < r.Max; i++ {
		limit *= 2
	}
	return time.Duration(rand.Int64N(int64(min(limit, max(r.Max, time.Millisecond))))) + time.Millisecond
}

// pause waits; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// seconds writes a time for a query, whole or with decimals.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// agentPath is the path of an address, or of something below it. A handle may be
// written with the @ that people put before it.
func agentPath(ref string, below ...string) string {
	p := "/v1/agents/" + url.PathEscape(strings.TrimPrefix(ref, "@"))
	for _, s := range below {
		p += "/" + url.PathEscape(s)
	}
	return p
}

// checkRef refuses an empty reference, which would be another route.
func checkRef(what, ref string) error {
	if s := strings.TrimPrefix(ref, "@"); s == "" || s == "." || s == ".." {
		return fmt.Errorf("%w: %s is missing", ErrInvalid, what)
	}
	return nil
}
