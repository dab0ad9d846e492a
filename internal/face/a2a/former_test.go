package a2a_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/identity"
)

// What a caller has sent stays its own where the address is gone or lets it in no more:
// it may read, list, follow and cancel it, and send nothing. A stranger is told what it
// is told of an address that never was.
func TestTasksStayTheirCallersWhenTheAddressIsGoneOrClosed(t *testing.T) {
	closed := "approved"
	for how, shut := range map[string]func(*bed) error{
		"deleted": func(b *bed) error { return b.Identity().DeleteAgent(t.Context(), b.Admin(), "coder") },
		"closed": func(b *bed) error {
			_, err := b.Identity().UpdateAgent(t.Context(), b.Admin(), "coder", identity.AgentSpec{Access: &closed})
			return err
		},
	} {
		for _, speak := range bindings {
			t.Run(how+"/"+speak.name(), func(t *testing.T) {
				t.Parallel()
				b := newBed(t)
				b.t, b.speak = t, speak
				done, open := b.send(b.caller, "done").ID, b.send(b.caller, "open").ID
				b.finish(b.next().ID, "completed", "result")
				if err := shut(b); err != nil {
					t.Fatal(err)
				}
				testFormerCaller(t, b, done, open)
				testFormerStranger(t, b, open)
			})
		}
	}
}

func testFormerCaller(t *testing.T, b *bed, done, open string) {
	id := func(id string) string { return fmt.Sprintf(`{"id":%q}`, id) }
	if got := b.get(done); got.Status.State != "TASK_STATE_COMPLETED" || len(got.Artifacts) != 1 {
		t.Errorf("GetTask: %+v", got)
	}
	if got := decode[taskList](t, b.call(b.caller, "ListTasks", `{}`)).ids(); !slices.Equal(got, []string{done, open}) {
		t.Errorf("ListTasks: %v, want %v", got, []string{done, open})
	}
	followed := b.stream(b.caller, "SubscribeToTask", id(open))
	followed.next()
	wantReason(t, b.call(b.caller, "SendMessage", message("more", "", immediately)), "UNAUTHORIZED")
	wantReason(t, b.call(b.caller, "SendMessage", message("to it", fmt.Sprintf(`"taskId":%q,`, open), immediately)), "UNAUTHORIZED")
	if _, a := b.open(b.caller, "SendStreamingMessage", message("stream", "", "")); a.Error == nil {
		t.Error("SendStreamingMessage is let through")
	} else {
		wantReason(t, a, "UNAUTHORIZED")
	}
	if got := decode[task](t, b.call(b.caller, "CancelTask", id(open))); got.Status.State != "TASK_STATE_CANCELED" {
		t.Errorf("CancelTask: %+v", got)
	}
	if all := followed.states(); len(all) != 1 {
		t.Errorf("SubscribeToTask then gave %v, want the cancel", all)
	}
	old := *b
	old.speak = jsonRPC
	for method, params := range map[string]string{"tasks/get": id(done), "tasks/cancel": id(open)} {
		if a := old.call(b.caller, method, params); a.Error != nil {
			t.Errorf("%s: %s", method, a.Body)
		}
	}
	wantCode(t, old.call(b.caller, "message/send", `{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"x"}]}}`), -31403)
}

func testFormerStranger(t *testing.T, b *bed, open string) {
	never := b.at("never-was")
	for _, op := range []string{"GetTask", "CancelTask", "SubscribeToTask", "ListTasks"} {
		params := fmt.Sprintf(`{"id":%q}`, open)
		if op == "ListTasks" {
			params = `{}`
		}
		_, a := b.open(b.other, op, params)
		_, want := never.open(b.other, op, params)
		wantReason(t, a, "UNAUTHORIZED")
		if a.Status != want.Status || a.Body != want.Body {
			t.Errorf("%s: a stranger gets %s, where there never was an address %s", op, a.Body, want.Body)
		}
	}
}
