package app_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/identity"
	"github.com/holdfast-hub/holdfast/internal/signing"
	"github.com/holdfast-hub/holdfast/internal/store/sqlite"
	"github.com/holdfast-hub/holdfast/internal/vault"
)

// TestNoSecretComesBack plants a secret of every kind that there is, has the hub do what
// it does with them, and searches all that it wrote and answered. A new kind of secret
// is planted where the others are: in plant, use or plantKeys.
func TestNoSecretComesBack(t *testing.T) {
	s := &search{t: t, cfg: settings(t), planted: map[string][]byte{}, said: map[string][]byte{}}
	s.start()
	s.plant()
	s.use()
	s.askForEverything()
	s.backUp()
	s.readFiles("while the hub runs")
	s.stop()
	s.readFiles("after the hub stopped")
	s.plantKeys()
	s.said["the log"] = []byte(s.log.String())
	for what, text := range s.said {
		for _, found := range s.find(text) {
			t.Errorf("%s has %s in the clear", what, found)
		}
	}
	s.checkSearch()
}

// search is a hub with planted secrets, and all that it wrote and answered.
type search struct {
	t        *testing.T
	cfg      config.Config
	hub      *app.App
	stop     func()
	notified chan struct{} // for each notification that arrived

	planted     map[string][]byte // by what it is
	ann, bob    string            // tokens
	task        string            // of ann to bob
	receiverURL string
	log         lockedBuffer
	said        map[string][]byte // by where it was said
}

// lockedBuffer is a buffer that is written by several.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

// String is all that was written.
func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (s *search) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// plantText plants a secret that is text.
func (s *search) plantText(what string) string {
	text := "hfa_planted-" + strings.ReplaceAll(what, " ", "-") + "-0123456789"
	s.planted[what] = []byte(text)
	return text
}

func (s *search) start() {
	s.t.Helper()
	receiver := s.receiver()
	at, err := url.Parse(receiver.URL)
	s.must(err)
	s.cfg.EgressAllowLocal, s.cfg.PushBackoffMin, s.cfg.BackoffMin = at.Port(), 10*time.Millisecond, 10*time.Millisecond
	s.cfg.AdminToken = s.plantText("the admin token")
	log := slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s.hub, err = app.New(s.t.Context(), s.cfg, log)
	s.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.hub.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	s.t.Cleanup(s.stop)
	s.receiverURL = receiver.URL
}

// receiver is where notifications and tasks go. It refuses them, tasks with the status
// that the path ends with, and repeats what it was told, as some servers do, so that the
// hub has to keep that to itself.
func (s *search) receiver() *httptest.Server {
	s.notified = make(chan struct{}, 1000)
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		status, err := strconv.Atoi(path.Base(r.URL.Path))
		if err != nil {
			status = http.StatusInternalServerError
			s.notified <- struct{}{}
		}
		w.Header().Set("Www-Authenticate", r.Header.Get("Authorization"))
		if status == http.StatusOK {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(status)
		if status == http.StatusOK { // with what is no result
			fmt.Fprintf(w, `{"state":%q}`, r.Header.Get("Authorization"))
			return
		}
		fmt.Fprintf(w, "no: %v %s", r.Header, body)
	}))
	s.t.Cleanup(r.Close)
	return r
}

// plant makes addresses and their tokens.
func (s *search) plant() {
	s.t.Helper()
	admin := hub.Principal{Handle: hub.AdminHandle, Role: hub.RoleAdmin}
	open := "open"
	for handle, token := range map[string]*string{"ann": &s.ann, "bob": &s.bob} {
		_, err := s.hub.Identity().CreateAgent(s.t.Context(), admin, identity.AgentSpec{Handle: handle, Access: &open})
		s.must(err)
		_, *token, err = s.hub.Identity().CreateToken(s.t.Context(), admin, handle, identity.TokenSpec{})
		s.must(err)
		s.planted["the token of "+handle] = []byte(*token)
	}
}

