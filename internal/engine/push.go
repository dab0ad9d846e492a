package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// Bounds of a push-notification configuration, in bytes.
const (
	maxPushID     = 256
	maxPushURL    = 2048
	maxPushSecret = 4 << 10 // of the token, and of the credentials
	maxPushScheme = 64
)

// MaxPushFailures is how many given-up notifications one page has at the most.
const MaxPushFailures = 100

// PushSupported reports whether this hub sends push notifications.
func (e *Engine) PushSupported() bool {
	return e.opt.Pusher != nil && e.opt.Sealer != nil
}

// SetPush adds a push-notification configuration to a task that p sent, or replaces
// the one with its id; it is durable when SetPush returns, and nothing goes to where
// a replaced one led any more. A configuration without an id gets one. The answer has
// no secrets.
//
// Errors are PushNotSupported, NotFound as for any task, Invalid with a field of the
// configuration ("id", "url", "token", "authentication.scheme",
// "authentication.credentials"), and TooLarge for too many.
func (e *Engine) SetPush(ctx context.Context, p hub.Principal, r Ref, c hub.PushConfig) (hub.PushConfig, error) {
	ref, err := e.pushRef(ctx, p, r)
	if err != nil {
		return hub.PushConfig{}, err
	}
	// Who may not have to do with the task learns nothing of what is wrong with the
	// configuration, and has no name looked up.
	if _, err := e.store.TaskPushes(ctx, ref, p.Viewer()); err != nil {
		return hub.PushConfig{}, err
	}
	fresh := c.ID == ""
	if err := e.checkPush(ctx, &c); err != nil {
		return hub.PushConfig{}, err
	}
	if err := e.sealPush(&c, ref.ID); err != nil {
		return hub.PushConfig{}, err
	}
	c, err = e.store.PutPush(context.WithoutCancel(ctx), ref, p.Viewer(), c, e.opt.Limits)
	if err != nil {
		return hub.PushConfig{}, err
	}
	if !fresh {
		if err := e.opt.Pusher.Forget(ctx, ref.ID, c.ID); err != nil {
			return hub.PushConfig{}, err
		}
	}
	e.opt.Pusher.Wake()
	return withoutSecrets(c), nil
}

// Push gives a configuration of a task that p sent, without its secrets.
func (e *Engine) Push(ctx context.Context, p hub.Principal, r Ref, id string) (hub.PushConfig, error) {
	ref, err := e.pushRef(ctx, p, r)
	if err != nil {
		return hub.PushConfig{}, err
	}
	c, err := e.store.Push(ctx, ref, p.Viewer(), id)
	return withoutSecrets(c), err
}

// Pushes lists the configurations of a task that p sent, oldest first, without their
// secrets.
func (e *Engine) Pushes(ctx context.Context, p hub.Principal, r Ref) ([]hub.PushConfig, error) {
	ref, err := e.pushRef(ctx, p, r)
	if err != nil {
		return nil, err
	}
	list, err := e.store.TaskPushes(ctx, ref, p.Viewer())
	for i := range list {
		list[i] = withoutSecrets(list[i])
	}
	return list, err
}

// DeletePush removes a configuration of a task that p sent; that there is none is no
// error. Nothing is sent for it once DeletePush has returned nil. If ctx ends first,
// it is deleted all the same, but something may still be on its way.
func (e *Engine) DeletePush(ctx context.Context, p hub.Principal, r Ref, id string) error {
	ref, err := e.pushRef(ctx, p, r)
	if err != nil {
		return err
	}
	if _, err := e.store.DeletePush(context.WithoutCancel(ctx), ref, p.Viewer(), id); err != nil {
		return err
	}
	return e.opt.Pusher.Forget(ctx, ref.ID, id)
}

// PushFailures lists the notifications that were given up, newest first: those of the
// tasks that p sent, all for the administrator, and those of one task if it is named.
// limit is brought into 1 to MaxPushFailures; next is empty on the last page.
func (e *Engine) PushFailures(ctx context.Context, p hub.Principal, task, cursor string, limit int) (list []hub.PushFailure, next string, err error) {
	if err := e.pushSupported(); err != nil {
		return nil, "", err
	}
	return e.store.PushFailures(ctx, p.Viewer(), task, cursor, min(max(limit, 1), MaxPushFailures))
}

// Redeliver sends a given-up notification again, and after it once more those of the
// same configuration that followed it. NotFound if it is none of p's.
func (e *Engine) Redeliver(ctx context.Context, p hub.Principal, failure string) (hub.PushConfig, error) {
	if err := e.pushSupported(); err != nil {
		return hub.PushConfig{}, err
	}
	c, err := e.store.Redeliver(context.WithoutCancel(ctx), p.Viewer(), failure)
	if err != nil {
		return hub.PushConfig{}, err
	}
	e.opt.Pusher.Wake()
	return withoutSecrets(c), nil
}

func (e *Engine) pushSupported() error {
	if !e.PushSupported() {
		return hub.Errorf(hub.PushNotSupported, "this hub sends no push notifications; follow the task with a subscription, or ask for it from time to time")
	}
	return nil
}

