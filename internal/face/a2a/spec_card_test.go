package a2a

import (
	"fmt"
	"testing"
	"time"
)

// TestCardLastModified is spec section 8.6.1: a card says since when it has been as it
// is, and a card that changes says something else.
func TestCardLastModified(t *testing.T) {
	var c changes
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i, step := range []struct {
		card, etag string
		want       time.Duration // after start
	}{
		{"/a/x", "1", 0}, {"/a/x", "1", 0}, {"/a/y", "1", 2 * time.Second}, {"/a/x", "2", 3 * time.Second},
		{"/a/x", "2", 3 * time.Second}, {"/a/y", "1", 2 * time.Second}, {"/a/x", "1", 6 * time.Second},
	} {
		now := start.Add(time.Duration(i) * time.Second)
		if got := c.since(step.card, step.etag, now); !got.Equal(start.Add(step.want)) {
			t.Errorf("step %d: %s", i, got)
		}
	}
	for i := range 3 * maxChanges {
		c.since(fmt.Sprint(i), "1", start)
	}
	if len(c.seen) > maxChanges {
		t.Errorf("%d cards are remembered", len(c.seen))
	}
}
