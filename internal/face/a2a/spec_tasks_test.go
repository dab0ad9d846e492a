package a2a_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

// testGetTask is section 3.1.3: the task as it is, with what was said and made.
func testGetTask(t *testing.T, b *bed) {
	for _, state := range append([]string{"submitted", "working"}, append(questions, ends...)...) {
		got := b.bring(state, state)
		if got.Status.State != protocol(state) || len(got.History) == 0 || got.ContextID == "" {
			t.Errorf("%s: %+v", state, got)
		}
		if said := strings.Contains(string(got.Status.Message), "says "+state); said != (state != "submitted" && state != "working" && state != "canceled") {
			t.Errorf("%s: message %s", state, got.Status.Message)
		}
		if state == "submitted" { // the others are to be claimed next
			b.lead(got.ID, "completed")
		}
	}
	wantReason(t, b.call(b.caller, "GetTask", `{"id":"none"}`), "TASK_NOT_FOUND")
}

// testListFilters is section 3.1.4: each filter by itself and with others; what is in
// the list is what is asked for.
func testListFilters(t *testing.T, b *bed) {
	byState := map[string]task{}
	for _, state := range append(questions, ends...) {
		byState[state] = b.bring(state, state)
	}
	for state, want := range byState {
		got := b.list(fmt.Sprintf(`{"status":%q}`, protocol(state)))
		if !slices.Equal(got.ids(), []string{want.ID}) || *got.TotalSize != 1 {
			t.Errorf("%s: %v, %d in all", state, got.ids(), *got.TotalSize)
		}
		both := func(other string) []string {
			return b.list(fmt.Sprintf(`{"status":%q,"contextId":%q}`, protocol(state), byState[other].ContextID)).ids()
		}
		if got := both(state); !slices.Equal(got, []string{want.ID}) {
			t.Errorf("%s in its context: %v", state, got)
		}
		if got := both(map[bool]string{true: "failed", false: "completed"}[state == "completed"]); len(got) != 0 {
			t.Errorf("%s in another's context: %v", state, got)
		}
	}
	if got := b.list(`{"status":"TASK_STATE_UNSPECIFIED","contextId":""}`); len(got.Tasks) != len(byState) {
		t.Errorf("no filter: %d tasks", len(got.Tasks))
	}
	// At or after: a task is found by the very time of its status, which may be that of
	// others too, and not by a later one.
	for _, want := range byState {
		at := want.Status.Timestamp
		if got := b.list(fmt.Sprintf(`{"statusTimestampAfter":%q}`, at)).ids(); !slices.Contains(got, want.ID) {
			t.Errorf("at %s: %v", at, got)
		}
		when, err := time.Parse(time.RFC3339Nano, at)
		if err != nil {
			t.Fatal(err)
		}
		later := when.Add(time.Millisecond).Format(time.RFC3339Nano)
		if got := b.list(fmt.Sprintf(`{"statusTimestampAfter":%q}`, later)).ids(); slices.Contains(got, want.ID) {
			t.Errorf("after %s: %v has %s", later, got, want.ID)
		}
	}
	wantReason(t, b.call(b.caller, "ListTasks", `{"statusTimestampAfter":"yesterday"}`), "INVALID_PARAMS")
	wantReason(t, b.call(b.caller, "ListTasks", `{"status":"DONE"}`), "INVALID_PARAMS")
}

// testPageSizes is section 3.1.4: 50 if nobody says, and from 1 to 100.
func testPageSizes(t *testing.T, b *bed) {
	for _, unsaid := range []string{`{}`, `{"pageSize":0}`} {
		if got := *b.list(unsaid).PageSize; got != 50 {
			t.Errorf("%s: default %d", unsaid, got)
		}
	}
	for _, n := range []int{1, 100} {
		if got := *b.list(fmt.Sprintf(`{"pageSize":%d}`, n)).PageSize; got != n {
			t.Errorf("%d became %d", n, got)
		}
	}
	for _, n := range []int{-1, 101, 1 << 30} {
		a := b.call(b.caller, "ListTasks", fmt.Sprintf(`{"pageSize":%d}`, n))
		wantReason(t, a, "INVALID_PARAMS")
		if a.Error != nil && a.Error.field() != "pageSize" {
			t.Errorf("%d: field %q", n, a.Error.field())
		}
	}
	wantReason(t, b.call(b.caller, "ListTasks", `{"pageToken":"made up"}`), "INVALID_PARAMS")
}

