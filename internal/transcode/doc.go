// Package transcode turns protobuf messages into their ProtoJSON, and ProtoJSON into
// protobuf messages, directly from bytes to bytes. A message descriptor tells what the
// fields are.
//
// The protobuf library would do the same by way of Go values. It is not used, because
// those values take up to forty times the size of what came in: a list of eight
// million bytes becomes hundreds of megabytes, which any caller could have the hub
// allocate. Here nothing is built but the result. A test compares the results with the
// library's.
//
// It knows what A2A's messages are made of: strings, bytes, booleans, 32-bit integers,
// enums, messages, lists and maps with string keys of those, and the well-known types
// Struct, Value, ListValue, Timestamp and Empty.
package transcode

import (
	"errors"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// maxDepth bounds how deep messages may be nested. A level of JSON inside a Struct
// takes three levels of messages.
const maxDepth = 300

var (
	// ErrTooLarge says that the JSON would be larger than allowed.
	ErrTooLarge = errors.New("the message is too large as JSON")
	// ErrMalformed says that bytes are no message of their type.
	ErrMalformed = errors.New("these bytes are not a protobuf message of this type")
	// ErrTooDeep says that messages are nested too deeply.
	ErrTooDeep = errors.New("the message is nested too deeply")
	// errUnsupported says that a descriptor has something that this package does not
	// know, or that JSON is not of the type that the descriptor wants.
	errUnsupported = errors.New("not supported")
)

// The full names of the well-known types whose JSON is their own.
const (
	structName    protoreflect.FullName = "google.protobuf.Struct"
	valueName     protoreflect.FullName = "google.protobuf.Value"
	listName      protoreflect.FullName = "google.protobuf.ListValue"
	timestampName protoreflect.FullName = "google.protobuf.Timestamp"
	nullName      protoreflect.FullName = "google.protobuf.NullValue"
)

// wireType is how a single value of a kind is written; ok is false for kinds that are
// not supported.
func wireType(kind protoreflect.Kind) (typ protowire.Type, ok bool) {
	switch kind {
	case protoreflect.StringKind, protoreflect.BytesKind, protoreflect.MessageKind:
		return protowire.BytesType, true
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Int64Kind:
		return protowire.VarintType, true
	case protoreflect.DoubleKind:
		return protowire.Fixed64Type, true
	default:
		return 0, false
	}
}
