package v1

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/engine"
	"github.com/holdfast-hub/holdfast/internal/identity"
)

// bare is a face whose engine and directory have no store behind them: enough for
// what is answered before either is asked.
func bare(t *testing.T) *face {
	t.Helper()
	return newFace(Options{Engine: engine.New(engine.Options{}), Identity: identity.New(identity.Options{}), PublicURL: "https://hub.example/", Version: "1.2.3"})
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

func TestTheDocumentHasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	f := bare(t)
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			OperationID string                     `json:"operationId"`
			Responses   map[string]json.RawMessage `json:"responses"`
			Parameters  []struct {
				Name string `json:"name"`
				In   string `json:"in"`
			} `json:"parameters"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(get(t, f, "/openapi.json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("OpenAPI version %q", doc.OpenAPI)
	}
	var described []string
	for path, item := range doc.Paths {
		for method, op := range item {
			described = append(described, strings.ToUpper(method)+" "+path)
			if op.OperationID == "" || len(op.Responses) == 0 {
				t.Errorf("%s %s has no id or no answers", method, path)
			}
			for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(path, -1) {
				n := 0
				for _, p := range op.Parameters {
					if p.In == "path" && p.Name == m[1] {
						n++
					}
				}
				if n != 1 {
					t.Errorf("%s %s describes {%s} %d times", method, path, m[1], n)
				}
			}
		}
	}
	served := slices.Clone(f.patterns)
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("served (-) and described (+):\n%s", diff)
	}
}

func TestEveryReferenceInTheDocumentResolves(t *testing.T) {
	t.Parallel()
	body := get(t, bare(t), "/openapi.json").Body.Bytes()
	var doc struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	refs := regexp.MustCompile(`"\$ref":"#/components/schemas/(\w+)"`).FindAllSubmatch(body, -1)
	if len(refs) < 20 {
		t.Fatalf("found only %d references", len(refs))
	}
	used := map[string]bool{}
	for _, m := range refs {
		used[string(m[1])] = true
		if doc.Components.Schemas[string(m[1])] == nil {
			t.Errorf("no schema %s", m[1])
		}
	}
	for name := range doc.Components.Schemas {
		if !used[name] {
			t.Errorf("nothing refers to the schema %s", name)
		}
	}
}

func TestDocsPageIsSelfContained(t *testing.T) {
	t.Parallel()
	f := bare(t)
	w := get(t, f, "/docs")
	page := w.Body.String()
	if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		t.Fatalf("%d %s", w.Code, w.Header())
	}
	for path, item := range f.api.OpenAPI().Paths {
		for _, op := range operations(item) {
			if !strings.Contains(page, `id="`+op.OperationID+`"`) || !strings.Contains(page, path) {
				t.Errorf("the page lacks %s", op.OperationID)
			}
		}
	}
	for _, m := range regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(page, `id="`+m[1]+`"`) {
			t.Errorf("a link leads nowhere: #%s", m[1])
		}
	}
	if m := regexp.MustCompile(`(?i)<script|<img|<link|<iframe|src=|@import|url\(|style="|\son\w+=|href="(https?:)?//`).FindString(page); m != "" {
		t.Errorf("the page loads or runs something: %s", m)
	}
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(page)
	sum := sha256.Sum256([]byte(style[1]))
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
		t.Errorf("the policy does not admit the page's style alone: %s", policy)
	}
	if strings.Contains(page, "ZgotmplZ") {
		t.Error("the template filtered something out")
	}
}

