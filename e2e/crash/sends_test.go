package crash

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// attempt is one as the hub lists it.
type attempt struct {
	TaskID       string    `json:"task_id"`
	Attempt      int       `json:"attempt"`
	Outcome      string    `json:"outcome"`
	Sent         bool      `json:"sent"`
	Detail       string    `json:"detail"`
	RemoteTaskID *string   `json:"remote_task_id"`
	Begun        time.Time `json:"begun_at"`
}

// most is how often a task may be sent: once, and redelivered five times.
const most = 1 + 5

// delivered is what there is to know of how a task was brought to its agent: the sends
// that the agent saw, and the attempts that the hub has.
type delivered struct {
	state     string
	canceled  bool // by its caller
	untouched bool // nothing was killed while it was under way
	memory    bool // the agent knows its tasks after it was killed
	dated     bool // the agent notes when a send came
	told      bool // and which attempt it is
	sends     []noted
	attempts  []attempt // the oldest first
}

// problems compares both sides. The hub may think that it has sent what the agent never
// saw, since it writes that down first, but never the other way round.
func (d *delivered) problems() (list []string) {
	problem := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	sent := 0
	for i, a := range d.attempts {
		if a.Sent {
			sent++
		}
		if i > 0 && a.Attempt <= d.attempts[i-1].Attempt {
			problem("attempt %d comes after attempt %d", a.Attempt, d.attempts[i-1].Attempt)
		}
	}
	if len(d.sends) > sent {
		problem("the agent saw %d sends, of which the attempts admit %d", len(d.sends), sent)
	}
	if sent > most {
		problem("it was sent %d times, and %d is the most", sent, most)
	}
	if d.untouched && !d.canceled && len(d.sends) != sent {
		problem("nothing happened to it, and the agent saw %d sends of %d", len(d.sends), sent)
	}
	switch {
	case d.state == "canceled" && d.canceled:
	case d.state == "failed" && sent == most:
	case d.state != "completed":
		problem("it is %s after %d sends", d.state, sent)
	case len(d.sends) == 0:
		problem("it is completed, and no agent has seen it")
	}
	return append(append(list, d.perAttempt()...), d.unheardOf()...)
}

// unheardOf finds what the hub says of the agent and the agent knows nothing of.
func (d *delivered) unheardOf() (list []string) {
	for _, a := range d.attempts {
		named := slices.ContainsFunc(d.sends, func(s noted) bool { return a.RemoteTaskID != nil && s.Own == *a.RemoteTaskID })
		if d.dated && a.RemoteTaskID != nil && !named {
			list = append(list, fmt.Sprintf("attempt %d says that the agent calls it %s, which it does not", a.Attempt, *a.RemoteTaskID))
		}
		told := slices.ContainsFunc(d.sends, func(s noted) bool { return s.Attempt == a.Attempt })
		if d.told && !told && (a.Outcome == "answered" || a.Outcome == "accepted") {
			list = append(list, fmt.Sprintf("attempt %d was %s, and the agent has not seen it", a.Attempt, a.Outcome))
		}
	}
	return list
}

// perAttempt finds the attempt of each send.
func (d *delivered) perAttempt() (list []string) {
	problem := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	seen := map[int]int{}
	for _, s := range d.sends {
		if s.Message != d.sends[0].Message {
			problem("it was sent as the message %s and as %s", d.sends[0].Message, s.Message)
		}
		i := d.attemptOf(s)
		switch {
		case i == unknownAttempt:
			continue
		case i < 0:
			problem("a send of attempt %d at %s is of none that the hub knows", s.Attempt, time.UnixMilli(s.At).Format(time.StampMilli))
			continue
		case !d.attempts[i].Sent:
			problem("attempt %d says that it was not sent, and the agent saw it", d.attempts[i].Attempt)
		}
		if seen[i]++; seen[i] == 2 {
			problem("attempt %d was sent more than once", d.attempts[i].Attempt)
		}
		named := slices.IndexFunc(d.attempts[:i], func(a attempt) bool { return a.RemoteTaskID != nil })
		if d.memory && named >= 0 {
			problem("the agent has had the task since attempt %d, and got it again with attempt %d", d.attempts[named].Attempt, d.attempts[i].Attempt)
		}
	}
	return list
}

const unknownAttempt = -2

