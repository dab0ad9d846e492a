package rawjson

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

const (
	// maxEcho is how many bytes of the input one name in a message or a path
	// may repeat. Error texts go back to the client and into logs, and neither
	// should grow with what a stranger chose to send.
	maxEcho = 40
	// maxPath is where a path is cut, for the same reason: sixty levels of
	// long names would otherwise make an error of several kilobytes.
	maxPath = 200
)

// Error says what is wrong with a JSON text, and where.
type Error struct {
	// Offset is the byte offset in the input at which the problem was noticed.
	Offset int
	// Path names the value that has the problem, like
	// "params.message.parts[0].text"; the root is "". A problem of an object as
	// a whole, such as a member that appears twice, has the object's path.
	// Names other than letters, digits, '_', '-' and '$' are written quoted and
	// in brackets, as in `metadata["a.b"]`. A long name or path is cut with "…".
	Path string
	// Msg says in plain words what is wrong.
	Msg string
}

// Error gives the path, the message and the offset in one line.
func (e *Error) Error() string {
	at := e.Msg + " (at byte " + strconv.Itoa(e.Offset) + ")"
	if e.Path == "" {
		return at
	}
	return e.Path + ": " + at
}

// fault is what a scanner reports instead of an error: the scanners run on
// every byte of every request, and a plain code next to an offset costs them
// nothing. The text is made only when somebody will read it.
type fault byte

const (
	noFault fault = iota
	faultEnd
	faultTrailing
	faultValue
	faultName
	faultColon
	faultObject
	faultArray
	faultWord
	faultDigit
	faultLeadingZero
	faultLong
	faultEscape
	faultControl
	faultUTF8
	faultSurrogate
	faultDuplicate
	faultDepth
)

// newError makes the error for a fault found at offset i of b.
func newError(b []byte, i int, f fault) *Error {
	// Running out of input inside any construct is one and the same mistake.
	if i >= len(b) {
		f = faultEnd
	}
	return &Error{Offset: i, Msg: message(b, i, f)}
}

// message puts a fault at offset i of b in words.
func message(b []byte, i int, f fault) string {
	switch f {
	case faultEnd:
		return "unexpected end of input"
	case faultTrailing:
		return "unexpected " + found(b, i) + " after the end of the value"
	case faultValue:
		return "expected a value, found " + found(b, i)
	case faultName:
		return "expected a member name in double quotes, found " + found(b, i)
	case faultColon:
		return "expected ':' after a member name, found " + found(b, i)
	case faultObject:
		return "expected ',' or '}' after a member, found " + found(b, i)
	case faultArray:
		return "expected ',' or ']' after an element, found " + found(b, i)
	case faultWord:
		return "misspelt true, false or null: found " + found(b, i)
	case faultDigit:
		return "expected a digit in a number, found " + found(b, i)
	case faultLeadingZero:
		return "a number must not start with a needless zero"
	case faultLong:
		return fmt.Sprintf("a number of more than %d characters; send it as a string", maxDigits)
	case faultEscape:
		return "not a valid escape sequence in a string: found " + found(b, i)
	case faultControl:
		return fmt.Sprintf("a control character (0x%02x) in a string must be escaped", b[i])
	case faultUTF8:
		return fmt.Sprintf("byte 0x%02x is not part of valid UTF-8 text", b[i])
	case faultSurrogate:
		return "a lone surrogate " + string(b[i:i+len(`\ud800`)]) + " is not valid Unicode text"
	case faultDuplicate:
		return "member " + strconv.Quote(nameAt(b, i)) + " appears twice"
	}
	return "not valid JSON"
}

// found names the character at offset i of b.
func found(b []byte, i int) string {
	r, size := utf8.DecodeRune(b[i:])
	if r == utf8.RuneError && size == 1 {
		return fmt.Sprintf("byte 0x%02x", b[i])
	}
	return strconv.QuoteRune(r)
}

// nameAt is the name whose opening quote is at offset i of b, shortened for
// showing. The name has been scanned before without a fault.
func nameAt(b []byte, i int) string {
	end, _, _ := scanString(b, i)
	return shorten(string(unescape(nil, b[i+1:end-1])))
}

// shorten cuts s to at most maxEcho bytes, between characters.
func shorten(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	n := maxEcho
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// step is one level of a path: the member whose name has its opening quote at
// offset name, or, where name is negative, the element index.
type step struct{ name, index int }

// pathOf writes the steps, which were noted from the innermost value outwards,
// as a path.
func pathOf(b []byte, trail []step) string {
	var p []byte
	for n := len(trail) - 1; n >= 0; n-- {
		if len(p) > maxPath {
			return string(append(p, "…"...))
		}
		s := trail[n]
		if s.name < 0 {
			p = append(p, '[')
			p = strconv.AppendInt(p, int64(s.index), 10)
			p = append(p, ']')
			continue
		}
		p = appendName(p, nameAt(b, s.name))
	}
	return string(p)
}

// appendName adds a member's name to the path p. Anything that could be
// mistaken for the path's own marks, or that is unfit for a log, is quoted.
func appendName(p []byte, name string) []byte {
	plain := name != ""
	for i := 0; i < len(name) && plain; i++ {
		c := name[i]
		plain = 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '$'
	}
	if !plain {
		p = append(p, '[')
		p = strconv.AppendQuote(p, name)
		return append(p, ']')
	}
	if len(p) > 0 {
		p = append(p, '.')
	}
	return append(p, name...)
}