// pushRef resolves a task for an operation on its configurations.
func (e *Engine) pushRef(ctx context.Context, p hub.Principal, r Ref) (hub.TaskRef, error) {
	if err := e.pushSupported(); err != nil {
		return hub.TaskRef{}, err
	}
	return e.ref(ctx, p, r)
}

// wakePusher says that tasks with configurations may have new events.
func (e *Engine) wakePusher() {
	if e.opt.Pusher != nil {
		e.opt.Pusher.Wake()
	}
}

// inlinePush checks and seals the configuration that came with a send, if one did. Who may
// not follow up the task learns nothing of what is wrong with it, and has no name looked
// up. With an idempotency key it may be a replay, whose answer does not depend on what
// becomes of a URL meanwhile: then the store is to refuse it.
func (e *Engine) inlinePush(ctx context.Context, r *SendRequest, in *hub.Send) error {
	if r.Push == nil {
		return nil
	}
	if err := e.pushSupported(); err != nil {
		return err
	}
	if r.AnswerContext && r.ContextID != "" && r.TaskID == "" {
		return hub.InvalidField("", "a push configuration cannot come with a message that may answer a question; name the task too")
	}
	task := in.TaskID
	if in.FollowUp != "" {
		task = in.FollowUp
		ref := hub.TaskRef{Callee: in.Callee, ID: task}
		if _, err := e.store.TaskPushes(ctx, ref, hub.Viewer{Address: in.Caller}); err != nil {
			return err
		}
	}
	c := *r.Push
	if err := e.checkPush(ctx, &c); err != nil {
		if hub.KindOf(err) != hub.Invalid || in.Key == nil {
			return err
		}
		in.Refuse = err
		return nil
	}
	if err := e.sealPush(&c, task); err != nil {
		return err
	}
	in.Push = &c
	return nil
}

// checkPush refuses a configuration that can never work, and gives it an id if it has
// none.
func (e *Engine) checkPush(ctx context.Context, c *hub.PushConfig) error {
	if c.ID == "" {
		c.ID = e.opt.NewID()
	}
	switch {
	case len(c.ID) > maxPushID || !printable(c.ID):
		return hub.InvalidField("id", "an id has at most %d bytes of printable text", maxPushID)
	case c.Scheme == "" && c.Credentials != "":
		return hub.InvalidField("authentication.scheme", "credentials need a scheme, such as Bearer")
	case c.Scheme != "" && !isToken(c.Scheme):
		return hub.InvalidField("authentication.scheme", "is no scheme; give a word such as Bearer, of at most %d characters", maxPushScheme)
	case !headerSafe(c.Token):
		return hub.InvalidField("token", "has at most %d bytes and no control characters, such as line breaks", maxPushSecret)
	case !headerSafe(c.Credentials):
		return hub.InvalidField("authentication.credentials", "have at most %d bytes and no control characters, such as line breaks", maxPushSecret)
	case c.Version != "1.0" && c.Version != "0.3":
		return fmt.Errorf("push notifications have no form for version %q", c.Version)
	}
	return e.checkPushURL(ctx, c.URL)
}

func (e *Engine) checkPushURL(ctx context.Context, raw string) error {
	if len(raw) > maxPushURL {
		return hub.InvalidField("url", "has %d bytes; at most %d are allowed", len(raw), maxPushURL)
	}
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return hub.InvalidField("url", "is no absolute URL with http or https, such as https://example.com/hook")
	}
	if e.opt.CheckPushURL == nil {
		return nil
	}
	return e.opt.CheckPushURL(ctx, raw)
}

// sealPush replaces the secrets of a configuration by their sealed form.
func (e *Engine) sealPush(c *hub.PushConfig, task string) error {
	c.Task, c.Sealed = task, nil
	secrets := hub.PushSecrets{Token: c.Token, Credentials: c.Credentials}
	if secrets == (hub.PushSecrets{}) {
		return nil
	}
	clear, err := json.Marshal(secrets)
	if err != nil {
		return fmt.Errorf("encode the secrets of a push configuration: %w", err)
	}
	if c.Sealed, err = e.opt.Sealer.Seal(clear, hub.PushAbout(c.Task, c.ID)); err != nil {
		return fmt.Errorf("seal the secrets of a push configuration: %w", err)
	}
	c.Token, c.Credentials = "", ""
	return nil
}

// withoutSecrets is a configuration as its owner may see it.
func withoutSecrets(c hub.PushConfig) hub.PushConfig {
	c.Token, c.Credentials, c.Sealed = "", "", nil
	return c
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// headerSafe reports whether a secret can be the value of a header (RFC 9110, section
// 5.5) and is not too long. Other bytes than ASCII go through as they are.
func headerSafe(s string) bool {
	return len(s) <= maxPushSecret && !strings.ContainsFunc(s, unicode.IsControl)
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2), as schemes are.
func isToken(s string) bool {
	const marks = "!#$%&'*+-.^_`|~"
	return s != "" && len(s) <= maxPushScheme && !strings.ContainsFunc(s, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune(marks, r)
	})
}
