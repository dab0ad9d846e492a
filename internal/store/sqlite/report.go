package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Report implements hub.Transitions.
func (s *Store) Report(ctx context.Context, r hub.Report) (hub.Reported, error) {
	return write(ctx, s, func(t *tx) (hub.Reported, error) {
		out, err := t.report(&r)
		if err == nil && r.Next != nil {
			c, err := t.claim(s.parties.n(r.Callee), *r.Next)
			out.Next, out.Failed = c.Task, c.Failed
			return out, err
		}
		return out, err
	})
}

func (t *tx) report(r *hub.Report) (hub.Reported, error) {
	h, err := t.findFor(r.Task, r.Callee)
	if err != nil {
		return hub.Reported{}, err
	}
	if h == nil {
		return hub.Reported{}, hub.ErrTaskNotFound()
	}
	same, err := t.sameAgain(h, r)
	if err != nil {
		return hub.Reported{}, err
	}
	if same {
		return hub.Reported{Task: &h.Task, Replayed: true}, t.s.load(t.conn, h, hub.Load{})
	}
	if h.Phase == hub.Done {
		return hub.Reported{}, t.tooLate(h, r)
	}
	if err := checkClaim(h, r.Attempt); err != nil {
		return hub.Reported{}, err
	}
	if err := checkLimits(h, r); err != nil {
		return hub.Reported{}, err
	}
	if err := t.checkAppends(h, r.Events); err != nil {
		return hub.Reported{}, err
	}
	if err := t.apply(h, r); err != nil {
		return hub.Reported{}, err
	}
	return hub.Reported{Task: &h.Task}, t.s.load(t.conn, h, hub.Load{})
}

// checkClaim refuses whoever does not hold the newest claim.
func checkClaim(h *head, attempt int) error {
	switch {
	case attempt > h.Attempt:
		return hub.ErrNoSuchClaim()
	case h.Attempt == 0:
		return hub.Errorf(hub.Conflict, "nobody has claimed this task; claim it first")
	case attempt == 0 && h.lapse && h.open:
		e := hub.Errorf(hub.Conflict, "an earlier claim of this task has lapsed, so this has to say which one it is of; send the claim_id that the task was handed out with")
		e.Field = "X-Claim"
		return e
	case !h.open || (attempt != 0 && attempt != h.Attempt):
		return hub.ErrClaimLapsed()
	}
	return nil
}

// sameAgain reports whether this very report has settled the task under this very
// claim before.
func (t *tx) sameAgain(h *head, r *hub.Report) (bool, error) {
	if !r.State.Settled() || h.Attempt == 0 || (h.open && (r.Attempt == 0 || r.Attempt == h.Attempt)) {
		return false, nil
	}
	attempt := r.Attempt
	if attempt == 0 {
		attempt = h.Attempt
	}
	x, err := t.one("SELECT digest FROM attempt WHERE k = ?", attemptKey(h.n, attempt))
	if err != nil || x == nil {
		return false, err
	}
	return bytes.Equal(x.blob(0), r.Digest[:]), nil
}

// tooLate refuses a report after the end, and notes the first one of each claim.
func (t *tx) tooLate(h *head, r *hub.Report) error {
	refusal := hub.ErrClaimLapsed()
	attempt := r.Attempt
	if attempt == 0 {
		attempt = h.Attempt
	}
	if attempt > h.Attempt {
		return hub.ErrNoSuchClaim()
	}
	if !r.State.Settled() || attempt == 0 {
		return refusal
	}
	t.keep = true
	n, err := t.exec("UPDATE attempt SET late = 1 WHERE k = ? AND late = 0", attemptKey(h.n, attempt))
	if err != nil {
		return err
	}
	if n == 0 {
		return refusal
	}
	if h.State == hub.Canceled && h.CancelOutcome == hub.CancelUnconfirmed && attempt == h.Attempt {
		if err := t.setOutcome(h, hub.CancelAlreadyFinished); err != nil {
			return err
		}
	}
	if err := t.log(h, hub.ActLateReply, h.callee, fmt.Sprintf("a report of %s came after the task had ended", r.State)); err != nil {
		return err
	}
	return refusal
}

func (t *tx) setOutcome(h *head, o hub.CancelOutcome) error {
	h.CancelOutcome = o
	_, err := t.exec("UPDATE task SET cancel_outcome = ? WHERE n = ?", o, h.n)
	return err
}

// checkLimits refuses what would take a task beyond its limits; its end alone
// always fits.
func checkLimits(h *head, r *hub.Report) error {
	if r.State.Terminal() && len(r.Events) == 0 {
		return nil
	}
	size := h.bytes + int64(len(r.Message))
	for i := range r.Events {
		size += int64(len(r.Events[i].Body) + len(r.Events[i].Metadata))
	}
	events := h.Seq + int64(len(r.Events))
	if r.State.Settled() || len(r.Message) > 0 {
		events++
	}
	switch {
	case events > min(r.Limits.Events, maxNumber-1):
		return hub.Errorf(hub.TooLarge, "the task has %d events and may have %d; end it, with a status alone if need be", h.Seq, r.Limits.Events)
	case size > r.Limits.Bytes:
		return hub.Errorf(hub.TooLarge, "the task would hold %d bytes and may hold %d; end it, with a status alone if need be", size, r.Limits.Bytes)
	case r.State.Interrupted() && h.Messages+1 > min(r.Limits.Messages, maxNumber):
		return hub.Errorf(hub.TooLarge, "the task has %d messages, which is the limit; end it", h.Messages)
	}
	return nil
}

