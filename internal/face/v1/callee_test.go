package v1_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

func TestNextHandsOutAClaim(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	coder.want(204, "GET", "/v1/agents/me/tasks/next", "")
	coder.want(204, "GET", "/v1/agents/me/tasks/next?wait=0.01", "")
	task := boss.send("coder", "hi")
	got := coder.task("GET", "/v1/agents/me/tasks/next?wait=20.0&lease=90.0&ack=5", "")
	if got.ID != task.ID || got.State != "working" || got.Attempt != 1 || got.ClaimID == "" || got.Input == nil ||
		len(got.History) != 1 || got.DispatchState != "leased" || got.LeaseExpiresAt == nil || got.ClaimedAt == nil {
		t.Errorf("%+v", got)
	}
	coder.want(204, "GET", "/v1/agents/me/tasks/next", "")
	for query, field := range map[string]string{"wait=61": "wait", "wait=x": "wait", "lease=-1": "lease", "lease=86401": "lease", "ack=61": "ack", "ack=x": "ack"} {
		refused(t, coder.do("GET", "/v1/agents/me/tasks/next?"+query, ""), 400, "invalid", field)
	}
	if seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, ""); seen.ClaimID != "" {
		t.Error("the caller sees the claim")
	}
}

func TestTheLeaseIsTheOneAskedFor(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	boss.send("coder", "hi")
	got := coder.task("GET", "/v1/agents/me/tasks/next?lease=90", "")
	if d := got.LeaseExpiresAt.Sub(got.ClaimedAt.Time); d != 90*time.Second {
		t.Errorf("the lease lasts %v", d)
	}
}

func TestResults(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	for _, c := range []struct {
		body, state, errText, message string
		artifacts                     int
	}{
		{done, "completed", "", "", 1},
		{`{"state":"completed","message":{"role":"agent","parts":[{"text":"all well"}]}}`, "completed", "", "all well", 0},
		{`{"state":"failed","error":"boom"}`, "failed", "boom", "boom", 0},
		{`{"state":"failed"}`, "failed", "the agent reported a failure and gave no reason", "the agent reported a failure and gave no reason", 0},
		{`{"state":"rejected","message":{"parts":[{"text":"not mine"}]}}`, "rejected", "", "not mine", 0},
		{`{"state":"input_required","message":{"parts":[{"text":"which?"}]}}`, "input_required", "", "which?", 0},
		{`{"state":"auth_required"}`, "auth_required", "", "", 0},
		{`{"state":"working","artifacts":[{"name":"draft","parts":[{"text":"x"}]}],"message":{"parts":[{"text":"half way"}]}}`, "working", "", "half way", 1},
	} {
		task := boss.send("coder", "hi")
		claimed := coder.next()
		got := coder.result(claimed.ID, c.body, "X-Claim", claimed.ClaimID)
		seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, "")
		for _, v := range []wire.Task{got, seen} {
			text, errText := "", ""
			if v.Status.Message != nil {
				text = *v.Status.Message.Parts[0].Text
			}
			if v.Error != nil {
				errText = *v.Error
			}
			if v.ID != task.ID || v.State != c.state || v.Status.State != c.state || text != c.message || errText != c.errText || len(v.Artifacts) != c.artifacts || v.Input == nil {
				t.Errorf("%s: %+v, message %q, error %q", c.body, v, text, errText)
			}
		}
	}
}

