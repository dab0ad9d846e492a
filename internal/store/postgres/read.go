package postgres

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Bounds of what one read looks at.
const (
	eventBytesMax    = 1 << 20
	eventPageMax     = 1_000
	pageBytesMax     = 8 << 20 // of tasks, so that a page of large ones ends early
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
		return loadFor(ctx, c, h, load)
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
	where, err := s.where(ctx, &f)
	if err != nil {
		return page, storeError(ctx, err)
	}
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
			c.later(numbered("SELECT count(*) FROM task t WHERE "+where.sql()), where.args, func(r row) error {
				page.Total = int(r.int(0))
				return nil
			})
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
		sql = "t.id IN (SELECT p.id FROM address a CROSS JOIN LATERAL (SELECT t.id FROM task t WHERE t.callee = a.n AND " +
			sql + newestFirst + ") p)"
		args = append(args, f.Limit+1)
	case where.either:
		// An OR over two columns would sort all that either of them has. The newest of
		// each, in the order of its own index, hold the newest of both.
		half := func(column string) string {
			return "(SELECT t.id FROM task t WHERE t." + column + " = ? AND " + sql + newestFirst + ")"
		}
		sql = "t.id IN (" + half("caller") + " UNION " + half("callee") + ")"
		one := append([]any{where.me}, args...)
		args = append(append(slices.Clone(one), one...), f.Limit+1)
	}
	err = c.each(numbered("SELECT "+headColumns+statusColumn+headFrom+"WHERE "+sql+newestFirst), args, func(r row) error {
		list = append(list, scanStatus(r))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, s.name(c.ctx, list...)
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
		if err := loadFor(ctx, c, h, f.Load); err != nil {
			return err
		}
		page.Tasks = append(page.Tasks, &h.Task)
		size += h.size(f.Load)
	}
	return nil
}

// condition selects rows of task t; its parameters are written as ?, see numbered.
type condition struct {
	terms []string
	args  []any
	me    int64 // the viewer
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
		return "true"
	}
	return strings.Join(c.terms, " AND ")
}

// numbered writes the parameters of a statement as $1, $2 and so on.
func numbered(sql string) string {
	var b strings.Builder
	for n := 1; ; n++ {
		head, tail, found := strings.Cut(sql, "?")
		b.WriteString(head)
		if !found {
			return b.String()
		}
		fmt.Fprintf(&b, "$%d", n)
		sql = tail
	}
}

