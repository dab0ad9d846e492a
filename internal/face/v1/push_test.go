package v1_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/wire"
)

// localHooks lets the hub send to receivers of tests, and repeat soon.
func localHooks(c *config.Config) {
	c.EgressAllowLocal, c.PushBackoffMin, c.PushBackoffMax = "1024-65535", 10*time.Millisecond, 50*time.Millisecond
}

// hook is a receiver of notifications that answers with the status that is in it.
func hook(t *testing.T) (url string, status *atomic.Int64, got <-chan string) {
	t.Helper()
	status, bodies := new(atomic.Int64), make(chan string, 100)
	status.Store(http.StatusOK)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(int(status.Load()))
		bodies <- r.Header.Get("Authorization")
	}))
	t.Cleanup(srv.Close)
	return srv.URL + "/hook", status, bodies
}

func arrives(t *testing.T, got <-chan string) string {
	t.Helper()
	select {
	case s := <-got:
		return s
	case <-time.After(time.Minute):
		t.Fatal("no notification came")
		panic("unreachable")
	}
}

func TestPushConfigurationsAreKeptAndNeverShowTheirSecrets(t *testing.T) {
	t.Parallel()
	h, _ := start(t, localHooks)
	boss, coder := agent(t, h, "boss"), agent(t, h, "coder")
	task := boss.send("coder", "hi")
	url, _, got := hook(t)
	path := "/v1/agents/coder/tasks/" + task.ID + "/push"
	body := fmt.Sprintf(`{"id":"mine","url":%q,"token":"hidden-token","authentication":{"scheme":"Bearer","credentials":"hidden-credentials"}}`, url)
	added := boss.want(201, "POST", path, body)
	mine := decode[wire.Push](t, added)
	if mine.ID != "mine" || mine.TaskID != task.ID || mine.URL != url || mine.Version != "1.0" || mine.CreatedAt.IsZero() || mine.Authentication.Scheme != "Bearer" {
		t.Errorf("added %s", added.body)
	}
	made := decode[wire.Push](t, boss.want(201, "POST", path, fmt.Sprintf(`{"url":%q}`, url)))
	if made.ID == "" || made.ID == mine.ID || made.Authentication != nil {
		t.Errorf("without an id %+v", made)
	}
	boss.want(204, "DELETE", path+"/"+made.ID, "")
	boss.want(204, "DELETE", path+"/"+made.ID, "")
	coder.next()
	if auth := arrives(t, got); auth != "Bearer hidden-credentials" {
		t.Errorf("Authorization %q", auth)
	}
	coder.result(task.ID, done)
	untilTrue(t, func() bool { // submitted, working, the artifact, completed
		listed := boss.want(200, "GET", path, "")
		list := decode[wire.List[wire.Push]](t, listed).Data
		if len(list) != 1 || list[0].ID != "mine" || strings.Contains(listed.body+added.body, "hidden") {
			t.Fatalf("listed %s", listed.body)
		}
		return list[0].DoneSeq == 4
	})
}

// untilTrue asks until it is so.
func untilTrue(t *testing.T, so func() bool) {
	t.Helper()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	end := time.After(time.Minute)
	for !so() {
		select {
		case <-ticks.C:
		case <-end:
			t.Fatal("it never came to that")
		}
	}
}

func TestPushIsForWhoSentTheTask(t *testing.T) {
	t.Parallel()
	h, admin := start(t, localHooks)
	boss, coder, other := agent(t, h, "boss"), agent(t, h, "coder"), agent(t, h, "other")
	task := boss.send("coder", "hi")
	path := "/v1/agents/coder/tasks/" + task.ID + "/push"
	const body = `{"id":"c","url":"http://127.0.0.1:1024/"}`
	boss.want(201, "POST", path, body)
	admin.want(200, "GET", path, "")
	for name, who := range map[string]who{"another caller": other, "the callee": coder} {
		for method, at := range map[string]string{"GET": path, "POST": path, "DELETE": path + "/c"} {
			send := ""
			if method == "POST" {
				send = body
			}
			mine := who.do(method, at, send)
			missing := who.do(method, strings.Replace(at, task.ID, "00000000-0000-7000-8000-000000000000", 1), send)
			if mine.status != 404 || mine.body != missing.body {
				t.Errorf("%s by %s: %d %s, of what is missing %s", method, name, mine.status, mine.body, missing.body)
			}
		}
	}
	refused(t, boss.do("GET", "/v1/agents/other/tasks/"+task.ID+"/push", ""), 404, "not_found", "")
}

