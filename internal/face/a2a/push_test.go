package a2a_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// localHooks lets the hub send to receivers of tests, and repeat soon.
func localHooks(c *config.Config) {
	c.EgressAllowLocal, c.PushBackoffMin, c.PushBackoffMax = "1024-65535", 10*time.Millisecond, 50*time.Millisecond
}

// notification is what a receiver got.
type notification struct {
	header http.Header
	body   string
}

// receiver takes notifications on a socket of its own, in order of arrival.
type receiver struct {
	t   testing.TB
	url string
	got chan notification
}

// receive starts a receiver. It answers each notification with what answer says, 200
// if that is nil.
func receive(t testing.TB, answer func() int) *receiver {
	t.Helper()
	r := &receiver{t: t, got: make(chan notification, 100)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		status := http.StatusOK
		if answer != nil {
			status = answer()
		}
		w.WriteHeader(status)
		r.got <- notification{req.Header, string(body)}
	}))
	t.Cleanup(srv.Close)
	r.url = srv.URL + "/hook"
	return r
}

// next waits for a notification.
func (r *receiver) next() notification {
	r.t.Helper()
	select {
	case n := <-r.got:
		return n
	case <-time.After(time.Minute):
		r.t.Fatal("no notification came")
		panic("unreachable")
	}
}

// notified is the body of a notification in the terms of 1.0: in 0.3 it is the bare task.
func notified(body string) string {
	if o := object(body); o["kind"] != nil {
		v := upNamed(o)
		upAll(v)
		return text(v)
	}
	return body
}

// states reads notifications up to the end of the task, and gives the states.
func (r *receiver) states() []string {
	r.t.Helper()
	var all []string
	for {
		var e event
		if err := json.Unmarshal([]byte(notified(r.next().body)), &e); err != nil {
			r.t.Fatal(err)
		}
		all = append(all, strings.TrimPrefix(e.state(), "TASK_STATE_"))
		if slices.Contains([]string{"COMPLETED", "FAILED", "CANCELED"}, all[len(all)-1]) {
			return all
		}
	}
}

// pushConfig is a TaskPushNotificationConfig as a client reads it.
type pushConfig struct {
	ID, TaskID, URL, Token string
	Authentication         *struct{ Scheme, Credentials string }
}

const (
	pushToken       = "token-that-nobody-may-read"
	pushCredentials = "credentials-that-nobody-may-read"
)

// setPush creates a configuration with secrets.
func (b *bed) setPush(task, id, url string) pushConfig {
	b.t.Helper()
	a := b.call(b.caller, "CreateTaskPushNotificationConfig", fmt.Sprintf(
		`{"taskId":%q,"id":%q,"url":%q,"token":%q,"authentication":{"scheme":"Bearer","credentials":%q}}`, task, id, url, pushToken, pushCredentials))
	withoutSecrets(b.t, a)
	return decode[pushConfig](b.t, a)
}

// withoutSecrets checks that an answer has none.
func withoutSecrets(t testing.TB, a answer) {
	t.Helper()
	if strings.Contains(a.Body+string(a.Result), pushToken) || strings.Contains(a.Body+string(a.Result), pushCredentials) {
		t.Errorf("secrets in %s", a.Body)
	}
}

func (b *bed) listPushes(params string) (configs []pushConfig, next string) {
	b.t.Helper()
	a := b.call(b.caller, "ListTaskPushNotificationConfigs", params)
	withoutSecrets(b.t, a)
	page := decode[struct {
		Configs       []pushConfig
		NextPageToken string
	}](b.t, a)
	return page.Configs, page.NextPageToken
}

// on puts a task's id into parameters.
func on(task, params string) string { return strings.ReplaceAll(params, "TASK", task) }

// wantField checks that a request was refused for a parameter.
func wantField(t testing.TB, a answer, field string) {
	t.Helper()
	wantReason(t, a, "INVALID_PARAMS")
	if a.Error != nil && !a.Unsaid && a.Error.field() != field {
		t.Errorf("field %q, want %q: %s", a.Error.field(), field, a.Body)
	}
}

