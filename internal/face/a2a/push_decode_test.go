package a2a

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// wantPush compares what was decoded with a configuration.
func wantPush(t *testing.T, params string, got pushRequest, err error, want hub.PushConfig) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", params, err)
	}
	if d := cmp.Diff(want, got.config); d != "" {
		t.Errorf("%s:\n%s", params, d)
	}
}

// TestPushParameters: a configuration of 1.0, in both spellings of names.
func TestPushParameters(t *testing.T) {
	full := hub.PushConfig{Task: "t", ID: "c", URL: "u", Token: "k", Scheme: "Bearer", Credentials: "s", Version: "1.0"}
	for params, want := range map[string]hub.PushConfig{
		`{"taskId":"t","url":"u"}`: {Task: "t", URL: "u", Version: "1.0"},
		`{"task_id":"t","id":"c","url":"u","token":"k","authentication":{"scheme":"Bearer","credentials":"s"},"more":[1]}`: full,
		`{"taskId":"t","id":null,"url":"u","token":null,"authentication":null}`:                                            {Task: "t", URL: "u", Version: "1.0"},
		`{"taskId":"t","url":"u","authentication":{"scheme":"Basic"}}`:                                                     {Task: "t", URL: "u", Scheme: "Basic", Version: "1.0"},
	} {
		got, err := decodePush([]byte(params))
		wantPush(t, params, got, err, want)
	}
}

// TestPushParametersV03: what clients of 0.3 and 0.2 send for one configuration, by
// every binding.
func TestPushParametersV03(t *testing.T) {
	inner := `{"id":"c","url":"u","token":"k","authentication":{"schemes":["Bearer","Basic"],"credentials":"s"}}`
	full := hub.PushConfig{Task: "t", ID: "c", URL: "u", Token: "k", Scheme: "Bearer", Credentials: "s", Version: "0.3"}
	sole := hub.PushConfig{Task: "t", ID: soleConfig, URL: "u", Version: "0.3"}
	for params, want := range map[string]hub.PushConfig{
		`{"taskId":"t","pushNotificationConfig":` + inner + `}`:                                                        full,
		`{"id":"t","push_notification_config":` + inner + `}`:                                                          full,
		`{"parent":"tasks/t","configId":"c","config":{"name":"x","pushNotificationConfig":` + inner + `}}`:             full,
		`{"taskId":"t","parent":"tasks/x","config":{"pushNotificationConfig":` + inner + `}}`:                          full,
		`{"parent":"tasks/t/pushNotificationConfigs","config":{"pushNotificationConfig":{"url":"u"}}}`:                 sole,
		`{"taskId":"t","pushNotificationConfig":{"url":"u"}}`:                                                          sole,
		`{"taskId":"t","pushNotificationConfig":{"url":"u","authentication":{}}}`:                                      sole,
		`{"taskId":"t","pushNotificationConfig":{"url":"u","authentication":{"schemes":[]}}}`:                          sole,
		`{"taskId":"t","config_id":"d","config":{"push_notification_config":{"url":"u","id":"","authentication":{}}}}`: {Task: "t", ID: "d", URL: "u", Version: "0.3"},
	} {
		got, err := decodePushV03([]byte(params))
		wantPush(t, params, got, err, want)
	}
}

// TestPushRefsV03: how clients of 0.3 name a configuration, by every binding.
func TestPushRefsV03(t *testing.T) {
	for params, want := range map[string]pushRef{
		`{"id":"t","pushNotificationConfigId":"c"}`: {task: "t", id: "c"},
		`{"id":"t"}`:              {task: "t"},
		`{"taskId":"t","id":"c"}`: {task: "t", id: "c"},
		`{"name":"tasks/t/pushNotificationConfigs/c/d"}`: {task: "t", id: "c/d"},
		`{"name":"tasks/t"}`:                             {task: "t"},
	} {
		if got, err := decodePushRefV03([]byte(params)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", params, got, err)
		}
	}
	for _, params := range []string{`{"id":"t"}`, `{"taskId":"t"}`, `{"parent":"tasks/t","pageSize":1}`} {
		if got, err := decodePushListV03([]byte(params)); err != nil || got != (listPushes{task: "t"}) {
			t.Errorf("%s: %+v, %v", params, got, err)
		}
	}
}

