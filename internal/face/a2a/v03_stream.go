package a2a

import (
	"net/http"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/httpx"
)

// wantsStreamV03 reports whether a JSON-RPC client of 0.3 waits for a stream and
// cannot read anything else: such clients take an error that comes as ordinary JSON
// for a broken connection.
func wantsStreamV03(r *http.Request, method string) bool {
	if method != "message/stream" && method != "tasks/resubscribe" {
		return false
	}
	for _, line := range r.Header.Values("Accept") {
		if strings.Contains(line, "text/event-stream") {
			return true
		}
	}
	return false
}

// failStreamV03 answers a request for a stream with an error: as the only event of a
// stream, unless the HTTP status has to say something too.
func (f *face) failStreamV03(w http.ResponseWriter, r *http.Request, b binding, err error) {
	fault := translate(r.Context(), f.opt.Log, err)
	if b.status(fault.reason) != http.StatusOK {
		f.fail(w, r, b, fault)
		return
	}
	_ = httpx.StartSSE(w, r).Event("", "", b.fail(nil, fault)) // a client that is gone needs no answer
}
