package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
func (h *Hub) front(ctx context.Context, handle string, v03 bool) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("listen in front of @%s: %w", handle, err)
	}
	f, err := newFront(h, handle, v03, l.Addr().String())
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: f, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	h.run(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "http://" + l.Addr().String(), nil
}

// front is a reverse proxy in front of one address.
type front struct {
	http, grpc *httputil.ReverseProxy
}

func newFront(h *Hub, handle string, v03 bool, addr string) (*front, error) {
	hub, err := url.Parse(h.URL + "/")
	if err != nil {
		return nil, fmt.Errorf("read the hub's URL: %w", err)
	}
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	names := []string{`"` + hub.Host + `"`, `"` + addr + `"`}
	if v03 { // whose kit takes a gRPC target with a scheme only, and official clients without one only
		names = []string{`"` + hub.Host + `"`, `"http://` + addr + `"`, h.Card(handle), "http://" + addr + "/"}
	}
	return &front{
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

// ServeHTTP implements http.Handler.
func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