func TestResultsAreRefused(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	path := "/v1/agents/me/tasks/" + task.ID + "/result"
	refused(t, coder.do("POST", path, done), 409, "conflict", "") // nobody has claimed it
	claimed := coder.next()
	for _, c := range []struct {
		body        string
		header      []string
		status      int
		code, field string
	}{
		{`{"state":"done"}`, nil, 400, "invalid", "state"},
		{`{}`, nil, 400, "invalid", "state"},
		{`{"state":"failed","error":"` + strings.Repeat("x", 4001) + `"}`, nil, 400, "invalid", "error"},
		{`{"state":"completed","artifacts":[{"name":"x"}]}`, nil, 400, "invalid", "artifacts[0].parts"},
		{done, []string{"X-Claim", task.ID + ".2"}, 409, "conflict", "X-Claim"},
		{done, []string{"X-Claim", "x"}, 409, "conflict", "X-Claim"},
		{done, []string{"Content-Type", "text/plain"}, 415, "unsupported_media_type", "Content-Type"},
	} {
		refused(t, coder.do("POST", path, c.body, c.header...), c.status, c.code, c.field)
	}
	refused(t, coder.do("POST", path+"?next=maybe", done), 400, "invalid", "next")
	refused(t, coder.do("POST", path+"?next=1&lease=x", done), 400, "invalid", "lease")
	if seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, ""); seen.State != "working" || len(seen.Artifacts) != 0 {
		t.Errorf("refused results left %+v", seen)
	}
	coder.result(task.ID, done, "X-Claim", claimed.ClaimID)
	coder.result(task.ID, done, "X-Claim", claimed.ClaimID) // the same again
	refused(t, coder.do("POST", path, `{"state":"failed","error":"x"}`, "X-Claim", claimed.ClaimID), 409, "conflict", "")
}

func TestTheLongestErrorIsKeptWhole(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	coder.next()
	text := strings.Repeat("ü", 4000)
	coder.result(task.ID, `{"state":"failed","error":"`+text+`"}`)
	if seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, ""); seen.Error == nil || *seen.Error != text {
		t.Error("the error was changed")
	}
}

func TestARepeatedQuestionIsOneQuestion(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	claimed := coder.next()
	const question = `{"state":"input_required","message":{"parts":[{"text":"which?"}]}}`
	first := coder.result(task.ID, question, "X-Claim", claimed.ClaimID)
	again := coder.result(task.ID, question, "X-Claim", claimed.ClaimID)
	if first.Status.Message.MessageID != again.Status.Message.MessageID || len(again.History) != len(first.History) {
		t.Errorf("%+v and %+v", first, again)
	}
}

func TestAResultCanCarryTheNextClaim(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	first, second := boss.send("coder", "1"), boss.send("coder", "2")
	claimed := coder.next()
	a := coder.want(200, "POST", "/v1/agents/me/tasks/"+first.ID+"/result?next=1&lease=90&ack=5", done, "X-Claim", claimed.ClaimID)
	got := decode[wire.ResultReply](t, a)
	if got.Task.ID != first.ID || got.Task.State != "completed" || got.Next == nil || got.Next.ID != second.ID || got.Next.ClaimID == "" || got.Next.Input == nil {
		t.Errorf("%s", a.body)
	}
	a = coder.want(200, "POST", "/v1/agents/me/tasks/"+second.ID+"/result?next=true", done, "X-Claim", got.Next.ClaimID, "Prefer", "return=minimal")
	if last := decode[wire.ResultReply](t, a); last.Next != nil || last.Task.State != "completed" || !strings.Contains(a.body, `"next":null`) {
		t.Errorf("%s", a.body)
	}
}

func TestAMinimalAnswerHasNoContent(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	coder.next()
	got := coder.result(task.ID, done, "Prefer", "respond-async, return=minimal")
	if got.State != "completed" || got.Input != nil || got.History != nil || got.Artifacts != nil {
		t.Errorf("%+v", got)
	}
}

