package app_test

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
	"github.com/holdfast-hub/holdfast/wire"
)

// What the hub did to deliver tasks is known to the address's owner after a restart, and
// can be gone on with, whatever the store.
func TestAttemptsOutliveTheHub(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { attemptsOutlive(t, func(*config.Config) {}) })
	t.Run("postgres", func(t *testing.T) { attemptsOutlive(t, onPostgres(t)) })
}

func attemptsOutlive(t *testing.T, on func(*config.Config)) {
	t.Helper()
	var visits, tries atomic.Int64
	hook, allow := callee(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.Contains(string(body), "hello") && visits.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case strings.Contains(string(body), "later"):
			_, _ = io.WriteString(w, `{"state":"working"}`)
		case strings.Contains(string(body), "tomorrow") && tries.Add(1) == 1:
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			_, _ = io.WriteString(w, `{"answer":42}`)
		}
	})
	h := testhub.Start(t, allow, on)
	alice, echo := h.Agent("alice"), h.Agent("echo")
	ask[wire.Agent](t, h, http.MethodPut, "/v1/agents/me/endpoint", echo, fmt.Sprintf(`{"url":%q,"kind":"webhook"}`, hook))
	send := func(text string) wire.Task {
		return ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks", alice, strings.Replace(helloTask, "hello", text, 1))
	}
	attempts := func(token, ref, id string) (of []wire.Attempt) {
		for _, a := range ask[wire.List[wire.Attempt]](t, h, http.MethodGet, "/v1/agents/"+ref+"/attempts", token, "").Data {
			if a.TaskID == id {
				of = append(of, a)
			}
		}
		return of
	}
	task := send("hello")
	eventually(t, h, alice, "echo", task.ID, "completed")
	ended := func(id string) []wire.Attempt { // which is noted after the task has its answer
		await(t, "the last attempt is over", func() bool {
			of := attempts(echo, "me", id)
			return len(of) > 0 && of[0].EndedAt != nil
		})
		return attempts(echo, "me", id)
	}
	before := ended(task.ID)
	if len(before) != 2 || before[0].Status != 200 || before[0].Outcome != "answered" || before[1].Status != 503 || !before[1].Sent {
		t.Fatalf("the attempts are %+v", before)
	}
	canceled := send("later")
	await(t, "the agent accepts", func() bool {
		of := attempts(echo, "me", canceled.ID)
		return len(of) == 1 && of[0].Outcome == "accepted"
	})
	ask[wire.Task](t, h, http.MethodPost, "/v1/agents/echo/tasks/"+canceled.ID+"/cancel", alice, "")
	again := send("tomorrow")
	await(t, "the agent puts the hub off", func() bool {
		of := attempts(echo, "me", again.ID)
		return len(of) == 1 && of[0].Status == 503 && of[0].EndedAt != nil
	})

	h.Restart()
	if after := attempts(h.AdminToken, "echo", task.ID); !reflect.DeepEqual(after, before) {
		t.Errorf("after the restart the attempts are %+v, want %+v", after, before)
	}
	if got := ask[wire.Task](t, h, http.MethodGet, "/v1/agents/echo/tasks/"+canceled.ID, alice, ""); got.State != "canceled" || got.CancelOutcome != "unconfirmed" {
		t.Errorf("the canceled task is %s, %q; want its cancel unconfirmed, for a webhook is not told", got.State, got.CancelOutcome)
	}
	ask[wire.Task](t, h, http.MethodPost, "/v1/agents/me/tasks/"+again.ID+"/redeliver", echo, "")
	eventually(t, h, alice, "echo", again.ID, "completed")
	if of := ended(again.ID); len(of) != 2 || of[0].Outcome != "answered" || of[1].Status != 503 {
		t.Errorf("the attempts of what was delivered again are %+v", of)
	}
	if res, _ := do(t, http.MethodGet, h.URL+"/v1/agents/echo/attempts", alice, ""); res.StatusCode/100 == 2 {
		t.Error("a caller sees the attempts of another address")
	}
}
