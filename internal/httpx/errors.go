package httpx

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/wire"
)

// statusClientGone is what logs and metrics show, in the way of nginx, for a request
// whose client left before the answer; nobody receives it.
const statusClientGone = 499

// Status is the HTTP status of a kind of error.
func Status(kind hub.Kind) int {
	switch kind {
	case hub.Invalid, hub.PushNotSupported:
		return http.StatusBadRequest
	case hub.Unauthenticated:
		return http.StatusUnauthorized
	case hub.NotPermitted:
		return http.StatusForbidden
	case hub.NotFound:
		return http.StatusNotFound
	case hub.Conflict, hub.Ended, hub.NotCancelable, hub.KeyReused, hub.Exists:
		return http.StatusConflict
	case hub.TooLarge:
		return http.StatusRequestEntityTooLarge
	case hub.RateLimited:
		return http.StatusTooManyRequests
	case hub.Unavailable:
		return http.StatusServiceUnavailable
	case hub.ClientGone:
		return statusClientGone
	case hub.Internal:
	}
	return http.StatusInternalServerError
}

// Public turns any error into the one that the client may see, and logs the cause
// of what it hides, once. An error that merely says that the request's context has
// ended becomes the reason why it ended, such as a revoked token.
func Public(ctx context.Context, log *slog.Logger, err error) *hub.Error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		err = ended(ctx, err)
	}
	var e *hub.Error
	if !errors.As(err, &e) || e.Kind == hub.Internal {
		id := RequestID(ctx)
		log.ErrorContext(ctx, "request failed", "request_id", id, "err", err)
		return hub.Errorf(hub.Internal, "internal error; tell the hub's administrator the request id %s", id)
	}
	if e.Cause != nil {
		log.WarnContext(ctx, "request refused", "request_id", RequestID(ctx), "code", e.Code, "err", err)
	}
	return e
}

// ended explains an error of a context that is over.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	var e *hub.Error
	if cause := context.Cause(ctx); errors.As(cause, &e) {
		return e
	}
	const message = "the request was given up before it was done; ask for the task's state, or send it again with the same Idempotency-Key"
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return hub.Errorf(hub.ClientGone, message)
	}
	return hub.Doubtful(nil, message)
}

// WriteError answers with an error in /v1's form. It is for errors that have no
// face of their own, and for /v1.
func WriteError(w http.ResponseWriter, e *hub.Error) {
	body := wire.ErrorBody{Error: wire.Error{Code: e.Code, Message: e.Message}}
	if e.Field != "" {
		body.Error.Details = map[string]any{"field": e.Field}
	}
	data, err := json.Marshal(body)
	if err != nil { // strings always marshal
		data = []byte(`{"error":{"code":"internal","message":"internal error"}}`)
	}
	ErrorHeaders(w.Header(), e)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(Status(e.Kind))
	w.Write(data) // a client that is gone needs no answer
}

// ErrorHeaders sets the headers that go with an error whatever its body is: the
// challenge of a 401, and Retry-After in whole seconds, at least one.
func ErrorHeaders(h http.Header, e *hub.Error) {
	h.Set("Cache-Control", "no-store")
	if e.Kind == hub.Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	}
	if e.Kind == hub.RateLimited || e.Kind == hub.Unavailable {
		wait := (e.RetryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(max(1, int64(wait)), 10))
	}
}
