// Package httpx holds what every HTTP face shares: request ids, access logs, the
// way errors reach clients, body limits and server-sent events.
//
// Everything here is bounded in time as well as in size: a body has to arrive, and
// an answer has to be taken, within a deadline of the connection. A client that is
// too slow loses its connection and holds up nobody else.
package httpx

import (
	"context"
	"net/http"

	"github.com/google/uuid"
)

// HeaderRequestID carries the id of a request, both ways.
const HeaderRequestID = "X-Request-Id"

type ctxKey struct{}

// RequestID is the id that the request's log lines and X-Request-Id header carry.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(ctxKey{}).(string)
	return id
}

// WithRequestID gives every request an id: the client's own if that is 1 to 64
// letters, digits, dots, underscores and dashes, else a new one. The response's
// header has it from the start.
func WithRequestID(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(HeaderRequestID)
		if !validID(id) {
			id = uuid.Must(uuid.NewV7()).String()
		}
		w.Header().Set(HeaderRequestID, id)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ctxKey{}, id)))
	})
}

func validID(id string) bool {
	if len(id) < 1 || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !('0' <= c && c <= '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
