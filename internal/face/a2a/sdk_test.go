package a2a_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	a2agrpc "github.com/a2aproject/a2a-go/v2/a2agrpc/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// bearer adds a credential to every request.
type bearer struct{ token string }

func (t bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+t.token)
	return http.DefaultTransport.RoundTrip(r)
}

// GetRequestMetadata implements credentials.PerRPCCredentials, for gRPC.
func (t bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + t.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (bearer) RequireTransportSecurity() bool { return false }

// official makes a client of the official SDK that finds an endpoint by its card and
// speaks one binding to it.
func official(t *testing.T, b *bed, endpoint string, speak sdk.TransportProtocol) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.NewResolver(b.client).Resolve(t.Context(), b.URL+endpoint)
	if err != nil {
		t.Fatal(err)
	}
	as := &http.Client{Transport: bearer{b.caller}}
	client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithJSONRPCTransport(as), a2aclient.WithRESTTransport(as),
		a2agrpc.WithGRPCTransport(grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(as.Transport.(bearer))),
		a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []sdk.TransportProtocol{speak}}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestOfficialClient: the official Go SDK finds an address by its card and does
// everything with it that A2A has.
func TestOfficialClient(t *testing.T) {
	for _, speak := range []sdk.TransportProtocol{sdk.TransportProtocolJSONRPC, sdk.TransportProtocolHTTPJSON, sdk.TransportProtocolGRPC} {
		t.Run(string(speak), func(t *testing.T) {
			b := newBed(t, localHooks)
			useOfficialClient(t, b, official(t, b, "/a/coder", speak))
		})
	}
}

// TestOfficialClientAtHub: the SDK finds the hub's own card and reaches an address by
// its tenant, which HTTP+JSON has in the path.
func TestOfficialClientAtHub(t *testing.T) {
	for _, speak := range []sdk.TransportProtocol{sdk.TransportProtocolJSONRPC, sdk.TransportProtocolHTTPJSON, sdk.TransportProtocolGRPC} {
		t.Run(string(speak), func(t *testing.T) {
			b := newBed(t)
			client := official(t, b, "", speak)
			res, err := client.SendMessage(t.Context(), &sdk.SendMessageRequest{
				Tenant: "coder", Config: &sdk.SendMessageConfig{ReturnImmediately: true},
				Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart("hi")),
			})
			if err != nil {
				t.Fatal(err)
			}
			id := res.(*sdk.Task).ID
			if got, err := client.CancelTask(t.Context(), &sdk.CancelTaskRequest{Tenant: "coder", ID: id}); err != nil || got.ID != id {
				t.Errorf("cancel: %+v, %v", got, err)
			}
			if got, err := client.GetTask(t.Context(), &sdk.GetTaskRequest{Tenant: "coder", ID: id}); err != nil || got.Status.State != sdk.TaskStateCanceled {
				t.Errorf("get: %+v, %v", got, err)
			}
			if got, err := client.GetTask(t.Context(), &sdk.GetTaskRequest{Tenant: "other", ID: id}); err == nil {
				t.Errorf("at another address: %+v", got)
			}
		})
	}
}

func useOfficialClient(t *testing.T, b *bed, client *a2aclient.Client) {
	ctx := t.Context()
	say := func(text string) *sdk.SendMessageRequest {
		return &sdk.SendMessageRequest{Message: sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart(text))}
	}

	// Send, and answer a question.
	var worker sync.WaitGroup
	defer worker.Wait()
	worker.Go(func() {
		b.finish(b.next().ID, "input_required", "")
		b.finish(b.next().ID, "completed", "done")
	})
	res, err := client.SendMessage(ctx, say("hi"))
	if err != nil {
		t.Fatal(err)
	}
	asked := res.(*sdk.Task)
	if asked.Status.State != sdk.TaskStateInputRequired {
		t.Fatalf("got %+v", asked)
	}
	res, err = client.SendMessage(ctx, &sdk.SendMessageRequest{Message: sdk.NewMessageForTask(sdk.MessageRoleUser, asked, sdk.NewTextPart("that"))})
	if err != nil {
		t.Fatal(err)
	}
	done := res.(*sdk.Task)
	if done.ID != asked.ID || done.Status.State != sdk.TaskStateCompleted || done.Artifacts[0].Parts[0].Text() != "done" {
		t.Fatalf("got %+v", done)
	}

	// Stream.
	var kinds []string
	for e, err := range client.SendStreamingMessage(ctx, say("stream")) {
		if err != nil {
			t.Fatal(err)
		}
		switch e := e.(type) {
		case *sdk.Task:
			kinds = append(kinds, "task")
			b.next()
			b.chunk(string(e.ID), "a", false)
			b.finish(string(e.ID), "completed", "")
		case *sdk.TaskStatusUpdateEvent:
			kinds = append(kinds, string(e.Status.State))
		case *sdk.TaskArtifactUpdateEvent:
			kinds = append(kinds, e.Artifact.Parts[0].Text())
		}
	}
	if len(kinds) != 4 || kinds[0] != "task" || kinds[2] != "a" || kinds[3] != string(sdk.TaskStateCompleted) {
		t.Errorf("streamed %v", kinds)
	}

	// Subscribe, cancel while subscribed, get and list.
	open := say("open")
	open.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
	res, err = client.SendMessage(ctx, open)
	if err != nil {
		t.Fatal(err)
	}
	id := res.(*sdk.Task).ID
	var last sdk.Event
	for e, err := range client.SubscribeToTask(ctx, &sdk.SubscribeToTaskRequest{ID: id}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, first := e.(*sdk.Task); first {
			canceled, err := client.CancelTask(ctx, &sdk.CancelTaskRequest{ID: id})
			if err != nil || canceled.Status.State != sdk.TaskStateCanceled {
				t.Fatalf("cancel: %+v, %v", canceled, err)
			}
		}
		last = e
	}
	if e, ok := last.(*sdk.TaskStatusUpdateEvent); !ok || e.Status.State != sdk.TaskStateCanceled {
		t.Errorf("last event %+v", last)
	}
	if got, err := client.GetTask(ctx, &sdk.GetTaskRequest{ID: id}); err != nil || got.Status.State != sdk.TaskStateCanceled {
		t.Errorf("get: %+v, %v", got, err)
	}
	page, err := client.ListTasks(ctx, &sdk.ListTasksRequest{PageSize: 2})
	if err != nil || len(page.Tasks) != 2 || page.TotalSize != 3 || page.NextPageToken == "" {
		t.Errorf("list: %+v, %v", page, err)
	}

	later := time.Now().Add(time.Hour)
	if page, err := client.ListTasks(ctx, &sdk.ListTasksRequest{StatusTimestampAfter: &later}); err != nil || len(page.Tasks) != 0 {
		t.Errorf("list what changed in the future: %+v, %v", page, err)
	}

	pushByClient(t, client, id)

	// Errors are the SDK's own.
	for want, do := range map[error]func() error{
		sdk.ErrTaskNotFound: func() error { _, err := client.GetTask(ctx, &sdk.GetTaskRequest{ID: "none"}); return err },
		sdk.ErrTaskNotCancelable: func() error {
			_, err := client.CancelTask(ctx, &sdk.CancelTaskRequest{ID: done.ID})
			return err
		},
	} {
		if err := do(); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
}
