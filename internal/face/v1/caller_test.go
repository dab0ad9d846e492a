package v1_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/wire"
)

func TestSendIsRefusedBeforeAnythingIsStored(t *testing.T) {
	t.Parallel()
	h, _ := start(t, func(c *config.Config) { c.MaxBody = 64 << 10 })
	agent(t, h, "coder")
	boss := agent(t, h, "boss")
	const path = "/v1/agents/coder/tasks"
	for _, c := range []struct {
		name, path, body string
		header           []string
		status           int
		code, field      string
	}{
		{"wait too long", path + "?wait=61", message("hi"), nil, 400, "invalid", "wait"},
		{"wait no number", path + "?wait=soon", message("hi"), nil, 400, "invalid", "wait"},
		{"wait negative", path + "?wait=-1", message("hi"), nil, 400, "invalid", "wait"},
		{"no body", path, "", []string{"Content-Type", "application/json"}, 400, "invalid", ""},
		{"no message", path, `{}`, nil, 400, "invalid", "message"},
		{"wrong type", path, `{"message":{"role":"user","parts":[{"text":5}]}}`, nil, 400, "invalid", "message.parts[0].text"},
		{"agent's role", path, `{"message":{"role":"agent","parts":[{"text":"x"}]}}`, nil, 400, "invalid", "message.role"},
		{"deadline gone", path, strings.Replace(message("hi"), "{", `{"deadline":"2020-01-01T00:00:00Z",`, 1), nil, 400, "invalid", "deadline"},
		{"too large", path, message(strings.Repeat("x", 64<<10)), nil, 413, "too_large", ""},
		{"form", path, "message=hi", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", "Content-Type"},
		{"text", path, message("hi"), []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type", "Content-Type"},
		{"no media type", path, message("hi"), []string{"Content-Type", ""}, 415, "unsupported_media_type", "Content-Type"},
		{"unknown task", path, strings.Replace(message("hi"), "{", `{"task_id":"none",`, 1), nil, 404, "not_found", ""},
		{"key too long", path, message("hi"), []string{"Idempotency-Key", strings.Repeat("k", 300)}, 400, "invalid", "Idempotency-Key"},
		{"unknown callee", "/v1/agents/nobody/tasks", message("hi"), nil, 403, "not_permitted", ""},
		{"the hub itself", "/v1/agents/admin/tasks", message("hi"), nil, 403, "not_permitted", ""},
	} {
		refused(t, boss.do("POST", c.path, c.body, c.header...), c.status, c.code, c.field)
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
	list := decode[wire.List[wire.Task]](t, boss.want(200, "GET", "/v1/tasks", ""))
	if len(list.Data) != 0 {
		t.Errorf("refused sends left %d tasks", len(list.Data))
	}
}

func TestJSONUnderOtherNamesIsTaken(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	agent(t, h, "coder")
	boss := agent(t, h, "boss")
	for _, kind := range []string{"application/json; charset=utf-8", "application/vnd.api+json", "Application/JSON"} {
		boss.want(200, "POST", "/v1/agents/coder/tasks", message("hi"), "Content-Type", kind)
	}
}

func TestEveryCallThatMayNotBeMadeGetsTheSameAnswer(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	h.Create(identity.AgentSpec{Handle: "vault"}) // approved callers only
	boss := agent(t, h, "boss")
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/tasks?wait=1", message("hi")}, {"GET", "/tasks", ""}, {"GET", "/tasks/x?wait=1", ""}, {"POST", "/tasks/x/cancel", ""},
	} {
		var bodies []string
		for _, ref := range []string{"nobody", "vault", "admin", "anonymous", url.PathEscape("../x"), "01a22dfd-0000-7000-8000-000000000000"} {
			a := boss.do(c.method, "/v1/agents/"+ref+c.path, c.body)
			refused(t, a, 403, "not_permitted", "")
			bodies = append(bodies, a.body)
		}
		for _, b := range bodies[1:] {
			if b != bodies[0] {
				t.Errorf("%s %s: %s and %s", c.method, c.path, bodies[0], b)
			}
		}
	}
}

func TestForeignTasksLookLikeMissingOnes(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss, eve := agent(t, h, "coder"), agent(t, h, "boss"), agent(t, h, "eve")
	task := boss.send("coder", "secret")
	claimed := coder.next()
	for _, c := range []struct {
		as                 who
		method, path, body string
	}{
		{eve, "GET", "/v1/agents/coder/tasks/%s", ""},
		{eve, "GET", "/v1/agents/coder/tasks/%s?wait=1", ""},
		{eve, "POST", "/v1/agents/coder/tasks/%s/cancel", ""},
		{eve, "GET", "/v1/agents/me/tasks/%s", ""},
		{eve, "POST", "/v1/agents/me/tasks/%s/result", done},
		{eve, "POST", "/v1/agents/me/tasks/%s/events", `{"events":[{"status":{}}]}`},
		{eve, "POST", "/v1/agents/me/tasks/%s/heartbeat", ""},
		{boss, "GET", "/v1/agents/eve/tasks/%s", ""}, // its own, at the wrong address
		{boss, "POST", "/v1/agents/me/tasks/%s/result", done},
		{coder, "POST", "/v1/agents/coder/tasks/%s/cancel", ""}, // the callee cannot cancel
	} {
		foreign := c.as.do(c.method, fmt.Sprintf(c.path, task.ID), c.body)
		missing := c.as.do(c.method, fmt.Sprintf(c.path, "01a22dfd-0000-7000-8000-000000000000"), c.body)
		refused(t, foreign, 404, "not_found", "")
		if foreign.body != missing.body || foreign.status != missing.status {
			t.Errorf("%s %s: foreign %d %s, missing %d %s", c.method, c.path, foreign.status, foreign.body, missing.status, missing.body)
		}
	}
	follow := strings.Replace(message("hi"), "{", `{"task_id":"`+task.ID+`",`, 1)
	refused(t, eve.do("POST", "/v1/agents/coder/tasks", follow), 404, "not_found", "")
	for _, path := range []string{"/v1/tasks", "/v1/agents/coder/tasks"} {
		if a := eve.want(200, "GET", path, ""); strings.Contains(a.body, task.ID) {
			t.Errorf("%s shows a foreign task", path)
		}
	}
	if seen := coder.task("GET", "/v1/agents/me/tasks/"+task.ID, ""); seen.ClaimID != claimed.ClaimID || seen.State != "working" {
		t.Errorf("after all that the task is %s under %s", seen.State, seen.ClaimID)
	}
}

func TestABlockingSendReturnsWithTheEnd(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		a := coder.do("GET", "/v1/agents/me/tasks/next?wait=30", "")
		coder.do("POST", "/v1/agents/me/tasks/"+decode[wire.Task](t, a).ID+"/result", done)
	}()
	task := boss.task("POST", "/v1/agents/coder/tasks?wait=30.0", message("hi"))
	<-worked
	if task.State != "completed" || len(task.Artifacts) != 1 || task.Artifacts[0].ArtifactID != "response" || task.ClaimID != "" || task.Input == nil {
		t.Errorf("%+v", task)
	}
}

func TestAWaitThatEndsShowsTheTaskAsItIs(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	agent(t, h, "coder")
	boss := agent(t, h, "boss")
	task := boss.task("POST", "/v1/agents/coder/tasks?wait=0.05", message("hi"))
	if task.State != "submitted" || task.Input == nil || !strings.Contains(task.Hint, "@coder") {
		t.Errorf("%+v", task)
	}
	again := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID+"?wait=0.05", "")
	if again.State != "submitted" || again.PollCount == 0 && again.LastPolledAt != nil {
		t.Errorf("%+v", again)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	agent(t, h, "coder")
	boss := agent(t, h, "boss")
	body := strings.Replace(message("hi"), `"role"`, `"message_id":"m1","role"`, 1)
	first := boss.task("POST", "/v1/agents/coder/tasks", body, "Idempotency-Key", "k")
	again := boss.task("POST", "/v1/agents/coder/tasks?wait=0.01", body, "Idempotency-Key", "k")
	if first.ID != again.ID {
		t.Errorf("the same key gave %s and %s", first.ID, again.ID)
	}
	refused(t, boss.do("POST", "/v1/agents/coder/tasks", strings.Replace(body, "hi", "ho", 1), "Idempotency-Key", "k"), 409, "idempotency_key_reused", "")
}

func TestAKeyCountsForMessagesWithoutAnID(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	agent(t, h, "coder")
	boss := agent(t, h, "boss")
	first := boss.task("POST", "/v1/agents/coder/tasks", message("hi"), "Idempotency-Key", "k")
	again := boss.task("POST", "/v1/agents/coder/tasks", message("hi"), "Idempotency-Key", "k")
	if first.ID != again.ID {
		t.Errorf("the same key gave %s and %s", first.ID, again.ID)
	}
}

func TestLineage(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	agent(t, h, "helper")
	root := boss.send("coder", "big work")
	for _, header := range []string{"Holdfast-Task", "Lagrange-Task", "X-Parent-Call"} {
		a := coder.want(200, "POST", "/v1/agents/helper/tasks", message("part"), header, root.ID)
		child := decode[wire.Task](t, a)
		if child.RunID != root.ID || child.ParentTaskID == nil || *child.ParentTaskID != root.ID || a.header.Get("Holdfast-Lineage") != "" {
			t.Errorf("%s: run %s, parent %v, header %q", header, child.RunID, child.ParentTaskID, a.header.Get("Holdfast-Lineage"))
		}
	}
	// The caller of a task cannot claim to work on it.
	a := boss.want(200, "POST", "/v1/agents/helper/tasks", message("part"), "Holdfast-Task", root.ID)
	if stray := decode[wire.Task](t, a); stray.RunID != stray.ID || a.header.Get("Holdfast-Lineage") != "ignored" {
		t.Errorf("run %s, header %q", stray.RunID, a.header.Get("Holdfast-Lineage"))
	}
	traced := boss.task("POST", "/v1/agents/helper/tasks", message("x"), "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	if traced.TraceID == nil || *traced.TraceID != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("trace %v", traced.TraceID)
	}
	if a := boss.do("POST", "/v1/agents/nobody/tasks", message("x"), "Holdfast-Task", "none"); a.header.Get("Holdfast-Lineage") != "" {
		t.Error("a refusal speaks of lineage")
	}
}

func TestAContextAloneAnswersItsOpenQuestion(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "paint it")
	claimed := coder.next()
	coder.result(task.ID, `{"state":"input_required","message":{"role":"agent","parts":[{"text":"which colour?"}]}}`, "X-Claim", claimed.ClaimID)
	in := strings.Replace(message("red"), "{", `{"context_id":"`+task.ContextID+`",`, 1)
	answered := boss.task("POST", "/v1/agents/coder/tasks", in)
	if answered.ID != task.ID || answered.State != "working" {
		t.Errorf("the answer went to %s in %s", answered.ID, answered.State)
	}
	// With no question open, the same is a new task in the context.
	fresh := boss.task("POST", "/v1/agents/coder/tasks", in)
	if fresh.ID == task.ID || fresh.ContextID != task.ContextID {
		t.Errorf("%s in context %s", fresh.ID, fresh.ContextID)
	}
	refused(t, boss.do("POST", "/v1/agents/coder/tasks", strings.Replace(message("x"), "{", `{"task_id":"`+task.ID+`","context_id":"other",`, 1)), 400, "invalid", "context_id")
	coder.result(coder.next().ID, done)
	refused(t, boss.do("POST", "/v1/agents/coder/tasks", strings.Replace(message("x"), "{", `{"task_id":"`+task.ID+`",`, 1)), 409, "task_ended", "")
}

