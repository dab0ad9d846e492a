package engine

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// SendRequest is a message to an address.
type SendRequest struct {
	To string // handle or id of the callee

	// MessageID, ContextID and TaskID are the message's own and may be empty; a
	// message without id gets one.
	MessageID, ContextID, TaskID string
	// Message is canonical JSON without taskId and contextId.
	Message []byte
	// Tags and Metadata are canonical JSON objects or nil.
	Tags, Metadata []byte
	Deadline       time.Time
	// AnswerContext: see hub.Send.
	AnswerContext bool

	// Push, if not nil, is a push-notification configuration that is set along with
	// the message, as SetPush does; of a new task it wants all events.
	Push *hub.PushConfig

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
	// Digest tells the same result sent again from another one. It covers what the
	// callee wrote, not what the face added, such as a message id.
	Digest [32]byte
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
	Callee string // handle or id; empty for any address
	Task   string
}
