package storetest

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// modelPush is a push-notification configuration and what is kept beside it.
type modelPush struct {
	hub.PushConfig
	due   time.Time // zero when nothing is left to deliver
	loan  int64     // the newest
	lent  bool      // it is out
	stale bool      // what is delivered under it does not count
}

// modelFailure is a notification that was given up.
type modelFailure struct {
	hub.PushFailure
	n    int
	task *modelTask
	push *modelPush
}

// read is the configuration as a reader sees it.
func (p *modelPush) read() hub.PushConfig {
	c := p.PushConfig
	if !p.lent {
		c.NextTry = p.due
	}
	return c
}

// rest makes what is left due at a time.
func (p *modelPush) rest(t *modelTask, at time.Time) {
	p.due = time.Time{}
	if p.Cursor < t.Seq {
		p.due = at
	}
}

// anew forgets what failed, and has the rest tried at once.
func (p *modelPush) anew(t *modelTask, now time.Time) {
	p.Tries, p.FailedSince, p.LastError = 0, time.Time{}, ""
	if p.lent {
		p.stale = true
	} else {
		p.rest(t, now)
	}
}

func (t *modelTask) push(id string) *modelPush {
	for _, p := range t.pushes {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// sentBy is a task that the viewer sent, or any if it sees all.
func (m *model) sentBy(ref hub.TaskRef, by hub.Viewer) (*modelTask, error) {
	t := m.visible(ref, by)
	if t == nil || !by.All && t.Caller.ID != by.Address {
		return nil, hub.ErrTaskNotFound()
	}
	return t, nil
}

// roomForPush refuses a configuration more than a task, nil for a new one, may have.
func (t *modelTask) roomForPush(id string, l hub.Limits) error {
	n := 0
	if t != nil {
		n = len(t.pushes)
	}
	if n < l.Pushes || t != nil && t.push(id) != nil {
		return nil
	}
	return hub.Errorf(hub.TooLarge, "the task has %d push-notification configurations", n)
}

func (m *model) putPush(t *modelTask, c hub.PushConfig, after int64) *modelPush {
	p := t.push(c.ID)
	if p == nil {
		p = &modelPush{PushConfig: hub.PushConfig{ID: c.ID, Task: t.ID, CreatedAt: m.now(), Cursor: after}}
		t.pushes = append(t.pushes, p)
	}
	p.URL, p.Version, p.Scheme, p.Sealed = c.URL, c.Version, c.Scheme, slices.Clone(c.Sealed)
	p.anew(t, m.now())
	return p
}

// PutPush implements hub.Pushes.
func (m *model) PutPush(ctx context.Context, ref hub.TaskRef, by hub.Viewer, c hub.PushConfig, l hub.Limits) (none hub.PushConfig, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return none, err
	}
	defer unlock()
	t, err := m.sentBy(ref, by)
	if err != nil {
		return none, err
	}
	if err := t.roomForPush(c.ID, l); err != nil {
		return none, err
	}
	after := t.Seq
	if t.Phase == hub.Done {
		after--
	}
	return m.putPush(t, c, after).read(), nil
}

// Push implements hub.Pushes.
func (m *model) Push(ctx context.Context, ref hub.TaskRef, by hub.Viewer, id string) (none hub.PushConfig, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return none, err
	}
	defer unlock()
	t, err := m.sentBy(ref, by)
	if err != nil {
		return none, err
	}
	p := t.push(id)
	if p == nil {
		return none, hub.ErrPushNotFound()
	}
	return p.read(), nil
}