func TestARedeliveredResultReplacesThePartialOne(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	first := coder.next()
	coder.want(200, "POST", "/v1/agents/me/tasks/"+task.ID+"/events", `{"events":[{"artifact":{"name":"response","parts":[{"text":"do"}]}}]}`, "X-Claim", first.ClaimID)
	admin.task("POST", "/v1/tasks/"+task.ID+"/requeue", "")
	second := coder.next()
	coder.result(task.ID, done, "X-Claim", second.ClaimID)
	seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, "")
	if len(seen.Artifacts) != 1 || *seen.Artifacts[0].Parts[0].Text != "done" {
		t.Errorf("%+v", seen.Artifacts)
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	claimed := coder.next()
	path := "/v1/agents/me/tasks/" + task.ID + "/events"
	const two = `{"events":[{"status":{"message":{"parts":[{"text":"50 %"}]}}},{"artifact":{"name":"log","parts":[{"text":"a"}]}}]}`
	before := decode[wire.EventsReply](t, coder.want(200, "POST", path, `{"events":[{"status":{"state":"working"}}]}`, "X-Claim", claimed.ClaimID))
	after := decode[wire.EventsReply](t, coder.want(200, "POST", path, two))
	if after.Seq != before.Seq+2 {
		t.Errorf("two events led from %d to %d", before.Seq, after.Seq)
	}
	coder.want(200, "POST", path, `{"events":[{"artifact":{"name":"log","parts":[{"text":"b"}]},"append":true,"last_chunk":true}]}`)
	refused(t, coder.do("POST", path, `{"events":[{"artifact":{"name":"log","parts":[{"text":"c"}]},"append":true},{"artifact":{"name":"nothing","parts":[{"text":"b"}]},"append":true}]}`), 400, "invalid", "events[1]")
	refused(t, coder.do("POST", path, `{"events":[]}`), 400, "invalid", "events")
	refused(t, coder.do("POST", path, two, "X-Claim", task.ID+".9"), 409, "conflict", "X-Claim")
	seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, "")
	if len(seen.Artifacts) != 1 || len(seen.Artifacts[0].Parts) != 2 || seen.Status.Message == nil {
		t.Errorf("%+v", seen)
	}
	coder.result(task.ID, done)
	refused(t, coder.do("POST", path, two), 409, "conflict", "")
}

func TestHeartbeats(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	claimed := coder.next()
	path := "/v1/agents/me/tasks/" + task.ID + "/heartbeat"
	boss.task("POST", "/v1/agents/coder/tasks", strings.Replace(message("and hurry"), "{", `{"task_id":"`+task.ID+`",`, 1))
	beat := func(body string, header ...string) wire.Heartbeat {
		t.Helper()
		return decode[wire.Heartbeat](t, coder.want(200, "POST", path, body, header...))
	}
	b := beat("", "X-Claim", claimed.ClaimID)
	if b.State != "working" || b.CancelRequested || b.LeaseExpiresAt == nil || len(b.Messages) != 1 || b.Messages[0].N != 2 || *b.Messages[0].Parts[0].Text != "and hurry" {
		t.Errorf("%+v", b)
	}
	if b := beat(`{"after":1.0}`); len(b.Messages) != 1 {
		t.Errorf("after 1: %+v", b)
	}
	if b := beat(`{"after":2}`); len(b.Messages) != 0 {
		t.Errorf("after 2: %+v", b)
	}
	refused(t, coder.do("POST", path, `{"after":"x"}`), 400, "invalid", "after")
	refused(t, coder.do("POST", path, `{`), 400, "invalid", "")
	refused(t, coder.do("POST", path, `x`, "Content-Type", "text/plain"), 415, "unsupported_media_type", "Content-Type")
	refused(t, coder.do("POST", path, "", "X-Claim", task.ID+".2"), 409, "conflict", "X-Claim")
	boss.task("POST", "/v1/agents/coder/tasks/"+task.ID+"/cancel", "")
	if b := beat("", "X-Claim", claimed.ClaimID); b.State != "canceled" || !b.CancelRequested || b.LeaseExpiresAt != nil && b.LeaseExpiresAt.IsZero() {
		t.Errorf("%+v", b)
	}
	refused(t, coder.do("POST", "/v1/agents/me/tasks/"+task.ID+"/result", done, "X-Claim", claimed.ClaimID), 409, "conflict", "")
	if seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, ""); seen.CancelOutcome == "" {
		t.Errorf("%+v", seen)
	}
}

func TestGetOwnHoldsTheClaimAgainstTheTask(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	claimed := coder.next()
	path := "/v1/agents/me/tasks/" + task.ID
	if got := coder.task("GET", path, "", "X-Claim", claimed.ClaimID); got.ClaimID != claimed.ClaimID || got.Input == nil {
		t.Errorf("%+v", got)
	}
	refused(t, coder.do("GET", path, "", "X-Claim", task.ID+".7"), 409, "conflict", "X-Claim")
	refused(t, coder.do("GET", path+"?wait=99", ""), 400, "invalid", "wait")
}
