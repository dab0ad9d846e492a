package app

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// pingTime is how long the store may take to say that it works.
const pingTime = 2 * time.Second

// healthz says that the process lives; a supervisor restarts it when it does not.
func (a *App) healthz(w http.ResponseWriter, _ *http.Request) {
	writeProbe(w, http.StatusOK, "ok", "")
}

// readyz says whether the hub can do its work, and if not, why; a balancer sends no
// requests while it cannot.
func (a *App) readyz(w http.ResponseWriter, r *http.Request) {
	if a.draining.Load() {
		writeProbe(w, http.StatusServiceUnavailable, "unavailable", "the hub is shutting down")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), pingTime)
	defer cancel()
	if err := a.store.Ping(ctx); err != nil {
		reason := "the store does not work; the log says more"
		if e := (*hub.Error)(nil); errors.As(err, &e) {
			reason = e.Message
		}
		a.log.Warn("not ready", "err", err)
		writeProbe(w, http.StatusServiceUnavailable, "unavailable", reason)
		return
	}
	writeProbe(w, http.StatusOK, "ok", "")
}

func writeProbe(w http.ResponseWriter, code int, status, reason string) {
	body := struct {
		Status string `json:"status"`
		Reason string `json:"reason,omitempty"`
	}{status, reason}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // a prober that is gone needs no answer
}
