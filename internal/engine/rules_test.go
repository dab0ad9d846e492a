package engine_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

func TestLineageCountsOnlyWhereTheCallerHasAPartInIt(t *testing.T) {
	e, _ := open(t, engine.Options{})
	root := mustSend(t, e, send("callee", "root"))
	next(t, e, 0, time.Minute)
	foreign, err := e.Send(t.Context(), principal("caller"), send("other", "elsewhere"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		by           string
		task, call   string
		parent, run  string
		wantsIgnored bool
	}{
		"a task addressed to the sender":             {by: "callee", task: root.ID, parent: root.ID, run: root.ID},
		"a task that the sender sent":                {by: "caller", task: root.ID, wantsIgnored: true},
		"a task between others":                      {by: "callee", task: foreign.Task.ID, wantsIgnored: true},
		"a call that the sender made":                {by: "caller", call: root.ID, parent: root.ID, run: root.ID},
		"a call between others":                      {by: "callee", call: foreign.Task.ID, wantsIgnored: true},
		"a call that does not exist":                 {by: "callee", call: "nonsense", wantsIgnored: true},
		"the task wins over the call":                {by: "callee", task: root.ID, call: foreign.Task.ID, parent: root.ID, run: root.ID},
		"the call counts where the task does not":    {by: "caller", task: "nonsense", call: root.ID, parent: root.ID, run: root.ID},
		"nothing, which is a new run and no offence": {by: "caller"},
	} {
		t.Run(name, func(t *testing.T) {
			r := send("other", "child")
			r.HoldfastTask, r.ParentCall = c.task, c.call
			out, err := e.Send(t.Context(), principal(c.by), r)
			if err != nil {
				t.Fatal(err)
			}
			if c.run == "" {
				c.run = out.Task.ID
			}
			if out.LineageIgnored != c.wantsIgnored || out.Task.ParentTask != c.parent || out.Task.ParentCall != c.parent || out.Task.Run != c.run {
				t.Errorf("ignored=%v parent=%q run=%q; want %v, %q, %q", out.LineageIgnored, out.Task.ParentTask, out.Task.Run, c.wantsIgnored, c.parent, c.run)
			}
		})
	}
}

func TestAnAddressCanDeduplicateByMessageID(t *testing.T) {
	e, store := open(t, engine.Options{})
	a := hub.Address{ID: "strict", Handle: "strict", Kind: hub.KindAgent, DedupeMessageID: true, CreatedAt: time.Now()}
	if err := store.CreateAddress(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	e = engine.New(engine.Options{Store: store, Directory: directory{addresses: map[string]*hub.Address{"strict": &a, "callee": {ID: "callee"}}}})
	once := func(by hub.Principal, to, text string) (string, error) {
		r := send(to, text)
		r.IdempotencyKey, r.MessageID, r.Message = "", "same", []byte(`{"messageId":"same","role":"ROLE_USER","parts":[{"text":"`+text+`"}]}`)
		out, err := e.Send(t.Context(), by, r)
		if err != nil {
			return "", err
		}
		return out.Task.ID, nil
	}
	first, _ := once(principal("caller"), "strict", "a")
	if again, err := once(principal("caller"), "strict", "a"); err != nil || again != first {
		t.Errorf("the same message again gave %q, %v; want %q", again, err, first)
	}
	if _, err := once(principal("caller"), "strict", "b"); hub.KindOf(err) != hub.KeyReused {
		t.Errorf("another message with the same id gave %v", err)
	}
	if id, err := once(principal("other"), "strict", "a"); err != nil || id == first {
		t.Errorf("another caller's message with the same id gave %q, %v", id, err)
	}
	one, _ := once(principal("caller"), "callee", "a")
	if two, _ := once(principal("caller"), "callee", "a"); one == two {
		t.Error("an address that did not ask for it deduplicated by messageId")
	}
	anonymous := hub.Principal{Address: "caller", Role: hub.RoleAnonymous}
	one, _ = once(anonymous, "strict", "z")
	if two, _ := once(anonymous, "strict", "z"); one == two {
		t.Error("anonymous callers share a key")
	}
}

func TestAReadEndIsPendingNoMore(t *testing.T) {
	e, _ := open(t, engine.Options{})
	sent := mustSend(t, e, send("callee", "hi"))
	pending := func() int {
		page, err := e.Tasks(t.Context(), principal("caller"), "", hub.TaskFilter{Pending: true})
		if err != nil {
			t.Fatal(err)
		}
		return len(page.Tasks)
	}
	if n := pending(); n != 1 {
		t.Fatalf("%d pending after the send", n)
	}
	if _, err := e.Report(t.Context(), principal("callee"), report(next(t, e, 0, time.Minute), hub.Completed)); err != nil {
		t.Fatal(err)
	}
	if n := pending(); n != 1 {
		t.Fatalf("%d pending after the end, before it was read", n)
	}
	if _, err := e.Task(t.Context(), principal("callee"), engine.Ref{Callee: "callee", Task: sent.ID}, hub.Load{}); err != nil {
		t.Fatal(err)
	}
	if n := pending(); n != 1 {
		t.Fatalf("%d pending after its callee looked", n)
	}
	get(t, e, sent.ID)
	if n := pending(); n != 0 {
		t.Errorf("%d pending after the end was read", n)
	}
}

func TestRefusalsOfWhatCannotBe(t *testing.T) {
	e, _ := open(t, engine.Options{})
	sent := mustSend(t, e, send("callee", "hi"))
	late := send("callee", "late")
	late.Deadline = time.Now().Add(-time.Second)
	_, errLate := e.Send(t.Context(), principal("caller"), late)
	_, errNobody := e.Send(t.Context(), principal("caller"), send("nobody", "hi"))
	_, errLease := e.Next(t.Context(), principal("callee"), engine.NextRequest{Lease: time.Millisecond})
	_, errAck := e.Next(t.Context(), principal("callee"), engine.NextRequest{Lease: time.Minute, Ack: -time.Second})
	_, errWait := e.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: time.Hour})
	_, errAhead := e.Subscribe(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: sent.ID}, 99, hub.Load{})
	_, errRequeue := e.Requeue(t.Context(), principal("caller"), sent.ID)
	_, errAny := e.Task(t.Context(), principal("other"), engine.Ref{Task: sent.ID}, hub.Load{})
	_, errClaim := e.Heartbeat(t.Context(), principal("callee"), sent.ID, "another.1", -1)
	errGarbage := e.GiveBack(t.Context(), principal("callee"), sent.ID, "garbage")
	errNoClaim := e.GiveBack(t.Context(), principal("callee"), sent.ID, "")
	errNotMine := e.GiveBack(t.Context(), principal("other"), sent.ID, hub.ClaimID(sent.ID, 1))
	errNever := e.GiveBack(t.Context(), principal("callee"), sent.ID, hub.ClaimID(sent.ID, 1))
	for name, c := range map[string]struct {
		err  error
		want hub.Kind
	}{
		"a release of garbage":          {errGarbage, hub.Conflict},
		"a release of no claim":         {errNoClaim, hub.Invalid},
		"a release by who has no task":  {errNotMine, hub.NotFound},
		"a release of a claim never":    {errNever, hub.Conflict},
		"a deadline in the past":        {errLate, hub.Invalid},
		"an address that is not there":  {errNobody, hub.NotPermitted},
		"a lease too short":             {errLease, hub.Invalid},
		"an ack before the claim":       {errAck, hub.Invalid},
		"a wait too long":               {errWait, hub.Invalid},
		"an event that has not been":    {errAhead, hub.Invalid},
		"a requeue by a mere caller":    {errRequeue, hub.NotPermitted},
		"somebody else's, anywhere":     {errAny, hub.NotFound},
		"a heartbeat for another claim": {errClaim, hub.Conflict},
	} {
		var refused *hub.Error
		if !errors.As(c.err, &refused) || refused.Kind != c.want {
			t.Errorf("%s: got %v, want kind %d", name, c.err, c.want)
		}
	}
}

