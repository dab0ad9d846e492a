package storetest

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// visible finds the task at ref's address if the viewer may see it.
func (m *model) visible(ref hub.TaskRef, by hub.Viewer) *modelTask {
	t := m.find(ref.ID)
	switch {
	case t == nil, ref.Callee != "" && ref.Callee != t.Callee.ID:
		return nil
	case !by.All && t.Caller.ID != by.Address && t.Callee.ID != by.Address:
		return nil
	}
	return t
}

func (t *modelTask) load(l hub.Load) *hub.Task {
	messages := len(t.messages)
	if l.AsOf > 0 && l.AsOf < t.Seq {
		t = t.asOf(l.AsOf)
	}
	h := t.withHistory(l.History)
	h.Messages = messages
	if l.Artifacts {
		h.Artifacts = fold(t.events)
	}
	return h
}

// asOf is the task as it was after an event.
func (t *modelTask) asOf(seq int64) *modelTask {
	c := *t
	c.Seq, c.events, c.question = seq, t.events[:seq], 0
	var status int64
	for _, e := range c.events {
		if e.Kind == hub.StatusEvent {
			c.State, c.StateAt, c.StatusMessage, status = e.State, e.At, e.Body, e.Seq
		}
	}
	c.messages = nil
	for _, x := range t.messages {
		switch {
		case t.asked[x.N] > seq:
			continue
		case t.asked[x.N] == status:
			c.question = x.N
		}
		c.messages = append(c.messages, x)
	}
	return &c
}

// fold makes artifacts out of events, as a subscriber would.
func fold(events []hub.Event) [][]byte {
	var order []string
	chunks := map[string][][]byte{}
	for _, e := range events {
		if e.Kind != hub.ArtifactEvent {
			continue
		}
		if chunks[e.ArtifactID] == nil {
			order = append(order, e.ArtifactID)
		}
		if !e.Append {
			chunks[e.ArtifactID] = nil
		}
		chunks[e.ArtifactID] = append(chunks[e.ArtifactID], e.Body)
	}
	var out [][]byte
	for _, id := range order {
		body, err := canon.FoldAll(chunks[id])
		if err != nil {
			panic(err)
		}
		out = append(out, body)
	}
	return out
}

// Task implements hub.Reads.
func (m *model) Task(ctx context.Context, ref hub.TaskRef, by hub.Viewer, load hub.Load) (*hub.Task, error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	t := m.visible(ref, by)
	if t == nil {
		return nil, hub.ErrTaskNotFound()
	}
	return t.load(load), nil
}

func (f selects) match(t *modelTask) bool {
	switch {
	case !f.By.All && t.Caller.ID != f.By.Address && t.Callee.ID != f.By.Address,
		f.Callee != "" && t.Callee.ID != f.Callee,
		f.Context != "" && t.ContextID != f.Context,
		f.State != 0 && t.State != f.State,
		t.StateAt.Before(f.Since),
		(f.Sent || f.Pending) && t.Caller.ID != f.By.Address,
		f.Pending && !t.Pending():
		return false
	}
	return true
}

type selects struct{ hub.TaskFilter }

// Tasks implements hub.Reads.
func (m *model) Tasks(ctx context.Context, f hub.TaskFilter) (p hub.TaskPage, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return p, err
	}
	defer unlock()
	after, err := parseCursor(f.Cursor)
	if err != nil {
		return p, err
	}
	var all []*modelTask
	for _, t := range m.tasks {
		if (selects{f}).match(t) {
			all = append(all, t)
		}
	}
	if f.Total {
		p.Total = len(all)
	}
	slices.SortFunc(all, func(a, b *modelTask) int { return b.place().compare(a.place()) })
	for _, t := range all {
		if f.Cursor != "" && t.place().compare(after) >= 0 {
			continue
		}
		if len(p.Tasks) == f.Limit {
			last := p.Tasks[len(p.Tasks)-1]
			p.Next = place{last.StateAt, last.ID}.String()
			break
		}
		p.Tasks = append(p.Tasks, t.load(f.Load))
	}
	return p, nil
}

