package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// The scan functions read one construct that starts at offset i of b and
// return the offset after it, or the offset of a fault. They accept exactly
// what RFC 8259 allows. The skip functions find the same end faster, on input
// that is known to be valid; on other input they may run past the mistake, but
// never past the end.

// skipSpace returns the offset of the first byte at or after i that is not
// white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && isSpace(b[i]) {
		i++
	}
	return i
}

// isSpace tells JSON's four white space characters.
func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

// isDigit tells a decimal digit.
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// scanString reads the string whose opening quote is at i. escaped says
// whether it holds an escape sequence.
func scanString(b []byte, i int) (end int, escaped bool, f fault) {
	i++
	for {
		i = plainRun(b, i)
		if i >= len(b) {
			return len(b), escaped, faultEnd
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped, noFault
		case c == '\\':
			escaped = true
			if i, f = scanEscape(b, i); f != noFault {
				return i, escaped, f
			}
		case c < ' ':
			return i, escaped, faultControl
		}
		for i < len(b) && b[i] >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(b[i:])
			if r == utf8.RuneError && size == 1 {
				return i, escaped, faultUTF8
			}
			i += size
		}
	}
}

// plainRun returns the offset of the first byte at or after i that a string
// cannot simply contain: a quote, a backslash, a control character, or the
// start of something that is not ASCII.
func plainRun[T []byte | string](b T, i int) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	// Eight bytes at a time. In each line a byte's high bit comes out set where
	// the byte is special. A borrow can also set it in the bytes above a special
	// one, so only the lowest set bit means anything, and only it is used.
	for len(b)-i >= 8 {
		w := load8(b, i)
		m := w                      // not ASCII
		m |= w - ones*' '           // below a space
		m |= (w ^ ones*'"') - ones  // a quote
		m |= (w ^ ones*'\\') - ones // a backslash
		if m &= highs; m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] != '"' && b[i] != '\\' && b[i] < utf8.RuneSelf {
		i++
	}
	return i
}

// load8 reads eight bytes from offset i, the first one lowest.
func load8[T []byte | string](b T, i int) uint64 {
	var w [8]byte
	copy(w[:], b[i:i+8])
	return binary.LittleEndian.Uint64(w[:])
}

// scanEscape reads the escape sequence whose backslash is at i. A surrogate
// pair counts as one.
func scanEscape(b []byte, i int) (end int, f fault) {
	if i+1 >= len(b) {
		return len(b), faultEnd
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, noFault
	case 'u':
	default:
		return i + 1, faultEscape
	}
	r, n := hex4(b, i+2)
	if n < 4 {
		return i + 2 + n, faultEscape
	}
	if r < 0xD800 || r > 0xDFFF {
		return i + 6, noFault
	}
	if r < 0xDC00 && i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u' {
		if low, n := hex4(b, i+8); n == 4 && 0xDC00 <= low && low <= 0xDFFF {
			return i + 12, noFault
		}
	}
	return i, faultSurrogate
}

// hex4 reads four hexadecimal digits at i. n is how many there are.
func hex4(b []byte, i int) (r rune, n int) {
	for ; n < 4 && i+n < len(b); n++ {
		c := b[i+n]
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, n
		}
		r = r<<4 | rune(c)
	}
	return r, n
}

