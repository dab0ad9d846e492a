package a2a

import (
	"context"
	"errors"
	"log/slog"
	"mime"
	"net/http"
	"slices"
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
	// Keys signs cards; they have no signatures if nil.
	Keys Keys
	// Agents knows what agents say of themselves; cards have only what owners say if nil.
	Agents hub.Agents
	// Version is the hub's own, for its card.
	Version string
	// Log gets what clients must not see; discarded if nil.
	Log *slog.Logger
}

// face is the handler that New makes.
type face struct {
	opt     Options
	handler handler
	v03     handler // for clients that are older than 1.0
	cards   changes
}

// New makes the handler for everything under /a/, for the services of gRPC, for the
// hub's own card, and for the keys that verify cards. It expects to be behind
// identity's and httpx's middleware.
func New(opt Options) http.Handler {
	f := newFace(opt)
	mux := http.NewServeMux()
	for _, path := range []string{"/a/{handle}", "/a/{handle}/{$}", "/a/{handle}/rpc"} {
		mux.HandleFunc("POST "+path, f.serveRPC)
		mux.HandleFunc(path, f.onlyPost)
	}
	mux.HandleFunc("/a/{handle}/{path...}", f.serveRESTOf)
	mux.HandleFunc("/a/{handle}/v1/{path...}", f.serveRESTV03)
	mux.HandleFunc("POST /"+ServiceV1+"/{method}", f.serveGRPC(methodsV1()))
	mux.HandleFunc("POST /"+ServiceV03+"/{method}", f.serveGRPC(methodsV03()))
	mux.HandleFunc("GET /a/{handle}/.well-known/agent-card.json", f.serveAddressCard)
	mux.HandleFunc("GET /a/{handle}/.well-known/agent.json", f.serveCardV03)
	mux.HandleFunc("GET /.well-known/agent-card.json", f.serveHubCard)
	if opt.Keys != nil {
		mux.HandleFunc("GET "+keysPath, f.serveKeys)
	}
	return mux
}

