package bench

import (
	"encoding/json"
	"io"
	"net/http"

	"github.com/google/uuid"
)

// echoWebhook is an agent that is a function behind a URL. It ends every task.
func echoWebhook(w http.ResponseWriter, r *http.Request) {
	if _, err := io.Copy(io.Discard, r.Body); err == nil {
		_, _ = io.WriteString(w, "done") // a client that is gone needs no answer
	}
}

// echoCard names only the path of its agent, since nothing else of it counts.
const echoCard = `{"name":"echo","description":"Ends every task.","version":"1","skills":[],"capabilities":{"streaming":true},"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],` +
	`"supportedInterfaces":[{"url":"http://echo.example/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`

// echoAgent is an agent that is an A2A server. It ends every task, and remembers none.
func echoAgent(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		reply(w, echoCard)
		return
	}
	var in struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		http.Error(w, "this is no JSON-RPC", http.StatusBadRequest)
		return
	}
	result := `{"jsonrpc":"2.0","id":` + string(in.ID) + `,"result":{"task":{"id":"` + uuid.NewString() + `","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"},` +
		`"artifacts":[{"artifactId":"a","parts":[{"text":"done"}]}]}}}`
	switch in.Method {
	case "SendMessage":
		reply(w, result)
	case "SendStreamingMessage":
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+result+"\n\n")
	default:
		reply(w, `{"jsonrpc":"2.0","id":`+string(in.ID)+`,"error":{"code":-32001,"message":"Task not found"}}`)
	}
}