// testPushCreate is sections 3.1.7 and 4.3.1: a configuration is kept under the
// client's id or one of the hub's, whatever state the task is in; one with the same id
// replaces it.
func testPushCreate(t *testing.T, b *bed) {
	open, ended := b.send(b.caller, "open").ID, b.send(b.caller, "ended").ID
	decode[task](t, b.call(b.caller, "CancelTask", fmt.Sprintf(`{"id":%q}`, ended)))
	for _, id := range []string{open, ended} {
		got := b.setPush(id, "mine/1 ü", "http://127.0.0.1:1031/hook?x=1")
		if got.ID != "mine/1 ü" || got.TaskID != id || got.URL != "http://127.0.0.1:1031/hook?x=1" || got.Token != "" {
			t.Errorf("created %+v", got)
		}
		if got.Authentication == nil || got.Authentication.Scheme != "Bearer" || got.Authentication.Credentials != "" {
			t.Errorf("authentication %+v", got.Authentication)
		}
	}
	made := decode[pushConfig](t, b.call(b.caller, "CreateTaskPushNotificationConfig", on(open, `{"taskId":"TASK","url":"http://127.0.0.1:1032/"}`)))
	if made.ID == "" || made.ID == "mine/1 ü" || made.Authentication != nil {
		t.Errorf("without an id: %+v", made)
	}
	b.setPush(open, "mine/1 ü", "http://127.0.0.1:1033/")
	configs, next := b.listPushes(on(open, `{"taskId":"TASK"}`))
	if len(configs) != 2 || configs[0].URL != "http://127.0.0.1:1033/" || configs[1] != made || next != "" {
		t.Errorf("after a replacement: %+v", configs)
	}
}

// testPushRefused: what is no configuration is refused with the field at fault, and
// nothing is kept.
func testPushRefused(t *testing.T, b *bed) {
	id := b.send(b.caller, "x").ID
	for params, field := range map[string]string{

		`{"taskId":"TASK"}`:                                       "url",
		`{"taskId":"TASK","url":""}`:                              "url",
		`{"taskId":"TASK","url":"hook"}`:                          "url",
		`{"taskId":"TASK","url":"http://127.0.0.1:80/"}`:          "url",
		`{"taskId":"TASK","url":"http://169.254.169.254/latest"}`: "url",
		`{"taskId":"TASK","url":"http://127.0.0.1:1031/","id":"` + strings.Repeat("i", 257) + `"}`:                              "id",
		`{"taskId":"TASK","url":"http://127.0.0.1:1031/","token":"a\nb"}`:                                                       "token",
		`{"taskId":"TASK","url":"http://127.0.0.1:1031/","token":"` + strings.Repeat("t", 4097) + `"}`:                          "token",
		`{"taskId":"TASK","url":"http://127.0.0.1:1031/","authentication":{}}`:                                                  "authentication.scheme",
		`{"taskId":"TASK","url":"http://127.0.0.1:1031/","authentication":{"credentials":"c"}}`:                                 "authentication.scheme",
		`{"taskId":"TASK","url":"http://127.0.0.1:1031/","authentication":{"scheme":"Bea rer","credentials":"c"}}`:              "authentication.scheme",
		`{"taskId":"TASK","url":"http://127.0.0.1:1031/","authentication":{"scheme":"Bearer","credentials":"a\u0000b\r\nX:y"}}`: "authentication.credentials",
	} {
		wantField(t, b.call(b.caller, "CreateTaskPushNotificationConfig", on(id, params)), field)
	}
	if configs, _ := b.listPushes(on(id, `{"taskId":"TASK"}`)); len(configs) != 0 {
		t.Errorf("kept %+v", configs)
	}
	for i := range 16 {
		b.setPush(id, fmt.Sprint(i), "http://127.0.0.1:1031/")
	}
	wantReason(t, b.call(b.caller, "CreateTaskPushNotificationConfig", on(id, `{"taskId":"TASK","url":"http://127.0.0.1:1031/"}`)), "TOO_LARGE")
	b.setPush(id, "7", "http://127.0.0.1:1032/") // takes no more room
}

