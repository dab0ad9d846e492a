package remotea2a

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/egress"
)

// agentError is what an agent refuses with, in A2A's words.
type agentError struct {
	code    int // that of JSON-RPC; 0 if none is known
	message string
}

// Error implements error.
func (e *agentError) Error() string { return "it refused: " + cut(e.message) }

// The codes of A2A (section 5.4).
const (
	codeNotFound       = -32001
	codeNoSuchMethod   = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeWrongVersion   = -32009
	codeServerFirst    = -32099 // the range of what servers make up, in which
	codeServerLast     = -32010 // nothing is A2A's
	messageMax         = 300
	statusUnauthorized = "it wants another credential than the endpoint has"
)

// statusError is an HTTP status that is no success.
type statusError struct {
	status int
	after  time.Duration
	grpc   string // that of gRPC and its words, to which the status is alike; empty for HTTP
}

// Error implements error.
func (e *statusError) Error() string {
	switch {
	case e.status == http.StatusUnauthorized || e.status == http.StatusForbidden:
		return fmt.Sprintf("it answered %d: %s", e.status, statusUnauthorized)
	case e.grpc != "":
		return "it answered " + e.grpc
	case e.status/100 == 3:
		return fmt.Sprintf("it answered %d, and redirects are not followed", e.status)
	}
	return strings.TrimSpace(fmt.Sprintf("it answered %d %s", e.status, http.StatusText(e.status)))
}

// garbled is an answer that cannot be understood.
type garbled struct{ why string }

// Error implements error.
func (e *garbled) Error() string { return "its answer cannot be understood: " + e.why }

// unsent is a reason of the hub's own for which nothing was sent.
type unsent struct{ why string }

// Error implements error.
func (e *unsent) Error() string { return e.why }

// refusal is the error that a response is which is no success: in A2A's words, if it has
// some.
func refusal(resp *http.Response, body []byte) error {
	var said struct {
		Error struct {
			Code    json.Number
			Status  string
			Message string
			Details []struct{ Reason string }
		}
	}
	if json.Unmarshal(body, &said) == nil {
		for _, d := range said.Error.Details {
			if d.Reason == "TASK_NOT_FOUND" {
				return &agentError{codeNotFound, said.Error.Message}
			}
		}
		code, _ := said.Error.Code.Int64()
		if code < -32000 || resp.StatusCode/100 == 4 && said.Error.Message != "" && resp.StatusCode > 403 && resp.StatusCode < 408 {
			return &agentError{int(code), said.Error.Message}
		}
	}
	return &statusError{status: resp.StatusCode, after: retryAfter(resp.Header)}
}

func isNotFound(err error) bool {
	var e *agentError
	return errors.As(err, &e) && e.code == codeNotFound
}

// isOtherVersion reports whether an agent speaks another version than it was taken for.
func isOtherVersion(err error) bool {
	var e *agentError
	return errors.As(err, &e) && (e.code == codeNoSuchMethod || e.code == codeWrongVersion)
}

// isUnsent reports whether nothing of a request has left the hub.
func isUnsent(err error) bool {
	var e *egress.Error
	var u *unsent
	return errors.As(err, &e) && !e.Sent || errors.As(err, &u)
}

// outcomeOf says what a request means that failed; begun says whether the agent may have
// the task from an earlier one. Callers see the reason of what was sent, so it names no
// host.
func outcomeOf(err error, begun bool) delivery.Outcome {
	var (
		e *egress.Error
		u *unsent
		a *agentError
		s *statusError
		g *garbled
	)
	lost := delivery.Outcome{Kind: delivery.Lost}
	switch {
	case errors.As(err, &u):
		return delivery.Outcome{Kind: delivery.Unsent, Reason: u.why}
	case errors.As(err, &e) && !e.Sent && !begun:
		return delivery.Outcome{Kind: delivery.Unsent, Busy: e.Reason == egress.Busy || e.Reason == egress.Canceled, Reason: e.Message}
	case errors.As(err, &e) && e.Reason == egress.TooLarge:
		return delivery.Outcome{Kind: delivery.Refused, Reason: "its answer is larger than the hub takes"}
	case errors.As(err, &e):
		lost.Reason = "the connection to it broke"
	case errors.As(err, &s):
		lost.Reason, lost.Status, lost.After = s.Error(), s.status, s.after
		if s.status/100 < 5 && s.status != http.StatusRequestTimeout && s.status != http.StatusTooManyRequests {
			lost.Kind, lost.After = delivery.Refused, 0
		}
	case errors.As(err, &a):
		lost.Reason = a.Error()
		if a.code != codeInternal && (a.code < codeServerFirst || a.code > codeServerLast) {
			lost.Kind = delivery.Refused
		}
	case errors.As(err, &g):
		lost.Reason = g.Error()
	default:
		lost.Reason = "it did not answer in time, or not as the hub could read it"
	}
	return lost
}

// cut keeps what an agent says short enough to be passed on.
func cut(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= messageMax {
		return s
	}
	return strings.ToValidUTF8(s[:messageMax], "") + "…"
}
