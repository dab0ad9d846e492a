package webhook_test

import (
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/delivery"
	"github.com/holdfast-hub/holdfast/internal/delivery/webhook"
	v1 "github.com/holdfast-hub/holdfast/internal/face/v1"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	asJSON = "application/json"
	asText = "text/plain; charset=utf-8"
)

// Every shape that an answer may have, and what it means.
func TestAnswers(t *testing.T) {
	w := webhook.New(webhook.Options{Parse: v1.ParseResult})
	for _, c := range []struct {
		name, contentType, body string
		kind                    delivery.Kind
		state                   hub.State
		// has is in the only artifact, the message or the reason; empty for no artifact.
		has string
	}{
		{"nothing", "", "", delivery.Answered, hub.Completed, ""},
		{"nothing, as JSON", asJSON, "", delivery.Answered, hub.Completed, ""},
		{"white space", asText, " \n", delivery.Answered, hub.Completed, ""},
		{"text", asText, "hi\n", delivery.Answered, hub.Completed, `"text":"hi\n"`},
		{"a page", "text/html", "<p>hi", delivery.Answered, hub.Completed, `"text":"<p>hi"`},
		{"a result declared as text", asText, `{"state":"failed","error":"no idea"}`, delivery.Answered, hub.Failed, "no idea"},
		{"data declared as a page", "text/html", `{"a":1}`, delivery.Answered, hub.Completed, `"data":{"a":1}`},
		{"text that looks like a result", asText, `{"state":"Bavaria"}`, delivery.Answered, hub.Completed, `"text":"{\"state\":\"Bavaria\"}"`},
		{"text that looks like JSON", asText, `{a}`, delivery.Answered, hub.Completed, `"text":"{a}"`},
		{"other JSON declared as text", asText, `[1]`, delivery.Answered, hub.Completed, `"text":"[1]"`},
		{"text of no type", "", "hi", delivery.Answered, hub.Completed, `"text":"hi"`},
		{"text of a broken type", ";", "hi", delivery.Answered, hub.Completed, `"text":"hi"`},
		{"an object of no type", "", `{"a":1}`, delivery.Answered, hub.Completed, `"data":{"a":1}`},
		{"a result of no type", "application/octet-stream", `{"state":"rejected","error":"no"}`, delivery.Answered, hub.Rejected, "no"},
		{"data", asJSON, ` {"answer": 9007199254740993} `, delivery.Answered, hub.Completed, "9007199254740993"},
		{"data with null in the place of state", asJSON, `{"state":null,"a":1}`, delivery.Answered, hub.Completed, `"a":1`},
		{"data with another case of state", asJSON, `{"State":"failed","Artifacts":[]}`, delivery.Answered, hub.Completed, `"State":"failed"`},
		{"an array", asJSON, `[1,2]`, delivery.Answered, hub.Completed, `"data":[1,2]`},
		{"a number", asJSON, `7`, delivery.Answered, hub.Completed, `"data":7`},
		{"a string", asJSON, `"hi"`, delivery.Answered, hub.Completed, `"text":"hi"`},
		{"of a JSON type", "application/problem+json", `{"a":1}`, delivery.Answered, hub.Completed, `"data":{"a":1}`},
		{"a result", asJSON, `{"state":"completed","artifacts":[{"name":"n","parts":[{"text":"x"}]}]}`, delivery.Answered, hub.Completed, `"text":"x"`},
		{"artifacts alone", asJSON, `{"artifacts":[{"parts":[{"text":"x"}]}],"more":1}`, delivery.Answered, hub.Completed, `"text":"x"`},
		{"artifacts, and null in the place of state", asJSON, `{"state":null,"artifacts":[{"parts":[{"text":"x"}]}]}`, delivery.Answered, hub.Completed, `"text":"x"`},
		{"a failure", asJSON, `{"state":"failed","error":"no idea"}`, delivery.Answered, hub.Failed, "no idea"},
		{"a question", asJSON, `{"state":"input_required","message":{"parts":[{"text":"which?"}]}}`, delivery.Answered, hub.InputRequired, "which?"},
		{"a question for a permission", asJSON, `{"state":"auth_required","message":{"role":"agent","parts":[{"text":"sign"}]}}`, delivery.Answered, hub.AuthRequired, "sign"},
		{"to come", asJSON, `{"state":"working"}`, delivery.Accepted, hub.Working, ""},
		{"to come, with something now", asJSON, `{"state":"working","artifacts":[{"name":"a","parts":[{"text":"half"}]}]}`, delivery.Accepted, hub.Working, "half"},
		{"no such state", asJSON, `{"state":"Bavaria"}`, delivery.Refused, 0, "state: expected completed"},
		{"canceled", asJSON, `{"state":"canceled"}`, delivery.Refused, 0, "state"},
		{"no artifacts", asJSON, `{"artifacts":"x"}`, delivery.Refused, 0, "artifacts: expected an array"},
		{"broken JSON", asJSON, `{"a":`, delivery.Refused, 0, "declared as JSON"},
		{"two names", asJSON, `{"state":"completed","state":"failed"}`, delivery.Refused, 0, "declared as JSON"},
		{"half a pair", asJSON, `{"a":"\ud800"}`, delivery.Refused, 0, "declared as JSON"},
		{"deep", asJSON, strings.Repeat("[", 60) + strings.Repeat("]", 60), delivery.Refused, 0, "declared as JSON"},
		{"as deep as may be", asJSON, strings.Repeat("[", 58) + strings.Repeat("]", 58), delivery.Answered, hub.Completed, "[[[["},
		{"text that is none", asText, "\xff", delivery.Refused, 0, "not UTF-8"},
		{"an image", "image/png", "\x89PNG", delivery.Refused, 0, "neither JSON nor text"},
		{"bytes", "", "\x00\x01", delivery.Refused, 0, "neither JSON nor text"},
	} {
		out := w.Answer(c.contentType, []byte(c.body))
		found := out.Reason + string(out.Report.Message)
		for _, e := range out.Report.Events {
			found += string(e.Body)
		}
		if out.Kind != c.kind || out.Report.State != c.state || !strings.Contains(found, c.has) || c.has == "" && found != "" {
			t.Errorf("%s: %v, %v, %s; want %v, %v, %q", c.name, out.Kind, out.Report.State, found, c.kind, c.state, c.has)
		}
	}
}

// Whatever comes is a result that the hub can take, or is refused with a reason.
func FuzzAnswer(f *testing.F) {
	for _, s := range []string{
		"", "hi", `{}`, `{"state":"completed"}`, `{"state":null,"artifacts":[]}`, `[`, `"\ud800"`, `{"artifacts":[{"parts":[{"data":1}]}]}`, "\xff", "{\"a\":\"\x00\"}",
	} {
		for _, kind := range []string{"", asJSON, asText, "image/png", "application/octet-stream", ";"} {
			f.Add(kind, []byte(s))
		}
	}
	w := webhook.New(webhook.Options{Parse: v1.ParseResult})
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		out := w.Answer(kind, body)
		switch out.Kind {
		case delivery.Answered, delivery.Accepted:
			if out.Report.State == 0 || (out.Kind == delivery.Accepted) != (out.Report.State == hub.Working) {
				t.Errorf("%v of state %v", out.Kind, out.Report.State)
			}
		case delivery.Refused:
			if out.Reason == "" {
				t.Error("it was refused without a reason")
			}
		default:
			t.Errorf("it is %v", out.Kind)
		}
	})
}
