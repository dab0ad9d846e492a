package remotea2a_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	pbv1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const grpcCard = `{"name":"Agent","version":"1","capabilities":{"streaming":true},"supportedInterfaces":[{"url":"0.0.0.0","protocolBinding":"GRPC","protocolVersion":"1.0","tenant":"dev"}]}`

// withGRPC serves a card that offers gRPC alone, and a service, with the library that
// others serve gRPC with.
func withGRPC(service pbv1.A2AServiceServer, opt ...grpc.ServerOption) http.Handler {
	server := grpc.NewServer(opt...)
	pbv1.RegisterA2AServiceServer(server, service)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Content-Type") == "application/grpc":
			server.ServeHTTP(w, r)
		case strings.HasSuffix(r.URL.Path, "/agent-card.json"):
			_, _ = io.WriteString(w, grpcCard)
		default:
			http.NotFound(w, r)
		}
	})
}

// grpcAgent is an agent of deliverytest that is called over gRPC.
type grpcAgent struct {
	pbv1.UnimplementedA2AServiceServer
	*agent
}

func serveGRPC(a *agent) http.Handler { return withGRPC(&grpcAgent{agent: a}) }

// errTenant is what a call is refused with that does not name the tenant of the card.
var errTenant = status.Error(codes.InvalidArgument, "the tenant is missing")

// SendStreamingMessage implements pbv1.A2AServiceServer.
func (a *grpcAgent) SendStreamingMessage(in *pbv1.SendMessageRequest, stream grpc.ServerStreamingServer[pbv1.StreamResponse]) error {
	id := in.GetMessage().GetTaskId()
	if id == "" {
		id = uuid.NewString()
	}
	if in.GetTenant() != "dev" {
		return errTenant
	}
	ctx := stream.Context()
	sent, _ := metadata.FromIncomingContext(ctx)
	task := strings.Join(sent.Get("holdfast-task"), "")
	err := a.work(ctx, task, id, func(event string) {
		var out pbv1.StreamResponse
		if err := protojson.Unmarshal([]byte(event), &out); err != nil {
			panic(err)
		}
		_ = stream.Send(&out)
	})
	switch {
	case errors.Is(err, errRefused):
		return status.Error(codes.InvalidArgument, "100 % useless")
	case errors.Is(err, errLater):
		return status.Error(codes.Unavailable, "not now")
	case errors.Is(err, errDropped):
		c, _ := ctx.Value(connection{}).(net.Conn)
		_ = c.Close()
	}
	return nil
}

// SendMessage implements pbv1.A2AServiceServer.
func (a *grpcAgent) SendMessage(_ context.Context, in *pbv1.SendMessageRequest) (*pbv1.SendMessageResponse, error) {
	task, err := a.find(in.GetTenant(), in.GetMessage().GetTaskId())
	return &pbv1.SendMessageResponse{Payload: &pbv1.SendMessageResponse_Task{Task: task}}, err
}

// GetTask implements pbv1.A2AServiceServer.
func (a *grpcAgent) GetTask(_ context.Context, in *pbv1.GetTaskRequest) (*pbv1.Task, error) {
	return a.find(in.GetTenant(), in.GetId())
}

// CancelTask implements pbv1.A2AServiceServer.
func (a *grpcAgent) CancelTask(_ context.Context, in *pbv1.CancelTaskRequest) (*pbv1.Task, error) {
	a.cancel(in.GetId())
	return a.find(in.GetTenant(), in.GetId())
}

func (a *grpcAgent) find(tenant, id string) (*pbv1.Task, error) {
	if tenant != "dev" {
		return nil, errTenant
	}
	var out pbv1.Task
	if text := a.task(id); text != "" {
		return &out, protojson.Unmarshal([]byte(text), &out)
	}
	s, err := status.New(codes.NotFound, "task not found").WithDetails(&errdetails.ErrorInfo{Reason: "TASK_NOT_FOUND", Domain: "a2a-protocol.org"})
	if err != nil {
		return nil, err
	}
	return nil, s.Err()
}

// grpcScript says one thing to each call.
type grpcScript struct {
	pbv1.UnimplementedA2AServiceServer
	send func(ctx context.Context, in *pbv1.SendMessageRequest, say func(event string) error) error
	get  func() (*pbv1.Task, error)
}

// SendStreamingMessage implements pbv1.A2AServiceServer.
func (s *grpcScript) SendStreamingMessage(in *pbv1.SendMessageRequest, stream grpc.ServerStreamingServer[pbv1.StreamResponse]) error {
	return s.send(stream.Context(), in, func(event string) error {
		var out pbv1.StreamResponse
		if err := protojson.Unmarshal([]byte(event), &out); err != nil {
			return err
		}
		return stream.Send(&out)
	})
}

