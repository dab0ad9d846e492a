package a2a

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// pushRequest is a configuration for notifications, as a TaskPushNotificationConfig
// has it (spec section 4.3.1). Its task is empty where it came with a send.
type pushRequest struct {
	tenant string
	path   string // of the configuration in the request
	config hub.PushConfig
}

// located gives an error about the configuration the path that the field has in the
// request.
func (r *pushRequest) located(err error) error {
	var e *hub.Error
	if r == nil || !errors.As(err, &e) {
		return err
	}
	moved := *e
	switch e.Field {
	case "id", "url", "token", "authentication.scheme", "authentication.credentials":
		moved.Field = join(r.path, e.Field)
	default:
		return err
	}
	if e.Field == "authentication.scheme" && r.config.Version != protocolVersion {
		moved.Field += "s"
	}
	return &moved
}

// pushRef names one configuration of a task.
type pushRef struct{ tenant, task, id string }

// listPushes is a ListTaskPushNotificationConfigsRequest (spec section 3.1.9).
type listPushes struct {
	tenant, task string
	pageSize     int
	pageToken    string
}

// pushPage is the answer to it.
type pushPage struct {
	configs []hub.PushConfig
	next    string // the token of the next page, empty with the last
}

// performPush performs the operations on configurations for notifications.
func (f *face) performPush(w http.ResponseWriter, r *http.Request, b binding, c *caller, op operation) error {
	h := &f.handler
	if err := h.offersPush(c); err != nil {
		return err
	}
	switch op.method {
	case "CreateTaskPushNotificationConfig":
		return perform(w, r, b, c, op.params, decodePush, h.CreateTaskPushNotificationConfig, appendPush)
	case "GetTaskPushNotificationConfig":
		return perform(w, r, b, c, op.params, decodePushRef, h.GetTaskPushNotificationConfig, appendPush)
	case "ListTaskPushNotificationConfigs":
		return perform(w, r, b, c, op.params, decodePushList, h.ListTaskPushNotificationConfigs, appendPushPage)
	default:
		return perform(w, r, b, c, op.params, decodePushRef, h.DeleteTaskPushNotificationConfig, appendEmpty)
	}
}

// perform decodes the parameters of an operation, performs it and gives its result.
func perform[P, R any](w http.ResponseWriter, r *http.Request, b binding, c *caller, params []byte,
	decode func([]byte) (P, error), op func(context.Context, *caller, P) (R, error), show func([]byte, R) []byte) error {
	p, err := decode(params)
	if err != nil {
		return err
	}
	res, err := op(r.Context(), c, p)
	if err != nil {
		return err
	}
	reply(w, b, show(b.open(nil), res))
	return nil
}

// push refuses push notifications if the address has none.
func (o offer) push() error {
	if o.noPush {
		return &fault{reason: pushNotSupported, message: "this address has no push notifications; subscribe to the task, or ask with GetTask"}
	}
	return nil
}

// offersPush refuses what is about notifications if the hub sends none at all, or
// none about tasks of the address (spec section 3.3.4).
func (h *handler) offersPush(c *caller) error {
	if !h.engine.PushSupported() {
		return &fault{reason: pushNotSupported, message: "this hub sends no push notifications; subscribe to the task, or ask with GetTask"}
	}
	return c.offer.push()
}

// CreateTaskPushNotificationConfig adds a configuration to a task, or replaces the one
// with its id (spec section 3.1.7).
func (h *handler) CreateTaskPushNotificationConfig(ctx context.Context, c *caller, r pushRequest) (hub.PushConfig, error) {
	if err := c.addressed(r.tenant); err != nil {
		return hub.PushConfig{}, err
	}
	set, err := h.engine.SetPush(ctx, c.principal, c.ref(r.config.Task), r.config)
	return set, r.located(err)
}

// GetTaskPushNotificationConfig gives a configuration (spec section 3.1.8).
func (h *handler) GetTaskPushNotificationConfig(ctx context.Context, c *caller, r pushRef) (hub.PushConfig, error) {
	if err := c.addressed(r.tenant); err != nil {
		return hub.PushConfig{}, err
	}
	return h.engine.Push(ctx, c.principal, c.ref(r.task), r.id)
}

// ListTaskPushNotificationConfigs gives the configurations of a task, oldest first
// (spec section 3.1.9). A page token is the id of the last one of the page before.
func (h *handler) ListTaskPushNotificationConfigs(ctx context.Context, c *caller, r listPushes) (pushPage, error) {
	if err := c.addressed(r.tenant); err != nil {
		return pushPage{}, err
	}
	list, err := h.engine.Pushes(ctx, c.principal, c.ref(r.task))
	if err != nil {
		return pushPage{}, err
	}
	if r.pageToken != "" {
		last := slices.IndexFunc(list, func(p hub.PushConfig) bool { return p.ID == r.pageToken })
		if last < 0 {
			return pushPage{}, hub.InvalidField("pageToken", "is none of this list, or what it stood for was deleted; list again from the beginning")
		}
		list = list[last+1:]
	}
	page := pushPage{configs: list}
	if r.pageSize > 0 && r.pageSize < len(list) {
		page.configs = list[:r.pageSize]
		page.next = list[r.pageSize-1].ID
	}
	return page, nil
}

