package canon

import (
	"bytes"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// V1View is what /v1 shows of a task beyond hub.Task.
type V1View struct {
	// ForCallee shows the claim_id, which is for the callee only.
	ForCallee bool
	// Hint says in words why the task waits; empty for none.
	Hint string
	// Delivery is how the task reaches its callee, such as "pull".
	Delivery string
	// Dispatch is the state of its delivery where that is not the task's phase, and
	// RemoteTask what its agent calls it; empty for none.
	Dispatch, RemoteTask string
}

// AppendMessageV1 appends a message in the shape of wire.Message.
func AppendMessageV1(dst, body []byte) []byte {
	return appendV1(append(dst, '{'), body, messageFields[:])
}

// AppendNumberedMessageV1 appends a message with its number in the task, in the
// shape of wire.HeartbeatMessage.
func AppendNumberedMessageV1(dst []byte, m *hub.Message) []byte {
	dst = strconv.AppendInt(appendKey(append(dst, '{'), "n"), int64(m.N), 10)
	return appendV1(dst, m.Body, messageFields[:])
}

// AppendArtifactV1 appends an artifact in the shape of wire.Artifact.
func AppendArtifactV1(dst, body []byte) []byte {
	return appendV1(append(dst, '{'), body, artifactFields[:])
}

// appendV1 appends the members of body under their /v1 names and closes the object.
// Canonical JSON is never at fault, so there is no error to give.
func appendV1(dst, body []byte, fields []field) []byte {
	_ = rawjson.Members(body, func(name string, value []byte) error {
		i, _ := find(fields, name)
		if i < 0 {
			return nil
		}
		dst = appendKey(comma(dst), fields[i].snake)
		switch fields[i].kind {
		case kindRole:
			dst = appendRoleV1(dst, value)
		case kindParts:
			dst = appendPartsV1(dst, value)
		default:
			dst = append(dst, value...)
		}
		return nil
	})
	return append(dst, '}')
}

func appendRoleV1(dst, role []byte) []byte {
	if string(role) == roleAgent {
		return append(dst, `"agent"`...)
	}
	return append(dst, `"user"`...)
}

// appendPartsV1 appends parts under their /v1 names. Only mediaType has another
// name there, so most parts can be copied as they are.
func appendPartsV1(dst, parts []byte) []byte {
	if !bytes.Contains(parts, []byte(`"mediaType":`)) {
		return append(dst, parts...)
	}
	dst = append(dst, '[')
	_ = rawjson.Elements(parts, func(_ int, part []byte) error {
		dst = appendV1(append(comma(dst), '{'), part, partFields[:])
		return nil
	})
	return append(dst, ']')
}

// AppendTaskV1 appends a task in the shape of wire.Task: members without omitempty
// are always there, as null if need be; history and artifacts if they were loaded,
// that is, are not nil; input if the first message was.
func AppendTaskV1(dst []byte, t *hub.Task, v V1View) []byte {
	o := objectV1(append(dst, '{'))
	o.text("id", t.ID)
	o.text("context_id", t.ContextID)
	o.text("state", t.State.String())
	o.status(t)
	o.text("delivery", v.Delivery)
	o.content(t)
	o.textOrNull("error", t.Error)
	o.json("tags", t.Tags)
	o.json("metadata", t.Metadata)
	o.lineage(t)
	o.text("caller_agent_id", t.Caller.ID)
	o.text("callee_agent_id", t.Callee.ID)
	o.text("caller", t.Caller.Handle)
	o.text("callee", t.Callee.Handle)
	o.delivery(t, v)
	o.time("created_at", t.CreatedAt)
	o.timeOrNull("claimed_at", t.ClaimedAt)
	o.timeOrNull("completed_at", t.EndedAt)
	o.timeOrNull("read_at", t.ReadAt)
	o.timeOrNull("last_polled_at", t.LastPolledAt)
	o.number("poll_count", t.PollCount)
	return append(o, '}')
}

// objectV1 is an object under construction: its open brace and members.
type objectV1 []byte

func (o *objectV1) key(name string) { *o = appendKey(comma(*o), name) }

func (o *objectV1) text(name, s string) {
	o.key(name)
	*o = rawjson.AppendText(*o, s)
}

func (o *objectV1) textIfAny(name, s string) {
	if s != "" {
		o.text(name, s)
	}
}

func (o *objectV1) textOrNull(name, s string) {
	if s == "" {
		o.null(name)
		return
	}
	o.text(name, s)
}

func (o *objectV1) null(name string) {
	o.key(name)
	*o = append(*o, "null"...)
}

func (o *objectV1) number(name string, n int) {
	o.key(name)
	*o = strconv.AppendInt(*o, int64(n), 10)
}

func (o *objectV1) time(name string, t time.Time) {
	o.key(name)
	*o = AppendTime(*o, t)
}

func (o *objectV1) timeOrNull(name string, t time.Time) {
	if t.IsZero() {
		o.null(name)
		return
	}
	o.time(name, t)
}

// json adds a member that is JSON already, or nil for none.
func (o *objectV1) json(name string, raw []byte) {
	if raw != nil {
		o.key(name)
		*o = append(*o, raw...)
	}
}

// status adds the status of a task.
func (o *objectV1) status(t *hub.Task) {
	o.key("status")
	s := append(*o, '{')
	s.text("state", t.State.String())
	if t.StatusMessage != nil {
		s.key("message")
		s = AppendMessageV1(s, t.StatusMessage)
	}
	if !t.StateAt.IsZero() {
		s.time("timestamp", t.StateAt)
	}
	*o = append(s, '}')
}

// content adds the input, history and artifacts of a task.
func (o *objectV1) content(t *hub.Task) {
	if len(t.History) > 0 && t.History[0].N == 1 {
		o.key("input")
		*o = appendKey(append(*o, '{'), "message")
		*o = append(AppendMessageV1(*o, t.History[0].Body), '}')
	}
	if t.History != nil {
		o.key("history")
		*o = append(*o, '[')
		for _, m := range t.History {
			*o = AppendMessageV1(comma(*o), m.Body)
		}
		*o = append(*o, ']')
	}
	if t.Artifacts != nil {
		o.key("artifacts")
		*o = append(*o, '[')
		for _, a := range t.Artifacts {
			*o = AppendArtifactV1(comma(*o), a)
		}
		*o = append(*o, ']')
	}
}

// lineage adds what a task was sent from.
func (o *objectV1) lineage(t *hub.Task) {
	o.text("call_id", t.CallID())
	o.textOrNull("parent_call_id", t.ParentCall)
	o.text("root_call_id", t.Run) // a call of a task has the task's id
	o.text("run_id", t.Run)
	o.textOrNull("parent_task_id", t.ParentTask)
	o.textOrNull("trace_id", traceID(t.Trace))
	o.textIfAny("requeue_of", t.RequeueOf)
}

// delivery adds how far the delivery of a task has come.
func (o *objectV1) delivery(t *hub.Task, v V1View) {
	if v.ForCallee {
		o.textIfAny("claim_id", t.ClaimID())
	}
	o.number("attempt", t.Handouts())
	o.number("failures", t.Failures)
	if t.Phase == hub.Leased {
		o.timeOrNull("lease_expires_at", t.LeaseUntil)
	} else {
		o.null("lease_expires_at")
	}
	if !t.Deadline.IsZero() {
		o.time("deadline", t.Deadline)
	}
	if v.Dispatch != "" {
		o.text("dispatch_state", v.Dispatch)
	} else {
		o.text("dispatch_state", t.Phase.String())
	}
	o.textIfAny("cancel_outcome", t.CancelOutcome.String())
	o.textOrNull("remote_task_id", v.RemoteTask)
	o.textIfAny("hint", v.Hint)
}

// traceID is the trace id in a W3C traceparent, such as
// 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01, or empty.
func traceID(traceparent string) string {
	const version, id = len("00-"), 32
	if len(traceparent) <= version+id || traceparent[version-1] != '-' || traceparent[version+id] != '-' {
		return ""
	}
	return traceparent[version : version+id]
}
