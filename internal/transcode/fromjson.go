package transcode

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// FromJSON appends the message that ProtoJSON says. The JSON must have passed
// rawjson.Check. Members that the descriptor does not know are left out. A number in a
// Struct becomes the nearest double: that is all that protobuf has for it.
func FromJSON(dst, json []byte, of protoreflect.MessageDescriptor) ([]byte, error) {
	return appendMessage(dst, json, of, maxDepth)
}

func appendMessage(dst, json []byte, of protoreflect.MessageDescriptor, depth int) ([]byte, error) {
	if depth == 0 {
		return dst, ErrTooDeep
	}
	switch of.FullName() {
	case structName:
		return appendMap(dst, json, of.Fields().ByName("fields"), depth)
	case listName:
		return appendList(dst, json, of.Fields().ByName("values"), depth)
	case valueName:
		return appendValue(dst, json, of.Fields(), depth)
	case timestampName:
		return appendTime(dst, json)
	}
	if rawjson.KindOf(json) != rawjson.Object {
		return dst, mismatch(json, string(of.FullName()))
	}
	err := rawjson.Members(json, func(name string, value []byte) (err error) {
		fd := of.Fields().ByJSONName(name)
		if fd == nil || rawjson.KindOf(value) == rawjson.Null && !isValue(fd) {
			return nil
		}
		switch {
		case fd.IsMap():
			dst, err = appendMap(dst, value, fd, depth)
		case fd.IsList():
			dst, err = appendList(dst, value, fd, depth)
		default:
			dst, err = appendField(dst, value, fd, depth)
		}
		return err
	})
	return dst, err
}

// isValue reports whether a field is a single google.protobuf.Value, which null is a
// value of.
func isValue(fd protoreflect.FieldDescriptor) bool {
	return fd.Kind() == protoreflect.MessageKind && fd.Message().FullName() == valueName && !fd.IsList()
}

func mismatch(json []byte, want string) error {
	return fmt.Errorf("%w: found %s where there should be a %s", errUnsupported, rawjson.KindOf(json), want)
}

func appendList(dst, json []byte, list protoreflect.FieldDescriptor, depth int) ([]byte, error) {
	if rawjson.KindOf(json) != rawjson.Array {
		return dst, mismatch(json, "list of "+string(list.FullName()))
	}
	err := rawjson.Elements(json, func(_ int, value []byte) (err error) {
		dst, err = appendField(dst, value, list, depth)
		return err
	})
	return dst, err
}

func appendMap(dst, json []byte, of protoreflect.FieldDescriptor, depth int) ([]byte, error) {
	if rawjson.KindOf(json) != rawjson.Object {
		return dst, mismatch(json, "map of "+string(of.FullName()))
	}
	err := rawjson.Members(json, func(name string, value []byte) (err error) {
		dst = protowire.AppendTag(dst, of.Number(), protowire.BytesType)
		dst, err = appendNested(dst, len(name)+len(value), func(dst []byte) ([]byte, error) {
			dst = protowire.AppendTag(dst, of.MapKey().Number(), protowire.BytesType)
			dst = protowire.AppendString(dst, name)
			return appendField(dst, value, of.MapValue(), depth)
		})
		return err
	})
	return dst, err
}

const (
	// wideFrom is from what size of its JSON on a nested message gets a wide length.
	wideFrom = 1 << 10
	// wide is how many bytes that has.
	wide = 5
)

// appendNested appends what write does, behind its length, which is known only then. To
// make room for it, what is small is moved. What is large could be moved once for every
// level around it: its length has the same room always, as varints may have zeros at
// their end.
func appendNested(dst []byte, json int, write func([]byte) ([]byte, error)) ([]byte, error) {
	var room [wide]byte
	if json < wideFrom {
		start := len(dst)
		dst, err := write(dst)
		size := len(dst) - start
		n := protowire.SizeVarint(uint64(size))
		dst = append(dst, room[:n]...)
		copy(dst[start+n:], dst[start:start+size])
		protowire.AppendVarint(dst[:start], uint64(size))
		return dst, err
	}
	dst = append(dst, room[:]...)
	start := len(dst)
	dst, err := write(dst)
	size := len(dst) - start
	for i := range wide {
		dst[start-wide+i] = byte(size>>(7*i)) | 0x80
	}
	dst[start-1] &= 0x7f
	return dst, err
}

