package rawjson

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestKindOf(t *testing.T) {
	tests := map[string]Kind{
		`null`: Null, `true`: Bool, ` false`: Bool, `-1`: Number, `0`: Number, "\t9.5": Number,
		`""`: String, `[]`: Array, "\r\n {}": Object,
		``: Invalid, ` `: Invalid, `x`: Invalid, `+1`: Invalid, `}`: Invalid, "\xff": Invalid, `'a'`: Invalid,
	}
	for in, want := range tests {
		if got := KindOf([]byte(in)); got != want {
			t.Errorf("KindOf(%q) is %v, want %v", in, got, want)
		}
	}
}

// listMembers writes what Members calls its function with.
func listMembers(raw string) (list []string, err error) {
	err = Members([]byte(raw), func(name string, value []byte) error {
		list = append(list, fmt.Sprintf("%q %s", name, value))
		return nil
	})
	return list, err
}

// listElements writes what Elements calls its function with.
func listElements(raw string) (list []string, err error) {
	err = Elements([]byte(raw), func(i int, value []byte) error {
		list = append(list, fmt.Sprintf("%d %s", i, value))
		return nil
	})
	return list, err
}

func TestMembersAndElements(t *testing.T) {
	tests := []struct {
		name, in string
		list     func(string) ([]string, error)
		want     []string
		err      string // what the error is, or "" for none
	}{
		{"empty", ` { } `, listMembers, nil, ""},
		{"order", `{"b":1,"a":2,"b":3}`, listMembers, []string{`"b" 1`, `"a" 2`, `"b" 3`}, ""},
		{"white space", " {\n\"a\" :\t[ 1 ] ,\r\"b\": \"x\" } ", listMembers, []string{`"a" [ 1 ]`, `"b" "x"`}, ""},
		{"every kind", `{"a":null,"b":true,"c":-1.5e3,"d":"s","e":[[]],"f":{"g":{}}}`, listMembers,
			[]string{`"a" null`, `"b" true`, `"c" -1.5e3`, `"d" "s"`, `"e" [[]]`, `"f" {"g":{}}`}, ""},
		{"brackets in strings", `{"a":"}]","b":["]\"",{"c]":"\\"}],"d":1}`, listMembers,
			[]string{`"a" "}]"`, `"b" ["]\"",{"c]":"\\"}]`, `"d" 1`}, ""},
		{"names", `{"":1,"\u0061\n":2,"é\ud83d\ude00":3}`, listMembers, []string{`"" 1`, `"a\n" 2`, `"é😀" 3`}, ""},
		{"not an object", ` [1]`, listMembers, nil, "expected an object, found an array (at byte 1)"},
		{"nothing", ``, listMembers, nil, "expected an object, found no JSON value (at byte 0)"},
		{"cut", `{"a":1,"b":`, listMembers, []string{`"a" 1`}, "unexpected end of input (at byte 11)"},
		{"cut value", `{"a":[{"b":"`, listMembers, nil, "unexpected end of input (at byte 12)"},
		{"cut array", `{"a":[1`, listMembers, nil, "unexpected end of input (at byte 7)"},
		{"cut name", `{"a`, listMembers, nil, "unexpected end of input (at byte 3)"},
		{"only a brace", `{`, listMembers, nil, "unexpected end of input (at byte 1)"},
		{"no colon", `{"a"1}`, listMembers, nil, "expected ':' after a member name, found '1' (at byte 4)"},
		{"no comma", `{"a":1"b"}`, listMembers, []string{`"a" 1`}, `expected ',' or '}' after a member, found '"' (at byte 6)`},
		{"no name", `{"a":1,}`, listMembers, []string{`"a" 1`}, "expected a member name in double quotes, found '}' (at byte 7)"},
		{"no value", `{"a":}`, listMembers, nil, "expected a value, found '}' (at byte 5)"},
		{"more after it", `{"a":1}]`, listMembers, []string{`"a" 1`}, "unexpected ']' after the end of the value (at byte 7)"},
		{"more after nothing", `{}{`, listMembers, nil, "unexpected '{' after the end of the value (at byte 2)"},
		{"bad name", `{"\ud800":1}`, listMembers, nil, `a lone surrogate \ud800 is not valid Unicode text (at byte 2)`},

		{"empty array", `[ ] `, listElements, nil, ""},
		{"elements", " [1 , \"a,b\" ,[2,3],{\"a\":[4]}\n]", listElements, []string{`0 1`, `1 "a,b"`, `2 [2,3]`, `3 {"a":[4]}`}, ""},
		{"not an array", `{}`, listElements, nil, "expected an array, found an object (at byte 0)"},
		{"a string", `"[]"`, listElements, nil, "expected an array, found a string (at byte 0)"},
		{"open", `[1,`, listElements, []string{`0 1`}, "unexpected end of input (at byte 3)"},
		{"only a bracket", `[ `, listElements, nil, "unexpected end of input (at byte 2)"},
		{"trailing comma", `[1,]`, listElements, []string{`0 1`}, "expected a value, found ']' (at byte 3)"},
		{"no comma between", `[1 2]`, listElements, []string{`0 1`}, "expected ',' or ']' after an element, found '2' (at byte 3)"},
		{"more after array", `[1],`, listElements, []string{`0 1`}, "unexpected ',' after the end of the value (at byte 3)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.list(tt.in)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.in, diff)
			}
			sameError(t, tt.in, err, tt.err)
		})
	}
}

