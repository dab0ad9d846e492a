package a2a

import (
	"errors"
	"strconv"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// form is the JSON of a client that is older than A2A 1.0. A message tells which one
// its sender speaks; what is asked without a message is answered in the form of the
// binding.
type form uint8

const (
	// kinded is that of JSON-RPC in 0.2 and 0.3: every object says its kind, and a
	// result stands by itself.
	kinded form = iota + 1
	// proto is that of HTTP+JSON in 0.3: the ProtoJSON of its a2a.v1, in which a
	// message has content and a result says what it is by its member's name.
	proto
	// bare is that of FastA2A 2: the methods, states and roles of 0.3, with the parts
	// of 1.0 and the members around a result that proto has.
	bare
)

// decodeSendV03 reads the parameters of message/send and message/stream. in is the
// form of the binding.
func decodeSendV03(params []byte, in form) (sendMessage, form, error) {
	var tenant, message, request, configuration, metadata []byte
	err := pick(params, "", field{"tenant", &tenant}, field{"message", &message}, field{"request", &request},
		field{"configuration", &configuration}, field{"metadata", &metadata})
	if err != nil {
		return sendMessage{}, in, err
	}
	if message == nil && in == proto {
		message = request // the name in the .proto file
	}
	if message == nil {
		return sendMessage{}, in, hub.InvalidField("message", "is required")
	}
	var r sendMessage
	if r.tenant, err = text(tenant, "tenant"); err != nil {
		return r, in, err
	}
	var f form
	if r.message, f, err = parseMessageV03(message, "message"); err != nil {
		return r, in, err
	}
	if r.message.FromAgent {
		return r, in, hub.InvalidField("message.role", "must be that of the user: a caller speaks as the user")
	}
	if r.metadata, err = canon.Object(metadata, "metadata"); err != nil {
		return r, in, err
	}
	if in == proto && f == bare { // no kinds, as always in ProtoJSON
		f = proto
	}
	return r, f, r.configureV03(configuration, f)
}

// configureV03 reads a MessageSendConfiguration. A client that does not say whether
// it wants to wait does; but in ProtoJSON false is never written, so there a
// configuration that does not say true says false.
func (r *sendMessage) configureV03(raw []byte, f form) error {
	const at = "configuration"
	var modes, push, protoPush, history, blocking []byte
	err := pick(raw, at, field{"acceptedOutputModes", &modes}, field{"pushNotificationConfig", &push},
		field{"pushNotification", &protoPush}, field{"historyLength", &history}, field{"blocking", &blocking})
	if err != nil {
		return err
	}
	name := "pushNotificationConfig"
	if push == nil && protoPush != nil {
		push, name = protoPush, "pushNotification" // as the .proto file has it
	}
	if err := r.setPush(push, join(at, name), readPushV03); err != nil {
		return err
	}
	if err := texts(modes, at+".acceptedOutputModes"); err != nil {
		return err
	}
	wait, err := boolean(blocking, at+".blocking")
	if err != nil {
		return err
	}
	if blocking == nil {
		wait = f != proto || rawjson.KindOf(raw) != rawjson.Object
	}
	r.returnImmediately = !wait
	r.history, err = historyLength(history, at+".historyLength")
	if f == proto && r.history == 0 { // the default, so the same as none given
		r.history = all
	}
	return err
}

// parseMessageV03 reads a message of any form: it is rewritten as one of 1.0, which
// canon then checks. Errors name fields as the client spelled them.
func parseMessageV03(raw []byte, path string) (canon.Message, form, error) {
	upgraded, f, err := upgradeMessage(raw, path)
	if err != nil {
		return canon.Message{}, f, err
	}
	m, err := canon.ParseMessage(upgraded, path, canon.Protocol)
	return m, f, f.misspell(err)
}

// misspell gives an error about a message of 1.0 the path that the field has in the
// form.
func (f form) misspell(err error) error {
	var e *hub.Error
	if f == bare || !errors.As(err, &e) {
		return err
	}
	old := *e
	parent, name := "", old.Field
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		parent, name = name[:i+1], name[i+1:]
	}
	switch name {
	case "raw":
		name = "file." + f.bytesName()
	case "url":
		name = "file." + f.uriName()
	case "mediaType":
		name = "file.mimeType"
	case "filename":
		name = "file.name"
	}
	old.Field = parent + name
	if f == proto {
		old.Field = strings.Replace(old.Field, ".parts", ".content", 1)
	}
	return &old
}

