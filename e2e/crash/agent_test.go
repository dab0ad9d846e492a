package crash

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

// An agent is a process of its own, this test's binary started again, so that it can be
// killed. Its settings are in the environment.
const (
	agentKind   = "CRASH_AGENT"        // webhook or a2a; in other processes it is empty
	agentListen = "CRASH_AGENT_LISTEN" // its address
	agentLog    = "CRASH_AGENT_LOG"    // the file in which it notes what came
	// agentMemory is set for one that knows its tasks still when it is started again.
	agentMemory  = "CRASH_AGENT_MEMORY"
	agentStreams = "CRASH_AGENT_STREAMS" // set for an A2A server that streams
	agentHubs    = "CRASH_AGENT_HUBS"    // URLs of the replicas, where a webhook reports later
	agentToken   = "CRASH_AGENT_TOKEN"   // with this
)

// noted is a line of an agent's log: a task that was sent to it, or a cancel.
type noted struct {
	Task    string `json:"task"`    // the hub's
	Message string `json:"message"` // its id
	Attempt int    `json:"attempt"` // 0 where the agent is not told
	At      int64  `json:"at"`      // in milliseconds
	Own     string `json:"own"`     // what the agent calls the task
	Text    string `json:"text"`
	Until   int64  `json:"until"` // when it has done the task
	Cancel  string `json:"cancel,omitempty"`
}

// agentProcess is an agent that does what it is sent and notes each send before it answers:
// what has been written to a file outlives a kill.
type agentProcess struct {
	log     *os.File
	streams bool
	mu      sync.Mutex
	tasks   map[string]*noted // by its own name
	stopped map[string]bool   // those that were canceled
}

// agentMain runs an agent until it is killed.
func agentMain() {
	a := &agentProcess{tasks: map[string]*noted{}, stopped: map[string]bool{}, streams: os.Getenv(agentStreams) != ""}
	if os.Getenv(agentMemory) != "" {
		list, err := readLog(os.Getenv(agentLog))
		if err != nil {
			log.Fatal(err)
		}
		for i := range list {
			a.remember(&list[i])
		}
	}
	var err error
	if a.log, err = os.OpenFile(os.Getenv(agentLog), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		log.Fatal(err)
	}
	handler := map[string]http.HandlerFunc{"webhook": a.webhook, "a2a": a.a2a}[os.Getenv(agentKind)]
	log.Fatal(http.ListenAndServe(os.Getenv(agentListen), handler))
}

// readLog reads what an agent has noted.
func readLog(path string) (list []noted, err error) {
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	for line := range bytes.Lines(b) {
		var n noted
		if err := json.Unmarshal(line, &n); err != nil {
			return nil, fmt.Errorf("%s in %s: %w", line, path, err)
		}
		list = append(list, n)
	}
	return list, nil
}

func (a *agentProcess) remember(n *noted) {
	if n.Cancel != "" {
		a.stopped[n.Cancel] = true
		return
	}
	a.tasks[n.Own] = n
}

// note writes a line with one write, and remembers it.
func (a *agentProcess) note(n *noted) {
	line, err := json.Marshal(n)
	if err != nil {
		log.Fatal(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := a.log.Write(append(line, '\n')); err != nil {
		log.Fatal(err)
	}
	a.remember(n)
}

// come notes a send, and decides how long the task takes.
func (a *agentProcess) come(n *noted) *noted {
	now := time.Now()
	n.At, n.Until = now.UnixMilli(), now.Add(rand.N(400*time.Millisecond)).UnixMilli()
	n.Own = fmt.Sprintf("own-%d-%d", os.Getpid(), now.UnixNano())
	a.note(n)
	return n
}

// work is over when the task is done.
func (n *noted) work() <-chan time.Time { return time.After(time.Until(time.UnixMilli(n.Until))) }

// webhook answers with the result, or that it reports that later.
func (a *agentProcess) webhook(w http.ResponseWriter, r *http.Request) {
	var in struct {
		TaskID  string `json:"task_id"`
		ClaimID string `json:"claim_id"`
		Attempt int    `json:"attempt"`
		Message struct {
			ID    string `json:"message_id"`
			Parts []part `json:"parts"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := message{Parts: in.Message.Parts}.text()
	n := a.come(&noted{Task: in.TaskID, Message: in.Message.ID, Attempt: in.Attempt, Text: text})
	if rand.IntN(3) == 0 {
		go reportLater(n, in.ClaimID)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"state":"working"}`))
		return
	}
	select {
	case <-n.work():
		w.Header().Set("Content-Type", "text/plain")
		_, _ = w.Write([]byte(done(text)))
	case <-r.Context().Done():
	}
}

// done is the result of a task.
func done(text string) string { return "did " + text }

// reportLater reports the result with the claim, to whichever replica takes it.
func reportLater(n *noted, claim string) {
	<-n.work()
	body, err := json.Marshal(object{"state": "completed", "artifacts": []object{{"artifact_id": "result", "parts": []object{{"text": done(n.Text)}}}}})
	if err != nil {
		log.Fatal(err)
	}
	hubs := strings.Split(os.Getenv(agentHubs), ",")
	for try := range 50 {
		req, err := http.NewRequest(http.MethodPost, hubs[try%len(hubs)]+"/v1/agents/me/tasks/"+n.Task+"/result", bytes.NewReader(body))
		if err != nil {
			log.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+os.Getenv(agentToken))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Claim", claim)
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode < 500 && res.StatusCode != http.StatusTooManyRequests {
				return
			}
		}
		<-time.After(100 * time.Millisecond)
	}
}

