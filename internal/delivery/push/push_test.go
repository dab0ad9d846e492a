package push_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery/push"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// wanted is the bodies that a task's events have to come as.
func (b *bed) wanted(t *hub.Task) []string {
	b.Helper()
	page, err := b.store.Events(b.Context(), hub.TaskRef{ID: t.ID}, hub.Viewer{All: true}, 0, 1000)
	if err != nil {
		b.Fatal(err)
	}
	var list []string
	for i := range page.Events {
		list = append(list, string(canon.AppendStreamResponse(nil, t.ID, t.ContextID, &page.Events[i])))
	}
	return list
}

func TestEachEventComesOnceAndInOrder(t *testing.T) {
	b := open(t)
	rc := receive(t, nil)
	task := b.send(hook("h", rc.URL))
	b.work(40)
	for i, want := range b.wanted(task) {
		got := b.next(rc)
		if got.body != want {
			t.Fatalf("notification %d was\n%s\nwant\n%s", i, got.body, want)
		}
		if !strings.Contains(got.body, "9007199254740993") && strings.Contains(got.body, `"artifactUpdate"`) {
			t.Errorf("a large number did not survive: %s", got.body)
		}
	}
	b.until("the end to be noted", func() bool { return b.config(task, "h").Cursor == 43 })
	if n := rc.count.Load(); n != 43 {
		t.Errorf("%d requests for 43 events", n)
	}
}

func TestHeadersAndSignatures(t *testing.T) {
	whsec := "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdefghijklmn"))
	for name, token := range map[string]string{"a plain token": "a token, not in base64", "a secret of Standard Webhooks": whsec, "no token": ""} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			rc := receive(t, nil)
			c := hook("h", rc.URL+"/hook?x=1")
			c.Token, c.Scheme, c.Credentials = token, "Bearer", "s3cret"
			task := b.send(c)
			got := b.next(rc)
			for header, want := range map[string]string{
				"Content-Type": "application/a2a+json", "Authorization": "Bearer s3cret", "A2A-Version": "1.0", "User-Agent": "Holdfast",
				"X-A2A-Notification-Token": token, "A2A-Notification-Token": token,
			} {
				if all := got.header.Values(header); strings.Join(all, "|") != want {
					t.Errorf("%s was %q, want %q", header, all, want)
				}
			}
			if got.method != http.MethodPost {
				t.Errorf("the method was %s", got.method)
			}
			id := got.header.Get("Webhook-Id")
			if !strings.HasPrefix(id, task.ID+"_1_") || strings.Contains(id, ".") {
				t.Errorf("webhook-id was %q", id)
			}
			verifyKey(t, got)
			if token != "" {
				verifyToken(t, got, token)
			}
		})
	}
}

// verifyKey checks a notification as a receiver with the hub's public key does.
func verifyKey(t *testing.T, n notice) {
	t.Helper()
	signed := n.header.Get("Webhook-Id") + "." + n.header.Get("Webhook-Timestamp") + "." + n.body
	for s := range strings.FieldsSeq(n.header.Get("Webhook-Signature")) {
		if encoded, ok := strings.CutPrefix(s, "v1a,"); ok {
			signature, err := base64.StdEncoding.DecodeString(encoded)
			if err == nil && ed25519.Verify(key.Public().(ed25519.PublicKey), []byte(signed), signature) {
				return
			}
		}
	}
	t.Errorf("no valid v1a signature in %q", n.header.Get("Webhook-Signature"))
}

