package interop

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2acompat/a2av0"
	grpcv0 "github.com/a2aproject/a2a-go/v2/a2agrpc/v0"
	grpcv1 "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// bearer sends a credential along.
type bearer struct {
	a2aclient.PassthroughInterceptor
	token string
	// tenant is the metadata that names the address where the protocol cannot.
	tenant string
}

func (b bearer) Before(ctx context.Context, req *a2aclient.Request) (context.Context, any, error) {
	req.ServiceParams.Append("authorization", "Bearer "+b.token)
	if b.tenant != "" {
		req.ServiceParams.Append("a2a-tenant", b.tenant)
	}
	return ctx, nil, nil
}

// TestGoClient lets the client of the A2A Go SDK do all it can, over three bindings in
// two versions.
func TestGoClient(t *testing.T) { eachStore(t, withGoClient) }

func withGoClient(t *testing.T, on func(*config.Config)) {
	t.Helper()
	h := testhub.Start(t, on, receiversHere)
	work(t, client.New(h.URL, h.Agent("coder")))
	token := h.Agent("caller")
	u, err := url.Parse(h.URL)
	if err != nil {
		t.Fatal(err)
	}
	plaintext := grpc.WithTransportCredentials(insecure.NewCredentials())
	for name, at := range map[string]*a2a.AgentInterface{
		"1.0 JSON-RPC":  {URL: h.URL + "/a/coder", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: "1.0"},
		"1.0 HTTP+JSON": {URL: h.URL + "/a/coder", ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: "1.0"},
		"1.0 gRPC":      {URL: u.Host, ProtocolBinding: a2a.TransportProtocolGRPC, ProtocolVersion: "1.0", Tenant: "coder"},
		"0.3 JSON-RPC":  {URL: h.URL + "/a/coder", ProtocolBinding: a2a.TransportProtocolJSONRPC, ProtocolVersion: "0.3"},
		"0.3 HTTP+JSON": {URL: h.URL + "/a/coder/v1", ProtocolBinding: a2a.TransportProtocolHTTPJSON, ProtocolVersion: "0.3"},
		"0.3 gRPC":      {URL: u.Host, ProtocolBinding: a2a.TransportProtocolGRPC, ProtocolVersion: "0.3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			auth := bearer{token: token}
			if name == "0.3 gRPC" {
				auth.tenant = "coder"
			}
			c, err := a2aclient.NewFromEndpoints(t.Context(), []*a2a.AgentInterface{at},
				a2aclient.WithDefaultsDisabled(), a2aclient.WithCallInterceptors(auth),
				a2aclient.WithJSONRPCTransport(http.DefaultClient), a2aclient.WithRESTTransport(http.DefaultClient), grpcv1.WithGRPCTransport(plaintext),
				a2av0.WithJSONRPCTransport(a2av0.JSONRPCTransportConfig{Client: http.DefaultClient}),
				a2av0.WithRESTTransport(a2av0.RESTTransportConfig{Client: http.DefaultClient}), grpcv0.WithGRPCTransport(plaintext))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Destroy() })
			ctx := within(t, time.Minute)
			sendWithGoClient(ctx, t, c)
			if name == "0.3 HTTP+JSON" {
				return // the SDK's client reads tasks in a form of its own there; see docs/conformance.md
			}
			useGoClient(ctx, t, c, strings.HasPrefix(name, "1.0"))
			pushToGoClient(ctx, t, c)
		})
	}
}

func say(text string) *a2a.SendMessageRequest {
	return &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text)), Config: &a2a.SendMessageConfig{}}
}

// sendTo sends and gives the task.
func sendTo(ctx context.Context, t *testing.T, c *a2aclient.Client, req *a2a.SendMessageRequest) *a2a.Task {
	t.Helper()
	res, err := c.SendMessage(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	task, ok := res.(*a2a.Task)
	if !ok {
		t.Fatalf("got %+v", res)
	}
	return task
}

func sendWithGoClient(ctx context.Context, t *testing.T, c *a2aclient.Client) {
	done := sendTo(ctx, t, c, say("hi"))
	if done.Status.State != a2a.TaskStateCompleted || done.Artifacts[0].Parts[0].Text() != "ANSWER hi" {
		t.Errorf("a send gave %+v", done)
	}
	asked := sendTo(ctx, t, c, say("ask"))
	answered := sendTo(ctx, t, c, &a2a.SendMessageRequest{
		Message: a2a.NewMessageForTask(a2a.MessageRoleUser, asked, a2a.NewTextPart("that")), Config: &a2a.SendMessageConfig{},
	})
	if asked.Status.State != a2a.TaskStateInputRequired || answered.ID != asked.ID || answered.Status.State != a2a.TaskStateCompleted {
		t.Errorf("asked %+v, answered %+v", asked, answered)
	}

	var text strings.Builder
	add := func(a *a2a.Artifact) {
		for _, p := range a.Parts {
			text.WriteString(p.Text())
		}
	}
	var last a2a.TaskState
	for e, err := range c.SendStreamingMessage(ctx, say("stream")) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case *a2a.Task: // may have the first chunks already
			for _, a := range e.Artifacts {
				add(a)
			}
			last = e.Status.State // of a fast agent the stream is the task alone
		case *a2a.TaskArtifactUpdateEvent:
			add(e.Artifact)
		case *a2a.TaskStatusUpdateEvent:
			last = e.Status.State
		}
	}
	if last != a2a.TaskStateCompleted || text.String() != "one two three" {
		t.Errorf("streamed %q and ended as %s", text.String(), last)
	}
}