// GetTask implements pbv1.A2AServiceServer.
func (s *grpcScript) GetTask(context.Context, *pbv1.GetTaskRequest) (*pbv1.Task, error) {
	return s.get()
}

// What an agent says over gRPC means what it means over the other bindings, its
// refusals, too.
func TestGRPCAnswers(t *testing.T) {
	forgotten := func() (*pbv1.Task, error) { return nil, status.Error(codes.NotFound, "no such task") }
	says := func(events ...string) func(context.Context, *pbv1.SendMessageRequest, func(string) error) error {
		return func(_ context.Context, _ *pbv1.SendMessageRequest, say func(string) error) error {
			for _, e := range events {
				if err := say(e); err != nil {
					return err
				}
			}
			return nil
		}
	}
	fails := func(c codes.Code, words string) func(context.Context, *pbv1.SendMessageRequest, func(string) error) error {
		return func(context.Context, *pbv1.SendMessageRequest, func(string) error) error {
			return status.Error(c, words)
		}
	}
	for name, c := range map[string]struct {
		agent  grpcScript
		want   delivery.Kind
		status int
		why    string
	}{
		"a task":         {grpcScript{send: says(submitted, foreign, chunk, completed)}, delivery.Answered, 0, ""},
		"a bare message": {grpcScript{send: says(`{"message":{"messageId":"x","role":"ROLE_AGENT","parts":[{"text":"so"}]}}`)}, delivery.Answered, 0, ""},
		"a stream that ends early": {grpcScript{send: says(submitted), get: func() (*pbv1.Task, error) {
			return &pbv1.Task{Id: "r", Status: &pbv1.TaskStatus{State: pbv1.TaskState_TASK_STATE_COMPLETED}}, nil
		}}, delivery.Answered, 0, ""},
		"a task that is forgotten":     {grpcScript{send: says(submitted), get: forgotten}, delivery.Lost, 0, "forgotten"},
		"a refusal in words":           {grpcScript{send: fails(codes.InvalidArgument, "no süch skill, 100 %")}, delivery.Refused, 0, "no süch skill, 100 %"},
		"an operation that is not":     {grpcScript{send: fails(codes.Unimplemented, "no such method")}, delivery.Refused, 0, "no such method"},
		"a credential that is refused": {grpcScript{send: fails(codes.Unauthenticated, "who?")}, delivery.Refused, 401, "credential"},
		"an agent that is busy":        {grpcScript{send: fails(codes.ResourceExhausted, "later")}, delivery.Lost, 429, "ResourceExhausted: later"},
		"an agent in trouble":          {grpcScript{send: fails(codes.Unavailable, "")}, delivery.Lost, 503, "Unavailable"},
		"an error of its own":          {grpcScript{send: fails(codes.Internal, "oops")}, delivery.Lost, 500, "Internal: oops"},
		"a message that is too large":  {grpcScript{send: says(`{"message":{"messageId":"x","role":"ROLE_AGENT","parts":[{"text":"` + strings.Repeat("x", 70<<10) + `"}]}}`)}, delivery.Refused, 0, "larger"},
		"a message that says nothing":  {grpcScript{send: says(`{}`)}, delivery.Lost, 0, "no task"},
		"no message":                   {grpcScript{send: says()}, delivery.Lost, 0, "before it said anything"},
		"silence": {grpcScript{send: func(ctx context.Context, _ *pbv1.SendMessageRequest, _ func(string) error) error {
			<-ctx.Done()
			return ctx.Err()
		}}, delivery.Lost, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _ := ask(t, withGRPC(&c.agent))
			if got.Kind != c.want || got.Status != c.status || !strings.Contains(got.Reason, c.why) {
				t.Errorf("%v, status %d, %q; want %v, %d and %q", got.Kind, got.Status, got.Reason, c.want, c.status, c.why)
			}
		})
	}
}

