package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/holdfast-hub/holdfast/wire"
)

// The types of the API, which live in the package wire, under the names of this
// package, so that most programs need to import only one.
type (
	// Message is one message of a task.
	Message = wire.Message
	// Part is a piece of content: a text, data, a file or a URL.
	Part = wire.Part
	// Artifact is an output of a task.
	Artifact = wire.Artifact
	// Status is the state of a task, since when, and the message that came with it.
	Status = wire.Status
	// Result is what a callee reports: a state, with artifacts, a message or an error.
	Result = wire.Result
	// Agent is an address.
	Agent = wire.Agent
	// AgentRequest creates or changes an address.
	AgentRequest = wire.AgentRequest
	// EndpointRequest says where the hub delivers the tasks of an address.
	EndpointRequest = wire.EndpointRequest
	// Attempt is one try of the hub to bring a task to its agent.
	Attempt = wire.Attempt
	// EndpointAuth is the credential that the hub presents there.
	EndpointAuth = wire.EndpointAuth
	// Token is a credential.
	Token = wire.Token
	// TokenRequest asks for a credential.
	TokenRequest = wire.TokenRequest
	// Whoami says who a token acts as.
	Whoami = wire.Whoami
	// Info is the state of the hub.
	Info = wire.Info
	// Activity is one line of the hub-wide feed.
	Activity = wire.Activity
	// Push is where the events of a task are sent, and how far that has come.
	Push = wire.Push
	// PushRequest has the events of a task sent somewhere.
	PushRequest = wire.PushRequest
	// PushAuth is the credential that the hub presents there.
	PushAuth = wire.PushAuth
	// PushFailure is a notification that was given up.
	PushFailure = wire.PushFailure
)

// The states of a task.
const (
	StateSubmitted     = "submitted"
	StateWorking       = "working"
	StateCompleted     = "completed"
	StateFailed        = "failed"
	StateCanceled      = "canceled"
	StateRejected      = "rejected"
	StateInputRequired = "input_required"
	StateAuthRequired  = "auth_required"
)

// Ended reports whether nothing can follow a state: completed, failed, canceled or
// rejected.
func Ended(state string) bool {
	switch state {
	case StateCompleted, StateFailed, StateCanceled, StateRejected:
		return true
	}
	return false
}

// Settled reports whether a task in a state has ended or waits for its caller.
func Settled(state string) bool {
	return Ended(state) || state == StateInputRequired || state == StateAuthRequired
}

// Text makes a part that is a text.
func Text(s string) Part { return Part{Text: &s} }

// Data makes a part that is data: v as JSON. A json.RawMessage is taken as it is.
func Data(v any) (Part, error) {
	b, err := marshal(v)
	if err != nil {
		return Part{}, fmt.Errorf("data cannot be encoded as JSON: %w", err)
	}
	return Part{Data: b}, nil
}

// File makes a part that is a file: its name (or empty), media type and content.
func File(name, mediaType string, content []byte) Part {
	raw := base64.StdEncoding.EncodeToString(content)
	return Part{Raw: &raw, Filename: name, MediaType: mediaType}
}

// Link makes a part that is content elsewhere.
func Link(url, mediaType string) Part { return Part{URL: &url, MediaType: mediaType} }

// PartText is the texts of parts, joined by newlines.
func PartText(parts []Part) string {
	var texts []string
	for _, p := range parts {
		if p.Text != nil {
			texts = append(texts, *p.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// partData merges the data parts that are objects; of members with one name the
// last counts. Numbers stay exact, as json.Number.
func partData(parts []Part) map[string]any {
	merged := map[string]any{}
	for _, p := range parts {
		d := json.NewDecoder(bytes.NewReader(p.Data))
		d.UseNumber()
		var obj map[string]any
		if len(p.Data) == 0 || d.Decode(&obj) != nil {
			continue
		}
		for k, v := range obj {
			merged[k] = v
		}
	}
	return merged
}

// decodeParts reads the data parts into v: a single one as it is, several merged.
// A text alone is taken as JSON if it is, or as itself into a *string.
func decodeParts(parts []Part, v any) error {
	var data []json.RawMessage
	for _, p := range parts {
		if len(p.Data) > 0 {
			data = append(data, p.Data)
		}
	}
	switch len(data) {
	case 0:
		return decodeText(PartText(parts), v)
	case 1:
		return json.Unmarshal(data[0], v)
	}
	merged, err := marshal(partData(parts))
	if err != nil {
		return err
	}
	return json.Unmarshal(merged, v)
}

func decodeText(text string, v any) error {
	if s, ok := v.(*string); ok {
		*s = text
		return nil
	}
	if text == "" {
		return errors.New("there is no data part to decode")
	}
	if err := json.Unmarshal([]byte(text), v); err != nil {
		return fmt.Errorf("there is no data part, and the text is no JSON: %w", err)
	}
	return nil
}

// partsOf turns what a program hands over into parts: a string into a text, parts
// into themselves, bytes into a file, and anything else into data.
func partsOf(v any) ([]Part, error) {
	switch v := v.(type) {
	case string:
		return []Part{Text(v)}, nil
	case Part:
		return []Part{v}, nil
	case []Part:
		return v, nil
	case []byte:
		return []Part{File("", "application/octet-stream", v)}, nil
	}
	p, err := Data(v)
	if err != nil {
		return nil, err
	}
	return []Part{p}, nil
}

// messageOf turns what a program hands over into a message of a role. A Message
// keeps what it has.
func messageOf(v any, role string) (Message, error) {
	var m Message
	switch v := v.(type) {
	case Message:
		m = v
	case *Message:
		if v == nil {
			return Message{}, errors.New("the message is nil")
		}
		m = *v
	default:
		if isNil(v) {
			return Message{}, errors.New("the message is nil")
		}
		parts, err := partsOf(v)
		if err != nil {
			return Message{}, err
		}
		m.Parts = parts
	}
	if len(m.Parts) == 0 {
		return Message{}, errors.New("the message has no parts")
	}
	if m.Role == "" {
		m.Role = role
	}
	return m, nil
}

// isNil reports whether v is nil or holds a nil pointer, map, slice or interface.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return rv.IsNil()
	default:
		return false
	}
}
