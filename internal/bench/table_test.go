package bench

import (
	"bytes"
	"strings"
	"testing"
)

func TestShortRunsJudgeNothing(t *testing.T) {
	rows := []Row{{What: "speed", Measured: 1, Unit: "/s", Bar: 2}}
	for short, want := range map[bool]bool{false: true, true: false} {
		var out bytes.Buffer
		if err := printTable(&out, rows, short); err != nil {
			t.Fatal(err)
		}
		if judged := strings.Contains(out.String(), "MISSED"); judged != want || strings.Contains(out.String(), "judges nothing") == want {
			t.Errorf("short %v:\n%s", short, &out)
		}
	}
}
