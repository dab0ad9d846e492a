package app_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-hub/holdfast/internal/app"
	"github.com/holdfast-hub/holdfast/internal/config"
	"github.com/holdfast-hub/holdfast/internal/testhub"
)

// do sends a request and gives its answer, with the body read.
func do(t *testing.T, method, url, token, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(data)
}

// settings are those of a hub for a test, over a directory of its own.
func settings(t *testing.T) config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data = "127.0.0.1:0", filepath.Join(t.TempDir(), "data")
	return cfg
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestTaskThroughTheWholeHub(t *testing.T) {
	h := testhub.Start(t)
	alice, echo := h.Agent("alice"), h.Agent("echo")
	res, body := do(t, http.MethodPost, h.URL+"/v1/agents/echo/tasks", alice, `{"message":{"role":"user","parts":[{"text":"hi"}]}}`)
	if res.StatusCode >= 300 {
		t.Fatalf("send: %d %s", res.StatusCode, body)
	}
	var sent struct{ ID string }
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Fatal(err)
	}
	h.Restart() // what was acknowledged is there
	res, body = do(t, http.MethodGet, h.URL+"/v1/agents/me/tasks/next?wait=5", echo, "")
	if res.StatusCode != 200 || !strings.Contains(body, sent.ID) {
		t.Fatalf("next: %d %s", res.StatusCode, body)
	}
	res, body = do(t, http.MethodPost, h.URL+"/v1/agents/me/tasks/"+sent.ID+"/result", echo, `{"state":"completed"}`)
	if res.StatusCode != 200 {
		t.Fatalf("result: %d %s", res.StatusCode, body)
	}
	_, page := do(t, http.MethodGet, h.URL+"/metrics", "", "")
	for _, line := range []string{
		`holdfast_transitions_total{kind="completed"} 1`, `holdfast_transitions_total{kind="claimed"} 1`,
		`holdfast_queue_tasks{phase="ready"} 0`, "holdfast_queue_oldest_ready_seconds 0", "holdfast_store_batch_size_count ",
		"holdfast_store_commit_seconds_count ", `holdfast_http_request_seconds_count{route="/v1/agents/me/tasks/next"} 1`,
		`holdfast_http_open{kind="all"} 1`, `holdfast_http_open{kind="poll"} 0`,
	} {
		if !strings.Contains(page, line) {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	for _, secret := range []string{"alice", sent.ID, alice} {
		if strings.Contains(page, secret) {
			t.Errorf("/metrics shows %s", secret)
		}
	}
}

func TestProbes(t *testing.T) {
	h := testhub.Start(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if res, body := do(t, http.MethodGet, h.URL+path, "", ""); res.StatusCode != 200 || !strings.Contains(body, `"ok"`) {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

func TestEveryAnswerIsHardened(t *testing.T) {
	h := testhub.Start(t)
	for _, path := range []string{"/healthz", "/v1/whoami", "/a/nobody", "/nowhere", "/openapi.json", "/.well-known/agent-card.json"} {
		res, _ := do(t, http.MethodGet, h.URL+path, "", "", "Origin", "https://evil.example")
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Access-Control-Allow-Origin": "",
		} {
			if got := res.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		if res.Header.Get("Content-Security-Policy") == "" || res.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %v", path, res.Header)
		}
	}
}

func TestNamedOriginsMayCall(t *testing.T) {
	h := testhub.Start(t, func(c *config.Config) { c.CORSOrigins = []string{"https://app.example"} })
	res, _ := do(t, http.MethodOptions, h.URL+"/v1/whoami", "", "", "Origin", "https://app.example", "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization")
	if res.StatusCode != 204 || res.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || !strings.Contains(res.Header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("preflight: %d %v", res.StatusCode, res.Header)
	}
	res, _ = do(t, http.MethodGet, h.URL+"/v1/whoami", h.AdminToken, "", "Origin", "https://app.example")
	if res.StatusCode != 200 || res.Header.Get("Access-Control-Allow-Origin") != "https://app.example" || res.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("call: %d %v", res.StatusCode, res.Header)
	}
	res, _ = do(t, http.MethodOptions, h.URL+"/v1/whoami", "", "", "Origin", "https://evil.example", "Access-Control-Request-Method", "GET")
	if got := res.Header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("another origin is allowed as %q", got)
	}
}

func TestAnonymousHubIsClosedToWebPages(t *testing.T) {
	h := testhub.Start(t, testhub.Anonymous)
	h.Agent("echo")
	send := func(headers ...string) int {
		res, _ := do(t, http.MethodPost, h.URL+"/v1/agents/echo/tasks", "", `{"message":{"role":"user","parts":[{"text":"hi"}]}}`, headers...)
		return res.StatusCode
	}
	if status := send(); status >= 300 {
		t.Errorf("a program: %d", status)
	}
	for name, headers := range map[string][]string{
		"cross-site page":  {"Sec-Fetch-Site", "cross-site", "Origin", "https://evil.example"},
		"older browser":    {"Origin", "https://evil.example"},
		"rebound name":     {"Host", "evil.example", "Sec-Fetch-Site", "same-origin"},
		"rebound, no hint": {"Host", "evil.example:7420"},
	} {
		if status := send(headers...); status != http.StatusForbidden {
			t.Errorf("%s: %d, want 403", name, status)
		}
	}
	if status := send("Host", "localhost:7420", "Sec-Fetch-Site", "same-origin"); status >= 300 {
		t.Errorf("a page of the hub itself: %d", status)
	}
}

func TestOversizeBodies(t *testing.T) {
	h := testhub.Start(t, func(c *config.Config) { c.MaxBody = 2048 })
	token := h.Agent("echo")
	text := strings.Repeat("x", 4096)
	res, body := do(t, http.MethodPost, h.URL+"/v1/agents/echo/tasks", token, `{"message":{"role":"user","parts":[{"text":"`+text+`"}]}}`)
	if res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", res.StatusCode, body)
	}
}

