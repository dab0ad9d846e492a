package postgres

import (
	"context"
	"time"

	"github.com/google/uuid"

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
	task uuid.UUID
	n    int64
	due  time.Time // zero when nothing is left to deliver
	lent int64
	loan int64
}

const (
	pushColumns = `p.task, p.n, p.id, p.url, p.version, p.scheme, p.sealed, p.created_at, p.cursor, p.due_at, p.lent, p.loan,
	p.tries, p.failed_since, p.last_error, p.failed `
	pushWidth = 16
)

func scanPush(r row) *push {
	p := &push{task: r.id(0), n: r.int(1), due: r.time(9), lent: r.int(10), loan: r.int(11)}
	p.PushConfig = hub.PushConfig{
		ID: r.text(2), Task: p.task.String(), URL: r.text(3), Version: r.text(4), Scheme: r.text(5), Sealed: r.blob(6),
		CreatedAt: r.time(7), Cursor: r.int(8), Tries: int(r.int(12)), FailedSince: r.time(13), LastError: r.text(14), Failed: int(r.int(15)),
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
func sentBy(h *head, me int64, by hub.Viewer) error {
	if h == nil || (!by.All && h.caller != me) {
		return hub.ErrTaskNotFound()
	}
	return nil
}

// readSentBy is sentBy for a read.
func (s *Store) readSentBy(c *conn, ref hub.TaskRef, by hub.Viewer) (*head, error) {
	h, err := s.find(c, ref, by)
	if err != nil {
		return nil, err
	}
	me, err := s.parties.n(c.ctx, by.Address)
	if err != nil {
		return nil, err
	}
	return h, sentBy(h, me, by)
}

// changeSentBy is sentBy for a change.
func (t *tx) changeSentBy(ref hub.TaskRef, by hub.Viewer) (*head, error) {
	h, me, err := t.findSeen(ref, by)
	if err != nil {
		return nil, err
	}
	return h, sentBy(h, me, by)
}

// pushes reads the configurations of a task, oldest first.
func (c *conn) pushes(h *head) (list []*push, err error) {
	err = c.each("SELECT "+pushColumns+"FROM push p WHERE p.task = $1 ORDER BY p.n", []any{h.id}, func(r row) error {
		list = append(list, scanPush(r))
		return nil
	})
	return list, err
}

// push reads the configuration of a task with that id, nil if there is none.
func (c *conn) push(h *head, id, lock string) (p *push, err error) {
	if h.Pushes == 0 {
		return nil, nil
	}
	err = c.each("SELECT "+pushColumns+"FROM push p WHERE p.task = $1 AND p.id = $2 "+lock, []any{h.id, id}, func(r row) error {
		p = scanPush(r)
		return nil
	})
	return p, err
}

// push shadows conn's: what is to be changed is locked, since lending locks no task.
func (t *tx) push(h *head, id string) (*push, error) { return t.conn.push(h, id, "FOR UPDATE") }

// PutPush implements hub.Pushes.
func (s *Store) PutPush(ctx context.Context, ref hub.TaskRef, by hub.Viewer, c hub.PushConfig, l hub.Limits) (hub.PushConfig, error) {
	return write(ctx, s, needs{tasks: []string{ref.ID}}, func(t *tx) (hub.PushConfig, error) {
		h, err := t.changeSentBy(ref, by)
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
	have := 0
	if h != nil && h.Pushes > 0 {
		list, err := t.pushes(h)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.ID == c.ID {
				return nil
			}
		}
		have = len(list)
	}
	if have < l.Pushes {
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
	if p != nil {
		p.URL, p.Version, p.Scheme, p.Sealed = c.URL, c.Version, c.Scheme, c.Sealed
		p.anew(t.now, h.Seq)
		t.exec("UPDATE push SET url = $3, version = $4, scheme = $5, sealed = $6 WHERE task = $1 AND n = $2",
			p.task, p.n, p.URL, p.Version, optional(p.Scheme), p.Sealed)
		t.savePush(p)
		return p, nil
	}
	p = &push{PushConfig: *c, task: h.id}
	p.Task, p.CreatedAt, p.Cursor = h.ID, t.now, after
	p.Token, p.Credentials = "", ""
	p.Tries, p.Failed, p.FailedSince, p.LastError, p.NextTry = 0, 0, time.Time{}, "", time.Time{}
	p.anew(t.now, h.Seq)
	h.Pushes++
	t.exec("UPDATE task SET pushes = $2 WHERE id = $1", h.id, h.Pushes)
	t.exec(`INSERT INTO push (task, n, id, url, version, scheme, sealed, created_at, cursor, due_at, lent, loan, tries, failed)
		VALUES ($1, (SELECT coalesce(max(n), 0) + 1 FROM push WHERE task = $1), $2, $3, $4, $5, $6, $7, $8, $9, 0, 0, 0, 0)`,
		h.id, p.ID, p.URL, p.Version, optional(p.Scheme), p.Sealed, p.CreatedAt, p.Cursor, p.due)
	t.changed.Pushes = true
	return p, nil
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
func (t *tx) savePush(p *push) {
	t.exec("UPDATE push SET cursor = $3, due_at = $4, lent = $5, tries = $6, failed_since = $7, last_error = $8, failed = $9 WHERE task = $1 AND n = $2",
		p.task, p.n, p.Cursor, p.due, p.lent, p.Tries, p.FailedSince, optional(p.LastError), p.Failed)
	t.changed.Pushes = true
}

// wakePushes makes the configurations of a task due, since it has a new event.
func (t *tx) wakePushes(h *head) {
	t.exec("UPDATE push SET due_at = $2 WHERE task = $1 AND due_at IS NULL", h.id, t.now)
	t.changed.Pushes = true
}

// Push implements hub.Pushes.
func (s *Store) Push(ctx context.Context, ref hub.TaskRef, by hub.Viewer, id string) (out hub.PushConfig, err error) {
	err = s.read(ctx, func(c *conn) error {
		h, err := s.readSentBy(c, ref, by)
		if err != nil {
			return err
		}
		p, err := c.push(h, id, "")
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
		h, err := s.readSentBy(c, ref, by)
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
	return write(ctx, s, needs{tasks: []string{ref.ID}}, func(t *tx) (bool, error) {
		h, err := t.changeSentBy(ref, by)
		if err != nil {
			return false, err
		}
		p, err := t.push(h, id)
		if err != nil || p == nil {
			return false, err
		}
		h.Pushes--
		t.exec("DELETE FROM push_failure WHERE task = $1 AND push = $2", p.task, p.n)
		t.exec("DELETE FROM push WHERE task = $1 AND n = $2", p.task, p.n)
		t.exec("UPDATE task SET pushes = $2 WHERE id = $1", h.id, h.Pushes)
		return true, nil
	})
}

// lent is what one call of LendPushes lent.
type lent struct {
	jobs []hub.PushJob
	next time.Duration
}

// LendPushes implements hub.Pushes. Nothing is written when nothing is due, which is so
// nearly always.
func (s *Store) LendPushes(ctx context.Context, limit int, loan time.Duration) ([]hub.PushJob, time.Duration, error) {
	l, err := solo(ctx, s, func(t *tx) (lent, error) { return t.lend(limit, loan) })
	if err != nil {
		return nil, 0, err
	}
	return l.jobs, l.next, nil
}

// lend lends what is due and reads what there is to deliver.
func (t *tx) lend(limit int, loan time.Duration) (out lent, err error) {
	type lending struct {
		task    uuid.UUID
		n, loan int64
	}
	var due []lending
	err = t.each(`WITH due AS MATERIALIZED (SELECT task, n, due_at FROM push WHERE due_at <= $1 ORDER BY due_at, task, n LIMIT $2 FOR UPDATE SKIP LOCKED),
		lent AS (UPDATE push p SET due_at = $3, lent = $4, loan = nextval('push_loan'), lender = $5 FROM due WHERE p.task = due.task AND p.n = due.n
			RETURNING p.task, p.n, p.loan)
		SELECT lent.task, lent.n, lent.loan FROM lent JOIN due ON due.task = lent.task AND due.n = lent.n ORDER BY due.due_at, due.task, due.n`,
		[]any{t.now, limit, t.now.Add(loan), lentOut, t.s.replica}, func(r row) error {
			due = append(due, lending{r.id(0), r.int(1), r.int(2)})
			return nil
		})
	if err != nil {
		return out, err
	}
	for _, d := range due {
		j, err := t.pushJob(d.task, d.n, d.loan)
		if err != nil {
			return out, err
		}
		if len(j.Events) > 0 {
			out.jobs = append(out.jobs, j)
		}
	}
	out.next, err = t.nextPush()
	return out, err
}

// nextPush is in how long a configuration is due; negative for never.
func (t *tx) nextPush() (time.Duration, error) {
	r, err := t.one("SELECT min(due_at) FROM push WHERE due_at IS NOT NULL")
	if err != nil || r.null(0) {
		return -1, err
	}
	return max(0, r.time(0).Sub(t.now)), nil
}

// pushJob reads what a configuration on loan has to deliver. Its task goes on meanwhile,
// so the end is told by the events themselves.
func (t *tx) pushJob(task uuid.UUID, n, loan int64) (j hub.PushJob, err error) {
	var p *push
	var h head
	err = t.each("SELECT "+pushColumns+", t.context, t.caller, t.callee FROM push p JOIN task t ON t.id = p.task WHERE p.task = $1 AND p.n = $2",
		[]any{task, n}, func(r row) error {
			p = scanPush(r)
			h.ContextID, h.caller, h.callee = r.text(pushWidth), r.int(pushWidth+1), r.int(pushWidth+2)
			return nil
		})
	if err != nil || p == nil {
		return j, err
	}
	if err := t.s.name(t.ctx, &h); err != nil {
		return j, err
	}
	j = hub.PushJob{Config: p.config(), Loan: loan, Context: h.ContextID, Caller: h.Caller, Callee: h.Callee}
	j.Events, err = t.eventsAfter(task, p.Cursor, pushEventsMax)
	if k := len(j.Events); k > 0 {
		last := &j.Events[k-1]
		j.Ended = last.Kind == hub.StatusEvent && last.State.Terminal()
	}
	return j, err
}

// SettlePush implements hub.Pushes.
func (s *Store) SettlePush(ctx context.Context, j hub.PushJob, o hub.PushOutcome) error {
	return s.write(ctx, needs{tasks: []string{j.Config.Task}}, func(t *tx) error {
		h, err := t.head(j.Config.Task)
		if err != nil {
			return err
		}
		if h == nil {
			return hub.ErrPushNotFound()
		}
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
		t.savePush(p)
		return nil
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
	last, err := t.one("SELECT seq FROM push_failure WHERE task = $1 AND push = $2 ORDER BY id DESC LIMIT 1", p.task, p.n)
	if err != nil {
		return err
	}
	goesOn := last != nil && last.int(0) == p.Cursor
	p.Cursor++
	p.Failed++
	t.exec("INSERT INTO push_failure (task, push, caller, seq, at, tries, reason) VALUES ($1,$2,$3,$4,$5,$6,$7)",
		p.task, p.n, h.caller, p.Cursor, t.now, p.Tries, p.LastError)
	if p.Failed > failuresMax {
		t.exec(`DELETE FROM push_failure WHERE task = $1 AND push = $2 AND
			id <= (SELECT id FROM push_failure WHERE task = $1 AND push = $2 ORDER BY id DESC LIMIT 1 OFFSET $3)`, p.task, p.n, failuresMax)
	}
	tries := p.Tries
	p.Tries = 0
	if !goesOn || (h.State.Terminal() && p.Cursor == h.Seq) {
		t.log(h, hub.ActPushFailed, actorHub, hub.GaveUp(p.Cursor, tries))
	}
	return nil
}

// ReleasePushes implements hub.Pushes. The loans of other replicas that are alive are
// left to them.
func (s *Store) ReleasePushes(ctx context.Context) error {
	return s.solo(ctx, func(t *tx) error {
		t.exec(`UPDATE push SET due_at = $1, lent = $2 WHERE due_at IS NOT NULL AND lent <> $2 AND (lender = $3 OR NOT EXISTS
			(SELECT 1 FROM replica r WHERE r.n = lender AND r.seen_at > clock_timestamp() - `+replicaSilence+`))`, t.now, lentNot, s.replica)
		t.changed.Pushes = true
		return nil
	})
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
			h, err := s.readSentBy(c, hub.TaskRef{ID: task}, by)
			if err != nil {
				return err
			}
			where.and("f.task = ?", h.id)
		case !by.All:
			me, err := s.parties.n(ctx, by.Address)
			if err != nil {
				return err
			}
			where.and("f.caller = ?", me)
		}
		return c.each(numbered(`SELECT f.id, f.task, p.id, p.url, f.seq, f.at, f.tries, f.reason FROM push_failure f
			JOIN push p ON p.task = f.task AND p.n = f.push WHERE `+where.sql()+" ORDER BY f.id DESC LIMIT ?"),
			append(where.args, limit+1), func(r row) error {
				if len(list) == limit {
					next = list[limit-1].ID
					return nil
				}
				list = append(list, hub.PushFailure{
					ID: makeCursor(pushFailureOrder, 0, r.int(0)), Task: r.id(1).String(), Config: r.text(2), URL: r.text(3),
					Seq: r.int(4), At: r.time(5), Tries: int(r.int(6)), Reason: r.text(7),
				})
				return nil
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
	return write(ctx, s, needs{}, func(t *tx) (hub.PushConfig, error) {
		me, err := s.parties.n(ctx, by.Address)
		if err != nil {
			return hub.PushConfig{}, err
		}
		r, err := t.one("SELECT f.task, f.seq FROM push_failure f WHERE f.id = $1 AND ($2::boolean OR f.caller = $3)", id, by.All, me)
		if err != nil {
			return hub.PushConfig{}, err
		}
		if r == nil {
			return hub.PushConfig{}, errNoPushFailure()
		}
		h, err := t.head(r.id(0).String()) // which locks it
		if err != nil || h == nil {
			return hub.PushConfig{}, cmpErr(err, errNoPushFailure())
		}
		return t.redeliver(h, id)
	})
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// redeliver takes a configuration back to before a failure, which is read again since
// the task was not locked before.
func (t *tx) redeliver(h *head, failure int64) (hub.PushConfig, error) {
	var p *push
	var seq int64
	err := t.each("SELECT "+pushColumns+", f.seq FROM push_failure f JOIN push p ON p.task = f.task AND p.n = f.push WHERE f.id = $1 FOR UPDATE OF p",
		[]any{failure}, func(r row) error {
			p, seq = scanPush(r), r.int(pushWidth)
			return nil
		})
	if err != nil || p == nil {
		return hub.PushConfig{}, cmpErr(err, errNoPushFailure())
	}
	gone, err := t.execNow("DELETE FROM push_failure WHERE task = $1 AND push = $2 AND seq >= $3", p.task, p.n, seq)
	if err != nil {
		return hub.PushConfig{}, err
	}
	p.Cursor, p.Failed = seq-1, max(0, p.Failed-gone)
	p.anew(t.now, h.Seq)
	t.savePush(p)
	return p.config(), nil
}
