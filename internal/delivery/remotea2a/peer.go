package remotea2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// peer is an agent and how it is called.
type peer struct {
	d     *Deliverer
	doer  Doer
	http2 Doer   // for gRPC; nil if that is not spoken
	url   string // as registered
	// address is the id of that which it is the agent of, and endpoint how that says that
	// it is reached.
	address  string
	endpoint *hub.Endpoint
	agent    *agent
	header   http.Header
	sent     func() // is called once a request has a connection
}

// operation is one of A2A's, by its names.
type operation struct {
	name, old string
	// path is that of HTTP+JSON, with the task's id for %s.
	method, path string
}

var (
	opSend      = operation{"SendMessage", "message/send", http.MethodPost, "/message:send"}
	opStream    = operation{"SendStreamingMessage", "message/stream", http.MethodPost, "/message:stream"}
	opGet       = operation{"GetTask", "tasks/get", http.MethodGet, "/tasks/%s"}
	opCancel    = operation{"CancelTask", "tasks/cancel", http.MethodPost, "/tasks/%s:cancel"}
	opSubscribe = operation{"SubscribeToTask", "tasks/resubscribe", http.MethodPost, "/tasks/%s:subscribe"}
)

// authorise adds the credential of an endpoint.
func authorise(h http.Header, e *hub.Endpoint, credential string) {
	switch e.Auth {
	case "bearer":
		h.Set("Authorization", "Bearer "+credential)
	case "basic":
		h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(credential)))
	case "header":
		h.Set(e.Header, credential)
	}
}

// request makes the request of an operation. params is the body of HTTP+JSON, too.
func (p *peer) request(ctx context.Context, op operation, task string, params []byte) (*http.Request, error) {
	method, place, media := http.MethodPost, p.agent.url, "application/json"
	body, err := params, error(nil)
	if p.agent.tenant != "" && !p.agent.v03 { // which is in the path of HTTP+JSON
		body = append(rawjson.AppendText([]byte(`{"tenant":`), p.agent.tenant), ',')
		body = append(body, params[1:]...)
	}
	switch p.agent.binding {
	case httpJSON:
		method, place = op.method, strings.TrimSuffix(p.agent.url, "/")+p.path(op, task)
		body = params
		if method == http.MethodGet {
			body = nil
		}
	case overGRPC:
		place, media = place+"/"+serviceV1+"/"+op.name, mediaGRPC
		body, err = frame(op, body)
	default:
		body = p.envelope(op, body)
	}
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, place, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the URL of the agent is not valid") // the error repeats it
	}
	for name, values := range p.header {
		req.Header[name] = values
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", media)
	}
	if p.agent.binding == overGRPC {
		req.Header.Set("Te", "trailers")
	}
	if !p.agent.v03 {
		req.Header.Set("A2A-Version", "1.0")
	}
	return req, nil
}

// path is that of an operation of HTTP+JSON, below the tenant's if there is one.
func (p *peer) path(op operation, task string) string {
	path := strings.ReplaceAll(op.path, "%s", url.PathEscape(task))
	if p.agent.tenant != "" {
		return "/" + url.PathEscape(p.agent.tenant) + path
	}
	return path
}

// envelope is a request of JSON-RPC.
func (p *peer) envelope(op operation, params []byte) []byte {
	name := op.name
	if p.agent.v03 {
		name = op.old
	}
	body := []byte(`{"jsonrpc":"2.0","id":"` + uuid.NewString() + `","method":"` + name + `","params":`)
	return append(append(body, params...), '}')
}

// fetch reads what is at a URL, of at most limit bytes.
func (p *peer) fetch(ctx context.Context, place string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.d.opt.Silence)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, errors.New("the URL of the agent is not valid")
	}
	for name, values := range p.header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	resp, err := p.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAll(resp.Body, limit)
}

// do sends a request, and refuses what is no success.
func (p *peer) do(req *http.Request) (*http.Response, error) {
	if p.sent != nil {
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { p.sent() },
		}))
	}
	doer := p.doer
	if req.Header.Get("Content-Type") == mediaGRPC {
		doer = p.http2
	}
	resp, err := doer.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	body, _ := readAll(resp.Body, 64<<10) // what it says of its refusal, if that can be read
	return nil, refusal(resp, body)
}

// call does an operation and gives its result.
func (p *peer) call(ctx context.Context, op operation, task string, params []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.d.opt.Silence)
	defer cancel()
	req, err := p.request(ctx, op, task, params)
	if err != nil {
		return nil, err
	}
	resp, err := p.do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := p.read(resp, op)
	if err != nil {
		return nil, err
	}
	return p.result(body)
}

// read reads the answer to an operation that does not stream.
func (p *peer) read(resp *http.Response, op operation) ([]byte, error) {
	if p.agent.binding != overGRPC {
		return readAll(resp.Body, p.d.opt.MaxAnswer)
	}
	a, err := p.answerOfGRPC(resp, op)
	if err != nil {
		return nil, err
	}
	return a.only()
}

// result takes the result out of an answer, or an event of a stream.
func (p *peer) result(body []byte) ([]byte, error) {
	if err := rawjson.Check(body, maxDepth); err != nil {
		return nil, &garbled{"it is not valid JSON"}
	}
	if p.agent.binding != jsonRPC {
		return body, nil
	}
	var r struct {
		Result json.RawMessage
		Error  *struct {
			Code    int
			Message string
		}
	}
	switch err := json.Unmarshal(body, &r); {
	case err != nil:
		return nil, &garbled{"it is no answer of JSON-RPC"}
	case r.Error != nil:
		return nil, &agentError{code: r.Error.Code, message: r.Error.Message}
	case len(r.Result) == 0:
		return nil, &garbled{"it has neither a result nor an error"}
	}
	return r.Result, nil
}

// maxDepth is how deep an answer may be nested: what the hub takes, and what is around it.
const maxDepth = 70

// get asks for a task. It never says how much of the history it wants: some agents cut
// what they have kept to that.
func (p *peer) get(ctx context.Context, id string) (*remoteTask, error) {
	result, err := p.call(ctx, opGet, id, idParams(id))
	if err != nil {
		return nil, err
	}
	return parseTask(result, p.agent.v03)
}

func (p *peer) cancel(ctx context.Context, id string) (*remoteTask, error) {
	result, err := p.call(ctx, opCancel, id, idParams(id))
	if err != nil {
		return nil, err
	}
	return parseTask(result, p.agent.v03)
}

func idParams(id string) []byte {
	return append(rawjson.AppendText([]byte(`{"id":`), id), '}')
}

// readAll reads a body of at most limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = &egress.Error{Reason: egress.TooLarge, Message: fmt.Sprintf("its answer has more than %d bytes", limit), Sent: true}
	}
	return body, err
}

// retryAfter reads the header of that name (RFC 9110, section 10.2.3): seconds, or a time.
func retryAfter(h http.Header) time.Duration {
	value := h.Get("Retry-After")
	if at, err := http.ParseTime(value); err == nil {
		return min(max(time.Until(at), 0), time.Hour)
	}
	seconds, err := time.ParseDuration(value + "s")
	if err != nil {
		return 0
	}
	return min(max(seconds, 0), time.Hour)
}
