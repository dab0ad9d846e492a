package a2a_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	pbv03 "github.com/a2aproject/a2a-go/a2apb"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// formerBinding is a binding of 0.3, for which requests and answers are translated from
// and into 1.0, so that the same tests can run over it.
type formerBinding struct {
	title string
	proto bool // its JSON is the ProtoJSON of a2a.v1, and not that of JSON-RPC
	// via performs a request in the words of 0.3.
	via func(ctx context.Context, b *bed, q query) (*stream, answer)
}

// formers are the bindings of 0.3 that the hub speaks.
var formers = []*formerBinding{
	{title: "JSONRPC-0.3", via: func(ctx context.Context, b *bed, q query) (*stream, answer) {
		q.op = map[string]string{
			"SendMessage": "message/send", "SendStreamingMessage": "message/stream", "GetTask": "tasks/get",
			"CancelTask": "tasks/cancel", "SubscribeToTask": "tasks/resubscribe",
			"CreateTaskPushNotificationConfig": "tasks/pushNotificationConfig/set", "GetTaskPushNotificationConfig": "tasks/pushNotificationConfig/get",
			"ListTaskPushNotificationConfigs": "tasks/pushNotificationConfig/list", "DeleteTaskPushNotificationConfig": "tasks/pushNotificationConfig/delete",
		}[q.op]
		return jsonRPC.open(ctx, b, q)
	}},
	{title: "HTTP+JSON-0.3", proto: true, via: func(ctx context.Context, b *bed, q query) (*stream, answer) {
		q.handle += "/v1"
		return rest.open(ctx, b, q)
	}},
	{title: "GRPC-0.3", proto: true, via: grpcV03.open},
}

// notFormer are the tests of semantics that are not for 0.3, and why.
var notFormer = map[string]string{
	"3.2.4 history length":                                "0 is the same as none in ProtoJSON of 0.3",
	"3.1.6 subscribe":                                     "a stream of 0.3 ends with a question, see TestStreamsV03",
	"3.1.4 list tasks":                                    "there is no such operation",
	"3.1.7 create push configuration":                     "another shape, as in all that follow; see v03_push_test.go",
	"3.1.7 refused push configuration":                    "",
	"3.1.8 get push configuration":                        "",
	"3.1.9 list push configurations":                      "",
	"3.1.10 delete push configuration":                    "",
	"4.3.3 push configuration with a message":             "",
	"4.3.3 push configuration with a stream or an answer": "",
	"3.2.2 refused push configuration with a message":     "",
}

// grpcV03 is 0.3's section 3.2.2.
var grpcV03 = &grpcBinding{
	title: "GRPC-0.3", service: pbv03.File_a2a_proto.Services().Get(0),
	method: func(op string) string {
		switch op {
		case "SubscribeToTask":
			return "TaskSubscription"
		case "ListTaskPushNotificationConfigs":
			return "ListTaskPushNotificationConfig"
		}
		return op
	},
	request: func(t testing.TB, q query, into proto.Message) bool {
		t.Helper()
		p := object(q.params)
		if p == nil {
			return false
		}
		if q.op == "CancelTask" {
			delete(p, "metadata")
		}
		task, _ := p["taskId"].(string)
		switch id, _ := p["id"].(string); q.op {
		case "GetTask", "CancelTask", "SubscribeToTask":
			p["name"] = "tasks/" + id
		case "CreateTaskPushNotificationConfig", "ListTaskPushNotificationConfigs":
			p["parent"] = "tasks/" + task
		case "GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig":
			p["name"] = "tasks/" + task + "/pushNotificationConfigs/" + id
		default:
			if m, ok := p["message"].(map[string]any); ok { // the name in the SDK's edition of the file
				m["parts"] = m["content"]
				delete(m, "content")
			}
		}
		delete(p, "id")
		delete(p, "taskId")
		delete(p, "tenant")
		return protojson.Unmarshal([]byte(text(p)), into) == nil
	},
}

func (f *formerBinding) name() string { return f.title }

func (f *formerBinding) open(ctx context.Context, b *bed, q query) (*stream, answer) {
	b.t.Helper()
	if q.op == "ListTasks" || q.op == "GetExtendedAgentCard" { // which tests use for other things
		return jsonRPC.open(ctx, b, q)
	}
	if strings.Contains(q.params, `\ud800`) { // which the translation would lose
		return nil, unsaid()
	}
	old := q
	if p := object(q.params); p != nil {
		if tenant, _ := p["tenant"].(string); f.title == grpcV03.title && tenant != "" {
			if q.handle != "hub" && tenant != q.handle {
				return nil, unsaid()
			}
			old.handle = tenant
		}
		f.down(q.op, p)
		old.params = text(p)
	}
	s, a := f.via(ctx, b, old)
	if s == nil {
		return nil, f.up(b.t, q.op, a)
	}
	recv := s.recv
	s.recv = func() (string, answer, bool) {
		b.t.Helper()
		id, a, ok := recv()
		return id, f.up(b.t, q.op, a), ok
	}
	return s, answer{}
}

