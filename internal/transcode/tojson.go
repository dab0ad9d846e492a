package transcode

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// ToJSON turns a message into its ProtoJSON, compact and of at most max bytes. Fields
// that the descriptor does not know are left out. A map whose key comes twice gives an
// object in which it comes twice, for rawjson.Check to refuse.
//
// The error is ErrMalformed, ErrTooLarge, ErrTooDeep, or one that says what JSON has no
// words for, such as a number that is none.
func ToJSON(message []byte, of protoreflect.MessageDescriptor, max int) ([]byte, error) {
	e := encoder{max: max}
	dst, err := e.message(make([]byte, 0, min(len(message)+len(message)/2+64, max+1)), message, of, maxDepth)
	if err == nil && len(dst) > max {
		err = ErrTooLarge
	}
	return dst, err
}

type encoder struct{ max int }

// field is what the wire has for a singular field: the bytes of a string or message,
// or the encoded number.
type field struct {
	value []byte
	set   bool
}

// message appends a message as JSON.
func (e *encoder) message(dst, wire []byte, of protoreflect.MessageDescriptor, depth int) ([]byte, error) {
	if depth == 0 {
		return dst, ErrTooDeep
	}
	if len(dst) > e.max {
		return dst, ErrTooLarge
	}
	var few [20]field // without an allocation
	fields := few[:]
	if n := of.Fields().Len(); n <= len(few) {
		fields = fields[:n]
	} else {
		fields = make([]field, n)
	}
	if err := collect(wire, of, fields); err != nil {
		return dst, err
	}
	switch of.FullName() {
	case structName:
		return e.members(dst, wire, of.Fields().ByName("fields"), depth)
	case listName:
		return e.elements(dst, wire, of.Fields().ByName("values"), depth)
	case valueName:
		return e.value(dst, of, fields, depth)
	case timestampName:
		return appendTimestamp(dst, of, fields)
	}
	dst = append(dst, '{')
	start := len(dst)
	for i, f := range fields {
		fd := of.Fields().Get(i)
		if !f.set || isDefault(fd, f.value) {
			continue
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), fd.JSONName()...), `":`...)
		var err error
		switch {
		case fd.IsMap():
			dst, err = e.members(dst, wire, fd, depth)
		case fd.IsList():
			dst, err = e.elements(dst, wire, fd, depth)
		default:
			dst, err = e.single(dst, f.value, fd, depth)
		}
		if err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

// isDefault reports whether the value of a field is the one that it also has when it is
// absent, so that ProtoJSON leaves it out.
func isDefault(fd protoreflect.FieldDescriptor, value []byte) bool {
	if fd.HasPresence() || fd.Cardinality() == protoreflect.Repeated {
		return false
	}
	if typ, _ := wireType(fd.Kind()); typ == protowire.VarintType {
		n, _ := protowire.ConsumeVarint(value)
		return n == 0
	}
	return len(value) == 0
}

// each calls f for every field of a message that is of a number and type that the
// descriptor knows, in the order of the wire.
func each(wire []byte, of protoreflect.MessageDescriptor, f func(fd protoreflect.FieldDescriptor, value []byte) error) error {
	for len(wire) > 0 {
		num, typ, n := protowire.ConsumeTag(wire)
		if n < 0 {
			return ErrMalformed
		}
		m := protowire.ConsumeFieldValue(num, typ, wire[n:])
		if m < 0 {
			return ErrMalformed
		}
		value := wire[n : n+m]
		wire = wire[n+m:]
		fd := of.Fields().ByNumber(num)
		if fd == nil {
			continue
		}
		want, ok := wireType(fd.Kind())
		if !ok || fd.IsList() && want != protowire.BytesType {
			return fmt.Errorf("%w: the kind of %s", errUnsupported, fd.FullName())
		}
		if typ != want {
			continue // for protobuf, an unknown field
		}
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if err := f(fd, value); err != nil {
			return err
		}
	}
	return nil
}

// collect finds the fields of a message: of a scalar that comes twice the last one
// counts, of messages both together, and of a oneof the last of its members.
func collect(wire []byte, of protoreflect.MessageDescriptor, fields []field) error {
	return each(wire, of, func(fd protoreflect.FieldDescriptor, value []byte) error {
		f := &fields[fd.Index()]
		if oneof := fd.ContainingOneof(); oneof != nil && !f.set {
			for i := range oneof.Fields().Len() {
				fields[oneof.Fields().Get(i).Index()] = field{}
			}
		}
		if f.set && fd.Kind() == protoreflect.MessageKind && fd.Cardinality() != protoreflect.Repeated {
			f.value = append(f.value, value...)
			return nil
		}
		*f = field{value: value[:len(value):len(value)], set: true} // to append to it copies it
		return nil
	})
}