// sameError checks that err is the *Error wanted, or nil for "".
func sameError(t *testing.T, in string, err error, want string) {
	t.Helper()
	if err == nil && want == "" {
		return
	}
	var e *Error
	if !errors.As(err, &e) || e.Error() != want {
		t.Errorf("%.60q: error is %v, want %s", in, err, want)
	}
}

func TestWalkStopsAtError(t *testing.T) {
	stop := errors.New("stop")
	calls := 0
	err := Members([]byte(`{"a":1,"b":2,"c":3}`), func(name string, _ []byte) error {
		if calls++; name == "b" {
			return stop
		}
		return nil
	})
	if err != stop || calls != 2 {
		t.Errorf("Members returned %v after %d calls", err, calls)
	}
	calls = 0
	err = Elements([]byte(`[1,2,3]`), func(i int, _ []byte) error {
		if calls++; i == 1 {
			return stop
		}
		return nil
	})
	if err != stop || calls != 2 {
		t.Errorf("Elements returned %v after %d calls", err, calls)
	}
}

// TestValueIsAPart checks that values are parts of the input, and that to
// append to one does not overwrite what follows it there.
func TestValueIsAPart(t *testing.T) {
	raw := []byte(`{"a":[1,2],"b":3}`)
	err := Members(raw, func(name string, value []byte) error {
		if name != "a" {
			return nil
		}
		if &value[0] != &raw[5] {
			t.Error("the member's value is a copy")
		}
		_ = append(value, "XXXX"...)
		return Elements(value, func(_ int, e []byte) error {
			_ = append(e, "YYYY"...)
			return nil
		})
	})
	if err != nil || string(raw) != `{"a":[1,2],"b":3}` {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestMembersDoesNotAllocate(t *testing.T) {
	var roles int
	walk := func() {
		err := Members(request, func(name string, value []byte) error {
			if name != "params" {
				return nil
			}
			return Members(value, func(name string, value []byte) error {
				if name == "message" {
					roles++
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, walk); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if method, role, history, err := pick(request); method != "SendMessage" || role != "ROLE_USER" || history != 10 || err != nil {
		t.Errorf("read %q, %q, %d, %v from the request", method, role, history, err)
	}
}

func TestText(t *testing.T) {
	tests := []struct{ in, want, err string }{
		{`""`, "", ""},
		{` "a b" `, "a b", ""},
		{`"\"\\\/\b\f\n\r\t"`, "\"\\/\b\f\n\r\t", ""},
		{`"a\u0000b"`, "a\x00b", ""},
		{`"\u00e9\u20AC\uFFFF"`, "é€\uffff", ""},
		{`"\ud83d\ude00!"`, "😀!", ""},
		{`"\uD800\uDC00\uDBFF\uDFFF"`, "\U00010000\U0010FFFF", ""},
		{`"\ud7ff\ue000"`, "\ud7ff\ue000", ""},
		{`"\\u0041"`, `\u0041`, ""},
		{`"\\"`, `\`, ""},
		{"\"<>&\u2028\x7f\"", "<>&\u2028\x7f", ""},
		{`5`, "", "expected a string, found a number (at byte 0)"},
		{`null`, "", "expected a string, found null (at byte 0)"},
		{``, "", "expected a string, found no JSON value (at byte 0)"},
		{`"`, "", "unexpected end of input (at byte 1)"},
		{`"a`, "", "unexpected end of input (at byte 2)"},
		{`"a\`, "", "unexpected end of input (at byte 3)"},
		{`"a\"`, "", "unexpected end of input (at byte 4)"},
		{`"a" "b"`, "", `unexpected '"' after the end of the value (at byte 4)`},
		{`"\ude00"`, "", `a lone surrogate \ude00 is not valid Unicode text (at byte 1)`},
		{"\"\xff\"", "", "byte 0xff is not part of valid UTF-8 text (at byte 1)"},
		{"\"\n\"", "", "a control character (0x0a) in a string must be escaped (at byte 1)"},
		{`"\q"`, "", "not a valid escape sequence in a string: found 'q' (at byte 2)"},
	}
	for _, tt := range tests {
		got, err := Text([]byte(tt.in))
		if got != tt.want {
			t.Errorf("Text(%q) = %q, want %q", tt.in, got, tt.want)
		}
		sameError(t, tt.in, err, tt.err)
	}
}

// TestTextIsACopy checks that a text outlives the input it was read from.
func TestTextIsACopy(t *testing.T) {
	for _, in := range []string{`"abc"`, `"a\u0062c"`} {
		raw := []byte(in)
		got, err := Text(raw)
		clear(raw)
		if got != "abc" || err != nil {
			t.Errorf("Text(%s) = %q, %v", in, got, err)
		}
	}
}

func TestBoolean(t *testing.T) {
	tests := []struct {
		in   string
		want bool
		err  string
	}{
		{`true`, true, ""},
		{" false\n", false, ""},
		{`null`, false, "expected a boolean, found null (at byte 0)"},
		{`"true"`, false, "expected a boolean, found a string (at byte 0)"},
		{`1`, false, "expected a boolean, found a number (at byte 0)"},
		{`tru`, false, "unexpected end of input (at byte 3)"},
		{`trUe`, false, "misspelt true, false or null: found 'U' (at byte 2)"},
	}
	for _, tt := range tests {
		got, err := Boolean([]byte(tt.in))
		if got != tt.want {
			t.Errorf("Boolean(%q) = %v", tt.in, got)
		}
		sameError(t, tt.in, err, tt.err)
	}
	if _, err := Boolean([]byte(`true true`)); err == nil {
		t.Error("two values were taken for one")
	}
}

func TestInteger(t *testing.T) {
	zeros := strings.Repeat("0", 100_000)
	tests := map[string]int64{
		`0`: 0, `-0`: 0, `0.0`: 0, `-0.000e5`: 0, `0e999999999999999999999999`: 0, `0E-999999999999999999999999`: 0,
		`30`: 30, ` 30 `: 30, `30.0`: 30, `3e1`: 30, `3E+1`: 30, `0.3e2`: 30, `300e-1`: 30, `-3.00e001`: -30,
		`100`: 100, `1010`: 1010, `10.10e1`: 101, `0.001e3`: 1, `1e18`: 1e18, `-1e18`: -1e18,
		`9223372036854775807`:       math.MaxInt64,
		`9223372036854775807.000`:   math.MaxInt64,
		`9.223372036854775807e18`:   math.MaxInt64,
		`-9223372036854775808`:      math.MinInt64,
		`-922337203685477580800e-2`: math.MinInt64,
		`9007199254740993`:          9007199254740993, // no float64 holds it
		`1` + zeros + `e-100000`:    1,
		`12` + zeros + `e-99999`:    120,
		`0.` + zeros + `7e100001`:   7,
		`5.` + zeros:                5,
	}
	for in, want := range tests {
		if got, err := Integer([]byte(in)); got != want || err != nil {
			t.Errorf("Integer(%.40s) = %d, %v, want %d", in, got, err, want)
		}
	}
	const fraction, large = "expected a whole number (at byte 0)", "the number is too large (at byte 0)"
	refused := []struct{ in, err string }{
		{`0.5`, fraction},
		{`-1.01`, fraction},
		{`1e-1`, fraction},
		{`15e-1`, fraction},
		{`1e-999999999999999999999999`, fraction},
		{`1.00000000000000000000000000000000001`, fraction},
		{`123456789012345678901234567890.5`, fraction},
		{`1` + zeros + `e-100001`, fraction},
		{`9223372036854775808`, large},
		{`-9223372036854775809`, large},
		{`18446744073709551616`, large},
		{`1e19`, large},
		{`9999999999999999999`, large},
		{`99999999999999999999`, large},
		{`1e999999999999999999999999`, large},
		{`1` + zeros, large},
		{`"1"`, "expected a number, found a string (at byte 0)"},
		{`null`, "expected a number, found null (at byte 0)"},
		{`01`, "a number must not start with a needless zero (at byte 0)"},
		{`1.`, "unexpected end of input (at byte 2)"},
		{`-`, "unexpected end of input (at byte 1)"},
		{`1e5x`, "unexpected 'x' after the end of the value (at byte 3)"},
		{`1 2`, "unexpected '2' after the end of the value (at byte 2)"},
	}
	for _, tt := range refused {
		_, err := Integer([]byte(tt.in))
		sameError(t, tt.in, err, tt.err)
		if err == nil {
			t.Errorf("Integer(%.40s) went well", tt.in)
		}
	}
}

func TestAppendText(t *testing.T) {
	tests := map[string]string{
		"":                       `""`,
		"plain":                  `"plain"`,
		`"\/`:                    `"\"\\/"`,
		"\b\f\n\r\t":             `"\b\f\n\r\t"`,
		"\x00\x01\x0b\x1f":       `"\u0000\u0001\u000b\u001f"`,
		"<a href='x'>&</a>":      `"<a href='x'>&</a>"`,
		"\x7f\u0085\u2028\u2029": "\"\x7f\u0085\u2028\u2029\"",
		"é€😀\ufffd\uffff":        "\"é€😀\ufffd\uffff\"",
		"a\xffb":                 "\"a\ufffdb\"",
		"\xe2\x82":               "\"\ufffd\ufffd\"",
		"\xed\xa0\x80":           "\"\ufffd\ufffd\ufffd\"",
		"é\xc3":                  "\"é\ufffd\"",
		"\xff\n\xff":             "\"\ufffd\\n\ufffd\"",
		"12345678\n123456789\"":  `"12345678\n123456789\""`,
	}
	for in, want := range tests {
		got := AppendText([]byte("x:"), in)
		if string(got) != "x:"+want {
			t.Errorf("AppendText(%q) = %s, want x:%s", in, got, want)
		}
		if !utf8.Valid(got) || Check(got[2:], 0) != nil {
			t.Errorf("AppendText(%q) = %q, which Check refuses", in, got)
		}
	}
}

func TestAppendCompact(t *testing.T) {
	tests := map[string]string{
		``:                                  ``,
		" \t\r\n":                           ``,
		`{}`:                                `{}`,
		" { \"a b\" :\n[ 1 ,\t-2.50E+3 ] }": `{"a b":[1,-2.50E+3]}`,
		`[ "\" x" , "\\" , "\u0020" ]`:      `["\" x","\\","\u0020"]`,
		` true `:                            `true`,
		"\"\u00a0\u2028\" ":                 "\"\u00a0\u2028\"",
		`[1, "open  `:                       `[1,"open  `,
	}
	for in, want := range tests {
		if got := AppendCompact([]byte("x:"), []byte(in)); string(got) != "x:"+want {
			t.Errorf("AppendCompact(%q) = %q, want x:%s", in, got, want)
		}
	}
}
