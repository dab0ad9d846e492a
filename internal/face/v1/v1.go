// Package v1 serves the hub's own HTTP API: /v1 for programs, the activity feed at
// /api/activity, and the description of both at /openapi.json and /docs.
//
// The routes that carry tasks are hot. They are decoded and rendered by hand, on
// canonical JSON, without reflection. Administration is typed and served by huma.
// One table, [face.hotRoutes], and huma's own registrations make both the mux and
// the OpenAPI document, so neither can have what the other lacks.
//
// Every handler learns first who asks and only then looks at anything else. What a
// principal may not know of is answered like what does not exist.
package v1

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

const (
	// defaultMaxBody bounds a request body unless Options.MaxBody says otherwise.
	defaultMaxBody = 8 << 20
	// maxWait is how long one request may wait, in seconds.
	maxWait = 60
	// maxDepth is how deep JSON may be nested.
	maxDepth = 64
)

// Options configure the API.
type Options struct {
	// Engine runs the tasks.
	Engine *engine.Engine
	// Identity knows addresses and tokens. Its middleware must wrap the handler.
	Identity *identity.Service
	// PublicURL is the hub's base URL as clients see it.
	PublicURL string
	// MaxBody bounds a request body, in bytes; 0 means 8 MiB.
	MaxBody int64
	// Limits bound what a callee may ask for; only LeaseMax counts here. The zero
	// value means the defaults.
	Limits hub.Limits
	// Version and StoreName are shown to the administrator.
	Version, StoreName string
	// StartedAt is when the hub started.
	StartedAt time.Time
	// Log gets what clients must not see; nil discards it.
	Log *slog.Logger
	// Lot is where long polls park once more than ParkFrom are open; they never do if
	// it is nil. Its handler must wrap this one.
	Lot      *httpx.Lot
	ParkFrom int64
	// Stats counts the queue.
	Stats func(context.Context) (hub.QueueStats, error)
}

// face is the API of one hub.
type face struct {
	opt Options
	mux *http.ServeMux
	api huma.API
	// patterns is what the mux serves, as "METHOD /path".
	patterns []string
}

// New makes the handler for /v1/, /api/activity, /openapi.json and /docs.
func New(opt Options) http.Handler { return newFace(opt) }

func newFace(opt Options) *face {
	if opt.MaxBody <= 0 {
		opt.MaxBody = defaultMaxBody
	}
	if opt.Limits.LeaseMax <= 0 {
		opt.Limits = hub.DefaultLimits()
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	opt.PublicURL = strings.TrimRight(opt.PublicURL, "/")
	f := &face{opt: opt, mux: http.NewServeMux()}
	f.api = newAPI(f)
	f.registerHot()
	f.registerPush()
	f.registerAdmin()
	f.registerDocs()
	f.mux.HandleFunc("/", f.elsewhere)
	return f
}

// ServeHTTP implements http.Handler.
func (f *face) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.mux.ServeHTTP(w, r) }

// HandleFunc notes the pattern and adds it to the mux. It makes the face a mux for
// huma's adapter.
func (f *face) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	f.patterns = append(f.patterns, pattern)
	f.mux.HandleFunc(pattern, h)
}

// handler serves a route for whoever asks. An error that it returns is answered;
// it must not have written anything then.
type handler func(w http.ResponseWriter, r *http.Request, p hub.Principal) error

// authorised lets h see only requests that come with a valid credential. A HEAD is
// refused: it would take a task or a long wait for an answer that nobody sees.
func (f *face) authorised(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead {
			f.unknownRoute(w, r)
			return
		}
		p, err := identity.Require(r.Context())
		if err == nil {
			err = h(w, r, p)
		}
		if err != nil {
			f.fail(w, r, err)
		}
	}
}

// methods are those that some route may have.
var methods = [...]string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
}

// elsewhere answers what no route serves. A person who opens the hub in a browser is
// shown what there is.
func (f *face) elsewhere(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" || r.Method != http.MethodGet || !names(r, "text/html") || names(r, "application/json") {
		f.unknownRoute(w, r)
		return
	}
	base := ""
	if u, err := url.Parse(f.opt.PublicURL); err == nil {
		base = u.Path // of a proxy that has put the hub below it
	}
	w.Header().Set("Vary", "Accept")
	http.Redirect(w, r, base+"/docs", http.StatusSeeOther)
}

// unknownRoute answers what no route serves: 405 where another method would do,
// 404 otherwise.
func (f *face) unknownRoute(w http.ResponseWriter, r *http.Request) {
	var allow []string
	try := *r
	for _, m := range methods {
		try.Method = m
		if _, pattern := f.mux.Handler(&try); pattern != "/" && pattern != "" {
			allow = append(allow, m)
		}
	}
	if len(allow) == 0 {
		writeError(w, http.StatusNotFound, &hub.Error{
			Code: "not_found", Message: "there is no such route; /docs lists those that exist",
		})
		return
	}
	w.Header().Set("Allow", strings.Join(allow, ", "))
	writeError(w, http.StatusMethodNotAllowed, &hub.Error{
		Code:    "method_not_allowed",
		Message: "this route does not take " + r.Method + "; use " + strings.Join(allow, " or "),
	})
}
