package wire_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

func TestTimesHaveMilliseconds(t *testing.T) {
	east := time.FixedZone("east", 2*60*60)
	for want, in := range map[string]time.Time{
		`"2026-07-01T10:00:00.000Z"`: time.Date(2026, 7, 1, 12, 0, 0, 0, east),
		`"2026-07-01T10:00:00.120Z"`: time.Date(2026, 7, 1, 10, 0, 0, 120e6, time.UTC),
		`"2026-07-01T10:00:00.001Z"`: time.Date(2026, 7, 1, 10, 0, 0, 1_999_999, time.UTC),
	} {
		got, err := json.Marshal(wire.Time{Time: in})
		if err != nil || string(got) != want {
			t.Errorf("%s is written %s, %v; want %s", in, got, err, want)
		}
		var back wire.Time
		if err := json.Unmarshal(got, &back); err != nil || !back.Equal(in.Truncate(time.Millisecond)) {
			t.Errorf("%s is read as %s, %v", got, back, err)
		}
	}
	if _, err := json.Marshal(wire.Time{Time: time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)}); err == nil {
		t.Error("a year of five digits was written")
	}
}

func TestNoTimeIsNull(t *testing.T) {
	b, err := json.Marshal(wire.Heartbeat{})
	if want := `{"state":"","cancel_requested":false,"lease_expires_at":null,"messages":null}`; err != nil || string(b) != want {
		t.Errorf("got %s, %v; want %s", b, err, want)
	}
	var h wire.Heartbeat
	if err := json.Unmarshal(b, &h); err != nil || h.LeaseExpiresAt != nil {
		t.Errorf("null is read as %v, %v", h.LeaseExpiresAt, err)
	}
	if err := json.Unmarshal([]byte(`{"lease_expires_at":"tomorrow"}`), &h); err == nil {
		t.Error("what is no time was read as one")
	}
}