// testPushGet is section 3.1.8: what the task has not got is TaskNotFound.
func testPushGet(t *testing.T, b *bed) {
	id, other := b.send(b.caller, "x").ID, b.send(b.caller, "y").ID
	created := b.setPush(id, "c", "http://127.0.0.1:1031/")
	a := b.call(b.caller, "GetTaskPushNotificationConfig", on(id, `{"taskId":"TASK","id":"c"}`))
	withoutSecrets(t, a)
	if got := decode[pushConfig](t, a); cmp.Diff(created, got) != "" {
		t.Errorf("got %+v, want %+v", got, created)
	}
	for _, params := range []string{on(id, `{"taskId":"TASK","id":"d"}`), on(other, `{"taskId":"TASK","id":"c"}`), `{"taskId":"none","id":"c"}`} {
		wantReason(t, b.call(b.caller, "GetTaskPushNotificationConfig", params), "TASK_NOT_FOUND")
	}
	// The task's callee is none of those who have to do with it, either.
	wantReason(t, b.call(b.coder, "GetTaskPushNotificationConfig", on(id, `{"taskId":"TASK","id":"c"}`)), "TASK_NOT_FOUND")
}

// testPushList is section 3.1.9: all configurations of the task, or as many as the
// client wants at once.
func testPushList(t *testing.T, b *bed) {
	id := b.send(b.caller, "x").ID
	if configs, next := b.listPushes(on(id, `{"taskId":"TASK"}`)); len(configs) != 0 || next != "" {
		t.Errorf("none: %+v, %q", configs, next)
	}
	for _, name := range []string{"a", "b", "c"} {
		b.setPush(id, name, "http://127.0.0.1:1031/"+name)
	}
	var names []string
	for token := ""; ; {
		page := `,"pageSize":2,"pageToken":"` + token + `"`
		if b.former() { // which has no pages
			page = ""
		}
		configs, next := b.listPushes(on(id, `{"taskId":"TASK"`+page+`}`))
		for _, c := range configs {
			names = append(names, c.ID)
		}
		if token = next; token == "" {
			break
		}
	}
	if d := cmp.Diff([]string{"a", "b", "c"}, names); d != "" {
		t.Error(d)
	}
	wantField(t, b.call(b.caller, "ListTaskPushNotificationConfigs", on(id, `{"taskId":"TASK","pageSize":-1}`)), "pageSize")
	wantField(t, b.call(b.caller, "ListTaskPushNotificationConfigs", on(id, `{"taskId":"TASK","pageToken":"none"}`)), "pageToken")
	wantReason(t, b.call(b.caller, "ListTaskPushNotificationConfigs", `{"taskId":"none"}`), "TASK_NOT_FOUND")
}

// testPushDelete is section 3.1.10: deleting is idempotent, and nothing is sent
// afterwards, not even what was being tried.
func testPushDelete(t *testing.T, b *bed) {
	id := b.send(b.caller, "x").ID
	dead := receive(t, func() int { return http.StatusServiceUnavailable })
	live := receive(t, nil)
	b.setPush(id, "dead", dead.url)
	b.setPush(id, "live", live.url)
	b.next()
	dead.next()
	for range 2 {
		if got := decode[map[string]any](t, b.call(b.caller, "DeleteTaskPushNotificationConfig", on(id, `{"taskId":"TASK","id":"dead"}`))); len(got) != 0 {
			t.Errorf("deleted: %v", got)
		}
	}
	wantReason(t, b.call(b.caller, "GetTaskPushNotificationConfig", on(id, `{"taskId":"TASK","id":"dead"}`)), "TASK_NOT_FOUND")
	wantReason(t, b.call(b.caller, "DeleteTaskPushNotificationConfig", `{"taskId":"none","id":"dead"}`), "TASK_NOT_FOUND")
	before := len(dead.got)
	b.finish(id, "completed", "")
	if d := cmp.Diff([]string{"WORKING", "COMPLETED"}, live.states()); d != "" {
		t.Error(d)
	}
	if len(dead.got) != before {
		t.Error("something was sent after the deletion")
	}
}

// inline is parameters of a send with a configuration for url.
func inline(text, more, url string) string {
	return message(text, "", fmt.Sprintf(
		`"configuration":{%s"taskPushNotificationConfig":{"id":"in","url":%q,"token":%q,"authentication":{"scheme":"Bearer","credentials":%q}}},`,
		more, url, pushToken, pushCredentials))
}

