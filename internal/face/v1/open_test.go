package v1_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/wire"
)

// outcome is what became of a request in the background.
type outcome struct {
	reply
	err error
}

// background makes a request that stays open, and gives its outcome later.
func (w who) background(ctx context.Context, method, path, body string, headers ...string) <-chan outcome {
	c := make(chan outcome, 1)
	r := w.request(ctx, method, path, body, headers...)
	go func() {
		a, err := w.try(r)
		c <- outcome{a, err}
	}()
	return c
}

// within waits for what should come soon: long before a wait or a lease would end.
func within[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(20 * time.Second):
		t.Fatalf("%s does not come", what)
		panic("unreachable")
	}
}

// until asks until the answer is yes.
func until(t testing.TB, what string, ask func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ask(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// polled reports whether a worker has asked for a task of the address since then.
func polled(admin who, handle string) bool {
	a := decode[wire.Agent](admin.t, admin.want(200, "GET", "/v1/agents/"+handle, ""))
	return a.LastSeenAt != nil
}

func TestALongPollGetsTheTaskThatComes(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	poll := coder.background(t.Context(), "GET", "/v1/agents/me/tasks/next?wait=60", "")
	until(t, "the poll", func() bool { return polled(admin, "coder") })
	task := boss.send("coder", "hi")
	got := within(t, "the task", poll)
	if got.err != nil || decode[wire.Task](t, got.reply).ID != task.ID {
		t.Errorf("%+v", got)
	}
}

func TestATaskOfAPollerThatLeftGoesToTheNextAtOnce(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	for range 8 {
		ctx, leave := context.WithCancel(t.Context())
		poll := coder.background(ctx, "GET", "/v1/agents/me/tasks/next?wait=60&ack=1", "")
		sent := boss.background(t.Context(), "POST", "/v1/agents/coder/tasks", message("hi"))
		leave() // before, while or after the task is on its way
		a, b := within(t, "the send", sent), within(t, "the poll", poll)
		task := decode[wire.Task](t, a.reply)
		claimed := decodeIf[wire.Task](b)
		if claimed == nil { // ack covers an answer that was under way when the client left
			next := coder.next()
			claimed = &next
		}
		if claimed.ID != task.ID || claimed.Failures != 0 {
			t.Fatalf("got %s with %d failures, want %s", claimed.ID, claimed.Failures, task.ID)
		}
		coder.result(task.ID, done, "X-Claim", claimed.ClaimID)
	}
}

// decodeIf is the answer's value if there was a 200.
func decodeIf[T any](o outcome) *T {
	var v T
	if o.err != nil || o.status != 200 || json.Unmarshal([]byte(o.body), &v) != nil {
		return nil
	}
	return &v
}

func TestRevocationEndsWhatIsOpen(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	coder.next()
	poll := coder.background(t.Context(), "GET", "/v1/agents/me/tasks/next?wait=60", "")
	read := boss.background(t.Context(), "GET", "/v1/agents/coder/tasks/"+task.ID+"?wait=60", "")
	until(t, "the poll", func() bool { return openPolls(t, admin) == 2 })
	for _, handle := range []string{"coder", "boss"} {
		list := decode[wire.List[wire.Token]](t, admin.want(200, "GET", "/v1/agents/"+handle+"/tokens", ""))
		for _, token := range list.Data {
			admin.want(204, "DELETE", "/v1/tokens/"+token.ID, "")
		}
	}
	for what, c := range map[string]<-chan outcome{"the poll": poll, "the read": read} {
		o := within(t, what, c)
		if o.err != nil {
			t.Fatalf("%s: %v", what, o.err)
		}
		refused(t, o.reply, 401, "unauthenticated", "")
	}
	refused(t, coder.do("GET", "/v1/whoami", ""), 401, "unauthenticated", "")
}

// openPolls counts the requests of the hub that wait.
func openPolls(t testing.TB, admin who) int {
	t.Helper()
	for line := range strings.Lines(admin.want(200, "GET", "/metrics", "").body) {
		if rest, ok := strings.CutPrefix(line, `holdfast_http_open{kind="poll"} `); ok {
			return int(rest[0] - '0')
		}
	}
	t.Fatal("the metrics say nothing of open polls")
	return 0
}

func TestShuttingDownAnswersWhatIsOpen(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	agent(t, h, "idle")
	poll := coder.background(t.Context(), "GET", "/v1/agents/me/tasks/next?wait=60", "")
	send := boss.background(t.Context(), "POST", "/v1/agents/idle/tasks?wait=60", message("hi"))
	until(t, "the polls", func() bool { return openPolls(t, admin) == 2 })
	feed := follow(t, boss, "/api/activity", "")
	h.Close()
	if o := within(t, "the poll", poll); o.err != nil || o.status != 204 {
		t.Errorf("the poll: %+v", o)
	}
	if o := within(t, "the send", send); o.err != nil || o.status != 200 || decode[wire.Task](t, o.reply).State != "submitted" {
		t.Errorf("the send: %+v", o)
	}
	feed.end()
}

func TestActivityPages(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss, eve := agent(t, h, "coder"), agent(t, h, "boss"), agent(t, h, "eve")
	task := boss.send("coder", "hi")
	coder.result(coder.next().ID, done)
	eve.send("coder", "other")
	page := func(w who, path string) wire.List[wire.Activity] {
		t.Helper()
		p := decode[wire.List[wire.Activity]](t, w.want(200, "GET", path, ""))
		if p.NextCursor == nil {
			t.Fatal("no cursor to go on from")
		}
		return p
	}
	kinds := func(p wire.List[wire.Activity]) (all string) {
		for _, l := range p.Data {
			all += l.Kind + " "
		}
		return all
	}
	if got := kinds(page(boss, "/api/activity")); got != "sent claimed completed " {
		t.Errorf("the caller sees %s", got)
	}
	if got := kinds(page(coder, "/api/activity?limit=1000")); got != "sent claimed completed sent " {
		t.Errorf("the callee sees %s", got)
	}
	if got := kinds(page(admin, "/api/activity")); got != "sent claimed completed sent " {
		t.Errorf("the administrator sees %s", got)
	}
	first := page(boss, "/api/activity?limit=1.0")
	l := first.Data[0]
	if l.TaskID != task.ID || l.RunID != task.ID || l.Actor != "boss" || l.Caller != "boss" || l.Callee != "coder" || l.Seq != 1 {
		t.Errorf("%+v", l)
	}
	if got := kinds(page(boss, "/api/activity?after="+*first.NextCursor)); got != "claimed completed " {
		t.Errorf("after the first: %s", got)
	}
	refused(t, boss.do("GET", "/api/activity?limit=0", ""), 400, "invalid", "limit")
	refused(t, boss.do("GET", "/api/activity?after=nonsense", ""), 400, "invalid", "after")
	refused(t, boss.do("GET", "/api/activity", "", "Accept", "text/event-stream", "Last-Event-ID", "nonsense"), 400, "invalid", "Last-Event-ID")
	refused(t, boss.do("GET", "/api/activity?after=nonsense", "", "Accept", "text/event-stream"), 400, "invalid", "after")
}

// stream is an open stream of server-sent events.
type stream struct {
	t    testing.TB
	body io.ReadCloser
	in   *bufio.Reader
}

// follow opens the activity stream and waits until the hub has begun it.
func follow(t testing.TB, w who, path, lastID string) *stream {
	t.Helper()
	headers := []string{"Accept", "text/event-stream"}
	if lastID != "" {
		headers = append(headers, "Last-Event-ID", lastID)
	}
	res, err := http.DefaultClient.Do(w.request(t.Context(), "GET", path, "", headers...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != 200 || res.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %s", res.StatusCode, res.Header)
	}
	return &stream{t, res.Body, bufio.NewReader(res.Body)}
}

// next reads the next event.
func (s *stream) next() (id string, a wire.Activity) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSuffix(line, "\n")
		switch name, value, _ := strings.Cut(line, ": "); {
		case name == "id":
			id = value
		case name == "data":
			if err := json.Unmarshal([]byte(value), &a); err != nil {
				s.t.Fatal(err)
			}
		case line == "" && id != "":
			return id, a
		}
	}
}

// end reads until the hub ends the stream; events may come before that.
func (s *stream) end() {
	s.t.Helper()
	over := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, s.in)
		over <- err
	}()
	if err := within(s.t, "the end of the stream", over); err != nil {
		s.t.Errorf("the stream broke off: %v", err)
	}
}

