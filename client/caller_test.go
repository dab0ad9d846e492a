package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/client"
)

func TestSendIsAcceptedBeforeAnybodyWorks(t *testing.T) {
	b := newBed(t)
	task, err := b.boss.Send(b.context(), "coder", map[string]any{"n": json.Number("9007199254740993")},
		client.WithTags(map[string]string{"sprint": "S3"}), client.WithContext("ctx-1"), client.WithMetadata(map[string]int{"m": 1}))
	if err != nil {
		t.Fatal(err)
	}
	if task.State != client.StateSubmitted || task.ContextID != "ctx-1" || task.Tags["sprint"] != "S3" || task.Callee != "coder" || task.Caller != "boss" {
		t.Errorf("%+v", task)
	}
	again := must(b.boss.Get(b.context(), "coder", task.ID))(t)
	if got := string(again.Input.Message.Parts[0].Data); got != `{"n":9007199254740993}` {
		t.Errorf("the data came back as %s", got)
	}
}

func TestTheSameKeyIsTheSameSend(t *testing.T) {
	b := newBed(t)
	first := must(b.boss.Send(b.context(), "coder", "hi", client.WithIdempotencyKey("k")))(t)
	second := must(b.boss.Send(b.context(), "coder", "hi", client.WithIdempotencyKey("k")))(t)
	if first.ID != second.ID {
		t.Errorf("two tasks: %s, %s", first.ID, second.ID)
	}
	if _, err := b.boss.Send(b.context(), "coder", "other", client.WithIdempotencyKey("k")); !errors.Is(err, client.ErrConflict) {
		t.Errorf("another message under the same key: %v", err)
	}
	third := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	if third.ID == first.ID {
		t.Error("a send without a key was taken for another")
	}
}

func TestALostAnswerToASendMakesOneTask(t *testing.T) {
	b := newBed(t)
	p := newProxy(t, b.hub.URL, losing(5))
	boss := b.client(p.URL, b.hub.Token("boss"))
	task := must(boss.Send(b.context(), "coder", "hi"))(t)
	if n := p.connections(); n < 6 {
		t.Fatalf("only %d connections: nothing was lost", n)
	}
	var ids []string
	for one, err := range b.boss.List(b.context(), "coder", client.TaskQuery{}) {
		ids = append(ids, must(one, err)(t).ID)
	}
	if d := cmp.Diff([]string{task.ID}, ids); d != "" {
		t.Error(d)
	}
}

func TestListGoesThroughAllPages(t *testing.T) {
	b := newBed(t)
	want := map[string]bool{}
	for i := range 7 {
		want[must(b.boss.Send(b.context(), "coder", fmt.Sprint(i)))(t).ID] = true
	}
	for _, to := range []string{"coder", "@coder", ""} {
		got := map[string]bool{}
		for task, err := range b.boss.List(b.context(), to, client.TaskQuery{Limit: 3, State: client.StateSubmitted}) {
			got[must(task, err)(t).ID] = true
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("at %q: %s", to, d)
		}
	}
	n := 0
	for range b.boss.List(b.context(), "coder", client.TaskQuery{Limit: 3}) {
		if n++; n == 2 {
			break
		}
	}
	for _, err := range b.boss.List(b.context(), "nobody", client.TaskQuery{}) {
		if !errors.Is(err, client.ErrNotPermitted) {
			t.Error(err)
		}
	}
}

func TestPendingIsWhatHasNotEndedOrWasNotRead(t *testing.T) {
	b := newBed(t)
	pending := func() (ids []string) {
		for task, err := range b.boss.Pending(b.context()) {
			ids = append(ids, must(task, err)(t).ID)
		}
		return ids
	}
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	if d := cmp.Diff([]string{task.ID}, pending()); d != "" {
		t.Error(d)
	}
	b.serve(b.coder, func(context.Context, *client.Task) (any, error) { return "ok", nil }, client.MaxTasks(1)).wait()
	if d := cmp.Diff([]string{task.ID}, pending()); d != "" {
		t.Errorf("ended, not read: %s", d)
	}
	must(b.boss.Wait(b.context(), "coder", task.ID))(t)
	waitFor(t, func() bool { return len(pending()) == 0 }, "the end counts as read")
}

// waitFor looks until ok.
func waitFor(t *testing.T, ok func() bool, what string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("not so: %s", what)
		}
	}
}

func TestCancelIsFinalAndIdempotent(t *testing.T) {
	b := newBed(t)
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	for range 2 {
		got := must(b.boss.Cancel(b.context(), "coder", task.ID))(t)
		if got.State != client.StateCanceled {
			t.Errorf("%s after a cancel", got.State)
		}
	}
	got := must(b.boss.Wait(b.context(), "coder", task.ID))(t)
	if e, ok := errors.AsType[*client.TaskError](got.Err()); !ok || e.State != client.StateCanceled {
		t.Error(got.Err())
	}
	if _, err := b.boss.Answer(b.context(), got, "more"); !errors.Is(err, client.ErrEnded) {
		t.Errorf("a message to an ended task: %v", err)
	}
	done := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	b.serve(b.coder, func(context.Context, *client.Task) (any, error) { return nil, nil }, client.MaxTasks(1)).wait()
	if _, err := b.boss.Cancel(b.context(), "coder", done.ID); !errors.Is(err, client.ErrNotCancelable) {
		t.Errorf("a cancel of a completed task: %v", err)
	}
}

