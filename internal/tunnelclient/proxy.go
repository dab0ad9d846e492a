package tunnelclient

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/holdfast-hub/holdfast/internal/relaypath"
	"github.com/holdfast-hub/holdfast/internal/tunnelconn"
)

// idleTime is how long a connection to the local server is kept unused: less than any
// server does, so that no request meets one that is just being closed.
const idleTime = 2 * time.Second

// Proxy hands the hub's requests to the server at target, and those of outside services
// only where a prefix of relay allows it. Answers stream. What could not be sent is
// answered so that the hub knows it.
func Proxy(target *url.URL, relay []string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			IdleConnTimeout: idleTime, MaxIdleConnsPerHost: tunnelconn.MaxSlots, DisableCompression: true,
			MaxResponseHeaderBytes: tunnelconn.MaxHeader, TLSHandshakeTimeout: 10 * time.Second,
		},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = target.Scheme, target.Host, target.Host
		},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del(tunnelconn.Unsent)
			return nil
		},
		ErrorHandler: unanswered,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(tunnelconn.Relayed) != "" && !relaypath.Allowed(r.URL.Path, relay) {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	})
}

// unanswered answers for a local server that did not.
func unanswered(w http.ResponseWriter, _ *http.Request, err error) {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		w.Header().Set(tunnelconn.Unsent, "true")
	}
	w.WriteHeader(http.StatusBadGateway)
}
