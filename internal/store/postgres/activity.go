package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	activityScanMax = 10_000
	activityPageMax = 1_000
	// horizonPatience bounds how long a reader waits for transactions that are older than
	// what it should see.
	horizonPatience = time.Second
)

// place is where a line of activity stands: its lineOrder, and its own number.
type place struct{ xid, id int64 }

// lineOrder is what the lines that a statement writes are ordered by before their own
// numbers: the newest transaction that had ended when the statement began, or the
// statement's own if that is newer.
//
// Its own alone would not do. A transaction has its number from its first lock on, and may
// then take a task that a newer transaction has sent and committed: the claim would stand
// before the send. This way nothing stands before what it could have seen: whatever was
// committed before the statement began has a lineOrder that is no greater, and a smaller
// number of its own if it is equal. And no line can appear before the horizon of a reader,
// since none has a lineOrder below its transaction.
const lineOrder = `(SELECT greatest(pg_current_xact_id(), (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - 1)::text::xid8))`

func (s *Store) activityCursor(p place) string {
	return makeCursor(activityOrder, s.epoch, p.xid, p.id)
}

// Activity implements hub.Reads.
//
// Lines are in the order of lineOrder and their own numbers, and only those are shown that
// are older than any transaction that is under way: nothing can appear before them any
// more. A line that was acknowledged before the read began may still have an older
// transaction beside it; the read waits for that one a while, so that a reader nearly
// always sees what it knows has happened.
func (s *Store) Activity(ctx context.Context, q hub.ActivityQuery) (page hub.ActivityPage, err error) {
	q.Limit = min(max(q.Limit, 1), activityPageMax)
	var after place
	if q.After != "" {
		if after, err = s.parseActivity(q.After); err != nil {
			return page, err
		}
	}
	me, err := s.parties.n(ctx, q.By.Address)
	if err != nil {
		return page, storeError(ctx, err)
	}
	r := &activityReader{s: s, q: q, me: me, after: after}
	until := time.Now().Add(s.horizonPatience)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := s.read(ctx, func(c *conn) error { return r.read(ctx, c) }); err != nil {
			return hub.ActivityPage{}, err
		}
		if !r.behind || len(r.page.Lines) == q.Limit || time.Now().After(until) {
			return r.page, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return hub.ActivityPage{}, gone(ctx)
		}
	}
}

func (s *Store) parseActivity(cursor string) (place, error) {
	n, err := cursorNumbers(activityOrder, cursor, 3)
	if err != nil {
		return place{}, err
	}
	if n[0] != s.epoch || n[1] < 0 {
		return place{}, hub.InvalidField("cursor", "this cursor is of another database; leave it out to start anew")
	}
	return place{n[1], n[2]}, nil
}

// openActivity reads the epoch of the activity. A database that was copied to another
// server (dump and restore) has lines by transactions that are yet to come there: they
// get a number before all others, and a new epoch ends the cursors from before.
func (s *Store) openActivity(ctx context.Context) error {
	const ahead = "SELECT EXISTS (SELECT 1 FROM activity WHERE xid >= pg_snapshot_xmax(pg_current_snapshot()))"
	var moved bool
	if err := s.pool.QueryRow(ctx, ahead).Scan(&moved); err != nil {
		return err
	}
	if moved {
		err := s.apart(ctx, "BEGIN", func(c *conn) error {
			c.exec("LOCK TABLE activity IN ACCESS EXCLUSIVE MODE")
			r, err := c.one(ahead)
			if err != nil || !r.flag(0) { // another replica was first
				return err
			}
			c.exec("UPDATE activity SET xid = '1'")
			c.exec("UPDATE meta SET value = (value::bigint + 1)::text WHERE key = 'activity_epoch'")
			return c.flush()
		})
		if err != nil {
			return err
		}
	}
	return s.pool.QueryRow(ctx, "SELECT value::bigint FROM meta WHERE key = 'activity_epoch'").Scan(&s.epoch)
}

// activityReader reads one page.
type activityReader struct {
	s     *Store
	q     hub.ActivityQuery
	me    int64
	after place
	// known is the first transaction that began after the read did, 0 if not known yet:
	// what came before is to be seen.
	known int64

	page   hub.ActivityPage
	behind bool
}

const activityColumns = `SELECT a.xid, a.id, a.at, a.kind, t.run, t.id, a.seq, a.actor, t.caller, t.callee, a.attempt, a.detail
	FROM activity a LEFT JOIN task t ON t.id = a.task `

