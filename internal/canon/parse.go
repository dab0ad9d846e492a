package canon

import (
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// field is a member of a message, part or artifact.
type field struct {
	name  string // in ProtoJSON
	snake string // in the .proto file and in /v1
	kind  kind
}

// The members of a message in their canonical order. The last two are read and not
// written.
const (
	messageID = iota
	messageRole
	messageParts
	messageMetadata
	messageExtensions
	messageReferences
	messageContext
	messageTask
	messageMembers
)

var messageFields = [messageMembers]field{
	messageID:         {"messageId", "message_id", kindID},
	messageRole:       {"role", "role", kindRole},
	messageParts:      {"parts", "parts", kindParts},
	messageMetadata:   {"metadata", "metadata", kindObject},
	messageExtensions: {"extensions", "extensions", kindURIs},
	messageReferences: {"referenceTaskIds", "reference_task_ids", kindIDs},
	messageContext:    {"contextId", "context_id", kindID},
	messageTask:       {"taskId", "task_id", kindID},
}

// The members of a part in their canonical order; the first four are its content.
const (
	partText = iota
	partRaw
	partURL
	partData
	partMediaType
	partFilename
	partMetadata
	partMembers

	contents = partData + 1
)

var partFields = [partMembers]field{
	partText:      {"text", "text", kindText},
	partRaw:       {"raw", "raw", kindBase64},
	partURL:       {"url", "url", kindURL},
	partData:      {"data", "data", kindAny},
	partMediaType: {"mediaType", "media_type", kindName},
	partFilename:  {"filename", "filename", kindName},
	partMetadata:  {"metadata", "metadata", kindObject},
}

// The members of an artifact in their canonical order.
const (
	artifactID = iota
	artifactName
	artifactDescription
	artifactParts
	artifactMetadata
	artifactExtensions
	artifactMembers
)

var artifactFields = [artifactMembers]field{
	artifactID:          {"artifactId", "artifact_id", kindID},
	artifactName:        {"name", "name", kindName},
	artifactDescription: {"description", "description", kindNote},
	artifactParts:       {"parts", "parts", kindParts},
	artifactMetadata:    {"metadata", "metadata", kindObject},
	artifactExtensions:  {"extensions", "extensions", kindURIs},
}

// member is a member as the client wrote it; raw is nil if it is absent.
type member struct {
	name string // its spelling, for paths
	raw  []byte
}

// collect sorts the members of the object raw into got, which has one place for
// each field. Null is the same as absent, and unknown members are dropped.
func collect(raw []byte, fields []field, got []member) error {
	return eachMember(raw, func(name string, value []byte) error {
		i, spelling := find(fields, name)
		if i < 0 || absent(value) {
			return nil
		}
		if got[i].raw != nil {
			return hub.InvalidField(spelling, "is given twice, as %s too; send one of them", got[i].name)
		}
		got[i] = member{name: spelling, raw: value}
		return nil
	})
}

// find looks a member's name up. It gives the table's copy of the name, because the
// name itself does not outlive the reading of its object.
func find(fields []field, name string) (i int, spelling string) {
	for i := range fields {
		switch name {
		case fields[i].name:
			return i, fields[i].name
		case fields[i].snake:
			return i, fields[i].snake
		}
	}
	return -1, ""
}

// spelling is how the dialect writes the name of a field.
func (d Dialect) spelling(f field) string {
	if d == Protocol {
		return f.name
	}
	return f.snake
}

// require refuses an absent member.
func (d Dialect) require(f field, m member) error {
	if m.raw == nil {
		return hub.InvalidField(d.spelling(f), "is required")
	}
	return nil
}

func (d Dialect) message(raw []byte) (Message, error) {
	var got [messageMembers]member
	if err := collect(raw, messageFields[:], got[:]); err != nil {
		return Message{}, err
	}
	if d != Protocol && got[messageRole].raw == nil {
		got[messageRole] = member{"role", d.defaultRole()}
	}
	for _, i := range []int{messageRole, messageParts} {
		if err := d.require(messageFields[i], got[i]); err != nil {
			return Message{}, err
		}
	}
	var m Message
	var err error
	if m.Body, err = d.appendMembers(buffer(raw), messageFields[:messageContext], got[:messageContext]); err != nil {
		return Message{}, err
	}
	m.FromAgent = d.role(got[messageRole].raw) == roleAgent
	if m.ID, err = d.id(messageFields[messageID], got[messageID]); err != nil {
		return Message{}, err
	}
	if m.ContextID, err = optionalID(got[messageContext]); err != nil {
		return Message{}, err
	}
	m.TaskID, err = optionalID(got[messageTask])
	return m, err
}

func (d Dialect) artifact(raw []byte) (Artifact, error) {
	var got [artifactMembers]member
	if err := collect(raw, artifactFields[:], got[:]); err != nil {
		return Artifact{}, err
	}
	if err := d.require(artifactFields[artifactParts], got[artifactParts]); err != nil {
		return Artifact{}, err
	}
	var a Artifact
	var err error
	if a.Body, err = d.appendMembers(buffer(raw), artifactFields[:], got[:]); err != nil {
		return Artifact{}, err
	}
	if name := got[artifactName].raw; name != nil {
		a.Name = string(textOf(name))
	}
	a.ID, err = d.id(artifactFields[artifactID], got[artifactID])
	return a, err
}

// buffer is where the canonical form of raw goes: a little more than raw, for roles
// and padding.
func buffer(raw []byte) []byte { return make([]byte, 0, len(raw)+32) }

// id is the text of an object's own id. In the protocol it is required, and the
// empty string is the same as none.
func (d Dialect) id(f field, m member) (string, error) {
	id, err := optionalID(m)
	if err == nil && id == "" && d == Protocol {
		err = hub.InvalidField(d.spelling(f), "is required")
	}
	return id, err
}

// optionalID is the text of an id, or empty.
func optionalID(m member) (string, error) {
	if m.raw == nil {
		return "", nil
	}
	if err := checkID(m.raw); err != nil {
		return "", under(m.name, err)
	}
	return string(textOf(m.raw)), nil
}

// appendMembers appends the canonical object of the members in got.
func (d Dialect) appendMembers(dst []byte, fields []field, got []member) ([]byte, error) {
	dst = append(dst, '{')
	for i, m := range got {
		if m.raw == nil {
			continue
		}
		before := len(dst)
		dst = appendKey(comma(dst), fields[i].name)
		start := len(dst)
		var err error
		if dst, err = d.appendValue(dst, m.raw, fields[i].kind); err != nil {
			return nil, under(m.name, err)
		}
		if fields[i].kind.hasDefault() && len(dst)-start == len(`""`) {
			dst = dst[:before] // an empty string or array is the default
		}
	}
	return append(dst, '}'), nil
}

// appendParts appends the canonical form of an array of parts, which must have one.
func (d Dialect) appendParts(dst, raw []byte) ([]byte, error) {
	dst = append(dst, '[')
	empty := true
	err := eachElement(raw, func(i int, value []byte) error {
		empty = false
		var err error
		dst, err = d.appendPart(comma(dst), value)
		return at(i, err)
	})
	if err == nil && empty {
		err = hub.InvalidField("", "is empty; send at least one part")
	}
	return append(dst, ']'), err
}

// appendPart appends the canonical form of a part (A2A section 4.1.6).
func (d Dialect) appendPart(dst, raw []byte) ([]byte, error) {
	var got [partMembers]member
	if err := collect(raw, partFields[:], got[:]); err != nil {
		return dst, err
	}
	content := ""
	for _, m := range got[:contents] {
		switch {
		case m.raw == nil:
		case content != "":
			return dst, hub.InvalidField("", "has both %s and %s; a part has exactly one of text, raw, url and data", content, m.name)
		default:
			content = m.name
		}
	}
	if content == "" {
		return dst, hub.InvalidField("", "has no content; a part has exactly one of text, raw, url and data")
	}
	return d.appendMembers(dst, partFields[:], got[:])
}

// appendKey appends a member's name, which needs no escape sequence, and the colon.
func appendKey(dst []byte, name string) []byte {
	dst = append(dst, '"')
	dst = append(dst, name...)
	return append(dst, '"', ':')
}

// comma appends a comma unless dst has just begun an object or array.
func comma(dst []byte) []byte {
	if c := dst[len(dst)-1]; c == '{' || c == '[' {
		return dst
	}
	return append(dst, ',')
}
