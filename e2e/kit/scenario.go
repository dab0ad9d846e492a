package kit

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/wire"
)

// scenario is what the callee does for messages whose ids begin with prefix.
type scenario struct {
	prefix string
	play   func(ctx context.Context, t *client.Task) (any, error)
}

// scenarios are those of the kit's scenarios/*.feature. Of two prefixes that match,
// the first counts.
func scenarios(streaming time.Duration) []scenario {
	text := []client.Part{client.Text("Generated text content")}
	file := []client.Part{client.File("output.txt", "text/plain", []byte("Generated file content"))}
	link := []client.Part{{URL: new("https://example.com/output.txt"), Filename: "output.txt", MediaType: "text/plain"}}
	return []scenario{
		{"tck-complete-task", complete},
		{"tck-artifact-text", produce(text)},
		{"tck-artifact-file-url", produce(link)},
		{"tck-artifact-file", produce(file)},
		{"tck-artifact-data", produce(map[string]any{"key": "value", "count": 42})},
		{"tck-message-response", produce(bare("Direct message response"))},
		{"tck-input-required", produce(client.Result{State: client.StateInputRequired})},
		{"tck-reject-task", reject},
		{"tck-stream-001", stream(client.Text("Stream hello from TCK"))},
		{"tck-stream-002", produce(nil)},
		{"tck-stream-003", stream(client.Text("Stream task lifecycle"))},
		{"tck-stream-ordering-001", stream(client.Text("Ordered output"))},
		{"tck-stream-artifact-text", stream(client.Text("Streamed text content"))},
		{"tck-stream-artifact-file", stream(file...)},
		{"tck-stream-artifact-chunked", chunks("chunk-1 ", "chunk-2")},
		{"test-resubscribe-message-id", wait(2 * streaming)},
	}
}

// player gives the handler that plays the scenario of a task's newest message. The kit
// leaves it to the agent what to do with any other: of the kit for 1.0, they are
// completed. The kit for 0.3 has no scenarios, and wants most of its tasks still to
// be there for its next request, so the agent has a question about everything else.
func player(streaming time.Duration) client.Handler {
	all := scenarios(streaming)
	return func(ctx context.Context, t *client.Task) (any, error) {
		id := newestID(t)
		for _, s := range all {
			if strings.HasPrefix(id, s.prefix) {
				return s.play(ctx, t)
			}
		}
		if strings.HasPrefix(id, "tck-") {
			return complete(ctx, t)
		}
		return nil, t.Ask(ctx, "What else?")
	}
}

// newestID is the id of the message that the task was handed out for.
func newestID(t *client.Task) string {
	if m, ok := t.Answer(); ok {
		return m.MessageID
	}
	if t.Input == nil {
		return ""
	}
	return t.Input.Message.MessageID
}

func message(text string) client.Message {
	return client.Message{Role: "agent", Parts: []client.Part{client.Text(text)}}
}

// bare is a message that stands for the whole task.
func bare(text string) client.Message {
	m := message(text)
	m.Extensions = []string{wire.BareReply}
	return m
}

func complete(context.Context, *client.Task) (any, error) { return message("Hello from TCK"), nil }

// produce ends the task with a result.
func produce(result any) func(context.Context, *client.Task) (any, error) {
	return func(context.Context, *client.Task) (any, error) { return result, nil }
}

func reject(ctx context.Context, t *client.Task) (any, error) { return nil, t.Reject(ctx, "rejected") }

// stream publishes an artifact and completes the task, which is WORKING since it was
// claimed.
func stream(parts ...client.Part) func(context.Context, *client.Task) (any, error) {
	return func(ctx context.Context, t *client.Task) (any, error) {
		return nil, t.Artifact(ctx, client.Artifact{Name: "stream", Parts: parts})
	}
}

// chunks publishes one text in pieces.
func chunks(pieces ...string) func(context.Context, *client.Task) (any, error) {
	return func(ctx context.Context, t *client.Task) (any, error) {
		for i, piece := range pieces {
			if err := t.AppendText(ctx, "stream", piece, i == len(pieces)-1); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}
}

// wait keeps the task going for a time.
func wait(d time.Duration) func(context.Context, *client.Task) (any, error) {
	return func(ctx context.Context, _ *client.Task) (any, error) {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(d):
			return nil, nil
		}
	}
}
