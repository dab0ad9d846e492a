package v1

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// releaseTime bounds the undoing of a claim that could not be handed over.
const releaseTime = 5 * time.Second

// next serves GET /v1/agents/me/tasks/next.
func (f *face) next(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	poll, err := f.poll(r, p)
	if err != nil {
		return err
	}
	leave := true
	defer func() {
		if leave {
			poll.Leave()
		}
	}()
	t, waits, err := poll.Look(r.Context())
	if waits {
		if f.park(w, r, poll) {
			leave = false
			return nil
		}
		t, err = poll.Wait(r.Context())
	}
	if err != nil {
		return err
	}
	if t == nil {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	return f.handOut(w, r, t, append(f.appendTask(make([]byte, 0, taskSize(t)), t, p), '\n'))
}

// poll begins a poll, or goes on with the one that was parked.
func (f *face) poll(r *http.Request, p hub.Principal) (*engine.Poll, error) {
	if poll, ok := httpx.Resumed(r.Context()).(*engine.Poll); ok {
		if poll.Of(p) {
			return poll, nil
		}
		poll.Leave()
	}
	q := r.URL.Query()
	req, err := f.nextRequest(q)
	if err != nil {
		return nil, err
	}
	if req.Wait, err = seconds(q, "wait", maxWait*time.Second); err != nil {
		return nil, err
	}
	return f.opt.Engine.Poll(r.Context(), p, req)
}

// park parks a poll if there are so many that their memory counts.
func (f *face) park(w http.ResponseWriter, r *http.Request, poll *engine.Poll) bool {
	return f.opt.Lot != nil && f.opt.Engine.Waiting().Polls > f.opt.ParkFrom && f.opt.Lot.Park(w, r, poll)
}

// nextRequest reads how a callee wants to hold its next task.
func (f *face) nextRequest(q url.Values) (req engine.NextRequest, err error) {
	if req.Lease, err = seconds(q, "lease", f.opt.Limits.LeaseMax); err != nil {
		return req, err
	}
	req.Ack, err = seconds(q, "ack", maxWait*time.Second)
	return req, err
}

// handOut writes an answer that carries the claim of t. If nobody is there to take
// it any more, the claim is undone and the task offered to the next one at once.
func (f *face) handOut(w http.ResponseWriter, r *http.Request, t *hub.Task, body []byte) error {
	err := r.Context().Err()
	if err == nil {
		if err = deliver(w, http.StatusOK, body); err == nil {
			return nil
		}
		f.release(r.Context(), t)
		return nil // part of the answer may be out
	}
	f.release(r.Context(), t)
	return err
}

// release undoes a claim, whatever became of the request.
func (f *face) release(ctx context.Context, t *hub.Task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
	defer cancel()
	f.opt.Engine.Release(ctx, t)
}

// getOwn serves GET /v1/agents/me/tasks/{id}.
func (f *face) getOwn(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	return f.show(w, r, p, p.Address, r.Header.Get("X-Claim"))
}

// result serves POST /v1/agents/me/tasks/{id}/result.
func (f *face) result(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	req, err := f.resultRequest(w, r)
	if err != nil {
		return err
	}
	res, err := f.opt.Engine.Report(r.Context(), p, req)
	if err != nil {
		return err
	}
	t := res.Task
	if !minimal(r) {
		t = f.reload(r, p, t)
	}
	b := make([]byte, 0, taskSize(t)+64)
	if req.Next == nil {
		return f.reply(w, f.appendTask(b, t, p))
	}
	b = append(f.appendTask(append(b, `{"task":`...), t, p), `,"next":`...)
	if res.Next == nil {
		return f.reply(w, append(b, "null}"...))
	}
	return f.handOut(w, r, res.Next, append(f.appendTask(b, res.Next, p), "}\n"...))
}

// resultRequest reads a result.
func (f *face) resultRequest(w http.ResponseWriter, r *http.Request) (engine.ReportRequest, error) {
	q := r.URL.Query()
	more, err := flag(q, "next")
	if err != nil {
		return engine.ReportRequest{}, err
	}
	next, err := f.nextRequest(q)
	if err != nil {
		return engine.ReportRequest{}, err
	}
	body, err := f.body(w, r)
	if err != nil {
		return engine.ReportRequest{}, err
	}
	rep, err := newReport(body)
	if err != nil {
		return engine.ReportRequest{}, err
	}
	req := engine.ReportRequest{
		Task: r.PathValue("id"), Claim: r.Header.Get("X-Claim"),
		Events: rep.events, State: rep.state, Message: rep.message, Error: rep.reason, Digest: rep.digest,
	}
	if more {
		req.Next = &next
	}
	return req, nil
}

// minimal reports whether the client wants no more than the head of the task
// (RFC 7240, section 4.2).
func minimal(r *http.Request) bool {
	for _, v := range r.Header["Prefer"] {
		for one := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(one), "return=minimal") {
				return true
			}
		}
	}
	return false
}

// reload reads all of a task whose report was just applied; the head alone if that
// fails, because the report stands.
func (f *face) reload(r *http.Request, p hub.Principal, t *hub.Task) *hub.Task {
	full, err := f.opt.Engine.Task(r.Context(), p, engine.Ref{Callee: p.Address, Task: t.ID}, everything())
	if err != nil {
		return t
	}
	return full
}

// events serves POST /v1/agents/me/tasks/{id}/events.
func (f *face) events(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	body, err := f.body(w, r)
	if err != nil {
		return err
	}
	events, err := decodeEvents(body)
	if err != nil {
		return err
	}
	res, err := f.opt.Engine.Report(r.Context(), p, engine.ReportRequest{
		Task: r.PathValue("id"), Claim: r.Header.Get("X-Claim"), Events: events,
	})
	if err != nil {
		return err
	}
	b := strconv.AppendInt([]byte(`{"seq":`), res.Task.Seq, 10)
	return f.reply(w, append(b, '}'))
}

// heartbeat serves POST /v1/agents/me/tasks/{id}/heartbeat. Its body is optional.
func (f *face) heartbeat(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	body, err := f.optionalBody(w, r)
	if err != nil {
		return err
	}
	after, err := decodeHeartbeat(body)
	if err != nil {
		return err
	}
	beat, err := f.opt.Engine.Heartbeat(r.Context(), p, r.PathValue("id"), r.Header.Get("X-Claim"), after)
	if err != nil {
		return err
	}
	return f.reply(w, appendBeat(nil, &beat))
}

// giveBack serves POST /v1/agents/me/tasks/{id}/release.
func (f *face) giveBack(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	if err := f.opt.Engine.GiveBack(r.Context(), p, r.PathValue("id"), r.Header.Get("X-Claim")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// appendBeat appends the answer to a heartbeat (wire.Heartbeat).
func appendBeat(b []byte, beat *hub.Beat) []byte {
	b = append(b, `{"state":"`...)
	b = append(b, beat.State.String()...)
	b = append(b, `","cancel_requested":`...)
	b = strconv.AppendBool(b, beat.CancelRequested)
	b = append(b, `,"lease_expires_at":`...)
	if beat.LeaseUntil.IsZero() {
		b = append(b, "null"...)
	} else {
		b = canon.AppendTime(b, beat.LeaseUntil)
	}
	b = append(b, `,"messages":[`...)
	for i := range beat.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = canon.AppendNumberedMessageV1(b, &beat.Messages[i])
	}
	return append(b, "]}"...)
}
