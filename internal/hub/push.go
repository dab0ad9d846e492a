package hub

import (
	"context"
	"fmt"
	"time"
)

// PushConfig is where and how the caller of a task wants to be told of its events:
// A2A's TaskPushNotificationConfig (spec section 4.3.1).
type PushConfig struct {
	// ID is unique within the task; the caller's choice, or made by the hub.
	ID   string
	Task string
	URL  string
	// Version is the protocol version that it was made with, whose form the
	// notifications take: "1.0" or "0.3".
	Version string
	// Scheme is the authentication scheme, such as Bearer; empty for none.
	Scheme string
	// Token and Credentials are secrets. What a store reads back has neither; the
	// sealed form has both.
	Token, Credentials string
	// Sealed is the secrets as the vault sealed them, nil if there are none.
	Sealed []byte

	CreatedAt time.Time
	// Cursor is the last event that is done with: delivered, skipped or not wanted.
	Cursor int64
	// Tries is how often the event after it was tried in vain.
	Tries int
	// FailedSince is the first try in vain since anything was delivered, and LastError
	// the outcome of the last; zero once something is delivered. Giving an event up does
	// not reset them: where all fails, the time for it runs but once.
	FailedSince time.Time
	LastError   string
	// NextTry is when the event after Cursor is tried next; zero when nothing is left to
	// deliver, and while a sender is at it.
	NextTry time.Time
	// Failed counts the events that were given up and not delivered since.
	Failed int
}

// PushSecrets is what is sealed of a configuration, as JSON.
type PushSecrets struct {
	Token       string `json:"token,omitempty"`
	Credentials string `json:"credentials,omitempty"`
}

// PushAbout is what the secrets of a configuration are sealed about; see Sealer.
func PushAbout(task, config string) string { return "push/" + task + "/" + config }

// PushFailure is a notification that was given up.
type PushFailure struct {
	// ID names the failure; opaque.
	ID     string
	Task   string
	Config string
	URL    string // of the configuration, as it is now
	Seq    int64  // the event
	At     time.Time
	Tries  int
	Reason string
}

// GaveUp says for the activity that the notification of an event was given up.
func GaveUp(event int64, tries int) string {
	if tries == 1 {
		return fmt.Sprintf("the notification of event %d was given up after 1 try", event)
	}
	return fmt.Sprintf("the notification of event %d was given up after %d tries", event, tries)
}

// PushJob is one configuration with events to deliver, on loan to one sender.
type PushJob struct {
	Config PushConfig
	// Loan fences it: a settlement under another loan is refused.
	Loan           int64
	Caller, Callee Party
	Context        string
	// Events are the next ones, oldest first; at least one, of at most about 1 MiB
	// together unless the first alone is larger.
	Events []Event
	// Ended: the last of Events is the task's end.
	Ended bool
}

// PushOutcome says how far a sender came with a job.
type PushOutcome struct {
	// Done is the last event that was delivered; the cursor moves there. 0 for none.
	Done int64
	// Error is why the event after it could not be delivered; empty if none failed.
	Error string
	// Retry is in how long that event, or whatever is left, is due again. Without Error
	// it puts that off, and is no failure. With GiveUp the event is skipped instead and
	// kept as a PushFailure, and the next is due at once.
	Retry  time.Duration
	GiveUp bool
}

// PushPatience is how long what is due keeps its task although nobody fetches it: a hub
// that sends nothing must not keep tasks for ever.
const PushPatience = 7 * 24 * time.Hour

// Pushes keeps push-notification configurations and what they still have to deliver.
// The outbox is a cursor per configuration over the events of its task, so it is
// written with the event: the transition that adds an event to a task makes the
// task's configurations due. Only who sent a task, and who sees all, has to do with
// its configurations; for everybody else the task is NotFound.
type Pushes interface {
	// PutPush adds a configuration or replaces the one with its ID, at most
	// Limits.Pushes per task, else TooLarge. It delivers the events after those that
	// the task has; of a task that has ended, its end, so that none is lost to a race.
	// A replaced one keeps its cursor and what was given up; what is left is due at once,
	// its tries forgotten. If it is on loan, what the sender delivers under that loan does
	// not count and is delivered again, to the new URL; the settlement ends the loan and
	// does nothing else. NotFound as for any task.
	PutPush(ctx context.Context, ref TaskRef, by Viewer, c PushConfig, l Limits) (PushConfig, error)
	// Push gives a configuration; NotFound if the task has none with that id.
	Push(ctx context.Context, ref TaskRef, by Viewer, id string) (PushConfig, error)
	// TaskPushes lists those of a task, oldest first.
	TaskPushes(ctx context.Context, ref TaskRef, by Viewer) ([]PushConfig, error)
	// DeletePush removes a configuration with what it still had to deliver; that there
	// is none is no error. It reports whether there was one.
	DeletePush(ctx context.Context, ref TaskRef, by Viewer, id string) (bool, error)

	// LendPushes gives configurations that are due, those that wait longest first, each
	// to this caller alone until the loan ends, and how long until another is due, or a
	// loan ends; negative for never. Each brings up to 64 events and about 1 MiB.
	LendPushes(ctx context.Context, limit int, loan time.Duration) ([]PushJob, time.Duration, error)
	// SettlePush ends a loan, also one whose time is over, until the configuration is lent
	// again. Conflict if that has happened or the loan was settled, NotFound if the
	// configuration is gone; nothing changes then. If events are left, they are due. The
	// first of several events in a row that are given up is noted (ActPushFailed), and so
	// is the end of a task.
	SettlePush(ctx context.Context, j PushJob, o PushOutcome) error
	// ReleasePushes ends all loans, for a hub that starts; what they were for is due.
	ReleasePushes(ctx context.Context) error

	// PushFailures lists what was given up of the tasks that the viewer's address sent
	// (all, for who sees all), newest first; of one task if it is named, NotFound as for
	// any task. Of each configuration the newest 1,000 are kept. The cursor to read on from
	// is empty on the last page; Invalid for one that the store did not make.
	PushFailures(ctx context.Context, by Viewer, task, cursor string, limit int) ([]PushFailure, string, error)
	// Redeliver makes a given-up event due again, before all others of its
	// configuration: the cursor goes back to before it, and later events follow once
	// more. That failure and those of later events are gone then. A loan is treated as by
	// PutPush. NotFound if it is not the viewer's.
	Redeliver(ctx context.Context, by Viewer, failure string) (PushConfig, error)
}

// Pusher is who sends the notifications, as the engine knows it.
type Pusher interface {
	// Wake says that something may be due.
	Wake()
	// Forget returns once nothing is being sent for a configuration that was deleted,
	// and never will be; an error only if ctx ends first.
	Forget(ctx context.Context, task, config string) error
}
