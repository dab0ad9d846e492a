package app_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

// endpoints are agents behind endpoints, one for each form of a credential, and the
// status with which each one's refuses what it is sent; with 200 the answer is no result.
var endpoints = []struct {
	handle, auth string
	status       int
}{
	{"wrong", `{"type":"bearer","secret":%q}`, http.StatusOK},
	{"bearer", `{"type":"bearer","secret":%q}`, http.StatusInternalServerError},
	{"header", `{"type":"header","header":"X-Api-Key","secret":%q}`, http.StatusBadRequest},
	{"basic", `{"type":"basic","secret":%q}`, http.StatusUnauthorized},
}

// useEndpoints has the hub deliver tasks to endpoints with credentials. They refuse them
// and repeat what they were sent.
func (s *search) useEndpoints() {
	s.t.Helper()
	admin := hub.Principal{Handle: hub.AdminHandle, Role: hub.RoleAdmin}
	open, once := "open", 1
	for _, e := range endpoints {
		_, err := s.hub.Identity().CreateAgent(s.t.Context(), admin, identity.AgentSpec{Handle: e.handle, Access: &open, MaxRedeliveries: &once})
		s.must(err)
		secret := s.plantText("the credential of an endpoint by " + e.handle)
		if e.handle == "basic" {
			secret = "user:" + secret
		}
		auth := fmt.Sprintf(e.auth, secret)
		s.plantSigning(e.handle, fmt.Sprintf(`{"url":"%s/deliver/%d","auth":%s}`, s.receiverURL, e.status, auth))
		s.refusedEndpoints(e.handle, auth)
		status, body := s.say(true, "POST", "/v1/agents/"+e.handle+"/tasks", s.ann, `{"message":{"role":"user","parts":[{"text":"hi"}]}}`)
		var sent struct{ ID string }
		if err := json.Unmarshal([]byte(body), &sent); err != nil || sent.ID == "" {
			s.t.Fatalf("send to an endpoint: %d %s", status, body)
		}
		s.waitForEnd(e.handle, sent.ID)
	}
}

// plantSigning sets an endpoint, and plants the key of its signatures, which is told
// this once.
func (s *search) plantSigning(handle, endpoint string) {
	s.t.Helper()
	status, body := s.say(false, "PUT", "/v1/agents/"+handle+"/endpoint", s.cfg.AdminToken, endpoint)
	var made struct {
		Endpoint struct {
			Signing string `json:"signing_secret"`
		}
	}
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.Endpoint.Signing == "" {
		s.t.Fatalf("set an endpoint: %d %s", status, body)
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(made.Endpoint.Signing, "whsec_"))
	s.must(err)
	s.planted["the signing secret of @"+handle], s.planted["the signing key of @"+handle] = []byte(made.Endpoint.Signing), key
	s.say(true, "PUT", "/v1/agents/"+handle+"/endpoint", s.cfg.AdminToken, endpoint) // the same again tells nothing
}

// refusedEndpoints sets endpoints that are refused, since errors tell what is wrong.
func (s *search) refusedEndpoints(handle, auth string) {
	s.t.Helper()
	for _, body := range []string{
		fmt.Sprintf(`{"url":"http://169.254.169.254/","auth":%s}`, auth),
		fmt.Sprintf(`{"url":"%s","kind":"carrier","auth":%s}`, s.receiverURL, auth),
		fmt.Sprintf(`{"url":null,"auth":%s}`, auth),
		fmt.Sprintf(`{"url":"%s","auth":%s,"clear_auth":true,"allow_private_network":1}`, s.receiverURL, auth),
		fmt.Sprintf(`{"url":"%s","auth":%s`, s.receiverURL, auth),
		fmt.Sprintf(`{"url":"%s","auth":%s}`, s.receiverURL, strings.Replace(auth, `"secret":"`, `"secret":"\u0000`, 1)),
		fmt.Sprintf(`{"url":"%s","auth":%s}`, s.receiverURL, strings.Replace(auth, `"type":"`, `"type":"un`, 1)),
	} {
		if status, answer := s.say(true, "PUT", "/v1/agents/"+handle+"/endpoint", s.cfg.AdminToken, body); status < 400 {
			s.t.Errorf("%s: %d %s", body, status, answer)
		}
		s.say(true, "PUT", "/v1/agents/"+handle+"/endpoint", s.ann, body)
	}
}

// waitForEnd waits until a task has failed, and keeps all that is told of it.
func (s *search) waitForEnd(handle, task string) {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		status, body := s.say(true, "GET", "/v1/agents/"+handle+"/tasks/"+task+"?wait=2", s.ann, "")
		if strings.Contains(body, `"state":"failed"`) {
			break
		}
		if status != http.StatusOK || time.Now().After(deadline) {
			s.t.Fatalf("a task at an endpoint that refuses it: %d %s", status, body)
		}
	}
	for _, path := range []string{"/v1/agents/" + handle, "/v1/agents", "/a/" + handle + "/tasks/" + task, "/a/" + handle + "/.well-known/agent-card.json"} {
		for _, token := range []string{s.cfg.AdminToken, s.ann} {
			s.say(true, "GET", path, token, "")
		}
	}
}

// backUp makes a backup and takes up its file.
func (s *search) backUp() {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "backup.db")
	_, err := app.MakeBackup(s.t.Context(), s.cfg.Data, file, nil)
	s.must(err)
	s.readFile("the backup", file)
}
