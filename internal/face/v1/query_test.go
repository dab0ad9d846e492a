package v1

import (
	"net/url"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

func TestNumbersInAQueryMayHaveDecimals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		query string
		want  time.Duration
		ok    bool
	}{
		{"", 0, true}, {"wait=", 0, true}, {"wait=0", 0, true}, {"wait=0.0", 0, true}, {"wait=30", 30 * time.Second, true},
		{"wait=30.0", 30 * time.Second, true}, {"wait=0.25", 250 * time.Millisecond, true}, {"wait=60.000", time.Minute, true},
		{"wait=60.001", 0, false}, {"wait=61", 0, false}, {"wait=-1", 0, false}, {"wait=1e1", 0, false}, {"wait=NaN", 0, false},
		{"wait=inf", 0, false}, {"wait=0x10", 0, false}, {"wait=1_0", 0, false}, {"wait=1.2.3", 0, false}, {"wait=.", 0, false},
		{"wait=ten", 0, false}, {"wait=00000000000000000000000000000000001", 0, false},
	} {
		q, _ := url.ParseQuery(c.query)
		got, err := seconds(q, "wait", time.Minute)
		if (err == nil) != c.ok || err == nil && got != c.want {
			t.Errorf("%s: %v, %v; want %v, %v", c.query, got, err, c.want, c.ok)
		}
		if err != nil && fieldOf(t, err) != "wait" {
			t.Errorf("%s: field %q", c.query, fieldOf(t, err))
		}
	}
}

func TestTaskFilterReadsTheQuery(t *testing.T) {
	t.Parallel()
	me := hub.Principal{Address: "a"}
	for _, c := range []struct{ query, field string }{
		{"", "-"}, {"state=working&pending=true&sent=1&limit=100.0&cursor=x&context_id=y", "-"}, {"state=TASK_STATE_FAILED", "-"},
		{"state=done", "state"}, {"state=unspecified", "state"}, {"pending=yes", "pending"}, {"sent=2", "sent"},
		{"limit=0", "limit"}, {"limit=101", "limit"}, {"limit=1.5", "limit"}, {"limit=x", "limit"},
	} {
		q, _ := url.ParseQuery(c.query)
		_, err := taskFilter(q, me)
		if got := fieldOf(t, err); got != c.field {
			t.Errorf("%s: field %q, want %q", c.query, got, c.field)
		}
	}
	q, _ := url.ParseQuery("state=working&pending=true&sent=1&context_id=y")
	f, _ := taskFilter(q, me)
	if f.State != hub.Working || !f.Pending || !f.Sent || f.Context != "y" || f.Limit != 50 || f.By.Address != "a" {
		t.Errorf("%+v", f)
	}
}
