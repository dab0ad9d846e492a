package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// What a blocking send gives is what a read gives, whichever way it came about.
func TestABlockingSendGivesWhatAReadGives(t *testing.T) {
	artifact := func(id, text string, more bool) hub.Event {
		return hub.Event{Kind: hub.ArtifactEvent, ArtifactID: id, Append: more, Body: []byte(`{"artifactId":"` + id + `","parts":[{"text":"` + text + `"}]}`)}
	}
	for name, work := range map[string]func(e *engine.Engine, held *hub.Task) []engine.ReportRequest{
		"a result with one artifact": func(_ *engine.Engine, held *hub.Task) []engine.ReportRequest {
			return []engine.ReportRequest{report(held, hub.Completed)}
		},
		"no artifact at all": func(_ *engine.Engine, held *hub.Task) []engine.ReportRequest {
			return []engine.ReportRequest{{State: hub.Completed}}
		},
		"a failure with a message": func(_ *engine.Engine, held *hub.Task) []engine.ReportRequest {
			return []engine.ReportRequest{{State: hub.Failed, Error: "broken", Message: canon.TextMessage("f", true, "broken")}}
		},
		"two artifacts in the result": func(_ *engine.Engine, held *hub.Task) []engine.ReportRequest {
			return []engine.ReportRequest{{State: hub.Completed, Events: []hub.Event{artifact("a", "1", false), artifact("b", "2", false)}}}
		},
		"an artifact in pieces": func(_ *engine.Engine, held *hub.Task) []engine.ReportRequest {
			return []engine.ReportRequest{
				{Events: []hub.Event{artifact("a", "1", false)}},
				{State: hub.Completed, Events: []hub.Event{artifact("a", "2", true)}},
			}
		},
		"progress before the end": func(_ *engine.Engine, held *hub.Task) []engine.ReportRequest {
			return []engine.ReportRequest{
				{State: hub.Working, Message: canon.TextMessage("p", true, "half")},
				{State: hub.Completed, Events: []hub.Event{artifact("a", "1", false)}},
			}
		},
		"a message while it was worked on": func(e *engine.Engine, held *hub.Task) []engine.ReportRequest {
			more := send("callee", "and this")
			more.TaskID = held.ID
			if _, err := e.Send(t.Context(), principal("caller"), more); err != nil {
				t.Error(err)
			}
			return []engine.ReportRequest{report(held, hub.Completed)}
		},
		"a question": func(_ *engine.Engine, held *hub.Task) []engine.ReportRequest {
			return []engine.ReportRequest{{State: hub.InputRequired, Message: canon.TextMessage("q", true, "which?")}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e, _ := open(t, engine.Options{})
			done := make(chan *hub.Task, 1)
			load := hub.Load{History: -1, Artifacts: true}
			go func() {
				out, err := e.SendAndWait(t.Context(), principal("caller"), send("callee", "hi"), time.Minute, load)
				if err != nil {
					t.Error(err)
				}
				done <- out.Task
			}()
			held := next(t, e, time.Minute, time.Minute)
			for _, r := range work(e, held) {
				r.Task, r.Claim = held.ID, held.ClaimID()
				if _, err := e.Report(t.Context(), principal("callee"), r); err != nil {
					t.Fatal(err)
				}
			}
			got, want := <-done, get(t, e, held.ID)
			polls := cmpopts.IgnoreFields(hub.Task{}, "ReadAt", "LastPolledAt", "PollCount")
			if d := cmp.Diff(want, got, polls, cmpopts.EquateEmpty()); d != "" {
				t.Errorf("the send differs from a read (-read +send)\n%s", d)
			}
		})
	}
}
