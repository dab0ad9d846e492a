package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
)

// task is the part of a task that the actors look at.
type task struct {
	ID        string `json:"id"`
	State     string `json:"state"`
	ClaimID   string `json:"claim_id"`
	Attempt   int    `json:"attempt"`
	Input     struct{ Message message }
	History   []message
	Artifacts []struct{ Parts []part }
	Status    struct{ Message *message }
}

type message struct {
	Role  string
	Parts []part
}

type part struct {
	Text string `json:"text"`
}

func (m message) text() string {
	var b strings.Builder
	for _, p := range m.Parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

func terminal(state string) bool {
	return slices.Contains([]string{"completed", "failed", "rejected", "canceled"}, state)
}

type object = map[string]any

func textMessage(role, text string) object {
	return object{"role": role, "parts": []object{{"text": text}}}
}

// caller sends tasks and messages and cancels some, and repeats what it does not
// know the outcome of under the same key.
type caller struct {
	w      *world
	name   string
	api    *hubproc.Client
	r      *rand.Rand
	prefix string // of its keys and texts
	n      int
	open   []string // tasks that may not have ended
}

// maxOpen bounds what one caller has under way, so that a run can end.
const maxOpen = 25

func (c *caller) run() {
	for !c.w.isQuiet() {
		switch p := c.r.IntN(100); {
		case p < 60 && len(c.open) < maxOpen:
			c.send()
		case p < 75:
			if own := c.own(); own != nil {
				c.message(own.id, own.callee)
			}
		case p < 83:
			c.cancel()
		default:
			c.look()
		}
	}
}

// own is one of the caller's own recent tasks.
func (c *caller) own() *record {
	if len(c.open) == 0 {
		return nil
	}
	id := c.open[c.r.IntN(len(c.open))]
	c.w.ledger.mu.Lock()
	defer c.w.ledger.mu.Unlock()
	r := *c.w.ledger.tasks[id]
	return &r
}

func (c *caller) text() string {
	c.n++
	return c.prefix + "-" + strconv.Itoa(c.n) + "."
}

// send sends a new task.
func (c *caller) send() {
	callee, text := steady, c.text()
	if c.r.IntN(4) == 0 {
		callee = frail
	}
	path := "/v1/agents/" + callee + "/tasks"
	if c.r.IntN(2) == 0 {
		path += "?wait=0.5"
	}
	body := object{"message": textMessage("user", text)}
	begun := c.w.history.now()
	t, ok := c.post(path, body, text)
	if !ok {
		return
	}
	c.w.history.add(begun, happened{task: t.ID, what: sending, callee: callee})
	// A hub whose store goes away right after it has taken a task answers without its input.
	if got := t.Input.Message.text(); got != text && (got != "" || len(c.w.hubs) == 1) {
		c.w.problem("task %s was sent with %q and has %q", t.ID, text, got)
	}
	if !c.w.ledger.sent(t.ID, c.name, callee, text) {
		c.w.problem("two sends got the same task %s", t.ID)
	}
	c.open = append(c.open, t.ID)
	if c.r.IntN(10) == 0 {
		c.repeat(path, body, text, t.ID)
	}
}

// post sends something under a key and gives the task that it is answered with; ok
// is false when there is none.
func (c *caller) post(path string, body object, key string) (t task, ok bool) {
	a, ok := c.w.insist(c.w.ctx, c.api, "POST", path, body, "Idempotency-Key", key)
	if !ok {
		return t, false
	}
	if !a.OK() {
		c.w.problem("POST %s: %d %s", path, a.Status, a.Body)
		return t, false
	}
	if err := json.Unmarshal(a.Body, &t); err != nil || t.ID == "" {
		c.w.problem("POST %s: the answer %s is no task: %v", path, a.Body, err)
		return t, false
	}
	return t, true
}

// repeat sends the same again, which is the same task, and another body under the
// same key, which is refused.
func (c *caller) repeat(path string, body object, key, id string) {
	if again, ok := c.post(path, body, key); ok && again.ID != id {
		c.w.problem("the key %s gave task %s and then %s", key, id, again.ID)
	}
	a, ok := c.w.insist(c.w.ctx, c.api, "POST", path, object{"message": textMessage("user", "something else")}, "Idempotency-Key", key)
	if ok && a.Status != 409 {
		c.w.problem("the key %s with another body: %d %s", key, a.Status, a.Body)
	}
	c.w.ledger.count("repeats")
}

// message adds a message to a task, which answers it if it has asked something.
func (c *caller) message(id, callee string) {
	text := c.text()
	path := "/v1/agents/" + callee + "/tasks"
	body := object{"task_id": id, "message": textMessage("user", text)}
	begun := c.w.history.now()
	a, ok := c.w.insist(c.w.ctx, c.api, "POST", path, body, "Idempotency-Key", text)
	switch {
	case !ok:
	case a.OK():
		c.w.history.add(begun, happened{task: id, what: saying})
		c.w.ledger.change(id, "messages", func(r *record) { r.messages = append(r.messages, text) })
	case a.Status != 409:
		c.w.problem("a message to task %s: %d %s", id, a.Status, a.Body)
	}
}

func (c *caller) cancel() {
	own := c.own()
	if own == nil {
		return
	}
	begun := c.w.history.now()
	a, ok := c.w.insist(c.w.ctx, c.api, "POST", "/v1/agents/"+own.callee+"/tasks/"+own.id+"/cancel", nil)
	if ok {
		c.w.history.add(begun, happened{task: own.id, what: canceling, refused: !a.OK()})
	}
	switch {
	case !ok:
	case a.OK():
		c.w.ledger.change(own.id, "cancels", func(r *record) { r.canceled = true })
	case a.Status != 409:
		c.w.problem("cancel task %s: %d %s", own.id, a.Status, a.Body)
	}
}

// look reads a task, and forgets it once it has ended. It waits if there is nothing
// else to do.
func (c *caller) look() {
	own := c.own()
	if own == nil {
		return
	}
	begun := c.w.history.now()
	a, ok := c.w.insist(c.w.ctx, c.api, "GET", "/v1/agents/"+own.callee+"/tasks/"+own.id+"?wait=0.1", nil)
	if !ok {
		return
	}
	var t task
	if !a.OK() || json.Unmarshal(a.Body, &t) != nil || t.ID != own.id {
		c.w.problem("an acknowledged task %s: %d %s", own.id, a.Status, a.Body)
		return
	}
	c.w.history.add(begun, happened{task: t.ID, what: looking, state: t.State, attempt: t.Attempt})
	if t.State == "input_required" && c.r.IntN(2) == 0 {
		c.message(own.id, own.callee)
	}
	if terminal(t.State) {
		c.open = slices.DeleteFunc(c.open, func(id string) bool { return id == own.id })
	}
}

// worker takes tasks and does all that a worker may do, well and badly. It can be killed:
// all its connections break, and nobody knows what it would have done.
type worker struct {
	w    *world
	name string
	api  *hubproc.Client
	r    *rand.Rand
	mu   sync.Mutex
	kill context.CancelFunc
}

// run works until the end; whenever it is killed a new one takes its place.
func (k *worker) run() {
	for !k.w.isOver() {
		ctx, kill := context.WithCancel(k.w.ctx)
		k.mu.Lock()
		k.kill = kill
		k.mu.Unlock()
		k.work(ctx)
		kill()
	}
}

// die kills whoever works just now.
func (k *worker) die() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kill != nil {
		k.kill()
	}
}

