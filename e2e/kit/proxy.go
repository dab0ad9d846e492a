package kit

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// front gives an address a host of its own, as a reverse proxy would that is put in
// front of it for clients that know of nothing but hosts: what is at / there is the
// address, its card is at the root, and a gRPC call needs no tenant. It gives the
// host's URL.
//
// The card of 1.0 names the front for gRPC alone, so that all else is tested without
// it. That of 0.3 names it throughout.
func (h *Hub) front(ctx context.Context, handle string, p place) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.host()+":0")
	if err != nil {
		return "", fmt.Errorf("listen in front of @%s: %w", handle, err)
	}
	base := p.scheme() + "://" + l.Addr().String()
	f, err := newFront(h, handle, p.v03, base)
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second, Handler: f, Protocols: new(http.Protocols),
		ErrorLog: log.New(io.Discard, "", 0), // the kit tries what must not work
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	serve := server.Serve
	if p.certificate != nil {
		server.Protocols.SetHTTP2(true)
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*p.certificate}, MinVersion: tls.VersionTLS12} // as the hub's own
		serve = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	h.run(func() error {
		if err := serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return base, nil
}

// place is how an address is to be found at a host of its own.
type place struct {
	v03         bool
	certificate *tls.Certificate // nil without TLS
}

// guardedHost is where TLS is: a place that the kit does not take for this machine, where
// it does without.
const guardedHost = "127.0.0.2"

func (p place) host() string {
	if p.certificate != nil {
		return guardedHost
	}
	return "127.0.0.1"
}

func (p place) scheme() string {
	if p.certificate != nil {
		return "https"
	}
	return "http"
}

// front is a reverse proxy in front of one address.
type front struct {
	hub        *Hub
	http, grpc *httputil.ReverseProxy
}

func newFront(h *Hub, handle string, v03 bool, base string) (*front, error) {
	hub, err := url.Parse(h.URL + "/")
	if err != nil {
		return nil, fmt.Errorf("read the hub's URL: %w", err)
	}
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	_, addr, _ := strings.Cut(base, "://")
	names := []string{`"` + hub.Host + `"`, `"` + addr + `"`}
	if v03 { // whose kit takes a gRPC target with a scheme only, and official clients without one only
		names = []string{`"` + hub.Host + `"`, `"` + base + `"`, h.Card(handle), base + "/"}
	}
	return &front{
		hub: h,
		grpc: &httputil.ReverseProxy{Transport: h2, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(hub)
			r.Out.Header.Set("A2A-Tenant", handle)
		}},
		http: &httputil.ReverseProxy{
			FlushInterval: -1, // for streams
			Rewrite: func(r *httputil.ProxyRequest) {
				if v03 && r.In.URL.Path == "/.well-known/agent-card.json" {
					r.Out.URL.Path = "/.well-known/agent.json"
				}
				r.SetURL(hub.JoinPath("a", handle))
				r.Out.Header.Del("Accept-Encoding") // or the card could not be read
			},
			ModifyResponse: rename(strings.NewReplacer(names...)),
		},
	}, nil
}

// lend gives a request for the extended card the credential that the kit for 0.3 does not
// have, for that card is where it looks for security schemes. Whatever else it sends
// without one, or with a wrong one, goes on as it is.
func (f *front) lend(r *http.Request) error {
	token, _ := f.hub.lent.Load().(string)
	if token == "" || r.Header.Get("Authorization") != "" {
		return nil
	}
	wanted := r.URL.Path == "/v1/card" || strings.HasSuffix(r.URL.Path, "/GetAgentCard")
	if !wanted && r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), r.Body))
		wanted = bytes.Contains(body, []byte(`"agent/getAuthenticatedExtendedCard"`))
	}
	if wanted {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := f.lend(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		f.grpc.ServeHTTP(w, r)
		return
	}
	f.http.ServeHTTP(w, r)
}

// rename changes what a card says of where things are.
func rename(names *strings.Replacer) func(*http.Response) error {
	return func(r *http.Response) error {
		if !strings.Contains(r.Request.URL.Path, "/.well-known/") {
			return nil
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return fmt.Errorf("read the card: %w", err)
		}
		card := names.Replace(string(body))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader([]byte(card))), int64(len(card))
		r.Header.Set("Content-Length", strconv.Itoa(len(card)))
		return nil
	}
}
