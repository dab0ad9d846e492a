package arch

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "github.com/holdfast-hub/holdfast"
	root   = "../.." // of the module, from this package
)

// allowed says which packages of this module the code of each may import; its tests
// may import what they need. A key that ends with /* stands for all packages below.
// Read it as layers: what stands higher never imports what stands lower.
var allowed = map[string][]string{
	"wire":   {},
	"client": {"wire"},

	"internal/hub":       {},
	"internal/clock":     {},
	"internal/rawjson":   {},
	"internal/relaypath": {},
	"internal/config":    {"internal/hub"},
	"internal/cardform":  {},
	"internal/canon":     {"internal/hub", "internal/rawjson"},
	"internal/transcode": {"internal/rawjson"},
	"internal/egress":    {"internal/hub"},
	"internal/httpx":     {"internal/hub", "wire"}, // wire: the form of an error

	// What implements a port of hub knows hub, and no other implementation.
	"internal/engine":         {"internal/hub", "internal/canon"},
	"internal/identity":       {"internal/hub", "internal/httpx", "internal/relaypath"},
	"internal/store/*":        {"internal/hub", "internal/canon"},
	"internal/store/transfer": {"internal/hub"},
	"internal/vault":          {"internal/hub"},
	"internal/signing":        {"internal/hub"},

	// What brings something out of the hub goes through the guard.
	"internal/delivery":           {"internal/hub", "internal/engine", "internal/canon"}, // a worker, and so a client of the engine
	"internal/delivery/*":         {"internal/hub", "internal/canon", "internal/egress"},
	"internal/delivery/webhook":   {"internal/hub", "internal/canon", "internal/rawjson", "internal/egress", "internal/delivery"},
	"internal/delivery/tunnel":    {"internal/hub", "internal/httpx", "internal/egress", "internal/delivery", "internal/tunnelconn", "internal/relaypath"},
	"internal/tunnelconn":         {},
	"internal/tunnelclient":       {"wire", "internal/tunnelconn", "internal/relaypath"}, // the agent's end, which knows nothing of the hub's
	"internal/delivery/remotea2a": {"internal/hub", "internal/canon", "internal/rawjson", "internal/transcode", "internal/cardform", "internal/egress", "internal/delivery"},
	"internal/delivery/deliverytest": {
		"internal/hub", "internal/canon", "internal/engine", "internal/delivery", "internal/store/sqlite", "internal/store/postgres", "internal/store/pgtest", "internal/vault",
	},

	// Faces know no store and no other face.
	"internal/face/*": {
		"internal/hub", "internal/engine", "internal/identity", "internal/httpx",
		"internal/canon", "internal/cardform", "internal/rawjson", "internal/transcode", "wire",
	},

	// The one place where all of them meet.
	"internal/app": {
		"internal/clock", "internal/config", "internal/hub", "internal/engine", "internal/identity", "internal/httpx",
		"internal/store/sqlite", "internal/store/postgres", "internal/store/transfer", "internal/face/a2a", "internal/face/v1", "wire",
		"internal/vault", "internal/signing", "internal/egress", "internal/delivery", "internal/delivery/push", "internal/delivery/webhook", "internal/delivery/remotea2a", "internal/delivery/tunnel", "internal/tunnelconn",
	},

	// The command line works through the public client, so that the client stays
	// honest, and through app where it is the hub itself.
	"internal/cli":  {"client", "wire", "internal/tunnelclient", "internal/tunnelconn", "internal/relaypath", "internal/app", "internal/config", "internal/hub", "internal/bench"},
	"cmd/holdfast":  {"internal/cli"},
	"internal/arch": {},

	// Whole hubs for tests and measurements.
	"internal/testhub": {"internal/app", "internal/config", "internal/hub", "internal/identity"},
	"internal/bench":   {"client", "wire", "internal/tunnelclient", "internal/tunnelconn", "internal/app", "internal/config", "internal/hub", "internal/identity", "internal/engine", "internal/store/sqlite", "internal/store/postgres", "internal/store/pgtest"},
	"bench":            {"client", "wire", "internal/app", "internal/config", "internal/hub", "internal/bench", "internal/testhub"},
	"e2e":              {"client", "wire", "e2e/hubproc"},
	"e2e/*":            {"client", "wire", "e2e/hubproc"},
	"e2e/hubproc":      {"internal/store/pgtest"},
	"e2e/kit":          {"client", "wire", "internal/app", "internal/config"},
	"e2e/sut":          {"e2e/kit"},
	"e2e/conformance":  {"e2e/kit"},
}

