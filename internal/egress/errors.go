package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// Reason says why a request failed, for decisions and metrics.
type Reason string

// The reasons for failures.
const (
	Refused    Reason = "refused"     // the guard does not let the hub call this URL or address
	BadRequest Reason = "bad_request" // a header or other part of the request cannot be sent
	Busy       Reason = "busy"        // too many requests are under way; later it may go
	Unresolved Reason = "unresolved"  // the name leads to no address just now
	Connect    Reason = "connect"     // the target takes no connection
	TLS        Reason = "tls"         // its certificate or TLS does not do
	Timeout    Reason = "timeout"     // it did not answer within the limits
	Broken     Reason = "broken"      // the connection broke, or the answer is no HTTP
	TooLarge   Reason = "too_large"   // the answer is larger than the limit
	Canceled   Reason = "canceled"    // the caller gave the request up
)

// Error is how requests of a guarded client fail, both in sending and in reading the
// body. http.Client puts it into a *url.Error, whose text repeats the whole URL, so
// show or store the inner one:
//
//	if e, ok := errors.AsType[*egress.Error](err); ok { … e.Message … }
type Error struct {
	Reason Reason
	// Message says what happened in words that may be shown to whoever gave the URL.
	Message string
	// Sent tells whether a connection was made, so that some of the request may have
	// arrived. If not, nothing of it has.
	Sent bool

	cause error // for errors.Is; its text may have addresses in it
}

// Error gives the message.
func (e *Error) Error() string { return e.Message }

// Unwrap gives the cause. Do not show its text: it may have addresses in it.
func (e *Error) Unwrap() error { return e.cause }

// explain turns an error of a request to t into an *Error. ctx is that of the request.
func explain(ctx context.Context, t target, sent bool, err error) *Error {
	reason, what := diagnose(ctx, err)
	e := &Error{Reason: reason, Message: t.String() + ": " + what, Sent: sent, cause: err}
	if inner, ok := errors.AsType[*Error](err); ok {
		e.Reason, e.Message = inner.Reason, inner.Message
	}
	return e
}

// diagnose sorts the errors of dialing and of net/http.
func diagnose(ctx context.Context, err error) (Reason, string) {
	timeout := false
	if n, ok := errors.AsType[net.Error](err); ok {
		timeout = n.Timeout()
	}
	_, badCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, badRecord := errors.AsType[tls.RecordHeaderError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Canceled, "the request was given up"
	case timeout || errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		return Timeout, "no complete answer came in time; see whether the target is up and not overloaded"
	case badCertificate:
		return TLS, "its certificate is not valid for this host, has expired, or is of an unknown authority; correct the certificate"
	case badRecord || alert:
		return TLS, "TLS could not be agreed on; see whether the target speaks TLS at this port"
	case errors.Is(err, syscall.ECONNREFUSED):
		return Connect, "nothing takes connections there; see whether the target is up"
	case errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		return Connect, "there is no way to it from here; see whether the network lets the hub call it"
	default:
		return Broken, "the connection broke, or what came was no HTTP; see what answers at this port"
	}
}