func useGoClient(ctx context.Context, t *testing.T, c *a2aclient.Client, lists bool) {
	done := sendTo(ctx, t, c, say("hi"))
	if got, err := c.GetTask(ctx, &a2a.GetTaskRequest{ID: done.ID}); err != nil || got.Status.State != a2a.TaskStateCompleted {
		t.Errorf("get gave %+v, %v", got, err)
	}
	held := say("hold")
	held.Config.ReturnImmediately = true
	task := sendTo(ctx, t, c, held)
	var state a2a.TaskState
	for e, err := range c.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: task.ID}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case *a2a.Task:
			if _, err := c.CancelTask(ctx, &a2a.CancelTaskRequest{ID: task.ID}); err != nil {
				t.Fatal(err)
			}
		case *a2a.TaskStatusUpdateEvent:
			state = e.Status.State
		}
	}
	if state != a2a.TaskStateCanceled {
		t.Errorf("the stream of a canceled task ended with %s", state)
	}
	if _, err := c.GetTask(ctx, &a2a.GetTaskRequest{ID: "none"}); err == nil {
		t.Error("a task that is not there was given")
	}
	var refused error
	for _, err := range c.SubscribeToTask(ctx, &a2a.SubscribeToTaskRequest{ID: "none"}) {
		refused = err
	}
	if !errors.Is(refused, a2a.ErrTaskNotFound) {
		t.Errorf("following a task that is not there gave %v", refused)
	}
	if !lists {
		return
	}
	page, err := c.ListTasks(ctx, &a2a.ListTasksRequest{ContextID: task.ContextID})
	if err != nil || len(page.Tasks) != 1 || page.Tasks[0].ID != task.ID {
		t.Errorf("the list is %+v, %v", page, err)
	}
}

// pushToGoClient asks for notifications with the send and by a call of its own.
func pushToGoClient(ctx context.Context, t *testing.T, c *a2aclient.Client) {
	type notification struct {
		path, auth, token, other string
	}
	got := make(chan notification, 100)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- notification{r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("X-A2A-Notification-Token"), r.Header.Get("A2A-Notification-Token")}
	}))
	defer receiver.Close()
	ask := say("ask")
	ask.Config.PushConfig = &a2a.PushConfig{
		ID: "inline", URL: receiver.URL + "/inline", Token: "tok", Auth: &a2a.PushAuthInfo{Scheme: "Bearer", Credentials: "cred"},
	}
	task := sendTo(ctx, t, c, ask)
	if _, err := c.CreateTaskPushConfig(ctx, &a2a.PushConfig{TaskID: task.ID, ID: "call", URL: receiver.URL + "/call"}); err != nil {
		t.Fatal(err)
	}
	kept, err := c.GetTaskPushConfig(ctx, &a2a.GetTaskPushConfigRequest{TaskID: task.ID, ID: "inline"})
	if err != nil || kept.URL != ask.Config.PushConfig.URL || kept.Token != "" || kept.Auth != nil && kept.Auth.Credentials != "" {
		t.Errorf("the configuration is %+v, %v", kept, err)
	}
	if list, err := c.ListTaskPushConfigs(ctx, &a2a.ListTaskPushConfigRequest{TaskID: task.ID}); err != nil || len(list) != 2 {
		t.Errorf("the configurations are %+v, %v", list, err)
	}
	if err := c.DeleteTaskPushConfig(ctx, &a2a.DeleteTaskPushConfigRequest{TaskID: task.ID, ID: "call"}); err != nil {
		t.Error(err)
	}
	sendTo(ctx, t, c, &a2a.SendMessageRequest{
		Message: a2a.NewMessageForTask(a2a.MessageRoleUser, task, a2a.NewTextPart("that")), Config: &a2a.SendMessageConfig{},
	})
	for range 4 { // submitted, working, the question, the answer and so on
		select {
		case n := <-got:
			if want := (notification{"/inline", "Bearer cred", "tok", "tok"}); n != want {
				t.Errorf("got %+v, want %+v", n, want)
			}
		case <-ctx.Done():
			t.Fatal("there are too few notifications")
		}
	}
}