// testPushInline is sections 3.2.2 and 4.3.3: a configuration that comes with a message
// gets every event of the new task, in order, as a StreamResponse with the credentials
// and the token in both spellings of its header; it can be read and deleted like any
// other.
func testPushInline(t *testing.T, b *bed) {
	hook := receive(t, nil)
	sent := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", inline("x", `"returnImmediately":true,`, hook.url))).Task
	if configs, _ := b.listPushes(on(sent.ID, `{"taskId":"TASK"}`)); len(configs) != 1 || configs[0].ID != "in" || configs[0].URL != hook.url {
		t.Errorf("configurations %+v", configs)
	}
	first := hook.next()
	media := "application/a2a+json"
	if b.former() {
		media = "application/json"
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer " + pushCredentials, "X-A2A-Notification-Token": pushToken, "A2A-Notification-Token": pushToken,
		"Content-Type": media,
	} {
		if got := first.header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(notified(first.body)), &members); err != nil || len(members) != 1 {
		t.Errorf("a body of %v members, %v: %s", len(members), err, first.body)
	}
	b.finish(b.next().ID, "completed", "done")
	if got := hook.states(); got[0] != "WORKING" || got[len(got)-1] != "COMPLETED" {
		t.Errorf("states %q", got)
	}
}

// testPushInlineStream: a stream and notifications go side by side, also for an answer
// to a question.
func testPushInlineStream(t *testing.T, b *bed) {
	hook := receive(t, nil)
	s := b.stream(b.caller, "SendStreamingMessage", inline("x", "", hook.url))
	b.finish(b.next().ID, "completed", "")
	if got := s.states(); got[len(got)-1][2:] != "COMPLETED" {
		t.Errorf("streamed %q", got)
	}
	if got := hook.states(); got[len(got)-1] != "COMPLETED" {
		t.Errorf("notified %q", got)
	}

	asked := b.send(b.caller, "asked").ID
	b.next()
	b.finish(asked, "input_required", "")
	answer := receive(t, nil)
	params := strings.Replace(inline("this one", `"returnImmediately":true,`, answer.url), `"messageId"`, `"taskId":"`+asked+`","messageId"`, 1)
	decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", params))
	b.next()
	b.finish(asked, "completed", "")
	if got := answer.states(); got[len(got)-1] != "COMPLETED" {
		t.Errorf("notified %q", got)
	}
}

// testPushInlineRefused: a configuration that is none refuses the message, and no task
// is made.
func testPushInlineRefused(t *testing.T, b *bed) {
	const at = "configuration.taskPushNotificationConfig"
	for config, field := range map[string]string{
		`{"url":"http://127.0.0.1:1031/","taskId":"t"}`: at + ".taskId",
		`{}`:                          at + ".url",
		`{"url":"http://localhost/"}`: at + ".url",
		`{"url":"http://127.0.0.1:1031/","authentication":{"scheme":"Bearer","credentials":"a\nb"}}`: at + ".authentication.credentials",
		`{"url":"http://127.0.0.1:1031/","tenant":"other"}`:                                          "tenant",
	} {
		for _, op := range []string{"SendMessage", "SendStreamingMessage"} {
			wantField(t, b.call(b.caller, op, message("x", "", `"configuration":{"taskPushNotificationConfig":`+config+`},`)), field)
		}
	}
	if page := decode[struct{ TotalSize int }](t, b.call(b.caller, "ListTasks", `{}`)); page.TotalSize != 0 {
		t.Error("a refused send left a task")
	}
}

// testPushCard: the card says that there are notifications.
func testPushCard(t *testing.T, b *bed) {
	for _, name := range []string{"agent-card.json", "agent.json"} {
		_, body := b.exchange("GET", "/a/coder/.well-known/"+name, "")
		if !strings.Contains(body, `"pushNotifications":true`) {
			t.Errorf("%s: %s", name, body)
		}
	}
}

