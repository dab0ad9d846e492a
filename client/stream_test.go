package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-hub/holdfast/client"
)

// chatty reports n times and streams a text.
func chatty(n int) client.Handler {
	return func(ctx context.Context, t *client.Task) (any, error) {
		for i := range n {
			if err := t.Progress(ctx, fmt.Sprint("step ", i)); err != nil {
				return nil, err
			}
			if err := t.AppendText(ctx, "poem", fmt.Sprintf("line %d\n", i), i == n-1); err != nil {
				return nil, err
			}
		}
		return "end of " + t.Text(), nil
	}
}

// poem is the text that chatty streams.
func poem(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// collect reads a stream to its end, checks that no event is missing or double, and
// gives the task that the events make.
func collect(t *testing.T, stream func(yield func(client.Event, error) bool), each func(n int)) *client.Task {
	t.Helper()
	folded := new(client.Task)
	last, n := int64(0), 0
	for ev, err := range stream {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Task == nil && ev.Seq != last+1 {
			t.Fatalf("event %d after %d", ev.Seq, last)
		}
		last = ev.Seq
		folded.Fold(ev)
		n++
		if each != nil {
			each(n)
		}
	}
	return folded
}

// sameAsStored compares what a stream made of a task with what the hub has.
func sameAsStored(t *testing.T, b *bed, folded *client.Task) {
	t.Helper()
	stored := must(b.boss.Get(b.context(), "coder", folded.ID))(t)
	if d := cmp.Diff(stored.State, folded.State); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(stored.Artifacts, folded.Artifacts, cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

func artifactText(t *client.Task, name string) string {
	var s strings.Builder
	for _, a := range t.Artifacts {
		if a.Name == name {
			for _, p := range a.Parts {
				s.WriteString(*p.Text)
			}
		}
	}
	return s.String()
}

func TestStreamTellsTheWholeStory(t *testing.T) {
	b := newBed(t)
	b.serve(b.coder, chatty(5))
	folded := collect(t, b.boss.Stream(b.context(), "coder", "it"), nil)
	if folded.State != client.StateCompleted || artifactText(folded, "response") != "end of it" || artifactText(folded, "poem") != poem(5) {
		t.Errorf("%s %+v", folded.State, folded.Artifacts)
	}
	sameAsStored(t, b, folded)
}

func TestAStreamThatIsCutAnywhereHasNoGapAndNoDuplicate(t *testing.T) {
	b := newBed(t)
	b.serve(b.coder, chatty(40))
	rng := rand.New(rand.NewPCG(1, 2))
	p := newProxy(t, b.hub.URL, func() int { return 300 + rng.IntN(3000) })
	boss := b.client(p.URL, b.hub.Token("boss"))
	for range 3 {
		folded := collect(t, boss.Stream(b.context(), "coder", "it"), nil)
		if artifactText(folded, "poem") != poem(40) {
			t.Errorf("%+v", folded.Artifacts)
		}
		sameAsStored(t, b, folded)
	}
	if n := p.connections(); n < 20 {
		t.Errorf("only %d connections: little was cut", n)
	}
}

func TestAStreamSurvivesARestart(t *testing.T) {
	b := newBed(t)
	proceed := make(chan struct{})
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		if err := task.Progress(ctx, "begun"); err != nil {
			return nil, err
		}
		<-proceed
		return chatty(5)(ctx, task)
	}, client.Lease(time.Minute))
	folded := collect(t, b.boss.Stream(b.context(), "coder", "it"), func(n int) {
		if n == 3 { // the task, submitted, working
			b.hub.Restart()
			close(proceed)
		}
	})
	if folded.State != client.StateCompleted || artifactText(folded, "poem") != poem(5) {
		t.Errorf("%s %+v", folded.State, folded.Artifacts)
	}
	sameAsStored(t, b, folded)
}

func TestAppendedTextIsExactThoughAnswersAreLost(t *testing.T) {
	b := newBed(t)
	turn := 0
	p := newProxy(t, b.hub.URL, func() int {
		turn++
		if turn%2 == 0 {
			return 0
		}
		return 1500
	})
	b.serve(b.client(p.URL, b.coderToken), chatty(20))
	got := must(b.boss.SendAndWait(b.context(), "coder", "it"))(t)
	if got.State != client.StateCompleted || artifactText(got, "poem") != poem(20) {
		t.Errorf("%s: %q", got.State, artifactText(got, "poem"))
	}
	if p.connections() < 5 {
		t.Errorf("only %d connections: little was lost", p.connections())
	}
}

func TestSubscribe(t *testing.T) {
	b := newBed(t)
	task := must(b.boss.Send(b.context(), "coder", "it"))(t)
	first := true
	folded := collect(t, b.boss.Subscribe(b.context(), "coder", task.ID), func(int) {
		if first { // the task as it is; only now somebody works on it
			first = false
			b.serve(b.coder, chatty(3), client.MaxTasks(1))
		}
	})
	sameAsStored(t, b, folded)

	var events []client.Event
	for ev, err := range b.boss.Subscribe(b.context(), "coder", task.ID) {
		events = append(events, must(ev, err)(t))
	}
	if len(events) != 1 || events[0].Task == nil || events[0].State() != client.StateCompleted {
		t.Errorf("of an ended task: %+v", events)
	}
	whole := collect(t, b.boss.Subscribe(b.context(), "coder", task.ID, client.After(0)), nil)
	if artifactText(whole, "poem") != poem(3) {
		t.Errorf("after event 0: %+v", whole)
	}
	for _, err := range b.boss.Subscribe(b.context(), "coder", "0190a1b2-0000-7000-8000-000000000000") {
		if !errors.Is(err, client.ErrNotFound) {
			t.Error(err)
		}
	}
}

func TestAnAnswerCanBeStreamed(t *testing.T) {
	b := newBed(t)
	b.serve(b.coder, func(ctx context.Context, task *client.Task) (any, error) {
		if task.AnswerText() == "" {
			return nil, task.Ask(ctx, "which?")
		}
		return "this: " + task.AnswerText(), nil
	})
	var asked *client.Task
	for ev, err := range b.boss.Stream(b.context(), "coder", "pick") {
		must(ev, err)(t)
		if ev.Task != nil {
			asked = ev.Task
		}
		if ev.State() == client.StateInputRequired {
			if ev.Text() != "which?" {
				t.Errorf("asked %q", ev.Text())
			}
			break
		}
	}
	folded := collect(t, b.boss.Stream(b.context(), "coder", "red", client.WithTask(asked.ID)), nil)
	if folded.State != client.StateCompleted || folded.ResultText() != "this: red" {
		t.Errorf("%s %q", folded.State, folded.ResultText())
	}
}

func TestActivity(t *testing.T) {
	b := newBed(t)
	_, from, err := b.admin.ActivityPage(b.context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	b.serve(b.coder, chatty(3))
	const n = 5
	for i := range n {
		must(b.boss.SendAndWait(b.context(), "coder", fmt.Sprint(i)))(t)
	}
	want, after := []string{}, from
	for {
		lines, next, err := b.admin.ActivityPage(b.context(), after, 7)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			want = append(want, l.Cursor+" "+l.Kind+" "+l.TaskID)
		}
		if len(lines) == 0 {
			break
		}
		after = next
	}
	rng := rand.New(rand.NewPCG(3, 4))
	p := newProxy(t, b.hub.URL, func() int { return 300 + rng.IntN(2000) })
	var got []string
	for line, err := range b.client(p.URL, b.hub.AdminToken).FollowActivity(b.context(), from) {
		must(line, err)(t)
		if got = append(got, line.Cursor+" "+line.Kind+" "+line.TaskID); len(got) == len(want) {
			break
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(want) < 3*n || p.connections() < 2 {
		t.Errorf("%d lines over %d connections", len(want), p.connections())
	}
}
