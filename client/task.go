package client

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-hub/holdfast/wire"
)

// Task is a task as it was when the hub answered: its caller has it from Send, Wait
// and Get, its callee from Serve and Next. Its fields are those of [wire.Task], and
// it marshals to the JSON of the API.
//
// Text, Data and Decode read what the task was sent with; ResultText, ResultData and
// DecodeResult what came of it. Done, Ask, Progress and the other methods that take
// a context are for a callee that holds the task.
type Task struct {
	wire.Task
	hold *hold // nil unless this client claimed the task
}

// UnmarshalJSON reads a task as the API writes it.
func (t *Task) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &t.Task) }

// Text is the texts that the task was sent with, joined by newlines.
func (t *Task) Text() string { return PartText(t.inputParts()) }

// Data is the data parts that the task was sent with, merged. Numbers are
// json.Number, so none loses digits. It is empty, not nil, if there are none.
func (t *Task) Data() map[string]any { return partData(t.inputParts()) }

// Decode reads the data parts that the task was sent with into v, merged if there
// are several. Without a data part, the text is read as JSON, or as it is into a
// *string.
func (t *Task) Decode(v any) error { return decodeParts(t.inputParts(), v) }

func (t *Task) inputParts() []Part {
	if t.Input == nil {
		return nil
	}
	return t.Input.Message.Parts
}

// Answer is the newest message of the caller after the one that the task was sent
// with: the answer to the question that the callee asked. ok is false if there is
// none, as in the first attempt.
func (t *Task) Answer() (m Message, ok bool) {
	for i := len(t.History) - 1; i >= 0; i-- {
		if t.History[i].Role == roleUser {
			return t.History[i], i > 0
		}
	}
	return Message{}, false
}

// AnswerText is the text of Answer, empty if there is none.
func (t *Task) AnswerText() string {
	m, ok := t.Answer()
	if !ok {
		return ""
	}
	return PartText(m.Parts)
}

// ResultText is the texts of all artifacts, joined by newlines.
func (t *Task) ResultText() string { return PartText(t.resultParts()) }

// ResultData is the data parts of all artifacts, merged, with numbers as
// json.Number. It is empty, not nil, if there are none.
func (t *Task) ResultData() map[string]any { return partData(t.resultParts()) }

// DecodeResult reads the data parts of all artifacts into v, as Decode does.
func (t *Task) DecodeResult(v any) error { return decodeParts(t.resultParts(), v) }

func (t *Task) resultParts() []Part {
	var parts []Part
	for _, a := range t.Artifacts {
		parts = append(parts, a.Parts...)
	}
	return parts
}

// StatusText is the text that came with the current state, such as a question or
// the latest progress.
func (t *Task) StatusText() string {
	if t.Status.Message == nil {
		return ""
	}
	return PartText(t.Status.Message.Parts)
}

// Ended reports whether the task has completed, failed, or was canceled or rejected.
func (t *Task) Ended() bool { return Ended(t.State) }

// Settled reports whether the task has ended or waits for its caller.
func (t *Task) Settled() bool { return Settled(t.State) }

// Err is nil unless the task has failed or was canceled or rejected; then it is a
// [*TaskError].
func (t *Task) Err() error {
	if !t.Ended() || t.State == StateCompleted {
		return nil
	}
	e := &TaskError{TaskID: t.ID, State: t.State, Text: t.StatusText()}
	if t.Error != nil && *t.Error != "" {
		e.Text = *t.Error
	}
	return e
}

// TaskError is the end of a task that did not complete.
type TaskError struct {
	TaskID string
	State  string // failed, canceled or rejected
	Text   string // why, in the callee's or the hub's words; may be empty
}

// Error implements error.
func (e *TaskError) Error() string {
	if e.Text == "" {
		return fmt.Sprintf("task %s: %s", e.TaskID, e.State)
	}
	return fmt.Sprintf("task %s: %s: %s", e.TaskID, e.State, e.Text)
}
