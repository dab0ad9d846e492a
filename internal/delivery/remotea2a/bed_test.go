package remotea2a_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/deliverytest"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newDeliverer makes a deliverer that may call all of loopback.
func newDeliverer(t testing.TB, sealer hub.Sealer, change ...func(*remotea2a.Options)) *remotea2a.Deliverer {
	t.Helper()
	guard := egress.New(egress.Options{AllowLocal: []egress.PortRange{{First: 1, Last: 65535}}, MaxResponse: 8 << 20})
	t.Cleanup(guard.Close)
	opt := remotea2a.Options{
		Public: guard.Client(egress.Permit{}), Private: guard.Client(egress.Permit{Private: true}), Sealer: sealer,
		PublicHTTP2: guard.HTTP2Client(egress.Permit{}), PrivateHTTP2: guard.HTTP2Client(egress.Permit{Private: true}),
		PollMin: 5 * time.Millisecond, PollMax: 50 * time.Millisecond,
	}
	for _, f := range change {
		f(&opt)
	}
	return remotea2a.New(opt)
}

// agent is an A2A 1.0 server that plays an agent of deliverytest: JSON-RPC with streams.
type agent struct {
	act  deliverytest.Agent
	mu   sync.Mutex
	jobs map[string]*job
}

// job is a task that the agent has.
type job struct {
	state string
	stop  context.CancelFunc
}

func (a *agent) set(id, state string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs[id]; j != nil && j.state != "CANCELED" {
		j.state = state
	}
}

// cancel stops a task that the agent has.
func (a *agent) cancel(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs[id]; j != nil {
		j.state = "CANCELED"
		j.stop()
	}
}

// task is a task as the agent has it, empty if it has none of that name.
func (a *agent) task(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if j := a.jobs[id]; j != nil {
		return fmt.Sprintf(`{"id":%q,"contextId":"c","status":{"state":"TASK_STATE_%s"}}`, id, j.state)
	}
	return ""
}

const cardJSON = `{"name":"Agent","version":"1","capabilities":{"streaming":true},"supportedInterfaces":[{"url":"http://0.0.0.0:8000/rpc","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`

// ServeHTTP implements http.Handler.
func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		if strings.HasSuffix(r.URL.Path, "/agent-card.json") {
			_, _ = io.WriteString(w, cardJSON)
			return
		}
		http.NotFound(w, r)
		return
	}
	var in struct {
		Method string
		Params struct {
			ID      string
			Message struct{ TaskID string }
		}
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil || r.URL.Path != "/rpc" {
		http.NotFound(w, r)
		return
	}
	switch in.Method {
	case "SendStreamingMessage":
		id := in.Params.Message.TaskID
		if id == "" {
			id = uuid.NewString()
		}
		a.serveWork(w, r, id)
	case "SendMessage": // to a task under way
		a.tell(w, in.Params.Message.TaskID)
	case "GetTask":
		a.tell(w, in.Params.ID)
	case "CancelTask":
		a.cancel(in.Params.ID)
		a.tell(w, in.Params.ID)
	default:
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32004,"message":"not here"}}`)
	}
}

func (a *agent) tell(w http.ResponseWriter, id string) {
	task := a.task(id)
	if task == "" {
		_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Task not found"}}`)
		return
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, task)
}

// errRefused and errLater are what work ends with that has not begun.
var (
	errRefused = errors.New("it is of no use")
	errLater   = errors.New("it is at the wrong time")
	errDropped = errors.New("the connection is to break")
)

// serveWork does a task over JSON-RPC.
func (a *agent) serveWork(w http.ResponseWriter, r *http.Request, id string) {
	err := a.work(r.Context(), r.Header.Get("Holdfast-Task"), id, func(event string) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", event)
		_ = http.NewResponseController(w).Flush()
	})
	switch {
	case errors.Is(err, errRefused):
		w.WriteHeader(http.StatusBadRequest)
	case errors.Is(err, errLater):
		w.WriteHeader(http.StatusServiceUnavailable)
	case errors.Is(err, errDropped):
		panic(http.ErrAbortHandler)
	}
}

