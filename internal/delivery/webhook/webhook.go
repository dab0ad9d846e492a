package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// retryAfterMax is the most of a Retry-After that counts.
	retryAfterMax = time.Hour
	// drainMax and drainTime bound what is read of an answer that is of no interest, so
	// that its connection can serve again.
	drainMax  = 16 << 10
	drainTime = time.Second
	// roomPause is how long a large answer waits for room before it asks again.
	roomPause = 100 * time.Millisecond
)

// Doer sends requests: a client of an egress.Guard, which follows no redirects.
type Doer interface {
	Do(*http.Request) (*http.Response, error)
}

// Options are the settings of a Deliverer. What is zero has the default named with it.
type Options struct {
	// Public sends to public addresses, Private to those in private networks, too.
	Public, Private Doer
	// Sealer opens the secrets of endpoints.
	Sealer hub.Sealer
	// Parse reads a result in the form of /v1 and gives its Events, State, Message, Error
	// and Digest; its errors are hub.Invalid.
	Parse func(body []byte) (hub.Report, error)
	// MaxAnswer is the most bytes that an answer may have. Default: 8 MiB. The client
	// must let as many through.
	MaxAnswer int64
	// Timeout bounds a request with its answer. Default: 10 min. The client must let it
	// take that long.
	Timeout time.Duration
	// UserAgent is how the hub calls itself. Default: Holdfast.
	UserAgent string
	// Log gets what went wrong, without secrets, paths and queries. Default: nothing is
	// logged.
	Log *slog.Logger
}

// Deliverer delivers tasks as HTTP requests. Make one with New. It implements
// delivery.Deliverer.
type Deliverer struct{ opt Options }

// New makes a Deliverer.
func New(opt Options) *Deliverer {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.MaxAnswer = cmp.Or(opt.MaxAnswer, 8<<20)
	opt.Timeout = cmp.Or(opt.Timeout, 10*time.Minute)
	opt.UserAgent = cmp.Or(opt.UserAgent, "Holdfast")
	return &Deliverer{opt: opt}
}

// Deliver implements delivery.Deliverer.
func (w *Deliverer) Deliver(ctx context.Context, d delivery.Delivery) delivery.Outcome {
	ctx, cancel := context.WithTimeout(ctx, w.opt.Timeout)
	defer cancel()
	secrets, err := w.secrets(&d)
	if err != nil {
		w.opt.Log.ErrorContext(ctx, "a webhook cannot be called", "address", d.Task.Callee.ID, "error", err)
		return delivery.Outcome{Kind: delivery.Unsent, Reason: "the hub cannot open the secrets of this endpoint; set it anew"}
	}
	if err := hub.Reserve(ctx, size(d.Task)); err != nil {
		return delivery.Outcome{Kind: delivery.Unsent, Busy: true, Reason: "the hub is busy with other large tasks"}
	}
	req, err := w.request(ctx, &d, secrets)
	if err != nil {
		w.opt.Log.ErrorContext(ctx, "a webhook cannot be called", "address", d.Task.Callee.ID, "error", err)
		return delivery.Outcome{Kind: delivery.Unsent, Reason: "the hub could not put the request together; its log says more"}
	}
	client := w.opt.Public
	if d.Endpoint.Private {
		client = w.opt.Private
	}
	resp, err := client.Do(traced(req, d.Sent))
	if err != nil {
		return w.explain(ctx, err)
	}
	defer resp.Body.Close()
	out := w.judge(ctx, resp, cancel)
	out.Status = resp.StatusCode
	return out
}

// traced has sent called once a request has a connection.
func traced(req *http.Request, sent func()) *http.Request {
	if sent == nil {
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent() },
	}))
}

// secrets opens those of an endpoint.
func (w *Deliverer) secrets(d *delivery.Delivery) (s hub.EndpointSecrets, err error) {
	clear, err := w.opt.Sealer.Open(d.Endpoint.Sealed, hub.EndpointAbout(d.Task.Callee.ID))
	if err != nil {
		return s, fmt.Errorf("open the secrets: %w", err)
	}
	if json.Unmarshal(clear, &s) != nil {
		return s, errors.New("the secrets of the endpoint cannot be read") // the decoder's words may show them
	}
	return s, nil
}

// judge says what an answer means.
func (w *Deliverer) judge(ctx context.Context, resp *http.Response, cut func()) delivery.Outcome {
	status := resp.StatusCode
	if status/100 == 2 {
		body, err := w.read(ctx, resp)
		if err != nil {
			return w.explain(ctx, err)
		}
		return w.answer(resp.Header.Get("Content-Type"), body)
	}
	slow := time.AfterFunc(drainTime, cut)
	defer slow.Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, drainMax)
	out := delivery.Outcome{Kind: delivery.Refused, Reason: "its webhook answered " + statusText(status)}
	switch {
	case status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status/100 == 5:
		out.Kind, out.After = delivery.Lost, retryAfter(resp.Header.Get("Retry-After"), time.Now())
	case status/100 == 3:
		out.Reason += ", and redirects are not followed"
	}
	return out
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// read reads an answer's body. What is large waits until there is room for it.
func (w *Deliverer) read(ctx context.Context, resp *http.Response) ([]byte, error) {
	const small = 1 << 20
	body, err := io.ReadAll(io.LimitReader(resp.Body, min(small, w.opt.MaxAnswer+1)))
	if err != nil || len(body) < small {
		return w.bounded(body, err)
	}
	for hub.Reserve(ctx, w.opt.MaxAnswer) != nil {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(roomPause):
		}
	}
	rest, err := io.ReadAll(io.LimitReader(resp.Body, w.opt.MaxAnswer+1-int64(len(body))))
	return w.bounded(append(body, rest...), err)
}

func (w *Deliverer) bounded(body []byte, err error) ([]byte, error) {
	if int64(len(body)) > w.opt.MaxAnswer {
		return nil, &egress.Error{Reason: egress.TooLarge, Sent: true}
	}
	return body, err
}

// explain says what a request means that failed. Callers see the reason of what was
// sent, so it names no host.
func (w *Deliverer) explain(ctx context.Context, err error) delivery.Outcome {
	e, ok := errors.AsType[*egress.Error](err)
	if !ok {
		if ctx.Err() == nil {
			w.opt.Log.ErrorContext(ctx, "a webhook failed in an unknown way", "kind", fmt.Sprintf("%T", err))
		}
		return delivery.Outcome{Kind: delivery.Lost, Reason: "the request to its webhook failed"}
	}
	if !e.Sent {
		return delivery.Outcome{Kind: delivery.Unsent, Busy: e.Reason == egress.Busy || e.Reason == egress.Canceled, Reason: e.Message}
	}
	switch e.Reason { //nolint:exhaustive // the others mean the same of what was sent
	case egress.TooLarge:
		return delivery.Outcome{Kind: delivery.Refused, Reason: fmt.Sprintf("its answer has more than %d bytes", w.opt.MaxAnswer)}
	case egress.Timeout:
		return delivery.Outcome{Kind: delivery.Lost, Reason: "its webhook did not answer in time"}
	}
	return delivery.Outcome{Kind: delivery.Lost, Reason: "the connection to its webhook broke"}
}

// retryAfter reads the header of that name (RFC 9110, section 10.2.3): seconds, or a
// time.
func retryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		d = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), retryAfterMax)
}
