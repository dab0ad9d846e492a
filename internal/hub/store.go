package hub

import (
	"context"
	"time"
)

// Store keeps everything the hub owns. Each transition is one transaction: state,
// events, activity and idempotency key commit together or not at all, and a method
// returns only once its verdict, refusals included, is durable. What a transition
// needs to know of time it takes from the store's own clock.
//
// Every method that names a task takes who asks and which address was asked;
// foreign, wrong-address and missing tasks are the same NotFound. Refusals are
// *Error values. A store that cannot commit answers Unavailable, and then nothing
// of that call happened. A transition that has begun is carried through even if
// ctx ends meanwhile; the caller then gets ctx's error and does not know the
// outcome.
//
// store/storetest is this interface's definition in executable form.
type Store interface {
	Transitions
	Reads
	Directory
	Secrets
	Pushes
	Dispatches
	Presence
	// Ping reports whether the store can read and, as far as it knows, commit.
	Ping(ctx context.Context) error
	// Close ends all work in an orderly way; what was acknowledged is durable.
	Close() error
}

// Transitions change tasks.
type Transitions interface {
	// Send accepts a new task, or a message to an existing one.
	//
	// New (FollowUp empty and, with AnswerContext, no open question of this caller
	// at this callee in ContextID): state SUBMITTED, phase ready, event 1 with that
	// state, message 1, a place in the callee's ready order. Refused with
	// RateLimited when the caller already has Limits.OpenTasks unfinished tasks at
	// the callee.
	//
	// To an existing task: NotFound unless it goes from Caller to Callee; Invalid if
	// ContextID is given and not the task's; Ended if it has ended; TooLarge beyond
	// Limits.Messages or Limits.Bytes. A parked task is answered: a WORKING event,
	// ready again at the floor, ActAnswered. A ready or leased one keeps its phase
	// and state; the message waits for its holder (Heartbeat) or the next claim.
	//
	// With Key: the same key from the same caller to the same callee with the same
	// fingerprint gives the first send's task, Replayed, and changes nothing; another
	// fingerprint is refused with KeyReused. Keys count until 24 h after the end of
	// their task. A refused send leaves no key behind.
	//
	// With Claim: if anything is ready for the callee afterwards, its first task is
	// claimed in the same transaction (also when the send was a replay).
	Send(ctx context.Context, s Send) (Sent, error)

	// Claim gives the first ready task of a callee, or none when nothing is ready:
	// phase leased, attempt one higher, state WORKING (with an event if it was not).
	// Order is by rank, then age: rank = max(the callee's floor, the caller's last
	// rank) + 1 for a new task, the floor for one that comes back; the floor is the
	// rank of the last claim. So each caller advances at the same pace. A task that was
	// claimed ClaimSpec.Attempts times FAILs instead, and the next one is looked at.
	Claim(ctx context.Context, callee string, c ClaimSpec) (Claimed, error)

	// Release undoes a claim whose callee never got it, or gives it back: ready at the
	// floor, no failure. NotFound unless the task is addressed to the callee, Conflict
	// unless that very claim holds it.
	Release(ctx context.Context, callee, task string, attempt int) error

	// Lose is for a delivery that is known to be lost, and does at once what Sweep does
	// about an expired lease: offered again after a backoff, not before Loss.After has
	// passed, Failures+1 (ActLost), and beyond the address's redeliveries FAILED, which
	// says the reason. It gives the task without history and artifacts, and refuses like
	// Release. The claim may still report until the task is claimed again.
	Lose(ctx context.Context, l Loss) (*Task, error)

	// Report applies what a callee reports, all of it or nothing.
	//
	// NotFound unless the task is addressed to Callee. Attempt must be the task's
	// newest claim and that claim must not have ended with a question or a requeue by
	// hand; Attempt 0 stands for the newest claim, but only if no claim of the task ever lapsed
	// (lease expiry, unconfirmed hand-out). Otherwise Conflict. A report is accepted
	// although the lease has run out, until the task is claimed again; it renews the
	// lease, takes the task back from the ready order, and confirms a provisional
	// claim.
	//
	// Events are artifacts and WORKING statuses, applied in order. An append to an
	// artifact that the task does not have is Invalid (Field "events[i]"); a new
	// artifact with a known id replaces it. Limits: TooLarge, except for a terminal
	// report without Events, which is always accepted.
	//
	// State 0 reports events alone. Working renews, with an event if there is a
	// Message. InputRequired and AuthRequired park the task and set Failures to 0;
	// the question joins the history. A terminal state ends it; messages that no
	// holder saw are marked undelivered (ActUndelivered).
	//
	// The same settling report again under the same claim (equal Digest) changes
	// nothing and gives the task, Replayed, even after a later claim. A different one after the end is
	// Conflict and noted once per claim as ActLateReply; after a cancel it also
	// turns an unconfirmed outcome into CancelAlreadyFinished.
	//
	// With Next: unless the report is refused, the callee's first ready task is
	// claimed in the same transaction.
	Report(ctx context.Context, r Report) (Reported, error)

	// Heartbeat renews the claim that Attempt names, by the rules of Report, and
	// hands over the caller's messages that this holder has not seen (numbers
	// greater than After, when After >= 0; else those never handed over). After a
	// cancel, the last claim's heartbeat gets CancelRequested once and ever after,
	// and an unconfirmed outcome becomes CancelConfirmed (ActCancelSeen).
	Heartbeat(ctx context.Context, h Heartbeat) (Beat, error)

	// Cancel ends a task as CANCELED. NotFound unless the viewer's address sent it
	// (or sees all); NotCancelable if it ended otherwise; canceled already: the task,
	// unchanged. The outcome is CancelUnconfirmed if a claim could still report or a
	// dispatch of it is open, else CancelConfirmed.
	Cancel(ctx context.Context, ref TaskRef, by Viewer) (*Task, error)

	// Requeue is the administrator's: a leased task is taken from its holder and
	// offered again at once, no failure; one that waits for the end of a backoff is
	// offered at once, too; a ready one stays as it is; a failed one stays as it ended, and a copy
	// of it (newID, same caller, callee, context, first message, tags, metadata and
	// lineage, RequeueOf, no deadline, no push-notification configurations, whose
	// secrets are sealed for the old task) is sent, at the floor; where the original was a
	// run of its own, so is the copy. Conflict in any other phase or state, and for a failed
	// one if newID is empty.
	Requeue(ctx context.Context, task, newID string) (*Task, error)

	// Sweep does what is due, oldest first, at most limit rows: expired leases are
	// offered again after a backoff (ActLeaseExpired; Failures+1; beyond the
	// address's redeliveries the task FAILs and says why), provisional claims are
	// offered again at once without a failure (ActUnconfirmed), ended backoffs
	// become ready at the floor, and tasks beyond their deadline FAIL. With
	// leases false, claims are left alone however late they are. The limits say how long to back
	// off, and how often to redeliver where the address does not.
	Sweep(ctx context.Context, limit int, leases bool, l Limits) (Swept, error)

	// CancelQueued cancels at most limit unfinished tasks of a deleted address and
	// says how many there were.
	CancelQueued(ctx context.Context, callee string, limit int) (Swept, error)

	// Prune removes tasks that ended before the time, with all that is theirs, and
	// older activity: at most limit tasks, and fewer if they are large. A task stays
	// while its idempotency key counts, and while there is something to deliver to one of
	// its push-notification configurations that has not been due for PushPatience. The
	// activity of a task that went is not shown.
	Prune(ctx context.Context, before time.Time, limit int) (Pruned, error)

	// MarkRead records polls of callers and that they have read the end. It is not
	// acknowledged to anyone, so it may be lost in a crash.
	MarkRead(ctx context.Context, marks []ReadMark) error
}

