package transfer

import "testing"

func TestSumTellsSetsOfRowsApart(t *testing.T) {
	of := func(rows ...[]any) (s sum) {
		for _, r := range rows {
			if err := s.add(r); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	a, b := []any{int64(1), []byte("x"), nil, true, [16]byte{1}}, []any{int64(2), []byte("y"), nil, false, [16]byte{2}}
	if of(a, b) != of(b, a) {
		t.Error("the order of rows counts")
	}
	same := of(a, b)
	for name, other := range map[string]sum{
		"one less":           of(a),
		"one twice":          of(a, b, b),
		"another in place":   of(a, a),
		"empty for none":     of(a, []any{int64(2), []byte("y"), []byte{}, false, [16]byte{2}}),
		"shifted bytes":      of([]any{int64(1), []byte("xy"), nil, true, [16]byte{1}}, []any{int64(2), []byte(""), nil, false, [16]byte{2}}),
		"a bool for another": of(a, []any{int64(2), []byte("y"), nil, true, [16]byte{2}}),
		"swapped values":     of([]any{int64(2), []byte("x"), nil, true, [16]byte{1}}, []any{int64(1), []byte("y"), nil, false, [16]byte{2}}),
	} {
		if other == same {
			t.Errorf("%s: not noticed", name)
		}
	}
	if err := new(sum).add([]any{3.5}); err == nil {
		t.Error("a float was taken")
	}
}
