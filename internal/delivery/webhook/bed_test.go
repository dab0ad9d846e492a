package webhook_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/deliverytest"
	"github.com/holdfast-hub/holdfast/internal/delivery/webhook"
	"github.com/holdfast-hub/holdfast/internal/egress"
	v1 "github.com/holdfast-hub/holdfast/internal/face/v1"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signing signs the requests of these tests.
const signing = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// everywhere allows all of loopback.
func everywhere() egress.Options {
	return egress.Options{AllowLocal: []egress.PortRange{{First: 1, Last: 65535}}}
}

// newDeliverer makes a deliverer that may call all of loopback.
func newDeliverer(t testing.TB, sealer hub.Sealer, change ...func(*webhook.Options, *egress.Options)) *webhook.Deliverer {
	t.Helper()
	out := everywhere()
	opt := webhook.Options{Sealer: sealer, Parse: v1.ParseResult, UserAgent: "Holdfast/test"}
	out.MaxResponse = 8 << 20
	for _, f := range change {
		f(&opt, &out)
	}
	guard := egress.New(out)
	t.Cleanup(guard.Close)
	opt.Public, opt.Private = guard.Client(egress.Permit{}), guard.Client(egress.Permit{Private: true})
	return webhook.New(opt)
}

// sealed is the secrets of an endpoint.
func sealed(t testing.TB, sealer hub.Sealer, address, credential string) []byte {
	t.Helper()
	clear, err := json.Marshal(hub.EndpointSecrets{Credential: credential, Signing: signing})
	if err != nil {
		t.Fatal(err)
	}
	b, err := sealer.Seal(clear, hub.EndpointAbout(address))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// server is an HTTP server that can go away and come back at the same address.
type server struct {
	t       testing.TB
	handler http.Handler
	addr    string
	mu      sync.Mutex
	now     *httptest.Server
}

func newServer(t testing.TB, h http.Handler) *server {
	t.Helper()
	s := &server{t: t, handler: h, addr: "127.0.0.1:0"}
	s.up()
	t.Cleanup(s.down)
	return s
}

func (s *server) up() {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = l.Addr().String()
	s.now = &httptest.Server{Listener: l, Config: &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Minute}}
	s.now.Start()
}

func (s *server) down() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now != nil {
		s.now.CloseClientConnections()
		s.now.Close()
		s.now = nil
	}
}

func (s *server) url() string { return "http://" + s.addr + "/hook" }

// play serves an agent of deliverytest.
func play(a deliverytest.Agent) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		act := a(r.Context(), r.Header.Get("X-Holdfast-Task"))
		text, _ := json.Marshal(act.Text)
		say := func(body string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}
		switch act.Deed {
		case deliverytest.Complete:
			say(string(text))
		case deliverytest.Ask:
			say(`{"state":"input_required","message":{"role":"agent","parts":[{"text":` + string(text) + `}]}}`)
		case deliverytest.Fail:
			say(`{"state":"failed","error":` + string(text) + `}`)
		case deliverytest.Accept:
			say(`{"state":"working"}`)
		case deliverytest.Refuse:
			w.WriteHeader(http.StatusNotFound)
		case deliverytest.Later:
			w.WriteHeader(http.StatusServiceUnavailable)
		case deliverytest.Drop:
			panic(http.ErrAbortHandler)
		case deliverytest.Hang:
			<-r.Context().Done()
		}
	})
}

func TestDeliverer(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { deliverytest.Run(t, harness) })
	t.Run("postgres", func(t *testing.T) { deliverytest.RunOnPostgreSQL(t, harness) })
}

// harness is that of webhooks.
func harness(t testing.TB, sealer hub.Sealer) deliverytest.Harness {
	return deliverytest.Harness{
		Deliverer: newDeliverer(t, sealer), Accepts: true,
		Start: func(t testing.TB, address string, a deliverytest.Agent) deliverytest.Remote {
			s := newServer(t, play(a))
			return deliverytest.Remote{
				Endpoint: hub.Endpoint{Kind: hub.WebhookDelivery, URL: s.url(), Sealed: sealed(t, sealer, address, "")},
				Down:     s.down, Up: s.up,
			}
		},
	}
}

// The suite holds for agents that are connected, too, whoever delivers to them.
func TestDelivererThroughAConnection(t *testing.T) {
	deliverytest.Run(t, func(t testing.TB, sealer hub.Sealer) deliverytest.Harness {
		hook := newDeliverer(t, sealer)
		return deliverytest.Harness{
			Kind: hub.TunnelDelivery, Accepts: true,
			Start: func(t testing.TB, address string, a deliverytest.Agent) deliverytest.Remote {
				s := newServer(t, play(a))
				return deliverytest.Remote{
					Connection: &delivery.Connection{
						Address: address, Instance: "one", Deliverer: hook,
						Endpoint: hub.Endpoint{URL: s.url(), Sealed: sealed(t, sealer, address, "")},
					},
					Down: s.down, Up: s.up,
				}
			},
		}
	})
}