// TaskPushes implements hub.Pushes.
func (m *model) TaskPushes(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (out []hub.PushConfig, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t, err := m.sentBy(ref, by)
	if err != nil {
		return nil, err
	}
	for _, p := range t.pushes {
		out = append(out, p.read())
	}
	return out, nil
}

// DeletePush implements hub.Pushes.
func (m *model) DeletePush(ctx context.Context, ref hub.TaskRef, by hub.Viewer, id string) (bool, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	t, err := m.sentBy(ref, by)
	if err != nil {
		return false, err
	}
	p := t.push(id)
	m.dropPush(t, p)
	return p != nil, nil
}

func (m *model) dropPush(t *modelTask, p *modelPush) {
	t.pushes = slices.DeleteFunc(t.pushes, func(x *modelPush) bool { return x == p })
	m.failures = slices.DeleteFunc(m.failures, func(f modelFailure) bool { return f.push == p })
}

// LendPushes implements hub.Pushes.
func (m *model) LendPushes(ctx context.Context, limit int, loan time.Duration) (jobs []hub.PushJob, next time.Duration, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer unlock()
	type due struct {
		t *modelTask
		p *modelPush
	}
	var all []due
	for _, t := range m.tasks {
		for _, p := range t.pushes {
			if !p.due.IsZero() {
				all = append(all, due{t, p})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b due) int { return a.p.due.Compare(b.p.due) })
	next = -1
	for _, x := range all {
		if len(jobs) < limit && !x.p.due.After(m.now()) {
			jobs = append(jobs, m.lend(x.t, x.p, loan))
		}
		if d := max(0, x.p.due.Sub(m.now())); next < 0 || d < next {
			next = d
		}
	}
	return jobs, next, nil
}

func (m *model) lend(t *modelTask, p *modelPush, loan time.Duration) hub.PushJob {
	m.loans++
	p.due, p.loan, p.lent, p.stale = m.now().Add(loan), m.loans, true, false
	j := hub.PushJob{Config: p.read(), Loan: p.loan, Caller: t.Caller, Callee: t.Callee, Context: t.ContextID}
	size := 0
	for _, e := range t.events[p.Cursor:] {
		if len(j.Events) == 64 || size >= 1<<20 {
			break
		}
		j.Events = append(j.Events, e)
		size += len(e.Body) + len(e.Metadata)
	}
	j.Ended = t.Phase == hub.Done && j.Events[len(j.Events)-1].Seq == t.Seq
	return j
}

// SettlePush implements hub.Pushes.
func (m *model) SettlePush(ctx context.Context, j hub.PushJob, o hub.PushOutcome) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	t := m.find(j.Config.Task)
	if t == nil || t.push(j.Config.ID) == nil {
		return hub.ErrPushNotFound()
	}
	p := t.push(j.Config.ID)
	if !p.lent || p.loan != j.Loan {
		return hub.Errorf(hub.Conflict, "that loan has ended")
	}
	p.lent = false
	if p.stale {
		p.stale = false
		p.rest(t, m.now())
		return nil
	}
	if o.Done > p.Cursor {
		p.Cursor = min(o.Done, t.Seq)
		p.Tries, p.FailedSince, p.LastError = 0, time.Time{}, ""
	}
	at := m.now().Add(o.Retry)
	if (o.Error != "" || o.GiveUp) && p.Cursor < t.Seq {
		p.Tries++
		p.LastError = o.Error
		if p.FailedSince.IsZero() {
			p.FailedSince = m.now()
		}
		if o.GiveUp {
			m.giveUp(t, p)
			at = m.now()
		}
	}
	p.rest(t, at)
	return nil
}

func (m *model) giveUp(t *modelTask, p *modelPush) {
	var kept []modelFailure
	for _, f := range m.failures {
		if f.push == p {
			kept = append(kept, f)
		}
	}
	first := len(kept) == 0 || kept[len(kept)-1].Seq != p.Cursor
	p.Cursor++
	p.Failed++
	m.failed++
	m.failures = append(m.failures, modelFailure{hub.PushFailure{
		ID: fmt.Sprint("f", m.failed), Task: t.ID, Config: p.ID, Seq: p.Cursor, At: m.now(), Tries: p.Tries, Reason: p.LastError,
	}, m.failed, t, p})
	if len(kept) == 1000 {
		m.failures = slices.DeleteFunc(m.failures, func(f modelFailure) bool { return f.n == kept[0].n })
	}
	p.Tries = 0
	if first || t.Phase == hub.Done && p.Cursor == t.Seq {
		m.note(t, hub.ActPushFailed, "hub", "")
	}
}

// ReleasePushes implements hub.Pushes.
func (m *model) ReleasePushes(ctx context.Context) error {
	unlock, err := m.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, t := range m.tasks {
		for _, p := range t.pushes {
			if p.lent {
				p.lent, p.stale = false, false
				p.rest(t, m.now())
			}
		}
	}
	return nil
}

// PushFailures implements hub.Pushes.
func (m *model) PushFailures(ctx context.Context, by hub.Viewer, task, cursor string, limit int) (out []hub.PushFailure, next string, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	if task != "" {
		if _, err := m.sentBy(hub.TaskRef{ID: task}, by); err != nil {
			return nil, "", err
		}
	}
	before := m.failed + 1
	if cursor != "" {
		if before, err = strconv.Atoi(cursor[1:]); err != nil || cursor[0] != 'f' {
			return nil, "", hub.InvalidField("cursor", "this hub did not make that cursor")
		}
	}
	for _, f := range slices.Backward(m.failures) {
		if f.n >= before || task != "" && f.task.ID != task || !by.All && f.task.Caller.ID != by.Address {
			continue
		}
		if len(out) == limit {
			return out, out[limit-1].ID, nil
		}
		f.URL = f.push.URL
		out = append(out, f.PushFailure)
	}
	return out, "", nil
}

// Redeliver implements hub.Pushes.
func (m *model) Redeliver(ctx context.Context, by hub.Viewer, failure string) (none hub.PushConfig, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return none, err
	}
	defer unlock()
	i := slices.IndexFunc(m.failures, func(f modelFailure) bool {
		return f.ID == failure && (by.All || f.task.Caller.ID == by.Address)
	})
	if i < 0 {
		return none, hub.Errorf(hub.NotFound, "there is no such failed notification")
	}
	f := m.failures[i]
	n := len(m.failures)
	m.failures = slices.DeleteFunc(m.failures, func(x modelFailure) bool { return x.push == f.push && x.Seq >= f.Seq })
	f.push.Failed -= n - len(m.failures)
	f.push.Cursor = f.Seq - 1 // it lies before the cursor
	f.push.anew(f.task, m.now())
	return f.push.read(), nil
}

// resealPushes replaces the secrets of all configurations, and drops the
// configurations whose secrets are dropped. Nothing changes with an error.
func (m *model) resealPushes(f func(sealed []byte, about string) ([]byte, error)) error {
	fresh := map[*modelPush][]byte{}
	for _, t := range m.tasks {
		for _, p := range t.pushes {
			if len(p.Sealed) == 0 {
				continue
			}
			sealed, err := f(slices.Clone(p.Sealed), hub.PushAbout(t.ID, p.ID))
			if err != nil {
				return err
			}
			fresh[p] = sealed
		}
	}
	for _, t := range m.tasks {
		for _, p := range slices.Clone(t.pushes) {
			if sealed, ok := fresh[p]; ok && len(sealed) == 0 {
				m.dropPush(t, p)
			} else if ok {
				p.Sealed = sealed
			}
		}
	}
	return nil
}
