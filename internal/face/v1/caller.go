package v1

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

const (
	defaultList = 50
	maxList     = 100
)

// everything is what a reader of one task gets of it.
func everything() hub.Load { return hub.Load{History: -1, Artifacts: true} }

// send serves POST /v1/agents/{callee}/tasks.
func (f *face) send(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	wait, err := seconds(r.URL.Query(), "wait", maxWait*time.Second)
	if err != nil {
		return err
	}
	body, err := f.body(w, r)
	if err != nil {
		return err
	}
	req, err := sendRequest(r, p, body)
	if err != nil {
		return err
	}
	res, err := f.opt.Engine.SendAndWait(r.Context(), p, req, wait, everything())
	if err != nil {
		// The ids that A2A has inside of the message are beside it here.
		return renamed(err, map[string]string{"message.contextId": "context_id", "message.taskId": "task_id"})
	}
	if res.LineageIgnored {
		w.Header().Set("Holdfast-Lineage", "ignored")
	}
	return f.replyTask(w, res.Task, p)
}

// renamed names the field at fault as this API has it.
func renamed(err error, names map[string]string) error {
	var e *hub.Error
	if !errors.As(err, &e) || names[e.Field] == "" {
		return err
	}
	moved := *e
	moved.Field = names[e.Field]
	return &moved
}

// sendRequest puts together what a send's path, headers and body say.
func sendRequest(r *http.Request, p hub.Principal, body []byte) (engine.SendRequest, error) {
	s, err := decodeSend(body)
	if err != nil {
		return engine.SendRequest{}, err
	}
	key := r.Header.Get("Idempotency-Key")
	s.name(p, key)
	parent := r.Header.Get("Holdfast-Task")
	if parent == "" {
		parent = r.Header.Get("Lagrange-Task")
	}
	return engine.SendRequest{
		To: callee(r, p), MessageID: s.message.ID, ContextID: s.context, TaskID: s.task,
		Message: s.message.Body, Tags: s.tags, Metadata: s.metadata, Deadline: s.deadline,
		AnswerContext: true, IdempotencyKey: key, HoldfastTask: parent,
		ParentCall: r.Header.Get("X-Parent-Call"), Traceparent: r.Header.Get("Traceparent"),
	}, nil
}

// read gives a task, after at most wait if it is not settled.
func (f *face) read(r *http.Request, p hub.Principal, ref engine.Ref, wait time.Duration) (*hub.Task, error) {
	if wait == 0 {
		return f.opt.Engine.Task(r.Context(), p, ref, everything())
	}
	return f.opt.Engine.Wait(r.Context(), p, ref, wait, everything())
}

// get serves GET /v1/agents/{callee}/tasks/{id}.
func (f *face) get(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	return f.show(w, r, p, callee(r, p), "")
}

// getAny serves GET /v1/tasks/{id}.
func (f *face) getAny(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	return f.show(w, r, p, "", "")
}

// show answers with a task, if need be after waiting for it. With a claim, it must
// be the task's newest.
func (f *face) show(w http.ResponseWriter, r *http.Request, p hub.Principal, at, claim string) error {
	wait, err := seconds(r.URL.Query(), "wait", maxWait*time.Second)
	if err != nil {
		return err
	}
	t, err := f.read(r, p, engine.Ref{Callee: at, Task: r.PathValue("id")}, wait)
	if err != nil {
		return err
	}
	if err := checkClaim(t, claim); err != nil {
		return err
	}
	v := f.view(t, p)
	if v.Dispatch, v.RemoteTask, err = f.dispatched(r.Context(), t); err != nil {
		return err
	}
	return f.reply(w, canon.AppendTaskV1(make([]byte, 0, taskSize(t)), t, v))
}

// checkClaim refuses a claim that is not the task's newest; none at all will do.
func checkClaim(t *hub.Task, claim string) error {
	if claim == "" || claim == t.ClaimID() {
		return nil
	}
	if n, ok := hub.ParseClaimID(t.ID, claim); !ok || n > t.Attempt {
		return hub.ErrNoSuchClaim()
	}
	return hub.ErrClaimLapsed()
}