func (k *worker) work(life context.Context) {
	for life.Err() == nil && !k.w.isOver() {
		path := "/v1/agents/me/tasks/next?wait=0.5&lease=1"
		if k.r.IntN(3) == 0 {
			path += "&ack=1"
		}
		begun := k.w.history.now()
		ctx, cancel := context.WithTimeout(life, 20*time.Second)
		a, err := k.api.Do(ctx, "GET", path, nil)
		cancel()
		switch {
		case err != nil || a.Status == 503:
			k.w.pause(10 * time.Millisecond)
		case a.Status == 200:
			k.take(life, begun, a.Body)
		case a.Status != 204:
			k.w.problem("ask for a task: %d %s", a.Status, a.Body)
		}
	}
}

// take works on a claimed task, and on those that come with the replies.
func (k *worker) take(ctx context.Context, begun int64, body []byte) {
	for body != nil {
		var t task
		if err := json.Unmarshal(body, &t); err != nil || t.ClaimID == "" {
			k.w.problem("the claimed task %s is none: %v", body, err)
			return
		}
		if t.Input.Message.text() == "" {
			k.w.problem("the claimed task %s (attempt %d) came without its input: %s", t.ID, t.Attempt, body)
		}
		k.w.ledger.claimed(t.ID, t.Attempt)
		k.w.history.add(begun, happened{task: t.ID, what: claiming, attempt: t.Attempt})
		begun = k.w.history.now()
		body = k.handle(ctx, t)
	}
}

