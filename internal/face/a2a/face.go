package a2a

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

const (
	// protocolVersion is the version of A2A that is served.
	protocolVersion = "1.0"
	// hubHandle is the reserved handle under which the hub itself takes requests,
	// for the address that their tenant names.
	hubHandle = "hub"
)

// Options configure the face. Engine, Identity and PublicURL are required.
type Options struct {
	Engine   *engine.Engine
	Identity *identity.Service
	// PublicURL is where clients reach the hub, such as https://hub.example.com. The
	// URLs in cards come from it alone, never from a request.
	PublicURL string
	// BlockingLimit is how long a blocking send waits; 10 minutes if 0.
	BlockingLimit time.Duration
	// MaxBody bounds a request's body, in bytes; 8 MiB if 0.
	MaxBody int64
	// PrivateCards shows a card only to those who may call its address.
	PrivateCards bool
	// Anonymous tells cards that no credential is needed.
	Anonymous bool
	// Version is the hub's own, for its card.
	Version string
	// Log gets what clients must not see; discarded if nil.
	Log *slog.Logger
}

// face is the handler that New makes.
type face struct {
	opt     Options
	handler handler
}

// New makes the handler for everything under /a/ and for the hub's own card. It
// expects to be behind identity's and httpx's middleware.
func New(opt Options) http.Handler {
	if opt.BlockingLimit == 0 {
		opt.BlockingLimit = 10 * time.Minute
	}
	if opt.MaxBody == 0 {
		opt.MaxBody = 8 << 20
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	f := &face{opt: opt, handler: handler{engine: opt.Engine, blocking: opt.BlockingLimit}}
	mux := http.NewServeMux()
	for _, path := range []string{"/a/{handle}", "/a/{handle}/{$}", "/a/{handle}/rpc"} {
		mux.HandleFunc("POST "+path, f.serveRPC)
		mux.HandleFunc(path, onlyPost)
	}
	mux.HandleFunc("GET /a/{handle}/.well-known/agent-card.json", f.serveAddressCard)
	mux.HandleFunc("GET /.well-known/agent-card.json", f.serveHubCard)
	return mux
}

// onlyPost answers whoever opens an endpoint in a browser, or takes it for REST.
func onlyPost(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusMethodNotAllowed)
	_, _ = w.Write([]byte(`{"error":{"code":"method_not_allowed","message":"this is an A2A endpoint: POST a JSON-RPC request to it; its agent card is at .well-known/agent-card.json below it"}}`))
}

// serveHubCard serves the card of the hub itself.
func (f *face) serveHubCard(w http.ResponseWriter, r *http.Request) {
	if f.opt.PrivateCards {
		if _, err := identity.Require(r.Context()); err != nil {
			f.failCard(w, r, err)
			return
		}
	}
	f.serveCard(w, r, f.hubCard())
}

// serveAddressCard serves the card of an address, or 404 where there is none. With
// private cards, an address that may not be called is 403, like one that is not
// there.
func (f *face) serveAddressCard(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("handle") == hubHandle {
		f.serveHubCard(w, r)
		return
	}
	a, err := f.cardAddress(r)
	if err != nil {
		f.failCard(w, r, err)
		return
	}
	f.serveCard(w, r, f.addressCard(a))
}

func (f *face) cardAddress(r *http.Request) (*hub.Address, error) {
	handle := r.PathValue("handle")
	if f.opt.PrivateCards {
		p, err := identity.Require(r.Context())
		if err != nil {
			return nil, err
		}
		return f.address(r.Context(), p, handle)
	}
	a, err := f.opt.Identity.Resolve(r.Context(), handle)
	if hub.KindOf(err) == hub.NotPermitted || err == nil && a.Kind == hub.KindHub {
		return nil, hub.Errorf(hub.NotFound, "there is no agent at this address; check the handle in the URL")
	}
	return a, err
}

// address finds the address that p wants to call. One that is not there and one that
// p may not call are the same.
func (f *face) address(ctx context.Context, p hub.Principal, handle string) (*hub.Address, error) {
	a, err := f.opt.Identity.Resolve(ctx, handle)
	if err != nil {
		return nil, err
	}
	if !f.opt.Identity.MayCall(p, a) {
		return nil, hub.ErrNotPermitted()
	}
	return a, nil
}

