package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/delivery/tunnel"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/tunnelclient"
)

// plainSealer seals like a vault that all replicas have, and hides nothing.
type plainSealer struct{}

// Seal implements hub.Sealer.
func (plainSealer) Seal(secret []byte, about string) ([]byte, error) {
	return append([]byte("sealed "+about+" "), secret...), nil
}

// Open implements hub.Sealer.
func (plainSealer) Open(sealed []byte, about string) ([]byte, error) {
	secret, ok := bytes.CutPrefix(sealed, []byte("sealed "+about+" "))
	if !ok {
		return nil, errors.New("not sealed here")
	}
	return secret, nil
}

// twoReplicas are two hubs that know of each other's tunnels to dev. Those of the second
// are shown with an address; its own if that is empty.
func twoReplicas(t *testing.T, address string) (first, second *bed) {
	t.Helper()
	peers := &tunnel.Peers{Sealer: plainSealer{}, URL: "http://first.example"}
	guard := egress.New(egress.Options{AllowLocal: []egress.PortRange{{First: 1, Last: 65535}}})
	t.Cleanup(guard.Close)
	peers.Transport = guard.Client(egress.Permit{}).Transport
	second = newBed(t, func(o *tunnel.Options) {
		o.Peers = &tunnel.Peers{
			Sealer: plainSealer{}, Transport: peers.Transport,
			Instances: func(context.Context, string) ([]hub.Instance, error) {
				return []hub.Instance{{URL: first.url, Relay: []string{"/"}}}, nil // wrongly, as long as nothing goes to and fro
			},
		}
	})
	peers.Instances = func(context.Context, string) ([]hub.Instance, error) {
		second.mu.Lock()
		defer second.mu.Unlock()
		var list []hub.Instance
		if relay, ok := second.relays["id-dev"]; ok {
			list = append(list, hub.Instance{URL: address, Relay: relay})
			if address == "" {
				list[0].URL = second.url
			}
		}
		return append(list, hub.Instance{URL: peers.URL, Relay: []string{"/"}}), nil // which is gone, as nobody else knows yet
	}
	first = newBed(t, func(o *tunnel.Options) { o.Peers = peers })
	return first, second
}

func TestRelayByWayOfTheReplicaThatHasTheTunnel(t *testing.T) {
	first, second := twoReplicas(t, "")
	second.open("dev", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.HasPrefix(name, "Holdfast-Passed") {
				t.Errorf("the agent sees %s", name)
			}
		}
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("X-Cookie", r.Header.Get("Cookie"))
		w.Header().Set("X-Authorization", r.Header.Get("Authorization"))
		echo(w, r)
	}), relays("/hooks/"))
	next(t, second.joined, "the tunnel")
	resp, body := first.outside(http.MethodPost, "/t/dev/hooks/a?b=c", "hello", "Cookie", "hub=secret", "Authorization", "Basic dGhlaXJz")
	if resp.StatusCode != http.StatusOK || body != "POST /hooks/a?b=c hello" {
		t.Fatal(resp.StatusCode, body)
	}
	for name, want := range map[string]string{
		"Set-Cookie": "", "X-Cookie": "", "X-Authorization": "Basic dGhlaXJz",
		"Content-Security-Policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
	} {
		if got := resp.Header.Values(name); len(got) > 1 || resp.Header.Get(name) != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if resp, _ := first.outside(http.MethodGet, "/t/dev/admin", ""); resp.StatusCode != http.StatusNotFound {
		t.Error("the tunnel's own gate is passed by", resp.StatusCode)
	}
	if resp, _ := first.outside(http.MethodGet, "/t/dev/hooks/a", "", "Holdfast-Passed-On", "me"); resp.StatusCode != http.StatusServiceUnavailable {
		t.Error("what says that it was passed on gets", resp.StatusCode)
	}
}

// A request that is passed on reaches the local server with the host that it was made to;
// nobody else than a replica can name another one.
func TestRelayKeepsTheHost(t *testing.T) {
	first, second := twoReplicas(t, "")
	hosts := make(chan string, 2)
	second.open("dev", nil, relays("/"), func(o *tunnelclient.Options) {
		o.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hosts <- r.Host })
	})
	next(t, second.joined, "the tunnel")
	ask := func(b *bed, header ...string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/t/dev/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "hub.example.com"
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := b.srv.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return next(t, hosts, "the request")
	}
	if got := ask(first); got != "hub.example.com" {
		t.Errorf("passed on: %q", got)
	}
	if got := ask(second, "Holdfast-Passed-On", "c2VhbGVkIHJlbGF5L290aGVyIGV2aWw"); got != "hub.example.com" {
		t.Errorf("a forged one: %q", got)
	}
}

// No request goes round, even if replicas are wrong about each other.
func TestRelayMakesOneHop(t *testing.T) {
	first, second := twoReplicas(t, "")
	second.note("id-dev", []string{"/"}) // although nothing is connected
	resp, body := first.outside(http.MethodGet, "/t/dev/x", "")
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "not connected") {
		t.Error(resp.StatusCode, body)
	}
}

func TestRelayToAReplicaThatCannotBeReached(t *testing.T) {
	for url, words := range map[string]string{"relative": "--advertise-url", closedURL(t): "cannot be reached"} {
		first, second := twoReplicas(t, url)
		second.note("id-dev", []string{"/"})
		resp, body := first.outside(http.MethodPost, "/t/dev/x", "x")
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") != "5" || !strings.Contains(body, words) || strings.Contains(body, "127.0.0.1") {
			t.Errorf("%s: %d %s", url, resp.StatusCode, body)
		}
	}
}
