package v1

import (
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// decimal reads a query parameter as a number between low and high; ok is false if
// it is absent or empty. It takes plain decimals such as 30 and 30.0, and none of
// the other spellings that Go knows.
func decimal(q url.Values, name string, low, high float64) (v float64, ok bool, err error) {
	s := q.Get(name)
	if s == "" {
		return 0, false, nil
	}
	refuse := hub.InvalidField(name, "expected a number from %s to %s", number(low), number(high))
	if len(s) > 32 {
		return 0, false, refuse
	}
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && s[i] != '.' {
			return 0, false, refuse
		}
	}
	v, perr := strconv.ParseFloat(s, 64)
	if perr != nil || v < low || v > high {
		return 0, false, refuse
	}
	return v, true, nil
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// seconds reads a query parameter as a span of time, 0 if it is absent.
func seconds(q url.Values, name string, high time.Duration) (time.Duration, error) {
	v, _, err := decimal(q, name, 0, high.Seconds())
	return time.Duration(v * float64(time.Second)), err
}

// whole reads a query parameter as a whole number, def if it is absent.
func whole(q url.Values, name string, low, high, def int) (int, error) {
	v, ok, err := decimal(q, name, float64(low), float64(high))
	if err != nil || !ok {
		return def, err
	}
	if v != float64(int(v)) {
		return def, hub.InvalidField(name, "expected a whole number")
	}
	return int(v), nil
}

// flag reads a query parameter as a yes or no, no if it is absent.
func flag(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	}
	return false, hub.InvalidField(name, "expected true or false")
}

// state reads a query parameter as a task state, 0 if it is absent.
func state(q url.Values, name string) (hub.State, error) {
	s := q.Get(name)
	if s == "" {
		return 0, nil
	}
	st, ok := hub.ParseState(s)
	if !ok {
		return 0, hub.InvalidField(name, "there is no such task state; expected one such as \"working\"")
	}
	return st, nil
}
