package a2a

import (
	"strings"

	pbv03 "github.com/a2aproject/a2a-go/a2apb"
	pbv1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	pb "google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// The services of gRPC, of 1.0 and of 0.3, by the names that their paths begin with.
const (
	ServiceV1  = "lf.a2a.v1.A2AService"
	ServiceV03 = "a2a.v1.A2AService"
)

// grpcMethod is a method of a gRPC service.
type grpcMethod struct {
	operation string // that it is, by its name in JSON-RPC
	in, out   protoreflect.MessageDescriptor
	// rewrite turns its request, as ProtoJSON, into the parameters of the operation; nil
	// if they are the same.
	rewrite func([]byte) ([]byte, error)
}

// methodsV1 are the methods of 1.0, which are called like the operations.
func methodsV1() map[string]grpcMethod {
	service := pbv1.File_a2av1_proto.Services().ByName("A2AService")
	methods := make(map[string]grpcMethod)
	for i := range service.Methods().Len() {
		m := service.Methods().Get(i)
		methods[string(m.Name())] = grpcMethod{operation: string(m.Name()), in: m.Input(), out: m.Output()}
	}
	return methods
}

// methodsV03 are the methods of 0.3 (section 3.2.2 there).
func methodsV03() map[string]grpcMethod {
	service := fileV03().Services().ByName("A2AService")
	methods := make(map[string]grpcMethod)
	add := func(name, operation string, rewrite func([]byte) ([]byte, error)) {
		m := service.Methods().ByName(protoreflect.Name(name))
		methods[name] = grpcMethod{operation: operation, in: m.Input(), out: m.Output(), rewrite: rewrite}
	}
	add("SendMessage", "message/send", nil)
	add("SendStreamingMessage", "message/stream", nil)
	add("GetTask", "tasks/get", taskByName)
	add("CancelTask", "tasks/cancel", taskByName)
	add("TaskSubscription", "tasks/resubscribe", taskByName)
	add("CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set", nil)
	add("GetTaskPushNotificationConfig", "tasks/pushNotificationConfig/get", nil)
	add("ListTaskPushNotificationConfig", "tasks/pushNotificationConfig/list", nil)
	add("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete", nil)
	add("GetAgentCard", methodExtendedCardV03, nil)
	return methods
}

// fileV03 is the .proto file of 0.3 as the specification has it: in the Go SDK's
// edition, the JSON name of what a message says is another one.
func fileV03() protoreflect.FileDescriptor {
	file := protodesc.ToFileDescriptorProto(pbv03.File_a2a_proto)
	for _, m := range file.GetMessageType() {
		for _, f := range m.GetField() {
			if m.GetName() == "Message" && f.GetNumber() == 5 {
				f.Name, f.JsonName = pb.String("content"), pb.String("content")
			}
		}
	}
	renamed, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
	if err != nil { // nothing but a name is new
		return pbv03.File_a2a_proto
	}
	return renamed
}

// taskByName gives the parameters an id, in place of the name of a resource that 0.3
// has for a task: tasks/{id}.
func taskByName(params []byte) ([]byte, error) {
	var raw []byte
	if err := pick(params, "", field{"name", &raw}); err != nil || raw == nil {
		return params, err
	}
	name, err := text(raw, "name")
	id := rawjson.AppendText([]byte(`{"id":`), strings.TrimPrefix(name, "tasks/"))
	return appendMembers(id, params), err
}
