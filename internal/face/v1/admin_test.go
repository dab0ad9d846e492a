package v1_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

func TestAgentsAreAdministered(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	created := decode[wire.Agent](t, admin.want(201, "POST", "/v1/agents", `{"handle":"coder","description":"codes","access":"open","lease_s":90,
		"card":{"name":"Coder","version":"2","skills":[{"id":"go","name":"Go","description":"Go code","tags":["go"]}],"default_input_modes":["text/plain"]},"unknown":{"x":1},"kind":null}`))
	if created.ID == "" || created.Handle != "coder" || created.Name != "coder" || created.Kind != "agent" || created.Access != "open" || created.LeaseS != 90 ||
		created.MaxRedeliveries != -1 || created.OnUnknown != "resend" || created.Delivery != "pull" || created.URL != h.URL+"/a/coder" ||
		created.Card == nil || created.Card.Name != "Coder" || !strings.Contains(string(created.Card.Skills), `"go"`) || created.LastSeenAt != nil {
		t.Errorf("%+v", created)
	}
	for _, ref := range []string{"coder", created.ID} {
		if got := decode[wire.Agent](t, admin.want(200, "GET", "/v1/agents/"+ref, "")); got.ID != created.ID {
			t.Errorf("%s is %+v", ref, got)
		}
	}
	changed := decode[wire.Agent](t, admin.want(200, "PATCH", "/v1/agents/coder", `{"description":"codes well","max_redeliveries":0,"dedupe_message_id":true,"on_unknown":"fail","card":null}`))
	if changed.Description != "codes well" || changed.MaxRedeliveries != 0 || !changed.DedupeMessageID || changed.OnUnknown != "fail" || changed.LeaseS != 90 || changed.Card == nil {
		t.Errorf("%+v", changed)
	}
	person := decode[wire.Agent](t, admin.want(201, "POST", "/v1/agents", `{"handle":"ann","kind":"person"}`))
	if person.Kind != "person" || person.Access != "approved" || person.Delivery != "inbox" || created.Delivery != "pull" {
		t.Errorf("%+v", person)
	}
	if task := admin.send("ann", "have a look"); task.Delivery != "inbox" {
		t.Errorf("a person's task is delivered by %q", task.Delivery)
	}
	if task := admin.send("coder", "have a look"); task.Delivery != "pull" {
		t.Errorf("an agent's task is delivered by %q", task.Delivery)
	}
	list := decode[wire.List[wire.Agent]](t, admin.want(200, "GET", "/v1/agents", ""))
	if len(list.Data) != 2 || list.Data[0].Handle != "ann" || list.NextCursor != nil {
		t.Errorf("%+v", list)
	}
	admin.want(204, "DELETE", "/v1/agents/coder", "")
	refused(t, admin.do("GET", "/v1/agents/coder", ""), 404, "not_found", "")
	refused(t, admin.do("DELETE", "/v1/agents/coder", ""), 404, "not_found", "")
}