func TestCancel(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	for range 2 {
		if c := boss.task("POST", "/v1/agents/coder/tasks/"+task.ID+"/cancel", ""); c.State != "canceled" || c.CancelOutcome != "confirmed" {
			t.Errorf("%s, %s", c.State, c.CancelOutcome)
		}
	}
	task = boss.send("coder", "hi")
	coder.result(coder.next().ID, done)
	refused(t, boss.do("POST", "/v1/agents/coder/tasks/"+task.ID+"/cancel", `{"reason":"x"}`), 409, "task_not_cancelable", "")
}

func TestLists(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	agent(t, h, "other")
	var ids []string
	for i := range 5 {
		ids = append(ids, boss.send("coder", fmt.Sprint(i)).ID)
	}
	elsewhere := boss.send("other", "x").ID
	coder.result(coder.next().ID, done) // ids[0]
	page := func(w who, path string) wire.List[wire.Task] {
		return decode[wire.List[wire.Task]](t, w.want(200, "GET", path, ""))
	}
	count := func(w who, path string, want int) {
		t.Helper()
		if got := len(page(w, path).Data); got != want {
			t.Errorf("%s lists %d tasks, want %d", path, got, want)
		}
	}
	count(boss, "/v1/agents/coder/tasks", 5)
	count(boss, "/v1/tasks", 6)
	count(boss, "/v1/tasks?sent=true", 6)
	count(boss, "/v1/agents/coder/tasks?state=completed", 1)
	count(boss, "/v1/agents/coder/tasks?state=submitted", 4)
	count(boss, "/v1/tasks?context_id=none", 0)
	count(boss, "/v1/tasks?pending=true", 6)
	count(coder, "/v1/agents/me/tasks", 5)
	count(coder, "/v1/tasks?sent=true", 0)
	count(coder, "/v1/tasks?pending=true", 0)
	count(admin, "/v1/tasks", 6)
	count(admin, "/v1/agents/other/tasks", 1)
	boss.task("GET", "/v1/agents/coder/tasks/"+ids[0], "") // reads the end
	count(boss, "/v1/tasks?pending=true", 5)

	seen := map[string]bool{}
	cursor := ""
	for range 10 {
		p := page(boss, "/v1/agents/coder/tasks?limit=2.0&cursor="+url.QueryEscape(cursor))
		for _, task := range p.Data {
			if seen[task.ID] || task.History != nil || task.Artifacts != nil {
				t.Errorf("%+v", task)
			}
			seen[task.ID] = true
		}
		if p.NextCursor == nil {
			break
		}
		cursor = *p.NextCursor
	}
	if len(seen) != 5 || seen[elsewhere] {
		t.Errorf("paging found %d tasks", len(seen))
	}
	for query, field := range map[string]string{"state=x": "state", "limit=0": "limit", "limit=101": "limit", "pending=maybe": "pending", "sent=maybe": "sent", "cursor=x": "cursor"} {
		refused(t, boss.do("GET", "/v1/tasks?"+query, ""), 400, "invalid", field)
	}
}

