package v1

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/wire"
)

func TestAttempt(t *testing.T) {
	begun := time.Date(2026, 12, 1, 9, 0, 0, 0, time.UTC)
	remote := "remote-1"
	for name, c := range map[string]struct {
		d    hub.Dispatch
		want wire.Attempt
	}{
		"under way": {
			hub.Dispatch{Task: "t", Attempt: 1, Kind: hub.TunnelDelivery, Instance: "laptop", Sent: true, BegunAt: begun},
			wire.Attempt{TaskID: "t", Attempt: 1, Delivery: "tunnel", Instance: "laptop", Outcome: "open", Sent: true, BegunAt: wire.Time{Time: begun}},
		},
		"ended, and after a restore": {
			hub.Dispatch{
				Task: "t", Attempt: hub.AfterRestore(2, begun, 2), Kind: hub.RemoteDelivery, Sent: true, Outcome: "lost", Status: 503,
				Took: 1500 * time.Millisecond, Detail: "it answered 503", RemoteTask: remote, BegunAt: begun, EndedAt: begun.Add(time.Minute),
			},
			wire.Attempt{
				TaskID: "t", Attempt: 2, Delivery: "a2a", Outcome: "lost", Sent: true, Status: 503, LatencyMS: 1500, Detail: "it answered 503",
				RemoteTaskID: &remote, BegunAt: wire.Time{Time: begun}, EndedAt: wire.At(begun.Add(time.Minute)),
			},
		},
	} {
		if diff := cmp.Diff(c.want, attempt(&c.d)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