// where turns a filter into a condition that an index serves: that by context if
// there is one, else by caller or callee.
func (s *Store) where(ctx context.Context, f *hub.TaskFilter) (c condition, err error) {
	callee, me, err := s.numbers(ctx, hub.TaskRef{Callee: f.Callee}, f.By)
	if err != nil {
		return c, err
	}
	c.me = me
	if f.Context != "" {
		c.and("t.context = ?", f.Context)
	}
	if f.Callee != "" {
		c.and("t.callee = ?", callee)
	}
	switch {
	case f.Pending || f.Sent:
		c.and("t.caller = ?", me)
	case f.By.All || (f.Callee != "" && callee == me):
		c.everywhere = f.Callee == "" && f.Context == ""
	case f.Callee != "":
		c.and("t.caller = ?", me)
	case f.Total || f.Context != "":
		c.and("(t.caller = ? OR t.callee = ?)", me, me)
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
	return c, nil
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

// A cursor names a place in an order by numbers, in a form that is not meant to be read.
func makeCursor(order string, numbers ...int64) string {
	text := []byte(order)
	for _, n := range numbers {
		text = strconv.AppendInt(append(text, '.'), n, 10)
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// cursorNumbers reads a cursor of an order with so many numbers.
func cursorNumbers(order, cursor string, count int) ([]int64, error) {
	bad := hub.InvalidField("cursor", "this is no cursor of this list; leave it out to start from the beginning")
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return nil, bad
	}
	parts := strings.Split(string(raw), ".")
	if len(parts) != count+1 || parts[0] != order {
		return nil, bad
	}
	numbers := make([]int64, count)
	for i := range numbers {
		if numbers[i], err = strconv.ParseInt(parts[i+1], 10, 64); err != nil {
			return nil, bad
		}
	}
	return numbers, nil
}

func parseCursor(order, cursor string) (a, b int64, err error) {
	n, err := cursorNumbers(order, cursor, 2)
	if err != nil {
		return 0, 0, err
	}
	return n[0], n[1], nil
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
		page.Events, err = c.eventsAfter(h.id, after, limit)
		return err
	})
	if err != nil {
		return hub.EventPage{}, err
	}
	return page, nil
}

// eventsAfter reads a page of the events of a task. What the database sends beyond it is
// bounded, too: sizes are added up there.
func (c *conn) eventsAfter(task uuid.UUID, after int64, limit int) (list []hub.Event, err error) {
	err = c.each(`SELECT seq, kind, at, state, artifact, flags, body, metadata FROM (
			SELECT *, sum(coalesce(length(body), 0) + coalesce(length(metadata), 0)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW) AS earlier
			FROM (SELECT * FROM event WHERE task = $1 AND seq > $2 ORDER BY seq LIMIT $3) page
		) summed WHERE coalesce(earlier, 0) < $4 ORDER BY seq`,
		[]any{task, min(max(after, 0), maxNumber), min(limit, eventPageMax), eventBytesMax}, func(r row) error {
			list = append(list, scanEvent(r))
			return nil
		})
	return list, err
}

func scanEvent(r row) hub.Event {
	return hub.Event{
		Seq: r.int(0), Kind: hub.EventKind(r.int(1)), At: r.time(2), State: hub.State(r.int(3)), ArtifactID: r.text(4),
		Append: r.int(5)&flagAppend != 0, LastChunk: r.int(5)&flagLast != 0, Body: r.blob(6), Metadata: r.blob(7),
	}
}

// MailboxStats implements hub.Reads.
func (s *Store) MailboxStats(ctx context.Context, address string) (out hub.MailboxStats, err error) {
	err = s.read(ctx, func(c *conn) error {
		// Of the tasks that are next, for all would be a scan: which has waited longest?
		r, err := c.one(`WITH a AS MATERIALIZED (SELECT n FROM address WHERE id = $1)
			SELECT (SELECT count(*) FROM queue WHERE callee = (SELECT n FROM a) AND rank IS NOT NULL),
				(SELECT coalesce(sum(open), 0)::bigint FROM lane WHERE callee = (SELECT n FROM a)),
				(SELECT min(t.state_at) FROM task t WHERE t.id IN (SELECT task FROM queue
					WHERE callee = (SELECT n FROM a) AND rank IS NOT NULL ORDER BY rank, n LIMIT 1000)),
				(extract(epoch FROM clock_timestamp()) * 1000)::bigint`, address)
		if err != nil {
			return err
		}
		out.Ready, out.Open = int(r.int(0)), int(r.int(1))
		if !r.null(2) {
			now := r.time(3)
			if s.opt.Now != nil {
				now = s.opt.Now()
			}
			out.OldestReady = now.Sub(r.time(2))
		}
		return nil
	})
	return out, err
}

// QueueStats implements hub.Reads.
func (s *Store) QueueStats(ctx context.Context) (out hub.QueueStats, err error) {
	err = s.read(ctx, func(c *conn) error {
		c.later("SELECT phase, count(*) FROM queue GROUP BY phase", nil, func(r row) error {
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
			return nil
		})
		// Of the oldest tasks, for all would be a scan: which has been as it is longest?
		r, err := c.one(`SELECT min(t.state_at), (extract(epoch FROM clock_timestamp()) * 1000)::bigint FROM task t
			WHERE t.id IN (SELECT task FROM queue WHERE rank IS NOT NULL ORDER BY task LIMIT 1000)`)
		if err == nil && !r.null(0) {
			now := r.time(1)
			if s.opt.Now != nil {
				now = s.opt.Now()
			}
			out.OldestReady = now.Sub(r.time(0))
		}
		return err
	})
	return out, err
}