// pages reads all pages, and calls between after each.
func (b *bed) pages(size int, between func(page int)) (ids []string) {
	b.t.Helper()
	for token, n := "", 0; ; n++ {
		got := b.list(fmt.Sprintf(`{"pageSize":%d,"pageToken":%q}`, size, token))
		ids = append(ids, got.ids()...)
		if token = *got.NextPageToken; token == "" {
			return ids
		}
		if between != nil {
			between(n)
		}
	}
}

// testPagesUnderChange is section 3.1.4: whoever reads page after page sees every task
// that does not change once, whatever becomes of others meanwhile.
func testPagesUnderChange(t *testing.T, b *bed) {
	var still []string
	for i := range 12 {
		still = append(still, b.bring(fmt.Sprint("still-", i), "input_required").ID)
	}
	var moving []string
	for i := range 4 {
		moving = append(moving, b.send(b.caller, fmt.Sprint("moves-", i)).ID)
	}
	got := b.pages(5, func(page int) {
		b.send(b.caller, fmt.Sprint("new-", page)) // ahead of every page to come
		if page < len(moving) {
			b.call(b.caller, "CancelTask", fmt.Sprintf(`{"id":%q}`, moving[page])) // likewise
		}
	})
	count := map[string]int{}
	for _, id := range got {
		count[id]++
	}
	for _, id := range still {
		if count[id] != 1 {
			t.Errorf("%s was listed %d times", id, count[id])
		}
	}
	for id, n := range count {
		if n > 1 {
			t.Errorf("%s was listed %d times", id, n)
		}
	}
}

// testPagesOverTies is section 3.1.4 where it says nothing: among tasks whose status
// changed at the same time, the order is one and the same.
func testPagesOverTies(t *testing.T, b *bed) {
	const n = 40
	var senders sync.WaitGroup
	for i := range n {
		senders.Go(func() { b.send(b.caller, fmt.Sprint(i)) }) // accepted together, at few different times
	}
	senders.Wait()
	whole := b.list(`{"pageSize":100}`)
	if len(whole.Tasks) != n {
		t.Fatalf("the list has %d of %d tasks", len(whole.Tasks), n)
	}
	times := map[string]bool{}
	for i, task := range whole.Tasks {
		times[task.Status.Timestamp] = true
		if i > 0 && whole.Tasks[i-1].Status.Timestamp < task.Status.Timestamp {
			t.Errorf("%s stands before %s", whole.Tasks[i-1].Status.Timestamp, task.Status.Timestamp)
		}
	}
	if len(times) == n {
		t.Skipf("no two of %d tasks were accepted within one millisecond", n)
	}
	for _, size := range []int{1, 3, 7} {
		if got := b.pages(size, nil); !slices.Equal(got, whole.ids()) {
			t.Errorf("pages of %d: %v, want %v", size, got, whole.ids())
		}
	}
}

// testArtifactsDoNotMove is section 3.1.4 where it says two things: the order is that
// of the status, and an artifact changes none.
func testArtifactsDoNotMove(t *testing.T, b *bed) {
	old := b.bring("old", "working")
	newer := b.bring("newer", "input_required")
	b.chunk(old.ID, "a", false)
	if got := b.list(`{}`).ids(); !slices.Equal(got, []string{newer.ID, old.ID}) {
		t.Errorf("order %v, want %v", got, []string{newer.ID, old.ID})
	}
	if now := b.get(old.ID).Status.Timestamp; now != old.Status.Timestamp {
		t.Errorf("the status was of %s and is of %s", old.Status.Timestamp, now)
	}
}

// testMessageToWorking is section 3.4.3 where it leaves room: a message to a task that
// is being worked on joins its history at once, is handed to the worker, and changes
// neither the state nor who holds the task.
func testMessageToWorking(t *testing.T, b *bed) {
	sent := b.bring("hi", "working")
	got := decode[struct{ Task task }](t, b.sendTo(sent.ID, "by the way")).Task
	if got.ID != sent.ID || got.Status.State != protocol("working") || len(got.History) != 2 {
		t.Errorf("got %+v", got)
	}
	var beat wire.Heartbeat
	b.v1("POST", sent.ID+"/heartbeat", nil, &beat)
	if len(beat.Messages) != 1 || beat.Messages[0].MessageID != "m-by the way" {
		t.Errorf("the worker was handed %+v", beat.Messages)
	}
	b.conclude(sent.ID, "completed")
	if got := b.get(sent.ID); got.Status.State != protocol("completed") || len(got.History) != 2 {
		t.Errorf("got %+v", got)
	}
}

