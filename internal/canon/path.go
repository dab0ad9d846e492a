package canon

import (
	"errors"
	"strconv"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// under puts name in front of the path of err, which is nil or an error of this
// package. Paths are made from the inside out, so that only failures pay for them.
func under(name string, err error) error {
	if err == nil {
		return nil
	}
	var e *hub.Error
	if name == "" || !errors.As(err, &e) {
		return err
	}
	switch {
	case e.Field == "":
		e.Field = name
	case e.Field[0] == '[':
		e.Field = name + e.Field
	default:
		e.Field = name + "." + e.Field
	}
	return err
}

// at is under for the i-th element of an array.
func at(i int, err error) error {
	if err == nil {
		return nil
	}
	return under("["+strconv.Itoa(i)+"]", err)
}

// memberName is a name that a client chose, as a step of a path: quoted and in
// brackets if it has anything but letters, digits, '_' and '-'.
func memberName(name string) string {
	for _, r := range name {
		if r != '_' && r != '-' && (r >= utf8.RuneSelf || !unicode.IsLetter(r) && !unicode.IsDigit(r)) {
			return "[" + strconv.Quote(name) + "]"
		}
	}
	return name
}
