package a2a

import (
	"context"
	"errors"
	"log/slog"

	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// reason names an error of the protocol, as ErrorInfo.reason has it (spec section
// 5.4). Clients should look at it rather than at a binding's own code.
type reason string

// errorDomain is ErrorInfo.domain of every error.
const errorDomain = "a2a-protocol.org"

// The errors of the specification, and below them those that it leaves to
// bindings and servers.
const (
	taskNotFound           reason = "TASK_NOT_FOUND"
	taskNotCancelable      reason = "TASK_NOT_CANCELABLE"
	pushNotSupported       reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"
	unsupportedOperation   reason = "UNSUPPORTED_OPERATION"
	contentTypeUnsupported reason = "CONTENT_TYPE_NOT_SUPPORTED"
	versionNotSupported    reason = "VERSION_NOT_SUPPORTED"

	extendedCardNotConfigured reason = "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
	extensionRequired         reason = "EXTENSION_SUPPORT_REQUIRED"

	parseError       reason = "PARSE_ERROR"
	invalidRequest   reason = "INVALID_REQUEST"
	methodNotFound   reason = "METHOD_NOT_FOUND"
	methodNotAllowed reason = "METHOD_NOT_ALLOWED"
	invalidParams    reason = "INVALID_PARAMS"
	internalError    reason = "INTERNAL_ERROR"
	unauthenticated  reason = "UNAUTHENTICATED"
	unauthorized     reason = "UNAUTHORIZED"
	keyReused        reason = "IDEMPOTENCY_KEY_REUSED"
	conflict         reason = "CONFLICT"
	tooLarge         reason = "TOO_LARGE"
	rateLimited      reason = "RATE_LIMITED"
	unavailable      reason = "UNAVAILABLE"
)

// fault is an error in A2A's terms, whatever the binding. Its message is for the
// client.
type fault struct {
	reason  reason
	message string
	// field is the path of the parameter at fault, below params.
	field string
	// metadata is ErrorInfo.metadata.
	metadata map[string]string
	// cause is the hub's error that this one stands for, if there is one.
	cause *hub.Error
}

// Error implements error.
func (f *fault) Error() string { return string(f.reason) + ": " + f.message }

// translate is the one place where errors become A2A's. What is not meant for
// clients is logged, once, and says nothing of itself.
func translate(ctx context.Context, log *slog.Logger, err error) *fault {
	var f *fault
	if errors.As(err, &f) {
		return f
	}
	e := httpx.Public(ctx, log, err)
	f = &fault{reason: reasonOf(e.Kind), message: e.Message, field: e.Field, cause: e}
	if f.field != "" { // many clients show nothing but the message
		f.message = f.field + ": " + f.message
	}
	return f
}

// public is the fault as the rest of the hub knows errors, for what it does with any
// of them.
func (f *fault) public() *hub.Error {
	if f.cause != nil {
		return f.cause
	}
	return &hub.Error{Kind: hub.Invalid, Message: f.message}
}

// reasonOf is the reason for a kind of error.
func reasonOf(k hub.Kind) reason {
	switch k {
	case hub.Invalid:
		return invalidParams
	case hub.Unauthenticated:
		return unauthenticated
	case hub.NotPermitted:
		return unauthorized
	case hub.NotFound:
		return taskNotFound
	case hub.Ended:
		return unsupportedOperation
	case hub.NotCancelable:
		return taskNotCancelable
	case hub.KeyReused:
		return keyReused
	case hub.PushNotSupported:
		return pushNotSupported
	case hub.Conflict, hub.Exists, hub.ClientGone:
		return conflict
	case hub.TooLarge:
		return tooLarge
	case hub.RateLimited:
		return rateLimited
	case hub.Unavailable:
		return unavailable
	case hub.Internal:
	}
	return internalError
}
