package crash

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// seen is what subscribers saw of tasks that they followed to the end.
type seen struct {
	mu    sync.Mutex
	tasks []followed
}

type followed struct {
	record
	events []string // in order; the first is number 1
}

// subscriber follows tasks from their first event to their end, across crashes.
type subscriber struct {
	w *world
	r *rand.Rand
}

func (s *subscriber) run() {
	for !s.w.isQuiet() {
		r := s.w.ledger.recent(40, s.r.IntN)
		if r == nil {
			s.w.pause(10 * time.Millisecond)
			continue
		}
		s.follow(*r)
	}
}

// follow follows a task, resuming after the last event that it has. It gives up on a
// task that has not ended when all is to be quiet.
func (s *subscriber) follow(r record) {
	f := followed{record: r}
	ended := false
	for !ended && !s.w.isQuiet() {
		var err error
		ended, err = s.attach(&f)
		if err != nil && !ended {
			s.w.ledger.count("stream breaks")
			s.w.pause(10 * time.Millisecond)
		}
	}
	if !ended {
		return
	}
	s.w.ledger.count("tasks followed")
	s.w.seen.mu.Lock()
	defer s.w.seen.mu.Unlock()
	s.w.seen.tasks = append(s.w.seen.tasks, f)
}

// attach reads one stream for as long as it lasts, or a few seconds.
func (s *subscriber) attach(f *followed) (ended bool, err error) {
	ctx, cancel := context.WithTimeout(s.w.ctx, 3*time.Second)
	defer cancel()
	return s.w.stream(ctx, f)
}

// stream adds the events after the last one that f has.
func (w *world) stream(ctx context.Context, f *followed) (ended bool, err error) {
	body := object{"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": object{"id": f.id}}
	res, err := w.callers[f.caller].Open(ctx, "POST", "/a/"+f.callee, body,
		"A2A-Version", "1.0", "Accept", "text/event-stream", "Last-Event-ID", strconv.Itoa(len(f.events)))
	if err != nil {
		return false, err
	}
	defer func() { _ = res.Body.Close() }()
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		b, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode != 503 {
			w.problem("subscribe to task %s: %d %s", f.id, res.StatusCode, b)
		}
		return false, io.ErrUnexpectedEOF
	}
	err = hubproc.ReadEvents(res.Body, func(e hubproc.Event) bool {
		if e.ID == "" { // an error, such as that the hub goes down
			return false
		}
		if want := strconv.Itoa(len(f.events) + 1); e.ID != want {
			w.problem("a subscriber of task %s got event %s where %s was due", f.id, e.ID, want)
			return false
		}
		f.events = append(f.events, e.Data)
		ended = isEnd(e.Data)
		return true
	})
	return ended, err
}

// isEnd reports whether an event ends its task.
func isEnd(data string) bool {
	var e struct {
		Result struct {
			StatusUpdate *struct{ Status struct{ State string } }
		}
	}
	if json.Unmarshal([]byte(data), &e) != nil || e.Result.StatusUpdate == nil {
		return false
	}
	switch e.Result.StatusUpdate.Status.State {
	case "TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED":
		return true
	}
	return false
}

// feed is what a follower of the activity saw.
type feed struct {
	mu      sync.Mutex
	cursors []string
}

func (f *feed) last() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cursors) == 0 {
		return ""
	}
	return f.cursors[len(f.cursors)-1]
}

// followActivity follows the activity from the first connection on, across crashes.
func (w *world) followActivity() {
	for !w.isOver() {
		ctx, cancel := context.WithTimeout(w.ctx, 3*time.Second)
		w.activityStream(ctx)
		cancel()
		w.pause(10 * time.Millisecond)
	}
}

func (w *world) activityStream(ctx context.Context) {
	header := []string{"Accept", "text/event-stream"}
	if last := w.feed.last(); last != "" {
		header = append(header, "Last-Event-ID", last)
	}
	res, err := w.admin.Open(ctx, "GET", "/api/activity", nil, header...)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != 200 {
		if res.StatusCode != 503 {
			w.problem("follow the activity: %s", res.Status)
		}
		return
	}
	_ = hubproc.ReadEvents(res.Body, func(e hubproc.Event) bool {
		w.feed.mu.Lock()
		defer w.feed.mu.Unlock()
		w.feed.cursors = append(w.feed.cursors, e.ID)
		return true
	})
}

// activity reads all of it, page by page, with the lines of each task.
func (w *world) activity() (cursors []string, tasks map[string][]line, err error) {
	after, tasks := "", map[string][]line{}
	for {
		var page struct {
			Data []struct {
				Cursor       string
				Kind         hub.ActivityKind
				Task         string `json:"task_id"`
				Seq, Attempt int64
			}
			NextCursor string `json:"next_cursor"`
		}
		if err := w.admin.Call(w.ctx, "GET", "/api/activity?limit=1000&after="+after, nil, &page); err != nil {
			return nil, nil, err
		}
		for _, l := range page.Data {
			cursors = append(cursors, l.Cursor)
			tasks[l.Task] = append(tasks[l.Task], line{l.Kind, l.Seq, l.Attempt})
		}
		if len(page.Data) == 0 {
			return cursors, tasks, nil
		}
		after = page.NextCursor
	}
}

// awaitFeed checks the activity, and waits until its follower has all of it.
func (w *world) awaitFeed() {
	all, tasks, err := w.activity()
	if err != nil || len(all) == 0 {
		w.problem("read the activity: %d lines, %v", len(all), err)
		return
	}
	w.report("in the activity", followAll(tasks))
	deadline := time.Now().Add(20 * time.Second)
	for w.feed.last() != all[len(all)-1] && time.Now().Before(deadline) {
		w.pause(20 * time.Millisecond)
	}
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	// It follows from when it was first connected, which may be after the first lines.
	first := -1
	if len(w.feed.cursors) > 0 {
		first = slices.Index(all, w.feed.cursors[0])
	}
	if first < 0 {
		w.problem("the activity's follower has %d lines, and the first is none of the activity's", len(w.feed.cursors))
		return
	}
	all = all[first:]
	for i, c := range all {
		if i >= len(w.feed.cursors) || w.feed.cursors[i] != c {
			w.problem("line %d of %d of the activity: its follower has %d lines and not this one there", i+1, len(all), len(w.feed.cursors))
			return
		}
	}
	if len(w.feed.cursors) != len(all) {
		w.problem("the activity has %d lines, its follower %d", len(all), len(w.feed.cursors))
	}
}
