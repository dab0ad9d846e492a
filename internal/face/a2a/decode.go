package a2a

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// all is a history or page bound that was not given.
const all = -1

// The bounds of a page of tasks (spec section 3.1.4).
const (
	defaultPageSize = 50
	maxPageSize     = 100
)

// sendMessage is a SendMessageRequest (spec section 3.2.1), of either send.
type sendMessage struct {
	tenant            string
	message           canon.Message
	metadata          []byte
	history           int // newest messages to return; all for every one
	returnImmediately bool
	push              *pushRequest // the configuration for notifications that came along
}

// taskRequest is a GetTask, CancelTask or SubscribeToTask request.
type taskRequest struct {
	tenant  string
	id      string
	history int
}

// listTasks is a ListTasksRequest (spec section 3.1.4).
type listTasks struct {
	tenant    string
	context   string
	state     hub.State
	since     time.Time
	pageSize  int
	pageToken string
	history   int
	artifacts bool
}

// field is a member of a request: its ProtoJSON name, and where its value goes. It
// stays nil if the member is missing or null.
type field struct {
	name string
	into *[]byte
}

// pick reads members of the object raw, which is absent if it is empty, under their
// camelCase or snake_case names, as every ProtoJSON parser must. Others are ignored
// (spec section 5.7). path is the object's own.
func pick(raw []byte, path string, fields ...field) error {
	if len(raw) == 0 || rawjson.KindOf(raw) == rawjson.Null {
		return nil
	}
	if rawjson.KindOf(raw) != rawjson.Object {
		return hub.InvalidField(path, "expected an object, found %s", rawjson.KindOf(raw))
	}
	return rawjson.Members(raw, func(name string, value []byte) error {
		name = camelCase(name)
		for _, f := range fields {
			if f.name != name || rawjson.KindOf(value) == rawjson.Null {
				continue
			}
			if *f.into != nil {
				return hub.InvalidField(join(path, f.name), "is given twice, in both spellings of its name; send one of them")
			}
			*f.into = value
		}
		return nil
	})
}

// textField is a member of a request that is a string: its ProtoJSON name, and where
// it goes, empty if the member is missing or null.
type textField struct {
	name string
	into *string
}

// pickTexts is pick for members of which some are strings.
func pickTexts(raw []byte, path string, texts []textField, others ...field) error {
	values := make([][]byte, len(texts))
	for i, t := range texts {
		others = append(others, field{t.name, &values[i]})
	}
	if err := pick(raw, path, others...); err != nil {
		return err
	}
	for i, t := range texts {
		s, err := text(values[i], join(path, t.name))
		if err != nil {
			return err
		}
		*t.into = s
	}
	return nil
}

// camelCase turns a field's name in the .proto file into its ProtoJSON name.
func camelCase(name string) string {
	if strings.IndexByte(name, '_') < 0 {
		return name
	}
	var b strings.Builder
	up := false
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_':
			up = true
			continue
		case up && 'a' <= c && c <= 'z':
			c -= 'a' - 'A'
		}
		up = false
		b.WriteByte(c)
	}
	return b.String()
}

// join is the path of a member of the object at path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// decodeSend reads the parameters of SendMessage and SendStreamingMessage.
func decodeSend(params []byte) (sendMessage, error) {
	var tenant, message, configuration, metadata []byte
	err := pick(params, "", field{"tenant", &tenant}, field{"message", &message},
		field{"configuration", &configuration}, field{"metadata", &metadata})
	if err != nil {
		return sendMessage{}, err
	}
	if message == nil {
		return sendMessage{}, hub.InvalidField("message", "is required")
	}
	var r sendMessage
	if r.tenant, err = text(tenant, "tenant"); err != nil {
		return r, err
	}
	if r.message, err = canon.ParseMessage(message, "message", canon.Protocol); err != nil {
		return r, err
	}
	if r.message.FromAgent {
		return r, hub.InvalidField("message.role", "must be ROLE_USER: a caller speaks as the user")
	}
	if r.metadata, err = canon.Object(metadata, "metadata"); err != nil {
		return r, err
	}
	return r, r.configure(configuration)
}

// configure reads a SendMessageConfiguration.
func (r *sendMessage) configure(raw []byte) error {
	const at = "configuration"
	var modes, push, history, immediately []byte
	err := pick(raw, at, field{"acceptedOutputModes", &modes}, field{"taskPushNotificationConfig", &push},
		field{"historyLength", &history}, field{"returnImmediately", &immediately})
	if err != nil {
		return err
	}
	if err := r.setPush(push, at+".taskPushNotificationConfig", readPush); err != nil {
		return err
	}
	if err := texts(modes, at+".acceptedOutputModes"); err != nil {
		return err
	}
	if r.returnImmediately, err = boolean(immediately, at+".returnImmediately"); err != nil {
		return err
	}
	r.history, err = historyLength(history, at+".historyLength")
	return err
}

// setPush takes over the configuration for notifications that came along, if one did,
// as read reads it. It is for the task of the message, which it must not name itself
// (spec section 3.2.2).
func (r *sendMessage) setPush(raw []byte, path string, read func([]byte, string) (pushRequest, error)) error {
	if raw == nil {
		return nil
	}
	push, err := read(raw, path)
	if err == nil && push.config.Task != "" {
		err = hub.InvalidField(join(path, "taskId"), "must be left out here: the configuration is for the task of this message")
	}
	r.push = &push
	return err
}

