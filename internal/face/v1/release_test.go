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
	refused(t, coder.do("POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", "another.1"), 409, "conflict", "")
	boss.want(204, "POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", first.ClaimID)
	if got := boss.want(200, "GET", "/v1/agents/coder/tasks/"+task.ID, ""); decode[wire.Task](t, got).DispatchState != "leased" {
		t.Error("somebody else gave the claim back")
	}
	coder.want(204, "POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", first.ClaimID)
	second := coder.next()
	if second.ID != task.ID || second.Attempt != 2 || second.Failures != 0 {
		t.Errorf("then came task %s, attempt %d, %d failures", second.ID, second.Attempt, second.Failures)
	}
	coder.want(204, "POST", "/v1/agents/me/tasks/"+task.ID+"/release", "", "X-Claim", first.ClaimID)
	if got := boss.want(200, "GET", "/v1/agents/coder/tasks/"+task.ID, ""); decode[wire.Task](t, got).DispatchState != "leased" {
		t.Error("an old claim gave the new one back")
	}
}
