package crash

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// What somebody did to a task and was answered.
type deed int

const (
	sending deed = iota
	saying       // a message, which answers a question if there is one
	canceling
	claiming
	reporting
	looking
)

// happened is one request and what its answer says; an unknown one may have had its
// effect or not, at any time after it was made.
type happened struct {
	task    string
	what    deed
	callee  string
	attempt int
	state   string // what was reported, empty for progress; or what was seen
	refused bool
	unknown bool
}

// history is everything that happened, as those know it who asked for it.
type history struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

func newHistory() *history { return &history{began: time.Now()} }

// now is the time by the history's clock.
func (h *history) now() int64 { return time.Since(h.began).Nanoseconds() }

// add notes what began at a time and has its answer now.
func (h *history) add(begun int64, what happened) {
	end := h.now()
	if what.unknown {
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{Input: what, Call: begun, Return: end})
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ops)
}

// checkHistory checks that everything that was answered, on whichever replica, can have
// happened one thing after the other to each task.
func (w *world) checkHistory() {
	w.history.mu.Lock()
	defer w.history.mu.Unlock()
	switch checkHistory(w.history.ops) {
	case porcupine.Illegal:
		w.problem("the history is not linearizable: %s", firstIllegal(w.history.ops))
	case porcupine.Unknown:
		w.problem("porcupine did not come to an end with the history of %d operations", len(w.history.ops))
	}
}

func checkHistory(ops []porcupine.Operation) porcupine.CheckResult {
	model := taskModel()
	return porcupine.CheckOperationsTimeout(model.ToModel(), ops, 2*time.Minute)
}

// firstIllegal tells the history of one task that cannot be.
func firstIllegal(ops []porcupine.Operation) string {
	model := taskModel()
	for _, part := range byTask(ops) {
		if porcupine.CheckOperations(model.ToModel(), part) {
			continue
		}
		text := ""
		for _, o := range part {
			text += "\n" + describe(o)
		}
		return text
	}
	return ""
}

// lifeOf is what the model knows about one task.
type lifeOf struct {
	sent    bool
	frail   bool // the hub may end it as failed by itself, at any time
	state   string
	attempt int
	// loose: it ended while nobody knew whether it had been claimed once more.
	loose bool
}

// taskModel is of each task apart from all others, so it leaves open in which order tasks
// are claimed: across replicas that is not exact, since a claim passes over what another
// replica has locked.
func taskModel() *porcupine.NondeterministicModel {
	return &porcupine.NondeterministicModel{
		Partition: byTask,
		Init:      func() []any { return []any{lifeOf{}} },
		Step: func(state, input, _ any) []any {
			var next []any
			l, h := state.(lifeOf), input.(happened)
			for _, before := range l.silently(h) {
				if after, ok := before.step(h); ok {
					next = append(next, after)
				}
			}
			if h.unknown {
				next = append(next, l)
			}
			return next
		},
	}
}

// silently gives what a task may have become without anybody knowing: a claim whose
// answer was lost, and then its failure if it is redelivered only once.
func (l lifeOf) silently(h happened) []lifeOf {
	list := []lifeOf{l}
	if l.sent && !terminal(l.state) && l.state != "input_required" && h.what == looking && h.attempt > l.attempt {
		l.state, l.attempt = "working", h.attempt
		list = append(list, l)
	}
	if l.sent && !terminal(l.state) && l.frail {
		l.state, l.loose = "failed", true
		list = append(list, l)
	}
	return list
}

// step is what a request does; ok is false if its answer cannot be.
func (l lifeOf) step(h happened) (_ lifeOf, ok bool) {
	open := l.sent && !terminal(l.state)
	switch h.what {
	case sending:
		return lifeOf{sent: true, frail: h.callee == frail, state: "submitted"}, !l.sent
	case saying:
		if l.state == "input_required" {
			l.state = "working"
		}
		return l, open
	case canceling:
		if h.refused {
			return l, l.sent && !open && l.state != "canceled"
		}
		ok := open || l.state == "canceled"
		l.state, l.loose = "canceled", l.loose || open
		return l, ok
	case claiming:
		ok := open && l.state != "input_required" && h.attempt > l.attempt
		l.state, l.attempt = "working", h.attempt
		return l, ok
	case reporting:
		ok := open && l.state != "input_required" && h.attempt == l.attempt
		if h.state != "" {
			l.state = h.state
		}
		return l, ok
	default:
		ok := l.sent && l.state == h.state && (l.attempt == h.attempt || l.loose && h.attempt > l.attempt)
		l.attempt, l.loose = h.attempt, false
		return l, ok
	}
}

