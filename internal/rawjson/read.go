package rawjson

import (
	"math"
	"unsafe"
)

// Kind is the type of a JSON value.
type Kind byte

// The kinds of value, and Invalid for what is none.
const (
	Null Kind = iota
	Bool
	Number
	String
	Array
	Object
	Invalid
)

// String names the kind with its article, as a message needs it.
func (k Kind) String() string {
	switch k {
	case Null:
		return "null"
	case Bool:
		return "a boolean"
	case Number:
		return "a number"
	case String:
		return "a string"
	case Array:
		return "an array"
	case Object:
		return "an object"
	}
	return "no JSON value"
}

// KindOf tells the kind of a value by its first character, which is enough for
// a value that passed [Check].
func KindOf(raw []byte) Kind {
	i := skipSpace(raw, 0)
	if i == len(raw) {
		return Invalid
	}
	switch c := raw[i]; {
	case c == '"':
		return String
	case c == '{':
		return Object
	case c == '[':
		return Array
	case c == 't' || c == 'f':
		return Bool
	case c == 'n':
		return Null
	case c == '-' || isDigit(c):
		return Number
	}
	return Invalid
}

// open returns the offset of the first character of raw, which must be of kind
// want.
func open(raw []byte, want Kind) (int, error) {
	i := skipSpace(raw, 0)
	if got := KindOf(raw[i:]); got != want {
		return i, &Error{Offset: i, Msg: "expected " + want.String() + ", found " + got.String()}
	}
	return i, nil
}

// finish reports whether a value that ends at i is all of raw.
func finish(raw []byte, i int) error {
	if i = skipSpace(raw, i); i < len(raw) {
		return newError(raw, i, faultTrailing)
	}
	return nil
}

