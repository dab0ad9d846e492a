package sqlite

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Bounds of what one read looks at.
const (
	eventBytesMax    = 1 << 20
	pageBytesMax     = 8 << 20 // of tasks, so that a page of large ones ends early
	activityScanMax  = 10_000
	activityPageMax  = 1_000
	defaultPageLimit = 50
)

// Task implements hub.Reads.
func (s *Store) Task(ctx context.Context, ref hub.TaskRef, by hub.Viewer, load hub.Load) (out *hub.Task, err error) {
	err = s.read(ctx, func(c *conn) error {
		h, err := s.find(c, ref, by)
		if err != nil {
			return err
		}
		if h == nil {
			return hub.ErrTaskNotFound()
		}
		out = &h.Task
		return s.loadFor(ctx, c, h, load)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Tasks implements hub.Reads.
func (s *Store) Tasks(ctx context.Context, f hub.TaskFilter) (page hub.TaskPage, err error) {
	if f.Limit <= 0 {
		f.Limit = defaultPageLimit
	}
	where := s.where(&f)
	paged := where
	if f.Cursor != "" {
		at, n, err := parseCursor(taskOrder, f.Cursor)
		if err != nil {
			return page, err
		}
		paged.and("(t.state_at, t.n) < (?, ?)", at, n)
	}
	err = s.read(ctx, func(c *conn) error {
		if f.Total {
			r, err := c.one("SELECT count(*) FROM task t WHERE "+where.sql(), where.args...)
			if err != nil {
				return err
			}
			page.Total = int(r.int(0))
		}
		list, err := s.list(c, &f, paged)
		if err != nil {
			return err
		}
		return s.fillPage(ctx, c, &f, list, &page)
	})
	if err != nil {
		return hub.TaskPage{}, err
	}
	return page, nil
}

// list finds the tasks of a page and one more.
func (s *Store) list(c *conn, f *hub.TaskFilter, where condition) (list []*head, err error) {
	const newestFirst = " ORDER BY t.state_at DESC, t.n DESC LIMIT ?"
	sql, args := where.sql(), append(slices.Clone(where.args), f.Limit+1)
	switch {
	case where.everywhere:
		// No index has the order of all tasks, and one would burden every transition. The
		// newest at each address hold the newest of all.
		sql = "t.n IN (SELECT p.n FROM address a CROSS JOIN task p ON p.n IN (SELECT t.n FROM task t WHERE t.callee = a.n AND " +
			sql + newestFirst + ") ORDER BY p.state_at DESC, p.n DESC LIMIT ?)"
		args = append(args, f.Limit+1, f.Limit+1)
	case where.either:
		// An OR over two columns would sort all that either of them has. The newest of
		// each, in the order of its own index, hold the newest of both.
		me := s.parties.n(f.By.Address)
		half := func(column string) string {
			return "SELECT n FROM (SELECT t.n FROM task t WHERE t." + column + " = ? AND " + sql + newestFirst + ")"
		}
		sql = "t.n IN (" + half("caller") + " UNION " + half("callee") + ")"
		one := append([]any{me}, args...)
		args = append(append(slices.Clone(one), one...), f.Limit+1)
	}
	err = c.each("SELECT "+headColumns+"FROM task t LEFT JOIN queue q ON q.task = t.n WHERE "+sql+newestFirst, args,
		func(r row) (bool, error) {
			list = append(list, s.scanHead(r))
			return true, nil
		})
	return list, err
}

// fillPage loads the tasks of a page, as many as it may hold.
func (s *Store) fillPage(ctx context.Context, c *conn, f *hub.TaskFilter, list []*head, page *hub.TaskPage) error {
	var size int64
	for i, h := range list {
		if i == f.Limit || i > 0 && size+h.size(f.Load) > pageBytesMax {
			last := list[i-1]
			page.Next = makeCursor(taskOrder, last.StateAt.UnixMilli(), last.n)
			return nil
		}
		if err := s.loadFor(ctx, c, h, f.Load); err != nil {
			return err
		}
		page.Tasks = append(page.Tasks, &h.Task)
		size += h.size(f.Load)
	}
	return nil
}

// condition selects rows of task t.
type condition struct {
	terms []string
	args  []any
	// either: and their caller or their callee is the viewer.
	either bool
	// everywhere: at whatever address, and no other index narrows them down.
	everywhere bool
}

func (c *condition) and(term string, args ...any) {
	c.terms, c.args = append(slices.Clip(c.terms), term), append(slices.Clip(c.args), args...)
}

func (c *condition) sql() string {
	if len(c.terms) == 0 {
		return "1"
	}
	return strings.Join(c.terms, " AND ")
}

// where turns a filter into a condition that an index serves: that by context if
// there is one (a + keeps SQLite from preferring another), else by caller or callee.
func (s *Store) where(f *hub.TaskFilter) (c condition) {
	me, plus := s.parties.n(f.By.Address), ""
	if f.Context != "" {
		c.and("t.context = ?", f.Context)
		plus = "+"
	}
	if f.Callee != "" {
		c.and(plus+"t.callee = ?", s.refN(f.Callee))
	}
	switch {
	case f.Pending || f.Sent:
		c.and(plus+"t.caller = ?", me)
	case f.By.All || (f.Callee != "" && s.refN(f.Callee) == me):
		c.everywhere = f.Callee == "" && f.Context == ""
	case f.Callee != "":
		c.and(plus+"t.caller = ?", me)
	case f.Total || f.Context != "":
		c.and("("+plus+"t.caller = ? OR "+plus+"t.callee = ?)", me, me)
	default:
		c.either = true
	}
	if f.Pending {
		c.and("t.read_at IS NULL")
	}
	if f.State != 0 {
		c.and("t.state = ?", f.State)
	}
	if !f.Since.IsZero() {
		c.and("t.state_at >= ?", ceilMilli(f.Since))
	}
	return c
}

// ceilMilli is the first millisecond that is not before a time.
func ceilMilli(at time.Time) int64 {
	ms := at.UnixMilli()
	if time.UnixMilli(ms).Before(at) {
		ms++
	}
	return ms
}

// The orders that cursors are of.
const (
	taskOrder     = "t"
	activityOrder = "a"
)

// A cursor names a place in an order by two numbers, in a form that is not meant
// to be read.
func makeCursor(order string, a, b int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s.%d.%d", order, a, b))
}

func parseCursor(order, cursor string) (a, b int64, err error) {
	bad := hub.InvalidField("cursor", "this is no cursor of this list; leave it out to start from the beginning")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, 0, bad
	}
	parts := strings.Split(string(raw), ".")
	if len(parts) != 3 || parts[0] != order {
		return 0, 0, bad
	}
	if a, err = strconv.ParseInt(parts[1], 10, 64); err != nil {
		return 0, 0, bad
	}
	if b, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return 0, 0, bad
	}
	return a, b, nil
}

// Events implements hub.Reads.
func (s *Store) Events(ctx context.Context, ref hub.TaskRef, by hub.Viewer, after int64, limit int) (page hub.EventPage, err error) {
	err = s.read(ctx, func(c *conn) error {
		h, err := s.find(c, ref, by)
		if err != nil {
			return err
		}
		if h == nil {
			return hub.ErrTaskNotFound()
		}
		page = hub.EventPage{Context: h.ContextID, State: h.State, Last: h.Seq}
		if after >= h.Seq {
			return nil
		}
		page.Events, err = c.eventsAfter(h.n, after, limit)
		return err
	})
	if err != nil {
		return hub.EventPage{}, err
	}
	return page, nil
}

// eventsAfter reads a page of the events of a task.
func (c *conn) eventsAfter(task, after int64, limit int) (list []hub.Event, err error) {
	size := 0
	err = c.each("SELECT k, kind, at, state, artifact, flags, body, metadata FROM event WHERE k > ? AND k <= ? ORDER BY k LIMIT ?",
		[]any{key(task, max(after, 0)), key(task, maxNumber), limit}, func(r row) (bool, error) {
			list = append(list, scanEvent(r))
			size += len(r.blob(6)) + len(r.blob(7))
			return size < eventBytesMax, nil
		})
	return list, err
}

func scanEvent(r row) hub.Event {
	return hub.Event{
		Seq: number(r.int(0)), Kind: hub.EventKind(r.int(1)), At: r.time(2), State: hub.State(r.int(3)), ArtifactID: r.text(4),
		Append: r.int(5)&flagAppend != 0, LastChunk: r.int(5)&flagLast != 0, Body: r.blob(6), Metadata: r.blob(7),
	}
}

const activityColumns = `SELECT a.id, a.at, a.kind, t.run, t.id, a.seq, a.actor, t.caller, t.callee, a.attempt, a.detail
	FROM activity a LEFT JOIN task t ON t.n = a.task `

// Activity implements hub.Reads.
func (s *Store) Activity(ctx context.Context, q hub.ActivityQuery) (page hub.ActivityPage, err error) {
	limit := min(max(q.Limit, 1), activityPageMax)
	var after int64
	if q.After != "" {
		if _, after, err = parseCursor(activityOrder, q.After); err != nil {
			return page, err
		}
	}
	me, tail := s.parties.n(q.By.Address), q.Tail && q.After == ""
	err = s.read(ctx, func(c *conn) error {
		scanned, last := 0, after
		collect := func(r row) (bool, error) {
			scanned++
			last = max(last, r.int(0))
			// The line of a task that is gone has lost what says whose it is. How its
			// notifications fare is the caller's alone.
			if !r.null(4) && (q.By.All || r.int(7) == me || (r.int(8) == me && r.text(2) != string(hub.ActPushFailed))) {
				page.Lines = append(page.Lines, s.scanActivity(r))
			}
			return len(page.Lines) < limit && scanned < activityScanMax, nil
		}
		if tail {
			err := c.each(activityColumns+"ORDER BY a.id DESC", nil, collect)
			slices.Reverse(page.Lines)
			page.Next = makeCursor(activityOrder, 0, last)
			return err
		}
		err := c.each(activityColumns+"WHERE a.id > ? ORDER BY a.id", []any{after}, collect)
		if err == nil && scanned == 0 {
			err = checkAhead(c, after)
		}
		page.Next = makeCursor(activityOrder, 0, last)
		return err
	})
	if err != nil {
		return hub.ActivityPage{}, err
	}
	return page, nil
}

// checkAhead refuses a cursor after the newest line, from which nothing would come for
// a long time: it is of another database, or of a later state of this one.
func checkAhead(c *conn, after int64) error {
	newest, err := lastLine(c)
	if err == nil && after > newest {
		return hub.InvalidField("cursor", "nothing has happened yet where this cursor points; leave it out to start anew")
	}
	return err
}

func (s *Store) scanActivity(r row) hub.Activity {
	a := hub.Activity{
		Cursor: makeCursor(activityOrder, 0, r.int(0)), At: r.time(1), Kind: hub.ActivityKind(r.text(2)), Run: r.text(3), Task: r.text(4),
		Seq: r.int(5), Actor: "hub", Caller: s.parties.party(r.int(7)).Handle, Callee: s.parties.party(r.int(8)).Handle,
		Attempt: int(r.int(9)), Detail: r.text(10),
	}
	if actor := r.int(6); actor != actorHub {
		a.Actor = s.parties.party(actor).Handle
	}
	return a
}

// MailboxStats implements hub.Reads.
func (s *Store) MailboxStats(ctx context.Context, address string) (out hub.MailboxStats, err error) {
	err = s.read(ctx, func(c *conn) error {
		// Of the tasks that are next, for all would be a scan: which has waited longest?
		r, err := c.one(`WITH a(n) AS (SELECT n FROM address WHERE id = ?)
			SELECT (SELECT count(*) FROM queue WHERE callee = (SELECT n FROM a) AND rank IS NOT NULL),
				(SELECT coalesce(sum(open), 0) FROM lane WHERE callee = (SELECT n FROM a)),
				(SELECT min(state_at) FROM task WHERE n IN (SELECT task FROM queue
					WHERE callee = (SELECT n FROM a) AND rank IS NOT NULL ORDER BY rank, task LIMIT 1000))`, address)
		if err != nil || r == nil {
			return err
		}
		out.Ready, out.Open = int(r.int(0)), int(r.int(1))
		if !r.null(2) {
			out.OldestReady = s.opt.Now().Sub(r.time(2))
		}
		return nil
	})
	return out, err
}

// QueueStats implements hub.Reads.
func (s *Store) QueueStats(ctx context.Context) (out hub.QueueStats, err error) {
	err = s.read(ctx, func(c *conn) error {
		err := c.each("SELECT phase, count(*) FROM queue GROUP BY phase", nil, func(r row) (bool, error) {
			n := int(r.int(1))
			switch hub.Phase(r.int(0)) {
			case hub.Ready:
				out.Ready = n
			case hub.Leased:
				out.Leased = n
			case hub.Parked:
				out.Parked = n
			case hub.Done:
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		// Of the oldest tasks, for all would be a scan: which has been as it is longest?
		r, err := c.one("SELECT min(state_at) FROM task WHERE n IN (SELECT task FROM queue WHERE rank IS NOT NULL ORDER BY task LIMIT 1000)")
		if err == nil && !r.null(0) {
			out.OldestReady = s.opt.Now().Sub(r.time(0))
		}
		return err
	})
	return out, err
}

var _ hub.Store = (*Store)(nil)
