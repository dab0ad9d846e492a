package app_test

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// await looks again and again until ok, for what the hub shows but tells nobody of.
func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	late := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for !ok() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("%s never came about", what)
		}
	}
}

// awaitMetrics waits until /metrics of a hub has all these lines.
func awaitMetrics(t *testing.T, url string, lines ...string) {
	t.Helper()
	await(t, "/metrics with "+strings.Join(lines, " and "), func() bool {
		_, page := do(t, http.MethodGet, url+"/metrics", "", "")
		for _, line := range lines {
			if !strings.Contains(page, line+"\n") {
				return false
			}
		}
		return true
	})
}
