package hubproc

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// Client makes single requests, without retries: tests want to see each answer.
type Client struct {
	Base, Token string
	HTTP        *http.Client
}

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// OK reports whether the request was done.
func (a Answer) OK() bool { return a.Status >= 200 && a.Status < 300 }

// Code is the code of the error that the answer is, or empty.
func (a Answer) Code() string {
	var e struct{ Error struct{ Code string } }
	_ = json.Unmarshal(a.Body, &e)
	return e.Error.Code
}

// Do makes a request. body is sent as JSON unless nil; header is names and values in
// turn. The error says that there was no whole answer.
func (c *Client) Do(ctx context.Context, method, path string, body any, header ...string) (Answer, error) {
	res, err := c.Open(ctx, method, path, body, header...)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return Answer{Status: res.StatusCode, Header: res.Header, Body: b}, err
}

// Open makes a request and leaves reading the answer to the caller.
func (c *Client) Open(ctx context.Context, method, path string, body any, header ...string) (*http.Response, error) {
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Base+path, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.Token)
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return c.HTTP.Do(req)
}

// Call makes a request that has to succeed and decodes its answer into out, unless
// that is nil.
func (c *Client) Call(ctx context.Context, method, path string, body, out any, header ...string) error {
	a, err := c.Do(ctx, method, path, body, header...)
	if err != nil {
		return err
	}
	if !a.OK() {
		return fmt.Errorf("%s %s: %d %s", method, path, a.Status, a.Body)
	}
	if out == nil || len(a.Body) == 0 {
		return nil
	}
	return json.Unmarshal(a.Body, out)
}

// Metric reads one of the hub's metrics, such as go_goroutines; labels are part of
// the name.
func (c *Client) Metric(ctx context.Context, name string) (float64, error) {
	a, err := c.Do(ctx, "GET", "/metrics", nil)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(a.Body)) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			var v float64
			_, err := fmt.Sscan(rest, &v)
			return v, err
		}
	}
	return 0, nil // a counter that nothing was counted in yet
}

// Event is one server-sent event.
type Event struct {
	ID   string
	Data string
}

// ReadEvents gives each event of a stream to f, until f says that it has enough or
// the stream ends. Comments are left out.
func ReadEvents(r io.Reader, f func(Event) (more bool)) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	var e Event
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return err
		}
		switch line = strings.TrimRight(line, "\r\n"); {
		case line == "":
			if e.Data != "" && !f(e) {
				return nil
			}
			e = Event{}
		case strings.HasPrefix(line, "id: "):
			e.ID = line[len("id: "):]
		case strings.HasPrefix(line, "data: "):
			e.Data += line[len("data: "):]
		}
	}
}