// scanNumber reads the number that starts at i.
func scanNumber(b []byte, i int) (end int, f fault) {
	if b[i] == '-' {
		i++
	}
	start := i
	if i = skipDigits(b, i); i == start {
		return i, faultDigit
	}
	if b[start] == '0' && i > start+1 {
		return start, faultLeadingZero
	}
	if i < len(b) && b[i] == '.' {
		start = i + 1
		if i = skipDigits(b, start); i == start {
			return i, faultDigit
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		start = i + 1
		if start < len(b) && (b[start] == '+' || b[start] == '-') {
			start++
		}
		if i = skipDigits(b, start); i == start {
			return i, faultDigit
		}
	}
	return i, noFault
}

// skipDigits returns the offset of the first byte at or after i that is not a
// digit.
func skipDigits(b []byte, i int) int {
	for i < len(b) && isDigit(b[i]) {
		i++
	}
	return i
}

// scanLiteral reads the word, which is true, false or null.
func scanLiteral(b []byte, i int, word string) (end int, f fault) {
	for n := range len(word) {
		if i+n >= len(b) {
			return len(b), faultEnd
		}
		if b[i+n] != word[n] {
			return i + n, faultWord
		}
	}
	return i + len(word), noFault
}

// scanName reads a member's name at i, up to its closing quote's end, and the
// colon after it. value is where the member's value starts, or where the fault
// is.
func scanName(b []byte, i int) (end int, escaped bool, value int, f fault) {
	if i >= len(b) {
		return i, false, i, faultEnd
	}
	if b[i] != '"' {
		return i, false, i, faultName
	}
	end, escaped, f = scanString(b, i)
	if f != noFault {
		return end, escaped, end, f
	}
	i = skipSpace(b, end)
	if i >= len(b) || b[i] != ':' {
		return end, escaped, i, faultColon
	}
	return end, escaped, skipSpace(b, i+1), noFault
}

// scanScalar reads a literal, a number or a string.
func scanScalar(b []byte, i int) (end int, f fault) {
	if i >= len(b) {
		return len(b), faultEnd
	}
	switch c := b[i]; {
	case c == '"':
		end, _, f = scanString(b, i)
		return end, f
	case c == '-' || isDigit(c):
		return scanNumber(b, i)
	case c == 't':
		return scanLiteral(b, i, "true")
	case c == 'f':
		return scanLiteral(b, i, "false")
	case c == 'n':
		return scanLiteral(b, i, "null")
	}
	return i, faultValue
}

// skipValue finds the end of the value that starts at i.
func skipValue(b []byte, i int) (end int, f fault) {
	if i < len(b) {
		switch b[i] {
		case '"':
			return skipString(b, i)
		case '{', '[':
			return skipNested(b, i)
		}
	}
	return scanScalar(b, i)
}

// skipNested finds the end of the object or array that starts at i. In valid
// input every bracket outside a string has its partner, so counting them is
// enough.
func skipNested(b []byte, i int) (end int, f fault) {
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			if i, f = skipString(b, i); f != noFault {
				return i, f
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1, noFault
			}
		}
		i++
	}
	return len(b), faultEnd
}

// skipString finds the end of the string whose opening quote is at i: the
// first quote after it that does not follow an odd number of backslashes.
func skipString(b []byte, i int) (end int, f fault) {
	i++
	for {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return len(b), faultEnd
		}
		quote := i + n
		from := quote
		for from > i && b[from-1] == '\\' {
			from--
		}
		if (quote-from)%2 == 0 {
			return quote + 1, noFault
		}
		i = quote + 1
	}
}

// unescape appends the text of s, the inside of a string that was scanned
// without a fault, to dst.
func unescape(dst, s []byte) []byte {
	for {
		n := bytes.IndexByte(s, '\\')
		if n < 0 || n+1 >= len(s) {
			return append(dst, s...)
		}
		dst = append(dst, s[:n]...)
		c := s[n+1]
		s = s[n+2:]
		if c == 'u' {
			dst, s = unescapeRune(dst, s)
			continue
		}
		dst = append(dst, unescapeByte(c))
	}
}

// unescapeByte gives the character that a backslash and c stand for.
func unescapeByte(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// unescapeRune appends the character whose four digits s starts with, or
// whose surrogate pair it does, and returns what follows.
func unescapeRune(dst, s []byte) (text, rest []byte) {
	r, n := hex4(s, 0)
	s = s[n:]
	if 0xD800 <= r && r < 0xDC00 && len(s) >= 6 {
		low, _ := hex4(s, 2)
		r = (r-0xD800)<<10 + (low - 0xDC00) + 0x10000
		s = s[6:]
	}
	return utf8.AppendRune(dst, r), s
}
