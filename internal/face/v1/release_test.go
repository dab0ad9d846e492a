package v1_test

import (
	"testing"

	"github.com/holdfast-hub/holdfast/wire"
)

func TestAClaimThatIsGivenBackIsOfferedAtOnceAndIsNoFailure(t *testing.T) {
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	first := coder.next()
	refused(t, coder.do("POST", "/v1/agents/me/tasks/"+task.ID+"/release", ""), 400, "invalid", "X-Claim")
	refused(t, coder.do("POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", "another.1"), 409, "conflict", "X-Claim")
	refused(t, boss.do("POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", first.ClaimID), 404, "not_found", "")
	refused(t, coder.do("POST", "/v1/agents/me/tasks/nothing/release", "", "X-Claim", "nothing.1"), 404, "not_found", "")
	if got := boss.want(200, "GET", "/v1/agents/coder/tasks/"+task.ID, ""); decode[wire.Task](t, got).DispatchState != "leased" {
		t.Error("somebody else gave the claim back")
	}
	coder.want(204, "POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", first.ClaimID)
	second := coder.next()
	if second.ID != task.ID || second.Attempt != 2 || second.Failures != 0 {
		t.Errorf("then came task %s, attempt %d, %d failures", second.ID, second.Attempt, second.Failures)
	}
	refused(t, coder.do("POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", first.ClaimID), 409, "conflict", "")
	if got := boss.want(200, "GET", "/v1/agents/coder/tasks/"+task.ID, ""); decode[wire.Task](t, got).DispatchState != "leased" {
		t.Error("an old claim gave the new one back")
	}
}

// What never was a claim of the task is called that, on every route that takes one, so
// that nobody looks for a lease that was lost.
func TestWhatIsNoClaimOfTheTaskIsCalledThat(t *testing.T) {
	h, _ := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	claimed := coder.next()
	const result = `{"state":"completed"}`
	own := "/v1/agents/me/tasks/" + task.ID
	for _, claim := range []string{"garbage", task.ID, task.ID + ".0", task.ID + ".x", task.ID + ".99", "another.1"} {
		for _, r := range []reply{
			coder.do("POST", own+"/result", result, "X-Claim", claim),
			coder.do("POST", own+"/events", `{"events":[{"status":{"state":"working"}}]}`, "X-Claim", claim),
			coder.do("POST", own+"/heartbeat", "", "X-Claim", claim),
			coder.do("POST", own+"/release", "", "X-Claim", claim),
			coder.do("GET", own, "", "X-Claim", claim),
		} {
			refused(t, r, 409, "conflict", "X-Claim")
		}
	}
	coder.want(200, "POST", own+"/result", result, "X-Claim", claimed.ClaimID)
	refused(t, coder.do("POST", own+"/result", `{"state":"failed"}`, "X-Claim", task.ID+".99"), 409, "conflict", "X-Claim")
	refused(t, coder.do("POST", own+"/result", `{"state":"failed"}`, "X-Claim", claimed.ClaimID), 409, "conflict", "")
}

// Where a claim has lapsed, a report has to name its claim, and is told so.
func TestAReportWithoutItsClaimIsToldToNameIt(t *testing.T) {
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	task := boss.send("coder", "hi")
	own := "/v1/agents/me/tasks/" + task.ID
	refused(t, coder.do("POST", own+"/result", `{"state":"completed"}`), 409, "conflict", "") // not claimed yet
	coder.next()
	admin.want(200, "POST", "/v1/tasks/"+task.ID+"/requeue", "")
	second := coder.next()
	refused(t, coder.do("POST", own+"/result", `{"state":"completed"}`), 409, "conflict", "X-Claim")
	refused(t, coder.do("POST", own+"/heartbeat", ""), 409, "conflict", "X-Claim")
	coder.want(200, "POST", own+"/result", `{"state":"completed"}`, "X-Claim", second.ClaimID)
}
