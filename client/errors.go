package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/wire"
)

// What calls can fail with; test with errors.Is. An answer of the hub is an
// [*Error] too, which has the words.
var (
	// ErrUnreachable: the hub could not be reached, or the connection broke before
	// its answer was complete.
	ErrUnreachable = errors.New("the hub cannot be reached")
	// ErrUnauthenticated: the token is missing, wrong, expired or revoked (401).
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrNotPermitted: this caller may not call that address, or there is no such
	// address (403).
	ErrNotPermitted = errors.New("not permitted")
	// ErrNotFound: there is no such thing, or none that this caller may see (404).
	ErrNotFound = errors.New("not found")
	// ErrConflict: a lost race, a name that is taken, a key that was used before (409).
	ErrConflict = errors.New("conflict")
	// ErrEnded: the task has ended, so it takes no more messages.
	ErrEnded = errors.New("the task has ended")
	// ErrNotCancelable: the task ended otherwise before the cancel.
	ErrNotCancelable = errors.New("the task cannot be canceled any more")
	// ErrInvalid: the request can never succeed as it is (400, 415, 422).
	ErrInvalid = errors.New("invalid request")
	// ErrTooLarge: a body or a task beyond its limit (413).
	ErrTooLarge = errors.New("too large")
	// ErrRateLimited: beyond this caller's share, even after the retries (429).
	ErrRateLimited = errors.New("rate limited")

	// ErrNoTask: Next found no task within its wait.
	ErrNoTask = errors.New("no task is ready")
	// ErrNotHeld: the task was not claimed through this client, so it cannot be
	// reported on.
	ErrNotHeld = errors.New("this task is not held by a claim of this client")
	// ErrSettled: this claim has already reported how the task ended or what it asks.
	ErrSettled = errors.New("this claim has already been settled")
)

// Why the context of a handler ends before the handler does; test
// context.Cause(ctx), or an error of a [Task] method, with errors.Is.
var (
	// ErrCanceled: the task was canceled. Whatever the handler returns is dropped.
	ErrCanceled = errors.New("the task was canceled")
	// ErrLeaseLost: the claim has lapsed, and the task is offered to others or has
	// ended. Whatever the handler returns is dropped.
	ErrLeaseLost = errors.New("the lease of the task was lost")
	// ErrShutdown: Serve was told to stop and the drain time is over. A result is
	// still reported; an error is not, and the task is offered again.
	ErrShutdown = errors.New("the worker is shutting down")
)

// Error is a refusal by the hub.
type Error struct {
	// Status is the HTTP status.
	Status int
	// Code is the stable snake_case code, such as "not_permitted".
	Code string
	// Message says what happened, why and what to do next.
	Message string
	// RequestID finds the request in the hub's log.
	RequestID string
	// Details are what else the hub has to say, such as the field at fault.
	Details map[string]any
	// RetryAfter is when the hub wants to see the request again, 0 if it did not say.
	RetryAfter time.Duration
}

// CodeHTTPSRequired is the code of an Error that matches ErrUnreachable: the server at
// an http:// URL speaks HTTPS.
const CodeHTTPSRequired = "https_required"

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Message)
	if field, ok := e.Details["field"].(string); ok && field != "" {
		fmt.Fprintf(&b, " (field %s)", field)
	}
	fmt.Fprintf(&b, " [%d %s", e.Status, e.Code)
	if e.RequestID != "" {
		b.WriteString(", request " + e.RequestID)
	}
	b.WriteString("]")
	return b.String()
}

// Is matches the package's sentinels.
func (e *Error) Is(target error) bool {
	switch target {
	case ErrUnreachable:
		return e.Code == CodeHTTPSRequired
	case ErrUnauthenticated:
		return e.Status == http.StatusUnauthorized
	case ErrNotPermitted:
		return e.Status == http.StatusForbidden
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrConflict:
		return e.Status == http.StatusConflict
	case ErrEnded:
		return e.Code == "task_ended"
	case ErrNotCancelable:
		return e.Code == "task_not_cancelable"
	case ErrInvalid:
		return e.Status == http.StatusBadRequest && e.Code != CodeHTTPSRequired || e.Status == http.StatusUnprocessableEntity ||
			e.Status == http.StatusUnsupportedMediaType
	case ErrTooLarge:
		return e.Status == http.StatusRequestEntityTooLarge
	case ErrRateLimited:
		return e.Status == http.StatusTooManyRequests
	}
	return false
}

// temporary reports whether the same request may succeed later.
func (e *Error) temporary() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// untouched reports whether the hub says that nothing of the request happened.
func (e *Error) untouched() bool {
	return e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable && e.Code != codeDoubtful
}

// codeDoubtful is of what may have happened or not, since the hub lost its database while
// it was being kept.
const codeDoubtful = "outcome_unknown"

// temporary reports whether repeating what ended with err may help.
func temporary(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.temporary()
	}
	return errors.Is(err, ErrUnreachable)
}

// answerError turns a refusing answer into an *Error.
func answerError(resp *http.Response, body []byte) *Error {
	e := &Error{
		Status:     resp.StatusCode,
		RequestID:  resp.Header.Get("X-Request-Id"),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
	if resp.StatusCode == http.StatusBadRequest && bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
		e.Code, e.Message = CodeHTTPSRequired, "the server speaks HTTPS, so the hub's URL has to begin with https://"
		return e
	}
	var b wire.ErrorBody
	if json.Unmarshal(body, &b) == nil && b.Error.Message != "" {
		e.Code, e.Message, e.Details = b.Error.Code, b.Error.Message, b.Error.Details
	}
	if e.Code == "" {
		e.Code = "http_" + strconv.Itoa(resp.StatusCode)
	}
	if e.Message == "" {
		e.Message = plainRefusal(resp)
	}
	return e
}

// plainRefusal words an answer that did not come from a hub, or not from its code.
func plainRefusal(resp *http.Response) string {
	if loc := resp.Header.Get("Location"); loc != "" && resp.StatusCode/100 == 3 {
		return "the hub's URL redirects elsewhere, and redirects are not followed; use the final URL"
	}
	return "the server answered " + resp.Status + "; is this the URL of a Holdfast hub?"
}

// retryAfter reads the header of that name: seconds, or a date.
func retryAfter(v string, now time.Time) time.Duration {
	if s, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil && s > 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(v); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// ctxError is the error of a call whose context has ended: the context's own, its
// cause, and what went wrong last, if anything did.
func ctxError(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil && !errors.Is(last, err) && temporary(last) {
		return fmt.Errorf("%w (before that: %w)", err, last)
	}
	return err
}
