package push_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery/push"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
	"github.com/holdfast-hub/holdfast/internal/vault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 20 * time.Second

// key signs notifications in these tests.
var key = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// directory lets everybody call everybody; ids are handles.
type directory struct{}

func (directory) Resolve(_ context.Context, ref string) (*hub.Address, error) {
	return &hub.Address{ID: ref, Handle: ref, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1}, nil
}

func (directory) MayCall(hub.Principal, *hub.Address) bool { return true }

func principal(handle string) hub.Principal {
	return hub.Principal{Address: handle, Handle: handle, Role: hub.RoleAgent}
}

// buffer is a log that several goroutines write and a test reads.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// bed is a hub without faces: a real store, engine, vault, guard and sender.
type bed struct {
	*testing.T
	dir    string
	opt    push.Options   // what the tests change
	guard  egress.Options // of what is sent
	save   egress.Options // of what is saved
	outbox func(push.Outbox) push.Outbox
	log    buffer
	news   chan struct{} // the sender has looked for work, settled some, or is to forget some; see until

	store  *sqlite.Store
	engine *engine.Engine
	sender *push.Sender
	egress *egress.Guard
}

// everywhere allows all of loopback.
var everywhere = egress.Options{AllowLocal: []egress.PortRange{{First: 1, Last: 65535}}}

