package client

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

// What A2A 1.0 calls what the types of wire hold (spec section 4.1), as far as
// streams carry it.
type (
	a2aMessage struct {
		MessageID        string          `json:"messageId"`
		Role             string          `json:"role"`
		Parts            []a2aPart       `json:"parts"`
		Metadata         json.RawMessage `json:"metadata"`
		Extensions       []string        `json:"extensions"`
		ReferenceTaskIDs []string        `json:"referenceTaskIds"`
	}
	a2aPart struct {
		Text      *string         `json:"text"`
		Raw       *string         `json:"raw"`
		URL       *string         `json:"url"`
		Data      json.RawMessage `json:"data"`
		MediaType string          `json:"mediaType"`
		Filename  string          `json:"filename"`
		Metadata  json.RawMessage `json:"metadata"`
	}
	a2aArtifact struct {
		ArtifactID  string          `json:"artifactId"`
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parts       []a2aPart       `json:"parts"`
		Metadata    json.RawMessage `json:"metadata"`
		Extensions  []string        `json:"extensions"`
	}
	a2aStatus struct {
		State     string      `json:"state"`
		Message   *a2aMessage `json:"message"`
		Timestamp *wire.Time  `json:"timestamp"`
	}
	a2aTask struct {
		ID        string          `json:"id"`
		ContextID string          `json:"contextId"`
		Status    a2aStatus       `json:"status"`
		Artifacts []a2aArtifact   `json:"artifacts"`
		History   []a2aMessage    `json:"history"`
		Metadata  json.RawMessage `json:"metadata"`
	}
	// a2aResponse is a StreamResponse (spec section 3.2.3): one member is set.
	a2aResponse struct {
		Task         *a2aTask `json:"task"`
		StatusUpdate *struct {
			Status   a2aStatus       `json:"status"`
			Metadata json.RawMessage `json:"metadata"`
		} `json:"statusUpdate"`
		ArtifactUpdate *struct {
			Artifact  a2aArtifact     `json:"artifact"`
			Append    bool            `json:"append"`
			LastChunk bool            `json:"lastChunk"`
			Metadata  json.RawMessage `json:"metadata"`
		} `json:"artifactUpdate"`
	}
	// rpcAnswer is a JSON-RPC response (A2A section 9).
	rpcAnswer struct {
		Result *a2aResponse `json:"result"`
		Error  *rpcFault    `json:"error"`
	}
	rpcFault struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	}
)

// rpcRequest is a JSON-RPC request.
type rpcRequest struct {
	JSONRPC string `json:"jsonrpc"`
	ID      int    `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

func (p a2aPart) wire() Part { return Part(p) }

func wireParts(parts []a2aPart) []Part {
	out := make([]Part, len(parts))
	for i, p := range parts {
		out[i] = p.wire()
	}
	return out
}

func (m *a2aMessage) wire() *Message {
	if m == nil {
		return nil
	}
	return &Message{
		MessageID: m.MessageID, Role: strings.ToLower(strings.TrimPrefix(m.Role, "ROLE_")), Parts: wireParts(m.Parts),
		Metadata: m.Metadata, Extensions: m.Extensions, ReferenceTaskIDs: m.ReferenceTaskIDs,
	}
}

func (a a2aArtifact) wire() Artifact {
	return Artifact{
		ArtifactID: a.ArtifactID, Name: a.Name, Description: a.Description, Parts: wireParts(a.Parts),
		Metadata: a.Metadata, Extensions: a.Extensions,
	}
}

func (s a2aStatus) wire() Status {
	return Status{State: wireState(s.State), Message: s.Message.wire(), Timestamp: s.Timestamp}
}

func wireState(s string) string { return strings.ToLower(strings.TrimPrefix(s, "TASK_STATE_")) }

func (t *a2aTask) wire() wire.Task {
	out := wire.Task{
		ID: t.ID, ContextID: t.ContextID, State: wireState(t.Status.State), Status: t.Status.wire(), Metadata: t.Metadata,
	}
	for i := range t.History {
		out.History = append(out.History, *t.History[i].wire())
	}
	for _, a := range t.Artifacts {
		out.Artifacts = append(out.Artifacts, a.wire())
	}
	return out
}

// rpcError is the error of an answer that is a JSON-RPC error, or nil. resp may be
// nil for an error within a stream.
func rpcError(resp *http.Response, answer []byte) error {
	var a rpcAnswer
	if json.Unmarshal(answer, &a) != nil || a.Error == nil || a.Error.Code == 0 {
		return nil
	}
	e := &Error{Message: a.Error.Message}
	e.Code, e.Status = rpcCode(a.Error.Code)
	if resp != nil {
		e.RequestID = resp.Header.Get("X-Request-Id")
		e.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), time.Now())
		if resp.StatusCode >= 400 {
			e.Status = resp.StatusCode
		}
	}
	e.refine(a.Error.Data)
	return e
}

// refine takes the reason that ErrorInfo gives, and the field at fault, if any.
func (e *Error) refine(data json.RawMessage) {
	var details []struct {
		Reason          string `json:"reason"`
		FieldViolations []struct {
			Field string `json:"field"`
		} `json:"fieldViolations"`
	}
	if json.Unmarshal(data, &details) != nil {
		return
	}
	for _, d := range details {
		if d.Reason != "" {
			e.Code = strings.ToLower(d.Reason)
			e.Status = reasonStatus(e.Code, e.Status)
		}
		if len(d.FieldViolations) > 0 {
			e.Details = map[string]any{"field": d.FieldViolations[0].Field}
		}
	}
}

const codeUnsupported = "unsupported_operation"

// rpcCode gives a code and status for the codes of JSON-RPC and A2A (spec section
// 5.4).
func rpcCode(code int) (string, int) {
	switch code {
	case -32001:
		return "task_not_found", http.StatusNotFound
	case -32002:
		return "task_not_cancelable", http.StatusConflict
	case -32004:
		return codeUnsupported, http.StatusBadRequest
	case -31401:
		return "unauthenticated", http.StatusUnauthorized
	case -31403:
		return "not_permitted", http.StatusForbidden
	case -32603:
		return "internal", http.StatusInternalServerError
	}
	return "invalid", http.StatusBadRequest
}

// reasonStatus is the HTTP status that goes with a reason, or the one there is.
func reasonStatus(reason string, status int) int {
	switch reason {
	case "task_not_found":
		return http.StatusNotFound
	case "unauthenticated":
		return http.StatusUnauthorized
	case "unauthorized":
		return http.StatusForbidden
	case "rate_limited":
		return http.StatusTooManyRequests
	case "unavailable":
		return http.StatusServiceUnavailable
	case "too_large":
		return http.StatusRequestEntityTooLarge
	}
	return status
}
