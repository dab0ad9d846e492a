package app

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/httpx"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	corsMethods = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
	corsHeaders = "Authorization, Content-Type, Accept, Last-Event-ID, Idempotency-Key, Prefer, X-Request-Id, X-Claim, " +
		"X-Parent-Call, Holdfast-Task, Lagrange-Task, A2A-Version, A2A-Extensions, Traceparent, If-None-Match"
	corsExposed = "X-Request-Id, Holdfast-Lineage, A2A-Version, A2A-Extensions, Retry-After, WWW-Authenticate, ETag, Location"
)

// guard applies the rules for browsers: headers that limit what a page of the hub
// may do, and which foreign pages may use the hub.
func guard(next http.Handler, cfg config.Config, publicURL string) http.Handler {
	if cfg.Anonymous {
		next = guardAnonymous(next, cfg, publicURL)
	}
	if len(cfg.CORSOrigins) > 0 {
		next = allowOrigins(next, cfg.CORSOrigins)
	}
	return secureHeaders(next)
}

// secureHeaders sets what every answer has; a page that needs more sets its own.
func secureHeaders(next http.Handler) http.Handler {
	nosniff, noReferrer, deny := []string{"nosniff"}, []string{"no-referrer"}, []string{"DENY"}
	policy := []string{"default-src 'none'; frame-ancestors 'none'"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header() // the values are shared: to set is to replace
		h["X-Content-Type-Options"] = nosniff
		h["Referrer-Policy"] = noReferrer
		h["X-Frame-Options"] = deny
		h["Content-Security-Policy"] = policy
		next.ServeHTTP(w, r)
	})
}

// allowOrigins lets pages of the origins call the hub with a token. Cookies are
// never allowed across origins.
func allowOrigins(next http.Handler, origins []string) http.Handler {
	all := slices.Contains(origins, "*")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin == "" || !all && !slices.Contains(origins, origin) {
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
			h.Set("Access-Control-Expose-Headers", corsExposed)
			next.ServeHTTP(w, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", corsMethods)
		h.Set("Access-Control-Allow-Headers", corsHeaders)
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	})
}

// guardAnonymous keeps web pages from using a hub that asks for no token, which a
// browser on the same machine can reach: neither by a request across origins, nor
// under a name that was made to point here.
func guardAnonymous(next http.Handler, cfg config.Config, publicURL string) http.Handler {
	foreign := http.NewCrossOriginProtection()
	for _, origin := range cfg.CORSOrigins {
		_ = foreign.AddTrustedOrigin(origin) // config.Validate has seen them
	}
	public := ""
	if u, err := url.Parse(publicURL); err == nil {
		public = u.Hostname()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" {
			if !ownHost(r.Host, public) || foreign.Check(r) != nil {
				httpx.WriteError(w, hub.Errorf(hub.NotPermitted, "a web page of another site may not use this hub without a token; call it as 127.0.0.1, or allow the page's origin with --cors-origin"))
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// ownHost reports whether a request was made to this machine by a name that nobody
// else can give it.
func ownHost(hostport, public string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") || strings.EqualFold(host, public) {
		return true
	}
	ip, err := netip.ParseAddr(trimBrackets(host))
	return err == nil && ip.Unmap().IsLoopback()
}

func trimBrackets(host string) string {
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}
