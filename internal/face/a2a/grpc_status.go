package a2a

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

// maxStatusText bounds what a status says, in bytes: clients have little room for
// trailers, and an error may name a field that its caller gave a name of megabytes.
const maxStatusText = 1 << 10

// writeStatus sets the trailers of an answer that ends with a fault, or without one.
// late says that the client waits no longer.
func writeStatus(h http.Header, f *fault, late bool) {
	set := func(name, value string) { h.Set(http.TrailerPrefix+name, value) }
	if f == nil {
		set("Grpc-Status", "0")
		return
	}
	code := grpcCode(f.reason)
	if late {
		code = codes.DeadlineExceeded
	}
	s := statusOf(f, code)
	set("Grpc-Status", strconv.Itoa(int(code)))
	set("Grpc-Message", escapeMessage(s.Message()))
	if details, err := pb.Marshal(s.Proto()); err == nil {
		set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
}

// statusOf is a fault as gRPC has it (spec section 10.6): what it is, and which field is
// at fault.
func statusOf(f *fault, code codes.Code) *status.Status {
	message := clipText(f.message)
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: string(f.reason), Domain: errorDomain, Metadata: f.metadata}}
	if f.field != "" {
		details = append(details, &errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{
			{Field: clipText(f.field), Description: message},
		}})
	}
	s := status.New(code, message)
	if detailed, err := s.WithDetails(details...); err == nil {
		return detailed
	}
	return s
}

// clipText shortens a text to what a status has room for.
func clipText(s string) string {
	if len(s) > maxStatusText {
		s = s[:maxStatusText] + "…"
	}
	return strings.ToValidUTF8(s, "")
}

// escapeMessage escapes what may not stand in a trailer as it is.
func escapeMessage(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c > '~' || c == '%' {
			b.WriteString("%" + strings.ToUpper(strconv.FormatUint(uint64(c)|0x100, 16)[1:]))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// grpcCode is the code of an error (spec section 5.4, as of 1.0.1).
func grpcCode(r reason) codes.Code {
	switch r {
	case taskNotFound:
		return codes.NotFound
	case taskNotCancelable, pushNotSupported, unsupportedOperation, extendedCardNotConfigured, extensionRequired, versionNotSupported:
		return codes.FailedPrecondition
	case contentTypeUnsupported, parseError, invalidRequest, invalidParams, keyReused:
		return codes.InvalidArgument
	case methodNotFound, methodNotAllowed:
		return codes.Unimplemented
	case conflict:
		return codes.Aborted
	case tooLarge, rateLimited:
		return codes.ResourceExhausted
	case unauthenticated:
		return codes.Unauthenticated
	case unauthorized:
		return codes.PermissionDenied
	case unavailable:
		return codes.Unavailable
	case internalError:
	}
	return codes.Internal
}
