package v1_test

import (
	"strings"
	"testing"
)

func TestAdministrationReadsFieldsByTheirExactNames(t *testing.T) {
	_, admin := start(t)
	admin.want(201, "POST", "/v1/agents", `{"handle":"d3","Handle":"d4","ACCESS":"no such"}`)
	admin.want(200, "GET", "/v1/agents/d3", "")
	admin.want(404, "GET", "/v1/agents/d4", "")
	refused(t, admin.do("POST", "/v1/agents", `{"HANDLE":"d5"}`), 400, "invalid", "handle")
	if a := admin.do("POST", "/v1/agents/d3/tokens", `{"expires_in":1e99}`); a.status != 400 || !strings.Contains(a.body, "expires_in") || strings.Contains(a.body, "Go ") {
		t.Errorf("%d %s", a.status, a.body)
	}
}
