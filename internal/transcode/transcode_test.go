package transcode_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	v03 "github.com/a2aproject/a2a-go/a2apb"
	v1 "github.com/a2aproject/a2a-go/v2/a2apb/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
	"github.com/holdfast-hub/holdfast/internal/transcode"
)

const plenty = 1 << 20

// samples are messages of A2A with everything in them.
func samples(t testing.TB) []proto.Message {
	t.Helper()
	data, err := structpb.NewValue(map[string]any{
		"list": []any{nil, true, 1.5, -3.0, 1e21, 1e-9, "ü\x00\u2028", map[string]any{}, []any{}}, "": false,
	})
	if err != nil {
		t.Fatal(err)
	}
	object := data.GetStructValue()
	empty := ""
	n := int32(0)
	message := &v1.Message{
		MessageId: "m", ContextId: "c", TaskId: "t", Role: v1.Role_ROLE_USER, Metadata: object,
		Extensions: []string{"a", ""}, ReferenceTaskIds: []string{"r"},
		Parts: []*v1.Part{
			{Content: &v1.Part_Text{Text: empty}},
			{Content: &v1.Part_Raw{Raw: []byte{0, 255, 254}}, MediaType: "x/y", Filename: "f"},
			{Content: &v1.Part_Url{Url: "http://x"}, Metadata: object},
			{Content: &v1.Part_Data{Data: data}},
			{Content: &v1.Part_Data{Data: structpb.NewNullValue()}},
		},
	}
	task := &v1.Task{
		Id: "t", ContextId: "c", History: []*v1.Message{message}, Metadata: &structpb.Struct{},
		Status:    &v1.TaskStatus{State: v1.TaskState_TASK_STATE_COMPLETED, Message: message, Timestamp: &timestamppb.Timestamp{Seconds: 1, Nanos: 5}},
		Artifacts: []*v1.Artifact{{ArtifactId: "a", Name: "n", Parts: message.Parts}},
	}
	return []proto.Message{
		&v1.SendMessageRequest{Tenant: "x", Message: message, Metadata: object, Configuration: &v1.SendMessageConfiguration{HistoryLength: &n, ReturnImmediately: true}},
		&v1.ListTasksRequest{Status: 77, PageSize: &n, StatusTimestampAfter: &timestamppb.Timestamp{Seconds: -62135596800}},
		&v1.StreamResponse{Payload: &v1.StreamResponse_Task{Task: task}},
		&v1.StreamResponse{Payload: &v1.StreamResponse_ArtifactUpdate{ArtifactUpdate: &v1.TaskArtifactUpdateEvent{TaskId: "t", Append: true, Artifact: task.Artifacts[0]}}},
		&v1.ListTasksResponse{Tasks: []*v1.Task{task, {}}, PageSize: -1, TotalSize: math.MaxInt32},
		&v1.AgentCard{
			Name: "n", Capabilities: &v1.AgentCapabilities{Streaming: proto.Bool(false)},
			SecuritySchemes: map[string]*v1.SecurityScheme{"b": {Scheme: &v1.SecurityScheme_HttpAuthSecurityScheme{HttpAuthSecurityScheme: &v1.HTTPAuthSecurityScheme{Scheme: "Bearer"}}}},
			Skills:          []*v1.AgentSkill{{Id: "s", Tags: []string{"t"}}},
		},
		&v03.SendMessageRequest{Request: &v03.Message{MessageId: "m", Role: v03.Role_ROLE_USER, Parts: []*v03.Part{
			{Part: &v03.Part_Data{Data: &v03.DataPart{Data: object}}},
			{Part: &v03.Part_File{File: &v03.FilePart{File: &v03.FilePart_FileWithBytes{FileWithBytes: []byte("x")}, MimeType: "a/b"}}},
		}}},
		&v03.AgentCard{Security: []*v03.Security{{Schemes: map[string]*v03.StringList{"b": {}}}}},
	}
}

// TestLikeTheLibrary: the results are those of the protobuf library, both ways.
func TestLikeTheLibrary(t *testing.T) {
	for _, m := range samples(t) {
		of := m.ProtoReflect().Descriptor()
		wire, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		text, err := transcode.ToJSON(wire, of, plenty)
		if err != nil {
			t.Errorf("%s: %v", of.FullName(), err)
			continue
		}
		compare(t, m, text)
		back, err := transcode.FromJSON(nil, text, of)
		if err != nil {
			t.Errorf("%s: %v", of.FullName(), err)
			continue
		}
		got := m.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(back, got); err != nil || !proto.Equal(got, m) {
			t.Errorf("%s came back as another: %v\n%s", of.FullName(), err, text)
		}
	}
}

// compare holds JSON against that of the library.
func compare(t testing.TB, m proto.Message, text []byte) {
	t.Helper()
	want, err := protojson.Marshal(m)
	if err != nil {
		t.Fatalf("the library cannot say it: %v; here it is %s", err, text)
	}
	var a, b any
	if err := json.Unmarshal(text, &a); err != nil {
		t.Fatalf("no JSON: %v\n%s", err, text)
	}
	if err := json.Unmarshal(want, &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, a); diff != "" {
		t.Fatalf("not as the library has it: %s", diff)
	}
}

