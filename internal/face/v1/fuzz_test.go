package v1_test

import (
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/wire"
)

// FuzzRoutes posts arbitrary bodies to the routes that take tasks, at a real hub.
// Whatever comes is taken whole or refused whole, and never the hub's fault. Coverage
// of a whole hub is never the same twice, so fuzz it with -fuzzminimizetime 1x.
func FuzzRoutes(f *testing.F) {
	for _, body := range []string{
		message("hi"),
		`{"message":{"role":"user","parts":[{"data":{"x":[1,null,{"y":"\u0000"}]},"media_type":"application/json"}]},"tags":{"a":"b"},"metadata":{}}`,
		`{"message":{"role":"user","parts":[{"raw":"AA=="},{"url":"https://x.example"}]},"context_id":"c"}`,
		`{"message":{"role":"user","parts":[{"text":"\ud800"}]}}`, `{"message":null}`, `null`, `[]`, ``, "\xff", `{"a":1,"a":2}`,
		done, `{"state":"failed"}`, `{"state":"input_required","message":{"parts":[{"text":"?"}]}}`, `{"state":"working","artifacts":[{"name":"x","parts":[{"text":"x"}]}]}`,
		`{"events":[{"status":{}},{"artifact":{"name":"x","parts":[{"text":"x"}]},"append":true}]}`, `{"events":[{"artifact":{"name":"x","parts":[{"text":"x"}]}}]}`,
		`{"after":1}`, `{"url":null}`, `{"handle":"x","card":{"skills":[]}}`,
	} {
		f.Add(body)
	}
	h, admin := start(f)
	coder, boss := agent(f, h, "coder"), agent(f, h, "boss")
	f.Fuzz(func(t *testing.T, body string) {
		coder, boss, admin := who{t, coder.url, coder.token}, who{t, boss.url, boss.token}, who{t, admin.url, admin.token}
		all := func() int {
			info := decode[wire.Info](t, admin.want(200, "GET", "/v1/admin/info", ""))
			return info.Ready + info.Leased + info.Parked
		}
		before := all()
		sent := boss.do("POST", "/v1/agents/coder/tasks", body, "Content-Type", "application/json")
		if after := all(); sent.status != 200 && after != before {
			t.Fatalf("%d, but %d tasks became %d", sent.status, before, after)
		}
		task := boss.send("coder", "seed")
		claimed := coder.next()
		for claimed.ID != task.ID { // what the body made, or what is left of it
			coder.result(claimed.ID, `{"state":"rejected"}`)
			claimed = coder.next()
		}
		path := "/v1/agents/me/tasks/" + task.ID
		state := func() string {
			seen := boss.task("GET", "/v1/agents/coder/tasks/"+task.ID, "")
			return seen.State + strings.Repeat("+", len(seen.Artifacts)) + strings.Repeat("-", len(seen.History))
		}
		for _, route := range []string{"/heartbeat", "/events", "/result"} {
			was := state()
			a := coder.do("POST", path+route, body, "Content-Type", "application/json")
			if now := state(); a.status != 200 && now != was {
				t.Fatalf("%s: %d, but %s became %s", route, a.status, was, now)
			}
		}
		admin.do("PATCH", "/v1/agents/boss", body, "Content-Type", "application/json")
		boss.do("POST", "/v1/agents/coder/tasks/"+task.ID+"/cancel", body)
	})
}