// plantKeys plants, after the fact, what the hub made for itself.
func (s *search) plantKeys() {
	s.t.Helper()
	file, err := os.ReadFile(filepath.Join(s.cfg.Data, vault.FileName))
	s.must(err)
	text := strings.TrimSpace(string(file))
	keyset, err := base64.StdEncoding.DecodeString(text)
	s.must(err)
	_, key, ok := bytes.Cut(keyset, []byte{0x1a, 32}) // the field with the key, and its length
	if !ok || len(key) < 32 {
		s.t.Fatal("the key file has another form than this test knows")
	}
	s.planted["the master key file"], s.planted["the master key"] = []byte(text), key[:32]
	if found := s.find(file); len(found) == 0 {
		s.t.Error("the search does not find the master key in its own file")
	}
	store, err := sqlite.Open(s.t.Context(), sqlite.Options{Dir: s.cfg.Data})
	s.must(err)
	defer store.Close()
	v, err := vault.Open(s.t.Context(), vault.Options{Secrets: store, Value: text})
	s.must(err)
	keys, err := signing.Load(s.t.Context(), store, v)
	s.must(err)
	card, _ := keys.Card()
	private, err := card.(*ecdsa.PrivateKey).Bytes()
	s.must(err)
	webhook, _ := keys.Webhook()
	s.planted["the key that signs cards"], s.planted["the key that signs notifications"] = private, webhook.Seed()
}

// say makes a request and keeps the answer, if it is to be searched.
func (s *search) say(keep bool, method, path, token, body string, headers ...string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, s.hub.URL()+path, strings.NewReader(body))
	s.must(err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	s.must(err)
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body) // of a stream, what came in time
	if keep {
		s.said[fmt.Sprintf("%s %s (answer %d)", method, path, len(s.said))] = fmt.Appendf(nil, "%v\n%s", res.Header, answer)
	}
	return res.StatusCode, string(answer)
}

// use has the hub work with the secrets.
func (s *search) use() {
	s.t.Helper()
	const message = `{"message":{"role":"user","parts":[{"text":"planted-message"}]}}`
	status, body := s.say(true, "POST", "/v1/agents/bob/tasks", s.ann, message)
	var sent struct{ ID string }
	if err := json.Unmarshal([]byte(body), &sent); err != nil || sent.ID == "" {
		s.t.Fatalf("send: %d %s", status, body)
	}
	s.task = sent.ID
	s.usePush()
	s.useTokens()
	s.useEndpoints()
	status, body = s.say(true, "GET", "/v1/agents/me/tasks/next", s.bob, "")
	if status != 200 {
		s.t.Fatalf("next: %d %s", status, body)
	}
	status, body = s.say(true, "POST", "/v1/agents/me/tasks/"+s.task+"/result", s.bob, `{"state":"completed"}`)
	if status != 200 {
		s.t.Fatalf("result: %d %s", status, body)
	}
	for range 4 { // of several configurations, more than once
		select {
		case <-s.notified:
		case <-time.After(20 * time.Second):
			s.t.Fatal("no notification came")
		}
	}
}

// usePush makes configurations with secrets in each way that there is, and some that
// are refused, since errors tell what is wrong.
func (s *search) usePush() {
	s.t.Helper()
	token, credentials := s.plantText("the token of a push configuration"), s.plantText("the credentials of a push configuration")
	inURL := s.plantText("a user in a push URL")
	where := s.receiverURL + "/hook"
	auth := fmt.Sprintf(`{"scheme":"Bearer","credentials":%q}`, credentials)
	v1 := "/v1/agents/bob/tasks/" + s.task + "/push"
	rpc := func(method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	}
	for name, c := range map[string]struct {
		path, version, body string
	}{
		"of /v1": {v1, "", fmt.Sprintf(`{"id":"one","url":%q,"token":%q,"authentication":%s}`, where, token, auth)},
		"of A2A 1.0": {"/a/bob", "1.0", rpc("CreateTaskPushNotificationConfig",
			fmt.Sprintf(`{"taskId":%q,"id":"two","url":%q,"token":%q,"authentication":%s}`, s.task, where, token, auth))},
		"of A2A 0.3": {"/a/bob", "0.3", rpc("tasks/pushNotificationConfig/set",
			fmt.Sprintf(`{"taskId":%q,"pushNotificationConfig":{"id":"three","url":%q,"token":%q,"authentication":{"schemes":["Bearer"],"credentials":%q}}}`, s.task, where, token, credentials))},
	} {
		if status, body := s.say(true, "POST", c.path, s.ann, c.body, "A2A-Version", c.version); status >= 300 || strings.Contains(body, `"error":`) {
			s.t.Fatalf("a configuration %s: %d %s", name, status, body)
		}
	}
	s.pushByGRPC(where, token, credentials, inURL)
	for _, body := range []string{
		fmt.Sprintf(`{"url":"http://169.254.169.254/","token":%q,"authentication":%s}`, token, auth),
		fmt.Sprintf(`{"url":"http://%s:%s@example.com/","token":%q}`, inURL, inURL, token),
		fmt.Sprintf(`{"url":%q,"token":[%q]}`, where, token),
		fmt.Sprintf(`{"url":%q,"token":%q,%q:1}`, where, token+"\r\n", "unknown"),
		fmt.Sprintf(`{"url":%q,"authentication":{"scheme":"Bearer","credentials":{"is":%q}}}`, where, credentials),
		fmt.Sprintf(`{"url":%q,"authentication":{"scheme":"B\u0000","credentials":%q}}`, where, credentials),
		fmt.Sprintf(`{"url":%q,"token":%q`, where, token),
	} {
		if status, answer := s.say(true, "POST", v1, s.ann, body); status < 400 {
			s.t.Errorf("%s: %d %s", body, status, answer)
		}
		s.say(true, "POST", "/a/bob", s.ann, rpc("CreateTaskPushNotificationConfig", body), "A2A-Version", "1.0")
		s.say(true, "POST", "/a/bob", s.ann, rpc("tasks/pushNotificationConfig/set", body), "A2A-Version", "0.3")
	}
}

