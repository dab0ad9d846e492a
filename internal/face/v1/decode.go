package v1

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

const (
	// maxID bounds an id that a client makes up, in bytes.
	maxID = 256
	// maxErrorText bounds the error of a result, in characters. Longer ones are
	// refused, never cut: half a reason misleads.
	maxErrorText = 4000
	// maxEvents bounds the events of one report, and maxArtifacts the artifacts.
	maxEvents    = 1000
	maxArtifacts = 1000
)

// noReason is the error of a failure whose callee gave neither error nor message.
const noReason = "the agent reported a failure and gave no reason"

// sendBody is the body of a send (wire.SendRequest), checked.
type sendBody struct {
	message        canon.Message
	context, task  string
	tags, metadata []byte
	deadline       time.Time
}

// decodeSend reads the body of a send.
func decodeSend(body []byte) (sendBody, error) {
	var s sendBody
	err := object(body, func(name string, raw []byte) (err error) {
		switch name {
		case "message":
			s.message, err = canon.ParseMessage(raw, "message", canon.V1)
		case "context_id":
			s.context, err = identifier(raw, "context_id")
		case "task_id":
			s.task, err = identifier(raw, "task_id")
		case "tags":
			s.tags, err = canon.Tags(raw, "tags")
		case "metadata":
			s.metadata, err = canon.Object(raw, "metadata")
		case "deadline":
			s.deadline, err = instant(raw, "deadline")
		}
		return err
	})
	switch {
	case err != nil:
		return sendBody{}, err
	case s.message.Body == nil:
		return sendBody{}, hub.InvalidField("message", "is required")
	case s.message.FromAgent:
		return sendBody{}, hub.InvalidField("message.role", `must be "user": a caller speaks as the user`)
	}
	return s, s.adoptRefs()
}

// name gives an id to a message that came without one. Under an idempotency key it
// follows from the key and the message, so that the same send is the same again.
func (s *sendBody) name(p hub.Principal, key string) {
	switch {
	case s.message.ID != "":
	case key == "":
		s.message.SetID(newID())
	default:
		seed := fmt.Appendf(nil, "%s\x00%s\x00%s", p.Address, key, s.message.Body)
		s.message.SetID(uuid.NewHash(sha256.New(), uuid.UUID{}, seed, 8).String())
	}
}

// adoptRefs takes over the ids that the message itself carries, as A2A has them.
func (s *sendBody) adoptRefs() error {
	for _, ref := range []struct {
		mine *string
		its  string
		name string
	}{{&s.context, s.message.ContextID, "context_id"}, {&s.task, s.message.TaskID, "task_id"}} {
		switch {
		case ref.its == "" || ref.its == *ref.mine:
		case *ref.mine == "":
			*ref.mine = ref.its
		default:
			return hub.InvalidField("message."+ref.name, "is another one than %s beside the message; send one of them", ref.name)
		}
	}
	return nil
}

// resultBody is the body of a result (wire.Result), checked.
type resultBody struct {
	state     hub.State
	artifacts []canon.Artifact
	message   canon.Message
	reason    string
}

// decodeResult reads the body of a result.
func decodeResult(body []byte) (resultBody, error) {
	var b resultBody
	err := object(body, func(name string, raw []byte) (err error) {
		switch name {
		case "state":
			b.state, err = resultState(raw)
		case "artifacts":
			b.artifacts, err = artifacts(raw)
		case "message":
			b.message, err = reportMessage(raw, "message")
		case "error":
			b.reason, err = reason(raw)
		}
		return err
	})
	switch {
	case err != nil:
		return b, err
	case b.state == 0:
		return b, hub.InvalidField("state", "is required")
	case b.reason != "" && b.state != hub.Failed && b.state != hub.Rejected:
		return b, hub.InvalidField("error", "goes with the states failed and rejected, not with %s", b.state)
	}
	return b, nil
}

// resultState reads the state of a result.
func resultState(raw []byte) (hub.State, error) {
	name, err := text(raw, "state")
	if err != nil {
		return 0, err
	}
	switch s, _ := hub.ParseState(name); s {
	case hub.Working, hub.Completed, hub.Failed, hub.Rejected, hub.InputRequired, hub.AuthRequired:
		return s, nil
	}
	return 0, hub.InvalidField("state", "expected completed, failed, rejected, input_required, auth_required or working")
}

// reportMessage reads a message of a callee.
func reportMessage(raw []byte, path string) (canon.Message, error) {
	m, err := canon.ParseMessage(raw, path, canon.V1Report)
	if err == nil && !m.FromAgent {
		err = hub.InvalidField(path+".role", `must be "agent": a callee speaks as the agent`)
	}
	return m, err
}

// artifacts reads the artifacts of a result.
func artifacts(raw []byte) ([]canon.Artifact, error) {
	var as []canon.Artifact
	err := elements(raw, "artifacts", maxArtifacts, func(path string, raw []byte) error {
		a, err := canon.ParseArtifact(raw, path, canon.V1Report)
		as = append(as, a)
		return err
	})
	return as, err
}

