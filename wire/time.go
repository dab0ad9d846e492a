package wire

import (
	"errors"
	"time"
)

// timeForm is RFC 3339 in UTC with three digits below the second.
const timeForm = "2006-01-02T15:04:05.000Z"

// Time is a time as the API writes it: RFC 3339 in UTC with exactly milliseconds,
// zeros included. It reads any time of RFC 3339.
type Time struct{ time.Time }

// At is t for a field that may be null.
func At(t time.Time) *Time { return &Time{t} }

// MarshalJSON implements json.Marshaler. It fails for years that RFC 3339 cannot
// write.
func (t Time) MarshalJSON() ([]byte, error) {
	u := t.UTC()
	if y := u.Year(); y < 0 || y > 9999 {
		return nil, errors.New("the year of a time has to be between 0 and 9999")
	}
	return u.AppendFormat(nil, `"`+timeForm+`"`), nil
}

// UnmarshalJSON implements json.Unmarshaler; null leaves t as it is.
func (t *Time) UnmarshalJSON(b []byte) error { return t.Time.UnmarshalJSON(b) }
