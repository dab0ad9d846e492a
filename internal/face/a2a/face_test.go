package a2a

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
)

// TestVersions is spec section 3.6: the version is a header or a query parameter,
// its patch number does not count, and one that is named is obeyed. None at all is
// told by the method, see the package's comment.
func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"": true, "1.0": true, "1.0.0": true, "1.0.17": true, " 1.0 ": true,
		"0.3": false, "0.3.0": false, "1": false, "1.1": false, "1.0.x": false, "1.0.": false, "99.0": false, "10.0": false, "v1.0": false,
	} {
		header := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/a/x", nil)
		header.Header.Set("A2A-Version", version)
		query := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/a/x?A2A-Version="+url.QueryEscape(version), nil)
		for _, r := range []*http.Request{header, query} {
			err := checkVersion(r)
			var f *fault
			if errors.As(err, &f); ok != (err == nil) || !ok && f.reason != versionNotSupported {
				t.Errorf("%q at %s: %v", version, r.URL, err)
			}
		}
	}
}

func TestMediaTypes(t *testing.T) {
	for value, ok := range map[string]bool{
		"": true, "application/json": true, "Application/JSON; charset=utf-8": true, "application/a2a+json": true,
		`application/json; charset="`: true,
		"text/plain":                  false, "application/x-www-form-urlencoded": false, "application/jsonx": false, ";": false,
	} {
		err := checkMediaType(http.Header{"Content-Type": {value}})
		var f *fault
		if errors.As(err, &f); ok != (err == nil) || !ok && f.reason != contentTypeUnsupported {
			t.Errorf("%q: %v", value, err)
		}
	}
}
