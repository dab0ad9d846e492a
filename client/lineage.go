package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strings"
)

// taskKey is where a handler's context has its task.
type taskKey struct{}

// TaskFromContext is the task that the handler with this context works on, or nil.
func TaskFromContext(ctx context.Context) *Task {
	t, _ := ctx.Value(taskKey{}).(*Task)
	return t
}

// ContextWithTask makes sends with the context part of t, as those in a handler are
// part of the handler's task. A callee that works with Next uses it.
func ContextWithTask(ctx context.Context, t *Task) context.Context {
	return context.WithValue(ctx, taskKey{}, t)
}

// lineage is what a send says of where it comes from.
type lineage struct {
	parentCall  string // explicit
	none        bool   // explicitly nothing
	traceparent string // explicit
}

// set adds the headers. An explicit parent leaves out the task, which would win
// over it; the hub ignores what does not count and never refuses it.
func (l lineage) set(ctx context.Context, h http.Header) {
	t := TaskFromContext(ctx)
	switch {
	case l.parentCall != "":
		h.Set("X-Parent-Call", l.parentCall)
	case t != nil && !l.none:
		h.Set("Holdfast-Task", t.ID)
		if t.CallID != "" {
			h.Set("X-Parent-Call", t.CallID)
		}
	}
	switch {
	case l.traceparent != "":
		h.Set("Traceparent", l.traceparent)
	case t != nil && !l.none && t.TraceID != nil:
		if tp := childTrace(*t.TraceID); tp != "" {
			h.Set("Traceparent", tp)
		}
	}
}

// childTrace is a traceparent (W3C Trace Context) with a new span in the trace that
// is given as a trace id or as a whole traceparent; empty if it is neither.
func childTrace(trace string) string {
	flags := "01"
	if f := strings.Split(trace, "-"); len(f) == 4 {
		trace, flags = f[1], f[3]
	}
	if !isHex(trace, 32) || !isHex(flags, 2) {
		return ""
	}
	var span [8]byte
	_, _ = rand.Read(span[:]) // never fails
	return "00-" + trace + "-" + hex.EncodeToString(span[:]) + "-" + flags
}

func isHex(s string, n int) bool {
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == "" && (n == 2 || strings.Trim(s, "0") != "")
}