// testCancelAtEveryState is section 3.1.5.
func testCancelAtEveryState(t *testing.T, b *bed) {
	for _, state := range append([]string{"submitted", "working"}, append(questions, ends...)...) {
		a := b.call(b.caller, "CancelTask", fmt.Sprintf(`{"id":%q,"metadata":{"why":"x"}}`, b.bring(state, state).ID))
		switch state {
		case "completed", "failed", "rejected":
			wantReason(t, a, "TASK_NOT_CANCELABLE")
		default: // canceled too: once more is the same
			if got := decode[task](t, a); got.Status.State != protocol("canceled") {
				t.Errorf("%s: %+v", state, got)
			}
		}
	}
}

// testTerminalIsFinal is section 4.1.3 and 3.1.1: nothing changes a task that has
// ended, whatever its agent or caller sends. What follows is a new task.
func testTerminalIsFinal(t *testing.T, b *bed) {
	for _, state := range ends {
		sent := b.send(b.caller, state)
		b.next()
		if state == "canceled" {
			b.lead(sent.ID, state)
		} else {
			b.conclude(sent.ID, state)
		}
		get := func() string {
			return b.call(b.caller, "GetTask", fmt.Sprintf(`{"id":%q}`, sent.ID)).Body
		}
		before := get()
		for _, late := range append(ends[:3:3], questions...) {
			if late == state {
				continue
			}
			if status := b.conclude(sent.ID, late); status != 409 {
				t.Errorf("%s, then a report of %s: %d", state, late, status)
			}
		}
		wantReason(t, b.sendTo(sent.ID, "more"), "UNSUPPORTED_OPERATION")
		wantReason(t, b.call(b.caller, "SendStreamingMessage", message("more", fmt.Sprintf(`"taskId":%q,`, sent.ID), "")), "UNSUPPORTED_OPERATION")
		if after := get(); after != before {
			t.Errorf("%s changed:\n%s\n%s", state, before, after)
		}
		about := fmt.Sprintf(`"contextId":%q,`, b.get(sent.ID).ContextID)
		if f, _ := b.speak.(*formerBinding); f == nil || !f.proto { // which has no words for it
			about += fmt.Sprintf(`"referenceTaskIds":[%q],`, sent.ID)
		}
		next := decode[struct{ Task task }](t, b.call(b.caller, "SendMessage", message("refine", about, immediately))).Task
		if next.ID == sent.ID || next.ContextID != b.get(sent.ID).ContextID {
			t.Errorf("refinement: %+v", next)
		}
		b.lead(next.ID, "completed")
	}
}

// testQuestionAndAnswer is section 4.1.3: an answer brings a task that asks back to
// work, as often as it asks.
func testQuestionAndAnswer(t *testing.T, b *bed) {
	got := b.bring("hi", "input_required")
	for _, state := range []string{"input_required", "auth_required", "completed"} {
		a := decode[struct{ Task task }](t, b.sendTo(got.ID, "answer")).Task
		if a.ID != got.ID || a.Status.State == protocol("completed") {
			t.Errorf("after an answer: %+v", a)
		}
		b.lead(got.ID, state)
		if now := b.get(got.ID); now.Status.State != protocol(state) {
			t.Errorf("state %s, want %s", now.Status.State, state)
		}
	}
	if n := len(b.get(got.ID).History); n != 7 {
		t.Errorf("%d messages, want the first, three questions and three answers; the last word is in the status", n)
	}
}

// testAuthRequired is section 7.6: the task waits, says why, keeps its streams open,
// and takes messages; that it waits proves nothing about anybody.
func testAuthRequired(t *testing.T, b *bed) {
	sent := b.send(b.caller, "hi")
	s := b.stream(b.caller, "SubscribeToTask", subscribe(sent.ID))
	b.lead(sent.ID, "auth_required")
	got := b.get(sent.ID)
	if got.Status.State != protocol("auth_required") || !strings.Contains(string(got.Status.Message), "says auth_required") {
		t.Errorf("got %+v", got)
	}
	wantReason(t, b.call(b.other, "SendMessage", message("x", fmt.Sprintf(`"taskId":%q,`, sent.ID), immediately)), "TASK_NOT_FOUND")
	decode[struct{ Task task }](t, b.sendTo(sent.ID, "done"))
	b.lead(sent.ID, "completed")
	all := s.states()
	want := []string{"1:task SUBMITTED", "2:WORKING", "3:AUTH_REQUIRED", "4:WORKING", "5:COMPLETED"}
	if b.former() { // whose streams end with a question
		want = want[:3]
	}
	if !sameStates(all, want) {
		t.Errorf("stream %v, want %v", all, want)
	}
}

// sameStates compares what a stream told, but for the numbers, which not every binding
// has.
func sameStates(got, want []string) bool {
	return slices.EqualFunc(got, want, func(a, b string) bool {
		_, a, _ = strings.Cut(a, ":")
		_, b, _ = strings.Cut(b, ":")
		return a == b
	})
}