// read reads the page in one snapshot.
func (r *activityReader) read(ctx context.Context, c *conn) error {
	horizon, next, waits, err := r.horizon(c)
	if err != nil {
		return err
	}
	if r.known == 0 {
		r.known = next
	}
	r.behind = waits
	if r.after.xid >= next {
		return hub.InvalidField("cursor", "nothing has happened yet where this cursor points; leave it out to start anew")
	}
	r.page = hub.ActivityPage{}
	last, tail := r.after, r.q.Tail && r.q.After == ""
	if tail {
		last = place{horizon, 0}
	}
	step := min(activityScanMax, 4*r.q.Limit+100)
	for scanned, more := 0, true; more && scanned < activityScanMax; {
		lines, err := r.lines(c, last, horizon, step, tail)
		if err != nil {
			return err
		}
		scanned += len(lines)
		if last, more, err = r.show(ctx, lines, last); err != nil {
			return err
		}
		more = more && len(lines) == step
	}
	if tail {
		slices.Reverse(r.page.Lines)
		last = place{horizon - 1, 1<<63 - 1}
	}
	r.page.Next = r.s.activityCursor(last)
	return nil
}

// show adds lines to the page until it is full, and says how far it came.
func (r *activityReader) show(ctx context.Context, lines []*foundLine, last place) (_ place, more bool, err error) {
	for _, l := range lines {
		if len(r.page.Lines) == r.q.Limit {
			return last, false, nil
		}
		last = l.place
		if !l.shown {
			continue
		}
		if err := l.name(ctx, r.s); err != nil {
			return last, false, err
		}
		r.page.Lines = append(r.page.Lines, l.Activity)
	}
	return last, len(r.page.Lines) < r.q.Limit, nil
}

// horizon gives the oldest transaction that is under way, the next there will be, and
// whether there are lines between them that were there when the read began.
func (r *activityReader) horizon(c *conn) (oldest, next int64, waits bool, err error) {
	x, err := c.one(`SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
		EXISTS (SELECT 1 FROM activity WHERE xid >= pg_snapshot_xmin(s) AND ($1 = 0::bigint OR xid < $1::text::xid8))
		FROM pg_current_snapshot() s`, r.known)
	if err != nil {
		return 0, 0, false, err
	}
	return x.int(0), x.int(1), x.flag(2), nil
}

// foundLine is a line and what it takes to show it.
type foundLine struct {
	hub.Activity
	place
	shown                 bool
	actor, caller, callee int64
}

// lines reads a page of lines below the horizon, backwards for the tail.
func (r *activityReader) lines(c *conn, after place, horizon int64, limit int, tail bool) (list []*foundLine, err error) {
	sql := "WHERE (a.xid, a.id) > ($1::text::xid8, $2) AND a.xid < $3::text::xid8 ORDER BY a.xid, a.id LIMIT $4"
	if tail {
		sql = "WHERE (a.xid, a.id) < ($1::text::xid8, $2) AND a.xid < $3::text::xid8 ORDER BY a.xid DESC, a.id DESC LIMIT $4"
	}
	args := []any{fmt.Sprint(after.xid), after.id, fmt.Sprint(horizon), limit}
	err = c.each(activityColumns+sql, args, func(x row) error {
		l := &foundLine{place: place{x.int(0), x.int(1)}, actor: x.int(7), caller: x.int(8), callee: x.int(9)}
		// The line of a task that is gone has lost what says whose it is. How its
		// notifications fare is the caller's alone.
		l.shown = !x.null(5) && (r.q.By.All || l.caller == r.me || (l.callee == r.me && x.text(3) != string(hub.ActPushFailed)))
		if l.shown {
			l.Activity = hub.Activity{
				Cursor: r.s.activityCursor(l.place), At: x.time(2), Kind: hub.ActivityKind(x.text(3)), Run: x.text(4), Task: x.id(5).String(),
				Seq: x.int(6), Actor: "hub", Attempt: int(x.int(10)), Detail: x.text(11),
			}
		}
		list = append(list, l)
		return nil
	})
	return list, err
}

// name fills in the handles.
func (l *foundLine) name(ctx context.Context, s *Store) error {
	for _, x := range []struct {
		n    int64
		into *string
	}{{l.caller, &l.Caller}, {l.callee, &l.Callee}, {l.actor, &l.Actor}} {
		if x.n == actorHub {
			continue
		}
		p, err := s.parties.party(ctx, x.n)
		if err != nil {
			return err
		}
		*x.into = p.Handle
	}
	return nil
}
