package v1

import (
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-hub/holdfast/wire"
)

// hotRoute is a route that is served by hand, with its description.
type hotRoute struct {
	method, path string
	serve        handler
	doc          huma.Operation
}

// registerHot adds the hot routes to the mux and to the OpenAPI document.
func (f *face) registerHot() {
	for _, r := range f.hotRoutes() {
		f.HandleFunc(r.method+" "+r.path, f.authorised(r.serve))
		op := r.doc
		op.Method, op.Path = r.method, r.path
		f.describe(&op)
		f.api.OpenAPI().AddOperation(&op)
	}
	// A pointer to a struct is null where it is nil, which huma does not say.
	next := f.api.OpenAPI().Components.Schemas.Map()["ResultReply"].Properties
	next["next"] = &huma.Schema{AnyOf: []*huma.Schema{next["next"], {Type: "null"}}}
}

// hotRoutes is the table of the routes that carry tasks, and of the feed.
func (f *face) hotRoutes() []hotRoute {
	d := describer{f.api.OpenAPI().Components.Schemas}
	const caller, callee, admin = "Calling", "Answering", "Administration"
	callerID := []*huma.Param{d.path("callee", "Handle or id of the address that was called; me for the caller's own."), d.path("id", "The task's id.")}
	wait := d.number("wait", "Seconds to wait until the task ends or asks something.", 0, maxWait)
	ownID := d.path("id", "The task's id.")
	claim := d.header("X-Claim", "The claim_id of the claim that this belongs to. Needed where several workers share one address and a claim may have lapsed.")
	lineage := []*huma.Param{
		d.header("Idempotency-Key", "The same key with the same body gives the first answer's task again."),
		d.header("Holdfast-Task", "Id of the task that this call is part of. Counts only if that task was addressed to the caller. Also spelled Lagrange-Task."),
		d.header("X-Parent-Call", "Id of the call that this call is part of. Counts only if the caller may see it."),
		d.header("traceparent", "W3C trace context."),
	}
	list := []*huma.Param{
		d.text("state", "Only tasks in this state, such as working."),
		d.text("context_id", "Only tasks of this context."),
		d.boolean("pending", "Only tasks that the caller sent and whose end it has not read."),
		d.boolean("sent", "Only tasks that the caller sent."),
		d.text("cursor", "The next_cursor of the page before."),
		d.integer("limit", "Tasks per page.", 1, maxList, defaultList),
	}
	hold := []*huma.Param{
		d.number("lease", "Seconds that the claim lasts without a sign of life; 0 for the address's own.", 0, int(f.opt.Limits.LeaseMax.Seconds())),
		d.number("ack", "Makes the claim provisional: without a heartbeat or report within so many seconds the task is offered again.", 0, maxWait),
	}
	return []hotRoute{
		{"POST", "/v1/agents/{callee}/tasks", f.send, huma.Operation{
			OperationID: "send-task", Summary: "Send a task, or a message to one", Tags: []string{caller},
			Description: "With context_id alone, an open question of this caller in that context is answered; if none is open, a new task begins in it. With task_id, the message goes to that task. The answer comes once the task is stored safely, and with wait, once it has ended or asks something, or the time is up.",
			Parameters:  params(callerID[:1], []*huma.Param{wait}, lineage),
			RequestBody: d.body(wire.SendRequest{}, true),
			Responses:   d.ok(200, "The task as it is now. The header Holdfast-Lineage: ignored says that a lineage header did not count.", wire.Task{}),
		}},
		{"GET", "/v1/agents/{callee}/tasks", f.listAt, huma.Operation{
			OperationID: "list-tasks-at", Summary: "List tasks at one address", Tags: []string{caller},
			Parameters: params(callerID[:1], list),
			Responses:  d.ok(200, "Tasks, those whose status changed last first, without history and artifacts.", wire.List[wire.Task]{}),
		}},
		{"GET", "/v1/tasks", f.listAll, huma.Operation{
			OperationID: "list-tasks", Summary: "List tasks at any address", Tags: []string{caller},
			Parameters: list,
			Responses:  d.ok(200, "Tasks, those whose status changed last first, without history and artifacts.", wire.List[wire.Task]{}),
		}},
		{"GET", "/v1/tasks/{id}", f.getAny, huma.Operation{
			OperationID: "get-any-task", Summary: "Read a task at any address", Tags: []string{caller},
			Description: "Like reading it at its callee, for who knows only its id.",
			Parameters:  []*huma.Param{ownID, wait},
			Responses:   d.ok(200, "The task.", wire.Task{}),
		}},
		{"GET", "/v1/agents/{callee}/tasks/{id}", f.get, huma.Operation{
			OperationID: "get-task", Summary: "Read a task", Tags: []string{caller},
			Parameters: params(callerID, []*huma.Param{wait}),
			Responses:  d.ok(200, "The task.", wire.Task{}),
		}},
		{"POST", "/v1/agents/{callee}/tasks/{id}/cancel", f.cancel, huma.Operation{
			OperationID: "cancel-task", Summary: "Cancel a task", Tags: []string{caller},
			Description: "Canceling twice is the same as once. A task that ended otherwise is refused with 409.",
			Parameters:  callerID,
			Responses:   d.ok(200, "The task, canceled.", wire.Task{}),
		}},
		{"GET", "/v1/agents/me/tasks/next", f.next, huma.Operation{
			OperationID: "next-task", Summary: "Claim the next task", Tags: []string{callee},
			Parameters: params([]*huma.Param{d.number("wait", "Seconds to wait for a task.", 0, maxWait)}, hold),
			Responses:  d.with(d.ok(200, "The claimed task, with its claim_id, lease_expires_at, input and history.", wire.Task{}), 204, "There is no task."),
		}},
		{"GET", "/v1/agents/me/tasks/{id}", f.getOwn, huma.Operation{
			OperationID: "get-own-task", Summary: "Read a task that was sent to me", Tags: []string{callee},
			Parameters: params([]*huma.Param{ownID, wait, claim}),
			Responses:  d.ok(200, "The task.", wire.Task{}),
		}},
		{"POST", "/v1/agents/me/tasks/{id}/result", f.result, huma.Operation{
			OperationID: "report-result", Summary: "Report a result or ask a question", Tags: []string{callee},
			Description: "Accepted from the callee that claimed the task while it works on it; otherwise 409 and nothing is applied. The same result again is answered with the task. With next=1, the answer is {\"task\":…,\"next\":…}: the next task is claimed along with it. With the header Prefer: return=minimal, the task comes without input, history and artifacts.",
			Parameters:  params([]*huma.Param{ownID, claim, d.boolean("next", "Claim the next task, if one is ready.")}, hold, []*huma.Param{d.header("Prefer", "return=minimal leaves out input, history and artifacts.")}),
			RequestBody: d.body(wire.Result{}, true),
			Responses:   d.either(200, "The task; with next=1 also the next one or null.", wire.Task{}, wire.ResultReply{}),
		}},
		{"POST", "/v1/agents/me/tasks/{id}/events", f.events, huma.Operation{
			OperationID: "report-events", Summary: "Report progress and partial artifacts", Tags: []string{callee},
			Parameters:  []*huma.Param{ownID, claim},
			RequestBody: d.body(wire.EventsRequest{}, true),
			Responses:   d.ok(200, "The number of the task's newest event.", wire.EventsReply{}),
		}},
		{"POST", "/v1/agents/me/tasks/{id}/heartbeat", f.heartbeat, huma.Operation{
			OperationID: "heartbeat", Summary: "Keep a claim, and get news of its task", Tags: []string{callee},
			Parameters:  []*huma.Param{ownID, claim},
			RequestBody: d.body(wire.HeartbeatRequest{}, false),
			Responses:   d.ok(200, "What the worker should know.", wire.Heartbeat{}),
		}},
		{"POST", "/v1/agents/me/tasks/{id}/release", f.giveBack, huma.Operation{
			OperationID: "release-claim", Summary: "Give a claim back", Tags: []string{callee},
			Description: "The task is offered again at once, and that is no failure. Answered with 409, and nothing happens, unless the claim still holds the task. X-Claim is required.",
			Parameters:  []*huma.Param{ownID, claim},
			Responses:   d.with(map[string]*huma.Response{}, 204, "The claim holds the task no more."),
		}},
		{"POST", "/v1/agents/me/tasks/{id}/redeliver", f.redeliver, huma.Operation{
			OperationID: "redeliver-task", Summary: "Have a task delivered again", Tags: []string{callee},
			Description: "A task of the caller's address that waits for its next delivery is delivered at once, even if the endpoint could not be reached a moment ago. One that is held is taken from its holder. Answered with 409 if it has ended or waits for its caller.",
			Parameters:  []*huma.Param{ownID},
			Responses:   d.ok(200, "The task that is offered.", wire.Task{}),
		}},
		{"POST", "/v1/tasks/{id}/requeue", f.requeue, huma.Operation{
			OperationID: "requeue-task", Summary: "Offer a task again", Tags: []string{admin},
			Description: "A task that a worker holds is taken from it and offered again; one that waits for its next delivery is offered without waiting any longer. A failed one is sent again as a new task, which the answer shows. Needs an admin token.",
			Parameters:  []*huma.Param{ownID},
			Responses:   d.ok(200, "The task that is offered.", wire.Task{}),
		}},
		{"GET", "/api/activity", f.activity, huma.Operation{
			OperationID: "activity", Summary: "Follow what happens on the hub", Tags: []string{"Activity"},
			Description: "A page of lines, oldest first. With Accept: text/event-stream, a stream of them that goes on with what happens; each event's id is its cursor. Agents see lines of their own tasks, the administrator all.",
			Parameters: []*huma.Param{
				d.text("after", "The cursor after which to read; empty for the oldest line that is kept, and in a stream for what happens from now on."),
				d.header("Last-Event-ID", "In a stream, the same as after."),
				d.integer("limit", "Lines per page.", 1, maxActivity, defaultActivity),
			},
			Responses: d.stream(d.ok(200, "Lines of the feed.", wire.List[wire.Activity]{})),
		}},
	}
}

