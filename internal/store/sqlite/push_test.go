package sqlite

import (
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// What nobody can reach any more must not stay in the file.
func TestPushRowsGoWithTheirConfigurationAndTheirTask(t *testing.T) {
	s, ctx, l := openTemp(t), t.Context(), hub.DefaultLimits()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, handle := range []string{"ann", "dev"} {
		must(s.CreateAddress(ctx, address(handle)))
	}
	ref, ann := hub.TaskRef{ID: "1"}, hub.Viewer{Address: "id-ann"}
	_, err := s.Send(ctx, hub.Send{
		Caller: "id-ann", Callee: "id-dev", TaskID: ref.ID, ContextID: "ctx", Limits: l,
		Message: []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`), Push: &hub.PushConfig{ID: "a", URL: "https://a", Version: "1.0"},
	})
	must(err)
	_, err = s.PutPush(ctx, ref, ann, hub.PushConfig{ID: "b", URL: "https://b", Version: "1.0"}, l)
	must(err)
	_, err = s.Cancel(ctx, ref, ann)
	must(err)
	for range 2 {
		jobs, _, err := s.LendPushes(ctx, 10, time.Minute)
		must(err)
		for _, j := range jobs {
			must(s.SettlePush(ctx, j, hub.PushOutcome{Error: "no", GiveUp: true}))
		}
	}
	rows := func() (n [2]int64) {
		t.Helper()
		must(s.read(ctx, func(c *conn) error {
			r, err := c.one("SELECT (SELECT count(*) FROM push), (SELECT count(*) FROM push_failure)")
			n = [2]int64{r.int(0), r.int(1)}
			return err
		}))
		return n
	}
	if got := rows(); got != [2]int64{2, 3} {
		t.Fatalf("%v configurations and failures, want 2 and 3", got)
	}
	_, err = s.DeletePush(ctx, ref, ann, "a")
	must(err)
	if got := rows(); got != [2]int64{1, 1} {
		t.Errorf("after one was deleted: %v configurations and failures, want 1 and 1", got)
	}
	_, err = s.Prune(ctx, time.Now().Add(time.Hour), 10)
	must(err)
	if got := rows(); got != [2]int64{} {
		t.Errorf("after the task was pruned: %v configurations and failures, want none", got)
	}
}

// Numbers of configurations are not reused while a later one is there; a task that has
// used them all up must not reach into the rows of the next.
func TestATaskKeepsToItsOwnConfigurations(t *testing.T) {
	s, ctx, l := openTemp(t), t.Context(), hub.DefaultLimits()
	for _, handle := range []string{"ann", "dev"} {
		if err := s.CreateAddress(ctx, address(handle)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"1", "2"} {
		_, err := s.Send(ctx, hub.Send{
			Caller: "id-ann", Callee: "id-dev", TaskID: id, ContextID: "ctx", Limits: l,
			Message: []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`), Push: &hub.PushConfig{ID: "a", URL: "https://a", Version: "1.0"},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := s.write(ctx, func(t *tx) error {
		_, err := t.exec("UPDATE push SET k = ? WHERE k = ?", key(1, maxNumber), key(1, 1))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string) error {
		_, err := s.PutPush(ctx, hub.TaskRef{ID: "1"}, hub.Viewer{Address: "id-ann"}, hub.PushConfig{ID: id, URL: "https://b", Version: "1.0"}, l)
		return err
	}
	if err := put("b"); hub.KindOf(err) != hub.TooLarge {
		t.Errorf("one more gave %v, want too large", err)
	}
	if err := put("a"); err != nil {
		t.Errorf("replacing the last one gave %v", err)
	}
}