func TestSecondHubOnOneDirectoryIsRefused(t *testing.T) {
	h := testhub.Start(t)
	cfg := settings(t)
	cfg.Data = h.Dir()
	_, err := app.New(t.Context(), cfg, discard())
	if err == nil || !strings.Contains(err.Error(), "another hub") {
		t.Errorf("second hub: %v", err)
	}
	if _, err := app.ReplaceAdmin(t.Context(), config.Config{Data: h.Dir()}, discard()); err == nil || !strings.Contains(err.Error(), "stop it") {
		t.Errorf("admin-token beside a running hub: %v", err)
	}
	if res, _ := do(t, http.MethodGet, h.URL+"/v1/whoami", h.AdminToken, ""); res.StatusCode != 200 {
		t.Errorf("the first hub: %d", res.StatusCode)
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cfg := settings(t)
	cfg.Listen = l.Addr().String()
	if _, err := app.New(t.Context(), cfg, discard()); err == nil || !strings.Contains(err.Error(), "--listen") {
		t.Fatalf("got %v", err)
	}
	// Nothing is left behind: the directory is free for the next try, which shows the
	// admin token.
	cfg.Listen = "127.0.0.1:0"
	a, err := app.New(t.Context(), cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	if a.NewAdminToken() == "" {
		t.Error("the failed start has made the admin token, and nobody has seen it")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestInvalidSettingsOpenNothing(t *testing.T) {
	for name, set := range map[string]func(*config.Config){
		"an anonymous hub for everybody": func(c *config.Config) { c.Listen, c.Anonymous = "0.0.0.0:0", true },
		"an admin token that is short":   func(c *config.Config) { c.AdminToken = "short" },
		"a master key that is none":      func(c *config.Config) { c.MasterKey = "nonsense" },
		"a key file that is not there":   func(c *config.Config) { c.MasterKeyFile = filepath.Join(t.TempDir(), "none") },
		"an address of another machine":  func(c *config.Config) { c.Listen = "192.0.2.1:0" },
		"a certificate that is none": func(c *config.Config) {
			c.TLSCert = filepath.Join(t.TempDir(), "none")
			c.TLSKey = c.TLSCert
		},
		"ports that are none": func(c *config.Config) { c.EgressAllowLocal = "x" },
	} {
		cfg := settings(t)
		set(&cfg)
		if a, err := app.New(t.Context(), cfg, discard()); err == nil {
			t.Errorf("%s: the hub started", name)
			_ = a.Close()
		}
		if _, err := os.Stat(cfg.Data); !os.IsNotExist(err) {
			t.Errorf("%s: the data directory was made: %v", name, err)
		}
	}
}

func TestAdminTokenIsShownOnceAndNeverLogged(t *testing.T) {
	cfg := settings(t)
	var lines bytes.Buffer
	log := slog.New(slog.NewTextHandler(&lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
	banner := func() (text, secret string) {
		a, err := app.New(t.Context(), cfg, log)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := a.Banner(&b); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String(), a.NewAdminToken()
	}
	text, secret := banner()
	if !strings.HasPrefix(secret, "hfa_") || !strings.Contains(text, secret) {
		t.Errorf("first start: %s", text)
	}
	if text, again := banner(); again != "" || strings.Contains(text, "hfa_") {
		t.Errorf("second start: %s", text)
	}
	if strings.Contains(lines.String(), secret) {
		t.Error("the log has the secret")
	}
	if info, err := os.Stat(cfg.Data); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data directory: %v, %v", info.Mode(), err)
	}
}

func TestReplacedAdminToken(t *testing.T) {
	h := testhub.Start(t)
	h.Close()
	if _, err := app.ReplaceAdmin(t.Context(), config.Config{Data: h.Dir() + "x"}, discard()); err == nil || !strings.Contains(err.Error(), "--data") {
		t.Errorf("a directory without data: %v", err)
	}
	secret, err := app.ReplaceAdmin(t.Context(), config.Config{Data: h.Dir()}, discard())
	if err != nil {
		t.Fatal(err)
	}
	cfg := settings(t)
	cfg.Data = h.Dir()
	url := run(t, cfg)
	for token, want := range map[string]int{secret: 200, h.AdminToken: 401} {
		if res, _ := do(t, http.MethodGet, url+"/v1/whoami", token, ""); res.StatusCode != want {
			t.Errorf("%.4s…: %d, want %d", token, res.StatusCode, want)
		}
	}
}

// run runs a hub until the test ends.
func run(t *testing.T, cfg config.Config) (url string) {
	t.Helper()
	a, err := app.New(t.Context(), cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a.URL()
}

func TestTLS(t *testing.T) {
	cfg := settings(t)
	var roots *x509.CertPool
	cfg.TLSCert, cfg.TLSKey, roots = certificate(t)
	url := run(t, cfg)
	if !strings.HasPrefix(url, "https://127.0.0.1:") {
		t.Errorf("the hub calls itself %s", url)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}}
	defer client.CloseIdleConnections()
	res, err := client.Get(url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 || res.ProtoMajor != 2 {
		t.Errorf("%s %s", res.Proto, res.Status)
	}
	if res.TLS.Version != tls.VersionTLS13 {
		t.Errorf("a client that can speaks %s, want TLS 1.3", tls.VersionName(res.TLS.Version))
	}
	testOldTLS(t, strings.TrimPrefix(url, "https://"), roots)
	cfg = settings(t)
	cfg.TLSCert, cfg.TLSKey = "missing.pem", "missing.pem"
	if _, err := app.New(t.Context(), cfg, discard()); err == nil || !strings.Contains(err.Error(), "--tls-cert") {
		t.Errorf("missing files: %v", err)
	}
}

// testOldTLS: versions of TLS and suites that are known to be weak are refused, whatever a
// client wants (A2A 1.0, section 7.1).
func testOldTLS(t *testing.T, addr string, roots *x509.CertPool) {
	t.Helper()
	try := func(cfg *tls.Config) error {
		cfg.RootCAs = roots
		c, err := tls.Dial("tcp", addr, cfg)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	if err := try(&tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}); err != nil {
		t.Errorf("TLS 1.2: %v", err)
	}
	for _, version := range []uint16{tls.VersionTLS10, tls.VersionTLS11} {
		if try(&tls.Config{MinVersion: version, MaxVersion: version}) == nil {
			t.Errorf("%s was accepted", tls.VersionName(version))
		}
	}
	for _, s := range tls.InsecureCipherSuites() {
		if try(&tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{s.ID}}) == nil {
			t.Errorf("%s was accepted", s.Name)
		}
	}
}

// certificate makes a certificate for 127.0.0.1.
func certificate(t *testing.T) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	roots = x509.NewCertPool()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots.AppendCertsFromPEM(cert)
	return writeFile(t, "cert.pem", cert), writeFile(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER})), roots
}

func writeFile(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// poll opens a long poll and gives its answer's status once there is one.
func poll(t *testing.T, url, token string) <-chan int {
	t.Helper()
	status := make(chan int, 1)
	go func() {
		req, _ := http.NewRequest(http.MethodGet, url+"/v1/agents/me/tasks/next?wait=60", nil)
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			status <- -1
			return
		}
		res.Body.Close()
		status <- res.StatusCode
	}()
	return status
}

// untilOpen waits until the metric of that kind shows n open requests.
func untilOpen(t *testing.T, url, kind string, n int) {
	t.Helper()
	awaitMetrics(t, url, fmt.Sprintf("holdfast_http_open{kind=%q} %d", kind, n))
}

func TestShutdownEndsPollsAndStreamsAtOnce(t *testing.T) {
	h := testhub.Start(t)
	token := h.Agent("echo")
	polling := poll(t, h.URL, token)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/api/activity", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Accept", "text/event-stream")
	stream, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	untilOpen(t, h.URL, "poll", 1)
	untilOpen(t, h.URL, "stream", 1)
	begun := time.Now()
	h.Close()
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
	if status := <-polling; status != http.StatusNoContent {
		t.Errorf("the poll got %d, want 204", status)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream broke: %v", err)
	}
}

func TestRevocationEndsAnOpenPoll(t *testing.T) {
	h := testhub.Start(t)
	token := h.Agent("echo")
	polling := poll(t, h.URL, token)
	untilOpen(t, h.URL, "poll", 1)
	if res, body := do(t, http.MethodDelete, h.URL+"/v1/agents/echo", h.AdminToken, ""); res.StatusCode >= 300 {
		t.Fatalf("delete: %d %s", res.StatusCode, body)
	}
	if status := <-polling; status != http.StatusUnauthorized {
		t.Errorf("the poll got %d, want 401", status)
	}
}

func TestSlowBodyDoesNotHoldUpShutdown(t *testing.T) {
	cfg := settings(t)
	cfg.ShutdownTimeout = time.Second
	a, err := app.New(t.Context(), cfg, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	c, err := net.Dial("tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /v1/agents/echo/tasks HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n", a.NewAdminToken())
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("the hub does not read the body: %q, %v", line, err)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the hub is still there")
	}
}
