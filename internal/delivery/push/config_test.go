package push_test

import (
	"context"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/delivery/push"
	"github.com/holdfast-hub/holdfast/internal/egress"
	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

func TestWhatIsRefusedWhenItIsSaved(t *testing.T) {
	b := open(t)
	long := strings.Repeat("x", 5<<10)
	for name, c := range map[string]struct {
		set   func(*hub.PushConfig)
		field string
	}{
		"no URL":                       {func(c *hub.PushConfig) { c.URL = "" }, "url"},
		"a relative URL":               {func(c *hub.PushConfig) { c.URL = "/hook" }, "url"},
		"another protocol":             {func(c *hub.PushConfig) { c.URL = "ftp://example.com/" }, "url"},
		"a long URL":                   {func(c *hub.PushConfig) { c.URL = "https://example.com/" + long }, "url"},
		"a user in the URL":            {func(c *hub.PushConfig) { c.URL = "https://a:b@example.com/" }, "url"},
		"the metadata of a cloud":      {func(c *hub.PushConfig) { c.URL = "http://169.254.169.254/latest" }, "url"},
		"an odd spelling of loopback":  {func(c *hub.PushConfig) { c.URL = "http://2130706433:8080/" }, "url"},
		"a private network":            {func(c *hub.PushConfig) { c.URL = "http://10.0.0.1:8080/" }, "url"},
		"a long id":                    {func(c *hub.PushConfig) { c.ID = strings.Repeat("i", 257) }, "id"},
		"an id with a line break":      {func(c *hub.PushConfig) { c.ID = "a\nb" }, "id"},
		"an id that is no text":        {func(c *hub.PushConfig) { c.ID = "a\xff" }, "id"},
		"a token with a line break":    {func(c *hub.PushConfig) { c.Token = "a\r\nX-Evil: 1" }, "token"},
		"a token with NUL":             {func(c *hub.PushConfig) { c.Token = "a\x00" }, "token"},
		"a long token":                 {func(c *hub.PushConfig) { c.Token = long }, "token"},
		"credentials with CR":          {func(c *hub.PushConfig) { c.Scheme, c.Credentials = "Bearer", "a\rb" }, "authentication.credentials"},
		"long credentials":             {func(c *hub.PushConfig) { c.Scheme, c.Credentials = "Bearer", long }, "authentication.credentials"},
		"credentials without a scheme": {func(c *hub.PushConfig) { c.Credentials = "x" }, "authentication.scheme"},
		"a scheme with a line break":   {func(c *hub.PushConfig) { c.Scheme = "Bearer\nX: 1" }, "authentication.scheme"},
		"a scheme of two words":        {func(c *hub.PushConfig) { c.Scheme = "Bearer x" }, "authentication.scheme"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := hook("h", "https://example.com/hook")
			c.set(bad)
			check := func(err error) {
				t.Helper()
				e, ok := err.(*hub.Error)
				if !ok || e.Kind != hub.Invalid || e.Field != c.field {
					t.Errorf("it gave %v, want an error about %s", err, c.field)
				}
				if err != nil && strings.Contains(err.Error(), "X-Evil") {
					t.Errorf("the error repeats a secret: %v", err)
				}
			}
			task := b.send(nil)
			_, err := b.engine.SetPush(t.Context(), principal("caller"), engine.Ref{Task: task.ID}, *bad)
			check(err)
			if list, err := b.engine.Pushes(t.Context(), principal("caller"), engine.Ref{Task: task.ID}); err != nil || len(list) > 0 {
				t.Errorf("the task has %v, %v", list, err)
			}
			_, err = b.engine.Send(t.Context(), principal("caller"), engine.SendRequest{
				To: "callee", MessageID: "m", ContextID: name, Message: canon.TextMessage("m", false, "hi"), Push: bad,
			})
			check(err)
			page, err := b.engine.Tasks(t.Context(), principal("caller"), "", hub.TaskFilter{Context: name, Limit: 1})
			if err != nil || len(page.Tasks) > 0 {
				t.Errorf("a refused send left %v, %v", page.Tasks, err)
			}
		})
	}
}

// names finds every name at one address, and notes which it was asked for.
type names struct {
	address netip.Addr
	asked   chan string
}

func (n *names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	n.asked <- host
	return []netip.Addr{n.address}, nil
}

