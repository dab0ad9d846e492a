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
	grpc  bool
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
	{title: "GRPC-0.3", proto: true, grpc: true, via: grpcV03.open},
}

// notFormer are the tests of semantics that are not for 0.3, and why.
var notFormer = map[string]string{
	"3.1.4 list tasks": "there is no such operation",
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
	old := q
	if !f.down(&old) {
		return nil, unsaid()
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

// says reports whether there are words for a query.
func (f *formerBinding) says(t testing.TB, q query) bool {
	t.Helper()
	return f.down(&q) && (!f.grpc || grpcV03.request(t, q, newMessage(t, grpcV03.methodOf(t, q.op).Input())))
}

// up turns an answer into one of 1.0.
func (f *formerBinding) up(t testing.TB, op string, a answer) answer {
	t.Helper()
	switch {
	case a.Error != nil:
		a.Error = upError(op, a.Error)
		return a
	case a.Result == nil:
		return a
	}
	v := opened(a.Result)
	switch {
	case strings.Contains(op, "PushNotification"):
		if v = upPush(v); text(v) == "{}" && strings.HasPrefix(op, "List") {
			v = upPush([]any{}) // an empty list and none are the same in protobuf
		}
	case strings.HasPrefix(op, "Send") || op == "SubscribeToTask":
		v = upNamed(v)
		upAll(v)
	default:
		upAll(v)
	}
	a.Result = json.RawMessage(text(v))
	a.Body = string(a.Result)
	return a
}

// upNamed puts what says its kind under the name that 1.0 has for it.
func upNamed(v any) any {
	o, _ := v.(map[string]any)
	names := map[any]string{"task": "task", "message": "message", "status-update": "statusUpdate", "artifact-update": "artifactUpdate"}
	if name := names[o["kind"]]; name != "" {
		return map[string]any{name: v}
	}
	return v
}

// upPush turns the answers of the operations on configurations into those of 1.0.
func upPush(v any) any {
	switch v := v.(type) {
	case nil: // deleted
		return map[string]any{}
	case []any:
		return upPush(map[string]any{"configs": v})
	case map[string]any:
		if list, ok := v["configs"].([]any); ok {
			for i := range list {
				list[i] = upPush(list[i])
			}
			v["nextPageToken"] = ""
		}
		config, ok := v["pushNotificationConfig"].(map[string]any)
		if !ok {
			return v
		}
		if config["taskId"] = v["taskId"]; v["taskId"] == nil {
			name, _ := v["name"].(string)
			config["taskId"] = strings.Split(name+"/", "/")[1]
		}
		if auth, ok := config["authentication"].(map[string]any); ok {
			if schemes, ok := auth["schemes"].([]any); ok {
				auth["scheme"] = schemes[0]
			}
			delete(auth, "schemes")
		}
		return config
	}
	return v
}

// upFields are the names of fields in 0.3, as parts of a path, and those of 1.0.
var upFields = strings.NewReplacer(
	"message.content", "message.parts", "configuration.blocking", "configuration.returnImmediately",
	"configuration.pushNotificationConfig", "configuration.taskPushNotificationConfig",
	"configuration.pushNotification", "configuration.taskPushNotificationConfig",
	"config.pushNotificationConfig.", "", "pushNotificationConfig.", "",
	".file.bytes", ".raw", ".file.fileWithBytes", ".raw", ".file.uri", ".url", ".file.fileWithUri", ".url",
	".file.mimeType", ".mediaType", ".file.name", ".filename", ".data.data", ".data",
	"authentication.schemes[0]", "authentication.scheme", "authentication.schemes", "authentication.scheme",
)

// upError gives an error the names of 1.0.
func upError(op string, e *rpcError) *rpcError {
	old := e.field()
	field := upFields.Replace(old)
	if strings.Contains(op, "TaskPush") && !strings.HasPrefix(op, "Create") {
		switch old {
		case "id":
			field = "taskId"
		case "pushNotificationConfigId":
			field = "id"
		}
	}
	if field == old {
		return e
	}
	up := *e
	up.Message = strings.Replace(e.Message, old, field, 1)
	up.Data = slices.Clone(e.Data)
	for i, d := range up.Data {
		if len(d.FieldViolations) > 0 {
			up.Data[i].FieldViolations = []fieldViolation{{field, up.Message}}
		}
	}
	return &up
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
	if raw, ok := p["data"].(json.RawMessage); ok {
		upData(p, raw)
	}
	if file, ok := p["file"].(map[string]any); ok {
		delete(p, "file")
		for name, v := range file {
			now := map[string]string{
				"bytes": "raw", "fileWithBytes": "raw", "uri": "url", "fileWithUri": "url", "mimeType": "mediaType", "name": "filename",
			}[name]
			p[now] = v
		}
	}
	delete(p, "kind")
}

func upData(p map[string]any, data json.RawMessage) {
	if p["kind"] == nil {
		data, _ = object(string(data))["data"].(json.RawMessage)
	}
	metadata, _ := p["metadata"].(json.RawMessage)
	var marks map[string]json.RawMessage
	if _ = json.Unmarshal(metadata, &marks); marks["data_part_compat"] != nil {
		var wrapped struct{ Value json.RawMessage }
		_ = json.Unmarshal(data, &wrapped)
		data = wrapped.Value
		delete(marks, "data_part_compat")
		if p["metadata"] = marks; len(marks) == 0 {
			delete(p, "metadata")
		}
	}
	p["data"] = data
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