// A credential and the version go along as metadata.
func TestGRPCMetadata(t *testing.T) {
	got := make(chan metadata.MD, 1)
	agent := &grpcScript{send: func(ctx context.Context, in *pbv1.SendMessageRequest, say func(string) error) error {
		md, _ := metadata.FromIncomingContext(ctx)
		got <- md
		if !in.GetConfiguration().GetReturnImmediately() || in.GetTenant() != "dev" {
			return errTenant
		}
		return say(`{"message":{"messageId":"x","role":"ROLE_AGENT","parts":[{"text":"so"}]}}`)
	}}
	out, _ := ask(t, withGRPC(agent), func(x *delivery.Delivery) {
		x.Endpoint.Auth, x.Endpoint.Header = "header", "X-Api-Key"
		x.Endpoint.Sealed = []byte(`{"credential":"hunter2"}`)
	})
	if out.Kind != delivery.Answered {
		t.Fatalf("%+v", out)
	}
	md := <-got
	for name, want := range map[string]string{"x-api-key": "hunter2", "a2a-version": "1.0", "holdfast-task": "t"} {
		if v := md.Get(name); len(v) != 1 || v[0] != want {
			t.Errorf("%s is %q, want %q", name, v, want)
		}
	}
}

// What is no gRPC at the place where a card says that it is, is an answer that cannot be
// read.
func TestNoGRPCWhereItShouldBe(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"a web page": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"a compressed message": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write([]byte{1, 0, 0, 0, 1, 0})
		},
		"less than it says": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write([]byte{0, 0, 0, 0, 9, 0})
		},
		"no status": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "application/grpc+proto") },
		"no protobuf": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = w.Write([]byte{0, 0, 0, 0, 1, 0xff})
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := ask(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, grpcCard)
					return
				}
				h(w, r)
			}))
			if got.Kind != delivery.Lost {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Through what has no HTTP/2 of its own no agent is called over gRPC.
func TestGRPCNeedsAClient(t *testing.T) {
	s := newServer(t, withGRPC(&grpcScript{}))
	d := newDeliverer(t, nil, func(o *remotea2a.Options) { o.PublicHTTP2 = nil })
	got := d.Deliver(t.Context(), delivery.Delivery{Task: &hub.Task{ID: "t"}, Endpoint: hub.Endpoint{URL: s.url()}})
	if got.Kind != delivery.Unsent || !strings.Contains(got.Reason, "gRPC") {
		t.Errorf("%+v", got)
	}
}

// The port is the card's, since gRPC has no paths; the host is the one that the agent was
// registered with, and TLS is where that has it.
func TestWhereGRPCIs(t *testing.T) {
	agent := &grpcScript{send: func(_ context.Context, _ *pbv1.SendMessageRequest, say func(string) error) error {
		return say(`{"message":{"messageId":"x","role":"ROLE_AGENT","parts":[{"text":"so"}]}}`)
	}}
	plain := newServer(t, withGRPC(agent))
	secure := httptest.NewUnstartedServer(withGRPC(agent))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	guard := egress.New(egress.Options{AllowLocal: []egress.PortRange{{First: 1, Last: 65535}}, RootCAs: roots})
	t.Cleanup(guard.Close)
	d := newDeliverer(t, nil, func(o *remotea2a.Options) {
		o.Public, o.PublicHTTP2 = guard.Client(egress.Permit{}), guard.HTTP2Client(egress.Permit{})
	})
	_, port, _ := net.SplitHostPort(plain.addr)
	for name, c := range map[string]struct {
		url, card string
		want      delivery.Kind
	}{
		"another port":           {plain.url(), "elsewhere.test:" + port, delivery.Answered},
		"a URL":                  {plain.url(), "http://elsewhere.test:" + port + "/x", delivery.Answered},
		"a name for a resolver":  {plain.url(), "dns:///elsewhere.test:" + port, delivery.Answered},
		"no port":                {plain.url(), "elsewhere.test", delivery.Refused}, // where the card is, which is no gRPC
		"no port that there is":  {plain.url(), "elsewhere.test:99999", delivery.Refused},
		"a port without service": {plain.url(), "elsewhere.test:1", delivery.Unsent},
		"TLS":                    {secure.URL, strings.TrimPrefix(secure.URL, "https://"), delivery.Answered},
		"TLS with a port alone":  {secure.URL, ":" + secure.URL[strings.LastIndex(secure.URL, ":")+1:], delivery.Answered},
	} {
		t.Run(name, func(t *testing.T) {
			url := c.url
			if !strings.HasPrefix(url, "https") { // the card is at a port of its own
				url = newServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet {
						http.NotFound(w, r)
						return
					}
					_, _ = io.WriteString(w, strings.Replace(grpcCard, "0.0.0.0", c.card, 1))
				})).url()
			}
			got := d.Deliver(t.Context(), delivery.Delivery{
				Task:     &hub.Task{ID: "t", History: []hub.Message{{N: 1, Body: canon.TextMessage("m", false, "hi")}}},
				Endpoint: hub.Endpoint{URL: url},
			})
			if got.Kind != c.want {
				t.Errorf("%v: %s; want %v", got.Kind, got.Reason, c.want)
			}
		})
	}
}