// place is where a task stands in a list.
type place struct {
	at time.Time
	id string
}

func (t *modelTask) place() place { return place{t.StateAt, t.ID} }

func (p place) compare(q place) int { return cmp.Or(p.at.Compare(q.at), strings.Compare(p.id, q.id)) }

func (p place) String() string { return strconv.FormatInt(p.at.UnixMilli(), 10) + "." + p.id }

func parseCursor(s string) (place, error) {
	if s == "" {
		return place{}, nil
	}
	ms, id, ok := strings.Cut(s, ".")
	n, err := strconv.ParseInt(ms, 10, 64)
	if !ok || err != nil {
		return place{}, hub.InvalidField("cursor", "this hub did not make that cursor")
	}
	return place{time.UnixMilli(n), id}, nil
}

// Events implements hub.Reads.
func (m *model) Events(ctx context.Context, ref hub.TaskRef, by hub.Viewer, after int64, limit int) (p hub.EventPage, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return p, err
	}
	defer unlock()
	t := m.visible(ref, by)
	if t == nil {
		return p, hub.ErrTaskNotFound()
	}
	p = hub.EventPage{Context: t.ContextID, State: t.State, Last: t.Seq}
	size := 0
	for _, e := range t.events {
		if e.Seq <= after {
			continue
		}
		if len(p.Events) == limit || size > 1<<20 {
			break
		}
		p.Events = append(p.Events, e)
		size += len(e.Body)
	}
	return p, nil
}

// Activity implements hub.Reads.
func (m *model) Activity(ctx context.Context, q hub.ActivityQuery) (p hub.ActivityPage, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return p, err
	}
	defer unlock()
	n, ok := strings.CutPrefix(q.After, "c")
	after, err := strconv.Atoi(n)
	if q.After == "" {
		after = 0
	} else if !ok || err != nil || after < 0 || after > m.written {
		return p, hub.InvalidField("after", "this hub did not make that cursor")
	}
	var lines []line
	for _, l := range m.lines {
		if l.n > after {
			lines = append(lines, l)
		}
	}
	if q.After == "" && q.Tail {
		lines = tail(lines, q)
	}
	p.Next = "c" + strconv.Itoa(after)
	for _, l := range lines {
		if len(p.Lines) == q.Limit {
			break
		}
		if l.visible(q.By) {
			p.Lines = append(p.Lines, l.Activity)
		}
		p.Next = l.Cursor
	}
	return p, nil
}

func (l line) visible(by hub.Viewer) bool {
	return by.All || l.caller == by.Address || l.callee == by.Address && l.Kind != hub.ActPushFailed
}

func tail(lines []line, q hub.ActivityQuery) []line {
	n := 0
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].visible(q.By) {
			n++
		}
		if n == q.Limit {
			return lines[i:]
		}
	}
	return lines
}

// MailboxStats implements hub.Reads.
func (m *model) MailboxStats(ctx context.Context, address string) (s hub.MailboxStats, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return s, err
	}
	defer unlock()
	for _, t := range m.tasks {
		if t.Callee.ID != address || t.Phase == hub.Done {
			continue
		}
		s.Open++
		if t.Phase == hub.Ready && t.Due.IsZero() {
			s.Ready++
			s.OldestReady = max(s.OldestReady, m.now().Sub(t.StateAt))
		}
	}
	return s, nil
}

// QueueStats implements hub.Reads.
func (m *model) QueueStats(ctx context.Context) (s hub.QueueStats, err error) {
	unlock, err := m.lock(ctx)
	if err != nil {
		return s, err
	}
	defer unlock()
	for _, t := range m.tasks {
		switch t.Phase {
		case hub.Ready:
			s.Ready++
			s.OldestReady = max(s.OldestReady, m.now().Sub(t.StateAt))
		case hub.Leased:
			s.Leased++
		case hub.Parked:
			s.Parked++
		}
	}
	return s, nil
}
