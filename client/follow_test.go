package client

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sender writes a task's status events of a stream, as a hub does.
func sender(w http.ResponseWriter, seq int, state string) {
	fmt.Fprintf(w, "id: %d\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"statusUpdate\":{\"taskId\":\"t\",\"contextId\":\"c\",\"status\":{\"state\":\"TASK_STATE_%s\"}}}}\n\n", seq, state)
	_ = http.NewResponseController(w).Flush()
}

func follow(t *testing.T, c *Client, opts ...SubscribeOption) (seqs []int64, err error) {
	for ev, err := range c.Subscribe(t.Context(), "coder", "t", opts...) {
		if err != nil {
			return seqs, err
		}
		seqs = append(seqs, ev.Seq)
	}
	return seqs, nil
}

// A connection on which nothing comes any more is given up and resumed.
func TestASilentStreamIsResumed(t *testing.T) {
	var mu sync.Mutex
	var resumed []string
	gone := make(chan struct{})
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
		n := len(resumed)
		mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		if n == 1 {
			sender(w, 1, "SUBMITTED")
			<-r.Context().Done() // silence, until the client gives up
			close(gone)
			return
		}
		sender(w, 1, "SUBMITTED") // a duplicate is dropped
		sender(w, 2, "COMPLETED")
	}, WithSilence(50*time.Millisecond))
	seqs, err := follow(t, c, After(0))
	if err != nil {
		t.Fatal(err)
	}
	<-gone
	if d := cmp.Diff([]int64{1, 2}, seqs); d != "" {
		t.Error(d)
	}
	mu.Lock()
	defer mu.Unlock()
	if d := cmp.Diff([]string{"0", "1"}, resumed); d != "" {
		t.Error(d)
	}
}

// Signs of life keep a stream, and a slow consumer is not silence.
func TestAQuietStreamIsKept(t *testing.T) {
	var connections atomic.Int32
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		connections.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		sender(w, 1, "WORKING")
		for range 10 {
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
			fmt.Fprint(w, ":\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		sender(w, 2, "COMPLETED")
	}, WithSilence(100*time.Millisecond))
	seqs, err := follow(t, c, After(0))
	if err != nil || len(seqs) != 2 || connections.Load() != 1 {
		t.Errorf("%v over %d connections, %v", seqs, connections.Load(), err)
	}
}

func TestAStreamThatCannotBeginIsAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"JSON-RPC error":     {200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"there is no such task"}}`, ErrNotFound},
		"not permitted":      {403, `{"jsonrpc":"2.0","id":1,"error":{"code":-31403,"message":"no"}}`, ErrNotPermitted},
		"revoked":            {401, `{"error":{"code":"unauthenticated","message":"no"}}`, ErrUnauthenticated},
		"by its reason":      {200, `{"error":{"code":-32000,"message":"no","data":[{"reason":"UNAUTHORIZED"}]}}`, ErrNotPermitted},
		"unavailable for us": {503, `nothing`, nil},
	} {
		var tries atomic.Int32
		c := against(t, func(w http.ResponseWriter, _ *http.Request) {
			tries.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(tt.status)
			fmt.Fprint(w, tt.body)
		})
		_, err := follow(t, c)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
		if want := map[bool]int{true: 1, false: 4}[tt.want != nil]; int(tries.Load()) != want {
			t.Errorf("%s: %d tries, want %d", name, tries.Load(), want)
		}
	}
}

// A hub that is asked to resume after the end has nothing to say, and that is the
// end.
func TestResumingAfterTheEndEnds(t *testing.T) {
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"id":"t","state":"completed"}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
	})
	if seqs, err := follow(t, c, After(7)); err != nil || len(seqs) != 0 {
		t.Errorf("%v, %v", seqs, err)
	}
}
