package a2a

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// soleConfig is the id of a configuration that a client older than 1.0 gave none. In
// 0.2 a task had only one, so that a second one without an id replaces the first.
const soleConfig = "default"

// performPushV03 performs the operations on configurations for notifications (section
// 7.5 to 7.8 of 0.3). in is the form of the binding.
func (f *face) performPushV03(w http.ResponseWriter, r *http.Request, b binding, in form, c *caller, op operation) error {
	h := &f.v03
	if err := h.offersPush(c); err != nil {
		return err
	}
	switch op.method {
	case "tasks/pushNotificationConfig/set":
		return perform(w, r, b, c, op.params, decodePushV03, h.CreateTaskPushNotificationConfig, in.appendTaskPush)
	case "tasks/pushNotificationConfig/get":
		return perform(w, r, b, c, op.params, decodePushRefV03, h.anyPush, in.appendTaskPush)
	case "tasks/pushNotificationConfig/list":
		return perform(w, r, b, c, op.params, decodePushListV03, h.ListTaskPushNotificationConfigs, in.appendPushes)
	default:
		return perform(w, r, b, c, op.params, decodePushDeleteV03, h.DeleteTaskPushNotificationConfig, in.appendDeleted)
	}
}

// anyPush is GetTaskPushNotificationConfig for clients that may not name the
// configuration: they get the one that nobody named, or else the oldest.
func (h *handler) anyPush(ctx context.Context, c *caller, r pushRef) (hub.PushConfig, error) {
	if r.id == "" {
		page, err := h.ListTaskPushNotificationConfigs(ctx, c, listPushes{tenant: r.tenant, task: r.task})
		if err != nil {
			return hub.PushConfig{}, err
		}
		r.id = soleConfig
		sole := slices.ContainsFunc(page.configs, func(p hub.PushConfig) bool { return p.ID == soleConfig })
		if !sole && len(page.configs) > 0 {
			return page.configs[0], nil
		}
	}
	return h.GetTaskPushNotificationConfig(ctx, c, r)
}

// decodePushV03 reads the parameters of tasks/pushNotificationConfig/set: those of
// JSON-RPC, {taskId, pushNotificationConfig}, in 0.2 with id in place of taskId, and
// those of the .proto file, {parent, configId, config: {pushNotificationConfig}}, of
// which HTTP+JSON may send all or only what is in config.
func decodePushV03(params []byte) (pushRequest, error) {
	var tenant, task, id, parent, configID string
	var config, inner []byte
	err := pickTexts(params, "", []textField{
		{"tenant", &tenant}, {"taskId", &task}, {"id", &id}, {"parent", &parent}, {"configId", &configID},
	}, field{"config", &config}, field{"pushNotificationConfig", &inner})
	at := "pushNotificationConfig"
	if err == nil && inner == nil && config != nil {
		at = "config." + at
		err = pick(config, "config", field{"pushNotificationConfig", &inner})
	}
	if err == nil && inner == nil {
		err = hub.InvalidField(at, "is required: where the notifications go")
	}
	if err != nil {
		return pushRequest{}, err
	}
	r, err := readPushV03(inner, at)
	if r.config.ID == soleConfig {
		r.config.ID = or(configID, soleConfig)
	}
	r.tenant = tenant
	if r.config.Task = or(task, or(id, taskOfName(parent))); err == nil && r.config.Task == "" {
		err = errNoTaskID()
	}
	return r, err
}

// readPushV03 reads a PushNotificationConfig of 0.3 (section 6.8 there).
func readPushV03(raw []byte, path string) (pushRequest, error) {
	r := pushRequest{path: path, config: hub.PushConfig{Version: "0.3"}}
	c := &r.config
	var auth, schemes []byte
	err := pickTexts(raw, path, []textField{{"id", &c.ID}, {"url", &c.URL}, {"token", &c.Token}}, field{"authentication", &auth})
	if err == nil && c.URL == "" {
		err = hub.InvalidField(join(path, "url"), "is required: where the notifications go")
	}
	c.ID = or(c.ID, soleConfig)
	if err != nil || auth == nil {
		return r, err
	}
	path = join(path, "authentication")
	if err = pickTexts(auth, path, []textField{{"credentials", &c.Credentials}}, field{"schemes", &schemes}); err != nil {
		return r, err
	}
	path = join(path, "schemes")
	if err = texts(schemes, path); err != nil {
		return r, err
	}
	_ = rawjson.Elements(schemes, func(i int, value []byte) error {
		if i == 0 { // the others are what the receiver would take as well
			c.Scheme, err = text(value, path)
		}
		return nil
	})
	if c.Scheme == "" && c.Credentials != "" {
		err = hub.InvalidField(path, `is required with credentials, such as ["Bearer"]`)
	}
	return r, err
}