// a2a is an A2A server of 1.0 with JSON-RPC.
func (a *agentProcess) a2a(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodGet {
		if !strings.HasSuffix(r.URL.Path, "/agent-card.json") {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(object{
			"name": "crash", "capabilities": object{"streaming": a.streams},
			"supportedInterfaces": []object{{"url": "http://" + os.Getenv(agentListen) + "/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}},
		})
		return
	}
	var in struct {
		ID     json.RawMessage
		Method string
		Params struct {
			ID      string
			Message struct {
				MessageID string `json:"messageId"`
				Parts     []part
			}
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	call := &rpc{w: w, r: r, id: in.ID}
	switch in.Method {
	case "SendMessage", "SendStreamingMessage":
		n := a.come(&noted{
			Task: r.Header.Get("Holdfast-Task"), Message: in.Params.Message.MessageID,
			Text: message{Parts: in.Params.Message.Parts}.text(),
		})
		if in.Method == "SendMessage" {
			call.result(object{"task": a.view(n)})
			return
		}
		a.stream(call, n)
	default:
		a.ask(call, in.Method, in.Params.ID)
	}
}

// ask answers what is asked of a task that it may have.
func (a *agentProcess) ask(call *rpc, method, id string) {
	a.mu.Lock()
	n := a.tasks[id]
	a.mu.Unlock()
	switch {
	case n == nil:
		call.refuse(-32001, "there is no such task")
	case method == "GetTask":
		call.result(a.view(n))
	case method == "SubscribeToTask" && a.streams && !a.ended(n):
		a.stream(call, n)
	case method == "CancelTask" && !a.ended(n):
		a.note(&noted{Cancel: id})
		call.result(a.view(n))
	default:
		call.refuse(-32004, "it does not do that, or the task has ended")
	}
}

// ended reports whether a task is done or canceled.
func (a *agentProcess) ended(n *noted) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stopped[n.Own] || time.Now().UnixMilli() >= n.Until
}

// view is the task as A2A has it.
func (a *agentProcess) view(n *noted) object {
	ended := a.ended(n)
	a.mu.Lock()
	defer a.mu.Unlock()
	t := object{"id": n.Own, "contextId": "of-" + n.Own, "status": object{"state": "TASK_STATE_WORKING"}}
	switch {
	case a.stopped[n.Own]:
		t["status"] = object{"state": "TASK_STATE_CANCELED"}
	case ended:
		t["status"] = object{"state": "TASK_STATE_COMPLETED"}
		t["artifacts"] = []object{result(n)}
	}
	return t
}

func result(n *noted) object {
	return object{"artifactId": "result", "parts": []object{{"text": done(n.Text)}}}
}

// stream tells a task as it is, and its end in two events.
func (a *agentProcess) stream(call *rpc, n *noted) {
	call.event(object{"task": a.view(n)})
	select {
	case <-n.work():
	case <-call.r.Context().Done():
		return
	}
	state := object{"state": "TASK_STATE_COMPLETED"}
	a.mu.Lock()
	canceled := a.stopped[n.Own]
	a.mu.Unlock()
	if canceled {
		state = object{"state": "TASK_STATE_CANCELED"}
	} else {
		call.event(object{"artifactUpdate": object{"taskId": n.Own, "contextId": "of-" + n.Own, "artifact": result(n), "lastChunk": true}})
	}
	call.event(object{"statusUpdate": object{"taskId": n.Own, "contextId": "of-" + n.Own, "status": state}})
}

// rpc is a request of JSON-RPC that is to be answered.
type rpc struct {
	w  http.ResponseWriter
	r  *http.Request
	id json.RawMessage
}

func (c *rpc) result(v any) {
	_ = json.NewEncoder(c.w).Encode(object{"jsonrpc": "2.0", "id": c.id, "result": v})
}

func (c *rpc) refuse(code int, why string) {
	_ = json.NewEncoder(c.w).Encode(object{"jsonrpc": "2.0", "id": c.id, "error": object{"code": code, "message": why}})
}

// event sends one event of a stream.
func (c *rpc) event(v any) {
	c.w.Header().Set("Content-Type", "text/event-stream")
	out := bufio.NewWriter(c.w)
	b, err := json.Marshal(object{"jsonrpc": "2.0", "id": c.id, "result": v})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintf(out, "data: %s\n\n", b)
	_ = cmp.Or(out.Flush(), http.NewResponseController(c.w).Flush())
}
