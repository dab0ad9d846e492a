package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
)

func TestPushNotificationsOfATask(t *testing.T) {
	b := newBed(t, func(c *config.Config) { c.EgressAllowLocal = "1024-65535" })
	ctx := b.context()
	var status atomic.Int32
	status.Store(http.StatusGone) // given up at once
	got := make(chan string, 100)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(int(status.Load()))
		got <- r.Header.Get("Authorization")
	}))
	t.Cleanup(hook.Close)

	task := must(b.boss.Send(ctx, "coder", "hi"))(t)
	added := must(b.boss.AddPush(ctx, "@coder", task.ID, client.PushRequest{
		ID: "mine/1", URL: hook.URL, Authentication: &client.PushAuth{Scheme: "Bearer", Credentials: "hidden"},
	}))(t)
	if added.ID != "mine/1" || added.URL != hook.URL || added.Authentication.Credentials != "" {
		t.Errorf("added %+v", added)
	}
	must(b.coder.Next(ctx))(t)
	if auth := recv(t, got, "a notification"); auth != "Bearer hidden" {
		t.Errorf("Authorization %q", auth)
	}

	var failure client.PushFailure
	for ticks := time.NewTicker(5 * time.Millisecond); failure.ID == ""; {
		list, _, err := b.boss.PushFailures(ctx, task.ID, "", 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(list) > 0 {
			failure = list[0]
			ticks.Stop()
			break
		}
		<-ticks.C
	}
	status.Store(http.StatusOK)
	if again := must(b.boss.RedeliverPush(ctx, failure.ID))(t); again.ID != "mine/1" {
		t.Errorf("redelivered %+v", again)
	}
	recv(t, got, "the notification, once more")

	if err := b.boss.DeletePush(ctx, "coder", task.ID, "mine/1"); err != nil {
		t.Error(err)
	}
	if list := must(b.boss.Pushes(ctx, "coder", task.ID))(t); len(list) != 0 {
		t.Errorf("after the deletion %+v", list)
	}
	for name, err := range map[string]error{
		"no task":    b.boss.DeletePush(ctx, "coder", "", "x"),
		"no id":      b.boss.DeletePush(ctx, "coder", task.ID, ""),
		"no failure": func() error { _, err := b.boss.RedeliverPush(ctx, ""); return err }(),
		"no URL":     func() error { _, err := b.boss.AddPush(ctx, "coder", task.ID, client.PushRequest{}); return err }(),
	} {
		if !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.coder.Pushes(ctx, "coder", task.ID); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("the callee: %v", err)
	}
}