// handle does something with a task, and gives the next one if the reply brought one.
func (k *worker) handle(ctx context.Context, t task) (next []byte) {
	p := k.r.IntN(100)
	if k.w.isQuiet() {
		p = 99
	}
	text := fmt.Sprintf("%s/%d", t.ID, t.Attempt)
	switch {
	case p < 5: // forgets it
		k.w.ledger.count("forgotten")
		return nil
	case p < 9: // comes back when the lease is over
		k.w.pause(1300 * time.Millisecond)
		return k.complete(ctx, t, text)
	case p < 20:
		k.reply(ctx, t, "", object{"state": "input_required", "message": textMessage("agent", "which? "+text)}, "questions",
			func(r *record) { r.asked = append(r.asked, "which? "+text) })
		return nil
	case p < 26:
		k.reply(ctx, t, "", object{"state": "failed", "error": "broken " + text}, "failures", func(r *record) { r.end = "failed" })
		return nil
	case p < 30:
		k.reply(ctx, t, "", object{"state": "rejected"}, "rejections", func(r *record) { r.end = "rejected" })
		return nil
	case p < 45:
		k.progress(ctx, t, text)
	case p < 50:
		if a, ok := k.post(ctx, t, "heartbeat", nil); ok && !a.OK() && a.Status != 409 {
			k.w.problem("heartbeat of %s: %d %s", t.ClaimID, a.Status, a.Body)
		}
	}
	return k.complete(ctx, t, text)
}

// complete ends a task with an artifact, sometimes twice with the same, and asks for
// the next one now and then.
func (k *worker) complete(ctx context.Context, t task, text string) (next []byte) {
	query := ""
	if k.r.IntN(3) == 0 {
		query = "?next=1&lease=1"
	}
	body := object{"state": "completed", "artifacts": []object{{"artifact_id": "result", "parts": []object{{"text": text}}}}}
	a, done := k.reply(ctx, t, query, body, "completions", func(r *record) {
		r.end = "completed"
		r.artifacts = append(r.artifacts, text)
	})
	if done && k.r.IntN(10) == 0 {
		if again, ok := k.post(ctx, t, "result", body); ok && !again.OK() {
			k.w.problem("the same result of %s again: %d %s", t.ClaimID, again.Status, again.Body)
		}
	}
	if !done || query == "" {
		return nil
	}
	var r struct{ Next json.RawMessage }
	if err := json.Unmarshal(a.Body, &r); err != nil {
		k.w.problem("the reply with the next task is %s: %v", a.Body, err)
	}
	if string(r.Next) == "null" {
		return nil
	}
	return r.Next
}

// progress reports events: an artifact in two pieces and a status.
func (k *worker) progress(ctx context.Context, t task, text string) {
	chunk := func(s string, more bool) object {
		return object{"artifact": object{"artifact_id": "log", "parts": []object{{"text": s}}}, "append": more}
	}
	body := object{"events": []object{
		chunk("begin "+text, false),
		{"status": object{"state": "working", "message": textMessage("agent", "busy")}},
		chunk("end "+text, true),
	}}
	begun := k.w.history.now()
	a, ok := k.post(ctx, t, "events", body)
	if a.OK() {
		k.w.history.add(begun, happened{task: t.ID, what: reporting, attempt: t.Attempt})
	}
	switch {
	case !ok:
	case a.OK():
		k.w.ledger.change(t.ID, "progress reports", func(r *record) { r.artifacts = append(r.artifacts, "begin "+text, "end "+text) })
	case a.Status != 409:
		k.w.problem("events of %s: %d %s", t.ClaimID, a.Status, a.Body)
	}
}

// reply sends a result; done says that it was accepted, and is noted.
func (k *worker) reply(ctx context.Context, t task, query string, body object, what string, note func(*record)) (a hubproc.Answer, done bool) {
	state, _ := body["state"].(string)
	begun := k.w.history.now()
	a, ok := k.post(ctx, t, "result"+query, body)
	if !ok || a.OK() {
		k.w.history.add(begun, happened{task: t.ID, what: reporting, attempt: t.Attempt, state: state, unknown: !ok})
	}
	switch {
	case !ok:
		return a, false
	case a.OK():
		k.w.ledger.change(t.ID, what, note)
		return a, true
	case a.Status != 409:
		k.w.problem("a result of %s: %d %s", t.ClaimID, a.Status, a.Body)
	default:
		k.w.ledger.count("late reports")
	}
	return a, false
}

// post reports something under the claim of a task. If a worker had a newer claim
// already when this began, it has to be refused.
func (k *worker) post(ctx context.Context, t task, what string, body any) (hubproc.Answer, bool) {
	newer := k.w.ledger.newestClaim(t.ID) > t.Attempt
	a, ok := k.w.insist(ctx, k.api, "POST", "/v1/agents/me/tasks/"+t.ID+"/"+what, body, "X-Claim", t.ClaimID)
	if ok && a.OK() && newer {
		k.w.problem("%s under the claim %s was accepted although the task had been claimed again", what, t.ClaimID)
	}
	return a, ok
}
