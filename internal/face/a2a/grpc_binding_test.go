package a2a_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	pbv1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// grpcBinding is a service of gRPC, called by the official gRPC client with the types
// that are generated from its .proto file.
type grpcBinding struct {
	title   string
	service protoreflect.ServiceDescriptor
	// method is the name of an operation in the service, and request its message.
	method func(op string) string
	// It reports whether the service has words for what is asked.
	request func(t testing.TB, q query, into proto.Message) bool
	// tenant is whether the request names the address itself.
	tenant bool

	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
}

// grpcV1 is spec section 10.
var grpcV1 = &grpcBinding{
	title: "GRPC", service: pbv1.File_a2av1_proto.Services().Get(0), tenant: true,
	method: func(op string) string { return op },
	request: func(_ testing.TB, q query, into proto.Message) bool {
		if protojson.Unmarshal([]byte(q.params), into) != nil {
			return false
		}
		m := into.ProtoReflect()
		tenant := m.Descriptor().Fields().ByName("tenant")
		if named := m.Get(tenant).String(); q.handle == "hub" || named == q.handle {
			return true
		} else if named != "" {
			return false // there is no URL for it to contradict
		}
		m.Set(tenant, protoreflect.ValueOfString(q.handle))
		return true
	},
}

func (g *grpcBinding) name() string { return g.title }

// conn is a connection to a hub, one for each.
func (g *grpcBinding) conn(b *bed) *grpc.ClientConn {
	b.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.conns[b.URL]; c != nil {
		return c
	}
	c, err := grpc.NewClient(strings.TrimPrefix(b.URL, "http://"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(128<<20)))
	if err != nil {
		b.t.Fatal(err)
	}
	if g.conns == nil {
		g.conns = make(map[string]*grpc.ClientConn)
	}
	g.conns[b.URL] = c
	b.t.Cleanup(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.conns, b.URL)
		c.Close()
	})
	return c
}

// message makes an empty message of a type.
func newMessage(t testing.TB, of protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return typ.New().Interface()
}

// outgoing is a context with what comes with a query as metadata.
func (g *grpcBinding) outgoing(ctx context.Context, q query) context.Context {
	if q.token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+q.token)
	}
	if !g.tenant && q.handle != "hub" {
		ctx = metadata.AppendToOutgoingContext(ctx, "a2a-tenant", q.handle)
	}
	for i := 0; i < len(q.headers); i += 2 {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(q.headers[i]), q.headers[i+1])
	}
	return ctx
}

func (g *grpcBinding) open(ctx context.Context, b *bed, q query) (*stream, answer) {
	b.t.Helper()
	if handle, err := url.PathUnescape(q.handle); err == nil {
		q.handle = handle // no path has it here
	}
	method := g.methodOf(b.t, q.op)
	in := newMessage(b.t, method.Input())
	if !g.request(b.t, q, in) || slices.Contains(q.headers, "Content-Type") {
		return nil, unsaid()
	}
	path := "/" + string(g.service.FullName()) + "/" + string(method.Name())
	ctx = g.outgoing(ctx, q)
	if method.IsStreamingServer() {
		return g.openStream(ctx, b, path, in, method.Output())
	}
	out := newMessage(b.t, method.Output())
	var header, trailer metadata.MD
	err := g.conn(b).Invoke(ctx, path, in, out, grpc.Header(&header), grpc.Trailer(&trailer))
	return nil, parseGRPC(b.t, out, metadata.Join(header, trailer), err)
}

// unsaid is the answer to a request that a binding has no words for.
func unsaid() answer {
	return answer{Unsaid: true, Error: &rpcError{Message: "there are no words for it"}}
}

func (g *grpcBinding) methodOf(t testing.TB, op string) protoreflect.MethodDescriptor {
	t.Helper()
	m := g.service.Methods().ByName(protoreflect.Name(g.method(op)))
	if m == nil {
		t.Fatalf("%s has no %s", g.title, op)
	}
	return m
}