// libraries says which packages may use each library outside of tests, so that a
// library can be replaced in one place. Ids are made everywhere.
var libraries = map[string][]string{
	"github.com/BurntSushi/toml":          {"internal/config"},
	"github.com/a2aproject/a2a-go":        {"bench", "internal/bench", "internal/face/a2a", "internal/delivery/remotea2a", "internal/cli"},
	"github.com/anishathalye/porcupine":   {"internal/store/storetest"},
	"github.com/coder/websocket":          {"internal/tunnelconn", "internal/tunnelclient", "internal/delivery/tunnel"},
	"github.com/danielgtaylor/huma":       {"internal/face/v1"},
	"github.com/go-json-experiment/json":  {"internal/face/v1"},
	"github.com/mattn/go-isatty":          {"internal/cli"},
	"github.com/go-jose/go-jose/v4":       {"internal/signing", "internal/face/a2a", "internal/delivery/remotea2a"},
	"github.com/gowebpki/jcs":             {"internal/cardform"},
	"github.com/google/go-cmp":            {"internal/store/storetest"},
	"github.com/jackc/pgx":                {"internal/store/postgres", "internal/store/pgtest", "internal/bench"},
	"github.com/pressly/goose":            {"internal/store/sqlite", "internal/store/postgres"},
	"github.com/prometheus/client_golang": {"internal/app"},
	"github.com/spf13/cobra":              {"internal/cli"},
	"github.com/spf13/pflag":              {"internal/cli"},
	"github.com/tink-crypto/tink-go":      {"internal/vault"},
	"github.com/standard-webhooks":        {"internal/delivery/push", "internal/delivery/webhook"},
	"golang.org/x/sys":                    {"internal/store/sqlite", "internal/cli"},
	"golang.org/x/time":                   {"internal/engine"},
	"google.golang.org/genproto":          {"internal/face/a2a", "internal/delivery/remotea2a"},
	"google.golang.org/grpc":              {"internal/face/a2a", "internal/delivery/remotea2a"},
	"google.golang.org/protobuf":          {"internal/face/a2a", "internal/delivery/remotea2a", "internal/transcode"},
	"modernc.org/sqlite":                  {"internal/store/sqlite"},
	"zombiezen.com/go/sqlite":             {"internal/store/sqlite", "internal/bench"},
	"github.com/rogpeppe/go-internal":     {},
	"go.uber.org/goleak":                  {},
}

// outbound is where connections to elsewhere may be opened: by the public client, by
// the commands that use it, and by what measures or tests. The hub itself has one
// guarded way out.
var outbound = []string{"internal/egress", "client", "internal/tunnelclient", "internal/cli", "internal/bench", "internal/testhub", "bench", "e2e"}

// guarded is what may make requests, but not send them other than by the client of an
// egress.Guard that it was given.
var guarded = []string{"internal/delivery/remotea2a", "internal/delivery/push", "internal/delivery/webhook"}

// pkg is what go list says of a package.
type pkg struct {
	ImportPath   string
	Dir          string
	Doc          string
	GoFiles      []string
	TestGoFiles  []string
	XTestGoFiles []string
	Imports      []string
}

// name is the path of the package within the module.
func (p pkg) name() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

// packages lists all packages of the module.
func packages(t *testing.T) []pkg {
	t.Helper()
	lookAround(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var list []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	if len(list) < 10 {
		t.Fatalf("go list found %d packages only; is %s the root of the module?", len(list), root)
	}
	return list
}

// lookAround opens each directory, so that go test does not take an old result for a
// new one: what its subprocesses read, it does not know of.
func lookAround(t *testing.T) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && name != "." && (name[0] == '.' || d.Name() == "testdata") {
			return fs.SkipDir
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// rule is the row of allowed that counts for a package.
func rule(name string) (imports []string, ok bool) {
	if imports, ok = allowed[name]; ok {
		return imports, true
	}
	imports, ok = allowed[path.Dir(name)+"/*"]
	return imports, ok
}

func TestImportsGoTheRightWay(t *testing.T) {
	for _, p := range packages(t) {
		may, ok := rule(p.name())
		if !ok {
			t.Errorf("%s: there is no rule for this package; add what it may import to allowed", p.name())
			continue
		}
		for _, imp := range p.Imports {
			if own, inside := strings.CutPrefix(imp, module+"/"); inside && !slices.Contains(may, own) {
				t.Errorf("%s imports %s, which allowed does not let it", p.name(), own)
			}
		}
	}
}

func TestLibrariesAreUsedInOnePlace(t *testing.T) {
	for _, p := range packages(t) {
		for _, imp := range p.Imports {
			host, _, _ := strings.Cut(imp, "/")
			if !strings.Contains(host, ".") || strings.HasPrefix(imp, module+"/") || imp == "github.com/google/uuid" {
				continue
			}
			users, ok := usersOf(imp)
			switch {
			case !ok:
				t.Errorf("%s imports %s, which libraries does not know; the standard library alone may do, else add a row", p.name(), imp)
			case !slices.Contains(users, p.name()):
				t.Errorf("%s imports %s, which libraries gives to %s alone", p.name(), imp, strings.Join(users, ", "))
			}
		}
	}
}

func usersOf(imp string) (users []string, ok bool) {
	for lib, users := range libraries {
		if imp == lib || strings.HasPrefix(imp, lib+"/") {
			return users, true
		}
	}
	return nil, false
}

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	for _, p := range packages(t) {
		doc := p.Doc
		if len(p.GoFiles) == 0 {
			doc = testDoc(t, p)
		}
		if doc == "" {
			t.Errorf("%s: the package has no doc comment in a file that is no test", p.name())
		}
	}
}

// testDoc is the doc comment of a package that has tests alone, which go list does
// not look at.
func testDoc(t *testing.T, p pkg) string {
	t.Helper()
	for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if f.Doc != nil {
			return f.Doc.Text()
		}
	}
	return ""
}