// reason reads the error of a result.
func reason(raw []byte) (string, error) {
	s, err := text(raw, "error")
	if n := utf8.RuneCountInString(s); err == nil && n > maxErrorText {
		err = hub.InvalidField("error", "is %d characters long; at most %d are allowed", n, maxErrorText)
	}
	return s, err
}

// digest tells this result from another one. It covers what the callee wrote and
// none of what the hub adds, so that the same body sent again has the same digest.
func (b *resultBody) digest() (sum [32]byte) {
	h := sha256.New()
	part := func(p []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	part([]byte(b.state.String()))
	part(b.message.Body)
	part([]byte(b.reason))
	for _, a := range b.artifacts {
		part(a.Body)
	}
	h.Sum(sum[:0])
	return sum
}

// name gives ids to the artifacts that came without: the artifact's name, or
// artifact-1 and so on by position, made unique within the result. They depend on
// the result alone, so what a second attempt produces replaces what the first one
// left.
func (b *resultBody) name() error {
	taken := make(map[string]bool, len(b.artifacts))
	for i, a := range b.artifacts {
		if a.ID != "" && taken[a.ID] {
			return hub.InvalidField("artifacts["+strconv.Itoa(i)+"].artifact_id", "is used twice in this result")
		}
		taken[a.ID] = true
	}
	for i := range b.artifacts {
		a := &b.artifacts[i]
		if a.ID != "" {
			continue
		}
		base := a.Name
		if !isID(base) || len(base) > maxID-len("-1000") {
			base = "artifact-" + strconv.Itoa(i+1)
		}
		id := base
		for n := 2; taken[id]; n++ {
			id = base + "-" + strconv.Itoa(n)
		}
		taken[id] = true
		a.SetID(id)
	}
	return nil
}

// report is a checked result in the domain's terms.
type report struct {
	state   hub.State
	events  []hub.Event
	message []byte
	reason  string
	digest  [32]byte
}

// newReport turns the body of a result into a report.
func newReport(body []byte) (report, error) {
	b, err := decodeResult(body)
	if err != nil {
		return report{}, err
	}
	rep := report{state: b.state, digest: b.digest()}
	if err := b.name(); err != nil {
		return report{}, err
	}
	for _, a := range b.artifacts {
		rep.events = append(rep.events, hub.Event{
			Kind: hub.ArtifactEvent, Body: a.Body, ArtifactID: a.ID, LastChunk: true,
		})
	}
	rep.message, rep.reason = b.words()
	return rep, nil
}

// ParseResult reads the body of a result as /v1/agents/me/tasks/{id}/result takes it, and
// gives Events, State, Message, Error and Digest of the report that it is. Its errors are
// hub.Invalid with the path of the field at fault.
func ParseResult(body []byte) (hub.Report, error) {
	r, err := newReport(body)
	if err != nil {
		return hub.Report{}, err
	}
	return hub.Report{Events: r.events, State: r.state, Message: r.message, Error: r.reason, Digest: r.digest}, nil
}

// words gives the status message and the error of the report. A reason without a
// message becomes one, because the message is all that A2A shows of it.
func (b *resultBody) words() (message []byte, reason string) {
	reason = b.reason
	if b.message.Body != nil {
		b.message.SetID(newID())
		return b.message.Body, reason
	}
	if b.state == hub.Failed && reason == "" {
		reason = noReason
	}
	if reason != "" {
		message = canon.TextMessage(newID(), true, reason)
	}
	return message, reason
}

// decodeEvents reads the body of a report of events (wire.EventsRequest).
func decodeEvents(body []byte) ([]hub.Event, error) {
	var events []hub.Event
	err := object(body, func(name string, raw []byte) error {
		if name != "events" {
			return nil
		}
		return elements(raw, "events", maxEvents, func(path string, raw []byte) error {
			e, err := event(raw)
			events = append(events, e)
			return at(path, err)
		})
	})
	if err == nil && len(events) == 0 {
		err = hub.InvalidField("events", "is required and must not be empty")
	}
	return events, err
}

// event reads one event (wire.Event).
func event(raw []byte) (hub.Event, error) {
	var status, artifact bool
	var e hub.Event
	var a canon.Artifact
	err := members(raw, func(name string, raw []byte) (err error) {
		switch name {
		case "status":
			status = true
			e.Body, err = workingStatus(raw)
		case "artifact":
			artifact = true
			a, err = canon.ParseArtifact(raw, "artifact", canon.V1Report)
		case "append":
			e.Append, err = boolean(raw, "append")
		case "last_chunk":
			e.LastChunk, err = boolean(raw, "last_chunk")
		case "metadata":
			e.Metadata, err = canon.Object(raw, "metadata")
		}
		return err
	})
	switch {
	case err != nil:
		return e, err
	case status == artifact:
		return e, hub.InvalidField("", "has both or neither of status and artifact; an event has exactly one of them")
	case status:
		e.Kind, e.State, e.Append, e.LastChunk = hub.StatusEvent, hub.Working, false, false
		return e, nil
	}
	return artifactEvent(e, a)
}

// artifactEvent completes the event of an artifact, which is named by its id or its
// name: chunks that come in several requests find each other by it.
func artifactEvent(e hub.Event, a canon.Artifact) (hub.Event, error) {
	if a.ID == "" && !isID(a.Name) {
		return e, hub.InvalidField("artifact.artifact_id", "is required where the artifact has no name of at most %d bytes", maxID)
	}
	a.SetID(a.Name)
	e.Kind, e.ArtifactID, e.Body = hub.ArtifactEvent, a.ID, a.Body
	return e, nil
}

// workingStatus reads the status of an event (wire.EventStatus) and gives its
// message, or nil.
func workingStatus(raw []byte) ([]byte, error) {
	var m canon.Message
	err := members(raw, func(name string, raw []byte) (err error) {
		switch name {
		case "state":
			var s string
			if s, err = text(raw, "state"); err != nil {
				return err
			}
			if st, _ := hub.ParseState(s); st != hub.Working {
				err = hub.InvalidField("state", "must be \"working\"; ends and questions are reported as a result")
			}
		case "message":
			m, err = reportMessage(raw, "message")
		}
		return err
	})
	if err != nil {
		return nil, at("status", err)
	}
	if m.Body == nil {
		return nil, nil
	}
	m.SetID(newID())
	return m.Body, nil
}

// decodeHeartbeat reads the body of a heartbeat (wire.HeartbeatRequest), which may
// be missing. A negative number says that the worker named none.
func decodeHeartbeat(body []byte) (after int, err error) {
	after = -1
	if len(body) == 0 {
		return after, nil
	}
	err = object(body, func(name string, raw []byte) error {
		if name != "after" {
			return nil
		}
		n, err := rawjson.Integer(raw)
		if err != nil || n < 0 || n > 1<<31-1 {
			return hub.InvalidField("after", "expected a message number, 0 or more")
		}
		after = int(n)
		return nil
	})
	return after, err
}

// object checks body, which must hold a JSON object, and calls f for its members,
// leaving out those that are null.
func object(body []byte, f func(name string, raw []byte) error) error {
	if err := rawjson.Check(body, maxDepth); err != nil {
		return badJSON(err)
	}
	return members(body, f)
}

// members calls f for the members of the object raw that are not null.
func members(raw []byte, f func(name string, raw []byte) error) error {
	if k := rawjson.KindOf(raw); k != rawjson.Object {
		return hub.InvalidField("", "expected an object, found %s", k)
	}
	return badJSON(rawjson.Members(raw, func(name string, raw []byte) error {
		if rawjson.KindOf(raw) == rawjson.Null {
			return nil
		}
		return f(name, raw)
	}))
}

// elements calls f for the elements of the array raw, with their paths.
func elements(raw []byte, path string, most int, f func(path string, raw []byte) error) error {
	if k := rawjson.KindOf(raw); k != rawjson.Array {
		return hub.InvalidField(path, "expected an array, found %s", k)
	}
	return badJSON(rawjson.Elements(raw, func(i int, raw []byte) error {
		if i == most {
			return hub.InvalidField(path, "has more than %d elements; send fewer at a time", most)
		}
		return f(path+"["+strconv.Itoa(i)+"]", raw)
	}))
}

// badJSON makes an error about JSON one for the client, and leaves others alone.
func badJSON(err error) error {
	var e *rawjson.Error
	if errors.As(err, &e) {
		return hub.InvalidField(e.Path, "the body is not JSON that the hub takes: %s at byte %d", e.Msg, e.Offset)
	}
	return err
}

// text reads a string.
func text(raw []byte, path string) (string, error) {
	s, err := rawjson.Text(raw)
	if err != nil {
		return "", hub.InvalidField(path, "expected a string, found %s", rawjson.KindOf(raw))
	}
	return s, nil
}

// boolean reads true or false.
func boolean(raw []byte, path string) (bool, error) {
	v, err := rawjson.Boolean(raw)
	if err != nil {
		return false, hub.InvalidField(path, "expected true or false, found %s", rawjson.KindOf(raw))
	}
	return v, nil
}

// identifier reads an id; the empty string is none.
func identifier(raw []byte, path string) (string, error) {
	s, err := text(raw, path)
	if err == nil && s != "" && !isID(s) {
		err = hub.InvalidField(path, "expected an id of at most %d bytes without control characters", maxID)
	}
	return s, err
}

// isID reports whether s can serve as an id.
func isID(s string) bool {
	if s == "" || len(s) > maxID {
		return false
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return false
		}
	}
	return true
}

// instant reads a time.
func instant(raw []byte, path string) (time.Time, error) {
	s, err := text(raw, path)
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, hub.InvalidField(path, "expected a time such as 2026-01-31T12:00:00Z")
	}
	return t, nil
}

// newID makes an id for what came without one.
func newID() string { return uuid.Must(uuid.NewV7()).String() }
