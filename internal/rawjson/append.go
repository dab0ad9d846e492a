package rawjson

import "unicode/utf8"

// AppendText appends s to dst as a JSON string and returns the result. It
// escapes only what RFC 8259 requires: the quote, the backslash and the control
// characters, those with a short form (\b \t \n \f \r) in it and the others as
// \u00 and two lower-case digits. Everything else stands for itself, also what
// other encoders escape for the sake of HTML and JavaScript: <, >, & and
// U+2028 and U+2029.
//
// A byte of s that is not part of valid UTF-8 becomes U+FFFD.
func AppendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	from := 0 // start of what is to be copied as it is
	for i := 0; ; {
		i = plainRun(s, i)
		if i >= len(s) {
			break
		}
		if c := s[i]; c < utf8.RuneSelf {
			dst = append(dst, s[from:i]...)
			dst = appendEscape(dst, c)
			i++
			from = i
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = append(dst, s[from:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
			from = i + 1
		}
		i += size
	}
	dst = append(dst, s[from:]...)
	return append(dst, '"')
}

// appendEscape appends the escape sequence for c.
func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

// AppendCompact appends the JSON value raw to dst without the white space that
// means nothing, and returns the result. Strings and numbers stay as they are
// written.
func AppendCompact(dst, raw []byte) []byte {
	from := 0 // start of what is to be copied as it is
	for i := 0; i < len(raw); {
		switch c := raw[i]; {
		case c == '"':
			i, _ = skipString(raw, i) // without a closing quote, the rest is copied
		case isSpace(c):
			dst = append(dst, raw[from:i]...)
			i = skipSpace(raw, i)
			from = i
		default:
			i++
		}
	}
	return append(dst, raw[from:]...)
}
