package engine

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Directory is what the engine needs to know of addresses; identity implements it.
type Directory interface {
	// Resolve finds a living address by handle or id; NotPermitted if there is none,
	// the same answer as for one that may not be called.
	Resolve(ctx context.Context, ref string) (*hub.Address, error)
	// MayCall reports whether p may send to a (and read its own tasks there).
	MayCall(p hub.Principal, a *hub.Address) bool
}

// Options configure an Engine.
type Options struct {
	Store     hub.Store
	Directory Directory
	Limits    hub.Limits
	Log       *slog.Logger
	// Retain is how long ended tasks are kept.
	Retain time.Duration
	// DeleteGrace is how long a deleted address's queued tasks wait before they are
	// canceled.
	DeleteGrace time.Duration
	// Rate and Burst bound the sends of one caller to one address, per second.
	Rate  float64
	Burst int
	// NewID makes task and context ids; UUIDv7 if nil.
	NewID func() string
}

// Engine runs tasks. Make one with New, Start it, and Close it.
type Engine struct{ opt Options }

// Stream follows one task.
type Stream struct{}

// Feed follows the hub's activity.
type Feed struct{}

var errUnwritten = errors.New("unwritten")

func New(opt Options) *Engine { return &Engine{opt: opt} }
func (e *Engine) Start()      {}
func (e *Engine) Close()      {}

// Drain ends every open wait (long polls, blocking sends, streams, feeds) at once,
// each with its ordinary "nothing more" answer, so that a server can shut down.
func (e *Engine) Drain() {}

func (e *Engine) Send(ctx context.Context, p hub.Principal, r SendRequest) (SendResult, error) {
	return SendResult{}, errUnwritten
}
func (e *Engine) Wait(ctx context.Context, p hub.Principal, ref Ref, limit time.Duration, load hub.Load) (*hub.Task, error) {
	return nil, errUnwritten
}
func (e *Engine) Task(ctx context.Context, p hub.Principal, ref Ref, load hub.Load) (*hub.Task, error) {
	return nil, errUnwritten
}
func (e *Engine) Tasks(ctx context.Context, p hub.Principal, callee string, f hub.TaskFilter) (hub.TaskPage, error) {
	return hub.TaskPage{}, errUnwritten
}
func (e *Engine) Cancel(ctx context.Context, p hub.Principal, ref Ref) (*hub.Task, error) {
	return nil, errUnwritten
}
func (e *Engine) Subscribe(ctx context.Context, p hub.Principal, ref Ref, after int64, load hub.Load) (*Stream, error) {
	return nil, errUnwritten
}
func (e *Engine) Next(ctx context.Context, p hub.Principal, r NextRequest) (*hub.Task, error) {
	return nil, errUnwritten
}
func (e *Engine) Release(ctx context.Context, p hub.Principal, t *hub.Task) {}
func (e *Engine) Report(ctx context.Context, p hub.Principal, r ReportRequest) (ReportResult, error) {
	return ReportResult{}, errUnwritten
}
func (e *Engine) Heartbeat(ctx context.Context, p hub.Principal, task, claim string, after int) (hub.Beat, error) {
	return hub.Beat{}, errUnwritten
}
func (e *Engine) Requeue(ctx context.Context, p hub.Principal, task string) (*hub.Task, error) {
	return nil, errUnwritten
}
func (e *Engine) Activity(ctx context.Context, p hub.Principal, q hub.ActivityQuery) (hub.ActivityPage, error) {
	return hub.ActivityPage{}, errUnwritten
}

// FollowActivity follows the feed after a cursor; empty means from now on.
func (e *Engine) FollowActivity(ctx context.Context, p hub.Principal, after string) (*Feed, error) {
	return nil, errUnwritten
}

// LastSeen is when a worker last asked for a task of the address (its id), zero if
// none has since the start.
func (e *Engine) LastSeen(address string) time.Time { return time.Time{} }

// Hint says in words why an unfinished task waits, empty if it does not.
func (e *Engine) Hint(t *hub.Task) string { return "" }

// Snapshot is the task as it was when the stream began; nil when resumed.
func (s *Stream) Snapshot() *hub.Task { return nil }

// ContextID is the context of the followed task.
func (s *Stream) ContextID() string { return "" }

// Next waits for events after the last ones given; more is false once the terminal
// event has been given (events may be empty then, for a task that had ended).
func (s *Stream) Next(ctx context.Context) (events []hub.Event, more bool, err error) {
	return nil, false, errUnwritten
}

// Next waits for lines after the last ones given; io.EOF when the hub shuts down.
func (f *Feed) Next(ctx context.Context) ([]hub.Activity, error) { return nil, errUnwritten }