// checkAppends refuses chunks for artifacts that neither the task nor the report has.
func (t *tx) checkAppends(h *head, events []hub.Event) error {
	known := make(map[string]bool)
	for i := range events {
		e := &events[i]
		if e.Kind != hub.ArtifactEvent || !e.Append || known[e.ArtifactID] {
			known[e.ArtifactID] = true
			continue
		}
		r, err := t.one("SELECT 1 FROM artifact WHERE task = ? AND id = ?", h.n, e.ArtifactID)
		if err != nil {
			return err
		}
		if r == nil {
			return hub.InvalidField(fmt.Sprintf("events[%d]", i), "the task has no artifact %q to append to; send its first chunk without append", e.ArtifactID)
		}
		known[e.ArtifactID] = true
	}
	return nil
}

// apply writes a report that is accepted.
func (t *tx) apply(h *head, r *hub.Report) error {
	for i := range r.Events {
		if err := t.applyEvent(h, r.Events[i]); err != nil {
			return err
		}
	}
	switch {
	case r.State.Terminal():
		h.Error = r.Error
		return t.end(h, r.State, r.Message, h.callee, r.Digest[:])
	case r.State.Interrupted():
		return t.ask(h, r)
	}
	return t.renew(h, r)
}

func (t *tx) applyEvent(h *head, e hub.Event) error {
	if e.Kind == hub.StatusEvent {
		e.State = hub.Working
		return t.setStatus(h, e)
	}
	if err := t.addEvent(h, e); err != nil || e.Append {
		return err
	}
	_, err := t.exec("INSERT INTO artifact (task, id, n, start) VALUES (?1, ?2, ?3, ?3) ON CONFLICT DO UPDATE SET start = excluded.start",
		h.n, e.ArtifactID, h.Seq)
	return err
}

// ask parks a task with a question to its caller.
func (t *tx) ask(h *head, r *hub.Report) error {
	if err := t.setStatus(h, hub.Event{State: r.State, Body: r.Message}); err != nil {
		return err
	}
	if len(r.Message) > 0 {
		if err := t.addMessage(h, true, h.Seq, nil); err != nil {
			return err
		}
	}
	if err := t.closeAttempt(h, attemptAsked, r.Digest[:]); err != nil {
		return err
	}
	h.Phase, h.ranked, h.open, h.provisional, h.Failures, h.Due, h.LeaseUntil = hub.Parked, false, false, false, 0, time.Time{}, time.Time{}
	if err := t.saveStatus(h); err != nil {
		return err
	}
	if err := t.saveQueue(h); err != nil {
		return err
	}
	return t.log(h, hub.ActAsked, h.callee, "")
}

// renew keeps the task with its holder, with whatever events came along.
func (t *tx) renew(h *head, r *hub.Report) error {
	if r.State == hub.Working && len(r.Message) > 0 {
		if err := t.setStatus(h, hub.Event{State: hub.Working, Body: r.Message}); err != nil {
			return err
		}
	}
	if len(r.Events) > 0 || len(r.Message) > 0 {
		save := t.saveProgress
		if h.StateAt.Equal(t.now) {
			save = t.saveStatus
		}
		if err := save(h); err != nil {
			return err
		}
		if err := t.log(h, hub.ActProgress, h.callee, ""); err != nil {
			return err
		}
	}
	h.provisional = false
	h.lease(t.now, h.leaseFor)
	return t.saveQueue(h)
}

// Heartbeat implements hub.Transitions.
func (s *Store) Heartbeat(ctx context.Context, b hub.Heartbeat) (hub.Beat, error) {
	return write(ctx, s, func(t *tx) (hub.Beat, error) { return t.heartbeat(&b) })
}

func (t *tx) heartbeat(b *hub.Heartbeat) (hub.Beat, error) {
	h, err := t.findFor(b.Task, b.Callee)
	if err != nil {
		return hub.Beat{}, err
	}
	if h == nil {
		return hub.Beat{}, hub.ErrTaskNotFound()
	}
	if h.State == hub.Canceled && h.Attempt > 0 && (b.Attempt == 0 || b.Attempt == h.Attempt) {
		return t.cancelSeen(h, b.Unread)
	}
	if err := checkClaim(h, b.Attempt); err != nil {
		return hub.Beat{}, err
	}
	after := b.After
	if after < 0 {
		after = h.seen
	}
	out := hub.Beat{State: h.State}
	if b.Unread {
		after, h.seen = h.Messages, max(h.seen, min(b.After, h.Messages))
		out.Unseen = h.seen < h.Messages
	} else {
		h.seen = h.Messages
	}
	if after < h.Messages {
		all, err := messagesAfter(t.conn, h, after)
		if err != nil {
			return hub.Beat{}, err
		}
		for _, m := range all {
			if !m.FromCallee {
				out.Messages = append(out.Messages, m)
			}
		}
	}
	h.provisional = false
	if b.Lease > 0 {
		h.leaseFor = b.Lease
	}
	h.lease(t.now, h.leaseFor)
	out.LeaseUntil = h.LeaseUntil
	return out, t.saveQueue(h)
}

// cancelSeen tells the last holder of a canceled task, and notes that it knows unless it
// has to tell somebody else first.
func (t *tx) cancelSeen(h *head, unread bool) (hub.Beat, error) {
	out := hub.Beat{State: h.State, CancelRequested: true}
	if h.CancelOutcome != hub.CancelUnconfirmed || unread {
		return out, nil
	}
	if err := t.setOutcome(h, hub.CancelConfirmed); err != nil {
		return hub.Beat{}, err
	}
	return out, t.log(h, hub.ActCancelSeen, h.callee, "")
}
