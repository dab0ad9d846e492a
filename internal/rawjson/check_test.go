package rawjson

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckAccepts(t *testing.T) {
	tests := map[string]string{
		"null":                     `null`,
		"true":                     `true`,
		"false":                    `false`,
		"string":                   `"a"`,
		"empty string":             `""`,
		"empty object":             `{}`,
		"empty array":              `[]`,
		"spaced empties":           "{ \"a\" : [ ] , \"b\" : {\t} }",
		"white space around":       " \t\r\n[1 , 2]\n\r\t ",
		"every escape":             `"\"\\\/\b\f\n\r\t\u0041\uFFFF\uabcd"`,
		"NUL escape":               `"a\u0000b"`,
		"NUL in a name":            `{"\u0000":1,"\u0000\u0000":2}`,
		"surrogate pair":           `"\ud83d\ude00"`,
		"surrogate pair, capitals": `"\uD83D\uDE00"`,
		"first and last pair":      `"\ud800\udc00\udbff\udfff"`,
		"next to the surrogates":   `"\ud7ff\ue000"`,
		"replacement character":    `"\ufffd�"`,
		"non-characters":           "\"\uFFFF\uFFFE\U0010FFFF\"",
		"raw DEL, line separator":  "\"\x7f\u2028\u2029\u0085\"",
		"two to four byte text":    `"é€😀"`,
		"escaped backslash, quote": `{"a":"\\","b":"\\\""}`,
		"zero":                     `0`,
		"minus zero":               `-0`,
		"fraction":                 `-0.00`,
		"exponents":                `[1e5,1E5,1e+5,1e-05,0e0,1.5e3]`,
		"big integer":              `12345678901234567890123456789012345678901234567890`,
		"beyond a float":           `1e999999999999999999`,
		"long fraction":            `0.` + strings.Repeat("3", 900),
		"same name elsewhere":      `{"a":{"a":{"a":1}},"b":[{"a":1},{"a":2}]}`,
		"names differing in case":  `{"a":1,"A":2}`,
		"names like escapes":       `{"a":1,"\\u0061":2}`,
		"name and its prefix":      `{"":1,"a":2,"aa":3,"\u0061aa":4}`,
		"composed and decomposed":  "{\"\u00e9\":1,\"e\u0301\":2}",
		"the request":              string(request),
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			if err := Check([]byte(in), 64); err != nil {
				t.Errorf("Check(%.60q): %v", in, err)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := []struct {
		name, in string
		want     Error
	}{
		// How the text ends.
		{"nothing", ``, Error{0, "", "unexpected end of input"}},
		{"only white space", " \n", Error{2, "", "unexpected end of input"}},
		{"open object", `{`, Error{1, "", "unexpected end of input"}},
		{"open name", `{"a`, Error{3, "", "unexpected end of input"}},
		{"no colon yet", `{"a"`, Error{4, "", "unexpected end of input"}},
		{"no value yet", `{"a": `, Error{6, "a", "unexpected end of input"}},
		{"no comma yet", `{"a":1`, Error{6, "", "unexpected end of input"}},
		{"after a comma", `{"a":1,`, Error{7, "", "unexpected end of input"}},
		{"open array", `[`, Error{1, "[0]", "unexpected end of input"}},
		{"open element", `[1`, Error{2, "", "unexpected end of input"}},
		{"open string", `["x`, Error{3, "[0]", "unexpected end of input"}},
		{"backslash", `"\`, Error{2, "", "unexpected end of input"}},
		{"half an escape", `"\u12`, Error{5, "", "unexpected end of input"}},
		{"half a literal", `tru`, Error{3, "", "unexpected end of input"}},
		{"minus", `-`, Error{1, "", "unexpected end of input"}},
		{"point", `1.`, Error{2, "", "unexpected end of input"}},
		{"exponent", `1e+`, Error{3, "", "unexpected end of input"}},
		{"second value", `{} {}`, Error{3, "", "unexpected '{' after the end of the value"}},
		{"stray brace", `1}`, Error{1, "", "unexpected '}' after the end of the value"}},
		{"NUL at the end", "1\x00", Error{1, "", `unexpected '\x00' after the end of the value`}},

		// Structure.
		{"byte order mark", "\ufeff1", Error{0, "", `expected a value, found '\ufeff'`}},
		{"other white space", "\v1", Error{0, "", `expected a value, found '\v'`}},
		{"wide space", "\u00a01", Error{0, "", `expected a value, found '\u00a0'`}},
		{"bad byte outside strings", "[\xff]", Error{1, "[0]", `expected a value, found byte 0xff`}},
		{"bare word", `yes`, Error{0, "", `expected a value, found 'y'`}},
		{"wrong word", `nulL`, Error{3, "", `misspelt true, false or null: found 'L'`}},
		{"longer word", `nulls`, Error{4, "", `unexpected 's' after the end of the value`}},
		{"single quotes", `{'a':1}`, Error{1, "", `expected a member name in double quotes, found '\''`}},
		{"number as name", `{1:1}`, Error{1, "", `expected a member name in double quotes, found '1'`}},
		{"comma before brace", `{"a":1,}`, Error{7, "", `expected a member name in double quotes, found '}'`}},
		{"no colon", `{"a" 1}`, Error{5, "", `expected ':' after a member name, found '1'`}},
		{"no value", `{"a":}`, Error{5, "a", `expected a value, found '}'`}},
		{"no comma", `{"a":1 "b":2}`, Error{7, "", `expected ',' or '}' after a member, found '"'`}},
		{"wrong bracket", `{"a":[1}`, Error{7, "a", `expected ',' or ']' after an element, found '}'`}},
		{"wrong brace", `[{"a":1]`, Error{7, "[0]", `expected ',' or '}' after a member, found ']'`}},
		{"comma before bracket", `[1,]`, Error{3, "[1]", `expected a value, found ']'`}},
		{"only a comma", `[,]`, Error{1, "[0]", `expected a value, found ','`}},
		{"comment", `[1/**/]`, Error{2, "", `expected ',' or ']' after an element, found '/'`}},

		// Numbers.
		{"plus", `+1`, Error{0, "", `expected a value, found '+'`}},
		{"leading zero", `[01]`, Error{1, "[0]", `a number must not start with a needless zero`}},
		{"two zeros", `-00`, Error{1, "", `a number must not start with a needless zero`}},
		{"no digit", `[-]`, Error{2, "[0]", `expected a digit in a number, found ']'`}},
		{"no integer part", `-.5`, Error{1, "", `expected a digit in a number, found '.'`}},
		{"bare point", `[.5]`, Error{1, "[0]", `expected a value, found '.'`}},
		{"no fraction", `[1.]`, Error{3, "[0]", `expected a digit in a number, found ']'`}},
		{"no exponent", `[1e]`, Error{3, "[0]", `expected a digit in a number, found ']'`}},
		{"fraction in exponent", `1e1.5`, Error{3, "", `unexpected '.' after the end of the value`}},
		{"hexadecimal", `0x1`, Error{1, "", `unexpected 'x' after the end of the value`}},
		{"not a number", `NaN`, Error{0, "", `expected a value, found 'N'`}},
		{"infinity", `-Infinity`, Error{1, "", `expected a digit in a number, found 'I'`}},

		// Strings.
		{"unknown escape", `"\x41"`, Error{2, "", `not a valid escape sequence in a string: found 'x'`}},
		{"capital U", `"\U0041"`, Error{2, "", `not a valid escape sequence in a string: found 'U'`}},
		{"bad hex digit", `"\u00g0"`, Error{5, "", `not a valid escape sequence in a string: found 'g'`}},
		{"short escape", `"\u00"`, Error{5, "", `not a valid escape sequence in a string: found '"'`}},
		{"raw line feed", "\"a\nb\"", Error{2, "", `a control character (0x0a) in a string must be escaped`}},
		{"raw NUL", "\"12345678\x00\"", Error{9, "", `a control character (0x00) in a string must be escaped`}},
		{"raw unit separator", "\"\x1f\"", Error{1, "", `a control character (0x1f) in a string must be escaped`}},
		{"raw tab in a name", "{\"a\tb\":1}", Error{3, "", `a control character (0x09) in a string must be escaped`}},
		{"bad byte", "\"abc\xff\"", Error{4, "", `byte 0xff is not part of valid UTF-8 text`}},
		{"stray continuation", "\"\x80\"", Error{1, "", `byte 0x80 is not part of valid UTF-8 text`}},
		{"cut sequence", "\"\xe2\x82\"", Error{1, "", `byte 0xe2 is not part of valid UTF-8 text`}},
		{"overlong NUL", "\"\xc0\x80\"", Error{1, "", `byte 0xc0 is not part of valid UTF-8 text`}},
		{"surrogate as UTF-8", "\"\xed\xa0\x80\"", Error{1, "", `byte 0xed is not part of valid UTF-8 text`}},
		{"beyond Unicode", "\"\xf4\x90\x80\x80\"", Error{1, "", `byte 0xf4 is not part of valid UTF-8 text`}},
		{"bad byte in a name", "{\"é\xff\":1}", Error{4, "", `byte 0xff is not part of valid UTF-8 text`}},
		{"lone high surrogate", `"\ud800"`, Error{1, "", `a lone surrogate \ud800 is not valid Unicode text`}},
		{"lone low surrogate", `"x\udfff"`, Error{2, "", `a lone surrogate \udfff is not valid Unicode text`}},
		{"high, then text", `"\uDBFFabcdefgh"`, Error{1, "", `a lone surrogate \uDBFF is not valid Unicode text`}},
		{"high, then high", `"\ud800\ud800"`, Error{1, "", `a lone surrogate \ud800 is not valid Unicode text`}},
		{"high, then a letter", `"\ud800\u0041"`, Error{1, "", `a lone surrogate \ud800 is not valid Unicode text`}},
		{"high, then line feed", `"\ud800\n"`, Error{1, "", `a lone surrogate \ud800 is not valid Unicode text`}},
		{"low, then high", `"\udc00\ud800"`, Error{1, "", `a lone surrogate \udc00 is not valid Unicode text`}},
		{"pair, then low", `"\ud83d\ude00\ude00"`, Error{13, "", `a lone surrogate \ude00 is not valid Unicode text`}},
		{"surrogate in a name", `{"\ud800":1}`, Error{2, "", `a lone surrogate \ud800 is not valid Unicode text`}},

		// Names.
		{"same name", `{"a":1,"b":2,"a":3}`, Error{13, "", `member "a" appears twice`}},
		{"same empty name", `{"":1,"":2}`, Error{6, "", `member "" appears twice`}},
		{"escaped later", `{"a":1,"\u0061":2}`, Error{7, "", `member "a" appears twice`}},
		{"escaped earlier", `{"\u0061":1,"a":2}`, Error{12, "", `member "a" appears twice`}},
		{"escaped both", `{"\u0061":1,"b":2,"\u0061":3}`, Error{18, "", `member "a" appears twice`}},
		{"escaped slash", `{"/":1,"\/":2}`, Error{7, "", `member "/" appears twice`}},
		{"escaped pair", `{"😀":1,"\ud83d\ude00":2}`, Error{10, "", `member "😀" appears twice`}},
		{"after a nested object", `{"\u0061":{"\u0062":1},"\u0063":{},"\u0061":2}`, Error{35, "", `member "a" appears twice`}},
		{"unprintable name", `{"\u0000\u202e":1,"\u0000\u202e":2}`, Error{18, "", `member "\x00\u202e" appears twice`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { refused(t, []byte(tt.in), 64, tt.want) })
	}
}

// refused checks that Check refuses in for the wanted reason.
func refused(t *testing.T, in []byte, maxDepth int, want Error) {
	t.Helper()
	var got *Error
	if err := Check(in, maxDepth); !errors.As(err, &got) {
		t.Fatalf("Check(%.60q) = %v, want an *Error", in, err)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("Check(%.60q): wrong error (-want +got):\n%s", in, diff)
	}
}

func TestCheckPath(t *testing.T) {
	tests := []struct{ in, path string }{
		{`{"params":{"message":{"parts":[{"text":"\ud800"}]}}}`, "params.message.parts[0].text"},
		{`{"params":{"message":{"role":1,"role":2}}}`, "params.message"},
		{`{"a":1,"b":[1,2,{"c":[[],[0,x]]}]}`, "b[2].c[1][1]"},
		{`[{"a":x}]`, "[0].a"},
		{`{"a-1_$B":x}`, "a-1_$B"},
		{`{"a":{"b.c":{"d":x}}}`, `a["b.c"].d`},
		{`{"":x}`, `[""]`},
		{`{"a":{"[0]":x}}`, `a["[0]"]`},
		{`{"a\n\u0062":x}`, `["a\nb"]`},
		{`{"\u0061":x}`, `a`},
		{`{"größe":x}`, `["größe"]`},
	}
	for _, tt := range tests {
		var got *Error
		if err := Check([]byte(tt.in), 64); !errors.As(err, &got) || got.Path != tt.path {
			t.Errorf("Check(%s) = %v, want path %s", tt.in, err, tt.path)
		}
	}
}

func TestErrorString(t *testing.T) {
	in := `{"params":{"role":1,"role":2}}`
	want := `params: member "role" appears twice (at byte 20)`
	if got := Check([]byte(in), 64).Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	want = `unexpected end of input (at byte 1)`
	if got := Check([]byte(`"`), 64).Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestErrorIsShort has names that would make an error as long as the input.
func TestErrorIsShort(t *testing.T) {
	long := strings.Repeat("€", 100_000)
	name := `"` + long + `"`
	shown := strings.Repeat("€", maxEcho/3) + "…"

	refused(t, []byte(`{`+name+`:1,`+name+`:2}`), 64,
		Error{300_006, "", `member "` + shown + `" appears twice`})
	refused(t, []byte(`{`+name+`:x}`), 64,
		Error{300_004, `["` + shown + `"]`, `expected a value, found 'x'`})

	deep := strings.Repeat(`{"`+strings.Repeat("n", 1000)+`":`, 60) + `x`
	err := Check([]byte(deep), 64)
	if n := len(err.Error()); n > maxPath+200 || !strings.Contains(err.Error(), "…: ") {
		t.Errorf("the error has %d bytes: %v", n, err)
	}
}

func TestCheckDepth(t *testing.T) {
	arrays := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	objects := func(n int) []byte {
		return []byte(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
	}
	for _, limit := range []int{0, 1, 2, 64, 1000, deepest} {
		for kind, nest := range map[string]func(int) []byte{"arrays": arrays, "objects": objects} {
			if limit > 0 {
				if err := Check(nest(limit), limit); err != nil {
					t.Errorf("%d %s, limit %d: %v", limit, kind, limit, err)
				}
			}
			var got *Error
			err := Check(nest(limit+1), limit)
			if !errors.As(err, &got) || got.Msg != fmt.Sprintf("nested deeper than %d levels", limit) {
				t.Errorf("%d %s, limit %d: %v", limit+1, kind, limit, err)
			}
		}
	}
	if err := Check([]byte(`1`), 0); err != nil {
		t.Errorf("a scalar, limit 0: %v", err)
	}
	refused(t, []byte(`{"a":[[]]}`), 2, Error{6, "a[0]", "nested deeper than 2 levels"})
	refused(t, []byte(`[]`), -5, Error{0, "", "nested deeper than 0 levels"})
	// Siblings do not add up.
	if err := Check([]byte(`[[],[],{"a":1,"b":{}}]`), 3); err != nil {
		t.Error(err)
	}
	// The stack has a bound whatever the caller asks for and whatever comes.
	var got *Error
	err := Check([]byte(strings.Repeat(`[{"":`, 1_000_000)), math.MaxInt)
	if !errors.As(err, &got) || got.Msg != "nested deeper than 10000 levels" {
		t.Errorf("no limit: %v", err)
	}
}

// TestCheckDeepIsCheap has Check refuse deep input at the limit, without a look
// at the rest.
func TestCheckDeepIsCheap(t *testing.T) {
	in := []byte(strings.Repeat("[", 10_000))
	refused(t, in, 64, Error{64, strings.Repeat("[0]", 64), "nested deeper than 64 levels"})
	if n := testing.AllocsPerRun(10, func() { _ = Check(in, 64) }); n > 100 {
		t.Errorf("%v allocations to refuse deep input", n)
	}
}

// many is an object of n members, with last as the name of one more.
func many(n int, last string) []byte {
	b := []byte{'{'}
	for i := range n {
		b = fmt.Appendf(b, `"m%d":%d,`, i, i)
	}
	return append(b, last+`:0}`...)
}

// TestCheckManyMembers goes over the limit up to which names are compared one
// by one.
func TestCheckManyMembers(t *testing.T) {
	for n := 1; n < 3*fewMembers; n++ {
		if err := Check(many(n, `"other"`), 64); err != nil {
			t.Errorf("%d members: %v", n, err)
		}
		for _, i := range []int{0, n / 2, n - 1} {
			for _, m := range []string{"m", `\u006d`} {
				in := many(n, fmt.Sprintf(`"%s%d"`, m, i))
				var got *Error
				err := Check(in, 64)
				if !errors.As(err, &got) || got.Msg != fmt.Sprintf(`member "m%d" appears twice`, i) {
					t.Errorf("%s: %v", in, err)
				}
			}
		}
	}
	// Names with escape sequences, in objects that take turns with one another.
	var b []byte
	for i := range 3 * fewMembers {
		b = fmt.Appendf(b, `,"\u006e%d":{"\u006e%d":1,"x":2}`, i, i)
	}
	b[0] = '{'
	if err := Check(append(b, '}'), 64); err != nil {
		t.Error(err)
	}
	if err := Check(append(b, `,"n7":1}`...), 64); err == nil {
		t.Error("an escaped name and the same name plain were taken for two")
	}
}

// TestCheckHugeObject would take most of a minute if the check for duplicates
// grew with the square of the members.
func TestCheckHugeObject(t *testing.T) {
	in := many(300_000, `"m0"`)
	start := time.Now()
	if err := Check(in, 64); err == nil {
		t.Error("the repeated name went unnoticed")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

func TestCheckDoesNotAllocate(t *testing.T) {
	inputs := map[string][]byte{
		"request":       request,
		"many objects":  []byte(`[` + strings.Repeat(`{"a":{"b":{"c":[1,2,3]}}},`, 500) + `0]`),
		"full object":   many(fewMembers-1, `"other"`),
		"escaped value": []byte(`{"text":"a\n\u0000\ud83d\ude00"}`),
	}
	for name, in := range inputs {
		if n := testing.AllocsPerRun(100, func() {
			if err := Check(in, 64); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestPlainRun puts each special byte at each place of the eight that are
// looked at together, with each neighbour that could disturb it.
func TestPlainRun(t *testing.T) {
	for c := range 256 {
		special := c < ' ' || c == '"' || c == '\\' || c >= 0x80
		for _, fill := range []byte{' ', '!', '#', '[', ']', 'a', 0x7f} {
			for at := range 20 {
				b := []byte(strings.Repeat(string(fill), 20))
				b[at] = byte(c)
				want := len(b)
				if special {
					want = at
				}
				if got := plainRun(b, 0); got != want {
					t.Fatalf("plainRun(%q) = %d, want %d", b, got, want)
				}
				if got := plainRun(string(b), 0); got != want {
					t.Fatalf("plainRun(%q), a string, = %d, want %d", b, got, want)
				}
			}
		}
	}
}