// The URL of a hook may be refused tomorrow: its name leads elsewhere then.
func TestARepeatedSendWithAConfigurationGetsTheFirstAnswer(t *testing.T) {
	dns := &names{netip.MustParseAddr("93.184.215.14"), make(chan string, 100)}
	b := open(t, func(b *bed) { b.save.Resolver = dns })
	p := principal("caller")
	send := func(key string) (engine.SendResult, error) {
		return b.engine.Send(t.Context(), p, engine.SendRequest{
			To: "callee", MessageID: "m", Message: canon.TextMessage("m", false, "hi"), Push: hook("h", "https://hook.test/"), IdempotencyKey: key,
		})
	}
	first, err := send("k")
	if err != nil {
		t.Fatal(err)
	}
	dns.address = netip.MustParseAddr("169.254.169.254")
	again, err := send("k")
	if err != nil || !again.Replayed || again.Task.ID != first.Task.ID {
		t.Errorf("the repeated send gave %+v, %v; want task %s again", again, err, first.Task.ID)
	}
	for _, key := range []string{"", "another"} {
		if out, err := send(key); hub.KindOf(err) != hub.Invalid {
			t.Errorf("a new send with the key %q gave %+v, %v; want that its URL is refused", key, out, err)
		}
	}
}

func TestAFollowUpIsAuthorisedBeforeItsConfigurationIsLookedAt(t *testing.T) {
	dns := &names{netip.MustParseAddr("169.254.169.254"), make(chan string, 100)}
	b := open(t, func(b *bed) { b.save.Resolver = dns })
	task := b.send(nil)
	follow := func(who string) error {
		_, err := b.engine.Send(t.Context(), principal(who), engine.SendRequest{
			To: "callee", TaskID: task.ID, MessageID: "m", Message: canon.TextMessage("m", false, "hi"),
			Push: hook("h", "https://hook.test/"), IdempotencyKey: "k",
		})
		return err
	}
	for _, who := range []string{"other", "callee"} {
		if err := follow(who); hub.KindOf(err) != hub.NotFound {
			t.Errorf("a message by the %s gave %v, want not found", who, err)
		}
	}
	if len(dns.asked) > 0 {
		t.Errorf("the name %s was looked up for strangers", <-dns.asked)
	}
	if err := follow("caller"); hub.KindOf(err) != hub.Invalid || len(dns.asked) != 1 {
		t.Errorf("a message by the caller gave %v after %d look-ups, want that the URL is refused after 1", err, len(dns.asked))
	}
}

func TestOnlyTheCallerHasToDoWithItsConfigurations(t *testing.T) {
	b := open(t)
	rc := receive(t, nil)
	task := b.send(hook("h", rc.URL))
	for _, who := range []string{"callee", "other"} {
		p, ref := principal(who), engine.Ref{Task: task.ID}
		_, set := b.engine.SetPush(t.Context(), p, ref, *hook("h", "not even a URL"))
		_, get := b.engine.Push(t.Context(), p, ref, "h")
		_, list := b.engine.Pushes(t.Context(), p, ref)
		_, _, failures := b.engine.PushFailures(t.Context(), p, task.ID, "", 10)
		for what, err := range map[string]error{"set": set, "get": get, "list": list, "delete": b.engine.DeletePush(t.Context(), p, ref, "h"), "failures": failures} {
			if hub.KindOf(err) != hub.NotFound {
				t.Errorf("%s by the %s gave %v, want not found", what, who, err)
			}
		}
	}
	if c := b.config(task, "h"); c.URL != rc.URL {
		t.Errorf("the configuration is %+v", c)
	}
}

func TestAHubWithoutASenderSaysSo(t *testing.T) {
	b := open(t)
	task := b.send(nil)
	e := engine.New(engine.Options{Store: b.store, Directory: directory{}})
	ctx, p, ref := t.Context(), principal("caller"), engine.Ref{Task: task.ID}
	if e.PushSupported() || !b.engine.PushSupported() {
		t.Error("the engine is wrong about whether push is supported")
	}
	_, set := e.SetPush(ctx, p, ref, *hook("h", "https://example.com/"))
	_, list := e.Pushes(ctx, p, ref)
	_, send := e.Send(ctx, p, engine.SendRequest{To: "callee", MessageID: "m", Message: canon.TextMessage("m", false, "hi"), Push: hook("h", "https://example.com/")})
	for what, err := range map[string]error{"set": set, "list": list, "delete": e.DeletePush(ctx, p, ref, "h"), "send": send} {
		if hub.KindOf(err) != hub.PushNotSupported {
			t.Errorf("%s gave %v", what, err)
		}
	}
}

// rebinding is a resolver that leads to a public address once, and to loopback after.
type rebinding struct{ n atomic.Int64 }