func TestAdministrationRefusals(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	agent(t, h, "coder")
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		code, field        string
	}{
		{"POST", "/v1/agents", `{}`, nil, 400, "invalid", "handle"},
		{"POST", "/v1/agents", `{"handle":null}`, nil, 400, "invalid", "handle"},
		{"POST", "/v1/agents", `{"handle":"Not A Handle"}`, nil, 400, "invalid", "handle"},
		{"POST", "/v1/agents", `{"handle":"me"}`, nil, 400, "invalid", "handle"},
		{"POST", "/v1/agents", `{"handle":7}`, nil, 400, "invalid", "handle"},
		{"POST", "/v1/agents", `{"handle":"coder"}`, nil, 409, "exists", ""},
		{"POST", "/v1/agents", `{"handle":"x","kind":"robot"}`, nil, 400, "invalid", "kind"},
		{"POST", "/v1/agents", `{"handle":"x","access":"secret"}`, nil, 400, "invalid", "access"},
		{"POST", "/v1/agents", `{"handle":"x","lease_s":"90"}`, nil, 400, "invalid", "lease_s"},
		{"POST", "/v1/agents", `{"handle":"x","lease_s":-1}`, nil, 400, "invalid", "lease_s"},
		{"POST", "/v1/agents", `{"handle":"x","card":[]}`, nil, 400, "invalid", "card"},
		{"POST", "/v1/agents", `{"handle":"x","card":{"default_input_modes":"text"}}`, nil, 400, "invalid", "card.default_input_modes"},
		{"POST", "/v1/agents", `{"handle":"x","card":{"skills":{}}}`, nil, 400, "invalid", "card.skills"},
		{"POST", "/v1/agents", `{"handle":"x","card":{"provider":"me"}}`, nil, 400, "invalid", "card.provider"},
		{"POST", "/v1/agents", `{"handle":"x","handle":"y"}`, nil, 400, "invalid", ""},
		{"POST", "/v1/agents", `{"handle":`, nil, 400, "invalid", ""},
		{"POST", "/v1/agents", `[]`, nil, 400, "invalid", ""},
		{"POST", "/v1/agents", ``, nil, 400, "invalid", ""},
		{"POST", "/v1/agents", `handle=x`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "unsupported_media_type", "Content-Type"},
		{"PATCH", "/v1/agents/coder", `{"handle":"other"}`, nil, 400, "invalid", "handle"},
		{"PATCH", "/v1/agents/nobody", `{}`, nil, 404, "not_found", ""},
		{"POST", "/v1/agents/nobody/tokens", `{}`, nil, 404, "not_found", ""},
		{"POST", "/v1/agents/coder/tokens", `{"expires_in":0}`, nil, 400, "invalid", "expires_in"},
		{"POST", "/v1/agents/coder/tokens", `{"expires_in":"1h"}`, nil, 400, "invalid", "expires_in"},
		{"DELETE", "/v1/tokens/none", ``, nil, 404, "not_found", ""},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"https://x.example/hook","kind":"carrier"}`, nil, 400, "invalid", "kind"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://127.0.0.1:9/hook"}`, nil, 400, "invalid", "url"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"ftp://x.example/hook"}`, nil, 400, "invalid", "url"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://10.1.2.3/hook"}`, nil, 400, "invalid", "url"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://192.0.2.7/","auth":{"type":"digest","secret":"s"}}`, nil, 400, "invalid", "url"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://1.1.1.1/","auth":{"type":"digest","secret":"s"}}`, nil, 400, "invalid", "auth.type"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://1.1.1.1/","auth":{"type":"bearer","secret":""}}`, nil, 400, "invalid", "auth.secret"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://1.1.1.1/","auth":{"type":"bearer","secret":"a\nb"}}`, nil, 400, "invalid", "auth.secret"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://1.1.1.1/","auth":{"type":"basic","secret":"nocolon"}}`, nil, 400, "invalid", "auth.secret"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://1.1.1.1/","auth":{"type":"header","header":"Host","secret":"s"}}`, nil, 400, "invalid", "auth.header"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://1.1.1.1/","auth":{"type":"header","header":"webhook-id","secret":"s"}}`, nil, 400, "invalid", "auth.header"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":"http://1.1.1.1/","auth":{"type":"bearer","secret":"s"},"clear_auth":true}`, nil, 400, "invalid", "clear_auth"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":null,"allow_private_network":true}`, nil, 400, "invalid", "allow_private_network"},
		{"PUT", "/v1/agents/coder/endpoint", `{"url":null,"kind":"webhook"}`, nil, 400, "invalid", "kind"},
	} {
		a := admin.do(c.method, c.path, c.body, c.header...)
		refused(t, a, c.status, c.code, c.field)
		if t.Failed() {
			t.Fatalf("%s %s %s: %s", c.method, c.path, c.body, a.body)
		}
	}
}

func TestErrorsDoNotRepeatWhatWasSent(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	agent(t, h, "coder")
	for _, body := range []string{`{"url":5,"auth":{"type":"bearer","secret":"hunter2"}}`, `{"auth":{"secret":"hunter2"`, `{"url":"x","auth":{"type":"bearer","secret":"hunter2"}}`} {
		if a := admin.do("PUT", "/v1/agents/coder/endpoint", body); a.status != 400 || strings.Contains(a.body, "hunter2") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
}

func TestOnlyTheAdministratorAdministers(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	coder := agent(t, h, "coder")
	h.Create(identity.AgentSpec{Handle: "vault"})
	var bodies []string
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/agents", `{"handle":"x"}`}, {"POST", "/v1/agents", `not JSON`},
		{"PATCH", "/v1/agents/coder", `{}`}, {"PATCH", "/v1/agents/nobody", `{}`},
		{"DELETE", "/v1/agents/coder", ``}, {"DELETE", "/v1/agents/nobody", ``},
		{"POST", "/v1/agents/coder/tokens", `{}`}, {"GET", "/v1/agents/coder/tokens", ``}, {"GET", "/v1/agents/nobody/tokens", ``},
		{"DELETE", "/v1/tokens/none", ``}, {"GET", "/v1/admin/info", ``},
	} {
		a := coder.do(c.method, c.path, c.body)
		refused(t, a, 403, "not_permitted", "")
		bodies = append(bodies, a.body)
	}
	for _, b := range bodies {
		if b != bodies[0] {
			t.Errorf("%s and %s", b, bodies[0])
		}
	}
	one := coder.do("GET", "/v1/agents/nobody", "")
	other := coder.do("GET", "/v1/agents/vault", "")
	refused(t, one, 403, "not_permitted", "")
	if one.body != other.body {
		t.Errorf("%s and %s", one.body, other.body)
	}
	if list := decode[wire.List[wire.Agent]](t, coder.want(200, "GET", "/v1/agents", "")); len(list.Data) != 1 || list.Data[0].Handle != "coder" {
		t.Errorf("an agent sees %+v", list.Data)
	}
}

