package webhook

import (
	"bytes"
	"errors"
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// answer says what the body of a 2xx means:
//
//   - nothing completes the task, without artifacts;
//   - a JSON object with state or artifacts is a result as at /v1/…/result, completed
//     where it has no state; with the state working the callee reports by itself later;
//   - any other JSON is the one data artifact of a completed task, but a string, and all
//     other text, is its one text artifact.
//
// What is declared as JSON has to be JSON. Many servers declare what they send as text,
// or as nothing, without looking at it: of that, an object that can be taken as above is
// JSON, and the rest text.
func (w *Deliverer) answer(contentType string, body []byte) delivery.Outcome {
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) == 0 {
		return w.result([]byte(`{"state":"completed"}`))
	}
	declared := typeOf(contentType)
	if declared == isJSON || declared == isText && trimmed[0] == '{' {
		result, err := jsonResult(trimmed)
		out := refused(err)
		if err == nil {
			out = w.result(result)
		}
		if declared == isJSON || out.Kind != delivery.Refused {
			return out
		}
	}
	switch {
	case declared == isOther || bytes.IndexByte(body, 0) >= 0:
		return refused(errors.New("is neither JSON nor text; send binary content as a part of a result, in base64"))
	case !utf8.Valid(body):
		return refused(errors.New("is text that is not UTF-8"))
	}
	return w.result(artifact("text", rawjson.AppendText(nil, string(body))))
}

// refused is for an answer that is of no use; the error goes on from "its answer".
func refused(err error) delivery.Outcome {
	if err == nil {
		return delivery.Outcome{}
	}
	return delivery.Outcome{Kind: delivery.Refused, Reason: "its answer " + err.Error()}
}

// result reads a result.
func (w *Deliverer) result(body []byte) delivery.Outcome {
	r, err := w.opt.Parse(body)
	switch {
	case err != nil:
		return refused(errors.New("is no result: " + words(err)))
	case r.State == hub.Working:
		return delivery.Outcome{Kind: delivery.Accepted, Report: r}
	}
	return delivery.Outcome{Kind: delivery.Answered, Report: r}
}

type contentKind uint8

const (
	isJSON contentKind = iota + 1
	isText
	isOther
)

// typeOf reads the type of a body. What has none, or none in particular, is text.
func typeOf(contentType string) contentKind {
	mediaType, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil || mediaType == "application/octet-stream" || strings.HasPrefix(mediaType, "text/"):
		return isText
	case mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"):
		return isJSON
	}
	return isOther
}

// maxDepth is how deep an answer may be nested, which leaves some of the 64 levels that
// a task may have for what is put around it.
const maxDepth = 58

// jsonResult makes a result of JSON. Only what decides what it means is looked at here;
// whether it is right is for who reads the result.
func jsonResult(trimmed []byte) ([]byte, error) {
	if err := rawjson.Check(trimmed, maxDepth); err != nil {
		return nil, errors.New("is declared as JSON, and the hub cannot take it as such: " + problem(err))
	}
	switch rawjson.KindOf(trimmed) {
	case rawjson.String:
		return artifact("text", trimmed), nil
	case rawjson.Object:
	default:
		return artifact("data", trimmed), nil
	}
	var state, artifacts bool
	completed := []byte(`{"state":"completed"`)
	_ = rawjson.Members(trimmed, func(name string, raw []byte) error { // checked above
		there := rawjson.KindOf(raw) != rawjson.Null
		state = state || name == "state" && there
		artifacts = artifacts || name == "artifacts" && there
		if name != "state" {
			completed = append(rawjson.AppendText(append(completed, ','), name), ':')
			completed = append(completed, raw...)
		}
		return nil
	})
	switch {
	case state:
		return trimmed, nil
	case artifacts:
		return append(completed, '}'), nil
	}
	return artifact("data", trimmed), nil
}

// problem says what is wrong with JSON.
func problem(err error) string {
	if e, ok := errors.AsType[*rawjson.Error](err); ok {
		return e.Msg + " at byte " + strconv.Itoa(e.Offset)
	}
	return "it is not valid"
}

// artifact is the result of a task with one artifact of one part.
func artifact(kind string, content []byte) []byte {
	b := append([]byte(`{"state":"completed","artifacts":[{"parts":[{"`+kind+`":`), content...)
	return append(b, "}]}]}"...)
}

// words is what callers may see of an error.
func words(err error) string {
	e, ok := errors.AsType[*hub.Error](err)
	switch {
	case !ok:
		return "it cannot be read"
	case e.Field != "":
		return e.Field + ": " + e.Message
	}
	return e.Message
}