// byTask gives the history of each task.
func byTask(ops []porcupine.Operation) [][]porcupine.Operation {
	place := map[string]int{}
	var parts [][]porcupine.Operation
	for _, o := range ops {
		id := o.Input.(happened).task
		n, known := place[id]
		if !known {
			n = len(parts)
			place[id] = n
			parts = append(parts, nil)
		}
		parts[n] = append(parts[n], o)
	}
	return parts
}

// The model finds each kind of damage, and none in what may be.
func TestHistoryFindsWhatCannotBe(t *testing.T) {
	claim := func(n int) happened { return happened{what: claiming, attempt: n} }
	report := func(n int, state string) happened { return happened{what: reporting, attempt: n, state: state} }
	look := func(n int, state string) happened { return happened{what: looking, attempt: n, state: state} }
	send, sendFrail := happened{what: sending, callee: steady}, happened{what: sending, callee: frail}
	for name, c := range map[string]struct {
		may bool
		all []happened
	}{
		"an ordinary life":             {true, []happened{send, claim(1), report(1, ""), report(1, "input_required"), {what: saying}, claim(2), report(2, "completed"), look(2, "completed")}},
		"a claim nobody heard of":      {true, []happened{send, look(1, "working"), claim(2), report(2, "completed")}},
		"lost too often":               {true, []happened{sendFrail, claim(1), look(1, "failed")}},
		"a cancel repeated":            {true, []happened{send, {what: canceling}, {what: canceling}, look(0, "canceled")}},
		"claimed and canceled unseen":  {true, []happened{send, {what: canceling}, look(1, "canceled"), look(1, "canceled")}},
		"an attempt after the end":     {false, []happened{send, {what: canceling}, look(1, "canceled"), look(2, "canceled")}},
		"an answer that never came":    {true, []happened{send, claim(1), {what: reporting, attempt: 1, state: "completed", unknown: true}, claim(2)}},
		"two sends of one task":        {false, []happened{send, send}},
		"two claims of one number":     {false, []happened{send, claim(1), claim(1)}},
		"a claim of what has ended":    {false, []happened{send, claim(1), report(1, "completed"), claim(2)}},
		"a report of an older claim":   {false, []happened{send, claim(1), claim(2), report(1, "completed")}},
		"two ends":                     {false, []happened{send, claim(1), report(1, "completed"), {what: canceling}}},
		"a state that goes backwards":  {false, []happened{send, claim(1), look(1, "working"), look(0, "submitted")}},
		"an end that goes backwards":   {false, []happened{send, claim(1), report(1, "completed"), look(1, "working")}},
		"an end out of nothing":        {false, []happened{send, claim(1), look(1, "failed")}},
		"a cancel refused without end": {false, []happened{send, {what: canceling, refused: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			var ops []porcupine.Operation
			for i, h := range c.all {
				h.task = "x"
				o := porcupine.Operation{Input: h, Call: int64(2 * i), Return: int64(2*i + 1)}
				if h.unknown {
					o.Return = math.MaxInt64
				}
				ops = append(ops, o)
			}
			if got := checkHistory(ops) == porcupine.Ok; got != c.may {
				t.Errorf("it may be: %v, want %v", got, c.may)
			}
		})
	}
}

var deedNames = map[deed]string{sending: "send", saying: "message", canceling: "cancel", claiming: "claim", reporting: "report", looking: "look"}

func describe(o porcupine.Operation) string {
	h := o.Input.(happened)
	text := fmt.Sprintf("%12.3f ms to %12.3f ms: %s", float64(o.Call)/1e6, float64(o.Return)/1e6, deedNames[h.what])
	if h.callee != "" {
		text += " to " + h.callee
	}
	if h.attempt > 0 {
		text += fmt.Sprintf(" attempt %d", h.attempt)
	}
	if h.state != "" {
		text += " " + h.state
	}
	if h.refused {
		text += ", refused"
	}
	if h.unknown {
		text += ", unanswered"
	}
	return h.task + " " + text
}
