package a2a_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

type taskList struct {
	Tasks               []task
	NextPageToken       *string
	PageSize, TotalSize *int
}

func (l taskList) ids() (ids []string) {
	for _, t := range l.Tasks {
		ids = append(ids, t.ID)
	}
	return ids
}

// testListTasks is section 3.1.4: filters, pages, order, and what is always there.
func testListTasks(t *testing.T, b *bed) {
	list := func(token, params string) taskList {
		t.Helper()
		return decode[taskList](t, b.call(token, "ListTasks", params))
	}
	empty := b.call(b.caller, "ListTasks", `{}`)
	if !sameJSON(string(empty.Result), `{"tasks":[],"nextPageToken":"","pageSize":50,"totalSize":0}`) {
		t.Errorf("empty: %s", empty.Result)
	}

	var ids []string // newest status first
	for i := range 5 {
		ids = append(ids, b.send(b.caller, fmt.Sprint(i)).ID)
	}
	theirs := b.send(b.other, "theirs").ID
	b.finish(b.next().ID, "completed", "done") // the first, which so becomes the newest
	slices.Reverse(ids)
	ids = append([]string{ids[4]}, ids[:4]...)

	if got := list(b.caller, `{}`).ids(); !slices.Equal(got, ids) {
		t.Errorf("order %v, want %v", got, ids)
	}
	if got := list(b.other, `{}`).ids(); !slices.Equal(got, []string{theirs}) {
		t.Errorf("another caller sees %v", got)
	}
	if got := *list(b.coder, `{}`).TotalSize; got != 6 {
		t.Errorf("the callee sees %d", got)
	}

	var paged []string
	for token := ""; ; {
		page := list(b.caller, fmt.Sprintf(`{"pageSize":2,"pageToken":%q}`, token))
		if *page.TotalSize != 5 || *page.PageSize != 2 || len(page.Tasks) > 2 {
			t.Errorf("page %+v", page)
		}
		paged = append(paged, page.ids()...)
		if token = *page.NextPageToken; token == "" {
			break
		}
	}
	if !slices.Equal(paged, ids) {
		t.Errorf("pages %v, want %v", paged, ids)
	}

	done := list(b.caller, `{"status":"TASK_STATE_COMPLETED","includeArtifacts":true}`)
	if !slices.Equal(done.ids(), ids[:1]) || len(done.Tasks[0].Artifacts) != 1 {
		t.Errorf("completed: %+v", done)
	}
	if body := b.call(b.caller, "ListTasks", `{}`).Body; strings.Contains(body, `"artifacts"`) {
		t.Errorf("artifacts unasked: %s", body)
	}
	if got := list(b.caller, fmt.Sprintf(`{"contextId":%q}`, b.get(ids[2]).ContextID)).ids(); !slices.Equal(got, ids[2:3]) {
		t.Errorf("by context: %v", got)
	}
	since := b.get(ids[0]).Status.Timestamp
	if got := list(b.caller, fmt.Sprintf(`{"statusTimestampAfter":%q}`, since)).ids(); len(got) == 0 || got[0] != ids[0] {
		t.Errorf("at or after %s: %v", since, got)
	}
	if got := list(b.caller, `{"statusTimestampAfter":"2999-01-01T00:00:00Z"}`); len(got.Tasks) != 0 || *got.TotalSize != 0 {
		t.Errorf("in the future: %+v", got)
	}
}

// testCancel is sections 3.1.5 and 3.3.1: at once, whatever the callee does, again
// the same answer, and not after another end.
func testCancel(t *testing.T, b *bed) {
	cancel := func(token, id string) answer {
		return b.call(token, "CancelTask", fmt.Sprintf(`{"id":%q,"metadata":{"why":"x"}}`, id))
	}
	queued := b.send(b.caller, "queued").ID
	first := cancel(b.caller, queued)
	if got := decode[task](t, first); got.Status.State != "TASK_STATE_CANCELED" || len(got.History) != 1 {
		t.Errorf("queued: %+v", got)
	}
	if again := cancel(b.caller, queued); again.Body != first.Body {
		t.Errorf("again:\n%s\n%s", first.Body, again.Body)
	}

	asked := b.send(b.caller, "asked").ID
	b.finish(b.next().ID, "input_required", "")
	held := b.send(b.caller, "held").ID
	b.next()
	for _, id := range []string{asked, held} {
		if got := decode[task](t, cancel(b.caller, id)); got.Status.State != "TASK_STATE_CANCELED" {
			t.Errorf("got %+v", got)
		}
	}
	b.finish(held, "completed", "late")
	if got := b.get(held); got.Status.State != "TASK_STATE_CANCELED" || len(got.Artifacts) != 0 {
		t.Errorf("a late result undid the cancel: %+v", got)
	}

	done := b.send(b.caller, "done").ID
	b.finish(b.next().ID, "completed", "")
	wantReason(t, cancel(b.caller, done), "TASK_NOT_CANCELABLE")
	wantReason(t, cancel(b.caller, "no-such-task"), "TASK_NOT_FOUND")
	wantReason(t, cancel(b.coder, b.send(b.caller, "theirs").ID), "TASK_NOT_FOUND")
}

// testCancelRacesResult: one of the two wins, and everybody is told which.
func testCancelRacesResult(t *testing.T, b *bed) {
	for range 50 {
		id := b.send(b.caller, "x").ID
		b.next()
		var both sync.WaitGroup
		both.Go(func() { b.finish(id, "completed", "") })
		a := b.call(b.caller, "CancelTask", fmt.Sprintf(`{"id":%q}`, id))
		both.Wait()
		want := "TASK_STATE_CANCELED"
		if a.Error != nil {
			wantReason(t, a, "TASK_NOT_CANCELABLE")
			want = "TASK_STATE_COMPLETED"
		}
		if got := b.get(id).Status.State; got != want {
			t.Errorf("answered %s, and the task is %s", a.Body, got)
		}
	}
}
