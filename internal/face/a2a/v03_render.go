package a2a

import (
	"strings"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// The Append functions below write what the hub keeps, canonical JSON of 1.0, in an
// older form. They copy values as they are, so numbers keep every digit.

// appendSent appends the result of a send.
func (f form) appendSent(dst []byte, t *hub.Task, history int) []byte {
	if f == kinded {
		return f.appendTask(dst, t, history)
	}
	return append(f.appendTask(append(dst, `{"task":`...), t, history), '}')
}

// appendReply appends the result of a send that is answered with a message alone.
func (f form) appendReply(dst, message []byte, t *hub.Task) []byte {
	if f == kinded {
		return f.appendMessage(dst, message, t.ID, t.ContextID)
	}
	return append(f.appendMessage(append(dst, `{"message":`...), message, t.ID, t.ContextID), '}')
}

// begin begins an object of a kind.
func (f form) begin(dst []byte, kind string) []byte {
	dst = append(dst, '{')
	if f == kinded {
		dst = append(append(append(dst, `"kind":"`...), kind...), `",`...)
	}
	return dst
}

// appendTask appends a task. history is how many messages were asked for: the task
// was loaded with as many.
func (f form) appendTask(dst []byte, t *hub.Task, history int) []byte {
	dst = rawjson.AppendText(append(f.begin(dst, "task"), `"id":`...), t.ID)
	dst = rawjson.AppendText(append(dst, `,"contextId":`...), t.ContextID)
	dst = append(dst, `,"status":`...)
	dst = f.appendStatus(dst, t.ID, t.ContextID, &hub.Event{State: t.State, Body: t.StatusMessage, At: t.StateAt})
	if len(t.Artifacts) > 0 {
		dst = append(dst, `,"artifacts":[`...)
		for i, a := range t.Artifacts {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = f.appendArtifact(dst, a)
		}
		dst = append(dst, ']')
	}
	if messages := conversation(t, history); len(messages) > 0 {
		dst = append(dst, `,"history":[`...)
		for i, body := range messages {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = f.appendMessage(dst, body, t.ID, t.ContextID)
		}
		dst = append(dst, ']')
	}
	return append(appendMetadata(dst, t.Metadata), '}')
}

// appendMetadata appends metadata as a further member, if there is any.
func appendMetadata(dst, metadata []byte) []byte {
	if metadata == nil {
		return dst
	}
	return append(append(dst, `,"metadata":`...), metadata...)
}

// conversation is the newest messages of a task, as many as were asked for. Clients
// of FastA2A show the last message of the history as the answer and look nowhere
// else, so once a task has ended or asks something it closes with what its agent said
// last.
func conversation(t *hub.Task, history int) [][]byte {
	if history == 0 {
		return nil
	}
	var all [][]byte
	for i := range t.History {
		all = append(all, t.History[i].Body)
	}
	all = append(all, lastWords(t)...)
	if history > 0 && len(all) > history {
		all = all[len(all)-history:]
	}
	return all
}

// lastWords is what the agent said last: the message of the status, and behind it for
// a task that completed what is in its artifacts, as a message. A task that ended
// without a word gets one of the hub's, so that nobody takes the question for the
// answer.
func lastWords(t *hub.Task) [][]byte {
	if !t.State.Settled() {
		return nil
	}
	var words [][]byte
	if t.StatusMessage != nil {
		words = append(words, t.StatusMessage)
	}
	id := t.ID + "-answer"
	if t.State == hub.Completed {
		if parts := allParts(t.Artifacts); parts != nil {
			words = append(words, answerOf(id, parts))
		}
	}
	if len(words) == 0 && t.State.Terminal() {
		end := "The task " + t.State.String()
		switch {
		case t.State == hub.Canceled || t.State == hub.Rejected:
			end = "The task was " + t.State.String() + "."
		case t.Error != "":
			end += ": " + t.Error
		default:
			end += " without a message."
		}
		words = append(words, canon.TextMessage(id, true, end))
	}
	return words
}

// answerOf is the canonical message of an agent with these parts.
func answerOf(id string, parts []byte) []byte {
	dst := append(make([]byte, 0, len(id)+len(parts)+64), `{"messageId":`...)
	dst = append(rawjson.AppendText(dst, id), `,"role":"ROLE_AGENT","parts":[`...)
	return append(append(dst, parts...), `]}`...)
}

// allParts is the parts of canonical artifacts, with commas between them, or nil.
func allParts(artifacts [][]byte) []byte {
	var all []byte
	for _, a := range artifacts {
		var parts []byte
		_ = pick(a, "", field{"parts", &parts})
		if len(parts) <= len(`[]`) {
			continue
		}
		if all != nil {
			all = append(all, ',')
		}
		all = append(all, parts[1:len(parts)-1]...)
	}
	return all
}

// state is the name of a state.
func (f form) state(s hub.State) string {
	if f != proto {
		return strings.ReplaceAll(s.String(), "_", "-")
	}
	if s == hub.Canceled {
		return "TASK_STATE_CANCELLED"
	}
	return s.Protocol()
}

// appendStatus appends the status that an event set.
func (f form) appendStatus(dst []byte, taskID, contextID string, e *hub.Event) []byte {
	dst = append(append(append(dst, `{"state":"`...), f.state(e.State)...), '"')
	if e.Body != nil {
		dst = f.appendMessage(append(dst, `,"message":`...), e.Body, taskID, contextID)
	}
	if !e.At.IsZero() {
		dst = canon.AppendTime(append(dst, `,"timestamp":`...), e.At)
	}
	return append(dst, '}')
}

// appendEvent appends an event of a task. final says that it is the last one that the
// client gets, which only a status can be.
func (f form) appendEvent(dst []byte, taskID, contextID string, e *hub.Event, final bool) []byte {
	kind, member := "status-update", `{"statusUpdate":`
	if e.Kind == hub.ArtifactEvent {
		kind, member = "artifact-update", `{"artifactUpdate":`
	}
	if f != kinded {
		dst = append(dst, member...)
	}
	dst = rawjson.AppendText(append(f.begin(dst, kind), `"taskId":`...), taskID)
	dst = rawjson.AppendText(append(dst, `,"contextId":`...), contextID)
	if e.Kind == hub.ArtifactEvent {
		dst = f.appendArtifact(append(dst, `,"artifact":`...), e.Body)
		if e.Append {
			dst = append(dst, `,"append":true`...)
		}
		if e.LastChunk {
			dst = append(dst, `,"lastChunk":true`...)
		}
	} else {
		dst = f.appendStatus(append(dst, `,"status":`...), taskID, contextID, e)
		if final {
			dst = append(dst, `,"final":true`...)
		} else if f != proto {
			dst = append(dst, `,"final":false`...)
		}
	}
	dst = append(appendMetadata(dst, e.Metadata), '}')
	if f != kinded {
		dst = append(dst, '}')
	}
	return dst
}

// appendMessage appends a canonical message with the ids of its task and context.
func (f form) appendMessage(dst, body []byte, taskID, contextID string) []byte {
	dst = rawjson.AppendText(append(f.begin(dst, "message"), `"taskId":`...), taskID)
	dst = rawjson.AppendText(append(dst, `,"contextId":`...), contextID)
	_ = rawjson.Members(body, func(name string, value []byte) error {
		switch {
		case name == "role" && f != proto:
			role := `"user"`
			if string(value) == `"ROLE_AGENT"` {
				role = `"agent"`
			}
			dst = append(append(dst, `,"role":`...), role...)
		case name == "parts" && f == proto:
			dst = f.appendParts(append(dst, `,"content":`...), value)
		case name == "parts":
			dst = f.appendParts(append(dst, `,"parts":`...), value)
		case name == "referenceTaskIds" && f == proto: // there is no such member
		default:
			dst = append(append(rawjson.AppendText(append(dst, ','), name), ':'), value...)
		}
		return nil
	})
	return append(dst, '}')
}

// appendArtifact appends a canonical artifact.
func (f form) appendArtifact(dst, body []byte) []byte {
	dst = append(dst, '{')
	start := len(dst)
	_ = rawjson.Members(body, func(name string, value []byte) error {
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(rawjson.AppendText(dst, name), ':')
		if name == "parts" {
			dst = f.appendParts(dst, value)
		} else {
			dst = append(dst, value...)
		}
		return nil
	})
	return append(dst, '}')
}

// appendParts appends an array of canonical parts.
func (f form) appendParts(dst, parts []byte) []byte {
	if f == bare {
		return append(dst, parts...)
	}
	dst = append(dst, '[')
	_ = rawjson.Elements(parts, func(i int, part []byte) error {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = f.appendPart(dst, part)
		return nil
	})
	return append(dst, ']')
}

// appendPart appends a canonical part. The media type and the file name of what is no
// file have no place before 1.0.
func (f form) appendPart(dst, part []byte) []byte {
	var words, raw, url, data, mediaType, filename, metadata []byte
	_ = pick(part, "", field{"text", &words}, field{"raw", &raw}, field{"url", &url}, field{"data", &data},
		field{"mediaType", &mediaType}, field{"filename", &filename}, field{"metadata", &metadata})
	switch {
	case words != nil:
		dst = append(append(f.begin(dst, "text"), `"text":`...), words...)
	case data != nil:
		data, metadata = wrapData(data, metadata)
		dst = append(f.begin(dst, "data"), `"data":`...)
		if f == proto {
			dst = append(append(append(dst, `{"data":`...), data...), '}')
		} else {
			dst = append(dst, data...)
		}
	default:
		dst = append(f.begin(dst, "file"), `"file":{`...)
		if raw != nil {
			dst = append(append(rawjson.AppendText(dst, f.bytesName()), ':'), raw...)
		} else {
			dst = append(append(rawjson.AppendText(dst, f.uriName()), ':'), url...)
		}
		if mediaType != nil {
			dst = append(append(dst, `,"mimeType":`...), mediaType...)
		}
		if filename != nil {
			dst = append(append(dst, `,"name":`...), filename...)
		}
		dst = append(dst, '}')
	}
	return append(appendMetadata(dst, metadata), '}')
}

// wrapData makes an object of data that is none, and marks it as wrapped; see
// dataMark.
func wrapData(data, metadata []byte) (object, marked []byte) {
	if rawjson.KindOf(data) == rawjson.Object {
		return data, metadata
	}
	object = append(append([]byte(`{"value":`), data...), '}')
	marked = []byte(`{"` + dataMark + `":true`)
	_ = rawjson.Members(metadata, func(name string, value []byte) error {
		if name != dataMark {
			marked = append(append(rawjson.AppendText(append(marked, ','), name), ':'), value...)
		}
		return nil
	})
	return object, append(marked, '}')
}
