// Package relaypath says which paths of an agent's local server an outside service may
// reach. Whoever owns the address allows some, and so does each tunnel; both judge by the
// same rules.
package relaypath

import (
	"errors"
	"fmt"
	"strings"
)

const (
	// MaxPrefixes bounds how many prefixes are allowed at once.
	MaxPrefixes = 32
	// MaxPrefix bounds the length of each, in bytes.
	MaxPrefix = 200
)

// CheckPrefix reports what is wrong with a prefix of paths that is to be open to outside
// services.
func CheckPrefix(prefix string) error {
	switch {
	case !strings.HasPrefix(prefix, "/"):
		return fmt.Errorf("%.80q does not begin with /: give the beginning of a path, such as /hooks/", prefix)
	case len(prefix) > MaxPrefix:
		return fmt.Errorf("%.80q… has more than %d characters", prefix, MaxPrefix)
	case !Plain(prefix):
		return fmt.Errorf("%.80q is no plain path: write it as the local server sees it, without escapes, empty segments and dot segments", prefix)
	}
	return nil
}

// CheckPrefixes is CheckPrefix for a list of them.
func CheckPrefixes(prefixes []string) error {
	if len(prefixes) > MaxPrefixes {
		return fmt.Errorf("there are more than %d of them", MaxPrefixes)
	}
	errs := make([]error, 0, len(prefixes))
	for _, p := range prefixes {
		errs = append(errs, CheckPrefix(p))
	}
	return errors.Join(errs...)
}

// Allowed reports whether an outside service may reach path, which is decoded. A prefix
// ends at the end of a segment: /hooks allows /hooks and /hooks/a, and not /hooksy.
//
// Servers differ in how they read escapes, dots, empty segments, backslashes and
// semicolons, so a path that has any of those is never allowed: what remains means the
// same to all of them.
func Allowed(path string, prefixes []string) bool {
	if !Plain(path) {
		return false
	}
	for _, p := range prefixes {
		rest, ok := strings.CutPrefix(path, p)
		if ok && (rest == "" || strings.HasSuffix(p, "/") || rest[0] == '/') {
			return true
		}
	}
	return false
}

// Plain reports whether a decoded path can be read in one way only: see Allowed.
func Plain(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	for _, c := range []byte(path) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && !('0' <= c && c <= '9') && strings.IndexByte("/-._~!$&'()*+,=:@", c) < 0 {
			return false
		}
	}
	segments := strings.Split(path[1:], "/")
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-1 {
			return false
		}
	}
	return true
}
