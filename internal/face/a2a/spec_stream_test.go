package a2a_test

import (
	"slices"
	"strings"
	"testing"
)

// testSubscribeAtEveryState is section 3.1.6: a stream of a task that has not ended
// begins with the task as it is; there is none of one that has.
func testSubscribeAtEveryState(t *testing.T, b *bed) {
	for _, state := range append([]string{"submitted", "working"}, questions...) {
		got := b.bring(state, state)
		s := b.stream(b.caller, "SubscribeToTask", subscribe(got.ID))
		_, first, ok := s.next()
		if !ok || first.Task == nil || first.Task.ID != got.ID || first.state() != protocol(state) {
			t.Errorf("%s: begins with %+v", state, first)
		}
		b.lead(got.ID, "canceled") // the next one is to be claimed
		if rest := s.states(); !sameStates(rest, []string{":CANCELED"}) {
			t.Errorf("%s: goes on with %v", state, rest)
		}
	}
	for _, state := range ends {
		wantReason(t, b.call(b.caller, "SubscribeToTask", subscribe(b.bring(state, state).ID)), "UNSUPPORTED_OPERATION")
	}
	wantReason(t, b.call(b.caller, "SubscribeToTask", subscribe("none")), "TASK_NOT_FOUND")
}

// testStreamClosesAtEveryEnd is section 3.1.2.
func testStreamClosesAtEveryEnd(t *testing.T, b *bed) {
	for _, state := range ends {
		s := b.stream(b.caller, "SendStreamingMessage", message(state, "", ""))
		_, first, _ := s.next()
		b.lead(first.Task.ID, state)
		want := []string{":WORKING", ":" + strings.TrimPrefix(protocol(state), "TASK_STATE_")}
		if state == "canceled" {
			want = want[1:]
		}
		if got := s.states(); !sameStates(got, want) {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}

// testStreamsOfOneTask is section 3.5.2: all streams of a task tell the same in the
// same order, closing one touches neither the others nor the task.
func testStreamsOfOneTask(t *testing.T, b *bed) {
	sender := b.stream(b.caller, "SendStreamingMessage", message("hi", "", ""))
	_, first, _ := sender.next()
	id := first.Task.ID
	var streams []*stream
	for range 3 {
		s := b.stream(b.caller, "SubscribeToTask", subscribe(id))
		if _, e, ok := s.next(); !ok || e.Task == nil {
			t.Fatalf("begins with %+v", e)
		}
		streams = append(streams, s)
	}
	if got := b.next(); got.ID != id {
		t.Fatalf("claimed %s", got.ID)
	}
	b.chunk(id, "a", false)
	sender.cancel()
	streams[0].cancel()
	b.chunk(id, "b", true)
	b.chunk(id, "c", true)
	b.finish(id, "completed", "")
	want := []string{"2:WORKING", "3:a", "4:b", "5:c", "6:COMPLETED"}
	for i, s := range streams[1:] {
		if got := s.states(); !slices.Equal(got, want) {
			t.Errorf("stream %d: %v, want %v", i, got, want)
		}
	}
	if got := b.get(id); got.Status.State != protocol("completed") || len(got.Artifacts) != 1 {
		t.Errorf("the task: %+v", got)
	}
}
