package relaypath_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/relaypath"
)

func TestAllowed(t *testing.T) {
	prefixes := []string{"/hooks/", "/ci", "/one/two"}
	for p, want := range map[string]bool{
		"/hooks/": true, "/hooks/a": true, "/hooks/a/b.json": true, "/hooks/a/": true, "/hooks/a@b+c": true,
		"/ci": true, "/ci/": true, "/ci/x": true, "/one/two": true,
		"/hooks": false, "/": false, "": false, "hooks/": false, "/cix": false, "/one": false, "/one/": false,
		"/hooks/../admin": false, "/hooks/./a": false, "/hooks/..": false, "/hooks//a": false, "//hooks/": false,
		`/hooks/..\admin`: false, "/hooks/%2e%2e/admin": false, "/hooks/..;/admin": false, "/hooks/a;b": false,
		"/hooks/a\x00": false, "/hooks/a b": false, "/hooks/ä": false, "/hooks/a?b": false, "/hooks/a#b": false, "/hooks/a\r\nb": false,
		"/HOOKS/a": false,
	} {
		if got := relaypath.Allowed(p, prefixes); got != want {
			t.Errorf("%q: %v", p, got)
		}
	}
	if relaypath.Allowed("/a", nil) {
		t.Error("without prefixes something is allowed")
	}
}

func TestCheckPrefixes(t *testing.T) {
	if err := relaypath.CheckPrefixes([]string{"/", "/hooks/", "/a/b"}); err != nil {
		t.Error(err)
	}
	for _, p := range []string{"", "hooks", "/a//b", "/a/../b", "/a%2fb", "/" + strings.Repeat("a", 200)} {
		if relaypath.CheckPrefixes([]string{p}) == nil {
			t.Errorf("%q was taken", p)
		}
	}
	if relaypath.CheckPrefixes(make([]string, 33)) == nil {
		t.Error("33 of them were taken")
	}
}

// FuzzAllowed: whatever is allowed stays below its prefix, however a server reads it.
func FuzzAllowed(f *testing.F) {
	for _, p := range []string{"/hooks/a", "/hooks/../x", "/hooks/%2e%2e/x", "/hooks/a//b", `/hooks/\..\x`, "/hooks/..;/x", "/hooks/%252e%252e/", "/hooks/a%00"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || !relaypath.Allowed(u.Path, []string{"/hooks/"}) {
			return
		}
		read := u.Path
		for range 3 {
			if clean := path.Clean(read); clean != strings.TrimSuffix(read, "/") || !strings.HasPrefix(read, "/hooks/") {
				t.Fatalf("%q is read as %q", raw, clean)
			}
			again, err := url.PathUnescape(read)
			if err != nil || again != u.Path {
				t.Fatalf("%q decodes to %q: %v", read, again, err)
			}
			read = strings.ToLower(again)
			if read != strings.ToLower(u.Path) {
				t.Fatal(read)
			}
			read = u.Path
		}
		if (&url.URL{Path: u.Path}).EscapedPath() != u.Path {
			t.Fatalf("%q has to be escaped", u.Path)
		}
	})
}
