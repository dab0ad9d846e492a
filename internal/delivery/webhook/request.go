package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// request makes the request that carries a task.
//
// Its headers are X-Holdfast-Task with the task's id, which is the same at each attempt;
// X-Parent-Call with its call, for what the callee sends to others on behalf of it; the
// credential of the endpoint; and the signature in the form of Standard Webhooks, with
// the endpoint's own key. webhook-id names the attempt.
func (w *Deliverer) request(ctx context.Context, d *delivery.Delivery, secrets hub.EndpointSecrets) (*http.Request, error) {
	now, t := time.Now(), d.Task
	body := appendBody(make([]byte, 0, size(t)+1024), t, now.Add(d.Lease))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.Endpoint.URL, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL of the endpoint is not valid") // the error repeats it
	}
	hook, err := standardwebhooks.NewWebhook(secrets.Signing)
	if err != nil {
		return nil, fmt.Errorf("read the key of the signature: %w", err)
	}
	// No dots, which the signed text has between its parts.
	id := t.ID + "_" + strconv.Itoa(t.Attempt)
	signature, err := hook.Sign(id, now, body)
	if err != nil {
		return nil, fmt.Errorf("sign the request: %w", err)
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/plain;q=0.9, */*;q=0.1")
	h.Set("User-Agent", w.opt.UserAgent)
	h.Set("X-Holdfast-Task", t.ID)
	h.Set("X-Parent-Call", t.CallID())
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, signature)
	authorise(h, &d.Endpoint, secrets.Credential)
	return req, nil
}

// authorise adds the credential of an endpoint.
func authorise(h http.Header, e *hub.Endpoint, credential string) {
	switch e.Auth {
	case "bearer":
		h.Set("Authorization", "Bearer "+credential)
	case "basic":
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(credential)))
	case "header":
		h.Set(e.Header, credential)
	}
}

// size is about how many bytes of payload the request for a task has.
func size(t *hub.Task) int64 {
	var n int64
	last := 0
	for i := range t.History {
		n += int64(len(t.History[i].Body))
		last = len(t.History[i].Body)
	}
	return n + int64(last)
}

// appendBody appends the body of a request. Its message is the newest of the caller, the
// one to work on, and its history all messages of the task in order, that one included.
func appendBody(b []byte, t *hub.Task, leaseUntil time.Time) []byte {
	text := func(name, value string) {
		b = append(b, '"')
		b = append(b, name...)
		b = append(b, `":`...)
		b = rawjson.AppendText(b, value)
		b = append(b, ',')
	}
	b = append(b, '{')
	text("task_id", t.ID)
	text("call_id", t.CallID())
	text("context_id", t.ContextID)
	b = append(b, `"attempt":`...)
	b = strconv.AppendInt(b, int64(t.Handouts()), 10)
	b = append(b, ',')
	text("claim_id", t.ClaimID())
	b = append(b, `"lease_expires_at":`...)
	b = canon.AppendTime(b, leaseUntil)
	b = append(b, `,"message":`...)
	if m := newest(t); m != nil {
		b = canon.AppendMessageV1(b, m.Body)
	} else {
		b = append(b, "null"...)
	}
	b = append(b, `,"history":[`...)
	for i := range t.History {
		if i > 0 {
			b = append(b, ',')
		}
		b = canon.AppendMessageV1(b, t.History[i].Body)
	}
	return append(b, "]}"...)
}

// newest is the caller's newest message.
func newest(t *hub.Task) *hub.Message {
	for i := len(t.History) - 1; i >= 0; i-- {
		if !t.History[i].FromCallee {
			return &t.History[i]
		}
	}
	return nil
}