// attemptOf gives the index of the attempt of a send: that which the agent was told, or the
// newest that had begun. It is -1 if there is none.
func (d *delivered) attemptOf(s noted) int {
	switch {
	case s.Attempt > 0:
		return slices.IndexFunc(d.attempts, func(a attempt) bool { return a.Attempt == s.Attempt })
	case !d.dated:
		return unknownAttempt
	}
	for i := range slices.Backward(d.attempts) {
		if d.attempts[i].Begun.UnixMilli() <= s.At {
			return i
		}
	}
	return -1
}

// The comparison finds what cannot be, and nothing in what may be.
func TestSendsFindWhatCannotBe(t *testing.T) {
	at := func(ms int64) noted { return noted{At: ms, Message: "m"} }
	told := func(attempt int) noted { return noted{Attempt: attempt, Message: "m"} }
	try := func(n int, begun int64, sent bool) attempt {
		return attempt{Attempt: n, Begun: time.UnixMilli(begun), Sent: sent}
	}
	named := func(a attempt) attempt { a.RemoteTaskID = new(string); return a }
	answered := func(a attempt) attempt { a.Outcome = "answered"; return a }
	well := delivered{state: "completed", dated: true}
	with := func(d delivered, sends []noted, attempts ...attempt) delivered {
		d.sends, d.attempts = sends, attempts
		return d
	}
	untouched, memory, hook, canceled, failed := well, well, well, well, well
	untouched.untouched, memory.memory, hook.told = true, true, true
	canceled.state, failed.state = "canceled", "failed"
	var six []attempt
	for n := range most {
		six = append(six, try(n+1, int64(n), true))
	}
	for name, c := range map[string]struct {
		may bool
		d   delivered
	}{
		"one send":                         {true, with(untouched, []noted{at(5)}, try(1, 5, true))},
		"one that was told its attempt":    {true, with(untouched, []noted{told(2)}, try(1, 5, false), try(2, 6, true))},
		"sent and not seen":                {true, with(well, []noted{at(9)}, try(1, 5, true), try(2, 8, true))},
		"sent again to a forgetful agent":  {true, with(well, []noted{at(5), at(9)}, named(try(1, 5, true)), try(2, 8, true))},
		"sent again before it had a name":  {true, with(memory, []noted{at(5), at(9)}, try(1, 5, true), named(try(2, 8, true)))},
		"given up":                         {true, with(failed, nil, six...)},
		"never sent, and canceled":         {true, delivered{state: "canceled", canceled: true}},
		"more seen than sent":              {false, with(well, []noted{at(5), at(9)}, try(1, 5, true))},
		"seen, and said to be not sent":    {false, with(well, []noted{at(9)}, try(1, 5, true), try(2, 8, false))},
		"an attempt that nobody knows":     {false, with(well, []noted{told(3)}, try(1, 5, true))},
		"sent before the first attempt":    {false, with(well, []noted{at(4)}, try(1, 5, true))},
		"two sends of one attempt":         {false, with(well, []noted{at(8), at(9)}, try(1, 5, true), try(2, 8, true))},
		"sent and not seen without reason": {false, with(untouched, []noted{at(9)}, try(1, 5, true), try(2, 8, true))},
		"sent again to one that has it":    {false, with(memory, []noted{at(5), at(9)}, named(try(1, 5, true)), try(2, 8, true))},
		"a name that it never gave":        {false, with(well, []noted{{At: 5, Own: "x"}}, named(try(1, 5, true)))},
		"answered by nobody":               {false, with(hook, []noted{told(2)}, answered(try(1, 5, true)), try(2, 6, true))},
		"answered at the second attempt":   {true, with(hook, []noted{told(2)}, try(1, 5, true), answered(try(2, 6, true)))},
		"another message":                  {false, with(well, []noted{at(5), {At: 9, Message: "n"}}, try(1, 5, true), try(2, 8, true))},
		"seven times":                      {false, with(well, []noted{at(5)}, append(six, try(most+1, 9, true))...)},
		"failed too early":                 {false, with(failed, []noted{at(5)}, try(1, 5, true))},
		"canceled by nobody":               {false, with(canceled, []noted{at(5)}, try(1, 5, true))},
		"completed by nobody":              {false, with(well, nil, try(1, 5, true))},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.d.problems(); (len(got) == 0) != c.may {
				t.Errorf("it may be: %v; found %q", c.may, got)
			}
		})
	}
}
