// Package cardform gives the forms of an agent card that signatures are of (A2A, section
// 8.4.1): the canonical one, and those that the SDKs make of a card instead. Whoever signs
// a card signs them all, and whoever verifies one takes any of them.
//
// A card is given as its JSON without signatures. It must be valid and not deeply nested.
// An error says that it has no canonical form, for a number that is none of JSON's.
package cardform

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"

	"github.com/gowebpki/jcs"
)

// Forms are those of a card of 1.0: its canonical form, first. Members that have their
// default and are neither required nor optional are not in its JSON to begin with. The
// SDKs for Python and JavaScript also take out all that is empty, required or not, and
// within what extensions say. Where that makes a difference there is a form of what
// they see.
func Forms(card []byte) ([][]byte, error) {
	canonical, err := jcs.Transform(card)
	if err != nil {
		return nil, err
	}
	cleaned, err := withoutEmpty(card)
	if err != nil {
		return nil, err
	}
	seen, err := canonicalOf(cleaned)
	if err != nil || bytes.Equal(seen, canonical) {
		return [][]byte{canonical}, err
	}
	return [][]byte{canonical, seen}, nil
}

// FormsV03 are those of a card of 0.3: the canonical form by the rules of 1.0, since 0.3
// has none; and the form that the one SDK of 0.3 that verifies signatures gives it, that
// for Python: in ASCII, without what has the default of that SDK's types.
func FormsV03(card []byte) ([][]byte, error) {
	canonical, err := jcs.Transform(card)
	if err != nil {
		return nil, err
	}
	cleaned, err := withoutEmpty(card)
	if err != nil {
		return nil, err
	}
	dropDefault(cleaned, "protocolVersion", "0.3.0")
	dropDefault(cleaned, "preferredTransport", "JSONRPC")
	if schemes, ok := cleaned["securitySchemes"].(map[string]any); ok {
		for _, s := range schemes {
			if scheme, ok := s.(map[string]any); ok {
				dropDefault(scheme, "type", "http")
				delete(scheme, "httpAuthSecurityScheme") // which those types have not got
			}
		}
	}
	seen, err := canonicalOf(cleaned)
	if err != nil {
		return nil, err
	}
	return [][]byte{canonical, escapeNonASCII(seen)}, nil
}

func dropDefault(object map[string]any, name, value string) {
	if object[name] == value {
		delete(object, name)
	}
}

// withoutEmpty decodes an object without its members and elements that are null, "",
// [] or {}, at any depth, or would be without theirs.
func withoutEmpty(object []byte) (map[string]any, error) {
	var v any
	if err := json.Unmarshal(object, &v); err != nil {
		return nil, err
	}
	cleaned, _ := cleanEmpty(v).(map[string]any)
	return cleaned, nil
}

// cleanEmpty is withoutEmpty of any value, nil if nothing is left. What it is given is
// as deep as an owner's data can be.
func cleanEmpty(v any) any {
	switch v := v.(type) {
	case string:
		if v == "" {
			return nil
		}
	case []any:
		var kept []any
		for _, e := range v {
			if e = cleanEmpty(e); e != nil {
				kept = append(kept, e)
			}
		}
		if kept == nil {
			return nil
		}
		return kept
	case map[string]any:
		for name, member := range v {
			if member = cleanEmpty(member); member == nil {
				delete(v, name)
			} else {
				v[name] = member
			}
		}
		if len(v) == 0 {
			return nil
		}
	}
	return v
}

func canonicalOf(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return jcs.Transform(body)
}

// escapeNonASCII writes JSON in ASCII, as Python's json module does.
func escapeNonASCII(canonical []byte) []byte {
	out := make([]byte, 0, len(canonical))
	for _, r := range string(canonical) {
		if r <= '~' {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