// DeleteTaskPushNotificationConfig deletes a configuration, if the task has it (spec
// section 3.1.10). Nothing is sent for it any more once it returns.
func (h *handler) DeleteTaskPushNotificationConfig(ctx context.Context, c *caller, r pushRef) (struct{}, error) {
	if err := c.addressed(r.tenant); err != nil {
		return struct{}{}, err
	}
	return struct{}{}, h.engine.DeletePush(ctx, c.principal, c.ref(r.task), r.id)
}

// decodePush reads the parameters of CreateTaskPushNotificationConfig, which are the
// configuration.
func decodePush(params []byte) (pushRequest, error) {
	r, err := readPush(params, "")
	if err == nil && r.config.Task == "" {
		err = errNoTaskID()
	}
	return r, err
}

// readPush reads a TaskPushNotificationConfig.
func readPush(raw []byte, path string) (pushRequest, error) {
	r := pushRequest{path: path, config: hub.PushConfig{Version: protocolVersion}}
	c := &r.config
	var auth []byte
	err := pickTexts(raw, path, []textField{
		{"tenant", &r.tenant}, {"taskId", &c.Task}, {"id", &c.ID}, {"url", &c.URL}, {"token", &c.Token},
	}, field{"authentication", &auth})
	if err == nil && c.URL == "" {
		err = hub.InvalidField(join(path, "url"), "is required: where the notifications go")
	}
	if err != nil || auth == nil {
		return r, err
	}
	path = join(path, "authentication")
	err = pickTexts(auth, path, []textField{{"scheme", &c.Scheme}, {"credentials", &c.Credentials}})
	if err == nil && c.Scheme == "" {
		err = hub.InvalidField(join(path, "scheme"), "is required, such as Bearer")
	}
	return r, err
}

// decodePushRef reads the parameters of the operations on one configuration.
func decodePushRef(params []byte) (pushRef, error) {
	var r pushRef
	err := pickTexts(params, "", []textField{{"tenant", &r.tenant}, {"taskId", &r.task}, {"id", &r.id}})
	switch {
	case err != nil:
	case r.task == "":
		err = errNoTaskID()
	case r.id == "":
		err = hub.InvalidField("id", "is required: the id of the configuration")
	}
	return r, err
}

// errNoTaskID answers an operation that names no task.
func errNoTaskID() error { return hub.InvalidField("taskId", "is required: the id of the task") }

// decodePushList reads the parameters of ListTaskPushNotificationConfigs. Without a
// page size, all are listed at once.
func decodePushList(params []byte) (listPushes, error) {
	var r listPushes
	var size []byte
	err := pickTexts(params, "", []textField{
		{"tenant", &r.tenant}, {"taskId", &r.task}, {"pageToken", &r.pageToken},
	}, field{"pageSize", &size})
	if err == nil && r.task == "" {
		err = errNoTaskID()
	}
	if err != nil || size == nil {
		return r, err
	}
	n, err := integer(size, "pageSize")
	if err == nil && n < 0 {
		err = hub.InvalidField("pageSize", "must not be negative; leave it out for all")
	}
	r.pageSize = int(min(n, maxPageSize))
	return r, err
}

// appendPush appends a configuration as a TaskPushNotificationConfig, without the
// secrets that the hub was told: it only ever sends them to the configuration's URL.
func appendPush(dst []byte, c hub.PushConfig) []byte {
	dst = rawjson.AppendText(append(dst, `{"id":`...), c.ID)
	dst = rawjson.AppendText(append(dst, `,"taskId":`...), c.Task)
	dst = rawjson.AppendText(append(dst, `,"url":`...), c.URL)
	if c.Scheme != "" {
		dst = append(rawjson.AppendText(append(dst, `,"authentication":{"scheme":`...), c.Scheme), '}')
	}
	return append(dst, '}')
}

// appendPushPage appends a ListTaskPushNotificationConfigsResponse.
func appendPushPage(dst []byte, p pushPage) []byte {
	dst = append(dst, `{"configs":[`...)
	for i := range p.configs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendPush(dst, p.configs[i])
	}
	return append(rawjson.AppendText(append(dst, `],"nextPageToken":`...), p.next), '}')
}

// appendEmpty appends a google.protobuf.Empty.
func appendEmpty(dst []byte, _ struct{}) []byte { return append(dst, `{}`...) }
