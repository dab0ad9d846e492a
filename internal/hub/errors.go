package hub

import (
	"errors"
	"fmt"
	"time"
)

// Kind classifies an error for the faces, which turn it into their own status.
// Kinds are only ever appended: SDKs depend on their meaning.
type Kind uint8

// The kinds of error.
const (
	// Internal is a failure nobody planned for; its text never leaves the hub.
	Internal Kind = iota
	// Invalid is a request that can never succeed as it is.
	Invalid
	// Unauthenticated is a missing, wrong, expired or revoked credential.
	Unauthenticated
	// NotPermitted is a call that the principal may not make, or to no address.
	NotPermitted
	// NotFound is something missing, or that the principal may not know of.
	NotFound
	// Conflict is a report under a lapsed claim, or any other lost race.
	Conflict
	// Ended is a message to a task that has ended.
	Ended
	// NotCancelable is a cancel of a task that ended otherwise.
	NotCancelable
	// KeyReused is an idempotency key that came before with another request.
	KeyReused
	// TooLarge is a body or a task beyond its limit.
	TooLarge
	// RateLimited is a caller beyond its share; RetryAfter says when to come back.
	RateLimited
	// Unavailable is a dependency that fails just now; retry later.
	Unavailable
	// Exists is a name that is taken.
	Exists
	// ClientGone is a request whose client did not wait for the answer.
	ClientGone
	// PushNotSupported is an operation on push notifications at a hub that sends none.
	PushNotSupported
)

// Error is an error that a client may see. Message says what happened, why and
// what to do next, in words that are safe to show; the cause, if any, is for the
// log alone.
type Error struct {
	Kind Kind
	// Code is the public snake_case code, such as "not_permitted".
	Code string
	// Message is for the client.
	Message string
	// Field is the path of the field at fault, such as "message.parts[0]".
	Field string
	// RetryAfter is when a RateLimited or Unavailable request may come again.
	RetryAfter time.Duration
	// Cause is for the log.
	Cause error
}

// Error implements error; it includes the cause and so is for logs, not clients.
func (e *Error) Error() string {
	msg := e.Message
	if e.Field != "" {
		msg = e.Field + ": " + msg
	}
	if e.Cause != nil {
		return msg + ": " + e.Cause.Error()
	}
	return msg
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Cause }

var codes = [...]string{
	Internal: "internal", Invalid: "invalid", Unauthenticated: "unauthenticated",
	NotPermitted: "not_permitted", NotFound: "not_found", Conflict: "conflict",
	Ended: "task_ended", NotCancelable: "task_not_cancelable", KeyReused: "idempotency_key_reused",
	TooLarge: "too_large", RateLimited: "rate_limited", Unavailable: "unavailable", Exists: "exists",
	ClientGone: "client_gone", PushNotSupported: "push_not_supported",
}

// Errorf makes an error of a kind with that kind's usual code.
func Errorf(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Code: codes[k], Message: fmt.Sprintf(format, args...)}
}

// InvalidField makes an Invalid error about one field of the request.
func InvalidField(field, format string, args ...any) *Error {
	e := Errorf(Invalid, format, args...)
	e.Field = field
	return e
}

// Wrap makes an error of a kind that hides cause behind a public message.
func Wrap(k Kind, cause error, format string, args ...any) *Error {
	e := Errorf(k, format, args...)
	e.Cause = cause
	return e
}

// Doubtful makes an Unavailable error with a code of its own, for what may have happened
// or not. Clients take it that nothing has happened if they see the kind's usual code.
func Doubtful(cause error, format string, args ...any) *Error {
	e := Wrap(Unavailable, cause, format, args...)
	e.Code = "outcome_unknown"
	return e
}

// KindOf is the kind of err: Internal when it is no *Error.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// The refusals that faces and tests meet most. They are made anew each time so
// that callers may add details.

// ErrTaskNotFound: no such task, or none that the principal may know of.
func ErrTaskNotFound() *Error { return Errorf(NotFound, "there is no such task") }

// ErrPushNotFound: the task has no such push-notification configuration.
func ErrPushNotFound() *Error {
	return Errorf(NotFound, "the task has no push-notification configuration with that id")
}

// ErrDispatchNotFound: the hub has made no such delivery.
func ErrDispatchNotFound() *Error {
	return Errorf(NotFound, "the hub has made no such delivery")
}

// ErrNotPermitted: the one answer to every call that may not be made.
func ErrNotPermitted() *Error {
	return Errorf(NotPermitted, "this caller may not call that address, or it does not exist; ask the hub's administrator")
}

// ErrNoSuchClaim: what was sent as X-Claim never was a claim of the task.
func ErrNoSuchClaim() *Error {
	e := Errorf(Conflict, "this is no claim of this task; send the claim_id that the task was handed out with, or leave X-Claim out if no other worker shares this address")
	e.Field = "X-Claim"
	return e
}

// ErrClaimLapsed: the report's claim is no longer the task's newest.
func ErrClaimLapsed() *Error {
	return Errorf(Conflict, "this claim has lapsed: the task was offered again or has ended; drop the work")
}