// appendValue appends a google.protobuf.Value.
func appendValue(dst, json []byte, fields protoreflect.FieldDescriptors, depth int) ([]byte, error) {
	name := protoreflect.Name("null_value")
	switch rawjson.KindOf(json) {
	case rawjson.Object:
		name = "struct_value"
	case rawjson.Array:
		name = "list_value"
	case rawjson.String:
		name = "string_value"
	case rawjson.Number:
		name = "number_value"
	case rawjson.Bool:
		name = "bool_value"
	}
	return appendField(dst, json, fields.ByName(name), depth)
}

// appendField appends one value, with the field's tag.
func appendField(dst, json []byte, fd protoreflect.FieldDescriptor, depth int) ([]byte, error) {
	typ, ok := wireType(fd.Kind())
	if !ok {
		return dst, fmt.Errorf("%w: the kind of %s", errUnsupported, fd.FullName())
	}
	dst = protowire.AppendTag(dst, fd.Number(), typ)
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return appendNested(dst, len(json), func(dst []byte) ([]byte, error) {
			return appendMessage(dst, json, fd.Message(), depth-1)
		})
	case protoreflect.StringKind:
		s, err := rawjson.Text(json)
		return protowire.AppendString(dst, s), err
	case protoreflect.BytesKind:
		s, err := rawjson.Text(json)
		if err != nil {
			return dst, err
		}
		b, err := base64.StdEncoding.DecodeString(s)
		return protowire.AppendBytes(dst, b), err
	case protoreflect.BoolKind:
		b, err := rawjson.Boolean(json)
		return protowire.AppendVarint(dst, protowire.EncodeBool(b)), err
	case protoreflect.EnumKind:
		n, err := enumNumber(json, fd.Enum())
		return protowire.AppendVarint(dst, uint64(n)), err
	case protoreflect.DoubleKind:
		return protowire.AppendFixed64(dst, math.Float64bits(double(json))), nil
	default: // integers
		n, err := rawjson.Integer(json)
		if err == nil && n != int64(int32(n)) {
			err = mismatch(json, "32-bit integer")
		}
		return protowire.AppendVarint(dst, uint64(n)), err
	}
}

func enumNumber(json []byte, of protoreflect.EnumDescriptor) (int64, error) {
	switch rawjson.KindOf(json) {
	case rawjson.Null:
		return 0, nil // google.protobuf.NullValue
	case rawjson.Number:
		return rawjson.Integer(json)
	}
	name, err := rawjson.Text(json)
	if err != nil {
		return 0, err
	}
	v := of.Values().ByName(protoreflect.Name(name))
	if v == nil {
		return 0, fmt.Errorf("%w: %s has no value %.100q", errUnsupported, of.FullName(), name)
	}
	return int64(v.Number()), nil
}

// double is the double that comes closest to a number.
func double(json []byte) float64 {
	f, _ := strconv.ParseFloat(string(json), 64) // out of range, it is infinite or 0
	return max(-math.MaxFloat64, min(math.MaxFloat64, f))
}

// appendTime appends the fields of a google.protobuf.Timestamp.
func appendTime(dst, json []byte) ([]byte, error) {
	s, err := rawjson.Text(json)
	if err != nil {
		return dst, err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return dst, err
	}
	dst = protowire.AppendTag(dst, 1, protowire.VarintType)
	dst = protowire.AppendVarint(dst, uint64(t.Unix()))
	dst = protowire.AppendTag(dst, 2, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(t.Nanosecond())), nil
}