// open runs a hub whose tries are quick to follow one another.
func open(t *testing.T, change ...func(*bed)) *bed {
	t.Helper()
	b := &bed{T: t, dir: t.TempDir(), guard: everywhere, save: everywhere, news: make(chan struct{}, 1),
		opt: push.Options{BackoffMin: 20 * time.Millisecond, BackoffMax: 100 * time.Millisecond}}
	for _, f := range change {
		f(b)
	}
	b.start()
	for _, handle := range []string{"caller", "callee", "other"} {
		a := hub.Address{ID: handle, Handle: handle, Kind: hub.KindAgent, Access: hub.Open, MaxRedeliveries: -1, CreatedAt: time.Now()}
		if err := b.store.CreateAddress(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { b.close(true) })
	return b
}

func (b *bed) start() {
	b.Helper()
	ctx := context.Background()
	var err error
	if b.store, err = sqlite.Open(ctx, sqlite.Options{Dir: b.dir}); err != nil {
		b.Fatal(err)
	}
	sealer, err := vault.Open(ctx, vault.Options{Secrets: b.store, File: filepath.Join(b.dir, "master.key"), Make: true})
	if err != nil {
		b.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	b.guard.Log, b.save.Log = log, log
	b.egress = egress.New(b.guard)
	saving := egress.New(b.save)
	opt := b.opt
	opt.Outbox, opt.Tasks, opt.Client, opt.Sealer, opt.Key, opt.Log = b.store, b.store, b.egress.Client(egress.Permit{}), sealer, key, log
	opt.TaskV03 = canon.AppendTask
	if b.outbox != nil {
		opt.Outbox = b.outbox(b.store)
	}
	opt.Outbox = watched{opt.Outbox, b.news}
	b.sender = push.New(opt)
	b.engine = engine.New(engine.Options{
		Store: b.store, Directory: directory{}, Log: log, Pusher: forgetful{b.sender, b.news}, Sealer: sealer,
		CheckPushURL: func(ctx context.Context, url string) error { return saving.Check(ctx, url, egress.Permit{}) },
	})
	b.engine.Start()
	b.sender.Start()
}

// close ends the hub: in an orderly way, or as if it were killed.
func (b *bed) close(orderly bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if !orderly {
		cancel() // what is under way is cut off
	}
	b.engine.Close()
	b.sender.Stop(ctx)
	b.egress.Close()
	if err := b.store.Close(); err != nil {
		b.Error(err)
	}
}

func (b *bed) restart() {
	b.Helper()
	b.close(true)
	b.start()
}

var serial atomic.Int64

// send sends a task, with a configuration if c is not nil.
func (b *bed) send(c *hub.PushConfig) *hub.Task {
	b.Helper()
	id := "m" + strconv.FormatInt(serial.Add(1), 10)
	out, err := b.engine.Send(b.Context(), principal("caller"), engine.SendRequest{
		To: "callee", MessageID: id, Message: canon.TextMessage(id, false, "hi"), Push: c,
	})
	if err != nil {
		b.Fatal(err)
	}
	return out.Task
}

// hook is a configuration of 1.0 with an id of its own.
func hook(id, url string) *hub.PushConfig { return &hub.PushConfig{ID: id, URL: url, Version: "1.0"} }

// work has the callee take the next task, report so many artifacts one by one, and
// complete it.
func (b *bed) work(artifacts int) {
	b.Helper()
	t, err := b.engine.Next(b.Context(), principal("callee"), engine.NextRequest{Wait: patience})
	if err != nil || t == nil {
		b.Fatalf("next gave %v, %v", t, err)
	}
	for i := range artifacts {
		name := "a" + strconv.Itoa(i)
		b.report(t, engine.ReportRequest{Events: []hub.Event{{
			Kind: hub.ArtifactEvent, ArtifactID: name, LastChunk: true,
			Body: []byte(`{"artifactId":"` + name + `","parts":[{"data":9007199254740993}]}`),
		}}})
	}
	b.report(t, engine.ReportRequest{State: hub.Completed})
}

func (b *bed) report(t *hub.Task, r engine.ReportRequest) {
	b.Helper()
	r.Task, r.Claim = t.ID, t.ClaimID()
	if _, err := b.engine.Report(b.Context(), principal("callee"), r); err != nil {
		b.Fatal(err)
	}
}

// failures lists what was given up.
func (b *bed) failures(task string) []hub.PushFailure {
	b.Helper()
	list, _, err := b.engine.PushFailures(b.Context(), principal("caller"), task, "", 100)
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// config reads a configuration.
func (b *bed) config(t *hub.Task, id string) hub.PushConfig {
	b.Helper()
	c, err := b.engine.Push(b.Context(), principal("caller"), engine.Ref{Callee: "callee", Task: t.ID}, id)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// watched is an outbox that tells of what its sender does.
type watched struct {
	push.Outbox
	news chan<- struct{}
}

func (w watched) LendPushes(ctx context.Context, limit int, loan time.Duration) ([]hub.PushJob, time.Duration, error) {
	defer w.tell() // after each job, and whenever the sender is idle
	return w.Outbox.LendPushes(ctx, limit, loan)
}

func (w watched) SettlePush(ctx context.Context, j hub.PushJob, o hub.PushOutcome) error {
	defer w.tell()
	return w.Outbox.SettlePush(ctx, j, o)
}

func (w watched) tell() { tell(w.news) }

// forgetful is a sender that tells when it is to forget something, before it does.
type forgetful struct {
	*push.Sender
	news chan<- struct{}
}

func (f forgetful) Forget(ctx context.Context, task, config string) error {
	tell(f.news)
	return f.Sender.Forget(ctx, task, config)
}

func tell(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default:
	}
}

// until waits for something that the sender does to become true.
func (b *bed) until(what string, ok func() bool) {
	b.Helper()
	late := time.After(patience)
	for !ok() {
		select {
		case <-b.news:
		case <-late:
			b.Fatalf("%s never came about; the log:\n%s", what, &b.log)
		}
	}
}

// notice is a notification as a receiver got it.
type notice struct {
	header http.Header
	body   string
	method string
}

// receiver is a webhook server. Each request goes through answer, if there is one,
// and then to got.
type receiver struct {
	*httptest.Server
	came   chan struct{} // for each request, before it is answered
	got    chan notice
	answer func(n int64, w http.ResponseWriter, r *http.Request)
	count  atomic.Int64
}

func receive(t *testing.T, answer func(n int64, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	rc := &receiver{came: make(chan struct{}, 10_000), got: make(chan notice, 10_000), answer: answer}
	rc.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := rc.count.Add(1)
		rc.came <- struct{}{}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		if rc.answer != nil {
			rc.answer(n, w, r)
		}
		rc.got <- notice{r.Header.Clone(), string(body), r.Method}
	}))
	t.Cleanup(rc.Close)
	return rc
}

// underWay waits for so many requests to be there, answered or not.
func (b *bed) underWay(rc *receiver, n int) {
	b.Helper()
	late := time.After(patience)
	for range n {
		select {
		case <-rc.came:
		case <-late:
			b.Fatalf("there were %d requests, want %d; the log:\n%s", rc.count.Load(), n, &b.log)
		}
	}
}

// next gives the next notification.
func (b *bed) next(rc *receiver) notice {
	b.Helper()
	select {
	case n := <-rc.got:
		return n
	case <-time.After(patience):
		b.Fatalf("no notification came; the log:\n%s", &b.log)
		return notice{}
	}
}
