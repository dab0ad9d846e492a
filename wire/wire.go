// Package wire holds the JSON types of Holdfast's /v1 API, for programs that
// speak it directly. Field names are lower snake case, times RFC 3339 UTC with
// milliseconds, and states the lower-case names of A2A's task states.
//
// The API ignores fields it does not know, and so should its clients.
package wire

import "encoding/json"

// Message is one message of a task (A2A section 4.1.4).
type Message struct {
	MessageID string `json:"message_id,omitempty"`
	// Role is "user" or "agent". In a request it may be left out: a caller speaks as the
	// user and a callee as the agent.
	Role             string          `json:"role,omitempty" enum:"user,agent"`
	Parts            []Part          `json:"parts"`
	Metadata         json.RawMessage `json:"metadata,omitempty"`
	Extensions       []string        `json:"extensions,omitempty"`
	ReferenceTaskIDs []string        `json:"reference_task_ids,omitempty"`
}

// BareReply is an extension (A2A section 4.6) that a callee names in the extensions of
// the message that completes a task, without artifacts, to have that message given to
// an A2A client in place of the task, as A2A section 3.1.1 allows: to one that sent a
// new task and waited for its end. The hub has the task all the same, and every other
// operation shows it.
const BareReply = "urn:holdfast:bare-reply"

