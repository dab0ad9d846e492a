package v1

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// fieldOf is the path that a refusal names; "-" for no refusal.
func fieldOf(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return "-"
	}
	var e *hub.Error
	if !errors.As(err, &e) {
		t.Fatalf("not an error for clients: %v", err)
	}
	if e.Kind != hub.Invalid || e.Message == "" {
		t.Fatalf("kind %d, message %q; want an Invalid error that says why", e.Kind, e.Message)
	}
	return e.Field
}

const hi = `"message":{"role":"user","parts":[{"text":"hi"}]}`

func TestDecodeSendRefusesWithTheFieldAtFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, field string }{
		{"least", `{` + hi + `}`, "-"},
		{"nulls are absent", `{` + hi + `,"context_id":null,"task_id":null,"tags":null,"metadata":null,"deadline":null}`, "-"},
		{"unknown members", `{` + hi + `,"priority":{"x":[1]},"message_id":7}`, "-"},
		{"empty ids are absent", `{` + hi + `,"context_id":"","task_id":""}`, "-"},
		{"protocol spelling", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{},"mediaType":"application/json"}]}}`, "-"},
		{"empty", ``, ""},
		{"not JSON", `{"message":`, "message"},
		{"not an object", `[1]`, ""},
		{"no message", `{}`, "message"},
		{"message null", `{"message":null}`, "message"},
		{"message a string", `{"message":"hi"}`, "message"},
		{"agent's role", `{"message":{"role":"agent","parts":[{"text":"hi"}]}}`, "message.role"},
		{"unknown role", `{"message":{"role":"system","parts":[{"text":"hi"}]}}`, "message.role"},
		{"no parts", `{"message":{"role":"user"}}`, "message.parts"},
		{"empty parts", `{"message":{"role":"user","parts":[]}}`, "message.parts"},
		{"part without content", `{"message":{"role":"user","parts":[{"text":"a"},{}]}}`, "message.parts[1]"},
		{"text a number", `{"message":{"role":"user","parts":[{"text":1}]}}`, "message.parts[0].text"},
		{"context a number", `{` + hi + `,"context_id":1}`, "context_id"},
		{"context too long", `{` + hi + `,"context_id":"` + strings.Repeat("x", 257) + `"}`, "context_id"},
		{"task with a line end", `{` + hi + `,"task_id":"a\nb"}`, "task_id"},
		{"two contexts", `{"context_id":"a","message":{"role":"user","context_id":"b","parts":[{"text":"hi"}]}}`, "message.context_id"},
		{"tag a number", `{` + hi + `,"tags":{"a":1}}`, "tags.a"},
		{"tags an array", `{` + hi + `,"tags":["a"]}`, "tags"},
		{"metadata a string", `{` + hi + `,"metadata":"a"}`, "metadata"},
		{"deadline without zone", `{` + hi + `,"deadline":"2026-01-01"}`, "deadline"},
		{"twice the same member", `{` + hi + `,` + hi + `}`, ""},
		{"lone surrogate", `{"message":{"role":"user","parts":[{"text":"\ud800"}]}}`, "message.parts[0].text"},
		{"too deep", `{"message":{"role":"user","parts":[{"data":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}]}}`, "*"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeSend([]byte(c.body))
			if got := fieldOf(t, err); got != c.field && (c.field != "*" || got == "-") {
				t.Errorf("field %q, want %q (%v)", got, c.field, err)
			}
		})
	}
}

func TestDecodeSendReadsEverything(t *testing.T) {
	t.Parallel()
	s, err := decodeSend([]byte(`{"message":{"message_id":"m1","role":"user","parts":[{"data":{"n":9007199254740993}}],"task_id":"t1"},
		"context_id":"c1","tags":{"a":"b"},"metadata":{"x": 1.0},"deadline":"2026-02-03T04:05:06.5+01:00"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"n":9007199254740993}}]}`
	if got := string(s.message.Body); got != want {
		t.Errorf("message\n got %s\nwant %s", got, want)
	}
	got := []string{s.message.ID, s.context, s.task, string(s.tags), string(s.metadata), s.deadline.UTC().Format(time.RFC3339Nano)}
	if diff := cmp.Diff([]string{"m1", "c1", "t1", `{"a":"b"}`, `{"x":1.0}`, "2026-02-03T03:05:06.5Z"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestMessagesWithoutAnIDGetOne(t *testing.T) {
	t.Parallel()
	id := func(body, address, key string) string {
		s, err := decodeSend([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		s.name(hub.Principal{Address: address}, key)
		if s.message.ID == "" || !bytes.Contains(s.message.Body, []byte(`"messageId":"`+s.message.ID+`"`)) {
			t.Fatalf("id %q in %s", s.message.ID, s.message.Body)
		}
		return s.message.ID
	}
	const body = `{` + hi + `}`
	if id(body, "a", "") == id(body, "a", "") {
		t.Error("two messages have one id")
	}
	if id(body, "a", "k") != id(body, "a", "k") {
		t.Error("under a key, the same message has two ids")
	}
	if id(body, "a", "k") == id(body, "b", "k") || id(body, "a", "k") == id(body, "a", "l") || id(body, "a", "k") == id(strings.Replace(body, "hi", "ho", 1), "a", "k") {
		t.Error("under a key, other messages have the same id")
	}
	if got := id(strings.Replace(body, `"role"`, `"message_id":"mine","role"`, 1), "a", "k"); got != "mine" {
		t.Errorf("the client's id became %q", got)
	}
}

func TestDecodeResultRefusesWithTheFieldAtFault(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 4000)
	for _, c := range []struct{ name, body, field string }{
		{"completed", `{"state":"completed","artifacts":[{"name":"response","parts":[{"text":"done"}]}],"message":null,"error":null}`, "-"},
		{"question", `{"state":"input_required","artifacts":null,"message":{"role":"agent","parts":[{"text":"which?"}]},"error":null}`, "-"},
		{"failed", `{"state":"failed","error":"ValueError: x"}`, "-"},
		{"failed without reason", `{"state":"failed"}`, "-"},
		{"rejected", `{"state":"rejected","error":"not mine"}`, "-"},
		{"working", `{"state":"working"}`, "-"},
		{"sign-in", `{"state":"auth_required"}`, "-"},
		{"protocol spelling", `{"state":"TASK_STATE_COMPLETED"}`, "-"},
		{"message without a role is the agent's", `{"state":"completed","message":{"parts":[{"text":"x"}]}}`, "-"},
		{"error at the limit", `{"state":"failed","error":"` + long + `"}`, "-"},
		{"error beyond the limit", `{"state":"failed","error":"` + long + `e"}`, "error"},
		{"error of a success", `{"state":"completed","error":"x"}`, "error"},
		{"error a number", `{"state":"failed","error":1}`, "error"},
		{"no state", `{"artifacts":[]}`, "state"},
		{"state null", `{"state":null}`, "state"},
		{"unknown state", `{"state":"done"}`, "state"},
		{"state of the caller", `{"state":"canceled"}`, "state"},
		{"state a number", `{"state":3}`, "state"},
		{"user's role", `{"state":"completed","message":{"role":"user","parts":[{"text":"x"}]}}`, "message.role"},
		{"artifacts an object", `{"state":"completed","artifacts":{}}`, "artifacts"},
		{"artifact without parts", `{"state":"completed","artifacts":[{"name":"x"}]}`, "artifacts[0].parts"},
		{"bad part", `{"state":"completed","artifacts":[{"parts":[{"text":"a","url":"b"}]}]}`, "artifacts[0].parts[0]"},
		{"one id twice", `{"state":"completed","artifacts":[{"artifact_id":"a","parts":[{"text":"x"}]},{"artifact_id":"a","parts":[{"text":"y"}]}]}`, "artifacts[1].artifact_id"},
		{"empty", ``, ""},
		{"a string", `"completed"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rep, err := newReport([]byte(c.body))
			if got := fieldOf(t, err); got != c.field {
				t.Fatalf("field %q, want %q (%v)", got, c.field, err)
			}
			if err != nil && (rep.state != 0 || rep.events != nil) {
				t.Errorf("a refused result left %+v", rep)
			}
		})
	}
}

