package tunnelconn_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// HTTP/2 closes a connection that it cannot write to. What the other end said when it
// closed the connection is known all the same.
func TestTheReasonOfTheEndIsKnown(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		c := tunnelconn.New(ws)
		go drain(c)
		c.CloseWith(tunnelconn.Ended, "revoked")
	}))
	defer srv.Close()
	for range 100 {
		ws, _, err := websocket.Dial(context.Background(), strings.Replace(srv.URL, "http", "ws", 1), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := tunnelconn.New(ws)
		go drain(c)
		for err == nil {
			_, err = c.Write([]byte("an answer under way"))
		}
		_ = c.Close()
		if code := websocket.CloseStatus(c.Err()); code != tunnelconn.Ended {
			t.Fatalf("the end is %v, want the code %d", c.Err(), tunnelconn.Ended)
		}
	}
}

// drain reads until the connection ends.
func drain(c *tunnelconn.Conn) {
	b := make([]byte, 1024)
	for {
		if _, err := c.Read(b); err != nil {
			return
		}
	}
}
