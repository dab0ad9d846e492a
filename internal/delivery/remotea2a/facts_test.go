package remotea2a_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/delivery/remotea2a"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// The cards of hubs, which are signed, are verified by other hubs; one that somebody has
// changed on the way is not believed.
func TestTheCardsOfHubs(t *testing.T) {
	var behind *url.URL
	forge := false
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }}
		if !forge || !strings.Contains(r.URL.Path, "agent") {
			proxy.ServeHTTP(w, r)
			return
		}
		got := httptest.NewRecorder()
		proxy.ServeHTTP(got, r)
		w.WriteHeader(got.Code)
		_, _ = w.Write(bytes.ReplaceAll(got.Body.Bytes(), []byte("Writes"), []byte("Steals")))
	}))
	t.Cleanup(front.Close)
	h := testhub.Start(t, func(c *config.Config) { c.PublicURL = front.URL })
	behind = &url.URL{Scheme: "http", Host: h.Addr()}
	open := "open"
	h.Create(identity.AgentSpec{Handle: "coder", Access: &open, Description: ptr("Writes “code” & more."), Card: []byte(`{"provider":{"organization":"Org"},"extensions":[{"uri":"u","params":{"a":[]}}]}`)})
	for _, forged := range []bool{false, true} {
		forge = forged
		var log bytes.Buffer
		d := newDeliverer(t, nil, func(o *remotea2a.Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		a := &hub.Address{ID: "x", Endpoint: &hub.Endpoint{Kind: hub.RemoteDelivery, URL: front.URL + "/a/coder"}}
		d.Look(context.Background(), a)
		facts := d.Facts(a)
		switch {
		case strings.Contains(log.String(), "could not be verified"):
			t.Errorf("the signature was not looked at: %s", &log)
		case forged && (facts != nil || !strings.Contains(log.String(), "signature")):
			t.Errorf("a forged card is believed: %+v; logged %s", facts, &log)
		case !forged && (facts == nil || facts.Description != "Writes “code” & more." || facts.Organization != "Org"):
			t.Errorf("the card says %+v; logged %s", facts, &log)
		}
	}
}

func ptr[T any](v T) *T { return &v }
