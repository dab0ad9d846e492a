package sqlite

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// What runs for every task, or for every page, must find its rows by an index: a
// million tasks later a scan would hold everybody up.
func TestNoStatementScansWhatGrows(t *testing.T) {
	s := openTemp(t)
	ctx := t.Context()
	for _, handle := range []string{"ann", "dev"} {
		if err := s.CreateAddress(ctx, address(handle)); err != nil {
			t.Fatal(err)
		}
	}
	useEverything(t, s)
	useDispatches(t, s)
	usePushes(t, s)
	allowed := map[string][]string{
		// The oldest or newest lines, a bounded number of them, by the table's own order.
		"DELETE FROM activity":             {"SCAN activity"},
		"FROM activity a LEFT JOIN task t": {"SCAN a"},
		// Two pages are made into one.
		") UNION SELECT n FROM (": {"SCAN (subquery", "USE TEMP B-TREE FOR ORDER BY"},
		// Of a handle that is not in use, all addresses are looked at, of which there are few.
		"endpoint.address = n WHERE (handle": {"SCAN address"},
		// A page of each address, of which there are few beside the tasks.
		"FROM address a CROSS JOIN task p": {"SCAN a", "USE TEMP B-TREE FOR ORDER BY"},
		// The newest failures by the table's own order; of one task, a bounded number.
		"WHERE 1 ORDER BY f.id":       {"SCAN f"},
		"f.push >= ? AND f.push <= ?": {"USE TEMP B-TREE FOR ORDER BY"},
	}
	var conns []*conn
	for range s.reading {
		conns = append(conns, <-s.readers)
	}
	for _, c := range conns {
		checkPlans(t, c, allowed)
		s.readers <- c
	}
	checkPlans(t, s.w, allowed) // nothing writes any more
}

func checkPlans(t *testing.T, c *conn, allowed map[string][]string) {
	t.Helper()
	for sql := range c.stmts {
		if !strings.Contains(sql, "task") && !strings.Contains(sql, "queue") && !strings.Contains(sql, "activity") &&
			!strings.Contains(sql, "event") && !strings.Contains(sql, "message") && !strings.Contains(sql, "lane") &&
			!strings.Contains(sql, "push") && !strings.Contains(sql, "dispatch") && !strings.Contains(sql, "endpoint.address = n WHERE n IN") {
			continue
		}
		plan, err := openPlan(c, sql)
		if err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		for _, step := range plan {
			bad := strings.HasPrefix(step, "SCAN") || strings.Contains(step, "TEMP B-TREE")
			for part, steps := range allowed {
				for _, ok := range steps {
					bad = bad && !(strings.Contains(sql, part) && strings.HasPrefix(step, ok))
				}
			}
			if bad {
				t.Errorf("%s\n  %s", sql, strings.Join(plan, "\n  "))
				break
			}
		}
	}
}

func openPlan(c *conn, sql string) (steps []string, err error) {
	st, _, err := c.c.PrepareTransient("EXPLAIN QUERY PLAN " + sql)
	if err != nil {
		return nil, err
	}
	defer func() { _ = st.Finalize() }()
	for {
		more, err := st.Step()
		if err != nil || !more {
			return steps, err
		}
		steps = append(steps, st.ColumnText(3))
	}
}

