package a2a

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/internal/transcode"
)

// gRPC (spec section 10) is served on net/http here, and not by grpc.Server's
// ServeHTTP. That one reads a body into a buffer without a bound before anybody can
// ask whose it is; it sends no status to a request whose context has ended, so that a
// client would not learn that its token was revoked; and a client that does not read
// meets no deadline. What there is to the protocol beyond HTTP is little: a length in
// front of each message, and a status in the trailers.

const (
	mediaGRPC = "application/grpc"
	// prefixSize is how long the prefix of a message is: a flag, and its length.
	prefixSize = 5
	// eventIDHeader tells the number of the event that a stream begins with, for
	// Last-Event-ID; each later one has the next number.
	eventIDHeader = "Holdfast-Event-Id"
)

// errGRPCTimeout is why the context of a request ends whose client waits no longer.
var errGRPCTimeout = errors.New("the deadline of the call is over")

// serveGRPC serves the methods of a service, by their names in it.
func (f *face) serveGRPC(methods map[string]grpcMethod) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := checkGRPC(r); err != nil {
			f.fail(w, r, restBindingOf(r), err)
			return
		}
		ctx, cancel, err := withGRPCTimeout(r)
		defer cancel()
		r = r.WithContext(ctx)
		r.SetPathValue("handle", hubHandle) // the address is the request's tenant
		c := &grpcCall{w: w, r: r}
		if err == nil {
			err = f.performGRPC(c, methods)
		}
		if err == nil {
			err = c.failed
		}
		var refusal *fault
		if err != nil {
			refusal = translate(ctx, f.opt.Log, err)
		}
		c.close(refusal)
	}
}

// checkGRPC refuses what is no gRPC with protobuf at all.
func checkGRPC(r *http.Request) error {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.ProtoMajor == 2 && err == nil && (media == mediaGRPC || media == mediaGRPC+"+proto") {
		return nil
	}
	return &fault{reason: contentTypeUnsupported, message: "this is a gRPC endpoint: call it with a gRPC client, over HTTP/2 and with protobuf; JSON-RPC and HTTP+JSON are at /a/{handle}"}
}

// withGRPCTimeout gives the context of a request the deadline that its client waits
// for, if it says so: up to eight digits and a unit.
func withGRPCTimeout(r *http.Request) (context.Context, context.CancelFunc, error) {
	units := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}
	value := r.Header.Get("Grpc-Timeout")
	if value == "" {
		return r.Context(), func() {}, nil
	}
	last := len(value) - 1
	n, err := strconv.ParseUint(value[:last], 10, 63)
	unit := units[value[last]]
	if err != nil || last > 8 || unit == 0 {
		return r.Context(), func() {}, hub.InvalidField("", "the metadata grpc-timeout must be up to eight digits and one of H, M, S, m, u and n")
	}
	if most := uint64(1<<63-1) / uint64(unit); n > most {
		n = most
	}
	ctx, cancel := context.WithTimeoutCause(r.Context(), time.Duration(n)*unit, errGRPCTimeout)
	return ctx, cancel, nil
}

// performGRPC performs the method that a request names. It is answered unless there is
// an error.
func (f *face) performGRPC(c *grpcCall, methods map[string]grpcMethod) error {
	m, ok := methods[c.r.PathValue("method")]
	if !ok {
		return &fault{reason: methodNotFound, message: "the service has no such method; see its .proto file"}
	}
	c.out = m.out
	if _, err := identity.Require(c.r.Context()); err != nil {
		return err
	}
	params, err := f.readGRPC(c, m.in)
	if err == nil && m.rewrite != nil {
		params, err = m.rewrite(params)
	}
	if err != nil {
		return err
	}
	return f.serve(c.w, c.r, c, operation{m.operation, params})
}

// readGRPC reads the one message of a request, as ProtoJSON. Neither it nor its JSON
// may be larger than a body of the other bindings.
func (f *face) readGRPC(c *grpcCall, of protoreflect.MessageDescriptor) ([]byte, error) {
	message, err := f.readGRPCMessage(c)
	if err != nil {
		return nil, err
	}
	params, err := transcode.ToJSON(message, of, int(f.opt.MaxBody))
	switch {
	case errors.Is(err, transcode.ErrTooLarge):
		return nil, httpx.TooLarge(f.opt.MaxBody)
	case errors.Is(err, transcode.ErrMalformed):
		return nil, &fault{reason: parseError, message: "the message cannot be read: " + err.Error()}
	case err != nil:
		return nil, hub.InvalidField("", "the message cannot be used: %v", err)
	}
	if err := hub.Reserve(c.r.Context(), int64(len(params)-len(message))); err != nil {
		return nil, err
	}
	if err := rawjson.Check(params, maxDepth-1); err != nil { // as HTTP+JSON has it
		return nil, unreadableParams(params, err)
	}
	return params, nil
}

