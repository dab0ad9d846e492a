package sqlite

import (
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// dispatched notes a dispatch of a claimed task, to an agent that calls it by a name of
// its own.
func (s *sender) dispatched(t testing.TB, k *hub.Task, remote string) (earlier *hub.Dispatch) {
	t.Helper()
	earlier, err := s.BeginDispatch(t.Context(), hub.Dispatch{Task: k.ID, Attempt: k.Attempt, Address: "id-dev", Kind: hub.RemoteDelivery, Sent: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.LinkDispatch(t.Context(), k.ID, k.Attempt, remote, ""); err != nil {
		t.Fatal(err)
	}
	return earlier
}

func (s *sender) cancel(t testing.TB, id string) *hub.Task {
	t.Helper()
	k, err := s.Cancel(t.Context(), hub.TaskRef{ID: id}, hub.Viewer{All: true})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// untold gives the dispatches whose agents are to be told of a cancel, by task.
func (s *sender) untold(t testing.TB) map[string]hub.Dispatch {
	t.Helper()
	list, err := s.CanceledDispatches(t.Context(), []string{"id-dev"}, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]hub.Dispatch)
	for _, d := range list {
		out[d.Task] = d
	}
	return out
}

// What agents had in hand at the time of a backup is followed by the hub that is restored
// from it, and they are told of cancels, of before and after.
func TestARestoredHubKnowsWhatItsAgentsHave(t *testing.T) {
	src := newSender(t, openTemp(t))
	for range 3 {
		if _, err := src.send(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	held, asked, canceled := src.claim(t), src.claim(t), src.claim(t)
	for _, k := range []*hub.Task{held, asked, canceled} {
		src.dispatched(t, k, "theirs-"+k.ID)
	}
	if err := src.report(t, asked.ID, asked.Attempt, hub.InputRequired); err != nil {
		t.Fatal(err)
	}
	if err := src.EndDispatch(t.Context(), hub.DispatchEnd{Task: asked.ID, Attempt: asked.Attempt, Outcome: "answered", Sent: true, Keep: true}); err != nil {
		t.Fatal(err)
	}
	src.cancel(t, canceled.ID)

	got, done := restored(t, src.opt.Dir)
	if done.TakenBack != 1 {
		t.Errorf("%d claims were taken back, want 1", done.TakenBack)
	}
	if k := got.cancel(t, asked.ID); k.CancelOutcome != hub.CancelUnconfirmed {
		t.Errorf("the cancel of a task whose agent has asked is %v", k.CancelOutcome)
	}
	untold := got.untold(t)
	for _, k := range []*hub.Task{asked, canceled} {
		if d := untold[k.ID]; d.RemoteTask != "theirs-"+k.ID || d.Attempt != k.Attempt {
			t.Errorf("to be told of %s is %+v", k.ID, d)
		}
		if err := got.SettleCancel(t.Context(), k.ID, untold[k.ID].Attempt, hub.CancelConfirmed); err != nil {
			t.Error(err)
		}
	}
	if len(untold) != 2 || len(got.untold(t)) != 0 {
		t.Errorf("to be told were %v, and are %v", untold, got.untold(t))
	}
	again := got.claim(t)
	if again.ID != held.ID || again.Failures != 0 {
		t.Fatalf("claimed %s with %d failures", again.ID, again.Failures)
	}
	earlier := got.dispatched(t, again, "theirs-"+held.ID)
	if earlier == nil || earlier.RemoteTask != "theirs-"+held.ID || earlier.Attempt != held.Attempt || earlier.Outcome != hub.DispatchLost {
		t.Errorf("earlier is %+v", earlier)
	}
	page, err := got.ListDispatches(t.Context(), hub.DispatchFilter{Task: held.ID})
	if err != nil || len(page.Dispatches) != 2 || page.Dispatches[0].Attempt != again.Attempt {
		t.Errorf("the dispatches are %+v, error %v", page.Dispatches, err)
	}
}

// useDispatches makes the store run its statements on dispatches.
func useDispatches(t *testing.T, s *Store) {
	t.Helper()
	x := &sender{Store: s, text: "hello"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Send(t.Context(), hub.Send{
		Caller: "id-ann", Callee: "id-dev", TaskID: "d", ContextID: "ctx", Limits: hub.DefaultLimits(),
		Message: []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`),
	})
	must(err)
	for range 2 {
		k := x.claim(t)
		x.dispatched(t, k, "r")
		must(s.EndDispatch(t.Context(), hub.DispatchEnd{Task: "d", Attempt: k.Attempt, Outcome: "lost", Keep: true}))
		if k.Handouts() == 1 {
			must(s.Release(t.Context(), "id-dev", "d", k.Attempt))
		}
	}
	x.cancel(t, "d")
	x.untold(t)
	for _, f := range []hub.DispatchFilter{{Task: "d"}, {Address: "id-dev"}, {Task: "d", Address: "id-dev"}} {
		for _, f.Cursor = range []string{"", makeCursor(dispatchOrder, time.Now().UnixMilli(), 1<<40)} {
			_, err := s.ListDispatches(t.Context(), f)
			must(err)
		}
	}
	must(s.SettleCancel(t.Context(), "d", 2, hub.CancelConfirmed))
}
