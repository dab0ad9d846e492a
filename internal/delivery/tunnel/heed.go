package tunnel

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/coder/websocket"

	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// heed waits beside for the agent's notice that it takes no more tasks. The tunnel then
// gets none, and ends once those are done that are under way. What it gives is closed when
// there is no more to wait for, which is so once the tunnel has ended.
func (h *Host) heed(l *link, finish func(context.Context)) (done <-chan struct{}) {
	end := make(chan struct{})
	go func() {
		defer close(end)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if !l.noticed(ctx) {
			return
		}
		l.leaving.Store(true)
		go func() {
			<-l.conn.Done()
			cancel()
		}()
		finish(ctx)
		l.conn.CloseWith(websocket.StatusGoingAway, "the agent takes no more tasks, and has none under way")
	}()
	return end
}

// noticed waits for the notice of a tunnel's agent; false if there is none.
func (l *link) noticed(ctx context.Context) bool {
	if l.cc.Reserve() != nil {
		return false
	}
	l.heeding.Store(1)
	defer l.heeding.Store(0)
	r := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Scheme: "http", Host: "agent.tunnel", Path: "/"},
		Header: http.Header{tunnelconn.Notice: {"true"}},
	}
	resp, err := l.cc.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.Header.Get(tunnelconn.Notice) == "" {
		return false // it has none to give
	}
	l.heard.Store(true)
	_, err = io.ReadFull(resp.Body, make([]byte, 1))
	return errors.Is(err, io.EOF)
}