// serveRPC answers one JSON-RPC request.
func (f *face) serveRPC(w http.ResponseWriter, r *http.Request) {
	p, err := identity.Require(r.Context())
	if err != nil {
		f.failRPC(w, r, nil, err)
		return
	}
	if err := checkMediaType(r.Header); err != nil {
		f.failRPC(w, r, nil, err)
		return
	}
	body, err := httpx.ReadBody(w, r, f.opt.MaxBody)
	if err != nil {
		f.failRPC(w, r, nil, err)
		return
	}
	req, err := readRequest(body)
	if err == nil {
		err = f.serve(w, r, p, req)
	}
	if err != nil {
		f.failRPC(w, r, req.id, err)
	}
}

// serve performs a request. An error means that nothing was written yet.
func (f *face) serve(w http.ResponseWriter, r *http.Request, p hub.Principal, req request) error {
	if err := checkVersion(r); err != nil {
		return err
	}
	handle, err := f.handleOf(r, req)
	if err != nil {
		return err
	}
	a, err := f.address(r.Context(), p, handle)
	if err != nil {
		return err
	}
	return f.dispatch(w, r, callerOf(r, p, a), req)
}

// handleOf is the address that a request is for: that of its URL, or at the hub's
// own endpoint that of its tenant.
func (f *face) handleOf(r *http.Request, req request) (string, error) {
	handle := r.PathValue("handle")
	if handle != hubHandle {
		return handle, nil
	}
	tenant, err := decodeTenant(req.params)
	if err == nil && tenant == "" {
		err = hub.InvalidField("tenant", "is required here: the handle of the address to talk to; or post to /a/{handle}")
	}
	return tenant, err
}

// callerOf collects what came with a request besides its parameters.
func callerOf(r *http.Request, p hub.Principal, a *hub.Address) *caller {
	h := r.Header
	c := &caller{
		principal:      p,
		address:        a,
		idempotencyKey: h.Get("Idempotency-Key"),
		holdfastTask:   h.Get("Holdfast-Task"),
		parentCall:     h.Get("X-Parent-Call"),
		traceparent:    h.Get("Traceparent"),
		lastEventID:    h.Get("Last-Event-ID"),
	}
	if c.holdfastTask == "" {
		c.holdfastTask = h.Get("Lagrange-Task")
	}
	return c
}

// dispatch performs the operation that a request names (spec section 9.4).
func (f *face) dispatch(w http.ResponseWriter, r *http.Request, c *caller, req request) error {
	ctx, h := r.Context(), &f.handler
	switch req.method {
	case "SendMessage":
		return f.sendMessage(w, r, c, req)
	case "SendStreamingMessage":
		p, err := decodeSend(req.params)
		if err != nil {
			return err
		}
		s, err := h.SendStreamingMessage(ctx, c, p)
		return f.streamOr(w, r, req.id, s, err)
	case "SubscribeToTask":
		p, err := decodeTask(req.params)
		if err != nil {
			return err
		}
		s, err := h.SubscribeToTask(ctx, c, p)
		return f.streamOr(w, r, req.id, s, err)
	case "GetTask":
		return f.onTask(w, r, c, req, h.GetTask)
	case "CancelTask":
		return f.onTask(w, r, c, req, h.CancelTask)
	case "ListTasks":
		return f.listTasks(w, r, c, req)
	case "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig",
		"ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig":
		return onTenant(c, req, h.PushNotificationConfig)
	case "GetExtendedAgentCard":
		return onTenant(c, req, h.GetExtendedAgentCard)
	}
	return unknownMethod(req.method)
}

func (f *face) sendMessage(w http.ResponseWriter, r *http.Request, c *caller, req request) error {
	p, err := decodeSend(req.params)
	if err != nil {
		return err
	}
	res, err := f.handler.SendMessage(r.Context(), c, p)
	if err != nil {
		return err
	}
	noteLineage(w, res.lineageIgnored)
	out := appendResponse(nil, req.id, "result")
	out = canon.AppendTask(append(out, `{"task":`...), res.task)
	reply(w, append(out, '}', '}'))
	return nil
}

// onTask performs an operation that is on one task and gives it.
func (f *face) onTask(w http.ResponseWriter, r *http.Request, c *caller, req request,
	op func(context.Context, *caller, taskRequest) (*hub.Task, error)) error {
	p, err := decodeTask(req.params)
	if err != nil {
		return err
	}
	t, err := op(r.Context(), c, p)
	if err != nil {
		return err
	}
	out := canon.AppendTask(appendResponse(nil, req.id, "result"), t)
	reply(w, append(out, '}'))
	return nil
}