// verifyToken checks a notification with the library that receivers use.
func verifyToken(t *testing.T, n notice, token string) {
	t.Helper()
	w, err := standardwebhooks.NewWebhookRaw([]byte(token))
	if strings.HasPrefix(token, "whsec_") {
		w, err = standardwebhooks.NewWebhook(token)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Verify([]byte(n.body), n.header); err != nil {
		t.Errorf("the signature does not verify: %v", err)
	}
	if w.Verify([]byte(n.body+" "), n.header) == nil {
		t.Error("the signature verifies another body")
	}
}

// Field bug: a dead hook was hammered without backoff, and its last notification was
// lost when the server restarted between two tries.
func TestAFailedNotificationIsTriedAgainAlsoAfterARestart(t *testing.T) {
	b := open(t)
	rc := receive(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
		if n <= 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	task := b.send(hook("h", rc.URL))
	first := b.next(rc)
	b.restart()
	b.work(0)
	for range 4 {
		again := b.next(rc)
		if again.body != first.body || again.header.Get("Webhook-Id") != first.header.Get("Webhook-Id") {
			t.Fatalf("another try came as\n%s %s\nthe first was\n%s %s", again.header.Get("Webhook-Id"), again.body, first.header.Get("Webhook-Id"), first.body)
		}
	}
	for _, want := range b.wanted(task)[1:] {
		if got := b.next(rc); got.body != want {
			t.Fatalf("then came\n%s\nwant\n%s", got.body, want)
		}
	}
	b.until("the end to be noted", func() bool { return b.config(task, "h").Cursor == 3 })
	if c := b.config(task, "h"); c.Tries != 0 || c.Failed != 0 || c.LastError != "" {
		t.Errorf("after all was delivered the configuration says %+v", c)
	}
}

func TestAFailureIsVisibleWhileItIsTriedAgain(t *testing.T) {
	b := open(t)
	rc := receive(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "120")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	task := b.send(hook("h", rc.URL+"/secret-path?key=secret-query"))
	b.next(rc)
	b.until("the failure", func() bool { return b.config(task, "h").Tries == 1 })
	c := b.config(task, "h")
	if want := strings.TrimPrefix(rc.URL, "http://") + " answered 429 Too Many Requests"; c.LastError != want {
		t.Errorf("the error is %q, want %q", c.LastError, want)
	}
	if in := time.Until(c.NextTry); in < 110*time.Second || in > 121*time.Second {
		t.Errorf("it is tried again in %v, although the receiver asked for 2 minutes", in)
	}
}

func TestADeadHostHoldsUpNobodyElse(t *testing.T) {
	release := make(chan struct{})
	dead := receive(t, func(int64, http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	b := open(t, func(b *bed) { b.opt.Parallel, b.opt.PerHost = 4, 2 })
	good := receive(t, nil)
	for i := range 10 {
		b.send(hook("dead", fmt.Sprintf("%s/%d", dead.URL, i)))
	}
	b.underWay(dead, 2)
	task := b.send(hook("good", good.URL))
	both, err := b.engine.SetPush(t.Context(), principal("caller"), engine.Ref{Task: task.ID}, *hook("dead too", dead.URL))
	if err != nil {
		t.Fatal(err)
	}
	for range 11 {
		b.work(0)
	}
	for _, want := range b.wanted(task) {
		if got := b.next(good); got.body != want {
			t.Fatalf("came\n%s\nwant\n%s", got.body, want)
		}
	}
	if n := dead.count.Load(); n != 2 {
		t.Errorf("the dead host has %d requests at once, want 2", n)
	}
	if c := b.config(task, both.ID); c.Tries != 0 {
		t.Errorf("waiting for a crowded host counts as %d tries", c.Tries)
	}
}

func TestTheManyDeadHostsOfACallerHoldUpNobodyElse(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.Parallel, b.opt.PerCaller = 4, 2 })
	release := make(chan struct{})
	var dead [6]*receiver
	for i := range dead {
		dead[i] = receive(t, func(int64, http.ResponseWriter, *http.Request) { <-release })
		b.send(hook("dead", dead[i].URL))
	}
	defer close(release) // before the receivers close
	for range dead {
		b.work(0)
	}
	b.until("the dead hosts to be busy", func() bool { return b.sender.Busy() == 2 })
	good := receive(t, nil)
	out, err := b.engine.Send(t.Context(), principal("other"), engine.SendRequest{
		To: "callee", MessageID: "m", Message: canon.TextMessage("m", false, "hi"), Push: hook("good", good.URL),
	})
	if err != nil {
		t.Fatal(err)
	}
	b.work(0)
	for _, want := range b.wanted(out.Task) {
		if got := b.next(good); got.body != want {
			t.Fatalf("came\n%s\nwant\n%s", got.body, want)
		}
	}
	if n := b.sender.Busy(); n > 3 {
		t.Errorf("%d are served at once, of which 2 may be the caller's with the dead hosts", n)
	}
}

func TestWhatFailedBeforeLeavesRoomForWhatDidNot(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.Parallel = 2 })
	release := make(chan struct{})
	var hanging atomic.Int64
	var failed [5]*hub.Task
	for i := range failed {
		dead := receive(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
			if n == 1 {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			hanging.Add(1)
			<-release
		})
		failed[i] = b.send(hook("dead", dead.URL))
	}
	defer close(release)
	for range failed {
		b.work(0)
	}
	b.until("one to be tried again, and the others to be put off", func() bool {
		off := 0
		for _, task := range failed {
			if b.config(task, "dead").NextTry.After(time.Now().Add(5 * time.Second)) {
				off++
			}
		}
		return off == len(failed)-1
	})
	good := receive(t, nil)
	task := b.send(hook("good", good.URL))
	b.work(0)
	for _, want := range b.wanted(task) {
		if got := b.next(good); got.body != want {
			t.Fatalf("came\n%s\nwant\n%s", got.body, want)
		}
	}
	if n := hanging.Load(); n != 1 {
		t.Errorf("%d that failed before are tried at once, want 1", n)
	}
}