func TestAnIdempotencyKeyIsUpTo255PrintableCharacters(t *testing.T) {
	e, _ := open(t, engine.Options{})
	for key, ok := range map[string]bool{"a b~": true, strings.Repeat("k", 255): true, strings.Repeat("k", 256): false, "a\tb": false, "é": false} {
		r := send("callee", "hi")
		r.IdempotencyKey = key
		if _, err := e.Send(t.Context(), principal("caller"), r); ok != (err == nil) || !ok && hub.KindOf(err) != hub.Invalid {
			t.Errorf("%.10q: %v", key, err)
		}
	}
}

func TestATraceThatIsNoneIsDropped(t *testing.T) {
	e, _ := open(t, engine.Options{})
	good := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for header, want := range map[string]string{good: good, "": "", strings.ToUpper(good): "", good + "x": "", strings.Repeat("0", 55): ""} {
		r := send("callee", "hi")
		r.Traceparent = header
		if got := mustSend(t, e, r).Trace; got != want {
			t.Errorf("%q is kept as %q", header, got)
		}
	}
}

// closed is a directory in which an address may not be called, or is gone.
type closed struct{ directory }

func (closed) MayCall(hub.Principal, *hub.Address) bool { return false }

func TestACallersOwnTasksStayItsOwnWhenTheAddressIsClosedToIt(t *testing.T) {
	e, store := open(t, engine.Options{})
	sent := mustSend(t, e, send("callee", "hi"))
	known := directory{addresses: map[string]*hub.Address{"callee": {ID: "callee", Handle: "callee"}}}
	for name, d := range map[string]engine.Directory{"no longer permitted": closed{known}, "deleted": directory{}} {
		e := engine.New(engine.Options{Store: store, Directory: d})
		ref := engine.Ref{Callee: "callee", Task: sent.ID}
		if _, err := e.Task(t.Context(), principal("caller"), ref, hub.Load{}); err != nil {
			t.Errorf("%s: reading it gave %v", name, err)
		}
		if page, err := e.Tasks(t.Context(), principal("caller"), "callee", hub.TaskFilter{}); err != nil || len(page.Tasks) != 1 {
			t.Errorf("%s: listing it gave %d tasks, %v", name, len(page.Tasks), err)
		}
		if _, err := e.Tasks(t.Context(), principal("other"), "callee", hub.TaskFilter{}); hub.KindOf(err) != hub.NotPermitted {
			t.Errorf("%s: somebody else's list gave %v", name, err)
		}
		_, foreign := e.Task(t.Context(), principal("other"), ref, hub.Load{})
		_, missing := e.Task(t.Context(), principal("other"), engine.Ref{Callee: "callee", Task: "nothing"}, hub.Load{})
		if hub.KindOf(foreign) != hub.NotPermitted || foreign.Error() != missing.Error() {
			t.Errorf("%s: somebody else's gave %v, a missing one %v", name, foreign, missing)
		}
	}
	e = engine.New(engine.Options{Store: store, Directory: directory{}})
	if got, err := e.Cancel(t.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: sent.ID}); err != nil || got.State != hub.Canceled {
		t.Errorf("canceling it gave %v, %v", got, err)
	}
}
