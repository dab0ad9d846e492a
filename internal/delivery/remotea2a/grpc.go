package remotea2a

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	pbv1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-hub/holdfast/internal/transcode"
)

// gRPC (section 10) is spoken over the guarded HTTP client as everything else is: each
// dial is judged, requests share the limits of the other bindings, and nothing holds a
// connection open by itself. What there is to it beyond HTTP is a length in front of each
// message, and a status in the trailers.

const (
	serviceV1 = "lf.a2a.v1.A2AService"
	mediaGRPC = "application/grpc"
	// prefixSize is how long the prefix of a message is: a flag, and its length.
	prefixSize = 5
)

// methodOf is an operation as the service describes it.
func methodOf(op operation) protoreflect.MethodDescriptor {
	return pbv1.File_a2av1_proto.Services().ByName("A2AService").Methods().ByName(protoreflect.Name(op.name))
}

// frame is the body of a call: its parameters as a message behind its prefix.
func frame(op operation, params []byte) ([]byte, error) {
	body, err := transcode.FromJSON(make([]byte, prefixSize, prefixSize+len(params)), params, methodOf(op).Input())
	if err != nil {
		return nil, fmt.Errorf("a message as %s: %w", methodOf(op).Input().FullName(), err)
	}
	binary.BigEndian.PutUint32(body[1:], uint32(len(body)-prefixSize)) //nolint:gosec // far below 4 GiB
	return body, nil
}

// grpcAnswer reads the messages of an answer, as JSON.
type grpcAnswer struct {
	resp  *http.Response
	of    protoreflect.MessageDescriptor
	limit int64 // bytes of a message
}

// answerOfGRPC is the answer to an operation.
func (p *peer) answerOfGRPC(resp *http.Response, op operation) (*grpcAnswer, error) {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || media != mediaGRPC && media != mediaGRPC+"+proto" {
		return nil, &garbled{"it is no answer of gRPC"}
	}
	return &grpcAnswer{resp, methodOf(op).Output(), p.d.opt.MaxAnswer}, nil
}

// next reads a message. At the end it is io.EOF, or what the agent refuses with.
func (a *grpcAnswer) next() ([]byte, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(a.resp.Body, prefix[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, a.end()
		}
		return nil, err
	}
	size := int64(binary.BigEndian.Uint32(prefix[1:]))
	switch {
	case prefix[0] != 0:
		return nil, &garbled{"it is compressed, which was not asked for"}
	case size > a.limit:
		return nil, tooLarge()
	}
	message, err := io.ReadAll(io.LimitReader(a.resp.Body, size)) // which may claim more than comes
	if err == nil && int64(len(message)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	data, err := transcode.ToJSON(message, a.of, int(a.limit))
	switch {
	case errors.Is(err, transcode.ErrTooLarge):
		return nil, tooLarge()
	case err != nil:
		return nil, &garbled{cut(err.Error())}
	}
	return data, nil
}

// only reads the one message of an operation that does not stream.
func (a *grpcAnswer) only() ([]byte, error) {
	data, err := a.next()
	if errors.Is(err, io.EOF) {
		return nil, &garbled{"it has no message"}
	}
	return data, err
}

// end is what an answer ends with.
func (a *grpcAnswer) end() error {
	h := a.resp.Trailer
	if h.Get("Grpc-Status") == "" {
		h = a.resp.Header // of an answer without messages
	}
	code, err := strconv.ParseUint(h.Get("Grpc-Status"), 10, 31)
	if err != nil {
		return &garbled{"it ended without a status"}
	}
	if code == 0 {
		return io.EOF
	}
	message, err := url.PathUnescape(h.Get("Grpc-Message"))
	if err != nil {
		message = h.Get("Grpc-Message")
	}
	return grpcRefusal(codes.Code(code), message, reasonOf(h.Get("Grpc-Status-Details-Bin")))
}

// reasonOf is the reason that the details of a status give, in A2A's words.
func reasonOf(details string) string {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(details, "="))
	var s status.Status
	if err != nil || proto.Unmarshal(raw, &s) != nil {
		return ""
	}
	for _, d := range s.GetDetails() {
		var info errdetails.ErrorInfo
		if d.UnmarshalTo(&info) == nil {
			return info.GetReason()
		}
	}
	return ""
}

// grpcRefusal is a status as an error: those that say something of the request are of
// A2A's words, the others are like those of HTTP.
func grpcRefusal(code codes.Code, message, reason string) error {
	switch code { //nolint:exhaustive // the others are of an agent in trouble
	case codes.NotFound:
		if reason == "" || reason == "TASK_NOT_FOUND" {
			return &agentError{codeNotFound, message}
		}
		return &agentError{codeInvalidParams, message}
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.AlreadyExists:
		return &agentError{codeInvalidParams, message}
	case codes.Unimplemented:
		return &agentError{codeNoSuchMethod, message}
	}
	like := map[codes.Code]int{
		codes.Unauthenticated: http.StatusUnauthorized, codes.PermissionDenied: http.StatusForbidden,
		codes.ResourceExhausted: http.StatusTooManyRequests, codes.DeadlineExceeded: http.StatusGatewayTimeout,
		codes.Unavailable: http.StatusServiceUnavailable, codes.Aborted: http.StatusServiceUnavailable,
	}[code]
	if like == 0 {
		like = http.StatusInternalServerError
	}
	return &statusError{status: like, grpc: strings.TrimSuffix(code.String()+": "+cut(message), ": ")}
}

// grpcPlace is where gRPC is: at the host that the agent was registered with, and with TLS
// if that has it, at the port that the card says. gRPC has no paths, so that its port is
// what tells it from the other bindings.
func grpcPlace(base *url.URL, says string) string {
	at := url.URL{Scheme: base.Scheme, Host: base.Host}
	if i := strings.LastIndex(says, "//"); i >= 0 {
		says = strings.TrimLeft(says[i:], "/")
	}
	says, _, _ = strings.Cut(says, "/")
	if _, port, err := net.SplitHostPort(says); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil && n > 0 {
			at.Host = net.JoinHostPort(base.Hostname(), port)
		}
	}
	return at.String()
}
