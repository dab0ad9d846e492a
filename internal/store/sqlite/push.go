package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// What becomes of a configuration on loan, as kept in push.lent.
const (
	lentNot   = iota
	lentOut   // a sender has it
	lentStale // a sender has it, but what it delivers no longer counts
)

const (
	// failuresMax is how many failures are kept of one configuration, the newest.
	failuresMax = 1_000
	// pushEventsMax bounds the events of one job.
	pushEventsMax = 64
)

// push is a configuration as it is kept.
type push struct {
	hub.PushConfig
	k    int64
	due  time.Time // zero when nothing is left to deliver
	lent int64
	loan int64
}

const pushColumns = `p.k, p.id, p.url, p.version, p.scheme, p.sealed, p.created_at, p.cursor, p.due_at, p.lent, p.loan,
	p.tries, p.failed_since, p.last_error, p.failed `

func scanPush(r row, task string) *push {
	p := &push{k: r.int(0), due: r.time(8), lent: r.int(9), loan: r.int(10)}
	p.PushConfig = hub.PushConfig{
		ID: r.text(1), Task: task, URL: r.text(2), Version: r.text(3), Scheme: r.text(4), Sealed: r.blob(5),
		CreatedAt: r.time(6), Cursor: r.int(7), Tries: int(r.int(11)), FailedSince: r.time(12), LastError: r.text(13), Failed: int(r.int(14)),
	}
	return p
}

// config is the configuration as a reader sees it.
func (p *push) config() hub.PushConfig {
	c := p.PushConfig
	c.NextTry = time.Time{}
	if p.lent == lentNot {
		c.NextTry = p.due
	}
	return c
}

// sentBy gives a task to who sent it, and to who sees all; to everybody else it is
// NotFound.
func (s *Store) sentBy(c *conn, ref hub.TaskRef, by hub.Viewer) (*head, error) {
	h, err := s.find(c, ref, by)
	if err == nil && (h == nil || (!by.All && h.caller != s.parties.n(by.Address))) {
		err = hub.ErrTaskNotFound()
	}
	return h, err
}

// pushes reads the configurations of a task, oldest first.
func (c *conn) pushes(h *head) (list []*push, err error) {
	err = c.each("SELECT "+pushColumns+"FROM push p WHERE p.k >= ? AND p.k <= ? ORDER BY p.k", []any{key(h.n, 0), key(h.n, maxNumber)},
		func(r row) (bool, error) {
			list = append(list, scanPush(r, h.ID))
			return true, nil
		})
	return list, err
}

// push reads the configuration of a task with that id, nil if there is none.
func (c *conn) push(h *head, id string) (*push, error) {
	if h.Pushes == 0 {
		return nil, nil
	}
	r, err := c.one("SELECT "+pushColumns+"FROM push p WHERE p.k >= ? AND p.k <= ? AND p.id = ?", key(h.n, 0), key(h.n, maxNumber), id)
	if err != nil || r == nil {
		return nil, err
	}
	return scanPush(r, h.ID), nil
}

// PutPush implements hub.Pushes.
func (s *Store) PutPush(ctx context.Context, ref hub.TaskRef, by hub.Viewer, c hub.PushConfig, l hub.Limits) (hub.PushConfig, error) {
	return write(ctx, s, func(t *tx) (hub.PushConfig, error) {
		h, err := s.sentBy(t.conn, ref, by)
		if err != nil {
			return hub.PushConfig{}, err
		}
		if err := t.roomForPush(h, &c, l); err != nil {
			return hub.PushConfig{}, err
		}
		after := h.Seq
		if h.State.Terminal() {
			after--
		}
		p, err := t.putPush(h, &c, after)
		if err != nil {
			return hub.PushConfig{}, err
		}
		return p.config(), nil
	})
}

// roomForPush refuses a configuration more than a task may have; h is nil for a task
// that is yet to be made.
func (t *tx) roomForPush(h *head, c *hub.PushConfig, l hub.Limits) error {
	var have int
	var newest int64
	if h != nil && h.Pushes > 0 {
		list, err := t.pushes(h)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.ID == c.ID {
				return nil
			}
			newest = number(p.k)
		}
		have = len(list)
	}
	if have < l.Pushes && newest < maxNumber {
		return nil
	}
	return hub.Errorf(hub.TooLarge, "the task has %d push-notification configurations and may have %d; delete one that is not needed", have, l.Pushes)
}