func TestActivityStreams(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss, eve := agent(t, h, "coder"), agent(t, h, "boss"), agent(t, h, "eve")
	eve.send("coder", "not the boss's")
	s := follow(t, boss, "/api/activity", "")
	task := boss.send("coder", "hi")
	eve.send("coder", "nor this")
	first, a := s.next()
	if a.Kind != "sent" || a.TaskID != task.ID || a.Cursor != first {
		t.Errorf("%s: %+v", first, a)
	}
	coder.result(coder.next().ID, done) // eve's
	coder.result(coder.next().ID, done) // the boss's, or eve's other one
	coder.result(coder.next().ID, done)
	for _, want := range []string{"claimed", "completed"} {
		if _, a := s.next(); a.Kind != want || a.TaskID != task.ID {
			t.Errorf("%+v, want %s", a, want)
		}
	}
	resumed := follow(t, boss, "/api/activity?after=overruled", first)
	for _, want := range []string{"claimed", "completed"} {
		if _, a := resumed.next(); a.Kind != want || a.TaskID != task.ID {
			t.Errorf("resumed: %+v, want %s", a, want)
		}
	}
}

func TestRevocationEndsActivityStreams(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	boss := agent(t, h, "boss")
	s := follow(t, boss, "/api/activity", "")
	tokens, err := h.Identity().Tokens(t.Context(), h.Admin(), "boss")
	if err != nil {
		t.Fatal(err)
	}
	admin.want(204, "DELETE", "/v1/tokens/"+tokens[0].ID, "")
	s.end()
}

func TestDeletingAnAgentEndsItsPolls(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	open := "open"
	h.Create(identity.AgentSpec{Handle: "coder", Access: &open})
	coder := who{t, h.URL, h.Token("coder")}
	poll := coder.background(t.Context(), "GET", "/v1/agents/me/tasks/next?wait=60", "")
	until(t, "the poll", func() bool { return polled(admin, "coder") })
	admin.want(204, "DELETE", "/v1/agents/coder", "")
	o := within(t, "the poll", poll)
	if o.err != nil {
		t.Fatal(o.err)
	}
	refused(t, o.reply, 401, "unauthenticated", "")
}