func TestWithoutAnEndpointTheAgentPulls(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder := agent(t, h, "coder")
	agent(t, h, "other")
	for _, c := range []struct {
		as   who
		path string
		body string
	}{{coder, "me", `{"url":null}`}, {coder, "coder", `{"url":null}`}, {admin, "coder", `{"url":null,"clear_auth":true}`}, {admin, "coder", `{}`}} {
		if a := decode[wire.Agent](t, c.as.want(200, "PUT", "/v1/agents/"+c.path+"/endpoint", c.body)); a.Handle != "coder" || a.Delivery != "pull" {
			t.Errorf("%+v", a)
		}
	}
	for _, ref := range []string{"me", "admin", "anonymous"} {
		if a := admin.do("PUT", "/v1/agents/"+ref+"/endpoint", `{"url":null}`); a.status != 400 && a.status != 404 {
			t.Errorf("the endpoint of the hub's own address %s: %d %s", ref, a.status, a.body)
		}
	}
	other, none := coder.do("PUT", "/v1/agents/other/endpoint", `{"url":null}`), coder.do("PUT", "/v1/agents/nobody/endpoint", `{"url":null}`)
	refused(t, other, 403, "not_permitted", "")
	if other.body != none.body {
		t.Errorf("%s and %s", other.body, none.body)
	}
}

func TestRelayPathsAreSetByTheAdministratorAndShownToTheOwner(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, other := agent(t, h, "coder"), agent(t, h, "other")
	shown := func(as who) []string {
		return decode[wire.Agent](t, as.want(200, "GET", "/v1/agents/coder", "")).RelayPaths
	}
	if got := shown(admin); len(got) != 0 {
		t.Errorf("at first %v is open", got)
	}
	admin.want(200, "PATCH", "/v1/agents/coder", `{"relay_paths":["/hooks/","/ci"]}`)
	admin.want(200, "PATCH", "/v1/agents/coder", `{"description":"codes","relay_paths":null}`)
	for _, as := range []who{admin, coder} {
		if got := shown(as); !slices.Equal(got, []string{"/hooks/", "/ci"}) {
			t.Errorf("open is %v", got)
		}
	}
	if got := shown(other); got != nil {
		t.Errorf("a caller sees %v", got)
	}
	refused(t, admin.do("PATCH", "/v1/agents/coder", `{"relay_paths":["/a/../b"]}`), 400, "invalid", "relay_paths")
	refused(t, coder.do("PATCH", "/v1/agents/coder", `{"relay_paths":["/"]}`), 403, "not_permitted", "")
	admin.want(200, "PATCH", "/v1/agents/coder", `{"relay_paths":[]}`)
	if got := shown(admin); len(got) != 0 {
		t.Errorf("at last %v is open", got)
	}
}

func TestAttemptsAndPresenceAreForTheOwner(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder := agent(t, h, "coder")
	other := agent(t, h, "other")
	for _, c := range []struct {
		as  who
		ref string
	}{{coder, "me"}, {coder, "coder"}, {admin, "coder"}} {
		list := decode[wire.List[wire.Attempt]](t, c.as.want(200, "GET", "/v1/agents/"+c.ref+"/attempts?limit=5&task=none", ""))
		if list.Data == nil || len(list.Data) != 0 || list.NextCursor != nil {
			t.Errorf("%s: %+v", c.ref, list)
		}
		a := decode[wire.Agent](t, c.as.want(200, "GET", "/v1/agents/"+c.ref, ""))
		if x := a.Presence; x == nil || x.Connected == nil || x.Waiting == nil || *x.Waiting != 0 || *x.Unfinished != 0 || x.Trouble != nil {
			t.Errorf("%s: %+v", c.ref, x)
		}
	}
	foreign, none := other.do("GET", "/v1/agents/coder/attempts", ""), other.do("GET", "/v1/agents/nobody/attempts", "")
	refused(t, foreign, 403, "not_permitted", "")
	if foreign.body != none.body {
		t.Errorf("%s and %s", foreign.body, none.body)
	}
	if a := decode[wire.Agent](t, other.want(200, "GET", "/v1/agents/coder", "")); a.Presence != nil {
		t.Errorf("a caller sees %+v", a.Presence)
	}
	refused(t, coder.do("GET", "/v1/agents/me/attempts?limit=0", ""), 400, "invalid", "limit")
}