// useTokens makes a token, and uses tokens in ways that do not work.
func (s *search) useTokens() {
	s.t.Helper()
	status, body := s.say(false, "POST", "/v1/agents/bob/tokens", s.cfg.AdminToken, `{"name":"spare"}`)
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(body), &made); err != nil || made.Token == "" {
		s.t.Fatalf("make a token: %d %s", status, body)
	}
	s.planted["the token that was made"] = []byte(made.Token)
	for _, token := range []string{s.ann, s.cfg.AdminToken, made.Token} {
		s.say(true, "GET", "/v1/whoami", token, "")
		s.say(true, "GET", "/v1/whoami", token+"x", "")
		s.say(true, "GET", "/v1/whoami", "", "", "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("ann:"+token)))
		s.say(true, "GET", "/v1/whoami?token="+token+"&access_token="+token, "", "")
		s.say(true, "GET", "/v1/whoami", "", "", "Authorization", token)
		s.say(true, "POST", "/v1/agents/bob/tokens", s.ann, fmt.Sprintf(`{"name":%q}`, token))
	}
}

// askForEverything asks for all that the hub has, as everybody, and does what may not
// be done.
func (s *search) askForEverything() {
	s.t.Helper()
	_, described := s.say(true, "GET", "/openapi.json", "", "")
	var api struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	s.must(json.Unmarshal([]byte(described), &api))
	if len(api.Paths) < 20 {
		s.t.Fatalf("only %d paths are described", len(api.Paths))
	}
	who := []string{s.cfg.AdminToken, s.ann, s.bob, "", "hf_wrong"}
	for path, methods := range api.Paths {
		path = s.fill(path)
		for method := range methods {
			switch method = strings.ToUpper(method); method {
			case "GET":
				for _, token := range who {
					s.say(true, method, path, token, "")
				}
			case "POST", "PUT", "PATCH", "DELETE": // with what does nothing
				for _, token := range who[3:] {
					s.say(true, method, path, token, "{}")
				}
				if method != "DELETE" { // which heeds no body
					s.say(true, method, path, s.cfg.AdminToken, `{"token":1`)
				}
			}
		}
	}
	for _, path := range []string{
		"/healthz", "/readyz", "/metrics", "/docs", "/.well-known/agent-card.json", "/.well-known/agent.json", "/.well-known/jwks.json",
		"/a/bob", "/a/bob/.well-known/agent-card.json", "/a/bob/.well-known/agent.json", "/a/bob/extendedAgentCard",
		"/a/bob/tasks", "/a/bob/tasks/" + s.task, "/a/bob/tasks/" + s.task + "/pushNotificationConfigs", "/a/bob/tasks/" + s.task + "/pushNotificationConfigs/two",
		"/a/bob/v1/card", "/a/bob/v1/tasks/" + s.task + "/pushNotificationConfigs", "/a/bob/v1/tasks/" + s.task + "/pushNotificationConfigs/two",
	} {
		for _, token := range who {
			s.say(true, "GET", path, token, "", "A2A-Version", "1.0")
		}
	}
	s.askByRPC(who)
	s.askByGRPC(who)
}