func (r *rebinding) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	if r.n.Add(1) == 1 {
		return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

func TestANameThatIsPointedElsewhereIsRefusedWhenItIsDialed(t *testing.T) {
	canary := receive(t, nil)
	names := &rebinding{}
	b := open(t, func(b *bed) {
		b.guard, b.save = egress.Options{Resolver: names}, egress.Options{Resolver: names}
	})
	_, port, _ := strings.Cut(strings.TrimPrefix(canary.URL, "http://"), ":")
	c := hook("h", "http://rebind.example:"+port+"/")
	c.Scheme, c.Credentials = "Bearer", "s3cret"
	task := b.send(c)
	b.until("a failure", func() bool { return b.config(task, "h").Tries > 1 })
	if n := canary.count.Load(); n != 0 {
		t.Errorf("the canary had %d requests", n)
	}
	if got := b.config(task, "h").LastError; !strings.Contains(got, "rebind.example") || strings.Contains(got, "127.0.0.1") {
		t.Errorf("the failure says %q", got)
	}
}

func TestSecretsAreShownNowhere(t *testing.T) {
	b := open(t, func(b *bed) { b.opt.GiveUp = 50 * time.Millisecond })
	rc := receive(t, nil)
	rc.Config.ErrorLog = nil
	dead := receive(t, nil)
	dead.Close()
	task := b.send(nil)
	secrets := []string{"plant-token", "plant-credentials", "plant-path", "plant-query"}
	for id, url := range map[string]string{"good": rc.URL, "dead": dead.URL} {
		c := hook(id, url+"/"+secrets[2]+"?"+secrets[3])
		c.Token, c.Scheme, c.Credentials = secrets[0], "Bearer", secrets[1]
		set, err := b.engine.SetPush(t.Context(), principal("caller"), engine.Ref{Task: task.ID}, *c)
		if err != nil {
			t.Fatal(err)
		}
		list, err := b.engine.Pushes(t.Context(), principal("caller"), engine.Ref{Task: task.ID})
		if err != nil {
			t.Fatal(err)
		}
		for _, shown := range append(list, set, b.config(task, id)) {
			if shown.Token != "" || shown.Credentials != "" || shown.Sealed != nil {
				t.Errorf("the configuration shows %+v", shown)
			}
		}
	}
	b.work(0)
	if got := b.next(rc); got.header.Get("Authorization") != "Bearer plant-credentials" {
		t.Errorf("Authorization was %q", got.header.Get("Authorization"))
	}
	b.until("a failure", func() bool { return len(b.failures(task.ID)) > 0 })
	reason := b.failures(task.ID)[0].Reason
	for _, secret := range secrets {
		if strings.Contains(b.log.String(), secret) {
			t.Errorf("the log shows %s:\n%s", secret, &b.log)
		}
		if strings.Contains(reason, secret) {
			t.Errorf("the failure shows %s: %s", secret, reason)
		}
	}
}

func TestBackoffIsRandomBelowABoundThatDoubles(t *testing.T) {
	s := push.New(push.Options{})
	for tries, bound := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 5: 32 * time.Second, 9: 512 * time.Second, 10: 10 * time.Minute, 1000: 10 * time.Minute} {
		least, most := bound, time.Duration(0)
		for range 2000 {
			d := push.Backoff(s, tries)
			least, most = min(least, d), max(most, d)
		}
		if least < 100*time.Millisecond || least > bound/5 || most > bound || most < bound*4/5 {
			t.Errorf("after %d tries it is between %v and %v; the bound is %v", tries, least, most, bound)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "30": 30 * time.Second, "-5": 0, "1.5": 0, "soon": 0, "999999": time.Hour, "99999999999999999999": 0,
		"Wed, 01 Jul 2026 12:01:00 GMT": time.Minute, "Wed, 01 Jul 2026 11:00:00 GMT": 0, "Thu, 01 Jul 2027 12:00:00 GMT": time.Hour,
	} {
		if got := push.RetryAfter(value, now); got != want {
			t.Errorf("%q is %v, want %v", value, got, want)
		}
	}
}

func TestMessageIDs(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []string{push.MessageID("t", "a", 1), push.MessageID("t", "a", 2), push.MessageID("t", "b.c", 1), push.MessageID("u", "a", 1)} {
		if seen[id] || strings.Contains(id, ".") {
			t.Errorf("id %q is not unique, or has a dot", id)
		}
		seen[id] = true
	}
}

func TestTokensAsKeys(t *testing.T) {
	for token, want := range map[string]string{"plain": "plain", "whsec_aGVsbG8=": "hello", "whsec_not base64": "whsec_not base64", "whsec_": "whsec_"} {
		if got := string(push.TokenKey(token)); got != want {
			t.Errorf("%q is the key %q, want %q", token, got, want)
		}
	}
}

func TestSecretsThatCannotBeOpenedSendNothing(t *testing.T) {
	b := open(t)
	rc := receive(t, nil)
	task := b.send(nil)
	c := *hook("h", rc.URL)
	c.Scheme, c.Sealed = "Bearer", []byte("sealed by nobody")
	if _, err := b.store.PutPush(t.Context(), hub.TaskRef{ID: task.ID}, hub.Viewer{All: true}, c, hub.DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	b.work(0)
	b.until("a failure", func() bool { return b.config(task, "h").Tries > 0 })
	if got := b.config(task, "h").LastError; !strings.Contains(got, "cannot open the secrets") {
		t.Errorf("the failure says %q", got)
	}
	if n := rc.count.Load(); n > 0 {
		t.Errorf("%d notifications went out without their credentials", n)
	}
}
