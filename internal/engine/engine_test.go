package engine_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
)

// directory lets everybody call everybody; its addresses' ids are their handles.
type directory struct{ addresses map[string]*hub.Address }

func (d directory) Resolve(_ context.Context, ref string) (*hub.Address, error) {
	if a := d.addresses[ref]; a != nil {
		return a, nil
	}
	return nil, hub.ErrNotPermitted()
}

func (directory) MayCall(hub.Principal, *hub.Address) bool { return true }

func principal(handle string) hub.Principal {
	return hub.Principal{Address: handle, Handle: handle, Role: hub.RoleAgent}
}

// open runs an engine over a real store with the addresses caller, callee, other.
func open(t testing.TB, opt engine.Options) (*engine.Engine, *sqlite.Store) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	d := directory{addresses: make(map[string]*hub.Address)}
	for _, handle := range []string{"caller", "callee", "other"} {
		a := &hub.Address{ID: handle, Handle: handle, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1, CreatedAt: time.Now()}
		if err := store.CreateAddress(t.Context(), *a); err != nil {
			t.Fatal(err)
		}
		d.addresses[handle] = a
	}
	opt.Store, opt.Directory = store, d
	e := engine.New(opt)
	e.Start()
	t.Cleanup(func() {
		e.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, store
}

var serial atomic.Int64

func send(to, text string) engine.SendRequest {
	id := "m" + strconv.FormatInt(serial.Add(1), 10)
	return engine.SendRequest{To: to, MessageID: id, Message: canon.TextMessage(id, false, text), IdempotencyKey: id}
}

func report(t *hub.Task, state hub.State) engine.ReportRequest {
	a := `{"artifactId":"response","name":"response","parts":[{"text":"done"}]}`
	return engine.ReportRequest{
		Task: t.ID, Claim: t.ClaimID(), State: state,
		Events: []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "response", LastChunk: true, Body: []byte(a)}},
	}
}