// work does a task, as it is told to, and says what there is to say of it.
func (a *agent) work(ctx context.Context, task, id string, say func(event string)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	acts := make(chan deliverytest.Act, 1)
	go func() { acts <- a.act(ctx, task) }()
	var act deliverytest.Act
	select {
	case act = <-acts:
		switch act.Deed {
		case deliverytest.Refuse:
			return errRefused
		case deliverytest.Later:
			return errLater
		case deliverytest.Drop:
			return errDropped
		}
		acts <- act
	case <-time.After(50 * time.Millisecond): // it takes its time
	}
	a.mu.Lock()
	a.jobs[id] = &job{"WORKING", stop}
	a.mu.Unlock()
	status := func(state, text string) {
		message := ""
		if text != "" {
			message = fmt.Sprintf(`,"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":%q}]}`, text)
		}
		say(fmt.Sprintf(`{"statusUpdate":{"taskId":%q,"contextId":"c","status":{"state":"TASK_STATE_%s"%s}}}`, id, state, message))
	}
	say(fmt.Sprintf(`{"task":{"id":%q,"contextId":"c","status":{"state":"TASK_STATE_SUBMITTED"}}}`, id))
	act = <-acts // however long it takes, it says nothing
	for _, step := range act.Steps {
		status("WORKING", step)
	}
	if act.Then != nil {
		<-act.Then
	}
	switch act.Deed {
	case deliverytest.Complete:
		say(fmt.Sprintf(`{"artifactUpdate":{"taskId":%q,"contextId":"c","artifact":{"artifactId":"a","parts":[{"text":%q}]}}}`, id, act.Text))
		a.set(id, "COMPLETED")
		status("COMPLETED", "")
	case deliverytest.Ask:
		a.set(id, "INPUT_REQUIRED")
		status("INPUT_REQUIRED", act.Text)
	case deliverytest.Fail:
		a.set(id, "FAILED")
		status("FAILED", act.Text)
	case deliverytest.Hang:
		<-ctx.Done()
	case deliverytest.Accept, deliverytest.Refuse, deliverytest.Drop, deliverytest.Later:
	}
	return nil
}

// server is an HTTP server that can go away and come back at the same address.
type server struct {
	t       testing.TB
	handler http.Handler
	addr    string
	mu      sync.Mutex
	now     *httptest.Server
}

// connection is the key of the connection that a request came on.
type connection struct{}

func newServer(t testing.TB, h http.Handler) *server {
	t.Helper()
	s := &server{t: t, handler: h, addr: "127.0.0.1:0"}
	s.up()
	t.Cleanup(s.down)
	return s
}

func (s *server) up() {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = l.Addr().String()
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	s.now = &httptest.Server{Listener: l, Config: &http.Server{
		Handler: s.handler, ReadHeaderTimeout: time.Minute, Protocols: protocols,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connection{}, c) },
	}}
	s.now.Start()
}

func (s *server) down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		s.now.CloseClientConnections()
		s.now.Close()
		s.now = nil
	}
}

func (s *server) url() string { return "http://" + s.addr }

// sealed is the secrets of an endpoint without a credential.
func sealed(t testing.TB, sealer hub.Sealer, address string) []byte {
	t.Helper()
	b, err := sealer.Seal([]byte("{}"), hub.EndpointAbout(address))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDeliverer(t *testing.T) {
	for binding, serve := range map[string]func(*agent) http.Handler{
		"JSON-RPC": func(a *agent) http.Handler { return a },
		"gRPC":     serveGRPC,
	} {
		t.Run(binding, func(t *testing.T) { deliverytest.Run(t, harness(serve)) })
	}
}

// harness is the deliverer and agents that are served as told.
func harness(serve func(*agent) http.Handler) func(testing.TB, hub.Sealer) deliverytest.Harness {
	return func(t testing.TB, sealer hub.Sealer) deliverytest.Harness {
		return deliverytest.Harness{
			Kind: hub.RemoteDelivery, Deliverer: newDeliverer(t, sealer), Streams: true, Cancels: true, Listens: true,
			Start: func(t testing.TB, address string, a deliverytest.Agent) deliverytest.Remote {
				s := newServer(t, serve(&agent{act: a, jobs: map[string]*job{}}))
				return deliverytest.Remote{
					Endpoint: hub.Endpoint{Kind: hub.RemoteDelivery, URL: s.url(), Sealed: sealed(t, sealer, address)}, Down: s.down, Up: s.up,
				}
			},
		}
	}
}

var _ delivery.Capacity = (*remotea2a.Deliverer)(nil)
