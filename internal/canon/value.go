package canon

import (
	"bytes"
	"errors"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// The limits of what is no content. Content is bounded by the size of the request.
const (
	maxID   = 256  // bytes of an id
	maxName = 1024 // bytes of a name, file name or media type
	maxURI  = 2048 // bytes of an extension's URI
	maxList = 256  // elements of extensions and referenceTaskIds
)

// The roles, as JSON.
const (
	roleUser  = `"ROLE_USER"`
	roleAgent = `"ROLE_AGENT"`
)

// kind says what a member may hold.
type kind uint8

const (
	kindText   kind = iota + 1 // any string, also an empty one
	kindNote                   // any string; empty is the default
	kindName                   // a string of at most maxName bytes; empty is the default
	kindID                     // a printable string of at most maxID bytes; empty is the default
	kindIDs                    // an array of ids
	kindURIs                   // an array of strings of at most maxURI bytes
	kindURL                    // a string that is not empty
	kindBase64                 // a string of base64
	kindObject                 // an object
	kindAny                    // any value
	kindRole
	kindParts
)

// hasDefault reports whether an empty string or array is the same as none.
func (k kind) hasDefault() bool { return k >= kindNote && k <= kindURIs }

// appendValue appends the canonical form of a value of a kind.
func (d Dialect) appendValue(dst, raw []byte, k kind) ([]byte, error) {
	switch k {
	case kindText, kindNote:
		return appendString(dst, raw)
	case kindName:
		return appendShort(dst, raw, maxName)
	case kindID:
		return append(dst, raw...), checkID(raw)
	case kindIDs:
		return appendList(dst, raw, checkID)
	case kindURIs:
		return appendList(dst, raw, checkURI)
	case kindURL:
		return append(dst, raw...), checkFilled(raw)
	case kindBase64:
		return appendBase64(dst, raw)
	case kindObject:
		return appendObject(dst, raw)
	case kindRole:
		return d.appendRole(dst, raw)
	case kindParts:
		return d.appendParts(dst, raw)
	}
	return rawjson.AppendCompact(dst, raw), nil
}

// absent reports whether a member's value is the same as none.
func absent(raw []byte) bool { return len(raw) == 0 || rawjson.KindOf(raw) == rawjson.Null }

// expect refuses a value of another kind.
func expect(raw []byte, want rawjson.Kind) error {
	switch got := rawjson.KindOf(raw); got {
	case want:
		return nil
	case rawjson.Invalid:
		return hub.InvalidField("", "is required")
	default:
		return hub.InvalidField("", "must be %s, not %s", want, got)
	}
}

// eachMember calls f for the members of an object.
func eachMember(raw []byte, f func(name string, value []byte) error) error {
	if err := expect(raw, rawjson.Object); err != nil {
		return err
	}
	return public(rawjson.Members(raw, f))
}

// eachElement calls f for the elements of an array.
func eachElement(raw []byte, f func(i int, value []byte) error) error {
	if err := expect(raw, rawjson.Array); err != nil {
		return err
	}
	return public(rawjson.Elements(raw, f))
}

// public makes an error about the JSON itself, which a checked text cannot give,
// into one for the client.
func public(err error) error {
	if err == nil {
		return nil
	}
	var e *rawjson.Error
	if errors.As(err, &e) {
		return hub.InvalidField("", "is not valid JSON: %s", e.Msg)
	}
	return err
}

// textOf is the text of a string that expect has let pass.
func textOf(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 && len(raw) >= len(`""`) {
		return raw[1 : len(raw)-1]
	}
	s, _ := rawjson.Text(raw)
	return []byte(s)
}

func appendString(dst, raw []byte) ([]byte, error) {
	return append(dst, raw...), expect(raw, rawjson.String)
}

// appendShort appends a string whose text has at most limit bytes.
func appendShort(dst, raw []byte, limit int) ([]byte, error) {
	return append(dst, raw...), checkLength(raw, limit)
}

func checkLength(raw []byte, limit int) error {
	if err := expect(raw, rawjson.String); err != nil {
		return err
	}
	if n := len(textOf(raw)); n > limit {
		return hub.InvalidField("", "is %d bytes long; at most %d are allowed", n, limit)
	}
	return nil
}

func checkFilled(raw []byte) error {
	if err := expect(raw, rawjson.String); err != nil {
		return err
	}
	if len(textOf(raw)) == 0 {
		return hub.InvalidField("", "must not be empty")
	}
	return nil
}

func checkURI(raw []byte) error { return checkLength(raw, maxURI) }

// checkID refuses ids that are long, or that could garble a log or a terminal.
func checkID(raw []byte) error {
	if err := checkLength(raw, maxID); err != nil {
		return err
	}
	for s := textOf(raw); len(s) > 0; {
		r, size := utf8.DecodeRune(s)
		if unicode.IsControl(r) {
			return hub.InvalidField("", "must not contain control characters; it has U+%04X", r)
		}
		s = s[size:]
	}
	return nil
}

// appendList appends an array of strings that pass check and are not empty.
func appendList(dst, raw []byte, check func([]byte) error) ([]byte, error) {
	dst = append(dst, '[')
	err := eachElement(raw, func(i int, value []byte) error {
		if i == maxList {
			return hub.InvalidField("", "has more than %d elements; send fewer", maxList)
		}
		err := check(value)
		if err == nil {
			err = checkFilled(value)
		}
		dst = append(comma(dst), value...)
		return at(i, err)
	})
	return append(dst, ']'), err
}

func appendObject(dst, raw []byte) ([]byte, error) {
	return rawjson.AppendCompact(dst, raw), expect(raw, rawjson.Object)
}

// defaultRole is the role of a message that names none.
func (d Dialect) defaultRole() []byte {
	if d == V1Report {
		return []byte(roleAgent)
	}
	return []byte(roleUser)
}

// appendRole appends the protocol's name of a role.
func (d Dialect) appendRole(dst, raw []byte) ([]byte, error) {
	if role := d.role(raw); role != "" {
		return append(dst, role...), nil
	}
	if rawjson.KindOf(raw) != rawjson.Number {
		if err := expect(raw, rawjson.String); err != nil {
			return dst, err
		}
	}
	if d == Protocol {
		return dst, hub.InvalidField("", "is not a known role; send ROLE_USER or ROLE_AGENT")
	}
	return dst, hub.InvalidField("", `is not a known role; send "user" or "agent"`)
}

// role is the role that raw names, as JSON, or empty. ProtoJSON parsers take an
// enum's numbers too.
func (d Dialect) role(raw []byte) string {
	if rawjson.KindOf(raw) == rawjson.Number {
		switch string(raw) {
		case "1":
			return roleUser
		case "2":
			return roleAgent
		}
		return ""
	}
	if rawjson.KindOf(raw) != rawjson.String {
		return ""
	}
	switch name := string(textOf(raw)); {
	case name == "ROLE_USER", name == "user" && d != Protocol:
		return roleUser
	case name == "ROLE_AGENT", name == "agent" && d != Protocol:
		return roleAgent
	}
	return ""
}

// base64Chars maps the characters of both base64 alphabets to the standard one, and
// everything else to 0.
var base64Chars = func() (chars [256]byte) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/") {
		chars[c] = c
	}
	chars['-'], chars['_'] = '+', '/'
	return chars
}()

// appendBase64 appends a string of base64 in the standard alphabet with padding.
// ProtoJSON lets clients write it URL-safe and without padding too, but not all of
// their own readers can.
func appendBase64(dst, raw []byte) ([]byte, error) {
	if err := expect(raw, rawjson.String); err != nil {
		return dst, err
	}
	text := textOf(raw)
	digits := bytes.TrimSuffix(bytes.TrimSuffix(text, []byte("=")), []byte("="))
	padded := len(digits) < len(text)
	if len(digits)%4 == 1 || padded && len(text)%4 != 0 {
		return dst, hub.InvalidField("", "is not valid base64: its length is wrong")
	}
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, digits...)
	for i, c := range dst[start:] {
		std := base64Chars[c]
		if std == 0 {
			return dst, hub.InvalidField("", "is not valid base64: its character %d is none of the alphabet", i+1)
		}
		dst[start+i] = std
	}
	for n := len(digits); n%4 != 0; n++ {
		dst = append(dst, '=')
	}
	return append(dst, '"'), nil
}