func (s *search) askByRPC(who []string) {
	s.t.Helper()
	for version, calls := range map[string]map[string]string{
		"1.0": {
			"GetTask":                          `{"id":"TASK"}`,
			"ListTasks":                        `{}`,
			"ListTaskPushNotificationConfigs":  `{"taskId":"TASK"}`,
			"GetTaskPushNotificationConfig":    `{"taskId":"TASK","id":"three"}`,
			"DeleteTaskPushNotificationConfig": `{"taskId":"TASK","id":"nine"}`,
			"GetExtendedAgentCard":             `{}`,
		},
		"0.3": {
			"tasks/get":                          `{"id":"TASK"}`,
			"tasks/pushNotificationConfig/list":  `{"id":"TASK"}`,
			"tasks/pushNotificationConfig/get":   `{"id":"TASK","pushNotificationConfigId":"one"}`,
			"agent/getAuthenticatedExtendedCard": `{}`,
		},
	} {
		for method, params := range calls {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, strings.ReplaceAll(params, "TASK", s.task))
			for _, token := range who {
				s.say(true, "POST", "/a/bob", token, body, "A2A-Version", version)
			}
		}
	}
}

// fill puts something that exists into the variables of a path.
func (s *search) fill(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		switch {
		case !strings.HasPrefix(part, "{"):
		case i > 0 && parts[i-1] == "agents":
			parts[i] = "bob"
		case i > 0 && parts[i-1] == "push":
			parts[i] = "one"
		default:
			parts[i] = s.task
		}
	}
	return strings.Join(parts, "/")
}

// readFiles takes up the files of the data directory, without the master key's.
func (s *search) readFiles(when string) {
	s.t.Helper()
	err := filepath.WalkDir(s.cfg.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == vault.FileName {
			return err
		}
		s.readFile("the file "+d.Name()+" "+when, path)
		return nil
	})
	s.must(err)
}

func (s *search) readFile(what, path string) {
	s.t.Helper()
	text, err := os.ReadFile(path)
	s.must(err)
	s.said[what] = text
}

// find names the planted secrets that are in a text, as they are or written in some
// usual way.
func (s *search) find(text []byte) (found []string) {
	for what, secret := range s.planted {
		inJSON, _ := json.Marshal(string(secret))
		for _, form := range [][]byte{
			secret, inJSON[1 : len(inJSON)-1], []byte(hex.EncodeToString(secret)), []byte(strings.ToUpper(hex.EncodeToString(secret))),
			[]byte(url.QueryEscape(string(secret))),
			// Without its end, which depends on what follows.
			[]byte(base64.RawStdEncoding.EncodeToString(secret[:len(secret)/3*3])), []byte(base64.RawURLEncoding.EncodeToString(secret[:len(secret)/3*3])),
		} {
			if bytes.Contains(text, form) {
				found = append(found, what)
				break
			}
		}
	}
	return found
}

// checkSearch checks that the search would have found something.
func (s *search) checkSearch() {
	s.t.Helper()
	for what, secret := range s.planted {
		if len(secret) < 16 {
			s.t.Errorf("%s is too short to be searched for", what)
		}
		for _, text := range []string{string(secret), hex.EncodeToString(secret), base64.StdEncoding.EncodeToString(secret)} {
			if len(s.find([]byte("…"+text+"…"))) == 0 {
				s.t.Errorf("%s is not found in %s", what, text)
			}
		}
	}
	if len(s.planted) < 20 || len(s.said) < 300 {
		s.t.Errorf("only %d kinds of secrets were looked for in %d places", len(s.planted), len(s.said))
	}
	for _, what := range []string{"the file " + sqlite.FileName + " after the hub stopped", "the backup"} {
		if !bytes.Contains(s.said[what], []byte("planted-message")) {
			s.t.Errorf("%s was not searched: what is no secret is not found in it", what)
		}
	}
	byGRPC := false
	for what, text := range s.said {
		byGRPC = byGRPC || strings.HasPrefix(what, "gRPC GetTask ") && bytes.Contains(text, []byte("planted-message"))
	}
	if !byGRPC {
		s.t.Error("no answer of gRPC was searched: what is no secret is not found in any")
	}
	for _, line := range []string{"msg=serving", "/v1/whoami"} {
		if !strings.Contains(s.log.String(), line) {
			s.t.Errorf("the log lacks %s, so it was not searched", line)
		}
	}
}