// FuzzToJSON: whatever the bytes are, the result is the library's or an error, and it
// comes back as a message that says the same.
func FuzzToJSON(f *testing.F) {
	types := map[byte]proto.Message{}
	for i, m := range samples(f) {
		wire, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		types[byte(i)] = m
		f.Add(byte(i), wire)
		f.Add(byte(i), append(wire, wire...)) // messages are merged
	}
	f.Fuzz(func(t *testing.T, which byte, wire []byte) {
		m := types[which%byte(len(types))].ProtoReflect().New().Interface()
		text, err := transcode.ToJSON(wire, m.ProtoReflect().Descriptor(), plenty)
		failed := proto.Unmarshal(wire, m)
		switch {
		case failed != nil:
			return // it reads strings that do not count in the end
		case errors.Is(err, transcode.ErrTooDeep) || errors.Is(err, transcode.ErrTooLarge):
			return
		case err != nil:
			if _, other := protojson.Marshal(m); other == nil {
				t.Fatalf("%v, but the library can", err)
			}
			return
		}
		if rawjson.Check(text, 400) != nil {
			return // a key that comes twice
		}
		compare(t, m, text)
		back, err := transcode.FromJSON(nil, text, m.ProtoReflect().Descriptor())
		again := m.ProtoReflect().New().Interface()
		if err == nil {
			err = proto.Unmarshal(back, again)
		}
		if err != nil {
			t.Fatalf("it does not come back: %v\n%s", err, text)
		}
		compare(t, again, text)
	})
}

// TestRefused: what JSON cannot say, and what is too much, is refused.
func TestRefused(t *testing.T) {
	value := (&structpb.Value{}).ProtoReflect().Descriptor()
	marshal := func(m proto.Message) []byte {
		t.Helper()
		wire, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return wire
	}
	deep := structpb.NewNullValue()
	for range 200 {
		deep = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{deep}})
	}
	for name, c := range map[string]struct {
		wire []byte
		of   protoreflect.MessageDescriptor
		want error
	}{
		"no kind":         {nil, value, nil},
		"not a number":    {marshal(structpb.NewNumberValue(math.NaN())), value, nil},
		"infinite":        {marshal(structpb.NewNumberValue(math.Inf(-1))), value, nil},
		"deep":            {marshal(deep), value, transcode.ErrTooDeep},
		"large":           {marshal(structpb.NewStringValue(strings.Repeat("\x01", 100))), value, transcode.ErrTooLarge},
		"not UTF-8":       {protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "\xff"), value, transcode.ErrMalformed},
		"cut short":       {marshal(structpb.NewStringValue("abc"))[:3], value, transcode.ErrMalformed},
		"year 10000":      {marshal(&timestamppb.Timestamp{Seconds: 253402300800}), (&timestamppb.Timestamp{}).ProtoReflect().Descriptor(), nil},
		"negative second": {marshal(&timestamppb.Timestamp{Nanos: -1}), (&timestamppb.Timestamp{}).ProtoReflect().Descriptor(), nil},
	} {
		text, err := transcode.ToJSON(c.wire, c.of, 500)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %.100s, %v", name, text, err)
		}
	}
}

// TestMergeIsNotQuadratic: a message that comes in very many pieces is put together in
// time that grows with its size alone.
func TestMergeIsNotQuadratic(t *testing.T) {
	piece := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), // message
		protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "id"))
	wire := []byte(strings.Repeat(string(piece), 1<<20))
	text, err := transcode.ToJSON(wire, (&v1.SendMessageRequest{}).ProtoReflect().Descriptor(), plenty)
	if err != nil || string(text) != `{"message":{"messageId":"id"}}` {
		t.Errorf("%.100s, %v", text, err)
	}
}

// TestDeepAndLarge: what is large comes through however deep it is nested, in time that
// grows with its size alone.
func TestDeepAndLarge(t *testing.T) {
	const levels = 60
	large := strings.Repeat("x", 8<<20)
	text := strings.Repeat(`{"a":[`, levels) + `"` + large + `"` + strings.Repeat(`]}`, levels)
	of := (&structpb.Value{}).ProtoReflect().Descriptor()
	wire, err := transcode.FromJSON(nil, []byte(text), of)
	if err != nil {
		t.Fatal(err)
	}
	var v structpb.Value
	if err := proto.Unmarshal(wire, &v); err != nil {
		t.Fatal(err)
	}
	if back, err := transcode.ToJSON(wire, of, len(text)); err != nil || string(back) != text {
		t.Errorf("came back as %d bytes of %d, %v", len(back), len(text), err)
	}
}

// TestNumbersBeyondDoubles: protobuf has only doubles, so a number comes as close as
// they do.
func TestNumbersBeyondDoubles(t *testing.T) {
	for text, want := range map[string]float64{
		"1e400": math.MaxFloat64, "-1e400": -math.MaxFloat64, "1e-400": 0, "9007199254740993": 9007199254740992,
	} {
		wire, err := transcode.FromJSON(nil, []byte(text), (&structpb.Value{}).ProtoReflect().Descriptor())
		if err != nil {
			t.Fatal(err)
		}
		var v structpb.Value
		if err := proto.Unmarshal(wire, &v); err != nil || v.GetNumberValue() != want {
			t.Errorf("%s: %v, %v", text, v.GetNumberValue(), err)
		}
	}
}

// TestEveryMessageIsSupported: A2A's messages are made of nothing else than what this
// package knows.
func TestEveryMessageIsSupported(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{v1.File_a2av1_proto, v03.File_a2a_proto} {
		for i := range file.Messages().Len() {
			of := file.Messages().Get(i)
			for j := range of.Fields().Len() {
				fd := of.Fields().Get(j)
				kind := fd.Kind()
				if fd.IsMap() {
					kind = fd.MapValue().Kind()
				}
				switch {
				case kind == protoreflect.StringKind || kind == protoreflect.MessageKind:
				case fd.IsList() || fd.IsMap():
					t.Errorf("%s is of %s", fd.FullName(), kind)
				case kind == protoreflect.BytesKind || kind == protoreflect.BoolKind || kind == protoreflect.Int32Kind || kind == protoreflect.EnumKind:
				default:
					t.Errorf("%s is a %s", fd.FullName(), kind)
				}
			}
		}
	}
}