// upgradeMessage rewrites a message as one of 1.0. What it does not know it leaves
// as it is.
func upgradeMessage(raw []byte, path string) ([]byte, form, error) {
	var kind, role, parts, content []byte
	err := pick(raw, path, field{"kind", &kind}, field{"role", &role}, field{"parts", &parts}, field{"content", &content})
	if err != nil {
		return nil, kinded, err
	}
	if parts != nil && content != nil {
		return nil, kinded, hub.InvalidField(path, "has both parts and content; send one of them")
	}
	if s, err := text(kind, join(path, "kind")); err != nil || s != "" && s != "message" {
		return nil, kinded, hub.InvalidField(join(path, "kind"), `must be "message"`)
	}
	f, name, list := formOf(kind, parts, content)
	out := append(make([]byte, 0, len(raw)+32), '{')
	if out, err = appendOthers(out, raw); err != nil {
		return nil, f, err
	}
	if role != nil {
		if out, err = appendRoleV1(append(out, `"role":`...), role, join(path, "role")); err != nil {
			return nil, f, err
		}
		out = append(out, ',')
	}
	if list == nil {
		return nil, f, hub.InvalidField(join(path, name), "is required")
	}
	out, err = f.upgradeParts(append(out, `"parts":`...), list, join(path, name))
	return append(out, '}'), f, err
}

// appendOthers appends the members of a message that are the same in all versions,
// each with a comma behind it.
func appendOthers(dst, raw []byte) ([]byte, error) {
	err := rawjson.Members(raw, func(name string, value []byte) error {
		switch camelCase(name) {
		case "messageId", "contextId", "taskId", "metadata", "extensions", "referenceTaskIds":
			dst = append(append(append(rawjson.AppendText(dst, name), ':'), value...), ',')
		}
		return nil
	})
	return dst, err
}

// formOf tells the form of a message by what it has, and gives its parts and their
// name.
func formOf(kind, parts, content []byte) (f form, name string, list []byte) {
	if content != nil {
		return proto, "content", content
	}
	f = bare
	if kind != nil {
		f = kinded
	}
	if rawjson.KindOf(parts) == rawjson.Array {
		_ = rawjson.Elements(parts, func(_ int, part []byte) error {
			var kind []byte
			if pick(part, "", field{"kind", &kind}) == nil && kind != nil {
				f = kinded
			}
			return nil
		})
	}
	return f, "parts", parts
}

// appendRoleV1 appends a role as 1.0 has it.
func appendRoleV1(dst, raw []byte, path string) ([]byte, error) {
	if rawjson.KindOf(raw) == rawjson.Number { // of the enum of the .proto file
		return append(dst, raw...), nil
	}
	role, err := text(raw, path)
	switch role {
	case "user", "ROLE_USER":
		return append(dst, `"ROLE_USER"`...), nil
	case "agent", "ROLE_AGENT":
		return append(dst, `"ROLE_AGENT"`...), nil
	}
	if err == nil {
		err = hub.InvalidField(path, `must be "user" or "agent"`)
	}
	return dst, err
}

// upgradeParts appends an array of parts as 1.0 has them.
func (f form) upgradeParts(dst, raw []byte, path string) ([]byte, error) {
	if rawjson.KindOf(raw) != rawjson.Array {
		return dst, hub.InvalidField(path, "expected an array of parts, found %s", rawjson.KindOf(raw))
	}
	dst = append(dst, '[')
	err := rawjson.Elements(raw, func(i int, part []byte) error {
		if i > 0 {
			dst = append(dst, ',')
		}
		at := path + "[" + strconv.Itoa(i) + "]"
		if rawjson.KindOf(part) != rawjson.Object {
			return hub.InvalidField(at, "expected an object, found %s", rawjson.KindOf(part))
		}
		var err error
		dst, err = f.upgradePart(dst, part, at)
		return err
	})
	return append(dst, ']'), err
}

// partV03 is a part as it was written, before 1.0.
type partV03 struct{ kind, text, file, data, metadata []byte }

// upgradePart appends a part as 1.0 has it.
func (f form) upgradePart(dst, raw []byte, path string) ([]byte, error) {
	if f == bare {
		return append(dst, raw...), nil
	}
	var p partV03
	err := pick(raw, path, field{"kind", &p.kind}, field{"text", &p.text}, field{"file", &p.file},
		field{"data", &p.data}, field{"metadata", &p.metadata})
	if err != nil {
		return dst, err
	}
	name, err := p.content(path)
	if err != nil {
		return dst, err
	}
	dst = append(dst, '{')
	switch name {
	case "text":
		dst = append(append(dst, `"text":`...), p.text...)
	case "file":
		dst, err = f.upgradeFile(dst, p.file, join(path, "file"))
	case "data":
		dst, err = f.upgradeData(dst, &p, join(path, "data"))
	}
	if p.metadata != nil {
		dst = append(append(dst, `,"metadata":`...), p.metadata...)
	}
	return append(dst, '}'), err
}

