package hub

// State is an A2A task state (spec section 4.1.3). The numbers are those of the
// protocol's enum and are what stores keep.
type State uint8

// The states of A2A 1.0.
const (
	StateUnspecified State = iota
	Submitted
	Working
	Completed
	Failed
	Canceled
	InputRequired
	Rejected
	AuthRequired
)

var stateNames = [...]string{
	"unspecified", "submitted", "working", "completed", "failed",
	"canceled", "input_required", "rejected", "auth_required",
}

var protocolNames = [...]string{
	"TASK_STATE_UNSPECIFIED", "TASK_STATE_SUBMITTED", "TASK_STATE_WORKING",
	"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED",
	"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_REJECTED", "TASK_STATE_AUTH_REQUIRED",
}

// String is the state's name in /v1: lower snake case.
func (s State) String() string {
	if int(s) >= len(stateNames) {
		return stateNames[0]
	}
	return stateNames[s]
}

// Protocol is the state's name in A2A 1.0 JSON, such as TASK_STATE_WORKING.
func (s State) Protocol() string {
	if int(s) >= len(protocolNames) {
		return protocolNames[0]
	}
	return protocolNames[s]
}

// Terminal reports whether nothing can follow: completed, failed, canceled or
// rejected.
func (s State) Terminal() bool {
	return s == Completed || s == Failed || s == Canceled || s == Rejected
}

// Interrupted reports whether the task waits for its caller: input_required or
// auth_required.
func (s State) Interrupted() bool { return s == InputRequired || s == AuthRequired }

// Settled reports whether a blocking call returns in this state (spec section
// 3.2.2): the task has ended or waits for its caller.
func (s State) Settled() bool { return s.Terminal() || s.Interrupted() }

// ParseState reads either spelling of a state; ok is false for anything else,
// "unspecified" included.
func ParseState(name string) (s State, ok bool) {
	for i := 1; i < len(stateNames); i++ {
		if name == stateNames[i] || name == protocolNames[i] {
			return State(i), true
		}
	}
	return StateUnspecified, false
}

// Phase is what the hub does with a task, apart from its A2A state.
type Phase uint8

// The phases of a task.
const (
	// Ready waits for a callee, now or after a backoff.
	Ready Phase = iota + 1
	// Leased is held by a callee until its lease ends.
	Leased
	// Parked waits for its caller to answer.
	Parked
	// Done has ended.
	Done
)

// String is the phase's name in lower case.
func (p Phase) String() string {
	switch p {
	case Ready:
		return "ready"
	case Leased:
		return "leased"
	case Parked:
		return "parked"
	case Done:
		return "done"
	}
	return "unknown"
}

// CancelOutcome says what became of the callee's work after a cancel. The task
// itself is CANCELED in every case.
type CancelOutcome uint8

// The outcomes of a cancel.
const (
	// CancelNone: the task was not canceled.
	CancelNone CancelOutcome = iota
	// CancelUnconfirmed: a callee held the task and has not been heard of since.
	CancelUnconfirmed
	// CancelConfirmed: nobody held the task, or its holder knows of the cancel.
	CancelConfirmed
	// CancelAlreadyFinished: the holder had finished and its result came too late.
	CancelAlreadyFinished
)

// String is the outcome's name in /v1, empty for CancelNone.
func (o CancelOutcome) String() string {
	switch o {
	case CancelUnconfirmed:
		return "unconfirmed"
	case CancelConfirmed:
		return "confirmed"
	case CancelAlreadyFinished:
		return "already_finished"
	case CancelNone:
	}
	return ""
}
