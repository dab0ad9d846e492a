package hub

import (
	"strconv"
	"strings"
	"time"
)

// Party is one end of a task.
type Party struct {
	ID     string // address id
	Handle string
	Kind   AddressKind
}

// Task is a task as a reader sees it at one moment. What Load left out is nil.
type Task struct {
	ID, ContextID  string
	Caller, Callee Party
	State          State
	StateAt        time.Time
	// StatusMessage is the canonical message of the current status, or nil.
	StatusMessage []byte
	Phase         Phase
	// Seq is the number of the newest event.
	Seq int64
	// Error is why the task failed, in the callee's or the hub's words.
	Error string
	// Tags and Metadata are canonical JSON objects, or nil.
	Tags, Metadata []byte

	ParentTask string // the task this one was sent from, or empty
	ParentCall string // the call this one was sent from, or empty
	Run        string // the id of the task at the root; its own when nobody delegated it
	Trace      string // the W3C traceparent it was sent with, or empty
	RequeueOf  string // the failed task that this one repeats, or empty

	Attempt  int // grows with each claim, and tells them apart; 0 before the first. For people: Handouts
	Failures int // lost deliveries since the last question
	// Dispatched says of a task as it was claimed that its dispatch was begun along with
	// that.
	Dispatched    bool
	LeaseUntil    time.Time
	Due           time.Time // while ready: when a backoff ends, at the latest with the deadline; zero if it is ready now
	Deadline      time.Time
	CancelOutcome CancelOutcome

	CreatedAt, ClaimedAt, EndedAt, ReadAt, LastPolledAt time.Time
	PollCount                                           int

	// Pushes is how many push-notification configurations the task has.
	Pushes int
	// Messages is how many messages the task has, those that callees asked with
	// included.
	Messages int
	// History is the messages of the task in order, without the one that
	// StatusMessage holds; trimmed as Load says.
	History []Message
	// Artifacts is the folded artifacts in the order of their first appearance.
	Artifacts [][]byte
}

// CallID is the ledger's id of the call that this task is: the task's own id.
func (t *Task) CallID() string { return t.ID }

// ClaimID names a claim: what a callee sends as X-Claim.
func (t *Task) ClaimID() string {
	if t.Handouts() == 0 {
		return ""
	}
	return ClaimID(t.ID, t.Attempt)
}

// Handouts is how often the task was claimed.
func (t *Task) Handouts() int { return Handouts(t.Attempt) }

// attemptBits is how many bits of an attempt count the claims of its task.
const attemptBits = 20

// Handouts is how many claims there were up to an attempt. It is the attempt itself but
// for tasks that were unfinished when the hub was restored from a backup.
func Handouts(attempt int) int { return attempt & (1<<attemptBits - 1) }

// restoreEpoch is where the seconds of restores count from: the beginning of 2026. Up to
// 2298 the numbers that are made of them fit into 53 bits.
const restoreEpoch = 1_767_225_600

// AfterRestore is an attempt as it goes on counting in a hub that is restored from a
// backup: the upper bits get the time of that, which is later than in any number up to
// newest. Attempts that were made after the backup, or after an earlier restore of it,
// do not come again.
func AfterRestore(attempt int, at time.Time, newest int) int {
	return max(int(at.Unix()-restoreEpoch), newest>>attemptBits+1)<<attemptBits | Handouts(attempt)
}

// Pending reports whether the caller still has something to wait for or to read.
func (t *Task) Pending() bool { return !t.State.Terminal() || t.ReadAt.IsZero() }

// ClaimID names the attempt-th claim of a task.
func ClaimID(task string, attempt int) string { return task + "." + strconv.Itoa(attempt) }

// ParseClaimID gives the attempt of a claim id of that task; ok is false when it
// is no claim of that task.
func ParseClaimID(task, claim string) (attempt int, ok bool) {
	rest, found := strings.CutPrefix(claim, task+".")
	if !found {
		return 0, false
	}
	n, err := strconv.Atoi(rest)
	if err != nil || n < 1 || strconv.Itoa(n) != rest {
		return 0, false
	}
	return n, true
}

// Message is one message of a task's history.
type Message struct {
	// N is its number in the task, from 1.
	N int
	// Body is canonical JSON without taskId and contextId, which its task has.
	Body []byte
	// FromCallee is false for the caller's messages.
	FromCallee bool
	// Undelivered: the task ended before its callee saw the message.
	Undelivered bool
}

// EventKind tells the two kinds of event apart.
type EventKind uint8

// The kinds of event, those of A2A's StreamResponse that change a task.
const (
	StatusEvent EventKind = iota + 1
	ArtifactEvent
)

// Event is one change of a task. Events are numbered per task, densely from 1;
// the first is always the status SUBMITTED.
type Event struct {
	Seq  int64
	Kind EventKind
	At   time.Time
	// State, of a StatusEvent.
	State State
	// Body is the canonical message of a StatusEvent (nil if none) or the canonical
	// artifact of an ArtifactEvent, without taskId and contextId.
	Body []byte
	// ArtifactID, Append and LastChunk, of an ArtifactEvent.
	ArtifactID        string
	Append, LastChunk bool
	// Metadata of the event, canonical JSON or nil.
	Metadata []byte
}

// Activity is one line of the hub-wide feed.
type Activity struct {
	Cursor  string // where to read on after this line; opaque
	At      time.Time
	Kind    ActivityKind
	Run     string
	Task    string
	Seq     int64  // the task's newest event once this happened
	Actor   string // handle of who did it; "hub" for the hub itself
	Caller  string // handle
	Callee  string // handle
	Attempt int
	// Detail adds words where the kind alone does not tell, such as a reason.
	Detail string
}

// ActivityKind names what happened.
type ActivityKind string

// What happens to tasks.
const (
	ActSent         ActivityKind = "sent"          // a caller sent a task
	ActMessage      ActivityKind = "message"       // a caller added a message
	ActAnswered     ActivityKind = "answered"      // a caller answered a question
	ActClaimed      ActivityKind = "claimed"       // a callee took it
	ActReleased     ActivityKind = "released"      // a claim was undone before its callee had it
	ActProgress     ActivityKind = "progress"      // a callee reported events
	ActAsked        ActivityKind = "asked"         // a callee asked a question
	ActCompleted    ActivityKind = "completed"     // the end
	ActFailed       ActivityKind = "failed"        // the end
	ActRejected     ActivityKind = "rejected"      // the end
	ActCanceled     ActivityKind = "canceled"      // the end
	ActCancelSeen   ActivityKind = "cancel_seen"   // the holder learnt of the cancel
	ActLeaseExpired ActivityKind = "lease_expired" // a callee went silent; offered again
	ActLost         ActivityKind = "delivery_lost" // the hub could not bring it to its callee, or got no answer; offered again
	ActUnconfirmed  ActivityKind = "unconfirmed"   // a provisional claim was not taken up; offered again
	ActRequeued     ActivityKind = "requeued"      // by hand
	ActLateReply    ActivityKind = "late_reply"    // a report came after the end and was not applied
	ActUndelivered  ActivityKind = "undelivered"   // the task ended with messages its callee never saw
	ActPushFailed   ActivityKind = "push_failed"   // a push notification was given up; not shown to the callee
)
