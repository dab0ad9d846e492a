package cli

import (
	"context"
	"encoding/base64"
	"encoding/gob"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/wire"
)

// commandURL is what the hub calls the other end of a tunnel to a command.
const commandURL = "http://command.tunnel/"

// commandAgent is an A2A server whose agent is a shell command. Its tasks go on while
// the tunnel is away, and the hub finds them again.
func (p *program) commandAgent(s station, f tunnelFlags) http.Handler {
	gob.Register(json.RawMessage(nil)) // the SDK copies events with gob; this way data keeps all its digits
	card := &a2a.AgentCard{
		Name: s.handle, Description: "A command behind a tunnel.", Version: version(),
		Capabilities:      a2a.AgentCapabilities{Streaming: true},
		DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"text/plain"},
		Skills:              []a2a.AgentSkill{},
		SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(commandURL, a2a.TransportProtocolJSONRPC)},
	}
	agent := &commandExecutor{worker: &worker{p: p, f: workFlags{exec: f.exec, json: f.json}, station: s}, running: make(map[a2a.TaskID]context.CancelCauseFunc)}
	handler := a2asrv.NewHandler(agent, a2asrv.WithCapabilityChecks(&card.Capabilities),
		a2asrv.WithTaskStore(newBriefStore()), a2asrv.WithLogger(slog.New(slog.DiscardHandler)))
	mux := http.NewServeMux()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(card))
	mux.Handle("/", a2asrv.NewJSONRPCHandler(handler, a2asrv.WithTransportKeepAlive(15*time.Second)))
	return mux
}

// errCanceled is why a command is killed whose task was canceled.
var errCanceled = errors.New("the task was canceled")

// commandExecutor runs the command for each task.
type commandExecutor struct {
	worker *worker

	mu      sync.Mutex
	running map[a2a.TaskID]context.CancelCauseFunc
}

// Execute implements a2asrv.AgentExecutor.
func (e *commandExecutor) Execute(ctx context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		if ec.StoredTask == nil && !yield(a2a.NewSubmittedTask(ec, ec.Message), nil) {
			return
		}
		if !yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateWorking, nil), nil) {
			return
		}
		ctx, done := e.begin(ctx, ec.TaskID)
		defer done()
		task, err := commandTask(ec)
		if err == nil {
			var r any
			if r, err = e.worker.handle(ctx, task); err == nil {
				err = yieldResult(ec, r.(client.Result), yield)
			}
		}
		if err != nil && ctx.Err() == nil {
			yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateFailed, saying(ec, err.Error())), nil)
		}
	}
}

// begin makes the context of a command, which Cancel ends.
func (e *commandExecutor) begin(ctx context.Context, id a2a.TaskID) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running[id] = cancel
	return ctx, func() {
		cancel(nil)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.running, id)
	}
}

// Cancel implements a2asrv.AgentExecutor: it kills the command.
func (e *commandExecutor) Cancel(_ context.Context, ec *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		e.mu.Lock()
		if cancel := e.running[ec.TaskID]; cancel != nil {
			cancel(errCanceled)
		}
		e.mu.Unlock()
		yield(a2a.NewStatusUpdateEvent(ec, a2a.TaskStateCanceled, nil), nil)
	}
}

// commandTask is a task of A2A in the form that commands know.
func commandTask(ec *a2asrv.ExecutorContext) (*client.Task, error) {
	t := &client.Task{Task: wire.Task{ID: string(ec.TaskID), ContextID: ec.ContextID, Caller: "the hub", Attempt: 1}}
	if h := header(ec, "Holdfast-Task"); h != "" {
		t.ID = h
	}
	t.CallID = header(ec, "X-Parent-Call")
	messages := []*a2a.Message{ec.Message}
	if ec.StoredTask != nil {
		messages = append(append([]*a2a.Message(nil), ec.StoredTask.History...), ec.Message)
	}
	seen := make(map[string]bool)
	for _, m := range messages {
		if m == nil || seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		w, err := wireMessage(m)
		if err != nil {
			return nil, err
		}
		t.History = append(t.History, w)
	}
	if len(t.History) > 0 {
		t.Input = &wire.Input{Message: t.History[0]}
	}
	return t, nil
}

// header is one that the hub sent with the request; empty if it did not.
func header(ec *a2asrv.ExecutorContext, name string) string {
	if ec.ServiceParams == nil {
		return ""
	}
	values, _ := ec.ServiceParams.Get(name)
	return first(values...)
}

func wireMessage(m *a2a.Message) (wire.Message, error) {
	w := wire.Message{MessageID: m.ID, Role: "user"}
	if m.Role == a2a.MessageRoleAgent {
		w.Role = "agent"
	}
	for _, p := range m.Parts {
		part := wire.Part{MediaType: p.MediaType, Filename: p.Filename}
		switch c := p.Content.(type) {
		case a2a.Text:
			text := string(c)
			part.Text = &text
		case a2a.Raw:
			raw := base64.StdEncoding.EncodeToString(c)
			part.Raw = &raw
		case a2a.URL:
			u := string(c)
			part.URL = &u
		default:
			data, err := json.Marshal(p.Data())
			if err != nil {
				return w, err
			}
			part.Data = data
		}
		w.Parts = append(w.Parts, part)
	}
	return w, nil
}