func TestWhatIsGivenUpIsVisibleAndCanBeDeliveredAgain(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.GiveUp = 100 * time.Millisecond })
	var up atomic.Bool
	rc := receive(t, func(_ int64, w http.ResponseWriter, _ *http.Request) {
		if !up.Load() {
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	task := b.send(hook("h", rc.URL))
	b.work(1)
	b.until("all to be given up", func() bool { return len(b.failures(task.ID)) == 4 })
	list := b.failures("")
	for i, f := range list {
		want := strings.TrimPrefix(rc.URL, "http://") + " answered 502 Bad Gateway"
		if f.Seq != int64(4-i) || f.Task != task.ID || f.Config != "h" || f.Reason != want || f.Tries < 1 {
			t.Errorf("failure %d is %+v", i, f)
		}
	}
	if last := list[len(list)-1]; last.Tries < 2 {
		t.Errorf("the first event was tried %d times only", last.Tries)
	}
	up.Store(true)
	for len(rc.got) > 0 {
		<-rc.got
	}
	if _, err := b.engine.Redeliver(t.Context(), principal("other"), list[2].ID); hub.KindOf(err) != hub.NotFound {
		t.Errorf("a stranger's redelivery gave %v", err)
	}
	if _, err := b.engine.Redeliver(t.Context(), principal("caller"), list[2].ID); err != nil {
		t.Fatal(err)
	}
	for _, want := range b.wanted(task)[1:] {
		if got := b.next(rc); got.body != want {
			t.Fatalf("came\n%s\nwant\n%s", got.body, want)
		}
	}
	b.until("the failure to go", func() bool { return len(b.failures(task.ID)) == 1 })
}

func TestTheEndIsTriedAlsoWhenItsTimeIsOver(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.GiveUp = time.Nanosecond })
	rc := receive(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	task := b.send(hook("h", rc.URL))
	b.work(3)
	b.until("all to be given up", func() bool { return len(b.failures(task.ID)) == 6 })
	tried := map[string]bool{}
	for len(rc.got) > 0 {
		tried[(<-rc.got).body] = true
	}
	for i, want := range b.wanted(task) {
		if !tried[want] {
			t.Errorf("event %d was never tried", i+1)
		}
	}
}

func TestAReceiverThatIsGoneIsNotTriedAgain(t *testing.T) {
	b := open(t)
	rc := receive(t, func(_ int64, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	task := b.send(hook("h", rc.URL))
	b.work(0)
	b.until("all to be given up", func() bool { return len(b.failures(task.ID)) == 3 })
	if n := rc.count.Load(); n != 3 {
		t.Errorf("%d requests for 3 events", n)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	canary := receive(t, nil)
	b := open(t)
	rc := receive(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, canary.URL, http.StatusTemporaryRedirect)
	})
	c := hook("h", rc.URL)
	c.Scheme, c.Credentials = "Bearer", "s3cret"
	task := b.send(c)
	b.until("a failure", func() bool { return b.config(task, "h").Tries > 1 })
	if n := canary.count.Load(); n != 0 {
		t.Errorf("the target of the redirect had %d requests", n)
	}
	got := b.config(task, "h").LastError
	if !strings.Contains(got, "redirects are not followed") || strings.Contains(got, canary.URL) {
		t.Errorf("the failure says %q", got)
	}
}

func TestASlowReceiverIsAFailure(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.Timeout = 200 * time.Millisecond })
	rc := receive(t, func(_ int64, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	task := b.send(hook("h", rc.URL))
	b.until("a failure", func() bool { return b.config(task, "h").Tries > 0 })
	if got := b.config(task, "h").LastError; !strings.Contains(got, "no complete answer came in time") {
		t.Errorf("the failure says %q", got)
	}
}

func TestAnEndlessAnswerIsDeliveredAllTheSame(t *testing.T) {
	b := open(t)
	rc := receive(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
		chunk := make([]byte, 64<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	task := b.send(hook("h", rc.URL))
	b.work(0)
	b.until("all to be delivered", func() bool { return b.config(task, "h").Cursor == 3 })
	if n := rc.count.Load(); n != 3 {
		t.Errorf("%d requests for 3 events", n)
	}
}

func TestTriesAreCounted(t *testing.T) {
	results := make(chan push.Result, 100)
	b := open(t, func(b *bed) { b.opt.Observe = func(r push.Result) { results <- r } })
	rc := receive(t, func(n int64, w http.ResponseWriter, _ *http.Request) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			w.WriteHeader(http.StatusGone)
		}
	})
	b.send(hook("h", rc.URL))
	b.work(0)
	for i, want := range []push.Result{push.Failed, push.GivenUp, push.Delivered, push.Delivered} {
		select {
		case got := <-results:
			if got != want {
				t.Errorf("result %d was %s, want %s", i, got, want)
			}
		case <-time.After(patience):
			t.Fatal("no result")
		}
	}
}

func TestNoRoomIsNoFailure(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	for name, c := range map[string]struct {
		change  func(*bed)
		version string
	}{
		"no slot of the guard":       {func(b *bed) { b.guard.PerTarget, b.guard.QueueWait = 1, 50*time.Millisecond }, "1.0"},
		"no memory for a large task": {func(b *bed) { b.opt.Room = hub.NewRoom(1) }, "0.3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, c.change, func(b *bed) { b.opt.Timeout = patience })
			busy := receive(t, func(_ int64, w http.ResponseWriter, r *http.Request) {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			})
			first := hook("h", busy.URL)
			first.Version = c.version
			large := "m" + strings.Repeat("x", 2<<20)
			out, err := b.engine.Send(t.Context(), principal("caller"), engine.SendRequest{
				To: "callee", MessageID: "m", Message: canon.TextMessage("m", false, large), Push: first,
			})
			if err != nil {
				t.Fatal(err)
			}
			task := out.Task
			if c.version == "1.0" {
				b.underWay(busy, 1)
				task = b.send(hook("h", busy.URL))
			}
			b.until("it to be put off", func() bool { return b.config(task, "h").NextTry.After(time.Now()) })
			if c := b.config(task, "h"); c.Tries != 0 || c.LastError != "" || c.Cursor != 0 {
				t.Errorf("the configuration says %+v", c)
			}
			short, cancel := context.WithCancel(t.Context())
			cancel()
			b.sender.Stop(short)
		})
	}
}

func TestALargeEventWaitsForRoomInMemory(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.Room = hub.NewRoom(9 << 20) }) // four times one such event, not two
	release := make(chan struct{})
	slow := receive(t, func(int64, http.ResponseWriter, *http.Request) { <-release })
	defer close(release)
	large := []byte(`{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 2<<20) + `"}]}`)
	var tasks [2]*hub.Task
	for i := range tasks {
		tasks[i] = b.send(nil)
		got, err := b.engine.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: patience})
		if err != nil || got == nil {
			t.Fatalf("next gave %v, %v", got, err)
		}
		if _, err := b.engine.SetPush(t.Context(), principal("caller"), engine.Ref{Task: got.ID}, *hook("h", slow.URL)); err != nil {
			t.Fatal(err)
		}
		b.report(got, engine.ReportRequest{Events: []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", LastChunk: true, Body: large}}})
		if i == 0 {
			b.underWay(slow, 1)
		}
	}
	b.until("the second to be put off", func() bool { return b.config(tasks[1], "h").NextTry.After(time.Now()) })
	if c := b.config(tasks[1], "h"); c.Tries != 0 || c.LastError != "" {
		t.Errorf("waiting for room counts as a failure: %+v", c)
	}
}

func TestNoMoreIsFetchedThanMayBeHeld(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.Held = 3 << 20 })
	release := make(chan struct{})
	slow := receive(t, func(int64, http.ResponseWriter, *http.Request) { <-release })
	large := []byte(`{"artifactId":"a","parts":[{"text":"` + strings.Repeat("x", 2<<20) + `"}]}`)
	for range 2 {
		sent := b.send(nil)
		got, err := b.engine.Next(t.Context(), principal("callee"), engine.NextRequest{Wait: patience})
		if err != nil || got == nil || got.ID != sent.ID {
			t.Fatalf("next gave %v, %v", got, err)
		}
		if _, err := b.engine.SetPush(t.Context(), principal("caller"), engine.Ref{Task: got.ID}, *hook("h", slow.URL)); err != nil {
			t.Fatal(err)
		}
		b.report(got, engine.ReportRequest{Events: []hub.Event{{Kind: hub.ArtifactEvent, ArtifactID: "a", LastChunk: true, Body: large}}})
	}
	b.underWay(slow, 2)
	quick := receive(t, nil)
	b.send(hook("h", quick.URL))
	select {
	case <-quick.came:
		t.Error("a third was sent, although two hold as much as may be held")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	b.next(quick)
}
