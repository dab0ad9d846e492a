package storetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// due is when something is to be done about a task without anybody asking; a zero
// time for never.
func (t *modelTask) due(leases bool) time.Time {
	at := t.Deadline
	if t.Phase == hub.Done {
		return time.Time{}
	}
	earlier := func(x time.Time) {
		if at.IsZero() || x.Before(at) {
			at = x
		}
	}
	if t.Phase == hub.Leased && (leases || t.claim.Ack > 0) {
		earlier(t.until)
	}
	if t.Phase == hub.Ready && !t.Due.IsZero() {
		earlier(t.Due)
	}
	return at
}

// Sweep implements hub.Transitions.
func (m *model) Sweep(ctx context.Context, limit int, leases bool, l hub.Limits) (got hub.Swept, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return got, err
	}
	defer unlock()
	waiting := slices.Clone(m.tasks)
	waiting = slices.DeleteFunc(waiting, func(t *modelTask) bool { return t.due(leases).IsZero() })
	slices.SortStableFunc(waiting, func(a, b *modelTask) int { return a.due(leases).Compare(b.due(leases)) })
	got.Next = -1
	for _, t := range waiting {
		if t.due(leases).After(m.now()) {
			break
		}
		if got.Changed == limit {
			got.More = true
			break
		}
		got.Changed++
		m.advance(t, l, &got)
	}
	for _, t := range m.tasks {
		if d := t.due(leases); !d.IsZero() && (got.Next < 0 || d.Sub(m.now()) < got.Next) {
			got.Next = max(0, d.Sub(m.now()))
		}
	}
	return got, nil
}

// advance does the one thing that is due for a task.
func (m *model) advance(t *modelTask, l hub.Limits, got *hub.Swept) {
	switch {
	case !t.Deadline.IsZero() && !t.Deadline.After(m.now()):
		m.end(t, hub.Failed, anything, "the deadline passed before the task had ended", "hub")
	case t.Phase == hub.Ready:
		m.offer(t)
	case t.claim.Ack > 0:
		t.lapsed = true
		m.offer(t)
		m.note(t, hub.ActUnconfirmed, "hub", "")
	default:
		m.lost(t, l, 0, hub.ActLeaseExpired, "its callee went silent")
	}
	if t.Phase == hub.Done {
		got.Tasks = append(got.Tasks, t.ID)
	} else if t.Due.IsZero() {
		got.Ready = append(got.Ready, t.Callee.ID)
	}
}

// lost counts a lost delivery, and offers the task again after a backoff or fails it.
func (m *model) lost(t *modelTask, l hub.Limits, after time.Duration, kind hub.ActivityKind, why string) {
	t.lapsed = true
	t.Failures++
	if t.Failures > m.redeliveries(t.Callee.ID, l) {
		m.end(t, hub.Failed, anything, fmt.Sprintf("delivered %d times in vain; the last time, %s", t.Failures, why), "hub")
		return
	}
	m.offer(t)
	t.Due = m.now().Add(max(l.Backoff(t.Failures), after))
	if !t.Deadline.IsZero() && t.Deadline.Before(t.Due) {
		t.Due = t.Deadline
	}
	m.note(t, kind, "hub", why)
}

// Lose implements hub.Transitions.
func (m *model) Lose(ctx context.Context, l hub.Loss) (*hub.Task, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t := m.find(l.Task)
	switch {
	case t == nil || t.Callee.ID != l.Callee:
		return nil, hub.ErrTaskNotFound()
	case t.Phase != hub.Leased || t.Attempt != l.Attempt:
		return nil, hub.ErrClaimLapsed()
	}
	m.lost(t, l.Limits, l.After, hub.ActLost, l.Reason)
	return t.header(), nil
}

func (m *model) redeliveries(callee string, l hub.Limits) int {
	for _, a := range m.addrs {
		if a.ID == callee && a.MaxRedeliveries >= 0 {
			return a.MaxRedeliveries
		}
	}
	return l.Redeliveries
}

// CancelQueued implements hub.Transitions.
func (m *model) CancelQueued(ctx context.Context, callee string, limit int) (got hub.Swept, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return got, err
	}
	defer unlock()
	got.Next = -1
	for _, t := range m.tasks {
		if t.Callee.ID != callee || t.Phase == hub.Done {
			continue
		}
		if got.Changed == limit {
			got.More = true
			break
		}
		m.cancel(t, anything, "hub")
		got.Changed++
		got.Tasks = append(got.Tasks, t.ID)
	}
	return got, nil
}

// Prune implements hub.Transitions.
func (m *model) Prune(ctx context.Context, before time.Time, limit int) (out hub.Pruned, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return out, err
	}
	defer unlock()
	m.tasks = slices.DeleteFunc(m.tasks, func(t *modelTask) bool {
		gone := out.Tasks < limit && t.Phase == hub.Done && t.EndedAt.Before(before) && !m.keyCounts(t) && !t.notifies(m.now().Add(-hub.PushPatience))
		if gone {
			out.Tasks++
			m.forget(t)
		}
		return gone
	})
	m.lines = slices.DeleteFunc(m.lines, func(l line) bool { return l.At.Before(before) || m.find(l.Task) == nil })
	out.More = out.Tasks == limit
	return out, nil
}

// keyCounts reports whether a send may still be a replay of one to the task.
func (m *model) keyCounts(t *modelTask) bool {
	for _, v := range m.keys {
		if v.task == t && m.now().Sub(t.EndedAt) < 24*time.Hour {
			return true
		}
	}
	return false
}

// notifies reports whether a configuration of the task has something to deliver that
// became due after a time.
func (t *modelTask) notifies(since time.Time) bool {
	return slices.ContainsFunc(t.pushes, func(p *modelPush) bool { return p.due.After(since) })
}

func (m *model) forget(t *modelTask) {
	for _, p := range slices.Clone(t.pushes) {
		m.dropPush(t, p)
	}
	for k, v := range m.keys {
		if v.task == t {
			delete(m.keys, k)
		}
	}
}

// MarkRead implements hub.Transitions.
func (m *model) MarkRead(ctx context.Context, marks []hub.ReadMark) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, k := range marks {
		t := m.find(k.Task)
		if t == nil {
			continue
		}
		if k.Polls > 0 {
			t.PollCount += k.Polls
			t.LastPolledAt = m.now()
		}
		if k.End && t.ReadAt.IsZero() {
			t.ReadAt = m.now()
		}
	}
	return nil
}