func TestTooManySendsAreTurnedAwayForAWhile(t *testing.T) {
	t.Parallel()
	h, _ := start(t, func(c *config.Config) { c.Rate, c.Burst = 0.01, 2 })
	agent(t, h, "coder")
	boss := agent(t, h, "boss")
	boss.send("coder", "1")
	boss.send("coder", "2")
	a := boss.do("POST", "/v1/agents/coder/tasks", message("3"))
	refused(t, a, 429, "rate_limited", "")
	if d, err := time.ParseDuration(a.header.Get("Retry-After") + "s"); err != nil || d < time.Second {
		t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	claimed := coder.next()
	refused(t, boss.do("POST", "/v1/tasks/"+task.ID+"/requeue", ""), 403, "not_permitted", "")
	refused(t, boss.do("POST", "/v1/tasks/none/requeue", ""), 403, "not_permitted", "")
	refused(t, admin.do("POST", "/v1/tasks/none/requeue", ""), 404, "not_found", "")
	if again := admin.task("POST", "/v1/tasks/"+task.ID+"/requeue", ""); again.ID != task.ID || again.DispatchState != "ready" {
		t.Errorf("%+v", again)
	}
	if next := coder.next(); next.ID != task.ID || next.Attempt != 2 {
		t.Errorf("%+v", next)
	}
	refused(t, coder.do("POST", "/v1/agents/me/tasks/"+task.ID+"/result", done, "X-Claim", claimed.ClaimID), 409, "conflict", "")
	coder.result(task.ID, `{"state":"failed","error":"boom"}`, "X-Claim", task.ID+".2")
	copied := admin.task("POST", "/v1/tasks/"+task.ID+"/requeue", "")
	if copied.ID == task.ID || copied.RequeueOf != task.ID || copied.Caller != "boss" {
		t.Errorf("%+v", copied)
	}
}
