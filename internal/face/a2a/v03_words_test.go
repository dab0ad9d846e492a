package a2a_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// This is the one place where a request of 1.0 is put into the words of 0.3. What the
// hub refuses before it looks at any name goes as it is, and what has no words there,
// or other ones of the same name, is not said at all.

// deepest is how deep parameters may be nested that are the same in both versions: 0.3
// has objects around some things that 1.0 has not.
const deepest = 60

// down puts a query into the words of 0.3. It reports whether there are any.
func (f *formerBinding) down(q *query) bool {
	if rawjson.Check([]byte(q.params), 65) != nil {
		return !f.grpc && (f.proto == sendsBody(q.op) || !f.proto)
	}
	q.headers = slices.Clone(q.headers)
	for i := 0; i < len(q.headers); i += 2 {
		if patch, found := strings.CutPrefix(q.headers[i+1], "1.0"); found && q.headers[i] == "A2A-Version" {
			q.headers[i+1] = "0.3" + patch
		}
	}
	p := object(q.params)
	if p == nil {
		return !f.grpc
	}
	if rawjson.Check([]byte(q.params), deepest) != nil || !plainly(p) || f.grpc && !f.named(q, p) {
		return false
	}
	var ok bool
	switch q.op {
	case "GetTask", "CancelTask", "SubscribeToTask":
		ok = !f.grpc || !isZero(p["historyLength"])
	case "CreateTaskPushNotificationConfig":
		ok = f.downCreate(p)
	case "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig":
		ok = f.downRef(q.op, p)
	default:
		ok = f.downSend(p)
	}
	q.params = text(p)
	return ok
}

// sendsBody reports whether the parameters of an operation are the body of a request
// of HTTP+JSON, or what its path has not, so that they go as they were written.
func sendsBody(op string) bool { return strings.HasPrefix(op, "Send") }

// named reports whether ids and a tenant can be told to 0.3's gRPC, which has them in
// names of resources and in metadata.
func (f *formerBinding) named(q *query, p map[string]any) bool {
	for _, name := range []string{"id", "taskId", "tenant"} {
		if _, isText := p[name].(string); !isText && p[name] != nil {
			return false
		}
	}
	if task, _ := p["taskId"].(string); strings.Contains(task, "/") {
		return false
	}
	tenant, _ := p["tenant"].(string)
	if tenant != "" && q.handle != "hub" && tenant != q.handle {
		return false
	}
	if tenant != "" {
		q.handle = tenant
	}
	return true
}

// otherWords are names that mean something in 0.3 and nothing in 1.0.
var otherWords = []string{
	"kind", "content", "request", "file", "blocking", "pushNotificationConfig", "pushNotification", "name", "parent",
	"config", "configId", "pushNotificationConfigId", "schemes",
}

// plainly reports whether an object has no name that 0.3 reads otherwise, nor one in
// its other spelling, which would have to be translated too.
func plainly(o map[string]any) bool {
	for name := range o {
		if strings.Contains(name, "_") || slices.Contains(otherWords, name) {
			return false
		}
	}
	return true
}

// isZero reports whether a number is 0, which 0.3's ProtoJSON cannot tell from none.
func isZero(v any) bool {
	n, err := strconv.ParseFloat(fmt.Sprint(v), 64)
	return err == nil && n == 0
}

// downCreate is down for a configuration that is created.
func (f *formerBinding) downCreate(p map[string]any) bool {
	config := map[string]any{}
	for _, name := range []string{"id", "url", "token", "authentication"} {
		if v, ok := p[name]; ok {
			config[name] = v
		}
		delete(p, name)
	}
	into := p
	if f.proto {
		into = map[string]any{}
		p["config"] = into
	}
	into["pushNotificationConfig"] = config
	return downPush(config)
}

// downPush is down for a configuration for notifications, which in 0.3 has several
// schemes, and may have none.
func downPush(v any) bool {
	config, ok := v.(map[string]any)
	if !ok {
		return true
	}
	if !plainly(config) || config["taskId"] != nil || config["tenant"] != nil {
		return false
	}
	auth, ok := config["authentication"].(map[string]any)
	if !ok {
		return true
	}
	scheme := auth["scheme"]
	if !plainly(auth) || scheme == nil || scheme == "" {
		return false
	}
	delete(auth, "scheme")
	auth["schemes"] = []any{scheme}
	return true
}

// downRef is down for what names a configuration, or all of a task. 0.3 has no pages,
// and lets the one to get have no name.
func (f *formerBinding) downRef(op string, p map[string]any) bool {
	id := p["id"]
	if op[:3] == "Get" && (id == nil || id == "") || p["pageSize"] != nil || p["pageToken"] != nil {
		return false
	}
	if !f.proto {
		p["id"] = p["taskId"]
		p["pushNotificationConfigId"] = id
		delete(p, "taskId")
	}
	return true
}