func newFace(opt Options) *face {
	if opt.BlockingLimit == 0 {
		opt.BlockingLimit = 10 * time.Minute
	}
	if opt.MaxBody == 0 {
		opt.MaxBody = 8 << 20
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	return &face{
		opt:     opt,
		handler: handler{engine: opt.Engine, blocking: opt.BlockingLimit},
		v03:     handler{engine: opt.Engine, blocking: min(opt.BlockingLimit, blockingV03)},
	}
}

// onlyPost answers whoever opens an endpoint in a browser, or takes it for a path of
// HTTP+JSON.
func (f *face) onlyPost(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", http.MethodPost)
	f.fail(w, r, restBindingOf(r), &fault{reason: methodNotAllowed,
		message: "this is an A2A endpoint: POST a JSON-RPC request to it, or use the paths of HTTP+JSON below it; its agent card is there at .well-known/agent-card.json"})
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
// there. Whoever names 0.3 gets the card of 0.3; there is none that is right for both.
func (f *face) serveAddressCard(w http.ResponseWriter, r *http.Request) {
	if r.PathValue("handle") == hubHandle {
		f.serveHubCard(w, r)
		return
	}
	w.Header().Add("Vary", "A2A-Version")
	if namesV03(r) {
		f.serveCardV03(w, r)
		return
	}
	a, err := f.cardAddress(r)
	if err != nil {
		f.failCard(w, r, err)
		return
	}
	f.look(r.Context(), a)
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

// addressFor is address for an operation. What a caller has sent stays its own: those on
// tasks go on where the address is deleted or lets the caller in no more.
func (f *face) addressFor(ctx context.Context, p hub.Principal, handle, method string) (*hub.Address, error) {
	a, err := f.address(ctx, p, handle)
	if hub.KindOf(err) == hub.NotPermitted && onTasks(method) {
		return f.opt.Engine.Former(ctx, p, handle)
	}
	return a, err
}

// onTasks reports whether an operation is on tasks that there are: in either version
// those have the word in their names, and no others do.
func onTasks(method string) bool {
	return strings.Contains(method, "Task") || strings.HasPrefix(method, "tasks/")
}

// operation is a request for one of A2A's operations, whatever binding it came by:
// its name (spec section 5.3) and its parameters in ProtoJSON.
type operation struct {
	method string
	params []byte
}

// binding is the form in which one binding gives its answers.
type binding interface {
	// open and end append what stands before a result and after it.
	open(dst []byte) []byte
	end(dst []byte) []byte
	// fail appends a whole answer that is an error.
	fail(dst []byte, f *fault) []byte
	// status is the HTTP status of an error.
	status(r reason) int
	// media is the media type of an answer that is no stream.
	media() string
}

// serveRPC answers one JSON-RPC request.
func (f *face) serveRPC(w http.ResponseWriter, r *http.Request) {
	req, err := f.readRPC(w, r)
	b := rpcBinding{id: req.id}
	if err == nil {
		err = f.serve(w, r, b, operation{req.method, req.params})
	}
	switch {
	case err == nil:
	case wantsStream(r, req.method):
		f.failStream(w, r, b, req.method, err)
	default:
		f.fail(w, r, b, err)
	}
}

// readRPC reads the request of a caller whom the hub knows.
func (f *face) readRPC(w http.ResponseWriter, r *http.Request) (request, error) {
	if _, err := identity.Require(r.Context()); err != nil {
		return request{}, err
	}
	if err := checkMediaType(r.Header); err != nil {
		return request{}, err
	}
	body, err := httpx.ReadBody(w, r, f.opt.MaxBody)
	if err != nil {
		return request{}, err
	}
	return readRequest(body)
}

// serve performs an operation. An error means that nothing was written yet.
func (f *face) serve(w http.ResponseWriter, r *http.Request, b binding, op operation) error {
	p, err := identity.Require(r.Context())
	if err != nil {
		return err
	}
	check, dispatch := checkVersion, f.dispatch
	if isV03(op.method) {
		check, dispatch = checkVersionV03, f.dispatchV03
	}
	if err := check(r); err != nil {
		return err
	}
	if asksHub(r, op) {
		return f.serveHubExtendedCard(r.Context(), w, b, p)
	}
	handle, err := f.handleOf(r, p, op.params)
	if err != nil {
		return err
	}
	a, err := f.addressFor(r.Context(), p, handle, op.method)
	if err != nil {
		return err
	}
	c := callerOf(r, p, a)
	noteExtensions(w, c.offer.activated(c.extensions))
	return dispatch(w, r, b, c, op)
}

// tenantHeader names the address where a request itself cannot, as in gRPC of 0.3.
const tenantHeader = "A2A-Tenant"

// handleOf is the address that a request is for: that of its URL, or at the hub's own
// endpoint, as always in gRPC, that of its tenant. Without a tenant it is the only
// address that p may call, itself aside, if there is only one.
func (f *face) handleOf(r *http.Request, p hub.Principal, params []byte) (string, error) {
	handle := r.PathValue("handle")
	if handle != hubHandle {
		return handle, nil
	}
	tenant, err := decodeTenant(params)
	if err != nil || tenant != "" {
		return tenant, err
	}
	if tenant = r.Header.Get(tenantHeader); tenant != "" {
		return tenant, nil
	}
	list, err := f.opt.Identity.Agents(r.Context(), p)
	if err != nil {
		return "", err
	}
	list = slices.DeleteFunc(list, func(a hub.Address) bool { return a.ID == p.Address })
	if len(list) != 1 {
		return "", hub.InvalidField("tenant", "is required here: the handle of the address to talk to; where a request has no tenant, send it as the metadata or header a2a-tenant; over HTTP, there is also /a/{handle} in place of /a/hub")
	}
	return list[0].Handle, nil
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
		extensions:     extensionsOf(h),
		offer:          offerOf(a),
	}
	if c.holdfastTask == "" {
		c.holdfastTask = h.Get("Lagrange-Task")
	}
	return c
}

// dispatch performs the operation that a request names.
func (f *face) dispatch(w http.ResponseWriter, r *http.Request, b binding, c *caller, op operation) error {
	ctx, h := r.Context(), &f.handler
	switch op.method {
	case "SendMessage":
		return f.sendMessage(w, r, b, c, op.params)
	case "SendStreamingMessage":
		p, err := decodeSend(op.params)
		if err != nil {
			return err
		}
		s, err := h.SendStreamingMessage(ctx, c, p)
		return f.streamOr(w, r, b, s, err)
	case subscribeToTask:
		p, err := decodeTask(op.params)
		if err != nil {
			return err
		}
		s, err := h.SubscribeToTask(ctx, c, p)
		return f.streamOr(w, r, b, s, err)
	case "GetTask":
		return onTask(w, r, b, c, op.params, h.GetTask)
	case "CancelTask":
		return onTask(w, r, b, c, op.params, h.CancelTask)
	case "ListTasks":
		return f.listTasks(w, r, b, c, op.params)
	case "CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig",
		"ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig":
		return f.performPush(w, r, b, c, op)
	case methodExtendedCard:
		return f.serveExtendedCard(w, b, c, op)
	}
	return &fault{reason: methodNotFound, message: "A2A has no such method; there are SendMessage, SendStreamingMessage, GetTask, ListTasks, CancelTask, SubscribeToTask, GetExtendedAgentCard and those on push notifications, and 0.3's message/send and the like"}
}

func (f *face) sendMessage(w http.ResponseWriter, r *http.Request, b binding, c *caller, params []byte) error {
	p, err := decodeSend(params)
	if err != nil {
		return err
	}
	res, err := f.handler.SendMessage(r.Context(), c, p)
	if err != nil {
		return err
	}
	noteLineage(w, res.lineageIgnored)
	reply(w, b, appendSent(b.open(nil), res))
	return nil
}

// appendSent appends a SendMessageResponse.
func appendSent(dst []byte, s sent) []byte {
	if s.message != nil {
		return append(canon.AppendMessage(append(dst, `{"message":`...), s.message, s.task.ID, s.task.ContextID), '}')
	}
	return append(canon.AppendTask(append(dst, `{"task":`...), s.task), '}')
}

// onTask performs an operation that is on one task and gives it.
func onTask(w http.ResponseWriter, r *http.Request, b binding, c *caller, params []byte,
	op func(context.Context, *caller, taskRequest) (*hub.Task, error)) error {
	p, err := decodeTask(params)
	if err != nil {
		return err
	}
	t, err := op(r.Context(), c, p)
	if err != nil {
		return err
	}
	reply(w, b, canon.AppendTask(b.open(nil), t))
	return nil
}

func (f *face) listTasks(w http.ResponseWriter, r *http.Request, b binding, c *caller, params []byte) error {
	p, err := decodeList(params)
	if err != nil {
		return err
	}
	page, err := f.handler.ListTasks(r.Context(), c, p)
	if err != nil {
		return err
	}
	reply(w, b, page.append(b.open(nil)))
	return nil
}

// streamOr serves a stream, or gives the error that it could not begin with.
func (f *face) streamOr(w http.ResponseWriter, r *http.Request, b binding, s *stream, err error) error {
	if err != nil {
		return err
	}
	f.serveStream(w, r, b, s)
	return nil
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
	return &fault{reason: contentTypeUnsupported, message: "an A2A request is JSON; send it as Content-Type: application/json"}
}

// checkVersion refuses a version that is named and not served; see the package's
// comment for the one that is not named. The patch number does not count (spec
// section 3.6).
func checkVersion(r *http.Request) error {
	version := namedVersion(r)
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
		message:  "this hub serves A2A " + protocolVersion + ", and 0.3 under the names that operations have there; send A2A-Version: " + protocolVersion,
		metadata: map[string]string{"supportedVersions": protocolVersion + ", 0.3"},
	}
}

// namedVersion is the version that a request names, or empty.
func namedVersion(r *http.Request) string {
	version := r.Header.Get("A2A-Version")
	if version == "" {
		version = r.URL.Query().Get("A2A-Version")
	}
	return strings.TrimSpace(version)
}

// noteLineage says that a lineage header did not count.
func noteLineage(w http.ResponseWriter, ignored bool) {
	if ignored {
		w.Header().Set("Holdfast-Lineage", "ignored")
	}
}

// noteExtensions names the extensions in use (spec section 3.2.6).
func noteExtensions(w http.ResponseWriter, activated []string) {
	if len(activated) > 0 {
		w.Header().Set("A2A-Extensions", strings.Join(activated, ", "))
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

// reply writes a result that was begun with open; that it could not be written is
// for the client to notice.
func reply(w http.ResponseWriter, b binding, result []byte) {
	w.Header().Set("Content-Type", b.media())
	_, _ = w.Write(b.end(result))
}

// fail answers a request with an error.
func (f *face) fail(w http.ResponseWriter, r *http.Request, b binding, err error) {
	fault := translate(r.Context(), f.opt.Log, err)
	httpx.ErrorHeaders(w.Header(), fault.public())
	w.Header().Set("Content-Type", b.media())
	w.WriteHeader(b.status(fault.reason))
	_, _ = w.Write(b.fail(nil, fault)) // a client that is gone needs no answer
}

// failCard answers a request for a card with an error.
func (f *face) failCard(w http.ResponseWriter, r *http.Request, err error) {
	httpx.WriteError(w, httpx.Public(r.Context(), f.opt.Log, err))
}
