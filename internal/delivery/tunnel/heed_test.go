package tunnel_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
)

func drains(d time.Duration) func(*tunnelclient.Options) {
	return func(o *tunnelclient.Options) { o.Drain = d }
}

// said waits until the client has told its user something.
func (r *running) said(t *testing.T, words string) {
	t.Helper()
	for !strings.Contains(next(t, r.lines, words), words) {
	}
}

// heeded waits until the tunnel of an address can give notice.
func (b *bed) heeded(handle string) {
	b.t.Helper()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	late := time.After(patience)
	for !tunnel.Heard(b.host, handle) {
		select {
		case <-again.C:
		case <-late:
			b.t.Fatal("the tunnel gives no notice")
		}
	}
}

// An agent that is to stop takes no more, finishes what it is at, and then the hub ends its
// tunnel.
func TestAnAgentThatStopsFinishesWhatItIsAt(t *testing.T) {
	b := newBed(t)
	begun, free := make(chan struct{}), make(chan struct{})
	r := b.open("dev", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-free
		_, _ = io.WriteString(w, "whole")
	}), drains(time.Hour), relays("/"))
	c := next(t, b.joined, "the tunnel")
	answer := make(chan string, 1)
	go func() { answer <- says(t, c, "/") }()
	next(t, begun, "the request")
	b.heeded("dev")
	r.stop()
	r.said(t, "those under way may take 1h0m0s to finish")
	next(t, b.finishing, "the notice")
	if resp, _ := b.outside(http.MethodGet, "/t/dev/x", ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("the relay begins with an agent that stops: %d", resp.StatusCode)
	}
	close(free)
	if got := next(t, answer, "the answer"); got != "whole" {
		t.Error(got)
	}
	close(b.finished)
	if err := next(t, r.ended, "the end of the client"); err != nil {
		t.Error(err)
	}
	next(t, b.left, "the end of the connection")
}

// One that does not finish in time stops all the same.
func TestAnAgentThatStopsDoesNotWaitForEver(t *testing.T) {
	b := newBed(t)
	r := b.open("dev", http.HandlerFunc(echo), drains(50*time.Millisecond))
	next(t, b.joined, "the tunnel")
	b.heeded("dev")
	r.stop()
	r.said(t, "delivers them again")
	if err := next(t, r.ended, "the end of the client"); err != nil {
		t.Error(err)
	}
}