func TestTokens(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	agent(t, h, "coder")
	made := decode[wire.Token](t, admin.want(201, "POST", "/v1/agents/coder/tokens", `{"name":"laptop","expires_in":3600}`))
	if made.Token == "" || made.Name != "laptop" || made.ExpiresAt == nil || made.ExpiresAt.Sub(made.CreatedAt.Time) != time.Hour {
		t.Errorf("%+v", made)
	}
	coder := who{t, h.URL, made.Token}
	me := decode[wire.Whoami](t, coder.want(200, "GET", "/v1/whoami", ""))
	if me.Handle != "coder" || me.IdentityID != made.AgentID || me.AuthMethod != "token" || me.TenantID == "" || len(me.Roles) != 1 || me.Roles[0] != "agent" || me.Scopes == nil {
		t.Errorf("%+v", me)
	}
	if own := decode[wire.Agent](t, coder.want(200, "GET", "/v1/agents/me", "")); own.Handle != "coder" {
		t.Errorf("%+v", own)
	}
	a := admin.want(200, "GET", "/v1/agents/coder/tokens", "")
	if list := decode[wire.List[wire.Token]](t, a); len(list.Data) != 2 || strings.Contains(a.body, made.Token) || strings.Contains(a.body, `"token"`) {
		t.Errorf("%s", a.body)
	}
	agent(t, h, "baker")
	refused(t, coder.do("GET", "/v1/tokens", ""), 403, "not_permitted", "")
	refused(t, (who{t: t, url: h.URL}).do("GET", "/v1/tokens", ""), 401, "unauthenticated", "")
	a = admin.want(200, "GET", "/v1/tokens", "")
	var whose []string
	for _, token := range decode[wire.List[wire.Token]](t, a).Data {
		whose = append(whose, token.Handle)
	}
	if !slices.Equal(whose, []string{"admin", "baker", "coder", "coder"}) || strings.Contains(a.body, made.Token) || strings.Contains(a.body, `"token"`) {
		t.Errorf("%v in %s", whose, a.body)
	}
	admin.want(204, "DELETE", "/v1/tokens/"+made.ID, "")
	refused(t, coder.do("GET", "/v1/whoami", ""), 401, "unauthenticated", "")
	refused(t, admin.do("DELETE", "/v1/tokens/"+made.ID, ""), 404, "not_found", "")
}

func TestAnonymousCallers(t *testing.T) {
	t.Parallel()
	h, _ := start(t, testhub.Anonymous)
	agent(t, h, "coder")
	anybody := who{t: t, url: h.URL}
	if me := decode[wire.Whoami](t, anybody.want(200, "GET", "/v1/whoami", "")); me.AuthMethod != "anonymous" || me.Roles[0] != "anonymous" {
		t.Errorf("%+v", me)
	}
	task := anybody.send("coder", "hi")
	if task.Caller != "anonymous" {
		t.Errorf("%+v", task)
	}
	refused(t, anybody.do("GET", "/v1/admin/info", ""), 403, "not_permitted", "")
	refused(t, anybody.do("POST", "/v1/tasks/"+task.ID+"/requeue", ""), 403, "not_permitted", "")
	for _, ref := range []string{"me", "anonymous", "coder", "nobody"} {
		refused(t, anybody.do("PUT", "/v1/agents/"+ref+"/endpoint", `{"url":null}`), 403, "not_permitted", "")
	}
}

func TestInfo(t *testing.T) {
	t.Parallel()
	h, admin := start(t)
	coder, boss := agent(t, h, "coder"), agent(t, h, "boss")
	for range 3 {
		boss.send("coder", "hi")
	}
	coder.next()
	info := decode[wire.Info](t, admin.want(200, "GET", "/v1/admin/info", ""))
	if info.Version != "test" || info.Store != "sqlite" || info.PublicURL != h.URL || info.StartedAt.IsZero() || info.Ready != 2 || info.Leased != 1 || info.Parked != 0 {
		t.Errorf("%+v", info)
	}
}

func TestTheDescriptionNeedsNoToken(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	anybody := who{t: t, url: h.URL}
	a := anybody.want(200, "GET", "/openapi.json", "")
	if !strings.Contains(a.body, h.URL) || strings.Contains(a.body, h.AdminToken) {
		t.Error("the document does not say where the hub is")
	}
	if page := anybody.want(200, "GET", "/docs", ""); !strings.Contains(page.header.Get("Content-Security-Policy"), "sha256-") {
		t.Errorf("%v", page.header)
	}
}
