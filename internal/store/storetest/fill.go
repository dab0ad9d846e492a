package storetest

import (
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Fill gives a store two addresses of its own, and so many tasks in all phases: ready,
// leased, parked, done and failed, with keys, artifacts and push notifications.
func Fill(t testing.TB, s hub.Store, tasks int) {
	t.Helper()
	b := &bed{TB: t, ctx: t.Context(), s: s, clock: NewClock()}
	b.ann, b.dev = b.address("caller-"+newID()), b.address("callee-"+newID())
	for i := range tasks {
		m := newSend(b.ann, b.dev, withMessage(number("fill", i)))
		m.Key = &hub.Key{Hash: hash(m.TaskID), Fingerprint: hash("f")}
		m.Limits = hub.DefaultLimits()
		if i%2 == 0 {
			m.Push = &hub.PushConfig{ID: "p", URL: "https://example.com/hook", Version: "1.0", Sealed: []byte("sealed")}
		}
		_, err := b.s.Send(b.ctx, m)
		b.ok(err)
		if i%5 == 4 {
			continue
		}
		c, err := b.s.Claim(b.ctx, b.dev, hub.ClaimSpec{Lease: time.Hour})
		b.ok(err)
		r := hub.Report{Callee: b.dev, Task: c.Task.ID, Attempt: c.Task.Attempt, Limits: hub.DefaultLimits()}
		switch i % 5 {
		case 0:
			continue
		case 1:
			r.State, r.Message = hub.InputRequired, msg("which?")
		case 2:
			r.State, r.Events = hub.Completed, []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", Body: artifact("a", "x")}}
		case 3:
			r.State, r.Error = hub.Failed, "broken"
		}
		_, err = b.s.Report(b.ctx, r)
		b.ok(err)
	}
}
