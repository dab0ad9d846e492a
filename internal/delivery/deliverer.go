package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Deliverer brings tasks to endpoints of one kind. It may be called from several
// goroutines. deliverytest holds it to what is said here.
type Deliverer interface {
	// Deliver brings a task to its callee, and returns when it is known what came of
	// that, or soon after ctx has ended. The cause of that is ErrCanceled when the task
	// was canceled: a Deliverer that is a Canceler then still finds out what the agent
	// calls the task, for some seconds, so that the agent can be told. Anything else
	// means that the hub stops, or holds the task no longer.
	Deliver(ctx context.Context, d Delivery) Outcome
}

// Canceler is a Deliverer whose agents can be told that a task was canceled.
type Canceler interface {
	// Cancel tells the agent that has the task, if d says what it calls it. With an
	// error the agent could not be asked, and that is tried again.
	Cancel(ctx context.Context, e hub.Endpoint, d hub.Dispatch) (hub.CancelOutcome, error)
}

// Capacity is a Deliverer that knows how many tasks an endpoint takes.
type Capacity interface {
	// Slots is how many tasks are delivered to e at once; 0 for Options.Slots. It may
	// change as more is known of the agent, and must not block.
	Slots(e hub.Endpoint) int
}

// ErrCanceled is the cause of the end of a Deliver's context when its task was canceled.
var ErrCanceled = errors.New("the task was canceled")

// Delivery is a claimed task on its way to its callee.
type Delivery struct {
	// Task has its history.
	Task     *hub.Task
	Endpoint hub.Endpoint
	// Lease is how long the callee may be silent if it is to report by itself: the
	// claim lasts until then once it has said so.
	Lease time.Duration
	// OnUnknown is the address's policy for a send of which nobody knows whether it
	// arrived: "resend" or "fail".
	OnUnknown string
	// Earlier is the newest dispatch of the task before this one that may have reached
	// the agent; nil if there was none. The agent is asked for the task by what it calls
	// it, if that is known, before it is sent again. One of the same attempt is that of
	// an instance whose connection broke and that is back: then the task is asked for and
	// never sent, so that each attempt is one send at the most.
	Earlier *hub.Dispatch
	// Unsure: the task may have been sent since the agent gave it the name that Earlier has.
	// If the agent does not know that, nobody knows whether it has the task.
	Unsure bool
	// Sent is called as soon as some of the task may have left the hub, which shows that
	// the endpoint can be reached, however long the callee takes.
	Sent func()
	// Link keeps what the agent calls the task. It is called as soon as that is known,
	// and again if it changes, and returns at once.
	Link func(remoteTask, remoteContext string)
	// Progress reports events of the callee while it is at the task: Report has Events,
	// or State Working with a Message. An error says that the claim is of no use any
	// more; then Deliver returns.
	Progress func(r hub.Report) error
	// Messages has what the caller adds to the task while it is delivered. What is taken
	// from it counts as seen by the agent. For those who do not read it the messages wait
	// for the next claim, or are undelivered.
	Messages <-chan hub.Message
}

// Kind is what became of a delivery.
type Kind uint8

// The kinds of outcome.
const (
	// Answered: Report is the callee's.
	Answered Kind = iota + 1
	// Accepted: the callee has the task and will report by itself; Report is what it
	// has said so far.
	Accepted
	// Refused: the callee or its answer is such that trying again is of no use. The
	// task fails with Reason.
	Refused
	// Unsent: nothing of the task has left the hub. It is no failure.
	Unsent
	// Lost: the task may have arrived, and there is no answer, or one that asks to try
	// again.
	Lost
)

// String is the kind's name in metrics and in /v1.
func (k Kind) String() string {
	switch k {
	case Answered:
		return "answered"
	case Accepted:
		return "accepted"
	case Refused:
		return "refused"
	case Unsent:
		return hub.DispatchUnsent
	case Lost:
		return "lost"
	}
	return "unknown"
}

// Outcome says what became of a delivery.
type Outcome struct {
	Kind Kind
	// Report has Events, State, Message, Error and Digest; of Answered and Accepted.
	Report hub.Report
	// Reason is why not, as the end of a sentence about the callee ("it answered 503"),
	// of Refused and Lost. Callers of the address see it, so it names no hosts. Of Unsent
	// it is for the owner of the address alone.
	Reason string
	// Busy: Unsent because the hub had no room, which says nothing of the endpoint.
	Busy bool
	// After is how long the callee asked to be left alone.
	After time.Duration
	// Status is the HTTP status of the answer, 0 for none.
	Status int
}
