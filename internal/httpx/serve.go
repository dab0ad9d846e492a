package httpx

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// responseTime is how long a client may take to accept an ordinary answer.
const responseTime = 2 * time.Minute

// Options configure Serve. Only Log is required.
type Options struct {
	Log *slog.Logger
	// Who names the principal of a request for the log; nobody if nil.
	Who func(context.Context) string
	// Observe learns of each request when it has been answered; nil for nobody.
	Observe func(r *http.Request, s Summary)
	// Streaming learns when an answer turns out to be an event stream (+1) and when
	// that ends (-1); nil for nobody.
	Streaming func(delta int)
	// BodyTime says how long a body of a length (-1: unknown) may take; half a minute
	// and a second for each 64 KiB if nil.
	BodyTime func(length int64) time.Duration
	// ResponseTime is how long a client may take to accept an ordinary answer; two
	// minutes if zero.
	ResponseTime time.Duration
}

// Summary is what became of a request.
type Summary struct {
	Status int
	Bytes  int64 // of the answer's body
	Took   time.Duration
	Stream bool // the answer was an event stream
}

// Route is the pattern that matched the request, without its method; "unmatched"
// if none did. It is known once the request was routed.
func Route(r *http.Request) string {
	if r.Pattern == "" {
		return "unmatched"
	}
	if _, path, ok := strings.Cut(r.Pattern, " "); ok {
		return path
	}
	return r.Pattern
}

// Serve wraps a whole site: it gives every body and answer a deadline, logs each
// request once it has been answered, and turns a panic into a 500 without ending
// the process. Ordinary successes, and
// requests whose client did not wait, are logged at debug, everything else at info.
func Serve(next http.Handler, opt Options) http.Handler {
	if opt.BodyTime == nil {
		opt.BodyTime = bodyTime
	}
	if opt.ResponseTime == 0 {
		opt.ResponseTime = responseTime
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		limitBodyTime(rc, r, opt.BodyTime)
		rec := &recorder{ResponseWriter: w, rc: rc, opt: &opt, began: began(r.Context())}
		defer func() {
			fault := recover()
			if fault != nil && fault != http.ErrAbortHandler {
				opt.Log.ErrorContext(r.Context(), "panic", "request_id", RequestID(r.Context()), "panic", fault, "stack", string(debug.Stack()))
				rec.panicked(r.Context())
			}
			rec.finish(r, time.Since(rec.began))
			if fault != nil && (fault == http.ErrAbortHandler || rec.aborted) {
				panic(http.ErrAbortHandler)
			}
		}()
		next.ServeHTTP(rec, r)
		if rec.status >= http.StatusBadRequest {
			drain(rc, r)
		}
	})
}

const (
	// drainMax and drainTime bound what is read of the body of a refused request.
	drainMax  = 32 << 20
	drainTime = 2 * time.Second
)

// drain reads the rest of a refused request's body: many clients send all of it before
// they look for an answer, and would see nothing but a broken connection.
func drain(rc *http.ResponseController, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > drainMax {
		return
	}
	_ = rc.SetReadDeadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, r.Body, drainMax)
}

// recorder is a ResponseWriter that remembers what was answered, and sets the
// deadline for the client to accept it.
type recorder struct {
	http.ResponseWriter
	rc      *http.ResponseController
	opt     *Options
	status  int
	shown   int // the status for the log and the observer, if it is another one
	bytes   int64
	began   time.Time
	stream  bool
	aborted bool
	parked  bool // there is nothing to report yet
}

// recorderOf finds the recorder of a request, nil if there is none.
func recorderOf(w http.ResponseWriter) *recorder {
	for {
		if rec, ok := w.(*recorder); ok {
			return rec
		}
		inner, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return nil
		}
		w = inner.Unwrap()
	}
}

// ShowStatus has the log and the observer see another status than the client, for a
// protocol that has its own and always answers with 200.
func ShowStatus(w http.ResponseWriter, status int) {
	if rec := recorderOf(w); rec != nil {
		rec.shown = status
	}
}

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Flush implements http.Flusher, for libraries that look for it.
func (w *recorder) Flush() { _ = w.FlushError() }

// FlushError is what http.ResponseController looks for.
func (w *recorder) FlushError() error {
	if w.status == 0 {
		w.begin(http.StatusOK)
	}
	return w.rc.Flush()
}

// begin notes the status when the answer begins. Event streams set a deadline for
// each of their writes; anything else gets one for the whole.
func (w *recorder) begin(status int) {
	w.status = status
	if w.stream {
		if w.opt.Streaming != nil {
			w.opt.Streaming(+1)
		}
		return
	}
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.opt.ResponseTime)) // a writer without deadlines is a test's
}

// panicked answers a request whose handler panicked, if nothing was sent yet; else
// the connection has to break so that the client does not take it for the end.
func (w *recorder) panicked(ctx context.Context) {
	if w.status != 0 {
		w.aborted = true
		return
	}
	for _, name := range []string{"Content-Encoding", "ETag", "Last-Modified"} {
		w.Header().Del(name) // of the answer that was not to be
	}
	WriteError(w, hub.Errorf(hub.Internal, "internal error; tell the hub's administrator the request id %s", RequestID(ctx)))
}

// finish reports the request to the log and the observer.
func (w *recorder) finish(r *http.Request, took time.Duration) {
	if w.parked {
		return
	}
	w.stream = w.stream && w.status != 0
	if w.stream && w.opt.Streaming != nil {
		w.opt.Streaming(-1)
	}
	s := Summary{Status: w.status, Bytes: w.bytes, Took: took, Stream: w.stream}
	if w.shown != 0 {
		s.Status = w.shown
	}
	if s.Status == 0 {
		s.Status = http.StatusOK // what net/http answers for a handler that says nothing
	}
	if w.opt.Observe != nil {
		w.opt.Observe(r, s)
	}
	w.log(r, s)
}

func (w *recorder) log(r *http.Request, s Summary) {
	level := slog.LevelInfo
	if s.Status < 300 || s.Status == statusClientGone {
		level = slog.LevelDebug
	}
	ctx := r.Context()
	if !w.opt.Log.Enabled(ctx, level) {
		return
	}
	who := ""
	if w.opt.Who != nil {
		who = w.opt.Who(ctx)
	}
	w.opt.Log.LogAttrs(ctx, level, "request",
		slog.String("method", clip(r.Method, 16)), slog.String("path", clip(r.URL.Path, 200)), slog.String("route", Route(r)),
		slog.Int("status", s.Status), slog.Int64("bytes", s.Bytes), slog.Duration("took", s.Took),
		slog.String("request_id", RequestID(ctx)), slog.String("principal", who))
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most]
}