// downSend is down for either send.
func (f *formerBinding) downSend(p map[string]any) bool {
	if m, ok := p["message"].(map[string]any); ok && !f.downMessage(m) {
		return false
	}
	c, ok := p["configuration"].(map[string]any)
	if !ok && p["configuration"] != nil {
		return true // no configuration in any version
	}
	if !plainly(c) || f.proto && isZero(c["historyLength"]) {
		return false
	}
	if c == nil {
		c = map[string]any{}
		p["configuration"] = c
	}
	c["blocking"] = c["returnImmediately"]
	if now, isBool := c["returnImmediately"].(bool); isBool || c["blocking"] == nil {
		c["blocking"] = !now
	}
	delete(c, "returnImmediately")
	push := c["taskPushNotificationConfig"]
	delete(c, "taskPushNotificationConfig")
	switch {
	case push == nil:
	case f.proto:
		c["pushNotification"] = push
	default:
		c["pushNotificationConfig"] = push
	}
	return downPush(push)
}

func (f *formerBinding) downMessage(m map[string]any) bool {
	if !plainly(m) || m["role"] == "user" || m["role"] == "agent" {
		return false
	}
	if f.proto && m["referenceTaskIds"] != nil {
		return false
	}
	list, _ := m["parts"].([]any)
	for _, part := range list {
		if o, ok := part.(map[string]any); ok && !f.downPart(o) {
			return false
		}
	}
	if f.proto {
		if parts, ok := m["parts"]; ok {
			m["content"] = parts
		}
		delete(m, "parts")
		return true
	}
	m["kind"] = "message"
	switch m["role"] {
	case "ROLE_USER":
		m["role"] = "user"
	case "ROLE_AGENT":
		m["role"] = "agent"
	}
	return true
}

// downPart puts a part into the words of 0.3, where only a file has a media type and a
// name.
func (f *formerBinding) downPart(o map[string]any) bool {
	if !plainly(o) {
		return false
	}
	var kinds []string
	for _, c := range []struct{ name, kind string }{{"text", "text"}, {"data", "data"}, {"raw", "file"}, {"url", "file"}} {
		if raw, _ := o[c.name].(json.RawMessage); o[c.name] == nil || string(raw) == "null" {
			delete(o, c.name)
		} else {
			kinds = append(kinds, c.kind)
		}
	}
	isFile := slices.Contains(kinds, "file")
	if !isFile && (o["mediaType"] != nil || o["filename"] != nil) {
		return false
	}
	if isFile {
		f.downFile(o)
	}
	if slices.Contains(kinds, "data") && !f.downData(o) {
		return false
	}
	if len(kinds) == 1 && !f.proto {
		o["kind"] = kinds[0]
	}
	return true
}

func (f *formerBinding) downFile(o map[string]any) {
	names := map[string]string{"raw": "bytes", "url": "uri", "mediaType": "mimeType", "filename": "name"}
	if f.proto {
		names["raw"], names["url"] = "fileWithBytes", "fileWithUri"
	}
	file := map[string]any{}
	for name, old := range names {
		if v := o[name]; v != nil {
			file[old] = v
		}
		delete(o, name)
	}
	o["file"] = file
}

// downData wraps data, which 0.3 wants to be an object, as the official SDKs do.
func (f *formerBinding) downData(o map[string]any) bool {
	data, _ := o["data"].(json.RawMessage)
	metadata, _ := o["metadata"].(json.RawMessage)
	if bytes.Contains(metadata, []byte("data_part_compat")) {
		return false
	}
	if data[0] != '{' {
		members := map[string]json.RawMessage{}
		if metadata != nil && json.Unmarshal(metadata, &members) != nil {
			return false
		}
		if members == nil {
			members = map[string]json.RawMessage{}
		}
		members["data_part_compat"] = json.RawMessage("true")
		o["metadata"] = members
		o["data"] = map[string]any{"value": data}
	}
	if f.proto {
		o["data"] = map[string]any{"data": o["data"]}
	}
	return true
}

// object reads a JSON object, nil if it is none.
func object(s string) map[string]any {
	if !json.Valid([]byte(s)) {
		return nil
	}
	p, _ := opened(json.RawMessage(s)).(map[string]any)
	return p
}

// opened reads JSON. What is in metadata and data, which no version changes, stays as
// it was written, with all of its digits and escapes.
func opened(raw json.RawMessage) any {
	raw = bytes.TrimSpace(raw)
	switch raw[0] {
	case '{':
		var members map[string]json.RawMessage
		_ = json.Unmarshal(raw, &members) // it is valid
		all := make(map[string]any, len(members))
		for name, value := range members {
			if all[name] = value; name != "metadata" && name != "data" {
				all[name] = opened(value)
			}
		}
		return all
	case '[':
		var elements []json.RawMessage
		_ = json.Unmarshal(raw, &elements)
		all := make([]any, len(elements))
		for i, e := range elements {
			all[i] = opened(e)
		}
		return all
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	_ = d.Decode(&v)
	return v
}

// text writes JSON.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it came from JSON
	}
	return string(data)
}