// yieldResult reports what became of a command.
func yieldResult(ec *a2asrv.ExecutorContext, r client.Result, yield func(a2a.Event, error) bool) error {
	for _, artifact := range r.Artifacts {
		parts, err := a2aParts(artifact.Parts)
		if err != nil {
			return err
		}
		event := a2a.NewArtifactEvent(ec, parts...)
		event.Artifact.Name, event.LastChunk = artifact.Name, true
		if !yield(event, nil) {
			return nil
		}
	}
	var m *a2a.Message
	switch {
	case r.Error != nil:
		m = saying(ec, *r.Error)
	case r.Message != nil:
		parts, err := a2aParts(r.Message.Parts)
		if err != nil {
			return err
		}
		m = a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, parts...)
	}
	yield(a2a.NewStatusUpdateEvent(ec, a2aStates[r.State], m), nil)
	return nil
}

func saying(ec *a2asrv.ExecutorContext, words string) *a2a.Message {
	return a2a.NewMessageForTask(a2a.MessageRoleAgent, ec, a2a.NewTextPart(words))
}

var a2aStates = map[string]a2a.TaskState{
	client.StateCompleted: a2a.TaskStateCompleted, client.StateFailed: a2a.TaskStateFailed, client.StateRejected: a2a.TaskStateRejected,
	client.StateInputRequired: a2a.TaskStateInputRequired, client.StateAuthRequired: a2a.TaskStateAuthRequired,
}

// a2aParts makes the parts that commands print into those of A2A.
func a2aParts(list []client.Part) ([]*a2a.Part, error) {
	parts := make([]*a2a.Part, 0, len(list))
	for _, p := range list {
		var part *a2a.Part
		switch {
		case p.Text != nil:
			part = a2a.NewTextPart(*p.Text)
		case p.Raw != nil:
			raw, err := base64.StdEncoding.DecodeString(*p.Raw)
			if err != nil {
				return nil, err
			}
			part = a2a.NewRawPart(raw)
		default: // as it was printed: a number keeps its digits
			part = a2a.NewDataPart(p.Data)
		}
		part.MediaType, part.Filename = p.MediaType, p.Filename
		parts = append(parts, part)
	}
	return parts, nil
}

const (
	// briefKeep is how long a task is known after it was last changed, if it has ended,
	// and briefSweep how many there are before any is forgotten.
	briefKeep  = time.Hour
	briefSweep = 1000
)

// briefStore is a taskstore.Store that forgets tasks some time after their end.
type briefStore struct {
	mu    sync.Mutex
	tasks map[a2a.TaskID]*briefTask
	next  int // how many tasks there are when it is looked for some to forget
}

type briefTask struct {
	json    []byte
	version taskstore.TaskVersion
	ended   bool
	changed time.Time
}

func newBriefStore() *briefStore {
	return &briefStore{tasks: make(map[a2a.TaskID]*briefTask), next: briefSweep}
}

// Create implements taskstore.Store.
func (s *briefStore) Create(_ context.Context, t *a2a.Task) (taskstore.TaskVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[t.ID] != nil {
		return taskstore.TaskVersionMissing, taskstore.ErrTaskAlreadyExists
	}
	s.forget()
	return s.put(t, 1)
}

// Update implements taskstore.Store.
func (s *briefStore) Update(_ context.Context, u *taskstore.UpdateRequest) (taskstore.TaskVersion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.tasks[u.Task.ID]
	switch {
	case old == nil:
		return taskstore.TaskVersionMissing, a2a.ErrTaskNotFound
	case u.PrevVersion != taskstore.TaskVersionMissing && u.PrevVersion != old.version:
		return taskstore.TaskVersionMissing, taskstore.ErrConcurrentModification
	}
	return s.put(u.Task, old.version+1)
}

// put keeps a task as JSON, so that nobody changes it. mu is held.
func (s *briefStore) put(t *a2a.Task, v taskstore.TaskVersion) (taskstore.TaskVersion, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return taskstore.TaskVersionMissing, err
	}
	s.tasks[t.ID] = &briefTask{json: b, version: v, ended: t.Status.State.Terminal(), changed: time.Now()}
	return v, nil
}

// forget forgets those that ended long ago, now and then. mu is held.
func (s *briefStore) forget() {
	if len(s.tasks) < s.next {
		return
	}
	for id, t := range s.tasks {
		if t.ended && time.Since(t.changed) > briefKeep {
			delete(s.tasks, id)
		}
	}
	s.next = max(briefSweep, 2*len(s.tasks))
}

// Get implements taskstore.Store.
func (s *briefStore) Get(_ context.Context, id a2a.TaskID) (*taskstore.StoredTask, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := s.tasks[id]
	if kept == nil {
		return nil, a2a.ErrTaskNotFound
	}
	t := new(a2a.Task)
	if err := json.Unmarshal(kept.json, t); err != nil {
		return nil, err
	}
	return &taskstore.StoredTask{Task: t, Version: kept.version}, nil
}

// List implements taskstore.Store. The hub knows which tasks it has sent.
func (s *briefStore) List(context.Context, *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	return nil, a2a.ErrUnsupportedOperation
}
