package v1

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

const (
	defaultActivity = 100
	maxActivity     = 1000
)

// activity serves GET /api/activity: a page, or a stream for who accepts one.
func (f *face) activity(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	q := r.URL.Query()
	limit, err := whole(q, "limit", 1, maxActivity, defaultActivity)
	if err != nil {
		return err
	}
	after := q.Get("after")
	if acceptsStream(r) {
		name := "after"
		if id := r.Header.Get("Last-Event-ID"); id != "" {
			after, name = id, "Last-Event-ID"
		}
		return renamed(f.streamActivity(w, r, p, after), map[string]string{"cursor": name})
	}
	page, err := f.opt.Engine.Activity(r.Context(), p, hub.ActivityQuery{By: p.Viewer(), After: after, Limit: limit})
	if err != nil {
		return renamed(err, map[string]string{"cursor": "after"})
	}
	b := append(make([]byte, 0, 64+400*len(page.Lines)), `{"data":[`...)
	for i := range page.Lines {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendActivity(b, &page.Lines[i])
	}
	b = append(b, `],"next_cursor":`...)
	return f.reply(w, append(appendTextOrNull(b, page.Next), '}'))
}

// streamActivity sends the lines after a cursor, and then each as it comes, until
// the client leaves, its token ends or the hub shuts down.
func (f *face) streamActivity(w http.ResponseWriter, r *http.Request, p hub.Principal, after string) error {
	feed, err := f.opt.Engine.FollowActivity(r.Context(), p, after)
	if err != nil {
		return err
	}
	s := httpx.StartSSE(w, r)
	if s.Comment() != nil { // tells the client at once that it is connected
		return nil
	}
	// However the stream ends, the client comes back with its Last-Event-ID.
	_ = httpx.Follow(r.Context(), s, feed.Next, func(lines []hub.Activity) (bool, error) {
		for i := range lines {
			if err := s.Event(lines[i].Cursor, "", appendActivity(nil, &lines[i])); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	return nil
}

// acceptsStream reports whether the client asked for server-sent events.
func acceptsStream(r *http.Request) bool { return names(r, "text/event-stream") }

// names reports whether the client's header Accept has a media type by its own name.
func names(r *http.Request, mediaType string) bool {
	for _, v := range r.Header["Accept"] {
		for one := range strings.SplitSeq(v, ",") {
			kind, _, _ := strings.Cut(one, ";")
			if strings.EqualFold(strings.TrimSpace(kind), mediaType) {
				return true
			}
		}
	}
	return false
}

// appendActivity appends a line of the feed (wire.Activity).
func appendActivity(b []byte, a *hub.Activity) []byte {
	member := func(name, value string) {
		b = append(b, name...)
		b = rawjson.AppendText(b, value)
	}
	member(`{"cursor":`, a.Cursor)
	b = canon.AppendTime(append(b, `,"at":`...), a.At)
	member(`,"kind":`, string(a.Kind))
	member(`,"run_id":`, a.Run)
	member(`,"task_id":`, a.Task)
	b = strconv.AppendInt(append(b, `,"seq":`...), a.Seq, 10)
	member(`,"actor":`, a.Actor)
	member(`,"caller":`, a.Caller)
	member(`,"callee":`, a.Callee)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(hub.Handouts(a.Attempt)), 10)
	if a.Detail != "" {
		member(`,"detail":`, a.Detail)
	}
	return append(b, '}')
}
