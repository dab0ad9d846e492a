package storetest

import (
	"fmt"
	"hash/maphash"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// The sequential model of one callee's tasks, for checking concurrent histories.
// It is smaller than model: states are compared and hashed millions of times.

const (
	linearTasks    = 8  // tasks of one callee in a history
	linearAttempts = 24 // claims of one task: more than a history has
)

// boxState is all there is to one callee; its tasks are named by their index.
type boxState struct {
	now   int64 // ms since the history began
	floor int16
	last  [2]int16 // rank by caller
	sent  int8     // how many were accepted: the next one's age
	tasks [linearTasks]taskState
}

type taskState struct {
	caller            int8
	age               int8 // 0: not sent
	state             hub.State
	phase             hub.Phase
	outcome           hub.CancelOutcome
	attempt, failures int8
	seq               int8
	rank              int16
	until             int64 // end of the lease or, while ready, of the backoff; 0 for none
	lapsed            bool
	open              bool                      // the newest claim may still report
	settled           [linearAttempts]hub.State // by attempt: what it settled the task with
}

type linearOp uint8

const (
	opSend linearOp = iota
	opFollow
	opClaim
	opReport
	opBeat
	opCancel
	opRelease
	opSweep
	opAdvance
	opRead
)

// linearIn is what a client asked of one callee.
type linearIn struct {
	box     string // handle of the callee
	op      linearOp
	task    int
	caller  int8
	attempt int
	state   hub.State
	more    bool // with Claim or Next
	by      time.Duration
}

// linearOut is what it was answered.
type linearOut struct {
	kind    hub.Kind // of the refusal
	refused bool
	task    seen // the operation's own
	flag    bool // created, answered, replayed or cancel requested, by the operation
	next    seen // the task claimed along with it
}

// seen is what an answer says of a task; the zero value is none.
type seen struct {
	some    bool
	index   int
	state   hub.State
	phase   hub.Phase
	outcome hub.CancelOutcome
	attempt int8
	fails   int8
	seq     int8
}

func (b *boxState) see(i int) seen {
	t := &b.tasks[i]
	return seen{true, i, t.state, t.phase, t.outcome, t.attempt, t.failures, t.seq}
}

func refuse(k hub.Kind) linearOut { return linearOut{kind: k, refused: true} }

func linearModel() porcupine.Model {
	key := maphash.MakeSeed()
	return porcupine.Model{
		Partition: partition,
		Init:      func() any { return boxState{} },
		Step: func(state, input, output any) (bool, any) {
			b, in := state.(boxState), input.(linearIn)
			want := b.step(in)
			return want == output.(linearOut), b
		},
		Hash: func(state any) uint64 { return maphash.Comparable(key, state.(boxState)) },
		DescribeOperation: func(input, output any) string {
			return describe(input.(linearIn), output.(linearOut))
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

func partition(history []porcupine.Operation) [][]porcupine.Operation {
	boxes := map[string][]porcupine.Operation{}
	for _, o := range history {
		box := o.Input.(linearIn).box
		boxes[box] = append(boxes[box], o)
	}
	var all [][]porcupine.Operation
	for _, ops := range boxes {
		all = append(all, ops)
	}
	return all
}

func describe(in linearIn, out linearOut) string {
	name := [...]string{"send", "follow", "claim", "report", "beat", "cancel", "release", "sweep", "advance", "read"}[in.op]
	s := fmt.Sprintf("%s(task %d, attempt %d, %v, %v)", name, in.task, in.attempt, in.state, in.by)
	if out.refused {
		return fmt.Sprintf("%s refused: %d", s, out.kind)
	}
	return fmt.Sprintf("%s = %+v %v, next %+v", s, out.task, out.flag, out.next)
}

// step does one operation and gives the answer.
func (b *boxState) step(in linearIn) linearOut {
	switch in.op {
	case opAdvance:
		b.now += in.by.Milliseconds()
		return linearOut{}
	case opSweep:
		b.sweep()
		return linearOut{}
	case opClaim:
		return linearOut{task: b.claim()}
	case opSend:
		return b.send(in)
	}
	t := &b.tasks[in.task]
	if t.age == 0 {
		return refuse(hub.NotFound)
	}
	switch in.op {
	case opRelease:
		if t.phase != hub.Leased || int(t.attempt) != in.attempt {
			return refuse(hub.Conflict)
		}
		b.offer(t)
		return linearOut{}
	case opFollow:
		return b.follow(t, in)
	case opReport:
		return b.report(t, in)
	case opBeat:
		return b.beat(t, in)
	case opCancel:
		return b.cancel(t, in)
	}
	return linearOut{task: b.see(in.task)}
}

func (b *boxState) offer(t *taskState) { t.phase, t.rank, t.until = hub.Ready, b.floor, 0 }

func (t *taskState) enter(s hub.State) { t.state = s; t.seq++ }

// send sends a task under a key of its own, so that a second one is a replay.
func (b *boxState) send(in linearIn) (out linearOut) {
	t := &b.tasks[in.task]
	if t.age == 0 {
		out.flag = true
		b.sent++
		rank := max(b.floor, b.last[in.caller]) + 1
		*t = taskState{caller: in.caller, age: b.sent, phase: hub.Ready, rank: rank}
		b.last[in.caller] = rank
		t.enter(hub.Submitted)
	}
	out.task = b.see(in.task)
	if in.more {
		out.next = b.claim()
	}
	return out
}

func (b *boxState) follow(t *taskState, in linearIn) (out linearOut) {
	if t.phase == hub.Done {
		return refuse(hub.Ended)
	}
	if t.phase == hub.Parked {
		out.flag = true
		t.enter(hub.Working)
		b.offer(t)
	}
	out.task = b.see(in.task)
	return out
}

func (b *boxState) claim() seen {
	first := -1
	for i := range b.tasks {
		t := &b.tasks[i]
		if t.age == 0 || t.phase != hub.Ready || t.until != 0 {
			continue
		}
		if first < 0 || t.rank < b.tasks[first].rank || t.rank == b.tasks[first].rank && t.age < b.tasks[first].age {
			first = i
		}
	}
	if first < 0 {
		return seen{}
	}
	t := &b.tasks[first]
	b.floor = t.rank
	t.attempt++
	t.open = true
	t.phase, t.until = hub.Leased, b.now+linearLease.Milliseconds()
	if t.state != hub.Working {
		t.enter(hub.Working)
	}
	return b.see(first)
}

// claimOf is the claim that attempt stands for, 0 for none.
func (t *taskState) claimOf(attempt int) int {
	if attempt == 0 && !t.lapsed {
		return int(t.attempt)
	}
	return attempt
}

// settledBy reports whether a claim has settled the task with that very state.
func (t *taskState) settledBy(attempt int, s hub.State) bool {
	return s.Settled() && attempt < len(t.settled) && t.settled[attempt] == s
}

func (b *boxState) report(t *taskState, in linearIn) (out linearOut) {
	attempt := t.claimOf(in.attempt)
	switch {
	case t.settledBy(attempt, in.state):
		out.flag = true
	case t.phase == hub.Done:
		if in.state.Settled() && t.outcome == hub.CancelUnconfirmed && attempt == int(t.attempt) {
			t.outcome = hub.CancelAlreadyFinished
		}
		return refuse(hub.Conflict)
	case !t.open || attempt != int(t.attempt):
		return refuse(hub.Conflict)
	default:
		b.apply(t, in.state)
	}
	out.task = b.see(in.task)
	if in.more {
		out.next = b.claim()
	}
	return out
}

func (b *boxState) apply(t *taskState, s hub.State) {
	t.phase, t.until = hub.Leased, b.now+linearLease.Milliseconds()
	t.enter(s)
	switch {
	case s.Terminal():
		t.phase, t.until, t.open, t.settled[t.attempt] = hub.Done, 0, false, s
	case s.Interrupted():
		t.phase, t.until, t.open, t.settled[t.attempt], t.failures = hub.Parked, 0, false, s, 0
	}
}

func (b *boxState) beat(t *taskState, in linearIn) (out linearOut) {
	attempt := t.claimOf(in.attempt)
	switch {
	case t.state == hub.Canceled && attempt > 0 && attempt == int(t.attempt):
		if t.outcome == hub.CancelUnconfirmed {
			t.outcome = hub.CancelConfirmed
		}
		return linearOut{flag: true, task: seen{some: true, index: in.task, state: hub.Canceled}}
	case !t.open || attempt != int(t.attempt):
		return refuse(hub.Conflict)
	}
	t.phase, t.until = hub.Leased, b.now+linearLease.Milliseconds()
	return linearOut{task: seen{some: true, index: in.task, state: t.state}}
}

func (b *boxState) cancel(t *taskState, in linearIn) (out linearOut) {
	if t.phase == hub.Done && t.state != hub.Canceled {
		return refuse(hub.NotCancelable)
	}
	if t.phase != hub.Done {
		t.outcome = hub.CancelConfirmed
		if t.open {
			t.outcome = hub.CancelUnconfirmed
		}
		t.phase, t.until, t.open = hub.Done, 0, false
		t.enter(hub.Canceled)
	}
	return linearOut{task: b.see(in.task)}
}

func (b *boxState) sweep() {
	for i := range b.tasks {
		t := &b.tasks[i]
		if t.age == 0 || t.until == 0 || t.until > b.now {
			continue
		}
		if t.phase == hub.Ready {
			b.offer(t)
			continue
		}
		t.lapsed = true
		t.failures++
		if int(t.failures) > linearLimits().Redeliveries {
			t.phase, t.until, t.open = hub.Done, 0, false
			t.enter(hub.Failed)
			continue
		}
		b.offer(t)
		t.until = b.now + linearLimits().Backoff(int(t.failures)).Milliseconds()
	}
}