// TestInvalidPushParameters: what is refused, and the field that is named.
func TestInvalidPushParameters(t *testing.T) {
	set := func(p string) error { _, err := decodePush([]byte(p)); return err }
	ref := func(p string) error { _, err := decodePushRef([]byte(p)); return err }
	list := func(p string) error { _, err := decodePushList([]byte(p)); return err }
	send := func(p string) error { _, err := decodeSend([]byte(p)); return err }
	setOld := func(p string) error { _, err := decodePushV03([]byte(p)); return err }
	refOld := func(p string) error { _, err := decodePushDeleteV03([]byte(p)); return err }
	listOld := func(p string) error { _, err := decodePushListV03([]byte(p)); return err }
	const inline = "configuration.taskPushNotificationConfig"
	for _, c := range []struct {
		decode        func(string) error
		params, field string
	}{
		{set, ``, "url"},
		{set, `[]`, ""},
		{set, `{"url":"u"}`, "taskId"},
		{set, `{"taskId":"t"}`, "url"},
		{set, `{"taskId":7,"url":"u"}`, "taskId"},
		{set, `{"taskId":"t","task_id":"t","url":"u"}`, "taskId"},
		{set, `{"taskId":"t","url":["u"]}`, "url"},
		{set, `{"taskId":"t","url":"u","id":{}}`, "id"},
		{set, `{"taskId":"t","url":"u","token":1}`, "token"},
		{set, `{"taskId":"t","url":"u","authentication":"Bearer x"}`, "authentication"},
		{set, `{"taskId":"t","url":"u","authentication":{"credentials":"c"}}`, "authentication.scheme"},
		{set, `{"taskId":"t","url":"u","authentication":{"scheme":"s","credentials":1}}`, "authentication.credentials"},
		{ref, `{"id":"c"}`, "taskId"},
		{ref, `{"taskId":"t"}`, "id"},
		{ref, `{"taskId":"t","id":1}`, "id"},
		{list, `{}`, "taskId"},
		{list, `{"taskId":"t","pageSize":-1}`, "pageSize"},
		{list, `{"taskId":"t","pageSize":"x"}`, "pageSize"},
		{list, `{"taskId":"t","pageToken":1}`, "pageToken"},
		{send, `{"configuration":{"taskPushNotificationConfig":[]},` + plainMessage + `}`, inline},
		{send, `{"configuration":{"taskPushNotificationConfig":{}},` + plainMessage + `}`, inline + ".url"},
		{send, `{"configuration":{"taskPushNotificationConfig":{"url":"u","taskId":"t"}},` + plainMessage + `}`, inline + ".taskId"},
		{send, `{"configuration":{"taskPushNotificationConfig":{"url":"u","authentication":{}}},` + plainMessage + `}`, inline + ".authentication.scheme"},
		{setOld, `{}`, "pushNotificationConfig"},
		{setOld, `{"taskId":"t","url":"u"}`, "pushNotificationConfig"},
		{setOld, `{"taskId":"t","config":{}}`, "config.pushNotificationConfig"},
		{setOld, `{"taskId":"t","config":7}`, "config"},
		{setOld, `{"taskId":"t","pushNotificationConfig":{}}`, "pushNotificationConfig.url"},
		{setOld, `{"pushNotificationConfig":{"url":"u"}}`, "taskId"},
		{setOld, `{"taskId":"t","pushNotificationConfig":{"url":"u","authentication":{"schemes":"Bearer"}}}`, "pushNotificationConfig.authentication.schemes"},
		{setOld, `{"taskId":"t","pushNotificationConfig":{"url":"u","authentication":{"schemes":["Bearer",1]}}}`, "pushNotificationConfig.authentication.schemes[1]"},
		{setOld, `{"taskId":"t","pushNotificationConfig":{"url":"u","authentication":{"credentials":"c"}}}`, "pushNotificationConfig.authentication.schemes"},
		{refOld, `{"id":"t"}`, "pushNotificationConfigId"},
		{refOld, `{}`, "id"},
		{refOld, `{"name":"x/t"}`, "id"},
		{listOld, `{}`, "id"},
	} {
		var e *hub.Error
		if err := c.decode(c.params); !errors.As(err, &e) || e.Kind != hub.Invalid || e.Field != c.field {
			t.Errorf("%s\ngot %v, want Invalid at %q", c.params, err, c.field)
		}
	}
}

// FuzzPush: what any decoder takes has a task and a URL, and is shown without its
// secrets, in every form, as JSON.
func FuzzPush(f *testing.F) {
	for _, seed := range []string{
		`{"taskId":"t","id":"c","url":"u","token":"k","authentication":{"scheme":"Bearer","credentials":"s"}}`,
		`{"taskId":"t","pushNotificationConfig":{"id":"\u0000","url":"u","authentication":{"schemes":["a","b"],"credentials":"s"}}}`,
		`{"parent":"tasks/t","configId":"c","config":{"name":"x","pushNotificationConfig":{"url":"ü"}}}`,
		`{"name":"tasks/t/pushNotificationConfigs/c"}`, `{"id":"t"}`, `{"taskId":"t","pageSize":"3","page_token":"x"}`, `[]`, `null`, ``, `{"authentication":{"schemes":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, params []byte) {
		if !json.Valid(params) && len(params) > 0 {
			t.Skip("no decoder gets this")
		}
		for _, decode := range []func([]byte) (pushRequest, error){decodePush, decodePushV03} {
			r, err := decode(params)
			if err != nil {
				continue
			}
			if r.config.Task == "" || r.config.URL == "" || r.config.Credentials != "" && r.config.Scheme == "" {
				t.Fatalf("%s: %+v", params, r.config)
			}
			r.config.Token, r.config.Credentials = "SECRET\x01", "SECRET\x02"
			page := pushPage{configs: []hub.PushConfig{r.config, r.config}}
			for _, out := range [][]byte{
				appendPush(nil, r.config), appendPushPage(nil, page), kinded.appendTaskPush(nil, r.config),
				proto.appendTaskPush(nil, r.config), kinded.appendPushes(nil, page), proto.appendPushes(nil, page),
			} {
				if !json.Valid(out) || strings.Contains(string(out), `SECRET\u000`) {
					t.Fatalf("%s: %s", params, out)
				}
			}
		}
		_, _ = decodePushRef(params)
		_, _ = decodePushList(params)
		_, _ = decodePushListV03(params)
		if r, err := decodePushDeleteV03(params); err == nil && (r.task == "" || r.id == "") {
			t.Fatalf("%s: %+v", params, r)
		}
	})
}