// Members calls f for each member of the object raw, in the order written. It
// stops at f's first error and returns it.
//
// Nothing is copied: value is the part of raw that holds the member's value,
// without white space around it, and name is, unless it was written with
// escape sequences, a view of raw as well. So name is valid only during the
// call, and for as long as raw is not written to: compare it there, and keep a
// copy from strings.Clone where it must live longer.
func Members(raw []byte, f func(name string, value []byte) error) error {
	i, err := open(raw, Object)
	if err != nil {
		return err
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == '}' {
		return finish(raw, i+1)
	}
	for {
		end, escaped, start, flt := scanName(raw, i)
		if flt != noFault {
			return newError(raw, start, flt)
		}
		text := raw[i+1 : end-1]
		if escaped {
			text = unescape(nil, text)
		}
		if end, flt = skipValue(raw, start); flt != noFault {
			return newError(raw, end, flt)
		}
		if err := f(view(text), raw[start:end:end]); err != nil {
			return err
		}
		i = skipSpace(raw, end)
		if i < len(raw) && raw[i] == '}' {
			return finish(raw, i+1)
		}
		if i >= len(raw) || raw[i] != ',' {
			return newError(raw, i, faultObject)
		}
		i = skipSpace(raw, i+1)
	}
}

// view is b as a string that shares its bytes, which must not change while the
// string is in use. The plain conversion would allocate for every member of
// every request, as the compiler cannot know that the function a name is
// handed to does not keep it.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// Elements calls f for each element of the array raw, in order, with its index
// and the part of raw that holds it, without white space around it. It stops at
// f's first error and returns it.
func Elements(raw []byte, f func(i int, value []byte) error) error {
	i, err := open(raw, Array)
	if err != nil {
		return err
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == ']' {
		return finish(raw, i+1)
	}
	for n := 0; ; n++ {
		end, flt := skipValue(raw, i)
		if flt != noFault {
			return newError(raw, end, flt)
		}
		if err := f(n, raw[i:end:end]); err != nil {
			return err
		}
		i = skipSpace(raw, end)
		if i < len(raw) && raw[i] == ']' {
			return finish(raw, i+1)
		}
		if i >= len(raw) || raw[i] != ',' {
			return newError(raw, i, faultArray)
		}
		i = skipSpace(raw, i+1)
	}
}

// Text returns the text of the JSON string raw, escape sequences resolved. It
// is a copy, and always valid UTF-8: a string that [Check] would refuse is an
// error here too.
func Text(raw []byte) (string, error) {
	i, err := open(raw, String)
	if err != nil {
		return "", err
	}
	end, escaped, f := scanString(raw, i)
	if f != noFault {
		return "", newError(raw, end, f)
	}
	if err := finish(raw, end); err != nil {
		return "", err
	}
	inside := raw[i+1 : end-1]
	if !escaped {
		return string(inside), nil
	}
	// An escape sequence is never shorter than its text, so this is the only
	// allocation. Nothing else holds the buffer, so it can become the string.
	return view(unescape(make([]byte, 0, len(inside)), inside)), nil
}

// Boolean returns the value of raw, which must be true or false.
func Boolean(raw []byte) (bool, error) {
	i, err := open(raw, Bool)
	if err != nil {
		return false, err
	}
	end, f := scanScalar(raw, i)
	if f != noFault {
		return false, newError(raw, end, f)
	}
	return raw[i] == 't', finish(raw, end)
}

// Integer returns the value of the JSON number raw, which must be a whole
// number that an int64 can hold. How it is written does not matter: 30, 30.0
// and 3e1 are the same, and the result is exact.
func Integer(raw []byte) (int64, error) {
	i, err := open(raw, Number)
	if err != nil {
		return 0, err
	}
	end, f := scanNumber(raw, i)
	if f != noFault {
		return 0, newError(raw, end, f)
	}
	if err := finish(raw, end); err != nil {
		return 0, err
	}
	d := decimalOf(raw[i:end])
	if d.digits == 0 {
		return 0, nil
	}
	if d.exp < 0 {
		return 0, &Error{Offset: i, Msg: "expected a whole number"}
	}
	v, fits := d.int64()
	if !fits {
		return 0, &Error{Offset: i, Msg: "the number is too large"}
	}
	return v, nil
}

// mostDigits is how many decimal digits the largest int64 has. Any number of
// so many digits fits in a uint64.
const mostDigits = 19

// decimal is a number, exactly: coef × 10^exp. The coefficient neither starts
// nor ends with a zero, so the number is whole exactly if exp is not negative.
type decimal struct {
	negative bool
	coef     uint64 // meaningless if it has more than mostDigits digits
	digits   int    // how many digits coef has; 0 for the number 0
	exp      int64
}

// decimalOf takes apart a number that was scanned without a fault.
func decimalOf(s []byte) decimal {
	var d decimal
	zeros := 0 // zeros read since the last other digit
	point := false
	for i, c := range s {
		switch {
		case c == '-':
			d.negative = true
		case c == '.':
			point = true
		case c|0x20 == 'e':
			d.exp += int64(zeros) + exponent(s[i+1:])
			return d
		default:
			if point {
				d.exp--
			}
			if c == '0' {
				if d.digits > 0 {
					zeros++
				}
				continue
			}
			d.digits += zeros + 1
			if d.digits <= mostDigits {
				d.coef = shift(d.coef, zeros+1) + uint64(c-'0')
			}
			zeros = 0
		}
	}
	d.exp += int64(zeros)
	return d
}

// exponent reads the digits after an e, with or without a sign. It stops
// counting where the number is beyond any length that the digits before the e
// could make up for.
func exponent(s []byte) int64 {
	const beyond = math.MaxInt64 / 100
	n, negative := int64(0), false
	for _, c := range s {
		switch {
		case c == '-':
			negative = true
		case isDigit(c) && n < beyond:
			n = n*10 + int64(c-'0')
		}
	}
	if negative {
		return -n
	}
	return n
}

// shift is v × 10^n, for a result of at most mostDigits digits.
func shift(v uint64, n int) uint64 {
	for range n {
		v *= 10
	}
	return v
}

// int64 converts a number whose exponent is not negative.
func (d decimal) int64() (v int64, fits bool) {
	if d.digits > mostDigits || d.exp > int64(mostDigits-d.digits) {
		return 0, false
	}
	u := shift(d.coef, int(d.exp))
	if d.negative {
		return -int64(u), u <= -math.MinInt64
	}
	return int64(u), u <= math.MaxInt64
}