// decodeTask reads the parameters of the operations on one task.
func decodeTask(params []byte) (taskRequest, error) {
	var tenant, id, history []byte
	err := pick(params, "", field{"tenant", &tenant}, field{"id", &id}, field{"historyLength", &history})
	if err != nil {
		return taskRequest{}, err
	}
	var r taskRequest
	if r.tenant, err = text(tenant, "tenant"); err != nil {
		return r, err
	}
	if r.id, err = text(id, "id"); err != nil {
		return r, err
	}
	if r.id == "" {
		return r, hub.InvalidField("id", "is required: the id of the task")
	}
	r.history, err = historyLength(history, "historyLength")
	return r, err
}

// decodeList reads the parameters of ListTasks.
func decodeList(params []byte) (listTasks, error) {
	var r listTasks
	var status, size, history, since, artifacts []byte
	err := pickTexts(params, "", []textField{
		{"tenant", &r.tenant}, {"contextId", &r.context}, {"pageToken", &r.pageToken},
	}, field{"status", &status}, field{"pageSize", &size}, field{"historyLength", &history},
		field{"statusTimestampAfter", &since}, field{"includeArtifacts", &artifacts})
	if err != nil {
		return r, err
	}
	if r.state, err = state(status, "status"); err != nil {
		return r, err
	}
	if r.since, err = timestamp(since, "statusTimestampAfter"); err != nil {
		return r, err
	}
	if r.artifacts, err = boolean(artifacts, "includeArtifacts"); err != nil {
		return r, err
	}
	if r.pageSize, err = pageSize(size, "pageSize"); err != nil {
		return r, err
	}
	r.history, err = historyLength(history, "historyLength")
	return r, err
}

// decodeTenant reads the one parameter that the remaining operations need.
func decodeTenant(params []byte) (string, error) {
	var tenant []byte
	if err := pick(params, "", field{"tenant", &tenant}); err != nil {
		return "", err
	}
	return text(tenant, "tenant")
}

// text reads a string, empty if it is absent.
func text(raw []byte, path string) (string, error) {
	if raw == nil {
		return "", nil
	}
	s, err := rawjson.Text(raw)
	if err != nil {
		return "", hub.InvalidField(path, "expected a string, found %s", rawjson.KindOf(raw))
	}
	return s, nil
}

// texts checks an array of strings that the hub has no use for: it cannot convert
// what an agent answers, and A2A lets a server answer in other modes.
func texts(raw []byte, path string) error {
	if raw == nil {
		return nil
	}
	if rawjson.KindOf(raw) != rawjson.Array {
		return hub.InvalidField(path, "expected an array of strings, found %s", rawjson.KindOf(raw))
	}
	return rawjson.Elements(raw, func(i int, value []byte) error {
		_, err := text(value, path+"["+strconv.Itoa(i)+"]")
		return err
	})
}

// boolean reads true or false, false if it is absent.
func boolean(raw []byte, path string) (bool, error) {
	if raw == nil {
		return false, nil
	}
	b, err := rawjson.Boolean(raw)
	if err != nil {
		return false, hub.InvalidField(path, "expected true or false, found %s", rawjson.KindOf(raw))
	}
	return b, nil
}

// integer reads a whole number, which ProtoJSON also allows as a string.
func integer(raw []byte, path string) (int64, error) {
	number := raw
	if rawjson.KindOf(raw) == rawjson.String {
		s, err := rawjson.Text(raw)
		if err != nil || rawjson.Check([]byte(s), 0) != nil {
			return 0, hub.InvalidField(path, "expected a whole number")
		}
		number = []byte(s)
	}
	n, err := rawjson.Integer(number)
	if err != nil {
		return 0, hub.InvalidField(path, "expected a whole number")
	}
	return n, nil
}

// historyLength reads how many messages are wanted: all if it is absent, none for
// 0, else at most that many of the newest (spec section 3.2.4).
func historyLength(raw []byte, path string) (int, error) {
	if raw == nil {
		return all, nil
	}
	n, err := integer(raw, path)
	if err != nil {
		return 0, err
	}
	if n < 0 {
		return 0, hub.InvalidField(path, "must not be negative; leave it out for the whole history")
	}
	return int(min(n, 1<<31-1)), nil
}

// pageSize reads how many tasks are wanted at once. 0 is what SDKs send over gRPC when
// their caller did not say.
func pageSize(raw []byte, path string) (int, error) {
	if raw == nil {
		return defaultPageSize, nil
	}
	n, err := integer(raw, path)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return defaultPageSize, nil
	}
	if n < 0 || n > maxPageSize {
		return 0, hub.InvalidField(path, "must be from 1 to %d, or 0 for the default", maxPageSize)
	}
	return int(n), nil
}

// state reads a TaskState, by name or, as ProtoJSON allows, by number; unspecified,
// like an absent one, is any state.
func state(raw []byte, path string) (hub.State, error) {
	const unspecified = "TASK_STATE_UNSPECIFIED"
	if raw == nil {
		return hub.StateUnspecified, nil
	}
	if rawjson.KindOf(raw) == rawjson.Number {
		n, err := rawjson.Integer(raw)
		if err == nil && n >= 0 && n <= int64(hub.AuthRequired) {
			return hub.State(n), nil
		}
		return 0, hub.InvalidField(path, "is not the number of a task state")
	}
	name, err := text(raw, path)
	if err != nil || name == unspecified {
		return hub.StateUnspecified, err
	}
	if s, ok := hub.ParseState(name); ok && s.Protocol() == name {
		return s, nil
	}
	return 0, hub.InvalidField(path, "is no task state; expected one such as TASK_STATE_COMPLETED")
}

// timestamp reads a time, zero if it is absent.
func timestamp(raw []byte, path string) (time.Time, error) {
	s, err := text(raw, path)
	if err != nil || raw == nil {
		return time.Time{}, err
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, hub.InvalidField(path, "is no time; expected one such as 2026-01-31T12:00:00.000Z")
	}
	return t.UTC(), nil
}