func TestPushRefusesWhatCanNeverWork(t *testing.T) {
	t.Parallel()
	h, _ := start(t)
	boss := agent(t, h, "boss")
	agent(t, h, "coder")
	path := "/v1/agents/coder/tasks/" + boss.send("coder", "hi").ID + "/push"
	for body, field := range map[string]string{
		`{}`:                     "url",
		`{"url":7}`:              "url",
		`{"url":"hook"}`:         "url",
		`{"url":"http://[::]/"}`: "url",
		`{"url":"https://hook.invalid/","token":"a\nb"}`:                                              "token",
		`{"url":"https://hook.invalid/","authentication":{"scheme":"Bearer","credentials":"a\r\nb"}}`: "authentication.credentials",
		`{"url":"https://hook.invalid/","authentication":{"scheme":"","credentials":"c"}}`:            "authentication.scheme",
		`{"url":"https://hook.invalid/","id":"` + strings.Repeat("i", 300) + `"}`:                     "id",
	} {
		refused(t, boss.do("POST", path, body), 400, "invalid", field)
	}
	if list := decode[wire.List[wire.Push]](t, boss.want(200, "GET", path, "")); list.Data == nil || len(list.Data) != 0 {
		t.Errorf("kept %+v", list)
	}
}

func TestGivenUpNotificationsAreListedAndSentAgain(t *testing.T) {
	t.Parallel()
	h, admin := start(t, localHooks)
	boss, coder, other := agent(t, h, "boss"), agent(t, h, "coder"), agent(t, h, "other")
	url, status, got := hook(t)
	status.Store(http.StatusGone) // given up at once
	task := boss.send("coder", "hi")
	path := "/v1/agents/coder/tasks/" + task.ID + "/push"
	boss.want(201, "POST", path, fmt.Sprintf(`{"id":"c","url":%q}`, url))
	coder.next()
	arrives(t, got)
	failure := firstFailure(t, boss, task.ID)
	if failure.TaskID != task.ID || failure.ConfigID != "c" || failure.URL != url || failure.Seq < 1 || failure.Tries < 1 || failure.Reason == "" || failure.At.IsZero() {
		t.Errorf("failure %+v", failure)
	}
	if list := decode[wire.List[wire.PushFailure]](t, admin.want(200, "GET", "/v1/push/failures?limit=1", "")).Data; len(list) != 1 || list[0].ID != failure.ID {
		t.Errorf("the administrator sees %+v", list)
	}
	for _, who := range []who{other, coder} {
		if list := decode[wire.List[wire.PushFailure]](t, who.want(200, "GET", "/v1/push/failures", "")).Data; list == nil || len(list) != 0 {
			t.Errorf("others see %+v", list)
		}
		refused(t, who.do("POST", "/v1/push/failures/"+failure.ID+"/redeliver", ""), 404, "not_found", "")
	}
	refused(t, boss.do("GET", "/v1/push/failures?limit=101", ""), 400, "invalid", "limit")
	refused(t, boss.do("POST", "/v1/push/failures/none/redeliver", ""), 404, "not_found", "")

	status.Store(http.StatusOK)
	if again := decode[wire.Push](t, boss.want(200, "POST", "/v1/push/failures/"+failure.ID+"/redeliver", "")); again.ID != "c" || again.Failed != 0 {
		t.Errorf("redelivered %+v", again)
	}
	arrives(t, got)
	if list := decode[wire.List[wire.PushFailure]](t, boss.want(200, "GET", "/v1/push/failures?task="+task.ID, "")).Data; len(list) != 0 {
		t.Errorf("still listed: %+v", list)
	}
}

// firstFailure waits until a notification of a task has been given up.
func firstFailure(t *testing.T, w who, task string) (first wire.PushFailure) {
	t.Helper()
	untilTrue(t, func() bool {
		list := decode[wire.List[wire.PushFailure]](t, w.want(200, "GET", "/v1/push/failures?task="+task, "")).Data
		if len(list) > 0 {
			first = list[0]
		}
		return len(list) > 0
	})
	return first
}

func TestAHubThatSendsNoPushNotificationsSaysSo(t *testing.T) {
	t.Parallel()
	h, _ := start(t, func(c *config.Config) { c.NoPush = true })
	boss := agent(t, h, "boss")
	agent(t, h, "coder")
	path := "/v1/agents/coder/tasks/" + boss.send("coder", "hi").ID + "/push"
	refused(t, boss.do("POST", path, `{"url":"https://hook.invalid/"}`), 400, "push_not_supported", "")
	refused(t, boss.do("GET", path, ""), 400, "push_not_supported", "")
	refused(t, boss.do("GET", "/v1/push/failures", ""), 400, "push_not_supported", "")
}
