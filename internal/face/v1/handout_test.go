package v1

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// lab is a face over a real store and engine, called without a network so that a
// test can say how its answers fare.
type lab struct {
	*face
	coder, boss hub.Principal
}

func newLab(t *testing.T) lab {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	who := identity.New(identity.Options{Store: store})
	if _, _, err := who.EnsureAdmin(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	eng := engine.New(engine.Options{Store: store, Directory: who, Limits: hub.DefaultLimits(), Rate: 1000, Burst: 1000})
	eng.Start()
	t.Cleanup(eng.Close)
	l := lab{face: newFace(Options{Engine: eng, Identity: who, Stats: store.QueueStats})}
	l.coder, l.boss = l.principal(t, "coder"), l.principal(t, "boss")
	return l
}

func (l lab) principal(t *testing.T, handle string) hub.Principal {
	t.Helper()
	open := "open"
	a, err := l.opt.Identity.CreateAgent(t.Context(), hub.Principal{Role: hub.RoleAdmin}, identity.AgentSpec{Handle: handle, Access: &open})
	if err != nil {
		t.Fatal(err)
	}
	return hub.Principal{Address: a.ID, Handle: a.Handle, Role: hub.RoleAgent}
}

// call makes a request as p whose context is ctx and whose answer goes to w.
func (l lab) call(ctx context.Context, w http.ResponseWriter, p hub.Principal, method, path, body string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(identity.With(ctx, p))
	r.Header.Set("Content-Type", "application/json")
	l.ServeHTTP(w, r)
}

// ok is call for an answer with status 200.
func (l lab) ok(t *testing.T, p hub.Principal, method, path, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	l.call(t.Context(), w, p, method, path, body)
	if w.Code != 200 {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return w.Body.String()
}

// broken is a connection on which nothing can be sent: the write fails, or only the
// flush does.
type broken struct {
	http.ResponseWriter
	write, flush error
}

func (b broken) Write(p []byte) (int, error) { return len(p), b.write }
func (b broken) FlushError() error           { return b.flush }

func TestAClaimThatCannotBeHandedOverIsOfferedAgainAtOnce(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost")
	gone := func(t *testing.T) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		return ctx
	}
	alive := func(t *testing.T) context.Context { return t.Context() }
	for _, c := range []struct {
		name         string
		ctx          func(*testing.T) context.Context
		write, flush error
	}{
		{"the write fails", alive, lost, nil},
		{"the flush fails", alive, nil, lost},
		{"the request has ended", gone, nil, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			const send = `{"message":{"role":"user","parts":[{"text":"hi"}]}}`
			l.ok(t, l.boss, "POST", "/v1/agents/coder/tasks", send)
			l.ok(t, l.boss, "POST", "/v1/agents/coder/tasks", send)

			// by next
			l.call(c.ctx(t), broken{httptest.NewRecorder(), c.write, c.flush}, l.coder, "GET", "/v1/agents/me/tasks/next", "")
			first := l.ok(t, l.coder, "GET", "/v1/agents/me/tasks/next", "")
			if !strings.Contains(first, `"failures":0`) {
				t.Errorf("it counted as a failure: %s", first)
			}

			// along with a result
			id := first[len(`{"id":"`):][:36]
			l.call(c.ctx(t), broken{httptest.NewRecorder(), c.write, c.flush}, l.coder, "POST", "/v1/agents/me/tasks/"+id+"/result?next=1", `{"state":"completed"}`)
			second := l.ok(t, l.coder, "GET", "/v1/agents/me/tasks/next", "")
			if strings.Contains(second, id) || !strings.Contains(second, `"failures":0`) {
				t.Errorf("after the result: %s", second)
			}
			if got := l.ok(t, l.boss, "GET", "/v1/agents/coder/tasks/"+id, ""); !strings.Contains(got, `"state":"completed"`) {
				t.Errorf("the result was lost: %s", got)
			}
		})
	}
}
