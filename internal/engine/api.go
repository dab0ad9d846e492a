package engine

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// SendRequest is a message to an address.
type SendRequest struct {
	To string // handle or id of the callee

	// MessageID, ContextID and TaskID are the message's own; the last two may be
	// empty.
	MessageID, ContextID, TaskID string
	// Message is canonical JSON without taskId and contextId.
	Message []byte
	// Tags and Metadata are canonical JSON objects or nil.
	Tags, Metadata []byte
	Deadline       time.Time
	// AnswerContext: see hub.Send.
	AnswerContext bool

	// IdempotencyKey, and the lineage headers, as they came; empty if they did not.
	IdempotencyKey, HoldfastTask, ParentCall, Traceparent string
}

// SendResult is an accepted send.
type SendResult struct {
	Task *hub.Task // without history and artifacts
	// Created is false for a follow-up or a replay.
	Created, Replayed bool
	// LineageIgnored: a lineage header did not count.
	LineageIgnored bool
}

// NextRequest is a callee asking for work.
type NextRequest struct {
	Wait  time.Duration // how long to wait for a task; at most 60 s
	Lease time.Duration // 0 for the address's
	Ack   time.Duration // 0 for a claim that needs no confirmation
}

// ReportRequest is a callee's report; see hub.Report.
type ReportRequest struct {
	Task    string
	Claim   string // X-Claim, or empty
	Events  []hub.Event
	State   hub.State
	Message []byte
	Error   string
	// Next, if not nil, asks for the next ready task along with it; it never waits.
	Next *NextRequest
}

// ReportResult is an applied report.
type ReportResult struct {
	Task *hub.Task // without history and artifacts
	Next *hub.Task
}

// Ref names a task at an address, as a client wrote it.
type Ref struct {
	Callee string // handle or id; empty for any address, see Engine.Task
	Task   string
}

// The engine's operations, all methods of *Engine (p is who asks):
//
//	Send(ctx, p, SendRequest) (SendResult, error)              accept; never waits for the callee
//	Wait(ctx, p, Ref, limit, load) (*hub.Task, error)          until it settles or limit has passed; ctx's end is an error
//	Task(ctx, p, Ref, load) (*hub.Task, error)                 as caller, callee or admin
//	Tasks(ctx, p, callee string, hub.TaskFilter) (hub.TaskPage, error)
//	Cancel(ctx, p, Ref) (*hub.Task, error)
//	Subscribe(ctx, p, Ref, after int64) (*Stream, error)       after < 0: from a snapshot
//	Next(ctx, p, NextRequest) (*hub.Task, error)               nil when there was none
//	Release(ctx, p, *hub.Task)                                 the claim's answer could not be written
//	Report(ctx, p, ReportRequest) (ReportResult, error)
//	Heartbeat(ctx, p, task, claim string, after int) (hub.Beat, error)
//	Requeue(ctx, p, task string) (*hub.Task, error)            admin
//	Activity(ctx, p, hub.ActivityQuery) (hub.ActivityPage, error)
//	FollowActivity(ctx, p, after string) (*Feed, error)
//
// Stream: Snapshot() *hub.Task (nil when resumed after a number);
// Next(ctx) (events []hub.Event, more bool, err error) waits for the next events;
// more is false once the terminal event has been given. Feed: Next(ctx)
// ([]hub.Activity, error) waits for the next lines.
