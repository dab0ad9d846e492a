package tunnelclient

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// notice is how the hub learns that the agent takes no more tasks: it asks for that when
// the tunnel is opened, and is answered once given is closed.
type notice struct {
	next  http.Handler
	asked atomic.Bool
	given chan struct{}
}

// ServeHTTP implements http.Handler.
func (n *notice) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(tunnelconn.Notice) == "" {
		n.next.ServeHTTP(w, r)
		return
	}
	n.asked.Store(true)
	w.Header().Set(tunnelconn.Notice, "true")
	w.WriteHeader(http.StatusOK)
	if http.NewResponseController(w).Flush() != nil {
		return
	}
	select {
	case <-n.given:
	case <-r.Context().Done():
	}
}

// drain tells the hub to bring no more tasks, and gives those that are under way some time
// to finish: the hub ends the tunnel then.
func (c *client) drain(conn *tunnelconn.Conn, n *notice) {
	if c.opt.Drain <= 0 || !n.asked.Load() {
		return
	}
	c.opt.Note(fmt.Sprintf("No more tasks are taken, and those under way may take %s to finish; Ctrl-C again to end at once.", c.opt.Drain))
	close(n.given)
	t := time.NewTimer(c.opt.Drain)
	defer t.Stop()
	select {
	case <-conn.Done():
	case <-t.C:
		c.opt.Note("Some tasks are not finished; the hub delivers them again.")
	}
}
