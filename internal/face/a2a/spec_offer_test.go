package a2a_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/identity"
)

// testVersions is section 3.6: the version is Major.Minor, the patch number does not
// count, and one that is not served is refused.
func testVersions(t *testing.T, b *bed) {
	for _, version := range []string{"1.0", "1.0.0", "1.0.17"} {
		if a := b.call(b.caller, "ListTasks", `{}`, "A2A-Version", version); a.Error != nil {
			t.Errorf("%s: %s", version, a.Body)
		}
	}
	if a := b.call(b.caller, "ListTasks", `{}`); a.Error != nil {
		t.Errorf("none: %s", a.Body)
	}
	for _, version := range []string{"99.0", "1.1", "2.0", "1", "1.0.x", "0.4", "v1.0", "one"} {
		wantReason(t, b.call(b.caller, "ListTasks", `{}`, "A2A-Version", version), "VERSION_NOT_SUPPORTED")
		wantReason(t, b.call(b.caller, "SendMessage", message("x", "", immediately), "A2A-Version", version), "VERSION_NOT_SUPPORTED")
		wantReason(t, b.call(b.caller, "SubscribeToTask", subscribe("x"), "A2A-Version", version), "VERSION_NOT_SUPPORTED")
	}
	if n := *b.list(`{}`).TotalSize; n != 0 {
		t.Errorf("%d tasks came of versions that are not served", n)
	}
}

// address creates an open address with a card, in /v1's words.
func (b *bed) address(handle, card string) *bed {
	b.t.Helper()
	open := "open"
	b.Create(identity.AgentSpec{Handle: handle, Access: &open, Card: json.RawMessage(card)})
	return b.at(handle)
}

// cardOf reads the card of an address.
func (b *bed) cardOf() (c struct {
	Capabilities struct {
		Streaming, PushNotifications, ExtendedAgentCard bool
		Extensions                                      []struct {
			URI      string
			Required bool
		}
	}
}) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.URL+"/a/"+b.handle+"/.well-known/agent-card.json", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	res, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(io.LimitReader(res.Body, 1<<20)).Decode(&c); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// testExtensions is sections 3.2.6 and 3.3.4: those in use are named in the answer,
// those that nobody has are ignored, and a client without one that is required is
// refused, whatever it asks.
func testExtensions(t *testing.T, b *bed) {
	const may, must = "https://example.com/may/v1", "https://example.com/must/v1"
	lax := b.address("lax", `{"extensions":[{"uri":"`+may+`"},{"description":"no URI"}]}`)
	for asked, want := range map[string]string{
		"": "", may: may, may + "/2": "", "https://other, " + may + " ,": may, must: "",
	} {
		a := lax.call(b.caller, "SendMessage", message("x", "", immediately), "A2A-Extensions", asked)
		if got := a.Header.Get("A2A-Extensions"); a.Error != nil || got != want {
			t.Errorf("asked for %q: %q, want %q: %s", asked, got, want, a.Body)
		}
	}

	strict := b.address("strict", `{"extensions":[{"uri":"`+may+`"},{"uri":"`+must+`","required":true}]}`)
	for _, c := range []struct{ op, params string }{
		{"SendMessage", message("x", "", immediately)}, {"SendStreamingMessage", message("x", "", "")},
		{"GetTask", `{"id":"x"}`}, {"CancelTask", `{"id":"x"}`}, {"SubscribeToTask", `{"id":"x"}`}, {"ListTasks", `{}`},
	} {
		for _, asked := range []string{"", may, must + "x"} {
			wantReason(t, strict.call(b.caller, c.op, c.params, "A2A-Extensions", asked), "EXTENSION_SUPPORT_REQUIRED")
		}
	}
	a := strict.call(b.caller, "ListTasks", `{}`, "A2A-Extensions", must+","+may)
	if got := decode[taskList](t, a); *got.TotalSize != 0 {
		t.Errorf("refused sends left %d tasks", *got.TotalSize)
	}
	if got := a.Header.Get("A2A-Extensions"); got != may+", "+must {
		t.Errorf("in use: %q", got)
	}
	if got := fmt.Sprint(strict.cardOf().Capabilities.Extensions); got != fmt.Sprintf("[{%s false} {%s true}]", may, must) {
		t.Errorf("on the card: %s", got)
	}
}

