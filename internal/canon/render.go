package canon

import (
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// AppendTime appends t as a JSON string: RFC 3339, UTC, exactly milliseconds, and Z
// (A2A section 5.6.1).
func AppendTime(dst []byte, t time.Time) []byte {
	return t.UTC().AppendFormat(dst, `"2006-01-02T15:04:05.000Z"`)
}

// AppendMessage appends a message as A2A 1.0 shows it: body with the ids of its task
// and context, where they are not empty.
func AppendMessage(dst, body []byte, taskID, contextID string) []byte {
	dst = append(dst, '{')
	if taskID != "" {
		dst = rawjson.AppendText(appendKey(dst, "taskId"), taskID)
	}
	if contextID != "" {
		dst = rawjson.AppendText(appendKey(comma(dst), "contextId"), contextID)
	}
	return append(comma(dst), body[1:]...)
}

// AppendTask appends a task as A2A 1.0 shows it (section 4.1.1). Artifacts and
// history are there if they were loaded, that is, are not nil.
func AppendTask(dst []byte, t *hub.Task) []byte {
	dst = append(dst, `{"id":`...)
	dst = rawjson.AppendText(dst, t.ID)
	dst = append(dst, `,"contextId":`...)
	dst = rawjson.AppendText(dst, t.ContextID)
	dst = append(dst, `,"status":`...)
	dst = appendStatus(dst, t.ID, t.ContextID, t.State, t.StatusMessage, t.StateAt)
	if t.Artifacts != nil {
		dst = append(dst, `,"artifacts":[`...)
		for _, a := range t.Artifacts {
			dst = append(comma(dst), a...)
		}
		dst = append(dst, ']')
	}
	if t.History != nil {
		dst = append(dst, `,"history":[`...)
		for _, m := range t.History {
			dst = AppendMessage(comma(dst), m.Body, t.ID, t.ContextID)
		}
		dst = append(dst, ']')
	}
	dst = appendMetadata(dst, t.Metadata)
	return append(dst, '}')
}

// AppendStatusUpdate appends a StatusEvent as a TaskStatusUpdateEvent (section
// 4.2.1).
func AppendStatusUpdate(dst []byte, taskID, contextID string, e *hub.Event) []byte {
	dst = appendTaskInfo(dst, taskID, contextID)
	dst = append(dst, `,"status":`...)
	dst = appendStatus(dst, taskID, contextID, e.State, e.Body, e.At)
	dst = appendMetadata(dst, e.Metadata)
	return append(dst, '}')
}

// AppendArtifactUpdate appends an ArtifactEvent as a TaskArtifactUpdateEvent
// (section 4.2.2).
func AppendArtifactUpdate(dst []byte, taskID, contextID string, e *hub.Event) []byte {
	dst = appendTaskInfo(dst, taskID, contextID)
	dst = append(dst, `,"artifact":`...)
	dst = append(dst, e.Body...)
	if e.Append {
		dst = append(dst, `,"append":true`...)
	}
	if e.LastChunk {
		dst = append(dst, `,"lastChunk":true`...)
	}
	dst = appendMetadata(dst, e.Metadata)
	return append(dst, '}')
}

// AppendStreamResponse appends an event as a StreamResponse (section 3.2.3):
// {"statusUpdate":…} or {"artifactUpdate":…}.
func AppendStreamResponse(dst []byte, taskID, contextID string, e *hub.Event) []byte {
	if e.Kind == hub.ArtifactEvent {
		dst = append(dst, `{"artifactUpdate":`...)
		dst = AppendArtifactUpdate(dst, taskID, contextID, e)
	} else {
		dst = append(dst, `{"statusUpdate":`...)
		dst = AppendStatusUpdate(dst, taskID, contextID, e)
	}
	return append(dst, '}')
}

// appendTaskInfo begins an event with the ids of its task and context.
func appendTaskInfo(dst []byte, taskID, contextID string) []byte {
	dst = append(dst, `{"taskId":`...)
	dst = rawjson.AppendText(dst, taskID)
	dst = append(dst, `,"contextId":`...)
	return rawjson.AppendText(dst, contextID)
}

// appendStatus appends a TaskStatus (section 4.1.2).
func appendStatus(dst []byte, taskID, contextID string, s hub.State, message []byte, since time.Time) []byte {
	dst = append(dst, `{"state":"`...)
	dst = append(dst, s.Protocol()...)
	dst = append(dst, '"')
	if message != nil {
		dst = append(dst, `,"message":`...)
		dst = AppendMessage(dst, message, taskID, contextID)
	}
	if !since.IsZero() {
		dst = append(dst, `,"timestamp":`...)
		dst = AppendTime(dst, since)
	}
	return append(dst, '}')
}

// appendMetadata appends metadata as a further member, if there is any.
func appendMetadata(dst, metadata []byte) []byte {
	if metadata == nil {
		return dst
	}
	dst = append(dst, `,"metadata":`...)
	return append(dst, metadata...)
}