// openStream calls a method that streams. A stream has begun when its header says
// with which event.
func (g *grpcBinding) openStream(ctx context.Context, b *bed, path string, in proto.Message, of protoreflect.MessageDescriptor) (*stream, answer) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	call, err := g.conn(b).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, path)
	if err == nil {
		err = call.SendMsg(in)
	}
	if err == nil {
		err = call.CloseSend()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.t.Fatal(err)
	}
	header, err := call.Header()
	if err != nil {
		b.t.Fatal(err)
	}
	first := header.Get("holdfast-event-id")
	if len(first) == 0 {
		defer cancel()
		out := newMessage(b.t, of)
		err := call.RecvMsg(out)
		return nil, parseGRPC(b.t, out, metadata.Join(header, call.Trailer()), err)
	}
	b.t.Cleanup(cancel)
	seq, err := strconv.Atoi(first[0])
	if err != nil {
		b.t.Fatal(err)
	}
	over := false
	return &stream{t: b.t, header: headerOf(header), cancel: cancel, recv: func() (string, answer, bool) {
		b.t.Helper()
		if over {
			return "", answer{}, false
		}
		out := newMessage(b.t, of)
		err := call.RecvMsg(out)
		switch {
		case errors.Is(err, io.EOF):
			return "", answer{}, false
		case err != nil:
			over = true
			return "", parseGRPC(b.t, out, nil, err), true
		}
		seq++
		return strconv.Itoa(seq - 1), parseGRPC(b.t, out, nil, nil), true
	}}, answer{}
}

// parseGRPC gives what came back in the terms of the other bindings, and checks that an
// error has the right code for what it says that it is.
func parseGRPC(t testing.TB, out proto.Message, md metadata.MD, err error) answer {
	t.Helper()
	a := answer{Status: http.StatusOK, Header: headerOf(md)}
	if err == nil {
		a.Result = jsonOf(t, out)
		a.Body = string(a.Result)
		return a
	}
	s := status.Convert(err)
	e := &rpcError{Code: int(s.Code()), Status: s.Code().String(), Message: s.Message()}
	for _, d := range s.Details() {
		detail := errorDetail{Type: "type.googleapis.com/" + string(d.(proto.Message).ProtoReflect().Descriptor().FullName())}
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			detail.Reason, detail.Domain, detail.Metadata = d.Reason, d.Domain, d.Metadata
		case *errdetails.BadRequest:
			for _, v := range d.FieldViolations {
				detail.FieldViolations = append(detail.FieldViolations, fieldViolation{v.Field, v.Description})
			}
		}
		e.Data = append(e.Data, detail)
	}
	body, failed := json.Marshal(e)
	if failed != nil {
		t.Fatal(failed)
	}
	checkError(t, e, body)
	want := numbers[e.reason()]
	if s.Code() != want.grpc && s.Code() != codes.DeadlineExceeded {
		t.Fatalf("%s for %s, want %s", s.Code(), e.reason(), want.grpc)
	}
	a.Body, a.Error, a.Status = string(body), e, want.restStatus
	return a
}

// headerOf is metadata as HTTP has it.
func headerOf(md metadata.MD) http.Header {
	h := make(http.Header)
	for name, values := range md {
		for _, v := range values {
			h.Add(name, v)
		}
	}
	return h
}

// jsonOf is a message as the other bindings have it. Where they always write a list or
// a text, protobuf knows no difference between an empty one and none.
func jsonOf(t testing.TB, m proto.Message) json.RawMessage {
	t.Helper()
	loose, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, loose); err != nil {
		t.Fatal(err)
	}
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(compact.Bytes(), &members); err != nil {
		t.Fatal(err)
	}
	always := func(name, empty string) string {
		if members[name] == nil {
			return fmt.Sprintf(`%q:%s`, name, empty)
		}
		return fmt.Sprintf(`%q:%s`, name, members[name])
	}
	switch m.(type) {
	case *pbv1.ListTasksResponse:
		return json.RawMessage("{" + always("tasks", "[]") + "," + always("nextPageToken", `""`) + "," + always("pageSize", "0") + "," + always("totalSize", "0") + "}")
	case *pbv1.ListTaskPushNotificationConfigsResponse:
		return json.RawMessage("{" + always("configs", "[]") + "," + always("nextPageToken", `""`) + "}")
	}
	return compact.Bytes()
}