// testCapabilitiesOff is section 3.3.4: what an address does not offer is not on its
// card and is refused, also to a client that lacks what is required.
func testCapabilitiesOff(t *testing.T, b *bed) {
	less := b.address("less", `{"capabilities":{"streaming":false,"push_notifications":false,"extended_agent_card":false},"extensions":[{"uri":"urn:x","required":true}]}`)
	if c := less.cardOf().Capabilities; c.Streaming || c.PushNotifications || c.ExtendedAgentCard {
		t.Errorf("on the card: %+v", c)
	}
	for _, extensions := range []string{"", "urn:x"} {
		for _, c := range []struct{ op, params, reason string }{
			{"SendStreamingMessage", message("x", "", ""), "UNSUPPORTED_OPERATION"},
			{"SubscribeToTask", `{"id":"x"}`, "UNSUPPORTED_OPERATION"},
			{"CreateTaskPushNotificationConfig", `{"taskId":"x","url":"https://example.com/"}`, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
			{"GetTaskPushNotificationConfig", `{"taskId":"x","id":"y"}`, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
			{"ListTaskPushNotificationConfigs", `{"taskId":"x"}`, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
			{"DeleteTaskPushNotificationConfig", `{"taskId":"x","id":"y"}`, "PUSH_NOTIFICATION_NOT_SUPPORTED"},
		} {
			wantReason(t, less.call(b.caller, c.op, c.params, "A2A-Extensions", extensions), c.reason)
		}
	}
	inline := `"configuration":{"returnImmediately":true,"taskPushNotificationConfig":{"url":"https://example.com/"}},`
	wantReason(t, less.call(b.caller, "SendMessage", message("x", "", inline), "A2A-Extensions", "urn:x"), "PUSH_NOTIFICATION_NOT_SUPPORTED")
	wantReason(t, less.call(b.caller, "GetExtendedAgentCard", `{}`, "A2A-Extensions", "urn:x"), "UNSUPPORTED_OPERATION")
	sent := less.call(b.caller, "SendMessage", message("x", "", immediately), "A2A-Extensions", "urn:x")
	decode[struct{ Task task }](t, sent)

	same := b.address("same", `{"capabilities":{"streaming":true,"push_notifications":null}}`)
	if got, want := same.cardOf().Capabilities, b.cardOf().Capabilities; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// testErrors is section 5.4: each error of the specification that a client can bring
// about has its reason, its numbers (which every answer is checked for), and says
// what is wrong.
func testErrors(t *testing.T, b *bed) {
	done := b.bring("done", "completed")
	b.address("strict", `{"extensions":[{"uri":"urn:x","required":true}]}`)
	b.address("less", `{"capabilities":{"push_notifications":false}}`)
	for reason, a := range map[string]answer{
		"TASK_NOT_FOUND":                  b.call(b.caller, "GetTask", `{"id":"none"}`),
		"TASK_NOT_CANCELABLE":             b.call(b.caller, "CancelTask", fmt.Sprintf(`{"id":%q}`, done.ID)),
		"PUSH_NOTIFICATION_NOT_SUPPORTED": b.at("less").call(b.caller, "ListTaskPushNotificationConfigs", `{"taskId":"x"}`),
		"UNSUPPORTED_OPERATION":           b.sendTo(done.ID, "more"),
		"EXTENSION_SUPPORT_REQUIRED":      b.at("strict").call(b.caller, "ListTasks", `{}`),
		"VERSION_NOT_SUPPORTED":           b.call(b.caller, "ListTasks", `{}`, "A2A-Version", "7.0"),
		"INVALID_PARAMS":                  b.call(b.caller, "ListTasks", `{"pageSize":1000}`),
	} {
		wantReason(t, a, reason)
		least := 20
		if b.former() { // whose words the specification has, such as Task not found
			least = 10
		}
		if a.Error != nil && (len(a.Error.Message) < least || strings.Contains(a.Error.Message, "\n")) {
			t.Errorf("%s says %q", reason, a.Error.Message)
		}
	}
}

// TestCardHeaders is section 8.6.1: a card has a tag and a date, a client that has it
// gets no other, and one that changes has another tag.
func TestCardHeaders(t *testing.T) {
	b := newBed(t)
	get := func(match string) (int, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.URL+"/a/coder/.well-known/agent-card.json", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("If-None-Match", match)
		status, header, _ := b.raw(r)
		return status, header
	}
	status, first := get("")
	if _, err := http.ParseTime(first.Get("Last-Modified")); err != nil || status != http.StatusOK || !strings.Contains(first.Get("Cache-Control"), "max-age=") {
		t.Errorf("%d %v", status, first)
	}
	status, same := get(first.Get("ETag"))
	if status != http.StatusNotModified || same.Get("Last-Modified") != first.Get("Last-Modified") {
		t.Errorf("%d %v", status, same)
	}
	words := "Another description."
	if _, err := b.Identity().UpdateAgent(t.Context(), b.Admin(), "coder", identity.AgentSpec{Description: &words}); err != nil {
		t.Fatal(err)
	}
	if status, changed := get(first.Get("ETag")); status != http.StatusOK || changed.Get("ETag") == first.Get("ETag") {
		t.Errorf("%d %v", status, changed)
	}
}