func TestRoutesThatDoNotExist(t *testing.T) {
	t.Parallel()
	f := bare(t)
	for _, c := range []struct {
		method, path string
		status       int
		allow, code  string
	}{
		{"GET", "/v1/nothing", 404, "", "not_found"},
		{"GET", "/v1/agents/x/tasks/y/z/w", 404, "", "not_found"},
		{"PUT", "/v1/agents/coder/tasks", 405, "GET, POST", "method_not_allowed"},
		{"HEAD", "/v1/agents/me/tasks/next", 405, "GET", "method_not_allowed"},
		{"DELETE", "/v1/agents/me/tasks/x/result", 405, "POST", "method_not_allowed"},
		{"POST", "/v1/agents/coder", 405, "GET, PATCH, DELETE", "method_not_allowed"},
		{"POST", "/v1/whoami", 405, "GET", "method_not_allowed"},
		{"OPTIONS", "/v1/tokens/x", 405, "DELETE", "method_not_allowed"},
		{"GET", "/", 404, "", "not_found"},
	} {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || w.Header().Get("Allow") != c.allow || !strings.Contains(w.Body.String(), `"code":"`+c.code+`"`) {
			t.Errorf("%s %s: %d, Allow %q, %s", c.method, c.path, w.Code, w.Header().Get("Allow"), w.Body)
		}
	}
}

// TestABrowserIsShownTheDescription: the bare address of the hub is what people open
// first. Programs are told that there is nothing.
func TestABrowserIsShownTheDescription(t *testing.T) {
	t.Parallel()
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	for _, c := range []struct {
		public, method, path, accept string
		status                       int
		to                           string
	}{
		{"https://hub.example", "GET", "/", browser, 303, "/docs"},
		{"https://example.com/hub/", "GET", "/", browser, 303, "/hub/docs"},
		{"https://hub.example", "GET", "/", "*/*", 404, ""},
		{"https://hub.example", "GET", "/", "application/json, text/html;q=0.5", 404, ""},
		{"https://hub.example", "POST", "/", browser, 404, ""},
		{"https://hub.example", "GET", "/nothing", browser, 404, ""},
	} {
		f := newFace(Options{Engine: engine.New(engine.Options{}), Identity: identity.New(identity.Options{}), PublicURL: c.public})
		r := httptest.NewRequest(c.method, c.path, nil)
		r.Header.Set("Accept", c.accept)
		w := httptest.NewRecorder()
		f.ServeHTTP(w, r)
		if w.Code != c.status || w.Header().Get("Location") != c.to {
			t.Errorf("%+v: %d to %q", c, w.Code, w.Header().Get("Location"))
		}
	}
}

func TestNothingIsAnsweredWithoutACredential(t *testing.T) {
	t.Parallel()
	f := bare(t)
	open := []string{"GET /openapi.json", "GET /docs"}
	for _, pattern := range f.patterns {
		if slices.Contains(open, pattern) {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		path = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(path, "x")
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader("not JSON")))
		if w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" || !strings.Contains(w.Body.String(), `"code":"unauthenticated"`) {
			t.Errorf("%s: %d %v %s", pattern, w.Code, w.Header(), w.Body)
		}
	}
}

// What the hub takes, a client made from the document can send.
func TestTheDocumentRequiresNoMoreThanTheHub(t *testing.T) {
	t.Parallel()
	schemas := bare(t).api.OpenAPI().Components.Schemas.Map()
	for name, want := range map[string][]string{
		"SendRequest": {"message"}, "Message": {"parts"}, "Part": {}, "Artifact": {"parts"},
		"Result": {"state"}, "EventsRequest": {"events"}, "Event": {}, "EventStatus": {}, "HeartbeatRequest": {},
	} {
		s := schemas[name]
		if s == nil {
			t.Errorf("there is no schema %s", name)
			continue
		}
		if got := slices.Sorted(slices.Values(s.Required)); !slices.Equal(got, want) {
			t.Errorf("%s requires %q, the hub %q", name, got, want)
		}
	}
	for _, body := range []string{`{"message":{"parts":[{"text":"hi"}]}}`, `{"message":{"role":"user","parts":[{"text":"hi"}]}}`} {
		if s, err := decodeSend([]byte(body)); err != nil || s.message.FromAgent {
			t.Errorf("%s: %v", body, err)
		}
	}
}