func TestForeignAndMissingLookTheSame(t *testing.T) {
	b := newBed(t)
	task := must(b.boss.Send(b.context(), "coder", "hi"))(t)
	other := b.client(b.hub.URL, b.hub.Agent("other"))
	_, foreign := other.Get(b.context(), "coder", task.ID)
	_, missing := other.Get(b.context(), "coder", "0190a1b2-0000-7000-8000-000000000000")
	if !errors.Is(foreign, client.ErrNotFound) || !errors.Is(missing, client.ErrNotFound) {
		t.Errorf("%v; %v", foreign, missing)
	}
	if _, err := other.Send(b.context(), "nobody", "hi"); !errors.Is(err, client.ErrNotPermitted) {
		t.Error(err)
	}
	stranger := b.client(b.hub.URL, "hf_wrong")
	if _, err := stranger.Send(b.context(), "coder", "hi"); !errors.Is(err, client.ErrUnauthenticated) || strings.Contains(err.Error(), "hf_wrong") {
		t.Error(err)
	}
}

func TestAWaitThatIsCutShortGivesTheTask(t *testing.T) {
	b := newBed(t)
	ctx, cancel := context.WithTimeout(b.context(), 300*time.Millisecond)
	defer cancel()
	task, err := b.boss.SendAndWait(ctx, "coder", "hi")
	if !errors.Is(err, context.DeadlineExceeded) || task == nil || task.ID == "" {
		t.Errorf("%+v, %v", task, err)
	}
}

func TestAWaitSurvivesRestartsAndBrokenConnections(t *testing.T) {
	b := newBed(t)
	p := newProxy(t, b.hub.URL, func() int { return -1 })
	boss := b.client(p.URL, b.hub.Token("boss"))
	task := must(boss.Send(b.context(), "coder", "hi"))(t)
	type answer struct {
		task *client.Task
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		task, err := boss.Wait(b.context(), "coder", task.ID)
		got <- answer{task, err}
	}()
	waitFor(t, func() bool { return p.connections() > 0 }, "the wait has begun")
	p.cut()
	b.hub.Restart()
	p.cut()
	b.hub.Restart()
	b.serve(b.coder, func(context.Context, *client.Task) (any, error) { return "late", nil })
	a := recv(t, got, "the end of the wait")
	if a.err != nil || a.task.ResultText() != "late" {
		t.Errorf("%+v, %v", a.task, a.err)
	}
}

func TestADeadlineFailsTheTask(t *testing.T) {
	b := newBed(t)
	task := must(b.boss.SendAndWait(b.context(), "coder", "hi", client.WithDeadline(time.Now().Add(200*time.Millisecond))))(t)
	if task.State != client.StateFailed || task.Err() == nil {
		t.Errorf("%s, %v", task.State, task.Err())
	}
}

func TestAdministration(t *testing.T) {
	b := newBed(t)
	ctx := b.context()
	open, text, lease := "open", "counts words", 30
	made := must(b.admin.CreateAgent(ctx, client.AgentRequest{Handle: "counter", Access: &open, Description: &text}))(t)
	if made.Handle != "counter" || made.Description != text || !strings.HasSuffix(made.URL, "/a/counter") {
		t.Errorf("%+v", made)
	}
	if _, err := b.admin.CreateAgent(ctx, client.AgentRequest{Handle: "counter"}); !errors.Is(err, client.ErrConflict) {
		t.Errorf("the handle twice: %v", err)
	}
	if got := must(b.admin.UpdateAgent(ctx, "counter", client.AgentRequest{LeaseS: &lease}))(t); got.LeaseS != 30 || got.Description != text {
		t.Errorf("%+v", got)
	}
	all := must(b.admin.Agents(ctx))(t)
	if len(all) != 3 {
		t.Errorf("%d addresses", len(all))
	}
	tok := must(b.admin.CreateToken(ctx, "@counter", client.TokenRequest{Name: "one"}))(t)
	who := must(b.client(b.hub.URL, tok.Token).Whoami(ctx))(t)
	if who.Handle != "counter" {
		t.Errorf("%+v", who)
	}
	tokens := must(b.admin.Tokens(ctx, "counter"))(t)
	if len(tokens) != 1 || tokens[0].ID != tok.ID || tokens[0].Token != "" {
		t.Errorf("%+v", tokens)
	}
	if err := b.admin.RevokeToken(ctx, tok.ID); err != nil {
		t.Error(err)
	}
	if info := must(b.admin.Info(ctx))(t); info.Version != "test" {
		t.Errorf("%+v", info)
	}
	if _, err := b.boss.Info(ctx); !errors.Is(err, client.ErrNotPermitted) {
		t.Errorf("info for a caller: %v", err)
	}
	if err := b.admin.DeleteAgent(ctx, "counter"); err != nil {
		t.Error(err)
	}
	if _, err := b.admin.Agent(ctx, "counter"); !isAny(err, client.ErrNotFound, client.ErrNotPermitted) {
		t.Errorf("a deleted address: %v", err)
	}
}