// Reads never wait for a writer. Each is one consistent snapshot.
type Reads interface {
	// Task gives one task, NotFound unless the viewer sees it at ref's address.
	Task(ctx context.Context, ref TaskRef, by Viewer, load Load) (*Task, error)
	// Tasks lists tasks, those whose status changed last first. A page ends early
	// when what it holds exceeds about 8 MiB.
	Tasks(ctx context.Context, f TaskFilter) (TaskPage, error)
	// Events gives the events after a number, oldest first, and the state of the
	// task in the same snapshot. It stops at limit events or once their bodies
	// exceed about 1 MiB, and gives at least one if there is one.
	Events(ctx context.Context, ref TaskRef, by Viewer, after int64, limit int) (EventPage, error)
	// Activity gives the lines after a cursor that the viewer may see, oldest first;
	// Invalid for a cursor it did not make. It looks at a bounded number of lines,
	// so a page may be empty although Next moved on.
	Activity(ctx context.Context, q ActivityQuery) (ActivityPage, error)
	// QueueStats counts what is unfinished.
	QueueStats(ctx context.Context) (QueueStats, error)
	// MailboxStats counts what is unfinished of an address (its id).
	MailboxStats(ctx context.Context, address string) (MailboxStats, error)
}

// Directory keeps addresses and tokens.
type Directory interface {
	// CreateAddress adds an address; Exists if a living one has the handle.
	CreateAddress(ctx context.Context, a Address) error
	// Address finds a living address by handle or id; NotFound otherwise.
	Address(ctx context.Context, ref string) (*Address, error)
	// FormerAddress finds an address by handle or id, deleted or not, that the viewer's
	// address (for who sees all: any) has ever sent a task to; the newest if several had
	// the handle. NotFound otherwise; the hub's own addresses are never found.
	FormerAddress(ctx context.Context, ref string, by Viewer) (*Address, error)
	// Addresses lists the living addresses in the order of their handles, without
	// the hub's own.
	Addresses(ctx context.Context) ([]Address, error)
	// UpdateAddress replaces everything but the id, handle, kind, creation time and
	// endpoint.
	UpdateAddress(ctx context.Context, a Address) error
	// SetEndpoint replaces the endpoint of an address, or takes it away if e is nil;
	// NotFound if there is no such living address. An endpoint also goes with its address,
	// and when its secrets are dropped (Secrets.Reseal).
	SetEndpoint(ctx context.Context, address string, e *Endpoint) error
	// DeleteAddress marks an address deleted and revokes its tokens; its handle is
	// free again and its history stays.
	DeleteAddress(ctx context.Context, id string) error
	// DeletedAddresses lists the ids of addresses deleted before the time that still
	// have unfinished tasks.
	DeletedAddresses(ctx context.Context, before time.Time) ([]string, error)

	// CreateToken adds a token; Exists if its hash is or was another token's, revoked
	// ones included.
	CreateToken(ctx context.Context, t Token) error
	// TokenByHash finds a token that is neither revoked nor expired nor of a deleted
	// address; NotFound otherwise.
	TokenByHash(ctx context.Context, hash [32]byte) (*Token, error)
	// Tokens lists the tokens of an address that are not revoked, oldest first; if it is
	// empty, those of all addresses.
	Tokens(ctx context.Context, address string) ([]Token, error)
	// RevokeToken ends a token; NotFound if there is none such.
	RevokeToken(ctx context.Context, id string) error
}

