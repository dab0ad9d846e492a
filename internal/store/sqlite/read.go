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
func (s *Store) Task(_ context.Context, ref hub.TaskRef, by hub.Viewer, load hub.Load) (out *hub.Task, err error) {
	err = s.read(func(c *conn) error {
		h, err := s.find(c, ref, by)
		if err != nil {
			return err
		}
		if h == nil {
			return hub.ErrTaskNotFound()
		}
		out = &h.Task
		return s.load(c, h, load)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Tasks implements hub.Reads.
func (s *Store) Tasks(_ context.Context, f hub.TaskFilter) (page hub.TaskPage, err error) {
	if f.Limit <= 0 {
		f.Limit = defaultPageLimit
	}
	where, args := s.where(&f)
	paged, pagedArgs := where, args
	if f.Cursor != "" {
		at, n, err := parseCursor(taskOrder, f.Cursor)
		if err != nil {
			return page, err
		}
		paged += " AND (t.state_at < ? OR (t.state_at = ? AND t.n < ?))"
		pagedArgs = append(slices.Clone(args), at, at, n)
	}
	err = s.read(func(c *conn) error {
		if f.Total {
			r, err := c.one("SELECT count(*) FROM task t WHERE "+where, args...)
			if err != nil {
				return err
			}
			page.Total = int(r.int(0))
		}
		var list []*head
		err := c.each("SELECT "+headColumns+"FROM task t LEFT JOIN queue q ON q.task = t.n WHERE "+paged+
			" ORDER BY t.state_at DESC, t.n DESC LIMIT ?", append(pagedArgs, f.Limit+1), func(r row) (bool, error) {
			list = append(list, s.scanHead(r))
			return true, nil
		})
		if err != nil {
			return err
		}
		var size int64
		for i, h := range list {
			if i == f.Limit || size > pageBytesMax {
				last := list[i-1]
				page.Next = makeCursor(taskOrder, last.StateAt.UnixMilli(), last.n)
				return nil
			}
			if err := s.load(c, h, f.Load); err != nil {
				return err
			}
			page.Tasks = append(page.Tasks, &h.Task)
			if f.Load.History != 0 || f.Load.Artifacts {
				size += h.bytes
			}
		}
		return nil
	})
	if err != nil {
		return hub.TaskPage{}, err
	}
	return page, nil
}

// where turns a filter into a condition on task t, the viewer's first, such that
// an index by caller or callee serves it.
func (s *Store) where(f *hub.TaskFilter) (string, []any) {
	me := s.parties.n(f.By.Address)
	conds, args := []string{"1"}, []any{}
	add := func(cond string, arg any) { conds, args = append(conds, cond), append(args, arg) }
	callee := s.refN(f.Callee)
	if f.Callee != "" {
		add("t.callee = ?", callee)
	}
	switch {
	case f.Pending || f.Sent:
		add("t.caller = ?", me)
	case f.By.All || (f.Callee != "" && callee == me):
	case f.Callee != "":
		add("t.caller = ?", me)
	default:
		conds, args = append(conds, "(t.caller = ? OR t.callee = ?)"), append(args, me, me)
	}
	if f.Pending {
		conds = append(conds, "t.read_at IS NULL")
	}
	if f.Context != "" {
		add("t.context = ?", f.Context)
	}
	if f.State != 0 {
		add("t.state = ?", f.State)
	}
	if !f.Since.IsZero() {
		add("t.state_at >= ?", ceilMilli(f.Since))
	}
	return strings.Join(conds, " AND "), args
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
func (s *Store) Events(_ context.Context, ref hub.TaskRef, by hub.Viewer, after int64, limit int) (page hub.EventPage, err error) {
	err = s.read(func(c *conn) error {
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
		size := 0
		return c.each("SELECT k, kind, at, state, artifact, flags, body, metadata FROM event WHERE k > ? AND k <= ? ORDER BY k LIMIT ?",
			[]any{key(h.n, max(after, 0)), key(h.n, maxNumber), limit}, func(r row) (bool, error) {
				page.Events = append(page.Events, scanEvent(r))
				size += len(r.blob(6)) + len(r.blob(7))
				return size < eventBytesMax, nil
			})
	})
	if err != nil {
		return hub.EventPage{}, err
	}
	return page, nil
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
func (s *Store) Activity(_ context.Context, q hub.ActivityQuery) (page hub.ActivityPage, err error) {
	limit := min(max(q.Limit, 1), activityPageMax)
	var after int64
	if q.After != "" {
		if _, after, err = parseCursor(activityOrder, q.After); err != nil {
			return page, err
		}
	}
	me, tail := s.parties.n(q.By.Address), q.Tail && q.After == ""
	err = s.read(func(c *conn) error {
		scanned, last := 0, after
		collect := func(r row) (bool, error) {
			scanned++
			last = max(last, r.int(0))
			// The line of a task that is gone has lost what says whose it is.
			if !r.null(4) && (q.By.All || r.int(7) == me || r.int(8) == me) {
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
		page.Next = makeCursor(activityOrder, 0, last)
		return err
	})
	if err != nil {
		return hub.ActivityPage{}, err
	}
	return page, nil
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

// QueueStats implements hub.Reads.
func (s *Store) QueueStats(context.Context) (out hub.QueueStats, err error) {
	err = s.read(func(c *conn) error {
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
		r, err := c.one("SELECT state_at FROM task WHERE n = (SELECT min(task) FROM queue WHERE rank IS NOT NULL)")
		if err == nil && r != nil {
			out.OldestReady = s.opt.Now().Sub(r.time(0))
		}
		return err
	})
	return out, err
}

var _ hub.Store = (*Store)(nil)