// pushByClient has an official client work with configurations of a task.
func pushByClient(t *testing.T, client *a2aclient.Client, task sdk.TaskID) {
	t.Helper()
	ctx := t.Context()
	want := &sdk.PushConfig{
		TaskID: task, ID: "c", URL: "http://127.0.0.1:1024/", Token: pushToken,
		Auth: &sdk.PushAuthInfo{Scheme: "Bearer", Credentials: pushCredentials},
	}
	created, err := client.CreateTaskPushConfig(ctx, want)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	want.Token, want.Auth.Credentials, want.Tenant = "", "", "" // sealed, and added by the client
	if d := cmp.Diff(want, created); d != "" {
		t.Error(d)
	}
	if got, err := client.GetTaskPushConfig(ctx, &sdk.GetTaskPushConfigRequest{TaskID: task, ID: "c"}); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("get: %+v, %v", got, err)
	}
	if list, err := client.ListTaskPushConfigs(ctx, &sdk.ListTaskPushConfigRequest{TaskID: task}); err != nil || len(list) != 1 || cmp.Diff(want, list[0]) != "" {
		t.Errorf("list: %+v, %v", list, err)
	}
	for range 2 {
		if err := client.DeleteTaskPushConfig(ctx, &sdk.DeleteTaskPushConfigRequest{TaskID: task, ID: "c"}); err != nil {
			t.Errorf("delete: %v", err)
		}
	}
	if _, err := client.GetTaskPushConfig(ctx, &sdk.GetTaskPushConfigRequest{TaskID: task, ID: "c"}); !errors.Is(err, sdk.ErrTaskNotFound) {
		t.Errorf("get what was deleted: %v", err)
	}
}

// TestPushOwnerOnly: only who sent a task, and the administrator, has to do with its
// notifications.
func TestPushOwnerOnly(t *testing.T) {
	b := newBed(t, localHooks)
	id := b.send(b.caller, "x").ID
	b.setPush(id, "c", "http://127.0.0.1:1031/")
	if got := decode[pushConfig](t, b.call(b.AdminToken, "GetTaskPushNotificationConfig", on(id, `{"taskId":"TASK","id":"c"}`))); got.ID != "c" {
		t.Errorf("the administrator got %+v", got)
	}
	for op, params := range map[string]string{
		"CreateTaskPushNotificationConfig": `{"taskId":"TASK","id":"c","url":"http://127.0.0.1:1039/"}`,
		"GetTaskPushNotificationConfig":    `{"taskId":"TASK","id":"c"}`,
		"ListTaskPushNotificationConfigs":  `{"taskId":"TASK"}`,
		"DeleteTaskPushNotificationConfig": `{"taskId":"TASK","id":"c"}`,
	} {
		for who, token := range map[string]string{"another caller": b.other, "the callee": b.coder} {
			if a := b.call(token, op, on(id, params)); a.Error == nil || a.Error.reason() != "TASK_NOT_FOUND" {
				t.Errorf("%s by %s: %s", op, who, a.Body)
			}
		}
	}
	if configs, _ := b.listPushes(on(id, `{"taskId":"TASK"}`)); len(configs) != 1 || configs[0].URL != "http://127.0.0.1:1031/" {
		t.Errorf("somebody else changed them: %+v", configs)
	}
}

// TestPushIdempotentSend: a repeated send with an idempotency key gives the same
// task, and its configuration is there once.
func TestPushIdempotentSend(t *testing.T) {
	b := newBed(t, localHooks)
	hook := receive(t, nil)
	var ids []string
	for range 2 {
		sent := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", inline("x", `"returnImmediately":true,`, hook.url), "Idempotency-Key", "k")).Task
		ids = append(ids, sent.ID)
	}
	if configs, _ := b.listPushes(on(ids[0], `{"taskId":"TASK"}`)); ids[0] != ids[1] || len(configs) != 1 {
		t.Errorf("tasks %q, configurations %+v", ids, configs)
	}
}

// TestPushAnonymous: where callers need no token, they have notifications as well.
func TestPushAnonymous(t *testing.T) {
	b := newBed(t, localHooks, testhub.Anonymous)
	b.caller = ""
	hook := receive(t, nil)
	id := decode[struct{ Task task }](t, b.call("", "SendMessage", inline("x", `"returnImmediately":true,`, hook.url))).Task.ID
	b.setPush(id, "more", hook.url)
	if configs, _ := b.listPushes(on(id, `{"taskId":"TASK"}`)); len(configs) != 2 {
		t.Errorf("configurations %+v", configs)
	}
	b.finish(b.next().ID, "completed", "")
	hook.states()
}

// receiveAll starts a receiver that takes whatever comes, and gives its URL.
func receiveAll(t testing.TB) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(srv.Close)
	return srv.URL + "/hook"
}