// Part is a piece of content: exactly one of Text, Raw, URL and Data is set (A2A
// section 4.1.6).
type Part struct {
	Text      *string         `json:"text,omitempty"`
	Raw       *string         `json:"raw,omitempty"` // base64
	URL       *string         `json:"url,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	MediaType string          `json:"media_type,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// Artifact is an output of a task (A2A section 4.1.7). In a report the id may be
// left out; the hub then derives it from the name.
type Artifact struct {
	ArtifactID  string          `json:"artifact_id,omitempty"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Parts       []Part          `json:"parts"`
	Metadata    json.RawMessage `json:"metadata,omitempty"`
	Extensions  []string        `json:"extensions,omitempty"`
}

// Status is the state of a task, since when, and the message that came with it.
type Status struct {
	State     string   `json:"state"`
	Message   *Message `json:"message,omitempty"`
	Timestamp *Time    `json:"timestamp,omitempty" format:"date-time"`
}

// Input is what a task was sent with.
type Input struct {
	Message Message `json:"message"`
}

// Task is a task as /v1 shows it.
type Task struct {
	ID        string            `json:"id"`
	ContextID string            `json:"context_id"`
	State     string            `json:"state"`
	Status    Status            `json:"status"`
	Delivery  string            `json:"delivery"` // pull, webhook, a2a, tunnel, or inbox where a person does it
	Input     *Input            `json:"input,omitempty"`
	History   []Message         `json:"history,omitempty"`
	Artifacts []Artifact        `json:"artifacts,omitempty"`
	Error     *string           `json:"error"`
	Tags      map[string]string `json:"tags,omitempty"`
	Metadata  json.RawMessage   `json:"metadata,omitempty"`

	CallID       string  `json:"call_id"`
	ParentCallID *string `json:"parent_call_id"`
	RootCallID   string  `json:"root_call_id"`
	RunID        string  `json:"run_id"`
	ParentTaskID *string `json:"parent_task_id"`
	TraceID      *string `json:"trace_id"`
	RequeueOf    string  `json:"requeue_of,omitempty"`

	CallerAgentID string `json:"caller_agent_id"`
	CalleeAgentID string `json:"callee_agent_id"`
	Caller        string `json:"caller"` // handle
	Callee        string `json:"callee"` // handle

	ClaimID        string `json:"claim_id,omitempty"` // to the callee only
	Attempt        int    `json:"attempt"`
	Failures       int    `json:"failures"`
	LeaseExpiresAt *Time  `json:"lease_expires_at" format:"date-time"`
	Deadline       *Time  `json:"deadline,omitempty" format:"date-time"`
	// DispatchState is ready, leased, parked or done; or unknown, of a task that was sent
	// to its agent while nobody can tell whether it arrived.
	DispatchState string `json:"dispatch_state"`
	// CancelOutcome is confirmed, already_finished or unconfirmed; empty unless canceled.
	CancelOutcome string `json:"cancel_outcome,omitempty"`
	// RemoteTaskID is what the agent calls the task, where the hub delivers it and knows.
	RemoteTaskID *string `json:"remote_task_id"`
	Hint         string  `json:"hint,omitempty"` // why it waits, in words

	CreatedAt    Time  `json:"created_at" format:"date-time"`
	ClaimedAt    *Time `json:"claimed_at" format:"date-time"`
	CompletedAt  *Time `json:"completed_at" format:"date-time"`
	ReadAt       *Time `json:"read_at" format:"date-time"`
	LastPolledAt *Time `json:"last_polled_at" format:"date-time"`
	PollCount    int   `json:"poll_count"`
}

// SendRequest is the body of POST /v1/agents/{callee}/tasks.
type SendRequest struct {
	Message   Message           `json:"message"`
	ContextID string            `json:"context_id,omitempty"`
	TaskID    string            `json:"task_id,omitempty"`
	Tags      map[string]string `json:"tags,omitempty"`
	Metadata  json.RawMessage   `json:"metadata,omitempty"`
	// Deadline is when the task fails if it has not ended; nil for never.
	Deadline *Time `json:"deadline,omitempty" format:"date-time"`
}

// Result is the body of POST /v1/agents/me/tasks/{id}/result.
type Result struct {
	State     string     `json:"state"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	Message   *Message   `json:"message,omitempty"`
	Error     *string    `json:"error,omitempty"`
}

// ResultReply answers a result that was posted with ?next=1.
type ResultReply struct {
	Task Task  `json:"task"`
	Next *Task `json:"next"`
}

// Event is one change that a callee reports: a WORKING status or an artifact.
type Event struct {
	Status    *EventStatus    `json:"status,omitempty"`
	Artifact  *Artifact       `json:"artifact,omitempty"`
	Append    bool            `json:"append,omitempty"`
	LastChunk bool            `json:"last_chunk,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
}

// EventStatus is the status of an Event; its state is "working" and may be left out.
type EventStatus struct {
	State   string   `json:"state,omitempty"`
	Message *Message `json:"message,omitempty"`
}

// EventsRequest is the body of POST /v1/agents/me/tasks/{id}/events.
type EventsRequest struct {
	Events []Event `json:"events"`
}

// EventsReply gives the number of the newest event.
type EventsReply struct {
	Seq int64 `json:"seq"`
}

// HeartbeatRequest is the optional body of POST /v1/agents/me/tasks/{id}/heartbeat.
type HeartbeatRequest struct {
	// After is the number of the newest message that the holder has; later ones come
	// with the answer. Left out, those that were never handed over come.
	After *int `json:"after,omitempty"`
}

// Heartbeat answers a heartbeat.
type Heartbeat struct {
	State           string             `json:"state"`
	CancelRequested bool               `json:"cancel_requested"`
	LeaseExpiresAt  *Time              `json:"lease_expires_at" format:"date-time"`
	Messages        []HeartbeatMessage `json:"messages"`
}

// HeartbeatMessage is a message with its number in the task.
type HeartbeatMessage struct {
	N int `json:"n"`
	Message
}

// Card is the part of an agent card that its owner decides.
type Card struct {
	Name               string          `json:"name,omitempty"`
	Version            string          `json:"version,omitempty"`
	Provider           json.RawMessage `json:"provider,omitempty"`
	DocumentationURL   string          `json:"documentation_url,omitempty"`
	IconURL            string          `json:"icon_url,omitempty"`
	Skills             json.RawMessage `json:"skills,omitempty"`
	DefaultInputModes  []string        `json:"default_input_modes,omitempty"`
	DefaultOutputModes []string        `json:"default_output_modes,omitempty"`
	Extensions         json.RawMessage `json:"extensions,omitempty"`
	// Capabilities turns off what the address is not to offer. Nil is all that the hub
	// can do.
	Capabilities *Capabilities `json:"capabilities,omitempty"`
}

// Capabilities is what an address offers of what the hub can do for any (A2A section
// 4.4.3). A nil or true one is as the hub has it; false is refused to callers and not
// on the card.
type Capabilities struct {
	Streaming         *bool `json:"streaming,omitempty"`
	PushNotifications *bool `json:"push_notifications,omitempty"`
	ExtendedAgentCard *bool `json:"extended_agent_card,omitempty"`
}

// AgentRequest is the body of POST /v1/agents; PATCH takes the same, without the
// handle and kind, and changes what is given.
type AgentRequest struct {
	Handle          string  `json:"handle,omitempty"`
	Kind            string  `json:"kind,omitempty"` // "agent" (default) or "person"
	Description     *string `json:"description,omitempty"`
	Card            *Card   `json:"card,omitempty"`
	Access          *string `json:"access,omitempty"` // "open" or "approved" (default)
	LeaseS          *int    `json:"lease_s,omitempty"`
	MaxRedeliveries *int    `json:"max_redeliveries,omitempty"`
	DedupeMessageID *bool   `json:"dedupe_message_id,omitempty"`
	OnUnknown       *string `json:"on_unknown,omitempty"` // "resend" (default) or "fail"
	// RelayPaths are the prefixes of the agent's paths that outside services may reach
	// through its tunnels; an empty list lets nothing through.
	RelayPaths *[]string `json:"relay_paths,omitempty"`
}

// Agent is an address.
type Agent struct {
	ID              string `json:"id"`
	Handle          string `json:"handle"`
	Name            string `json:"name"` // the handle
	Model           string `json:"model"`
	Kind            string `json:"kind"`
	Description     string `json:"description"`
	Card            *Card  `json:"card,omitempty"`
	Access          string `json:"access"`
	LeaseS          int    `json:"lease_s"`
	MaxRedeliveries int    `json:"max_redeliveries"`
	DedupeMessageID bool   `json:"dedupe_message_id"`
	OnUnknown       string `json:"on_unknown"`
	Delivery        string `json:"delivery"` // pull, webhook, a2a, tunnel, or inbox of a person
	URL             string `json:"url"`
	CreatedAt       Time   `json:"created_at" format:"date-time"`
	// LastSeenAt tells when a worker last asked for a task; nil if none has since the
	// hub started.
	LastSeenAt *Time `json:"last_seen_at" format:"date-time"`
	// RelayPaths are the prefixes of the agent's paths that outside services may reach
	// through its tunnels; only the address itself and the administrator see them. They
	// are left out if there are none.
	RelayPaths []string `json:"relay_paths,omitempty"`
	// Endpoint is where the hub delivers; only the address itself and the administrator
	// see it.
	Endpoint *Endpoint `json:"endpoint,omitempty"`
	// Presence is who works on its tasks and what waits; only the address itself and the
	// administrator see it.
	Presence *Presence `json:"presence,omitempty"`
}

// Presence is which agents of an address are connected, and what waits for them.
type Presence struct {
	// Connected are the copies of the agent that have a tunnel open, the oldest first.
	Connected []Instance `json:"connected"`
	// Slots is how many tasks the hub delivers at once, by itself or through tunnels;
	// InFlight how many are under way from the replica that answers.
	Slots    int `json:"slots"`
	InFlight int `json:"in_flight"`
	// Waiting is how many tasks wait for an agent, Unfinished how many there are in all,
	// and OldestWaitMS how long the one that waits longest has waited. They are left out
	// of lists.
	Waiting      *int   `json:"waiting,omitempty"`
	Unfinished   *int   `json:"unfinished,omitempty"`
	OldestWaitMS *int64 `json:"oldest_wait_ms,omitempty"`
	// Trouble is why nothing can be delivered just now, nil if nothing is wrong.
	Trouble *EndpointTrouble `json:"trouble,omitempty"`
}

// Instance is one connected copy of an agent.
type Instance struct {
	Name  string `json:"instance"`
	Slots int    `json:"slots"`
	// Busy is how many tasks it works on; nil where another replica knows.
	Busy    *int   `json:"busy"`
	Since   Time   `json:"since" format:"date-time"`
	Replica string `json:"replica,omitempty"`
}

// Attempt is one try of the hub to bring a task to its agent.
type Attempt struct {
	TaskID   string `json:"task_id"`
	Attempt  int    `json:"attempt"`
	Delivery string `json:"delivery"`           // webhook, a2a or tunnel
	Instance string `json:"instance,omitempty"` // of a tunnel
	// Outcome is that of EndpointDelivery, or open while it is under way.
	Outcome string `json:"outcome"`
	// Sent: some of the task may have left the hub.
	Sent         bool    `json:"sent"`
	Status       int     `json:"status,omitempty"` // HTTP status of the answer, if there was one
	LatencyMS    int64   `json:"latency_ms"`
	Detail       string  `json:"detail,omitempty"`
	RemoteTaskID *string `json:"remote_task_id"`
	BegunAt      Time    `json:"begun_at" format:"date-time"`
	EndedAt      *Time   `json:"ended_at" format:"date-time"`
}

// Endpoint is where the hub delivers the tasks of an address, and how that goes.
type Endpoint struct {
	Kind string `json:"kind"` // "webhook", or "a2a" of a remote A2A server
	URL  string `json:"url"`
	// AuthType is the form of the credential: "bearer", "header" or "basic"; empty for
	// none. AuthHeader names the header of "header".
	AuthType            string `json:"auth_type"`
	AuthHeader          string `json:"auth_header,omitempty"`
	AllowPrivateNetwork bool   `json:"allow_private_network"`
	// SigningSecret is the key of the signatures, in the form of Standard Webhooks. It is
	// in the answer that made the endpoint and nowhere else.
	SigningSecret string `json:"signing_secret,omitempty"`
	// Slots is how many tasks are delivered at once, InFlight how many are just now.
	Slots    int `json:"slots"`
	InFlight int `json:"in_flight"`
	// Trouble is why nothing can be delivered just now, nil if nothing is wrong.
	Trouble *EndpointTrouble `json:"trouble,omitempty"`
	// LastDelivery is the last since the hub started, nil if there was none.
	LastDelivery *EndpointDelivery `json:"last_delivery,omitempty"`
}

// EndpointTrouble is why nothing can be delivered to an endpoint.
type EndpointTrouble struct {
	Reason  string `json:"reason"`
	Since   Time   `json:"since" format:"date-time"`
	NextTry Time   `json:"next_try" format:"date-time"`
}

// EndpointDelivery is what became of one delivery.
type EndpointDelivery struct {
	TaskID  string `json:"task_id"`
	Attempt int    `json:"attempt"`
	// Outcome is answered; accepted, with the result to come later; refused, which fails
	// the task; lost, which is repeated; or unsent, which is too and counts for nothing.
	Outcome   string `json:"outcome"`
	Status    int    `json:"status,omitempty"` // of the answer, if there was one
	LatencyMS int64  `json:"latency_ms"`
	Detail    string `json:"detail,omitempty"`
	At        Time   `json:"at" format:"date-time"` // when it ended
}

// EndpointRequest is the body of PUT /v1/agents/{ref}/endpoint. A nil URL means that
// the agent pulls.
type EndpointRequest struct {
	URL  *string `json:"url,omitempty"`
	Kind string  `json:"kind,omitempty"` // "webhook", also if empty, or "a2a": the URL of an A2A server
	// Auth replaces the credential. Without it the old one is kept, unless ClearAuth.
	Auth      *EndpointAuth `json:"auth,omitempty"`
	ClearAuth bool          `json:"clear_auth,omitempty"`
	// AllowPrivateNetwork lets the URL lead into a private network; for the administrator
	// to say. Nil keeps what was said of the same URL.
	AllowPrivateNetwork *bool `json:"allow_private_network,omitempty"`
}

// EndpointAuth is the credential that the hub presents at an endpoint.
type EndpointAuth struct {
	Type   string `json:"type"` // "bearer", "header" or "basic"
	Header string `json:"header,omitempty"`
	Secret string `json:"secret"` // of "basic": user:password
}

// TokenRequest is the body of POST /v1/agents/{ref}/tokens.
type TokenRequest struct {
	Name string `json:"name,omitempty"`
	// ExpiresIn is in seconds; nil for never.
	ExpiresIn *int64 `json:"expires_in,omitempty"`
}

// Token is a credential; Token is set only in the answer that made it.
type Token struct {
	ID        string `json:"id"`
	AgentID   string `json:"agent_id"`
	Handle    string `json:"handle"` // of the address that it acts as
	Name      string `json:"name"`
	Token     string `json:"token,omitempty"`
	CreatedAt Time   `json:"created_at" format:"date-time"`
	ExpiresAt *Time  `json:"expires_at" format:"date-time"`
}

// Whoami says who the token acts as.
type Whoami struct {
	TenantID   string   `json:"tenant_id"`
	AuthMethod string   `json:"auth_method"` // "token" or "anonymous"
	IdentityID string   `json:"identity_id"`
	Handle     string   `json:"handle"`
	Roles      []string `json:"roles"`
	Scopes     []string `json:"scopes"`
}

// Info is the answer of GET /v1/admin/info.
type Info struct {
	Version   string `json:"version"`
	Store     string `json:"store"`
	PublicURL string `json:"public_url"`
	StartedAt Time   `json:"started_at" format:"date-time"`
	Ready     int    `json:"ready"`
	Leased    int    `json:"leased"`
	Parked    int    `json:"parked"`
}

// Activity is one line of the hub-wide feed (GET /api/activity).
type Activity struct {
	Cursor  string `json:"cursor"`
	At      Time   `json:"at" format:"date-time"`
	Kind    string `json:"kind"`
	RunID   string `json:"run_id"`
	TaskID  string `json:"task_id"`
	Seq     int64  `json:"seq"`
	Actor   string `json:"actor"`
	Caller  string `json:"caller"`
	Callee  string `json:"callee"`
	Attempt int    `json:"attempt"`
	Detail  string `json:"detail,omitempty"`
}

// List is a page of anything.
type List[T any] struct {
	Data       []T     `json:"data"`
	NextCursor *string `json:"next_cursor"`
}

// ErrorBody is the body of every error.
type ErrorBody struct {
	Error Error `json:"error"`
}

// Error says what went wrong.
type Error struct {
	Code    string         `json:"code"`
	Message string         `json:"message"`
	Details map[string]any `json:"details,omitempty"`
}