// content names the one member that a part's kind, or what it has, says it is.
func (p *partV03) content(path string) (string, error) {
	kind, err := text(p.kind, join(path, "kind"))
	if err != nil {
		return "", err
	}
	found := ""
	for _, m := range []struct {
		name string
		raw  []byte
	}{{"text", p.text}, {"file", p.file}, {"data", p.data}} {
		switch {
		case kind == m.name && m.raw == nil:
			return "", hub.InvalidField(join(path, m.name), "is required in a part of this kind")
		case kind == m.name:
			return kind, nil
		case m.raw == nil:
		case found != "" && kind == "":
			return "", hub.InvalidField(path, "has both %s and %s; a part has exactly one of text, file and data", found, m.name)
		default:
			found = m.name
		}
	}
	if kind != "" {
		return "", hub.InvalidField(join(path, "kind"), "must be text, file or data")
	}
	if found == "" {
		return "", hub.InvalidField(path, "has no content; a part has exactly one of text, file and data")
	}
	return found, nil
}

func (f form) bytesName() string {
	if f == proto {
		return "fileWithBytes"
	}
	return "bytes"
}

func (f form) uriName() string {
	if f == proto {
		return "fileWithUri"
	}
	return "uri"
}

// upgradeFile appends the members of 1.0 that stand for a file. A URI may be any
// text, also a path on the client's machine: what it means is the agent's business.
func (f form) upgradeFile(dst, raw []byte, path string) ([]byte, error) {
	var content, uri, url, mimeType, name []byte
	err := pick(raw, path, field{f.bytesName(), &content}, field{f.uriName(), &uri}, field{"url", &url},
		field{"mimeType", &mimeType}, field{"name", &name})
	if f == kinded && content == nil && uri == nil {
		uri = url // what some write, the kit for 0.3 among them
	}
	switch {
	case err != nil:
		return dst, err
	case content != nil && uri != nil:
		return dst, hub.InvalidField(path, "has both %s and %s; a file has one of them", f.bytesName(), f.uriName())
	case content == nil && uri == nil:
		return dst, hub.InvalidField(path, "has neither %s nor %s; a file has one of them", f.bytesName(), f.uriName())
	case content != nil:
		dst = append(append(dst, `"raw":`...), content...)
	default:
		dst = append(append(dst, `"url":`...), uri...)
	}
	if mimeType != nil {
		dst = append(append(dst, `,"mediaType":`...), mimeType...)
	}
	if name != nil {
		dst = append(append(dst, `,"filename":`...), name...)
	}
	return dst, nil
}

// dataMark is the member of a part's metadata that says that its data is wrapped,
// because it is no object as 0.3 wants it: {"value": the data}. The official SDKs
// write and read it too.
const dataMark = "data_part_compat"

// upgradeData appends the member of 1.0 that holds data, and takes away what was only
// wrapped around it. Before 1.0, data must be an object; other JSON is taken all the
// same.
func (f form) upgradeData(dst []byte, p *partV03, path string) ([]byte, error) {
	data := p.data
	if f == proto { // a DataPart, whose default is the empty object
		var inner []byte
		if err := pick(data, path, field{"data", &inner}); err != nil {
			return dst, err
		}
		if inner == nil {
			inner = []byte("{}")
		}
		data = inner
	}
	if value, metadata, ok := unwrapData(data, p.metadata); ok {
		data, p.metadata = value, metadata
	}
	return append(append(dst, `"data":`...), data...), nil
}

// unwrapData undoes dataMark; ok is false if there is none. The metadata is without
// it, and nil if nothing else was there.
func unwrapData(data, metadata []byte) (value, rest []byte, ok bool) {
	if rawjson.KindOf(metadata) != rawjson.Object || rawjson.KindOf(data) != rawjson.Object {
		return nil, nil, false
	}
	rest = []byte{'{'}
	_ = rawjson.Members(metadata, func(name string, v []byte) error {
		if name == dataMark {
			ok, _ = rawjson.Boolean(v)
			return nil
		}
		if len(rest) > 1 {
			rest = append(rest, ',')
		}
		rest = append(append(rawjson.AppendText(rest, name), ':'), v...)
		return nil
	})
	if !ok || pick(data, "", field{"value", &value}) != nil || value == nil {
		return nil, nil, false
	}
	if len(rest) == 1 {
		return value, nil, true
	}
	return value, append(rest, '}'), true
}
