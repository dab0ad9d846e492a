package rawjson

import (
	"strings"
	"testing"
)

func TestANumberHasAtMost1000Characters(t *testing.T) {
	for text, ok := range map[string]bool{
		strings.Repeat("9", 1000):             true,
		strings.Repeat("9", 1001):             false,
		"-" + strings.Repeat("9", 1000):       false,
		"0." + strings.Repeat("1", 1000):      false,
		"1e" + strings.Repeat("1", 1000):      false,
		`"` + strings.Repeat("9", 9999) + `"`: true,
	} {
		if err := Check([]byte(`{"n":`+text+`}`), 8); (err == nil) != ok {
			t.Errorf("%.20s… of %d characters: %v", text, len(text), err)
		}
	}
}
