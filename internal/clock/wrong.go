//go:build wrongclock

package clock

import (
	"os"
	"time"
)

// WrongVariable says how wrong the clock is, as in 10m or -10m.
const WrongVariable = "HOLDFAST_TEST_CLOCK_OFFSET"

// Now is the time as a clock says that is wrong; differences are right.
func Now() time.Time {
	off, _ := time.ParseDuration(os.Getenv(WrongVariable))
	return time.Now().Add(off)
}
