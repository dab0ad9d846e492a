package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

// seeds are inputs from which a fuzzer gets to each rule in few steps.
var seeds = []string{
	``, ` `, `null`, `true`, `nul`, `-`, `-0.5e+10`, `01`, `1e400`, `123456789012345678901234567890`,
	`""`, `"\u0000"`, `"\ud800"`, `"\ud83d\ude00"`, `"\ud83d\u0041"`, `"\ude00"`, `"\ud83d\ud`, `"\/\b\f\n\r\t\"\\"`,
	`"\`, `"\"`, `"\\"`, `"\u00"`, "\"\x1f\"", "\"\xff\"", "\"\xed\xa0\x80\"", "\"é€😀\u2028\"", "\ufeff1",
	`[]`, `[1,]`, `[[[]]]`, `[ 1 , "a" , {} ]`, `[1 2]`, `[`, `]`, `[}`, `{"a":[}}`,
	`{}`, `{"a":1}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"":{"":{"":[]}}}`, `{"a" : { "b" : "}" } }`, `{"a":1,}`,
	`{"\ud83d\ude00":1,"😀":2}`, `{"a":"\\\"","b":"\\"}`, `{"a"}`, `{a:1}`, `{"a":1}{`, "\v{}",
	`{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0,"j":0,"k":0,"l":0,"m":0,"n":0,"o":0,"p":0,"q":0,"\u0061":0}`,
}

func addSeeds(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Add(request)
}

// FuzzCheck compares Check's verdict with that of an independent decoder that
// has the same rules.
func FuzzCheck(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		if bytes.Count(b, []byte("["))+bytes.Count(b, []byte("{")) >= deepest {
			t.Skip("the two have different limits")
		}
		if longDigits.Match(b) {
			t.Skip("jsontext has no limit for numbers")
		}
		before := bytes.Clone(b)
		got, want := Check(b, deepest), decode(b)
		if (got == nil) != (want == nil) {
			t.Fatalf("Check(%q) = %v, but jsontext says %v", b, got, want)
		}
		if !bytes.Equal(b, before) {
			t.Fatalf("Check(%q) changed its input", before)
		}
		var e *Error
		if got == nil || errors.As(got, &e) && e.Offset >= 0 && e.Offset <= len(b) && e.Msg != "" && len(got.Error()) < 600 {
			return
		}
		t.Fatalf("Check(%q) = %#v", b, got)
	})
}

var longDigits = regexp.MustCompile(`[0-9.eE+-]{1000}`)

// decode reads b as one value with jsontext.
func decode(b []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(b))
	if _, err := d.ReadValue(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}

// FuzzMembers reads any bytes with every reader, and compares what they make of
// a valid value with what encoding/json does.
func FuzzMembers(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		walk(b, 50)
		_ = AppendCompact(nil, b)
		if Check(b, 50) == nil {
			compare(t, b)
		}
		if !bytes.Equal(b, before) {
			t.Fatalf("reading %q changed it", before)
		}
	})
}

// walk reads whatever is in raw, valid or not, with every reader.
func walk(raw []byte, depth int) {
	if depth == 0 {
		return
	}
	_ = KindOf(raw)
	_, _ = Text(raw)
	_, _ = Integer(raw)
	_, _ = Boolean(raw)
	_ = Members(raw, func(_ string, value []byte) error { walk(value, depth-1); return nil })
	_ = Elements(raw, func(_ int, value []byte) error { walk(value, depth-1); return nil })
}

