package remotea2a

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// remoteTask is what an agent says of a task.
type remoteTask struct {
	id, context string
	state       hub.State
	message     []byte // of its status, canonical; nil if none
	artifacts   []canon.Artifact
	answer      []byte // the agent's last message of the history, canonical
}

// said is one thing that an agent says: a task, a change of one, or a message.
type said struct {
	task     *remoteTask // whole, or with its status alone
	status   bool        // task has its status alone
	artifact *canon.Artifact
	taskID   string // of the artifact
	append   bool
	last     bool
	message  []byte // a bare message, canonical
}

// The JSON of either version; what differs has two names.
type (
	taskJSON struct {
		Kind      string
		ID        string
		ContextID string
		Status    statusJSON
		Artifacts []json.RawMessage
		History   []json.RawMessage
	}
	statusJSON struct {
		State   string
		Message json.RawMessage
		// Timestamp is not looked at: some agents leave out its zone.
	}
	changeJSON struct {
		Kind      string
		TaskID    string
		ContextID string
		Status    statusJSON
		Artifact  json.RawMessage
		Append    bool
		LastChunk bool
	}
	wrapped struct{ Task, Message, StatusUpdate, ArtifactUpdate json.RawMessage }
)

// parseTask reads the result of an operation that gives a task.
func parseTask(result []byte, v03 bool) (*remoteTask, error) {
	s, err := parse(result, v03)
	switch {
	case err != nil:
		return nil, err
	case s.task == nil || s.status:
		return nil, &garbled{"it is no task"}
	}
	return s.task, nil
}

// parse reads a result or an event. Agents of either version are taken at the word of
// either: some mix them.
func parse(result []byte, v03 bool) (*said, error) {
	var w wrapped
	if json.Unmarshal(result, &w) != nil {
		return nil, &garbled{"it is no object"}
	}
	var kind struct{ Kind string }
	_ = json.Unmarshal(result, &kind) // it is an object, and a kind that is no text is none
	switch {
	case isObject(w.Task):
		return readTask(w.Task, v03)
	case isObject(w.StatusUpdate):
		return readStatus(w.StatusUpdate, v03)
	case isObject(w.ArtifactUpdate):
		return readArtifact(w.ArtifactUpdate, v03)
	case kind.Kind == "message":
		return readMessage(result, true)
	case kind.Kind == "status-update":
		return readStatus(result, true)
	case kind.Kind == "artifact-update":
		return readArtifact(result, true)
	case isObject(w.Message):
		return readMessage(w.Message, v03)
	}
	return readTask(result, v03)
}

func isObject(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && raw[0] == '{'
}

func readTask(raw []byte, v03 bool) (*said, error) {
	var j taskJSON
	if err := json.Unmarshal(raw, &j); err != nil || j.ID == "" {
		return nil, &garbled{"it is no task"}
	}
	t := &remoteTask{id: j.ID, context: j.ContextID}
	if err := t.setStatus(j.Status, v03); err != nil {
		return nil, err
	}
	for _, a := range j.Artifacts {
		read, err := artifactOf(a, v03)
		if err != nil {
			return nil, err
		}
		t.artifacts = append(t.artifacts, *read)
	}
	if n := len(j.History); n > 0 {
		if m, err := messageOf(j.History[n-1], v03); err == nil && m.FromAgent {
			t.answer = m.Body
		}
	}
	return &said{task: t}, nil
}

// setStatus takes over a status.
func (t *remoteTask) setStatus(s statusJSON, v03 bool) error {
	name := strings.ReplaceAll(s.State, "-", "_")
	state, ok := hub.ParseState(name)
	if !ok && name != "unknown" {
		return &garbled{"its task has no state that A2A knows"}
	}
	t.state = state
	if !isObject(s.Message) {
		return nil
	}
	m, err := messageOf(s.Message, v03)
	if err != nil {
		return err
	}
	t.message = m.Body
	return nil
}

func readStatus(raw []byte, v03 bool) (*said, error) {
	var j changeJSON
	if json.Unmarshal(raw, &j) != nil {
		return nil, &garbled{"it is no status of a task"}
	}
	t := &remoteTask{id: j.TaskID, context: j.ContextID}
	return &said{task: t, status: true}, t.setStatus(j.Status, v03)
}

func readArtifact(raw []byte, v03 bool) (*said, error) {
	var j changeJSON
	if json.Unmarshal(raw, &j) != nil {
		return nil, &garbled{"it is no artifact of a task"}
	}
	a, err := artifactOf(j.Artifact, v03)
	if err != nil {
		return nil, err
	}
	return &said{artifact: a, taskID: j.TaskID, append: j.Append, last: j.LastChunk}, nil
}

func readMessage(raw []byte, v03 bool) (*said, error) {
	m, err := messageOf(raw, v03)
	if err != nil {
		return nil, err
	}
	return &said{message: m.Body}, nil
}

func messageOf(raw []byte, v03 bool) (canon.Message, error) {
	raw = upgrade(raw, v03)
	m, err := canon.ParseMessage(raw, "message", canon.V1Report)
	if err != nil {
		return m, &garbled{words(err)}
	}
	m.SetID(uuid.Must(uuid.NewV7()).String())
	return m, nil
}

func artifactOf(raw []byte, v03 bool) (*canon.Artifact, error) {
	if !isObject(raw) {
		return nil, &garbled{"an artifact is missing"}
	}
	a, err := canon.ParseArtifact(upgrade(raw, v03), "artifact", canon.V1Report)
	if err != nil {
		return nil, &garbled{words(err)}
	}
	a.SetID(uuid.Must(uuid.NewV7()).String())
	return &a, nil
}

// words is what callers may see of an error.
func words(err error) string {
	if kind := hub.KindOf(err); kind == hub.Invalid || kind == hub.TooLarge {
		return cut(err.Error())
	}
	return "it is not valid"
}