// useEverything makes the store run its statements.
func useEverything(t *testing.T, s *Store) {
	t.Helper()
	ctx, l := t.Context(), hub.DefaultLimits()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	send := func(id, followUp string, answer bool) {
		_, err := s.Send(ctx, hub.Send{
			Caller: "id-ann", Callee: "id-dev", TaskID: id, ContextID: "ctx", ContextGiven: true, FollowUp: followUp, AnswerContext: answer,
			Message: []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`), Limits: l, Key: &hub.Key{Hash: [32]byte{byte(len(id))}},
			Claim: &hub.ClaimSpec{Lease: time.Minute},
		})
		must(err)
	}
	artifact := func(more bool) []hub.Event {
		return []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", Append: more, Body: []byte(`{"artifactId":"a","parts":[{"text":"x"}]}`)}}
	}
	report := func(r hub.Report) {
		r.Callee, r.Limits = "id-dev", l
		_, err := s.Report(ctx, r)
		must(err)
	}
	send("1", "", true)
	report(hub.Report{Task: "1", Attempt: 1, Events: artifact(false)})
	report(hub.Report{Task: "1", Attempt: 1, Events: artifact(true)})
	send("12", "1", false)
	_, err := s.Heartbeat(ctx, hub.Heartbeat{Callee: "id-dev", Task: "1", Attempt: 1, After: -1})
	must(err)
	report(hub.Report{Task: "1", Attempt: 1, State: hub.InputRequired, Message: []byte(`{"messageId":"q","role":"ROLE_AGENT","parts":[{"text":"?"}]}`)})
	send("123", "", true)
	must(s.Release(ctx, "id-dev", "1", 2))
	_, err = s.Claim(ctx, "id-dev", hub.ClaimSpec{Lease: time.Minute})
	must(err)
	_, err = s.Requeue(ctx, "1", "")
	must(err)
	_, err = s.Sweep(ctx, 10, true, l)
	must(err)
	_, err = s.Cancel(ctx, hub.TaskRef{Callee: "id-dev", ID: "1"}, hub.Viewer{Address: "id-ann"})
	must(err)
	_, err = s.CancelQueued(ctx, "id-dev", 10)
	must(err)
	must(s.MarkRead(ctx, []hub.ReadMark{{Task: "1", Polls: 1, End: true}}))
	_, err = s.Prune(ctx, time.Now().Add(-time.Hour), 10)
	must(err)
	ann := hub.Viewer{Address: "id-ann"}
	for _, f := range []hub.TaskFilter{
		{By: ann}, {By: ann, Callee: "id-dev"}, {By: hub.Viewer{Address: "id-dev"}, Callee: "id-dev"},
		{By: ann, Sent: true, Since: time.Now()}, {By: hub.Viewer{All: true}, Callee: "id-dev"},
		{By: hub.Viewer{All: true}}, {By: hub.Viewer{All: true}, State: hub.Canceled, Since: time.Now()},
	} {
		_, err := s.Tasks(ctx, f)
		must(err)
		f.Cursor = makeCursor(taskOrder, time.Now().UnixMilli(), 1)
		_, err = s.Tasks(ctx, f)
		must(err)
	}
	_, err = s.Address(ctx, "dev")
	must(err)
	_, err = s.FormerAddress(ctx, "dev", ann)
	must(err)
	_, err = s.Events(ctx, hub.TaskRef{ID: "1"}, ann, 0, 10)
	must(err)
	_, err = s.Activity(ctx, hub.ActivityQuery{By: ann, Limit: 10, Tail: true})
	must(err)
	_, err = s.Activity(ctx, hub.ActivityQuery{By: ann, Limit: 10})
	must(err)
}

// usePushes makes the store run its statements on push notifications.
func usePushes(t *testing.T, s *Store) {
	t.Helper()
	ctx, l, ann, all := t.Context(), hub.DefaultLimits(), hub.Viewer{Address: "id-ann"}, hub.Viewer{All: true}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ref := hub.TaskRef{ID: "p"}
	_, err := s.Send(ctx, hub.Send{
		Caller: "id-ann", Callee: "id-dev", TaskID: ref.ID, ContextID: "ctx", Limits: l, Claim: &hub.ClaimSpec{Lease: time.Minute},
		Message: []byte(`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`), Push: &hub.PushConfig{ID: "a", URL: "https://a", Version: "1.0"},
	})
	must(err)
	settle := func(o hub.PushOutcome) {
		t.Helper()
		jobs, _, err := s.LendPushes(ctx, 10, time.Minute)
		must(err)
		for _, j := range jobs {
			must(s.SettlePush(ctx, j, o))
		}
	}
	must(s.write(ctx, func(t *tx) error { // so that the oldest failures go
		_, err := t.exec("UPDATE push SET failed = ? WHERE k > 0", failuresMax)
		return err
	}))
	settle(hub.PushOutcome{Error: "no", GiveUp: true})
	settle(hub.PushOutcome{Done: 2})
	var failures []hub.PushFailure
	for _, by := range []hub.Viewer{ann, all} {
		for _, task := range []string{"", ref.ID} {
			for _, cursor := range []string{"", makeCursor(pushFailureOrder, 0, 1<<40)} {
				failures, _, err = s.PushFailures(ctx, by, task, cursor, 10)
				must(err)
			}
		}
	}
	_, err = s.Redeliver(ctx, ann, failures[0].ID)
	must(err)
	must(s.ReleasePushes(ctx))
	_, err = s.PutPush(ctx, ref, ann, hub.PushConfig{ID: "b", URL: "https://b", Version: "1.0"}, l)
	must(err)
	_, err = s.Push(ctx, ref, ann, "b")
	must(err)
	_, err = s.TaskPushes(ctx, ref, ann)
	must(err)
	_, err = s.Report(ctx, hub.Report{Callee: "id-dev", Task: ref.ID, Attempt: 1, State: hub.Completed, Limits: l})
	must(err)
	_, err = s.DeletePush(ctx, ref, ann, "b")
	must(err)
	_, err = s.Task(ctx, ref, ann, hub.Load{History: -1, Artifacts: true, AsOf: 2})
	must(err)
	settle(hub.PushOutcome{Done: 9})
	_, err = s.Prune(ctx, time.Now().Add(time.Hour), 10)
	must(err)
}