func (f *face) listTasks(w http.ResponseWriter, r *http.Request, c *caller, req request) error {
	p, err := decodeList(req.params)
	if err != nil {
		return err
	}
	page, err := f.handler.ListTasks(r.Context(), c, p)
	if err != nil {
		return err
	}
	out := page.append(appendResponse(nil, req.id, "result"))
	reply(w, append(out, '}'))
	return nil
}

// onTenant performs an operation that this hub answers for every task alike.
func onTenant(c *caller, req request, op func(*caller, string) error) error {
	tenant, err := decodeTenant(req.params)
	if err != nil {
		return err
	}
	return op(c, tenant)
}

// streamOr serves a stream, or gives the error that it could not begin with.
func (f *face) streamOr(w http.ResponseWriter, r *http.Request, id []byte, s *stream, err error) error {
	if err != nil {
		return err
	}
	f.serveStream(w, r, id, s)
	return nil
}

// unknownMethod names the methods of A2A 0.3 as what they are.
func unknownMethod(method string) error {
	if strings.HasPrefix(method, "message/") || strings.HasPrefix(method, "tasks/") || strings.HasPrefix(method, "agent/") {
		return &fault{reason: methodNotFound, message: "this is a method of A2A 0.3, and this hub serves 1.0, where it has another name, such as SendMessage; use a client for 1.0"}
	}
	return &fault{reason: methodNotFound, message: "A2A 1.0 has no such method; there are SendMessage, SendStreamingMessage, GetTask, ListTasks, CancelTask and SubscribeToTask"}
}

// checkMediaType accepts JSON and A2A's own JSON, with any parameters; a client that
// does not say sends JSON.
func checkMediaType(h http.Header) error {
	value := h.Get("Content-Type")
	if value == "" {
		return nil
	}
	media, _, err := mime.ParseMediaType(value)
	if (err == nil || errors.Is(err, mime.ErrInvalidMediaParameter)) && (media == "application/json" || media == "application/a2a+json") {
		return nil
	}
	return &fault{reason: contentTypeUnsupported, message: "a JSON-RPC request is application/json; send it with that Content-Type"}
}

// checkVersion refuses a version that is named and not served; see the package's
// comment for the one that is not named. The patch number does not count (spec
// section 3.6).
func checkVersion(r *http.Request) error {
	version := r.Header.Get("A2A-Version")
	if version == "" {
		version = r.URL.Query().Get("A2A-Version")
	}
	version = strings.TrimSpace(version)
	if version == "" || version == protocolVersion {
		return nil
	}
	if patch, found := strings.CutPrefix(version, protocolVersion+"."); found {
		if _, err := strconv.ParseUint(patch, 10, 32); err == nil {
			return nil
		}
	}
	return &fault{
		reason:   versionNotSupported,
		message:  "this hub serves A2A " + protocolVersion + "; send A2A-Version: " + protocolVersion,
		metadata: map[string]string{"supportedVersions": protocolVersion},
	}
}

// noteLineage says that a lineage header did not count.
func noteLineage(w http.ResponseWriter, ignored bool) {
	if ignored {
		w.Header().Set("Holdfast-Lineage", "ignored")
	}
}

// append appends the page as a ListTasksResponse.
func (p page) append(dst []byte) []byte {
	dst = append(dst, `{"tasks":[`...)
	for i, t := range p.Tasks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = canon.AppendTask(dst, t)
	}
	dst = append(dst, `],"nextPageToken":`...)
	dst = rawjson.AppendText(dst, p.Next)
	dst = append(dst, `,"pageSize":`...)
	dst = strconv.AppendInt(dst, int64(p.size), 10)
	dst = append(dst, `,"totalSize":`...)
	dst = strconv.AppendInt(dst, int64(p.Total), 10)
	return append(dst, '}')
}

// reply writes a JSON-RPC response; that it could not be written is for the client
// to notice.
func reply(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}

// failRPC answers a JSON-RPC request with an error.
func (f *face) failRPC(w http.ResponseWriter, r *http.Request, id []byte, err error) {
	fault := translate(r.Context(), f.opt.Log, err)
	httpx.ErrorHeaders(w.Header(), fault.public())
	w.Header().Set("Content-Type", "application/json")
	_, status := codeOf(fault.reason)
	w.WriteHeader(status)
	_, _ = w.Write(appendError(nil, id, fault)) // a client that is gone needs no answer
}

// failCard answers a request for a card with an error.
func (f *face) failCard(w http.ResponseWriter, r *http.Request, err error) {
	httpx.WriteError(w, httpx.Public(r.Context(), f.opt.Log, err))
}
