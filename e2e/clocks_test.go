package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/e2e/hubproc"
	"github.com/holdfast-hub/holdfast/internal/store/pgtest"
)

// wrong are two replicas, of which one is ten minutes early and the other ten minutes late.
type wrong struct {
	database    string
	early, late *hubproc.Hub
	caller      *hubproc.Client // of the early one
	coder       *hubproc.Client // likewise
}

const off = 10 * time.Minute

// wrongClocks starts them.
func wrongClocks(t *testing.T) *wrong {
	t.Helper()
	w := &wrong{database: hubproc.Database(t)}
	command, key := hubproc.WithWrongClocks(t), hubproc.MasterKey(t)
	start := func(by time.Duration) *hubproc.Hub {
		opt := hubproc.On(w.database, key)
		opt.Command, opt.Env = command, append(opt.Env, hubproc.WrongBy(by))
		opt.Args = []string{"--lease", "2s", "--backoff-min", "20ms", "--retain", "24h"}
		return hubproc.Start(t, opt)
	}
	w.early, w.late = start(off), start(-off)
	w.caller, w.coder = w.early.Agent("caller"), w.early.Agent("coder")
	return w
}

// at is the same client at a replica.
func at(h *hubproc.Hub, c *hubproc.Client) *hubproc.Client { return h.Client(c.Token) }

// checkDue bounds when something happens that is due after d: never before, and soon
// after, with some more for a busy machine.
func checkDue(t *testing.T, what string, took, d time.Duration) {
	t.Helper()
	const more, slack = 2 * time.Second, 4 * time.Second
	if took < d-50*time.Millisecond || took > d+more+slack {
		t.Errorf("%s after %v, want after %v", what, took, d)
	}
	t.Logf("%s after %v", what, took)
}

// Replicas whose clocks are twenty minutes apart agree on what is due, since they go by
// the clock of their database.
func TestReplicasWithWrongClocks(t *testing.T) {
	w := wrongClocks(t)
	t.Run("leases", w.leases)
	t.Run("deadlines", w.deadlines)
	t.Run("tokens", w.tokens)
	t.Run("retention", w.retention)
}

// leases: a task that is claimed on one replica goes to who waits on the other when the
// lease is over, and not before.
func (w *wrong) leases(t *testing.T) {
	for name, hubs := range map[string][2]*hubproc.Hub{"early": {w.early, w.late}, "late": {w.late, w.early}} {
		ctx := within(t, time.Minute)
		var sent, first, second task
		must(t, at(hubs[0], w.caller).Call(ctx, "POST", "/v1/agents/coder/tasks", send("hello"), &sent))
		must(t, at(hubs[0], w.coder).Call(ctx, "GET", "/v1/agents/me/tasks/next?lease=2", nil, &first))
		began := time.Now()
		must(t, at(hubs[1], w.coder).Call(ctx, "GET", "/v1/agents/me/tasks/next?wait=30", nil, &second))
		checkDue(t, "what was claimed on the "+name+" replica came", time.Since(began), 2*time.Second)
		if first.ID != sent.ID || second.ID != sent.ID || second.Attempt != first.Attempt+1 {
			t.Errorf("claimed %+v and then %+v of %s", first, second, sent.ID)
		}
		must(t, w.coder.Call(ctx, "POST", "/v1/agents/me/tasks/"+sent.ID+"/result", object{"state": "completed"}, nil, "X-Claim", second.ClaimID))
	}
}

// deadlines are points in time, and may be given to any replica.
func (w *wrong) deadlines(t *testing.T) {
	for name, h := range map[string]*hubproc.Hub{"early": w.early, "late": w.late} {
		ctx := within(t, time.Minute)
		body := send("hello")
		began := time.Now()
		body["deadline"] = began.Add(2 * time.Second).UTC().Format(time.RFC3339Nano)
		var sent task
		must(t, at(h, w.caller).Call(ctx, "POST", "/v1/agents/coder/tasks", body, &sent))
		eventually(t, soon, "the deadline passes", func() bool {
			must(t, w.caller.Call(ctx, "GET", "/v1/agents/coder/tasks/"+sent.ID, nil, &sent))
			return sent.State == "failed"
		})
		checkDue(t, "what was sent to the "+name+" replica failed", time.Since(began), 2*time.Second)
		body["deadline"] = time.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano)
		if a, err := at(h, w.caller).Do(ctx, "POST", "/v1/agents/coder/tasks", body); err != nil || a.Status != 400 {
			t.Errorf("a deadline that has passed got %d %s, %v", a.Status, a.Body, err)
		}
	}
}

// tokens that one replica makes expire on both.
func (w *wrong) tokens(t *testing.T) {
	for name, hubs := range map[string][2]*hubproc.Hub{"early": {w.early, w.late}, "late": {w.late, w.early}} {
		ctx := within(t, time.Minute)
		var made struct{ Token string }
		began := time.Now()
		must(t, hubs[0].Admin().Call(ctx, "POST", "/v1/agents/caller/tokens", object{"expires_in": 3}, &made))
		for _, h := range hubs {
			must(t, h.Client(made.Token).Call(ctx, "GET", "/v1/whoami", nil, nil))
		}
		for _, h := range hubs {
			eventually(t, soon, "the token expires", func() bool {
				a, err := h.Client(made.Token).Do(ctx, "GET", "/v1/whoami", nil)
				return err == nil && a.Status == 401
			})
			checkDue(t, "a token of the "+name+" replica expired", time.Since(began), 3*time.Second)
		}
	}
}

// retention: what ended five minutes less than a day ago stays, what ended five minutes
// more ago goes, whichever replica looks.
func (w *wrong) retention(t *testing.T) {
	ctx := within(t, time.Minute)
	w.early.Kill()
	w.late.Kill()
	for name, h := range map[string]*hubproc.Hub{"early": w.early, "late": w.late} {
		h.Start()
		caller := at(h, w.caller)
		young, old := w.ended(t, caller), w.ended(t, caller)
		w.age(t, young, 24*time.Hour-off/2)
		w.age(t, old, 24*time.Hour+off/2)
		h.Kill()
		h.Start() // it looks a second after its start, and then every minute
		eventually(t, soon, "the "+name+" replica drops an old task", func() bool {
			a, err := caller.Do(ctx, "GET", "/v1/agents/coder/tasks/"+old, nil)
			return err == nil && a.Status == 404
		})
		must(t, caller.Call(ctx, "GET", "/v1/agents/coder/tasks/"+young, nil, nil))
		h.Kill()
	}
}

// ended gives a task that has ended.
func (w *wrong) ended(t *testing.T, caller *hubproc.Client) string {
	t.Helper()
	a, err := caller.Do(t.Context(), "POST", "/v1/agents/coder/tasks", send("hello"))
	must(t, err)
	id := taskIn(t, a).ID
	must(t, caller.Call(t.Context(), "POST", "/v1/agents/coder/tasks/"+id+"/cancel", nil, nil))
	return id
}

// age makes a task have ended that long ago.
func (w *wrong) age(t *testing.T, id string, ago time.Duration) {
	t.Helper()
	must(t, pgtest.ExecAt(t.Context(), w.database, fmt.Sprintf("UPDATE task SET ended_at = (extract(epoch FROM clock_timestamp()) * 1000)::bigint - %d WHERE id = '%s'", ago.Milliseconds(), id)))
}