// elements appends a repeated field as an array.
func (e *encoder) elements(dst, wire []byte, list protoreflect.FieldDescriptor, depth int) ([]byte, error) {
	dst = append(dst, '[')
	start := len(dst)
	err := each(wire, list.ContainingMessage(), func(fd protoreflect.FieldDescriptor, value []byte) (err error) {
		if fd.Number() != list.Number() {
			return nil
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst, err = e.single(dst, value, fd, depth)
		return err
	})
	return append(dst, ']'), err
}

// members appends a map as an object.
func (e *encoder) members(dst, wire []byte, of protoreflect.FieldDescriptor, depth int) ([]byte, error) {
	if of.MapKey().Kind() != protoreflect.StringKind {
		return dst, fmt.Errorf("%w: the keys of %s", errUnsupported, of.FullName())
	}
	dst = append(dst, '{')
	start := len(dst)
	err := each(wire, of.ContainingMessage(), func(fd protoreflect.FieldDescriptor, entry []byte) (err error) {
		if fd.Number() != of.Number() {
			return nil
		}
		var member [2]field // its key and value
		if err := collect(entry, fd.Message(), member[:]); err != nil {
			return err
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		if dst, err = e.single(dst, member[0].value, fd.MapKey(), depth); err != nil {
			return err
		}
		dst, err = e.single(append(dst, ':'), member[1].value, fd.MapValue(), depth)
		return err
	})
	return append(dst, '}'), err
}

// value appends a google.protobuf.Value, which is one of its fields.
func (e *encoder) value(dst []byte, of protoreflect.MessageDescriptor, fields []field, depth int) ([]byte, error) {
	for i, f := range fields {
		if f.set {
			return e.single(dst, f.value, of.Fields().Get(i), depth)
		}
	}
	return dst, fmt.Errorf("a google.protobuf.Value has no kind; for null set null_value")
}

// single appends one value.
func (e *encoder) single(dst, value []byte, fd protoreflect.FieldDescriptor, depth int) ([]byte, error) {
	if len(dst) > e.max {
		return dst, ErrTooLarge
	}
	n, _ := protowire.ConsumeVarint(value)
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return e.message(dst, value, fd.Message(), depth-1)
	case protoreflect.StringKind:
		if !utf8.Valid(value) {
			return dst, ErrMalformed
		}
		return rawjson.AppendText(dst, string(value)), nil
	case protoreflect.BytesKind:
		dst = append(dst, '"')
		return append(base64.StdEncoding.AppendEncode(dst, value), '"'), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(dst, n != 0), nil
	case protoreflect.Int32Kind:
		return strconv.AppendInt(dst, int64(int32(n)), 10), nil
	case protoreflect.EnumKind:
		return appendEnum(dst, int32(n), fd.Enum()), nil
	case protoreflect.DoubleKind:
		bits, _ := protowire.ConsumeFixed64(value)
		return appendNumber(dst, math.Float64frombits(bits))
	default:
		return dst, fmt.Errorf("%w: the kind of %s", errUnsupported, fd.FullName())
	}
}

// appendEnum appends the name of an enum's value, or the number of one that has none.
func appendEnum(dst []byte, n int32, of protoreflect.EnumDescriptor) []byte {
	if of.FullName() == nullName {
		return append(dst, "null"...)
	}
	if v := of.Values().ByNumber(protoreflect.EnumNumber(n)); v != nil {
		return append(append(append(dst, '"'), v.Name()...), '"')
	}
	return strconv.AppendInt(dst, int64(n), 10)
}

// appendNumber appends a number as JSON writes it: whole ones without an exponent, as
// long as that is not absurd.
func appendNumber(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, fmt.Errorf("a google.protobuf.Value is a number that JSON has not got: %v", f)
	}
	if size := math.Abs(f); size != 0 && (size < 1e-6 || size >= 1e21) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64), nil
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64), nil
}

// appendTimestamp appends a google.protobuf.Timestamp.
func appendTimestamp(dst []byte, of protoreflect.MessageDescriptor, fields []field) ([]byte, error) {
	seconds, _ := protowire.ConsumeVarint(fields[of.Fields().ByName("seconds").Index()].value)
	nanos, _ := protowire.ConsumeVarint(fields[of.Fields().ByName("nanos").Index()].value)
	const first, last = -62135596800, 253402300799 // the years 1 to 9999
	s, ns := int64(seconds), int32(nanos)
	if s < first || s > last || ns < 0 || ns > 999_999_999 {
		return dst, fmt.Errorf("a google.protobuf.Timestamp is not between the years 1 and 9999")
	}
	dst = append(dst, '"')
	return append(time.Unix(s, int64(ns)).UTC().AppendFormat(dst, time.RFC3339Nano), '"'), nil
}