// decodePushRefV03 reads the parameters of tasks/pushNotificationConfig/get: those of
// JSON-RPC, {id, pushNotificationConfigId}, those that the path of HTTP+JSON has,
// {taskId, id}, or those of the .proto file, {name}. The configuration's may be empty.
func decodePushRefV03(params []byte) (pushRef, error) {
	var r pushRef
	var task, id, name string
	err := pickTexts(params, "", []textField{
		{"tenant", &r.tenant}, {"taskId", &task}, {"id", &id}, {"pushNotificationConfigId", &r.id}, {"name", &name},
	})
	switch {
	case task != "":
		r.task, r.id = task, id
	case id != "":
		r.task = id
	default:
		r.task = taskOfName(name)
		_, r.id, _ = strings.Cut(name, "/pushNotificationConfigs/")
	}
	if err == nil && r.task == "" {
		err = hub.InvalidField("id", "is required: the id of the task")
	}
	return r, err
}

// decodePushDeleteV03 is decodePushRefV03 for what has to name a configuration.
func decodePushDeleteV03(params []byte) (pushRef, error) {
	r, err := decodePushRefV03(params)
	if err == nil && r.id == "" {
		err = hub.InvalidField("pushNotificationConfigId", "is required: the id of the configuration")
	}
	return r, err
}

// decodePushListV03 reads the parameters of tasks/pushNotificationConfig/list; the
// answer has all there are.
func decodePushListV03(params []byte) (listPushes, error) {
	var r listPushes
	var task, id, parent string
	err := pickTexts(params, "", []textField{{"tenant", &r.tenant}, {"taskId", &task}, {"id", &id}, {"parent", &parent}})
	if r.task = or(task, or(id, taskOfName(parent))); err == nil && r.task == "" {
		err = hub.InvalidField("id", "is required: the id of the task")
	}
	return r, err
}

// taskOfName is the task in a resource name of the .proto file, such as
// tasks/{id}/pushNotificationConfigs/{id}; empty if there is none.
func taskOfName(name string) string {
	below, found := strings.CutPrefix(name, "tasks/")
	if !found {
		return ""
	}
	task, _, _ := strings.Cut(below, "/")
	return task
}

// appendTaskPush appends a configuration as a TaskPushNotificationConfig of 0.3,
// without the secrets in it.
func (f form) appendTaskPush(dst []byte, c hub.PushConfig) []byte {
	if f == proto {
		dst = rawjson.AppendText(append(dst, `{"name":`...), "tasks/"+c.Task+"/pushNotificationConfigs/"+c.ID)
	} else {
		dst = rawjson.AppendText(append(dst, `{"taskId":`...), c.Task)
	}
	dst = rawjson.AppendText(append(dst, `,"pushNotificationConfig":{"id":`...), c.ID)
	dst = rawjson.AppendText(append(dst, `,"url":`...), c.URL)
	if c.Scheme != "" {
		dst = append(rawjson.AppendText(append(dst, `,"authentication":{"schemes":[`...), c.Scheme), `]}`...)
	}
	return append(dst, `}}`...)
}

// appendPushes appends the configurations of a task.
func (f form) appendPushes(dst []byte, p pushPage) []byte {
	if f == proto {
		dst = append(dst, `{"configs":`...)
	}
	dst = append(dst, '[')
	for i := range p.configs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = f.appendTaskPush(dst, p.configs[i])
	}
	dst = append(dst, ']')
	if f == proto {
		dst = append(dst, '}')
	}
	return dst
}

// appendDeleted appends the answer to a deletion.
func (f form) appendDeleted(dst []byte, _ struct{}) []byte {
	if f == proto {
		return append(dst, `{}`...)
	}
	return append(dst, `null`...)
}