// readGRPCMessage reads the one message of a request.
func (f *face) readGRPCMessage(c *grpcCall) ([]byte, error) {
	var prefix [prefixSize]byte
	if _, err := io.ReadFull(c.r.Body, prefix[:]); err != nil {
		if c.r.Context().Err() != nil {
			return nil, c.r.Context().Err()
		}
		return nil, &fault{reason: parseError, message: "the call has no message; send exactly one"}
	}
	if prefix[0] != 0 {
		return nil, &fault{reason: methodNotFound, message: "compressed messages are not understood; send the message as it is"}
	}
	size := int64(binary.BigEndian.Uint32(prefix[1:]))
	if size > f.opt.MaxBody {
		return nil, httpx.TooLarge(f.opt.MaxBody)
	}
	r := *c.r
	r.ContentLength = size // of what is left
	body, err := httpx.ReadBody(c.w, &r, f.opt.MaxBody)
	if err != nil {
		return nil, err
	}
	if int64(len(body)) != size {
		return nil, &fault{reason: parseError, message: "the call has not exactly one whole message"}
	}
	return body, nil
}

// grpcCall answers one gRPC call. It is the binding of what is performed for it, whose
// results are messages, and the sink of its stream. Errors are no messages: they are
// told to close.
type grpcCall struct {
	w      http.ResponseWriter
	r      *http.Request
	out    protoreflect.MessageDescriptor // of a result
	stream *httpx.Stream                  // once one has begun
	buf    []byte
	failed error // why there is no result, or no further one
}

func (c *grpcCall) open(dst []byte) []byte           { return dst }
func (c *grpcCall) end(result []byte) []byte         { return c.frame(nil, result) }
func (c *grpcCall) fail(dst []byte, _ *fault) []byte { return dst }
func (c *grpcCall) media() string                    { return mediaGRPC }
func (c *grpcCall) status(reason) int                { return http.StatusOK }

// frame appends a result as a message behind its prefix, or nothing if it has failed.
func (c *grpcCall) frame(dst, result []byte) []byte {
	var prefix [prefixSize]byte
	framed, err := transcode.FromJSON(append(dst, prefix[:]...), result, c.out)
	if err != nil {
		c.failed = fmt.Errorf("a result as %s: %w", c.out.FullName(), err)
		return dst
	}
	size := len(framed) - len(dst) - prefixSize
	binary.BigEndian.PutUint32(framed[len(dst)+1:], uint32(size)) //nolint:gosec // far below 4 GiB
	return framed
}

// Comment implements sink. There is nothing to say in silence, since HTTP/2 looks by
// itself whether the client is there; but at first it tells the client that the stream
// has begun.
func (c *grpcCall) Comment() error {
	if c.stream != nil {
		return nil
	}
	after, err := resumeAfter(c.r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	return c.begin(after + 1).Send(nil)
}

// begin begins a stream, with the event of a number.
func (c *grpcCall) begin(seq int64) *httpx.Stream {
	if c.stream == nil {
		c.w.Header().Set("Content-Type", mediaGRPC)
		c.w.Header().Set(eventIDHeader, strconv.FormatInt(seq, 10))
		c.stream = httpx.StartStream(c.w, c.r)
	}
	return c.stream
}

// result implements sink.
func (c *grpcCall) result(seq int64, body []byte) error {
	c.buf = c.frame(c.buf[:0], body)
	if c.failed != nil {
		return c.failed
	}
	err := c.begin(seq).Send(c.buf)
	if cap(c.buf) > 1<<20 {
		c.buf = nil // one large event does not cost the stream its memory for ever
	}
	return err
}

// interrupt implements sink.
func (c *grpcCall) interrupt(f *fault) { c.failed = f }

// close ends the answer with its status: that of a refusal, if there is one.
func (c *grpcCall) close(refusal *fault) {
	h := c.w.Header()
	h.Set("Content-Type", mediaGRPC)
	if refusal != nil {
		httpx.ErrorHeaders(h, refusal.public())
		code, _ := restStatus(refusal.reason)
		if kind := refusal.public().Kind; kind == hub.ClientGone {
			code = httpx.Status(kind)
		}
		httpx.ShowStatus(c.w, code)
	}
	// The headers, and what was written, go out by themselves: what is set after that
	// are trailers.
	_ = http.NewResponseController(c.w).Flush() // a client that is gone needs no answer
	writeStatus(h, refusal, errors.Is(context.Cause(c.r.Context()), errGRPCTimeout))
}