func TestArtifactsGetStableIDs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, artifacts string
		want            []string
	}{
		{"by name", `[{"name":"response","parts":[{"text":"x"}]}]`, []string{"response"}},
		{"by position", `[{"parts":[{"text":"x"}]},{"parts":[{"text":"y"}]}]`, []string{"artifact-1", "artifact-2"}},
		{"own ids stay", `[{"artifact_id":"mine","name":"n","parts":[{"text":"x"}]}]`, []string{"mine"}},
		{"same names", `[{"name":"n","parts":[{"text":"x"}]},{"name":"n","parts":[{"text":"x"}]},{"name":"n","parts":[{"text":"x"}]}]`, []string{"n", "n-2", "n-3"}},
		{"own id first, wherever it is", `[{"name":"n","parts":[{"text":"x"}]},{"artifact_id":"n","parts":[{"text":"x"}]}]`, []string{"n-2", "n"}},
		{"name that is no id", `[{"name":"` + strings.Repeat("n", 300) + `","parts":[{"text":"x"}]}]`, []string{"artifact-1"}},
		{"suffix is taken", `[{"artifact_id":"n-2","parts":[{"text":"x"}]},{"name":"n","parts":[{"text":"x"}]},{"name":"n","parts":[{"text":"x"}]}]`, []string{"n-2", "n", "n-3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rep, err := newReport([]byte(`{"state":"completed","artifacts":` + c.artifacts + `}`))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range rep.events {
				var body struct {
					ArtifactID string `json:"artifactId"`
				}
				if json.Unmarshal(e.Body, &body) != nil || body.ArtifactID != e.ArtifactID || !e.LastChunk || e.Append {
					t.Errorf("event %+v with body %s", e, e.Body)
				}
				got = append(got, e.ArtifactID)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDigestTellsResultsApart(t *testing.T) {
	t.Parallel()
	same := []string{
		`{"state":"completed","artifacts":[{"name":"a","parts":[{"text":"x"}]}]}`,
		`{ "artifacts": [ {"parts":[ {"text":"x"} ], "name":"a", "unknown":1} ], "state":"TASK_STATE_COMPLETED", "message":null }`,
	}
	others := []string{
		`{"state":"failed","artifacts":[{"name":"a","parts":[{"text":"x"}]}]}`,
		`{"state":"completed","artifacts":[{"name":"a","parts":[{"text":"y"}]}]}`,
		`{"state":"completed","artifacts":[{"artifact_id":"a","parts":[{"text":"x"}]}]}`,
		`{"state":"completed","artifacts":[{"name":"a","parts":[{"text":"x"}]}],"message":{"parts":[{"text":"x"}]}}`,
		`{"state":"completed","message":{"parts":[{"text":"x"}]}}`,
		`{"state":"failed","error":"x"}`,
		`{"state":"failed"}`,
	}
	seen := map[[32]byte]string{}
	for _, body := range same {
		rep, err := newReport([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		seen[rep.digest] = body
	}
	if len(seen) != 1 {
		t.Fatalf("the same result has %d digests", len(seen))
	}
	for _, body := range others {
		rep, err := newReport([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if twin, ok := seen[rep.digest]; ok {
			t.Errorf("one digest for\n%s\n%s", twin, body)
		}
		seen[rep.digest] = body
	}
	a, _ := newReport([]byte(`{"state":"completed","message":{"parts":[{"text":"x"}]}}`))
	b, _ := newReport([]byte(`{"state":"completed","message":{"parts":[{"text":"x"}]}}`))
	if a.digest != b.digest {
		t.Error("the message id that the hub makes up changes the digest")
	}
}

func TestFailuresHaveAReasonThatA2AShows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, reason, text string }{
		{"error", `{"state":"failed","error":"boom"}`, "boom", `"text":"boom"`},
		{"message", `{"state":"failed","message":{"parts":[{"text":"sorry"}]}}`, "", `"text":"sorry"`},
		{"both", `{"state":"failed","error":"boom","message":{"parts":[{"text":"sorry"}]}}`, "boom", `"text":"sorry"`},
		{"neither", `{"state":"failed"}`, noReason, `"text":"` + noReason + `"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rep, err := newReport([]byte(c.body))
			if err != nil || rep.reason != c.reason || !bytes.Contains(rep.message, []byte(c.text)) {
				t.Errorf("reason %q, message %s, err %v", rep.reason, rep.message, err)
			}
		})
	}
}

func TestDecodeEventsRefusesWithTheFieldAtFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, field string }{
		{"status", `{"events":[{"status":{"state":"working","message":{"role":"agent","parts":[{"text":"50 %"}]}}}]}`, "-"},
		{"status without state", `{"events":[{"status":{"message":{"parts":[{"text":"50 %"}]}},"metadata":{"p":0.5}}]}`, "-"},
		{"artifact", `{"events":[{"artifact":{"artifact_id":"a","parts":[{"text":"x"}]},"append":true,"last_chunk":false,"status":null}]}`, "-"},
		{"artifact by name", `{"events":[{"artifact":{"name":"a","parts":[{"text":"x"}]}}]}`, "-"},
		{"artifact without both", `{"events":[{"artifact":{"parts":[{"text":"x"}]}}]}`, "events[0].artifact.artifact_id"},
		{"no events", `{}`, "events"},
		{"empty", `{"events":[]}`, "events"},
		{"an object", `{"events":{}}`, "events"},
		{"a string inside", `{"events":["x"]}`, "events[0]"},
		{"neither", `{"events":[{"append":true}]}`, "events[0]"},
		{"both", `{"events":[{"status":{},"artifact":{"name":"a","parts":[{"text":"x"}]}}]}`, "events[0]"},
		{"an end", `{"events":[{"status":{}},{"status":{"state":"completed"}}]}`, "events[1].status.state"},
		{"user's role", `{"events":[{"status":{"message":{"role":"user","parts":[{"text":"x"}]}}}]}`, "events[0].status.message.role"},
		{"append a string", `{"events":[{"artifact":{"name":"a","parts":[{"text":"x"}]},"append":"yes"}]}`, "events[0].append"},
		{"metadata an array", `{"events":[{"status":{},"metadata":[]}]}`, "events[0].metadata"},
		{"too many", `{"events":[` + strings.Repeat(`{"status":{}},`, maxEvents) + `{"status":{}}]}`, "events"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := decodeEvents([]byte(c.body))
			if got := fieldOf(t, err); got != c.field {
				t.Errorf("field %q, want %q (%v)", got, c.field, err)
			}
		})
	}
}

func TestChunksOfOneArtifactShareItsName(t *testing.T) {
	t.Parallel()
	events, err := decodeEvents([]byte(`{"events":[{"artifact":{"name":"log","parts":[{"text":"a"}]}},{"artifact":{"name":"log","parts":[{"text":"b"}]},"append":true,"last_chunk":true}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if events[0].ArtifactID != "log" || events[1].ArtifactID != "log" || !events[1].Append || !events[1].LastChunk || events[0].Append {
		t.Errorf("%+v", events)
	}
}

func TestDecodeHeartbeat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body  string
		after int
		field string
	}{
		{"", -1, "-"}, {"{}", -1, "-"}, {`{"after":null}`, -1, "-"}, {`{"after":3.0}`, 3, "-"}, {`{"after":0}`, 0, "-"},
		{`{"after":-1}`, -1, "after"}, {`{"after":1.5}`, -1, "after"}, {`{"after":"1"}`, -1, "after"}, {`{"after":99999999999}`, -1, "after"}, {`[]`, -1, ""},
	} {
		after, err := decodeHeartbeat([]byte(c.body))
		if got := fieldOf(t, err); got != c.field || err == nil && after != c.after {
			t.Errorf("%s: %d, field %q; want %d, %q", c.body, after, got, c.after, c.field)
		}
	}
}

// checkFuzzed holds an outcome to what every decoder owes: a refusal is one for the
// client, and what was accepted is valid JSON inside.
func checkFuzzed(t *testing.T, err error, payloads ...[]byte) {
	t.Helper()
	if err != nil {
		if hub.KindOf(err) != hub.Invalid {
			t.Fatalf("refused with %v", err)
		}
		return
	}
	for _, p := range payloads {
		if p != nil && !json.Valid(p) {
			t.Fatalf("accepted as %q", p)
		}
	}
}

func FuzzDecodeSend(f *testing.F) {
	f.Add([]byte(`{` + hi + `,"context_id":"c","task_id":"t","tags":{"a":"b"},"metadata":{},"deadline":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"message":{"role":"user","parts":[{"data":{"x":[1,null]}},{"raw":"AA=="},{"url":"u"}],"metadata":{"a":{}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := decodeSend(body)
		checkFuzzed(t, err, s.message.Body, s.tags, s.metadata)
		if err == nil && (s.message.FromAgent || s.message.Body == nil) {
			t.Fatalf("half a message: %+v", s)
		}
	})
}

func FuzzNewReport(f *testing.F) {
	f.Add([]byte(`{"state":"completed","artifacts":[{"name":"response","parts":[{"text":"done"},{"data":{"category":"x"}}]}],"message":null,"error":null}`))
	f.Add([]byte(`{"state":"input_required","message":{"role":"agent","parts":[{"text":"which one?"}]}}`))
	f.Add([]byte(`{"state":"failed","error":"ValueError: x"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		rep, err := newReport(body)
		checkFuzzed(t, err, rep.message)
		ids := map[string]bool{}
		for _, e := range rep.events {
			checkFuzzed(t, err, e.Body)
			if e.ArtifactID == "" || len(e.ArtifactID) > maxID || ids[e.ArtifactID] {
				t.Fatalf("artifact id %q", e.ArtifactID)
			}
			ids[e.ArtifactID] = true
		}
		if err == nil {
			again, _ := newReport(body)
			if again.digest != rep.digest || !rep.state.Settled() && rep.state != hub.Working {
				t.Fatalf("state %v, digests %x and %x", rep.state, rep.digest, again.digest)
			}
		}
	})
}

func FuzzDecodeEvents(f *testing.F) {
	f.Add([]byte(`{"events":[{"status":{"state":"working","message":{"role":"agent","parts":[{"text":"x"}]}}},{"artifact":{"artifact_id":"a","parts":[{"text":"x"}]},"append":true,"last_chunk":true,"metadata":{}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		events, err := decodeEvents(body)
		for _, e := range events {
			if err == nil && (e.Kind == 0 || e.Kind == hub.ArtifactEvent && (e.ArtifactID == "" || e.Body == nil)) {
				t.Fatalf("half an event: %+v", e)
			}
			checkFuzzed(t, err, e.Body, e.Metadata)
		}
	})
}