// TaskRef names a task at the address that was asked. An empty Callee stands for
// any address.
type TaskRef struct {
	Callee string // address id
	ID     string
}

// Send is one message on its way in.
type Send struct {
	Caller, Callee string // address ids
	// TaskID and ContextID are what a new task gets; ContextID is the caller's if
	// ContextGiven, else freshly made.
	TaskID, ContextID string
	ContextGiven      bool
	// FollowUp is the task that the message is for, empty for a new one.
	FollowUp string
	// AnswerContext makes a message with ContextID alone answer this caller's open
	// question in it, if there is one (/v1's rule).
	AnswerContext bool
	// Message is canonical JSON without taskId and contextId.
	Message []byte
	// Tags and Metadata are canonical JSON objects or nil; of a new task only.
	Tags, Metadata []byte
	// Lineage, resolved; of a new task only. Run is empty for a new root.
	ParentTask, ParentCall, Run, Trace string
	// Deadline is when an unfinished task fails; zero for never.
	Deadline time.Time
	Key      *Key
	Claim    *ClaimSpec
	// Push, if not nil, is a push-notification configuration that is put in the same
	// transaction, as by PutPush; of a new task it wants all events, of another those of
	// this send onwards. A replay puts none.
	Push *PushConfig
	// Refuse, if not nil, is why this can be no new send: a replay is answered as ever, a
	// task that it may not follow up is told first, and then this is the error.
	Refuse error
	Limits Limits
}

// Key is an idempotency key.
type Key struct {
	Hash        [32]byte // of the key
	Fingerprint [32]byte // of what was sent with it
}

// ClaimSpec is how a callee wants to hold its next task.
type ClaimSpec struct {
	// Lease is how long the claim lasts without a sign of life.
	Lease time.Duration
	// Ack, if not zero, makes the claim provisional: unless the callee shows a sign
	// of life within it, the task is offered again and that is no failure.
	Ack time.Duration
	// Attempts is Limits.Attempts; 0 for no such limit.
	Attempts int
	// Dispatch, if not nil, is begun along with a task's first claim, as by BeginDispatch,
	// which saves the commit of that; Task.Dispatched says whether it was. Of it Kind,
	// Instance and Sent count.
	Dispatch *Dispatch
}

// Claimed is the outcome of a claim.
type Claimed struct {
	Task *Task // nil when nothing was ready
	// Failed is the ids of tasks that had been handed out too often and ended instead.
	Failed []string
}