// params joins lists of parameters.
func params(lists ...[]*huma.Param) []*huma.Param {
	var all []*huma.Param
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// describe adds to an operation what all have: who may call, and how errors look.
func (f *face) describe(op *huma.Operation) {
	op.Security = []map[string][]string{{"bearer": {}}}
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	d := describer{f.api.OpenAPI().Components.Schemas}
	op.Responses["default"] = &huma.Response{
		Description: "An error. Its code tells programs what happened, its message tells people what to do; details.field is the path of the field at fault.",
		Content:     d.content(wire.ErrorBody{}),
	}
}

// describer writes OpenAPI descriptions; the schemas of Go types go to reg.
type describer struct{ reg huma.Registry }

func (d describer) schema(v any) *huma.Schema {
	return d.reg.Schema(reflect.TypeOf(v), true, "")
}

func (d describer) content(v any) map[string]*huma.MediaType {
	return map[string]*huma.MediaType{"application/json": {Schema: d.schema(v)}}
}

func (d describer) body(v any, required bool) *huma.RequestBody {
	return &huma.RequestBody{Required: required, Content: d.content(v)}
}

func (d describer) ok(status int, what string, v any) map[string]*huma.Response {
	return map[string]*huma.Response{strconv.Itoa(status): {Description: what, Content: d.content(v)}}
}

// either describes an answer that is one of two.
func (d describer) either(status int, what string, a, b any) map[string]*huma.Response {
	s := &huma.Schema{AnyOf: []*huma.Schema{d.schema(a), d.schema(b)}}
	return map[string]*huma.Response{strconv.Itoa(status): {
		Description: what, Content: map[string]*huma.MediaType{"application/json": {Schema: s}},
	}}
}

// with adds an answer without a body.
func (d describer) with(rs map[string]*huma.Response, status int, what string) map[string]*huma.Response {
	rs[strconv.Itoa(status)] = &huma.Response{Description: what}
	return rs
}

// stream adds server-sent events to the successful answer.
func (d describer) stream(rs map[string]*huma.Response) map[string]*huma.Response {
	rs[strconv.Itoa(http.StatusOK)].Content["text/event-stream"] = &huma.MediaType{
		Schema: &huma.Schema{Type: huma.TypeString, Description: "Events whose data is an Activity."},
	}
	return rs
}

func (d describer) path(name, what string) *huma.Param {
	return &huma.Param{Name: name, In: "path", Description: what, Required: true, Schema: &huma.Schema{Type: huma.TypeString}}
}

func (d describer) header(name, what string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Description: what, Schema: &huma.Schema{Type: huma.TypeString}}
}

func (d describer) text(name, what string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: what, Schema: &huma.Schema{Type: huma.TypeString}}
}

func (d describer) boolean(name, what string) *huma.Param {
	return &huma.Param{Name: name, In: "query", Description: what, Schema: &huma.Schema{Type: huma.TypeBoolean}}
}

func (d describer) number(name, what string, low, high int) *huma.Param {
	l, h := float64(low), float64(high)
	return &huma.Param{Name: name, In: "query", Description: what, Schema: &huma.Schema{Type: huma.TypeNumber, Minimum: &l, Maximum: &h}}
}

func (d describer) integer(name, what string, low, high, def int) *huma.Param {
	p := d.number(name, what, low, high)
	p.Schema.Type, p.Schema.Default = huma.TypeInteger, def
	return p
}
