package crash

import (
	"fmt"
	"slices"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// line is what the activity tells of a task in one line.
type line struct {
	kind         hub.ActivityKind
	seq, attempt int64
}

// told is what is known of a task from its lines.
type told struct {
	line
	end hub.State // terminal if they tell of its end
}

var endKinds = map[hub.ActivityKind]hub.State{
	hub.ActCompleted: hub.Completed, hub.ActFailed: hub.Failed, hub.ActRejected: hub.Rejected, hub.ActCanceled: hub.Canceled,
}

// afterwards is what may be told of a task after its end.
var afterwards = []hub.ActivityKind{hub.ActUndelivered, hub.ActCancelSeen, hub.ActLateReply}

// follow reads all lines of a task in the order of the feed: it is sent first and ends last,
// each claim is the next one, and what it is told under never goes back. If that is not so,
// why says what is wrong.
func follow(lines []line) (t told, why string) {
	if len(lines) == 0 {
		return t, "the activity tells nothing of it"
	}
	for i, l := range lines {
		claims := int64(0)
		if l.kind == hub.ActClaimed {
			claims = 1
		}
		if (l.kind == hub.ActSent) != (i == 0) || l.seq < t.seq || l.attempt != t.attempt+claims ||
			t.end.Terminal() && !slices.Contains(afterwards, l.kind) {
			return t, fmt.Sprintf("its line %d in the activity cannot come there: %v", i+1, lines)
		}
		t.line = l
		if state, is := endKinds[l.kind]; is {
			t.end = state
		}
	}
	return t, ""
}

// followAll reads the lines of many tasks.
func followAll(lines map[string][]line) (problems []string) {
	for id, list := range lines {
		if _, why := follow(list); why != "" {
			problems = append(problems, "task "+id+": "+why)
		}
	}
	return problems
}

func TestLinesOfATaskMustBeInOrder(t *testing.T) {
	sent, claimed, progress := line{hub.ActSent, 1, 0}, line{hub.ActClaimed, 2, 1}, line{hub.ActProgress, 3, 1}
	expired, again, done := line{hub.ActLeaseExpired, 3, 1}, line{hub.ActClaimed, 3, 2}, line{hub.ActCompleted, 4, 2}
	late := line{hub.ActLateReply, 4, 2}
	for name, c := range map[string]struct {
		may   bool
		lines []line
	}{
		"a whole life":                 {true, []line{sent, claimed, progress, expired, again, done, late}},
		"nothing":                      {false, nil},
		"claimed before it was sent":   {false, []line{claimed, sent}},
		"sent twice":                   {false, []line{sent, sent}},
		"a claim that is missing":      {false, []line{sent, again}},
		"a claim told twice":           {false, []line{sent, claimed, claimed}},
		"progress before its claim":    {false, []line{sent, progress, claimed}},
		"ended before it was claimed":  {false, []line{sent, claimed, expired, done, again}},
		"an end told twice":            {false, []line{sent, claimed, expired, again, done, done}},
		"progress after the end":       {false, []line{sent, claimed, expired, again, done, {hub.ActProgress, 4, 2}}},
		"an earlier event after later": {false, []line{sent, claimed, progress, {hub.ActMessage, 2, 1}}},
	} {
		if _, why := follow(c.lines); (why == "") != c.may {
			t.Errorf("%s: it is said %q", name, why)
		}
	}
}
