package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// retryAfterMax is the most of a Retry-After that counts.
	retryAfterMax = time.Hour
	// drainMax and drainTime bound what is read of an answer, so that its connection
	// can serve again.
	drainMax  = 16 << 10
	drainTime = time.Second
)

// failure is why a try failed.
type failure struct {
	reason     string // for the owner: neither secrets nor addresses
	retryAfter time.Duration
	gone       bool // trying again is of no use
	busy       bool // it was no try: the hub had no room for it
}

// deliver sends the events of a job in their order, until one fails, the job has to
// end, or settleAfter has passed.
func (s *Sender) deliver(j *job) (out hub.PushOutcome) {
	secrets, err := s.secrets(&j.Config)
	if err != nil {
		s.opt.Log.Error("a push notification cannot be sent", "task", j.Config.Task, "config", j.Config.ID, "error", err)
		return s.failed(j, out, 0, failure{reason: "the hub cannot open the secrets of this configuration; set it anew"})
	}
	begun := time.Now()
	for i := range j.Events {
		if s.ended(j) || i > 0 && time.Since(begun) >= settleAfter {
			return out
		}
		f, ok := s.try(j, secrets, &j.Events[i])
		switch {
		case ok:
			out.Done = j.Events[i].Seq
			s.opt.Observe(Delivered)
		case j.ctx.Err() != nil:
			return out // cut off, which is nobody's failure
		case f.busy:
			out.Retry = putOff(&j.PushJob)
			return out
		default:
			return s.failed(j, out, i, f)
		}
	}
	return out
}

// failed is the outcome of a job whose i-th event failed.
func (s *Sender) failed(j *job, out hub.PushOutcome, i int, f failure) hub.PushOutcome {
	c, e := j.Config, &j.Events[i]
	if i > 0 {
		c.Tries, c.FailedSince = 0, time.Time{}
	}
	left := s.opt.GiveUp
	if !c.FailedSince.IsZero() {
		since := c.FailedSince
		if e.At.After(since) {
			since = e.At
		}
		left -= s.opt.Now().Sub(since)
	}
	out.Error, out.GiveUp = f.reason, f.gone || left <= 0
	result, level := Failed, s.opt.Log.Info
	if out.GiveUp {
		result, level = GivenUp, s.opt.Log.Warn
	} else {
		// The last try is when the time is over.
		out.Retry = min(max(s.backoff(c.Tries), f.retryAfter), left)
	}
	s.opt.Observe(result)
	level("a push notification failed", "task", c.Task, "config", c.ID, "event", e.Seq,
		"tries", c.Tries+1, "given_up", out.GiveUp, "retry_in", out.Retry, "reason", f.reason)
	return out
}

// backoff is a random time below a bound that doubles with each try in vain before
// this one ("full jitter"), so that receivers that come back are not met by all at
// once.
func (s *Sender) backoff(tries int) time.Duration {
	bound := s.opt.BackoffMin
	for range tries {
		if bound *= 2; bound >= s.opt.BackoffMax {
			bound = s.opt.BackoffMax
			break
		}
	}
	return max(rand.N(bound), s.opt.BackoffMin/10)
}

// putOff is how long a job waits that found no room: longer if it fails anyway, so that
// the many of a dead host keep nobody busy, and if its event is large, since that is
// read each time.
func putOff(j *hub.PushJob) time.Duration {
	if j.Config.Tries > 0 || hub.Large(len(j.Events[0].Body)) {
		return 10*time.Second + rand.N(20*time.Second)
	}
	return 500*time.Millisecond + rand.N(time.Second)
}

// try sends one event. ok is whether the receiver has it.
func (s *Sender) try(j *job, secrets hub.PushSecrets, e *hub.Event) (f failure, ok bool) {
	ctx, cancel := context.WithTimeout(j.ctx, s.opt.Timeout)
	defer cancel()
	if s.opt.Room != nil {
		var leave func()
		ctx, leave = s.opt.Room.Enter(ctx)
		defer leave()
	}
	req, err := s.request(ctx, j, secrets, e)
	if err != nil {
		if hub.KindOf(err) == hub.Unavailable {
			return failure{busy: true}, false
		}
		if ctx.Err() == nil {
			s.opt.Log.Error("a push notification cannot be made", "task", j.Config.Task, "config", j.Config.ID, "event", e.Seq, "error", err)
		}
		return failure{reason: "the hub could not put the notification together; its log says more"}, false
	}
	resp, err := s.opt.Client.Do(req)
	if err != nil {
		return s.explain(j, err), false
	}
	defer resp.Body.Close()
	slow := time.AfterFunc(drainTime, cancel)
	_, _ = io.CopyN(io.Discard, resp.Body, drainMax) // what it says is of no interest
	slow.Stop()
	if resp.StatusCode/100 == 2 {
		return failure{}, true
	}
	return failure{
		reason:     refusal(j.host, resp.StatusCode),
		retryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
		gone:       resp.StatusCode == http.StatusGone,
	}, false
}

// explain turns an error of the guarded client into words for the owner.
func (s *Sender) explain(j *job, err error) failure {
	if e, ok := errors.AsType[*egress.Error](err); ok {
		return failure{reason: e.Message, busy: e.Reason == egress.Busy}
	}
	s.opt.Log.Error("a push notification failed in an unknown way", "task", j.Config.Task, "config", j.Config.ID, "kind", fmt.Sprintf("%T", err))
	return failure{reason: j.host + ": the request failed; the hub's log says more"}
}

// refusal says what a receiver answered.
func refusal(host string, status int) string {
	answer := strconv.Itoa(status)
	if text := http.StatusText(status); text != "" {
		answer += " " + text
	}
	if status/100 == 3 {
		return host + " answered " + answer + ", and redirects are not followed; give the URL that it leads to"
	}
	return host + " answered " + answer
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