// file is a parsed source file.
type file struct {
	where string // its path within the module
	pkg   string // the package's, likewise
	test  bool
	ast   *ast.File
	fset  *token.FileSet
}

// files parses all files of the module.
func files(t *testing.T) []file {
	t.Helper()
	var list []file
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.TestGoFiles, p.XTestGoFiles) {
			fset := token.NewFileSet()
			parsed, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, file{path.Join(p.name(), name), p.name(), strings.HasSuffix(name, "_test.go"), parsed, fset})
		}
	}
	return list
}

func TestNoInitFunctions(t *testing.T) {
	for _, f := range files(t) {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function; what is needed is called by whoever needs it", f.where)
			}
		}
	}
}

// dialers are the names that open connections, by package.
var dialers = map[string][]string{
	"net/http": {
		"Client", "DefaultClient", "DefaultTransport", "Get", "Head", "Post", "PostForm", "Transport",
		"NewRequest", "NewRequestWithContext",
	},
	"net":        {"Dial", "DialIP", "DialTCP", "DialTimeout", "DialUDP", "DialUnix", "Dialer"},
	"crypto/tls": {"Dial", "DialWithDialer", "Dialer"},
	"net/smtp":   {"Dial", "SendMail", "NewClient"},
	"net/rpc":    {"Dial", "DialHTTP"},
}

func TestTheHubOpensNoConnections(t *testing.T) {
	for _, f := range files(t) {
		if f.test || slices.Contains(outbound, f.pkg) || strings.HasPrefix(f.pkg, "e2e/") {
			continue
		}
		names := dialers
		if slices.Contains(guarded, f.pkg) {
			names = maps.Clone(dialers)
			names["net/http"] = slices.DeleteFunc(slices.Clone(names["net/http"]), func(n string) bool { return strings.HasPrefix(n, "NewRequest") })
		}
		if f.pkg == "internal/delivery/tunnel" { // settings of HTTP/2 over connections that it is given
			names = maps.Clone(names)
			names["net/http"] = slices.DeleteFunc(slices.Clone(names["net/http"]), func(n string) bool { return n == "Transport" })
		}
		for _, use := range uses(f, names) {
			t.Errorf("%s: the hub must not open connections of its own", use)
		}
	}
}

// TestTestsDoNotSleep finds sleeps that hope for something to have happened
// afterwards. A sleep in a loop that looks whether it has is fine.
func TestTestsDoNotSleep(t *testing.T) {
	for _, f := range files(t) {
		if !f.test || importsPath(f, "testing/synctest") { // whose sleeps take no time
			continue
		}
		for _, use := range uses(withoutLoops(f), map[string][]string{"time": {"Sleep"}}) {
			t.Errorf("%s: wait for what is to happen, or use testing/synctest", use)
		}
	}
}

// uses finds references to exported names of packages.
func uses(f file, names map[string][]string) (found []string) {
	imported := map[string]string{} // local name: path
	for _, imp := range f.ast.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		local := path.Base(p)
		if imp.Name != nil {
			local = imp.Name.Name
		}
		imported[local] = p
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if ok && slices.Contains(names[imported[x.Name]], sel.Sel.Name) {
			at := f.fset.Position(sel.Pos())
			found = append(found, f.where+":"+strconv.Itoa(at.Line)+" uses "+x.Name+"."+sel.Sel.Name)
		}
		return true
	})
	return found
}

// TestTheFinderFinds shows that uses sees through another import name, so that the
// tests above can fail.
func TestTheFinderFinds(t *testing.T) {
	const source = "package p\nimport web \"net/http\"\nvar _ = web.DefaultClient\n"
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, "p.go", source, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	found := uses(file{where: "p.go", ast: parsed, fset: fset}, dialers)
	if len(found) != 1 || found[0] != "p.go:3 uses web.DefaultClient" {
		t.Fatalf("found %q", found)
	}
}

// withoutLoops empties the loops of a file.
func withoutLoops(f file) file {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if loop, ok := n.(*ast.ForStmt); ok {
			loop.Body.List = nil
		}
		return true
	})
	return f
}

func importsPath(f file, p string) bool {
	return slices.ContainsFunc(f.ast.Imports, func(imp *ast.ImportSpec) bool { return imp.Path.Value == strconv.Quote(p) })
}
