// Package canon turns messages, parts and artifacts between the JSON that clients
// write and the canonical A2A 1.0 JSON that the hub stores.
//
// Canonical means: members under their ProtoJSON camelCase names in one fixed
// order, enums by name, no members that hold their default, no insignificant white
// space, metadata and data included, and without taskId and contextId, which belong
// to the task and are put back when the message is shown. Numbers and strings keep
// their exact text; only base64 is brought to its standard alphabet and padding.
//
// The Parse functions, Object and Tags take JSON that passed rawjson.Check. What
// they refuse is a *hub.Error of kind Invalid with the path of the field at fault,
// in the spelling that the client used. The Append functions and Fold take
// canonical JSON only and do not check it again.
package canon

import (
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// Dialect is the JSON that a client writes. Both take every member under its
// camelCase and its snake_case name, as ProtoJSON parsers must, and roles by their
// protocol name or number. They ignore members that they do not know.
type Dialect uint8

// The dialects.
const (
	// Protocol is A2A 1.0 (ProtoJSON): ids and the role are required.
	Protocol Dialect = iota + 1
	// V1 is Holdfast's /v1: ids may be left out, roles are "user" and "agent" too,
	// and a message without a role is the user's.
	V1
	// V1Report is V1 for what callees report: a message without a role is the
	// agent's.
	V1Report
)

// Message is a message that was read.
type Message struct {
	// ID is the messageId; empty only in the V1 dialects, where the caller then
	// calls SetID.
	ID string
	// ContextID and TaskID are what the message says it belongs to, or empty.
	ContextID, TaskID string
	// FromAgent tells the role: ROLE_AGENT rather than ROLE_USER.
	FromAgent bool
	// Body is the canonical JSON.
	Body []byte
}

// SetID gives an id to a message that came without one.
func (m *Message) SetID(id string) {
	if m.ID == "" {
		m.ID, m.Body = id, withID(m.Body, "messageId", id)
	}
}

// Artifact is an artifact, or a chunk of one, that was read.
type Artifact struct {
	// ID is the artifactId; empty only in the V1 dialects, where the caller then
	// calls SetID.
	ID string
	// Name is the artifact's name, or empty.
	Name string
	// Body is the canonical JSON.
	Body []byte
}

// SetID gives an id to an artifact that came without one.
func (a *Artifact) SetID(id string) {
	if a.ID == "" {
		a.ID, a.Body = id, withID(a.Body, "artifactId", id)
	}
}

// withID puts an id in front of the members of body, which has some.
func withID(body []byte, name, id string) []byte {
	dst := make([]byte, 0, len(body)+len(name)+len(id)+8)
	dst = appendKey(append(dst, '{'), name)
	dst = rawjson.AppendText(dst, id)
	dst = append(dst, ',')
	return append(dst, body[1:]...)
}

// ParseMessage reads a message (A2A section 4.1.4). path is the message's own, such
// as "params.message"; it starts the paths of errors.
func ParseMessage(raw []byte, path string, d Dialect) (Message, error) {
	m, err := d.message(raw)
	if err != nil {
		return Message{}, under(path, err)
	}
	return m, nil
}

// ParseArtifact reads an artifact (A2A section 4.1.7). path is the artifact's own.
func ParseArtifact(raw []byte, path string, d Dialect) (Artifact, error) {
	a, err := d.artifact(raw)
	if err != nil {
		return Artifact{}, under(path, err)
	}
	return a, nil
}

// TextMessage is the canonical message with a single text part: the hub's own words.
func TextMessage(id string, fromAgent bool, text string) []byte {
	role := roleUser
	if fromAgent {
		role = roleAgent
	}
	dst := make([]byte, 0, len(id)+len(text)+80)
	dst = append(dst, `{"messageId":`...)
	dst = rawjson.AppendText(dst, id)
	dst = append(dst, `,"role":`...)
	dst = append(dst, role...)
	dst = append(dst, `,"parts":[{"text":`...)
	dst = rawjson.AppendText(dst, text)
	return append(dst, `}]}`...)
}

// Object reads metadata: a JSON object, compacted, or nil when raw is null or
// empty. path starts the path of the error.
func Object(raw []byte, path string) ([]byte, error) {
	if absent(raw) {
		return nil, nil
	}
	dst, err := appendObject(make([]byte, 0, len(raw)), raw)
	if err != nil {
		return nil, under(path, err)
	}
	return dst, nil
}

// The limits of tags.
const (
	maxTags     = 64
	maxTagName  = 64  // bytes
	maxTagValue = 256 // bytes
)

// Tags reads an object of strings: at most 64, names of up to 64 bytes, values of up
// to 256. It gives canonical JSON, or nil when there are none. path starts the paths
// of errors.
func Tags(raw []byte, path string) ([]byte, error) {
	if absent(raw) {
		return nil, nil
	}
	dst := append(make([]byte, 0, len(raw)), '{')
	n := 0
	err := eachMember(raw, func(name string, value []byte) error {
		if absent(value) {
			return nil
		}
		if n++; n > maxTags {
			return hub.InvalidField("", "has more than %d tags; send fewer", maxTags)
		}
		if name == "" || len(name) > maxTagName {
			return hub.InvalidField("", "has a tag name of %d bytes; a name has 1 to %d", len(name), maxTagName)
		}
		dst = rawjson.AppendText(comma(dst), name)
		dst = append(dst, ':')
		var err error
		dst, err = appendShort(dst, value, maxTagValue)
		return under(memberName(name), err)
	})
	if err != nil {
		return nil, under(path, err)
	}
	if n == 0 {
		return nil, nil
	}
	return append(dst, '}'), nil
}