// Sent is the outcome of a send.
type Sent struct {
	Task *Task // without history and artifacts
	// Created, Answered and Replayed say what the send was; none of them for a
	// message to a task under way.
	Created, Answered, Replayed bool
	// Claimed is the task claimed along with it, and Failed what ended instead, as from
	// Claim.
	Claimed *Task
	Failed  []string
}

// Loss is a delivery that is known to be lost.
type Loss struct {
	Callee, Task string
	Attempt      int
	// Reason is why, in words for caller and callee.
	Reason string
	// After is how long the task is not to be offered, if that is longer than the
	// backoff.
	After  time.Duration
	Limits Limits
}

// Report is what a callee says about a task that it holds.
type Report struct {
	Callee, Task string
	Attempt      int // 0 when the callee did not name its claim
	Events       []Event
	State        State  // 0, Working, or a settled state
	Message      []byte // of the status, canonical
	Error        string // of a failure
	Digest       [32]byte
	Next         *ClaimSpec
	Limits       Limits
}

// Reported is the outcome of a report.
type Reported struct {
	Task     *Task // without history and artifacts
	Replayed bool
	// Next is the task claimed along with it, and Failed what ended instead, as from
	// Claim.
	Next   *Task
	Failed []string
}

// Heartbeat is a sign of life from the holder of a task.
type Heartbeat struct {
	Callee, Task string
	Attempt      int
	After        int // highest message number the holder has seen; negative if it does not say
	// Lease, if not 0, is how long the claim lasts without a sign of life from now on.
	Lease time.Duration
	// Unread is for whoever cannot pass on at once what it is told. It hands over no
	// messages and counts those up to After as seen, none if that is negative; and a
	// cancel that it learns of stays unconfirmed.
	Unread bool
}

// Beat answers a heartbeat.
type Beat struct {
	State           State
	CancelRequested bool
	LeaseUntil      time.Time
	Messages        []Message
	// Unseen: there are messages that were not handed over. For who asked Unread.
	Unseen bool
}

// Swept is what a sweep changed: whom to wake, and whether more is due now.
type Swept struct {
	Tasks   []string // ids of tasks with new events
	Ready   []string // for each task that became ready, its callee's address id
	Changed int      // rows changed
	More    bool     // the limit was reached
	// Next is how long until something else is due; negative for never.
	Next time.Duration
}

// Pruned is what a prune removed, and whether there is more to remove.
type Pruned struct {
	Tasks int
	More  bool
}

// ReadMark says that the caller of a task has looked at it.
type ReadMark struct {
	Task  string
	Polls int  // how often
	End   bool // and has read its end
}

// Load says how much of a task to read.
type Load struct {
	// History is how many of the newest messages: 0 none, negative all.
	History int
	// Artifacts folds and includes the artifacts.
	Artifacts bool
	// AsOf, if not 0, gives state, status message, Seq, questions and artifacts as they
	// were after that event. It says nothing of the caller's messages, which belong to
	// no event, and of all else, which is as it is now.
	AsOf int64
}

// TaskFilter selects tasks.
type TaskFilter struct {
	By      Viewer
	Callee  string // address id, empty for any
	Context string
	State   State     // 0 for any
	Since   time.Time // status at or after; zero for any
	// Pending keeps tasks sent by the viewer's address whose end it has not read.
	Pending bool
	// Sent keeps tasks that the viewer's address sent.
	Sent   bool
	Cursor string
	Limit  int
	// Total counts all that match, which costs a scan of them.
	Total bool
	Load  Load
}

// TaskPage is one page of tasks.
type TaskPage struct {
	Tasks []*Task
	Next  string // empty on the last page
	Total int    // if asked for
}

// EventPage is some events of a task and how far it had come.
type EventPage struct {
	Events  []Event
	Context string
	State   State
	Last    int64 // the task's newest event
}

// ActivityQuery selects lines of the feed.
type ActivityQuery struct {
	By    Viewer
	After string // cursor; empty for the oldest that is kept
	// Tail, with an empty After, starts with the newest Limit lines instead.
	Tail  bool
	Limit int
}

// ActivityPage is some lines of the feed.
type ActivityPage struct {
	Lines []Activity
	Next  string // the cursor to read on from; never empty
}

// MailboxStats is the state of one mailbox.
type MailboxStats struct {
	// Ready is how many tasks wait for a callee, Open how many are unfinished in all.
	Ready, Open int
	// OldestReady is how long the longest wait for a callee is.
	OldestReady time.Duration
}

// QueueStats is the state of the queue as a whole.
type QueueStats struct {
	Ready, Leased, Parked int
	OldestReady           time.Duration // how long the longest wait for a callee is
}
