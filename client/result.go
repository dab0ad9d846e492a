package client

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxErrorText bounds the text of a failure, in characters.
const maxErrorText = 4000

// responseName is the artifact that a plain result becomes.
const responseName = "response"

// resultOf turns what a handler returned into a report.
func resultOf(v any, err error) Result {
	if err != nil {
		return failed(err.Error())
	}
	r, err := completed(v)
	if err != nil {
		return failed("the result cannot be reported: " + err.Error())
	}
	return r
}

// completed is the report of a result: nothing, a message, artifacts, a whole report,
// or content that becomes one artifact.
func completed(v any) (Result, error) {
	done := Result{State: StateCompleted}
	switch v := v.(type) {
	case Result:
		return v, nil
	case error:
		return failed(v.Error()), nil
	case Artifact:
		done.Artifacts = []Artifact{v}
		return done, nil
	case *Artifact:
		if v != nil {
			done.Artifacts = []Artifact{*v}
		}
		return done, nil
	case []Artifact:
		done.Artifacts = v
		return done, nil
	case Message, *Message:
		if isNil(v) {
			return done, nil
		}
		m, err := messageOf(v, roleAgent)
		done.Message = &m
		return done, err
	}
	if isNil(v) {
		return done, nil
	}
	parts, err := partsOf(v)
	if err == nil && len(parts) == 0 {
		err = errors.New("there are no parts in it")
	}
	done.Artifacts = []Artifact{{Name: responseName, Parts: parts}}
	return done, err
}

// failed is the report of a failure.
func failed(why string) Result {
	why = cut(strings.ToValidUTF8(why, "\uFFFD"), maxErrorText)
	if strings.TrimSpace(why) == "" {
		why = "the handler failed without saying why"
	}
	return Result{State: StateFailed, Error: &why}
}

// cut keeps the first n characters.
func cut(s string, n int) string {
	if len(s) <= n || utf8.RuneCountInString(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// withMessage is the report of a state with a message of the callee.
func withMessage(state string, v any) (Result, error) {
	m, err := messageOf(v, roleAgent)
	if err != nil {
		return Result{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Result{State: state, Message: &m}, nil
}
