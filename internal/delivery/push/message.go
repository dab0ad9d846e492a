package push

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-hub/holdfast/internal/canon"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

// request makes the notification of an event.
//
// For a configuration of A2A 1.0 the body is the event as a StreamResponse (section
// 4.3.3), and for one of 0.3 the task as it was after the event. Both versions' spellings
// of the token header are there if the configuration has a token, and Authorization if
// it has credentials. The signature is that of Standard Webhooks: v1a with the hub's
// key always, and v1 with the token as the key if there is one.
func (s *Sender) request(ctx context.Context, j *job, secrets hub.PushSecrets, e *hub.Event) (*http.Request, error) {
	body, contentType, err := s.body(ctx, j, e)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, j.Config.URL, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the URL of configuration %s is not valid", j.Config.ID) // the error repeats it
	}
	h := req.Header
	h.Set("Content-Type", contentType)
	h.Set("User-Agent", s.opt.UserAgent)
	h.Set("A2A-Version", j.Config.Version)
	if secrets.Token != "" {
		h.Set("X-A2A-Notification-Token", secrets.Token) // 0.3 and 1.0.0
		h.Set("A2A-Notification-Token", secrets.Token)   // a2a-go
	}
	if secrets.Credentials != "" {
		h.Set("Authorization", j.Config.Scheme+" "+secrets.Credentials)
	}
	id, now := messageID(j.Config.Task, j.Config.ID, e.Seq), time.Now()
	signature, err := s.sign(id, now, body, secrets.Token)
	if err != nil {
		return nil, err
	}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, signature)
	return req, nil
}

func (s *Sender) body(ctx context.Context, j *job, e *hub.Event) (body []byte, contentType string, err error) {
	if j.Config.Version != "0.3" {
		if err := hub.Reserve(ctx, int64(len(e.Body))); err != nil {
			return nil, "", err
		}
		return canon.AppendStreamResponse(nil, j.Config.Task, j.Context, e), "application/a2a+json", nil
	}
	t, err := s.opt.Tasks.Task(ctx, hub.TaskRef{ID: j.Config.Task}, hub.Viewer{All: true},
		hub.Load{History: -1, Artifacts: true, AsOf: e.Seq})
	if err != nil {
		return nil, "", fmt.Errorf("read the task: %w", err)
	}
	return s.opt.TaskV03(nil, t), "application/json", nil
}

// secrets opens those of a configuration.
func (s *Sender) secrets(c *hub.PushConfig) (secrets hub.PushSecrets, err error) {
	if c.Sealed == nil {
		return secrets, nil
	}
	clear, err := s.opt.Sealer.Open(c.Sealed, hub.PushAbout(c.Task, c.ID))
	if err != nil {
		return secrets, fmt.Errorf("open the secrets: %w", err)
	}
	if json.Unmarshal(clear, &secrets) != nil {
		return secrets, errSecrets // the decoder's words may show them
	}
	return secrets, nil
}

// messageID names the notification of an event, the same at each try. It has no dots,
// which the signed text has between its parts.
func messageID(task, config string, seq int64) string {
	sum := sha256.Sum256([]byte(config))
	return task + "_" + strconv.FormatInt(seq, 10) + "_" + hex.EncodeToString(sum[:4])
}

// sign gives the signatures of a notification as Standard Webhooks writes them.
func (s *Sender) sign(id string, at time.Time, body []byte, token string) (string, error) {
	signed := append([]byte(id+"."+strconv.FormatInt(at.Unix(), 10)+"."), body...)
	all := "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(s.opt.Key, signed))
	if token == "" {
		return all, nil
	}
	hook, err := standardwebhooks.NewWebhookRaw(tokenKey(token))
	if err != nil {
		return "", fmt.Errorf("sign with the token: %w", err)
	}
	v1, err := hook.Sign(id, at, body)
	if err != nil {
		return "", fmt.Errorf("sign with the token: %w", err)
	}
	return all + " " + v1, nil
}

// tokenKey is the key that a token stands for: its bytes, or those that a secret in the
// form of Standard Webhooks has in base64.
func tokenKey(token string) []byte {
	if encoded, ok := strings.CutPrefix(token, "whsec_"); ok {
		if key, err := base64.StdEncoding.DecodeString(encoded); err == nil && len(key) > 0 {
			return key
		}
	}
	return []byte(token)
}
