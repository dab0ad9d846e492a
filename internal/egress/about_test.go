package egress_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/egress"
)

type requestKey struct{}

// The log tells which request brought a URL that is refused, and not the URL.
func TestTheLogSaysOnWhoseBehalfATargetIsRefused(t *testing.T) {
	var log bytes.Buffer
	g := egress.New(egress.Options{
		Log:   slog.New(slog.NewTextHandler(&log, nil)),
		About: func(ctx context.Context) []any { return []any{"request_id", ctx.Value(requestKey{})} },
	})
	defer g.Close()
	ctx := context.WithValue(t.Context(), requestKey{}, "r-1")
	for url, want := range map[string]string{
		"http://127.0.0.1:8080/hidden": "refused a target",
		"ftp://example.com/hidden":     "refused a URL",
	} {
		log.Reset()
		if err := g.Check(ctx, url, egress.Permit{}); err == nil {
			t.Errorf("%s is let through", url)
		}
		if line := log.String(); !strings.Contains(line, want) || !strings.Contains(line, "request_id=r-1") || strings.Contains(line, "hidden") {
			t.Errorf("of %s the log says %q", url, line)
		}
	}
}