// compare reads the valid value raw with the reader for its kind and with
// encoding/json, and fails unless they agree.
func compare(t *testing.T, raw []byte) {
	t.Helper()
	var err error
	switch kind := KindOf(raw); kind {
	case Object:
		err = compareObject(t, raw)
	case Array:
		err = compareArray(t, raw)
	case String:
		var got, want string
		got, err = Text(raw)
		decodeStandard(t, raw, &want)
		if got != want {
			t.Fatalf("Text(%q) = %q, want %q", raw, got, want)
		}
	case Bool:
		var got, want bool
		got, err = Boolean(raw)
		decodeStandard(t, raw, &want)
		if got != want {
			t.Fatalf("Boolean(%q) = %v", raw, got)
		}
	case Number:
		compareNumber(t, string(bytes.TrimSpace(raw)))
	case Null:
		if string(bytes.TrimSpace(raw)) != "null" {
			t.Fatalf("%q was taken for null", raw)
		}
	default:
		t.Fatalf("%q is valid, but its kind is %v", raw, kind)
	}
	if err != nil {
		t.Fatalf("%q is valid, but: %v", raw, err)
	}
}

func decodeStandard(t *testing.T, raw []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("encoding/json refuses %q: %v", raw, err)
	}
}

func compareObject(t *testing.T, raw []byte) error {
	var want map[string]json.RawMessage
	decodeStandard(t, raw, &want)
	n := 0
	err := Members(raw, func(name string, value []byte) error {
		if w, ok := want[name]; !ok || !bytes.Equal(w, value) {
			t.Fatalf("member %q of %q is %q, want %q", name, raw, value, w)
		}
		n++
		compare(t, value)
		return nil
	})
	if n != len(want) {
		t.Fatalf("%q has %d members, want %d", raw, n, len(want))
	}
	return err
}

func compareArray(t *testing.T, raw []byte) error {
	var want []json.RawMessage
	decodeStandard(t, raw, &want)
	n := 0
	err := Elements(raw, func(i int, value []byte) error {
		if i != n || i >= len(want) || !bytes.Equal(want[i], value) {
			t.Fatalf("element %d of %q is %q", i, raw, value)
		}
		n++
		compare(t, value)
		return nil
	})
	if n != len(want) {
		t.Fatalf("%q has %d elements, want %d", raw, n, len(want))
	}
	return err
}

// compareNumber checks Integer against exact arithmetic. Exponents that
// arithmetic would take too long for are left to TestInteger.
func compareNumber(t *testing.T, s string) {
	got, err := Integer([]byte(s))
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if e, err := strconv.Atoi(s[i+1:]); err != nil || e > 1000 || e < -1000 {
			return
		}
	}
	want, ok := new(big.Rat).SetString(s)
	if !ok {
		t.Fatalf("%q is no number", s)
	}
	whole := want.IsInt() && want.Num().IsInt64()
	if whole != (err == nil) || whole && got != want.Num().Int64() {
		t.Fatalf("Integer(%q) = %d, %v", s, got, err)
	}
}

// FuzzText writes any string and reads it back.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "a", "\"\\/", "\b\f\n\r\t\x00\x1f\x7f", "<>&\u2028\u2029", "é€😀", "\xff", "\xed\xa0\x80", "12345678\xc3", `\u0041`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := AppendText(nil, s)
		if err := Check(raw, 0); err != nil {
			t.Fatalf("AppendText(%q) = %q: %v", s, raw, err)
		}
		// A conversion to runes and back replaces bad bytes one by one.
		valid := string([]rune(s))
		if got, err := Text(raw); got != valid || err != nil {
			t.Fatalf("Text(%q) = %q, %v, want %q", raw, got, err, valid)
		}
		want, err := jsontext.AppendQuote(nil, valid)
		if err != nil || !bytes.Equal(raw, want) {
			t.Fatalf("AppendText(%q) = %q, but jsontext writes %q, %v", s, raw, want, err)
		}
	})
}

// FuzzAppendCompact compares AppendCompact with encoding/json on what that
// accepts, which is more than Check does.
func FuzzAppendCompact(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		got := AppendCompact([]byte("x"), b)
		var want bytes.Buffer
		if json.Compact(&want, b) != nil {
			return
		}
		if string(got) != "x"+want.String() {
			t.Fatalf("AppendCompact(%q) = %q, want %q", b, got, want.Bytes())
		}
	})
}