// putPush adds a configuration that wants the events after a number, or replaces the
// one with its id, which goes on where it is.
func (t *tx) putPush(h *head, c *hub.PushConfig, after int64) (*push, error) {
	p, err := t.push(h, c.ID)
	if err != nil {
		return nil, err
	}
	if p == nil {
		p = &push{PushConfig: hub.PushConfig{ID: c.ID, Task: h.ID, CreatedAt: t.now, Cursor: after}}
		r, err := t.one("SELECT max(k) FROM push WHERE k >= ? AND k <= ?", key(h.n, 0), key(h.n, maxNumber))
		if err != nil {
			return nil, err
		}
		p.k = max(r.int(0), key(h.n, 0)) + 1
		h.Pushes++
		if _, err := t.exec("UPDATE task SET pushes = ? WHERE n = ?", h.Pushes, h.n); err != nil {
			return nil, err
		}
	}
	p.URL, p.Version, p.Scheme, p.Sealed = c.URL, c.Version, c.Scheme, c.Sealed
	p.anew(t.now, h.Seq)
	_, err = t.exec(`INSERT OR REPLACE INTO push (k, id, url, version, scheme, sealed, created_at, cursor, due_at, lent, loan,
		tries, failed_since, last_error, failed) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
		p.k, p.ID, p.URL, p.Version, optional(p.Scheme), p.Sealed, p.CreatedAt, p.Cursor, p.due, p.lent, p.loan,
		p.Tries, p.FailedSince, optional(p.LastError), p.Failed)
	return p, err
}

// anew has a configuration tried at once, as if nothing had failed. What a sender
// delivers meanwhile, as things were before, does not count.
func (p *push) anew(now time.Time, seq int64) {
	p.Tries, p.FailedSince, p.LastError = 0, time.Time{}, ""
	if p.lent != lentNot {
		p.lent = lentStale
		return
	}
	p.rest(now, seq)
}

// rest makes what is left due at a time, if anything is.
func (p *push) rest(at time.Time, seq int64) {
	p.due = time.Time{}
	if p.Cursor < seq {
		p.due = at
	}
}

// savePush writes how far a configuration has come.
func (t *tx) savePush(p *push) error {
	_, err := t.exec("UPDATE push SET cursor = ?, due_at = ?, lent = ?, tries = ?, failed_since = ?, last_error = ?, failed = ? WHERE k = ?",
		p.Cursor, p.due, p.lent, p.Tries, p.FailedSince, optional(p.LastError), p.Failed, p.k)
	return err
}

// wakePushes makes the configurations of a task due, since it has a new event.
func (t *tx) wakePushes(h *head) error {
	if h.woken {
		return nil
	}
	h.woken = true // by the first event of a transition for all of them
	_, err := t.exec("UPDATE push SET due_at = ? WHERE k >= ? AND k <= ? AND due_at IS NULL", t.now, key(h.n, 0), key(h.n, maxNumber))
	return err
}

// Push implements hub.Pushes.
func (s *Store) Push(ctx context.Context, ref hub.TaskRef, by hub.Viewer, id string) (out hub.PushConfig, err error) {
	err = s.read(ctx, func(c *conn) error {
		h, err := s.sentBy(c, ref, by)
		if err != nil {
			return err
		}
		p, err := c.push(h, id)
		if err != nil {
			return err
		}
		if p == nil {
			return hub.ErrPushNotFound()
		}
		out = p.config()
		return nil
	})
	return out, err
}

// TaskPushes implements hub.Pushes.
func (s *Store) TaskPushes(ctx context.Context, ref hub.TaskRef, by hub.Viewer) (out []hub.PushConfig, err error) {
	err = s.read(ctx, func(c *conn) error {
		h, err := s.sentBy(c, ref, by)
		if err != nil || h.Pushes == 0 {
			return err
		}
		list, err := c.pushes(h)
		for _, p := range list {
			out = append(out, p.config())
		}
		return err
	})
	return out, err
}

// DeletePush implements hub.Pushes.
func (s *Store) DeletePush(ctx context.Context, ref hub.TaskRef, by hub.Viewer, id string) (bool, error) {
	return write(ctx, s, func(t *tx) (bool, error) {
		h, err := s.sentBy(t.conn, ref, by)
		if err != nil {
			return false, err
		}
		p, err := t.push(h, id)
		if err != nil || p == nil {
			return false, err
		}
		// The trigger push_gone does the rest.
		_, err = t.exec("DELETE FROM push WHERE k = ?", p.k)
		return true, err
	})
}

// lent is what one call of LendPushes lent.
type lent struct {
	loans [][2]int64 // key of the configuration, number of the loan
	next  time.Duration
}

// LendPushes implements hub.Pushes. The writer is left alone when nothing is due, which
// is so nearly always, and only notes the loans; what there is to deliver is read apart
// from it.
func (s *Store) LendPushes(ctx context.Context, limit int, loan time.Duration) (jobs []hub.PushJob, next time.Duration, err error) {
	err = s.read(ctx, func(c *conn) (err error) {
		next, err = c.nextPush(s.opt.Now())
		return err
	})
	if err != nil || next != 0 {
		return nil, next, err
	}
	l, err := write(ctx, s, func(t *tx) (lent, error) { return t.lend(limit, loan) })
	if err != nil || len(l.loans) == 0 {
		return nil, l.next, err
	}
	err = s.read(ctx, func(c *conn) error {
		for _, x := range l.loans {
			j, err := s.pushJob(c, x[0], x[1])
			if err != nil {
				return err
			}
			if len(j.Events) > 0 {
				jobs = append(jobs, j)
			}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return jobs, l.next, nil
}

func (t *tx) lend(limit int, loan time.Duration) (out lent, err error) {
	var due []int64
	err = t.each("SELECT k FROM push WHERE due_at <= ? ORDER BY due_at, k LIMIT ?", []any{t.now, limit}, func(r row) (bool, error) {
		due = append(due, r.int(0))
		return true, nil
	})
	if err != nil {
		return out, err
	}
	for _, k := range due {
		t.s.lastLoan++
		if _, err := t.exec("UPDATE push SET due_at = ?, lent = ?, loan = ? WHERE k = ?", t.now.Add(loan), lentOut, t.s.lastLoan, k); err != nil {
			return out, err
		}
		out.loans = append(out.loans, [2]int64{k, t.s.lastLoan})
	}
	out.next, err = t.nextPush(t.now)
	return out, err
}

// nextPush is in how long a configuration is due; negative for never.
func (c *conn) nextPush(now time.Time) (time.Duration, error) {
	r, err := c.one("SELECT min(due_at) FROM push WHERE due_at > 0")
	if err != nil || r.null(0) {
		return -1, err
	}
	return max(0, r.time(0).Sub(now)), nil
}

// pushJob reads what a configuration on loan has to deliver; nothing if it is gone.
func (s *Store) pushJob(c *conn, k, loan int64) (j hub.PushJob, err error) {
	r, err := c.one("SELECT "+pushColumns+`, t.id, t.context, t.caller, t.callee, t.seq, t.state FROM push p JOIN task t ON t.n = p.k >> 20
		WHERE p.k = ? AND p.loan = ?`, k, loan)
	if err != nil || r == nil {
		return j, err
	}
	p := scanPush(r, r.text(15))
	last, state := r.int(19), hub.State(r.int(20))
	j = hub.PushJob{
		Config: p.config(), Loan: loan, Context: r.text(16),
		Caller: s.parties.party(r.int(17)), Callee: s.parties.party(r.int(18)),
	}
	j.Events, err = c.eventsAfter(k>>numberBits, p.Cursor, pushEventsMax)
	if n := len(j.Events); n > 0 {
		j.Ended = state.Terminal() && j.Events[n-1].Seq == last
	}
	return j, err
}

// SettlePush implements hub.Pushes.
func (s *Store) SettlePush(ctx context.Context, j hub.PushJob, o hub.PushOutcome) error {
	return s.write(ctx, func(t *tx) error {
		r, err := t.one(headByID, j.Config.Task)
		if err != nil {
			return err
		}
		if r == nil {
			return hub.ErrPushNotFound()
		}
		h := s.scanHead(r)
		p, err := t.push(h, j.Config.ID)
		switch {
		case err != nil:
			return err
		case p == nil:
			return hub.ErrPushNotFound()
		case p.lent == lentNot || p.loan != j.Loan:
			return hub.Errorf(hub.Conflict, "this loan of the configuration has ended")
		case p.lent == lentStale:
			o = hub.PushOutcome{}
		}
		if err := t.settle(h, p, o); err != nil {
			return err
		}
		return t.savePush(p)
	})
}

// settle notes what a sender has done with the events after the cursor.
func (t *tx) settle(h *head, p *push, o hub.PushOutcome) error {
	p.lent = lentNot
	if done := min(o.Done, h.Seq); done > p.Cursor {
		p.Cursor, p.Tries, p.FailedSince, p.LastError = done, 0, time.Time{}, ""
	}
	if (o.Error != "" || o.GiveUp) && p.Cursor < h.Seq {
		p.Tries++
		p.LastError = o.Error
		if p.FailedSince.IsZero() {
			p.FailedSince = t.now
		}
		if o.GiveUp {
			if err := t.giveUp(h, p); err != nil {
				return err
			}
			o.Retry = 0
		}
	}
	p.rest(t.now.Add(max(0, o.Retry)), h.Seq)
	return nil
}

// giveUp skips the event after the cursor, and keeps that as a failure. The first of a
// row and the end of a task are in the activity.
func (t *tx) giveUp(h *head, p *push) error {
	last, err := t.one("SELECT seq FROM push_failure WHERE push = ? ORDER BY id DESC LIMIT 1", p.k)
	if err != nil {
		return err
	}
	goesOn := last != nil && last.int(0) == p.Cursor
	p.Cursor++
	p.Failed++
	if _, err := t.exec("INSERT INTO push_failure (push, caller, seq, at, tries, reason) VALUES (?,?,?,?,?,?)",
		p.k, h.caller, p.Cursor, t.now, p.Tries, p.LastError); err != nil {
		return err
	}
	if p.Failed > failuresMax {
		if _, err := t.exec("DELETE FROM push_failure WHERE id <= (SELECT id FROM push_failure WHERE push = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2) AND push = ?1",
			p.k, failuresMax); err != nil {
			return err
		}
	}
	tries := p.Tries
	p.Tries = 0
	if goesOn && !(h.State.Terminal() && p.Cursor == h.Seq) {
		return nil
	}
	return t.log(h, hub.ActPushFailed, actorHub, hub.GaveUp(p.Cursor, tries))
}

// ReleasePushes implements hub.Pushes.
func (s *Store) ReleasePushes(ctx context.Context) error {
	return s.write(ctx, func(t *tx) error {
		_, err := t.exec("UPDATE push SET due_at = ?, lent = ? WHERE due_at > 0 AND lent <> ?", t.now, lentNot, lentNot)
		return err
	})
}

// lastLoan is the highest number of a loan that may still be out.
func lastLoan(c *conn) (int64, error) {
	r, err := c.one("SELECT max(loan) FROM push WHERE due_at > 0")
	if err != nil {
		return 0, err
	}
	return r.int(0), nil
}

// pushFailureOrder is the order of the list of failures; a failure's id is the cursor
// to read on after it.
const pushFailureOrder = "f"

// PushFailures implements hub.Pushes.
func (s *Store) PushFailures(ctx context.Context, by hub.Viewer, task, cursor string, limit int) (list []hub.PushFailure, next string, err error) {
	if limit <= 0 {
		limit = defaultPageLimit
	}
	var where condition
	if cursor != "" {
		_, id, err := parseCursor(pushFailureOrder, cursor)
		if err != nil {
			return nil, "", err
		}
		where.and("f.id < ?", id)
	}
	err = s.read(ctx, func(c *conn) error {
		switch {
		case task != "":
			h, err := s.sentBy(c, hub.TaskRef{ID: task}, by)
			if err != nil {
				return err
			}
			where.and("f.push >= ? AND f.push <= ?", key(h.n, 0), key(h.n, maxNumber))
		case !by.All:
			where.and("f.caller = ?", s.parties.n(by.Address))
		}
		return c.each(`SELECT f.id, t.id, p.id, p.url, f.seq, f.at, f.tries, f.reason FROM push_failure f
			JOIN push p ON p.k = f.push JOIN task t ON t.n = f.push >> 20 WHERE `+where.sql()+" ORDER BY f.id DESC LIMIT ?",
			append(where.args, limit+1), func(r row) (bool, error) {
				if len(list) == limit {
					next = list[limit-1].ID
					return false, nil
				}
				list = append(list, hub.PushFailure{
					ID: makeCursor(pushFailureOrder, 0, r.int(0)), Task: r.text(1), Config: r.text(2), URL: r.text(3),
					Seq: r.int(4), At: r.time(5), Tries: int(r.int(6)), Reason: r.text(7),
				})
				return true, nil
			})
	})
	if err != nil {
		return nil, "", err
	}
	return list, next, nil
}

func errNoPushFailure() error {
	return hub.Errorf(hub.NotFound, "there is no such failed notification")
}

// Redeliver implements hub.Pushes.
func (s *Store) Redeliver(ctx context.Context, by hub.Viewer, failure string) (hub.PushConfig, error) {
	_, id, err := parseCursor(pushFailureOrder, failure)
	if err != nil {
		return hub.PushConfig{}, errNoPushFailure()
	}
	return write(ctx, s, func(t *tx) (hub.PushConfig, error) {
		r, err := t.one("SELECT f.seq, "+pushColumns+`, t.id, t.seq FROM push_failure f JOIN push p ON p.k = f.push JOIN task t ON t.n = f.push >> 20
			WHERE f.id = ? AND (? OR f.caller = ?)`, id, by.All, s.parties.n(by.Address))
		if err != nil {
			return hub.PushConfig{}, err
		}
		if r == nil {
			return hub.PushConfig{}, errNoPushFailure()
		}
		seq, p, last := r.int(0), scanPush(r[1:], r.text(16)), r.int(17)
		gone, err := t.exec("DELETE FROM push_failure WHERE push = ? AND seq >= ?", p.k, seq)
		if err != nil {
			return hub.PushConfig{}, err
		}
		p.Cursor, p.Failed = seq-1, max(0, p.Failed-gone)
		p.anew(t.now, last)
		return p.config(), t.savePush(p)
	})
}