// cancel serves POST /v1/agents/{callee}/tasks/{id}/cancel. A body is ignored.
func (f *face) cancel(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	t, err := f.opt.Engine.Cancel(r.Context(), p, engine.Ref{Callee: callee(r, p), Task: r.PathValue("id")})
	if err != nil {
		return err
	}
	return f.replyTask(w, t, p)
}

// requeue serves POST /v1/tasks/{id}/requeue.
func (f *face) requeue(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	if !p.Admin() {
		return hub.ErrNotPermitted()
	}
	t, err := f.opt.Engine.Requeue(r.Context(), p, r.PathValue("id"))
	if err != nil {
		return err
	}
	return f.replyTask(w, t, p)
}

// listAt serves GET /v1/agents/{callee}/tasks.
func (f *face) listAt(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	return f.list(w, r, p, callee(r, p))
}

// listAll serves GET /v1/tasks.
func (f *face) listAll(w http.ResponseWriter, r *http.Request, p hub.Principal) error {
	return f.list(w, r, p, "")
}

func (f *face) list(w http.ResponseWriter, r *http.Request, p hub.Principal, at string) error {
	filter, err := taskFilter(r.URL.Query(), p)
	if err != nil {
		return err
	}
	page, err := f.opt.Engine.Tasks(r.Context(), p, at, filter)
	if err != nil {
		return err
	}
	b := append(make([]byte, 0, 64+1024*len(page.Tasks)), `{"data":[`...)
	for i, t := range page.Tasks {
		if i > 0 {
			b = append(b, ',')
		}
		b = f.appendTask(b, t, p)
	}
	b = append(b, `],"next_cursor":`...)
	b = appendTextOrNull(b, page.Next)
	return f.reply(w, append(b, '}'))
}

// taskFilter reads what a list is to show.
func taskFilter(q url.Values, p hub.Principal) (hub.TaskFilter, error) {
	fl := hub.TaskFilter{By: p.Viewer(), Context: q.Get("context_id"), Cursor: q.Get("cursor")}
	var errs [4]error
	fl.State, errs[0] = state(q, "state")
	fl.Pending, errs[1] = flag(q, "pending")
	fl.Sent, errs[2] = flag(q, "sent")
	fl.Limit, errs[3] = whole(q, "limit", 1, maxList, defaultList)
	for _, err := range errs {
		if err != nil {
			return fl, err
		}
	}
	return fl, nil
}

// callee is the address that a path names; me is the principal's own.
func callee(r *http.Request, p hub.Principal) string {
	if ref := r.PathValue("callee"); ref != "me" {
		return ref
	}
	return p.Address
}

// appendTask appends a task as p sees it.
func (f *face) appendTask(b []byte, t *hub.Task, p hub.Principal) []byte {
	return canon.AppendTaskV1(b, t, f.view(t, p))
}

// view is how p sees a task.
func (f *face) view(t *hub.Task, p hub.Principal) canon.V1View {
	return canon.V1View{
		ForCallee: p.Address == t.Callee.ID,
		Hint:      f.opt.Engine.Hint(p, t),
		Delivery:  f.opt.Engine.Delivery(t.Callee),
	}
}

// replyTask answers with a task.
func (f *face) replyTask(w http.ResponseWriter, t *hub.Task, p hub.Principal) error {
	return f.reply(w, f.appendTask(make([]byte, 0, taskSize(t)), t, p))
}

// reply answers 200 with a JSON body. A client that has gone away is no error: what
// it asked for is done.
func (f *face) reply(w http.ResponseWriter, body []byte) error {
	_ = write(w, http.StatusOK, append(body, '\n'))
	return nil
}

// taskSize is about how many bytes a task takes.
func taskSize(t *hub.Task) int {
	n := 1024 + 2*len(t.StatusMessage)
	for _, m := range t.History {
		n += 2 * len(m.Body)
	}
	for _, a := range t.Artifacts {
		n += len(a)
	}
	return n
}

func appendTextOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return rawjson.AppendText(b, s)
}