// object reads a JSON object, nil if it is none.
func object(s string) map[string]any {
	var p map[string]any
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	if d.Decode(&p) != nil {
		return nil
	}
	return p
}

// text writes JSON.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(data)
}

// down turns parameters into those of 0.3.
func (f *formerBinding) down(op string, p map[string]any) {
	switch op {
	case "CreateTaskPushNotificationConfig":
		config := map[string]any{"pushNotificationConfig": map[string]any{"url": p["url"], "id": p["id"]}}
		delete(p, "url")
		if delete(p, "id"); f.proto {
			p["config"] = config
		} else {
			p["pushNotificationConfig"] = config["pushNotificationConfig"]
		}
	case "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig":
		if !f.proto {
			p["pushNotificationConfigId"], p["id"] = p["id"], p["taskId"]
			delete(p, "taskId")
		}
	case "SendMessage", "SendStreamingMessage":
		if m, ok := p["message"].(map[string]any); ok {
			f.downMessage(m)
		}
		c, _ := p["configuration"].(map[string]any)
		if c == nil {
			c = map[string]any{}
		}
		c["blocking"] = c["returnImmediately"] != true
		delete(c, "returnImmediately")
		if push, ok := c["taskPushNotificationConfig"]; ok {
			delete(c, "taskPushNotificationConfig")
			if f.proto {
				c["pushNotification"] = push
			} else {
				c["pushNotificationConfig"] = push
			}
		}
		p["configuration"] = c
	}
}

func (f *formerBinding) downMessage(m map[string]any) {
	parts, _ := m["parts"].([]any)
	for i := range parts {
		part, _ := parts[i].(map[string]any)
		data, isData := part["data"]
		switch {
		case f.proto && isData:
			part["data"] = map[string]any{"data": data}
		case f.proto:
		case isData:
			part["kind"] = "data"
		default:
			part["kind"] = "text"
		}
	}
	if f.proto {
		delete(m, "parts")
		m["content"] = parts
		return
	}
	m["kind"] = "message"
	if role, ok := m["role"].(string); ok {
		m["role"] = strings.ToLower(strings.TrimPrefix(role, "ROLE_"))
	}
}

// up turns an answer into one of 1.0.
func (f *formerBinding) up(t testing.TB, op string, a answer) answer {
	t.Helper()
	if a.Error != nil || a.Result == nil {
		return a
	}
	p := object(string(a.Result))
	if p == nil {
		return a
	}
	kind, _ := p["kind"].(string)
	switch inner := strings.HasPrefix(op, "Send") || op == "SubscribeToTask"; {
	case f.proto && inner:
	case kind == "task" && inner:
		p = map[string]any{"task": p}
	case kind == "status-update":
		p = map[string]any{"statusUpdate": p}
	case kind == "artifact-update":
		p = map[string]any{"artifactUpdate": p}
	case kind == "message":
		p = map[string]any{"message": p}
	}
	upAll(p)
	a.Result = json.RawMessage(text(p))
	a.Body = string(a.Result)
	return a
}

// upAll turns everything in an answer into that of 1.0.
func upAll(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			upAll(e)
		}
	case map[string]any:
		upObject(v)
	}
}

func upObject(o map[string]any) {
	delete(o, "kind")
	delete(o, "final")
	if s, ok := o["state"].(string); ok {
		s = strings.TrimPrefix(strings.ToUpper(strings.ReplaceAll(s, "-", "_")), "TASK_STATE_")
		o["state"] = "TASK_STATE_" + strings.Replace(s, "CANCELLED", "CANCELED", 1)
	}
	if s, ok := o["role"].(string); ok {
		o["role"] = "ROLE_" + strings.TrimPrefix(strings.ToUpper(s), "ROLE_")
	}
	if parts, ok := o["content"]; ok {
		o["parts"] = parts
		delete(o, "content")
	}
	if parts, ok := o["parts"].([]any); ok {
		for _, part := range parts {
			upPart(part.(map[string]any))
		}
	}
	if history, ok := o["history"].([]any); ok {
		if o["history"] = withoutWords(o, history); len(o["history"].([]any)) == 0 {
			delete(o, "history")
		}
	}
	for name, v := range o {
		if name != "metadata" && name != "parts" {
			upAll(v)
		}
	}
}

// upPart turns a part into one of 1.0: its content, which may have a kind or be in an
// object of its own.
func upPart(p map[string]any) {
	data, isData := p["data"].(map[string]any)
	if inner, ok := data["data"]; isData && ok && len(data) == 1 && p["kind"] == nil {
		p["data"] = inner
	}
	delete(p, "kind")
}

// withoutWords leaves out of a history what the agent said last, which is there for
// clients of 0.3 alone.
func withoutWords(task map[string]any, history []any) []any {
	id, _ := task["id"].(string)
	status, _ := task["status"].(map[string]any)
	said, _ := status["message"].(map[string]any)
	return slices.DeleteFunc(history, func(m any) bool {
		of := m.(map[string]any)["messageId"]
		return of == id+"-answer" || said != nil && of == said["messageId"]
	})
}
