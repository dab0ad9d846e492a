package v1_test

import (
	"testing"

	"github.com/holdfast-hub/holdfast/wire"
)

func TestATaskIsFoundByItsIDAloneByThoseWhoMaySeeIt(t *testing.T) {
	h, admin := start(t)
	coder, boss, other := agent(t, h, "coder"), agent(t, h, "boss"), agent(t, h, "other")
	task := boss.send("coder", "hi")
	for name, w := range map[string]who{"its caller": boss, "its callee": coder, "the administrator": admin} {
		if got := decode[wire.Task](t, w.want(200, "GET", "/v1/tasks/"+task.ID, "")); got.ID != task.ID || got.Callee != "coder" {
			t.Errorf("%s got task %s at %s", name, got.ID, got.Callee)
		}
	}
	foreign := other.want(404, "GET", "/v1/tasks/"+task.ID, "")
	missing := other.want(404, "GET", "/v1/tasks/0000", "")
	if foreign.body != missing.body {
		t.Errorf("a foreign task answers %s, a missing one %s", foreign.body, missing.body)
	}
}
