package interop

import (
	"context"
	"iter"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	"github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"google.golang.org/grpc"
)

// goAgent is an agent that is made with the official Go SDK.
type goAgent struct {
	mu   sync.Mutex
	held map[a2a.TaskID]chan struct{}
}

// Execute implements a2asrv.AgentExecutor.
func (g *goAgent) Execute(ctx context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		said := words(ec.Message)
		status := func(s a2a.TaskState, text string) bool {
			var m *a2a.Message
			if text != "" {
				m = a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, a2a.NewTextPart(text))
			}
			return yield(a2a.NewStatusUpdateEvent(ec, s, m), nil)
		}
		if ec.StoredTask == nil && !yield(a2a.NewSubmittedTask(ec, ec.Message), nil) {
			return
		}
		switch {
		case ec.StoredTask != nil:
			_ = yield(a2a.NewArtifactEvent(ec, a2a.NewTextPart("you want "+said)), nil) && status(a2a.TaskStateCompleted, "")
		case said == "ask":
			status(a2a.TaskStateInputRequired, "which?")
		case said == "fail":
			status(a2a.TaskStateFailed, "no such file")
		case said == "hold":
			if status(a2a.TaskStateWorking, "at it") {
				g.hold(ctx, ec.TaskID)
				status(a2a.TaskStateCanceled, "")
			}
		case said == "stream":
			first := a2a.NewArtifactEvent(ec, a2a.NewTextPart("one "))
			_ = yield(first, nil) &&
				yield(a2a.NewArtifactUpdateEvent(ec, first.Artifact.ID, a2a.NewTextPart("two ")), nil) &&
				yield(a2a.NewArtifactUpdateEvent(ec, first.Artifact.ID, a2a.NewTextPart("three")), nil) &&
				status(a2a.TaskStateCompleted, "")
		default:
			_ = yield(a2a.NewArtifactEvent(ec, a2a.NewTextPart("ANSWER "+said)), nil) && status(a2a.TaskStateCompleted, "")
		}
	}
}

// hold waits until the task is canceled.
func (g *goAgent) hold(ctx context.Context, id a2a.TaskID) {
	g.mu.Lock()
	c := make(chan struct{})
	g.held[id] = c
	g.mu.Unlock()
	select {
	case <-c:
	case <-ctx.Done():
	}
}

// Cancel implements a2asrv.AgentExecutor.
func (g *goAgent) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		g.mu.Lock()
		if c := g.held[ec.TaskID]; c != nil {
			close(c)
			delete(g.held, ec.TaskID)
		}
		g.mu.Unlock()
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}

func words(m *a2a.Message) (text string) {
	for _, p := range m.Parts {
		text += p.Text()
	}
	return text
}

// goCallee gives what serves such an agent over a binding.
func goCallee(binding string) func(t *testing.T) string {
	return func(t *testing.T) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + l.Addr().String()
		card := &a2a.AgentCard{
			Name: "Go agent", Description: "Answers.", Version: "1.0.0",
			Capabilities:      a2a.AgentCapabilities{Streaming: true},
			DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
			Skills: []a2a.AgentSkill{{ID: "answer", Name: "Answer", Description: "Answers", Tags: []string{"test"}}},
		}
		handler := a2asrv.NewHandler(&goAgent{held: map[a2a.TaskID]chan struct{}{}}, a2asrv.WithCapabilityChecks(&card.Capabilities))
		mux := http.NewServeMux()
		at := func(place string, protocol a2a.TransportProtocol) {
			card.SupportedInterfaces = []*a2a.AgentInterface{a2a.NewAgentInterface(place, protocol)}
		}
		serveCard := func() { mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card)) }
		switch binding {
		case "JSONRPC":
			at(url+"/rpc", a2a.TransportProtocolJSONRPC)
			mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
		case "HTTP+JSON":
			at(url+"/rest", a2a.TransportProtocolHTTPJSON)
			mux.Handle("/rest/", http.StripPrefix("/rest", a2asrv.NewRESTHandler(handler)))
		case "0.3 JSONRPC":
			card.SupportedInterfaces = []*a2a.AgentInterface{{URL: url + "/rpc", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: "0.3"}}
			serveCard = func() {
				mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewAgentCardHandler(a2av0.NewStaticAgentCardProducer(card)))
			}
			mux.Handle("/rpc", a2av0.NewJSONRPCHandler(handler))
		case "GRPC":
			at(serveGRPC(t, handler), a2a.TransportProtocolGRPC)
		}
		serveCard()
		server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
		go func() { _ = server.Serve(l) }()
		t.Cleanup(func() { _ = server.Close() })
		return url
	}
}

// serveGRPC serves gRPC at a port of its own, and gives the address.
func serveGRPC(t *testing.T, handler a2asrv.RequestHandler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	a2agrpc.NewHandler(handler).RegisterWith(server)
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return l.Addr().String()
}
