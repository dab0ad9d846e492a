package canon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/holdfast-hub/holdfast/internal/hub"
	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

const okParts = `"parts":[{"text":"hi"}]`

func TestParseMessageGivesCanonicalJSON(t *testing.T) {
	for _, tt := range []struct {
		name    string
		dialect Dialect
		in      string
		want    string
	}{
		{"members get one order", Protocol,
			`{ "referenceTaskIds":["t1","t2"], "extensions":["urn:x"], "metadata":{"b":1, "a":[ 1 ]}, "parts":[ {"text":"hi"} ], "role":"ROLE_USER", "messageId":"m" }`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}],"metadata":{"b":1,"a":[1]},"extensions":["urn:x"],"referenceTaskIds":["t1","t2"]}`},
		{"snake_case names are the same", Protocol,
			`{"message_id":"m","role":"ROLE_AGENT","parts":[{"media_type":"a/b","url":"u"}],"reference_task_ids":["t"],"context_id":"c","task_id":"t"}`,
			`{"messageId":"m","role":"ROLE_AGENT","parts":[{"url":"u","mediaType":"a/b"}],"referenceTaskIds":["t"]}`},
		{"task, context and unknown members are left out", Protocol,
			`{"messageId":"m","role":"ROLE_USER",` + okParts + `,"taskId":"t","contextId":"c","kind":"message","x":{"y":[1]}}`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`},
		{"null and defaults are left out", Protocol,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi","raw":null,"data":null,"mediaType":"","filename":null,"metadata":null}],"metadata":null,"extensions":[ ],"referenceTaskIds":null,"taskId":"","contextId":null}`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`},
		{"empty metadata is not the default", Protocol,
			`{"messageId":"m","role":"ROLE_USER",` + okParts + `,"metadata":{ }}`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}],"metadata":{}}`},
		{"an enum's number", Protocol,
			`{"messageId":"m","role":2,` + okParts + `}`,
			`{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}`},
		{"every content", Protocol,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":""},{"raw":""},{"raw":"AQID","filename":"f"},{"url":"https://x/"},{"data":{"a": 1.0}},{"data":[]},{"data":false},{"data":0},{"data":""}]}`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":""},{"raw":""},{"raw":"AQID","filename":"f"},{"url":"https://x/"},{"data":{"a":1.0}},{"data":[]},{"data":false},{"data":0},{"data":""}]}`},
		{"base64 becomes standard", Protocol,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"-_-_"},{"raw":"AQ"},{"raw":"AQI"},{"raw":"AQ=="},{"raw":"\/\/\/\/"}]}`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"+/+/"},{"raw":"AQ=="},{"raw":"AQI="},{"raw":"AQ=="},{"raw":"////"}]}`},
		{"text and numbers stay exact", Protocol,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"\u0000 \ud83d\ude00 😀 é \u00e9"},{"data":{"n":9007199254740993,"f":1.10,"e":1E+400,"k\u0000":"\u2028"}}]}`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"\u0000 \ud83d\ude00 😀 é \u00e9"},{"data":{"n":9007199254740993,"f":1.10,"e":1E+400,"k\u0000":"\u2028"}}]}`},
		{"names may be escaped", Protocol,
			`{"message\u0049d":"m","rol\u0065":"ROLE_\u0055SER",` + okParts + `}`,
			`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hi"}]}`},
		{"v1 needs neither id nor role", V1, `{` + okParts + `}`, `{"role":"ROLE_USER","parts":[{"text":"hi"}]}`},
		{"v1 roles", V1, `{"role":"agent",` + okParts + `}`, `{"role":"ROLE_AGENT","parts":[{"text":"hi"}]}`},
		{"v1 takes protocol roles", V1, `{"role":"ROLE_AGENT","messageId":"m",` + okParts + `}`,
			`{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}`},
		{"a callee's message is the agent's", V1Report, `{` + okParts + `}`, `{"role":"ROLE_AGENT","parts":[{"text":"hi"}]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check(t, tt.in)
			m, err := ParseMessage([]byte(tt.in), "message", tt.dialect)
			if err != nil {
				t.Fatalf("ParseMessage: %v", err)
			}
			if string(m.Body) != tt.want {
				t.Errorf("body:\n got %s\nwant %s", m.Body, tt.want)
			}
			if got := strings.Contains(tt.want, "ROLE_AGENT"); m.FromAgent != got {
				t.Errorf("FromAgent = %v, want %v", m.FromAgent, got)
			}
		})
	}
}

// check fails the test if the input is not what Parse functions are given.
func check(t testing.TB, in string) {
	t.Helper()
	if err := rawjson.Check([]byte(in), 64); err != nil {
		t.Fatalf("bad test input: %v", err)
	}
}

func TestParseMessageGivesIDs(t *testing.T) {
	in := `{"messageId":"m\u00e9","role":"ROLE_USER",` + okParts + `,"taskId":"t","contextId":"c"}`
	m, err := ParseMessage([]byte(in), "", Protocol)
	if err != nil {
		t.Fatal(err)
	}
	if m.ID != "mé" || m.TaskID != "t" || m.ContextID != "c" {
		t.Errorf("got id %q, task %q, context %q", m.ID, m.TaskID, m.ContextID)
	}
}

func TestSetIDGivesAnIDOnce(t *testing.T) {
	m, err := ParseMessage([]byte(`{`+okParts+`}`), "", V1)
	if err != nil {
		t.Fatal(err)
	}
	m.SetID(`a"b`)
	m.SetID("other")
	if want := `{"messageId":"a\"b","role":"ROLE_USER","parts":[{"text":"hi"}]}`; string(m.Body) != want || m.ID != `a"b` {
		t.Errorf("message %q: %s", m.ID, m.Body)
	}
	a, err := ParseArtifact([]byte(`{"name":"n",`+okParts+`}`), "", V1)
	if err != nil {
		t.Fatal(err)
	}
	if a.ID != "" || a.Name != "n" {
		t.Errorf("artifact id %q, name %q", a.ID, a.Name)
	}
	a.SetID("a1")
	if want := `{"artifactId":"a1","name":"n","parts":[{"text":"hi"}]}`; string(a.Body) != want || a.ID != "a1" {
		t.Errorf("artifact %q: %s", a.ID, a.Body)
	}
}

func TestParseMessageRefuses(t *testing.T) {
	id := `"messageId":"m"`
	user := id + `,"role":"ROLE_USER"`
	part := func(p string) string { return `{` + user + `,"parts":[{"text":"a"},` + p + `]}` }
	list := func(n int) string { return `[` + strings.TrimSuffix(strings.Repeat(`"x",`, n), ",") + `]` }
	for _, tt := range []struct {
		dialect         Dialect
		in, path, words string
	}{
		{Protocol, ``, "message", "is required"},
		{Protocol, `null`, "message", "must be an object, not null"},
		{Protocol, `"hi"`, "message", "must be an object, not a string"},
		{Protocol, `[]`, "message", "must be an object, not an array"},
		{Protocol, `{"role":"ROLE_USER",` + okParts + `}`, "message.messageId", "is required"},
		{Protocol, `{"messageId":null,"role":"ROLE_USER",` + okParts + `}`, "message.messageId", "is required"},
		{Protocol, `{"messageId":"","role":"ROLE_USER",` + okParts + `}`, "message.messageId", "is required"},
		{Protocol, `{"messageId":7,"role":"ROLE_USER",` + okParts + `}`, "message.messageId", "must be a string, not a number"},
		{Protocol, `{"message_id":7,"role":"ROLE_USER",` + okParts + `}`, "message.message_id", "must be a string"},
		{V1, `{"message_id":true,` + okParts + `}`, "message.message_id", "not a boolean"},
		{Protocol, `{"messageId":"a\u0000","role":"ROLE_USER",` + okParts + `}`, "message.messageId", "U+0000"},
		{Protocol, `{"messageId":"a\u0085","role":"ROLE_USER",` + okParts + `}`, "message.messageId", "U+0085"},
		{Protocol, `{"messageId":"` + strings.Repeat("é", 129) + `","role":"ROLE_USER",` + okParts + `}`, "message.messageId", "258 bytes long; at most 256"},
		{Protocol, `{"messageId":"a","message_id":"a","role":"ROLE_USER",` + okParts + `}`, "message.message_id", "given twice, as messageId too"},
		{Protocol, `{` + id + `,` + okParts + `}`, "message.role", "is required"},
		{Protocol, `{` + id + `,"role":"user",` + okParts + `}`, "message.role", "ROLE_USER or ROLE_AGENT"},
		{Protocol, `{` + id + `,"role":"ROLE_UNSPECIFIED",` + okParts + `}`, "message.role", "not a known role"},
		{Protocol, `{` + id + `,"role":3,` + okParts + `}`, "message.role", "not a known role"},
		{Protocol, `{` + id + `,"role":{},` + okParts + `}`, "message.role", "must be a string, not an object"},
		{V1, `{"role":"assistant",` + okParts + `}`, "message.role", `"user" or "agent"`},
		{V1, `{"role":"",` + okParts + `}`, "message.role", "not a known role"},
		{Protocol, `{` + user + `}`, "message.parts", "is required"},
		{Protocol, `{` + user + `,"parts":null}`, "message.parts", "is required"},
		{Protocol, `{` + user + `,"parts":[]}`, "message.parts", "at least one part"},
		{Protocol, `{` + user + `,"parts":{}}`, "message.parts", "must be an array, not an object"},
		{Protocol, part(`null`), "message.parts[1]", "must be an object, not null"},
		{Protocol, part(`"a"`), "message.parts[1]", "must be an object, not a string"},
		{Protocol, part(`{}`), "message.parts[1]", "has no content"},
		{Protocol, part(`{"data":null}`), "message.parts[1]", "has no content"},
		{Protocol, part(`{"kind":"file","file":{"uri":"x"}}`), "message.parts[1]", "has no content"},
		{Protocol, part(`{"text":"a","url":"b"}`), "message.parts[1]", "has both text and url"},
		{Protocol, part(`{"text":["a"]}`), "message.parts[1].text", "must be a string, not an array"},
		{Protocol, part(`{"url":""}`), "message.parts[1].url", "must not be empty"},
		{Protocol, part(`{"url":1}`), "message.parts[1].url", "must be a string"},
		{Protocol, part(`{"raw":1}`), "message.parts[1].raw", "must be a string"},
		{Protocol, part(`{"raw":"A"}`), "message.parts[1].raw", "its length"},
		{Protocol, part(`{"raw":"AQ="}`), "message.parts[1].raw", "its length"},
		{Protocol, part(`{"raw":"A==="}`), "message.parts[1].raw", "its character 2"},
		{Protocol, part(`{"raw":"AQ==AQ=="}`), "message.parts[1].raw", "its character 3"},
		{Protocol, part(`{"raw":"AQ I"}`), "message.parts[1].raw", "its character 3"},
		{Protocol, part(`{"raw":"AQI\n"}`), "message.parts[1].raw", "its character 4"},
		{Protocol, part(`{"text":"a","mediaType":1}`), "message.parts[1].mediaType", "must be a string"},
		{Protocol, part(`{"text":"a","media_type":1}`), "message.parts[1].media_type", "must be a string"},
		{Protocol, part(`{"text":"a","media_type":"x","mediaType":"x"}`), "message.parts[1].mediaType", "given twice"},
		{Protocol, part(`{"text":"a","filename":"` + strings.Repeat("f", 1025) + `"}`), "message.parts[1].filename", "at most 1024"},
		{Protocol, part(`{"text":"a","metadata":[]}`), "message.parts[1].metadata", "must be an object"},
		{Protocol, `{` + user + `,` + okParts + `,"metadata":"x"}`, "message.metadata", "must be an object"},
		{Protocol, `{` + user + `,` + okParts + `,"extensions":"x"}`, "message.extensions", "must be an array"},
		{Protocol, `{` + user + `,` + okParts + `,"extensions":["x",null]}`, "message.extensions[1]", "must be a string, not null"},
		{Protocol, `{` + user + `,` + okParts + `,"extensions":[""]}`, "message.extensions[0]", "must not be empty"},
		{Protocol, `{` + user + `,` + okParts + `,"extensions":["` + strings.Repeat("u", 2049) + `"]}`, "message.extensions[0]", "at most 2048"},
		{Protocol, `{` + user + `,` + okParts + `,"extensions":` + list(257) + `}`, "message.extensions", "more than 256"},
		{Protocol, `{` + user + `,` + okParts + `,"referenceTaskIds":[1]}`, "message.referenceTaskIds[0]", "must be a string"},
		{Protocol, `{` + user + `,` + okParts + `,"reference_task_ids":["a\u001b"]}`, "message.reference_task_ids[0]", "U+001B"},
		{Protocol, `{` + user + `,` + okParts + `,"taskId":1}`, "message.taskId", "must be a string"},
		{Protocol, `{` + user + `,` + okParts + `,"context_id":"a\nb"}`, "message.context_id", "U+000A"},
		{Protocol, `{` + user + `,` + okParts + `,"contextId":"` + strings.Repeat("c", 257) + `"}`, "message.contextId", "at most 256"},
	} {
		t.Run(tt.path+" "+tt.words, func(t *testing.T) {
			if tt.in != "" {
				check(t, tt.in)
			}
			_, err := ParseMessage([]byte(tt.in), "message", tt.dialect)
			wantInvalid(t, err, tt.path, tt.words)
		})
	}
}

// wantInvalid fails the test unless err is for the client, about the field at path,
// and has the words.
func wantInvalid(t *testing.T, err error, path, words string) {
	t.Helper()
	var e *hub.Error
	if !errors.As(err, &e) || e.Kind != hub.Invalid {
		t.Fatalf("got %v, want an Invalid error", err)
	}
	if e.Field != path || !strings.Contains(e.Message, words) {
		t.Errorf("got %q: %q, want %q: …%s…", e.Field, e.Message, path, words)
	}
}

func TestLimitsAreInclusive(t *testing.T) {
	uris := strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("u", maxURI)+`",`, maxList), ",")
	in := `{"messageId":"` + strings.Repeat("m", maxID) + `","role":"ROLE_USER","extensions":[` + uris + `],` +
		`"parts":[{"text":"","filename":"` + strings.Repeat("f", maxName) + `"}]}`
	check(t, in)
	if _, err := ParseMessage([]byte(in), "", Protocol); err != nil {
		t.Error(err)
	}
}

func TestErrorsOfARootHaveRelativePaths(t *testing.T) {
	_, err := ParseMessage([]byte(`{"parts":[{"raw":1}]}`), "", V1)
	wantInvalid(t, err, "parts[0].raw", "must be a string")
}

func TestParseArtifact(t *testing.T) {
	in := `{"extensions":["urn:x"],"metadata":{"a" :1},"parts":[{"raw":"AQ","media_type":"image/png"}],"description":"d","name":"n","artifact_id":"a","index":3}`
	check(t, in)
	a, err := ParseArtifact([]byte(in), "artifact", Protocol)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"artifactId":"a","name":"n","description":"d","parts":[{"raw":"AQ==","mediaType":"image/png"}],"metadata":{"a":1},"extensions":["urn:x"]}`
	if string(a.Body) != want || a.ID != "a" || a.Name != "n" {
		t.Errorf("artifact %q, name %q:\n got %s\nwant %s", a.ID, a.Name, a.Body, want)
	}
}

func TestParseArtifactRefuses(t *testing.T) {
	for _, tt := range []struct {
		dialect         Dialect
		in, path, words string
	}{
		{Protocol, `7`, "artifacts[0]", "must be an object"},
		{Protocol, `{` + okParts + `}`, "artifacts[0].artifactId", "is required"},
		{V1, `{"artifact_id":1,` + okParts + `}`, "artifacts[0].artifact_id", "must be a string"},
		{V1, `{"artifact_id":"\u007f",` + okParts + `}`, "artifacts[0].artifact_id", "U+007F"},
		{V1, `{"name":"n"}`, "artifacts[0].parts", "is required"},
		{V1, `{"parts":[]}`, "artifacts[0].parts", "is empty"},
		{V1, `{"name":1,` + okParts + `}`, "artifacts[0].name", "must be a string"},
		{V1, `{"name":"` + strings.Repeat("n", 1025) + `",` + okParts + `}`, "artifacts[0].name", "at most 1024"},
		{V1, `{"description":[],` + okParts + `}`, "artifacts[0].description", "must be a string"},
		{V1, `{"metadata":1,` + okParts + `}`, "artifacts[0].metadata", "must be an object"},
		{V1, `{"extensions":{},` + okParts + `}`, "artifacts[0].extensions", "must be an array"},
	} {
		t.Run(tt.path+" "+tt.words, func(t *testing.T) {
			check(t, tt.in)
			_, err := ParseArtifact([]byte(tt.in), "artifacts[0]", tt.dialect)
			wantInvalid(t, err, tt.path, tt.words)
		})
	}
}

func TestTextMessageIsCanonical(t *testing.T) {
	for _, fromAgent := range []bool{false, true} {
		body := TextMessage("id-1", fromAgent, "a \"b\"\n\x00é")
		m, err := ParseMessage(body, "", Protocol)
		if err != nil {
			t.Fatal(err)
		}
		if string(m.Body) != string(body) || m.FromAgent != fromAgent || m.ID != "id-1" {
			t.Errorf("%s reads as %+v", body, m)
		}
	}
}

func TestObject(t *testing.T) {
	for in, want := range map[string]string{"": "", "null": "", " null ": "", "{}": "{}", ` { "a" : [ 1 , " " ] } `: `{"a":[1," "]}`} {
		got, err := Object([]byte(in), "metadata")
		if err != nil || string(got) != want || (got == nil) != (want == "") {
			t.Errorf("Object(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	_, err := Object([]byte(`[]`), "params.metadata")
	wantInvalid(t, err, "params.metadata", "must be an object, not an array")
}

func TestTags(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "null": "", "{}": "", `{"a":null}`: "",
		` { "a" : "1", "é":"\u0000", "n":null } `:                                `{"a":"1","é":"\u0000"}`,
		`{"` + strings.Repeat("k", 64) + `":"` + strings.Repeat("v", 256) + `"}`: `{"` + strings.Repeat("k", 64) + `":"` + strings.Repeat("v", 256) + `"}`,
	} {
		got, err := Tags([]byte(in), "tags")
		if err != nil || string(got) != want || (got == nil) != (want == "") {
			t.Errorf("Tags(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestTagsRefuses(t *testing.T) {
	many := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"t%d":"x"`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	if _, err := Tags([]byte(many(64)), "tags"); err != nil {
		t.Errorf("64 tags: %v", err)
	}
	for _, tt := range []struct{ in, path, words string }{
		{`[]`, "tags", "must be an object"},
		{`{"a":1}`, "tags.a", "must be a string, not a number"},
		{`{"a b":1}`, `tags["a b"]`, "must be a string"},
		{`{"":"x"}`, "tags", "name of 0 bytes"},
		{`{"` + strings.Repeat("k", 65) + `":""}`, "tags", "name of 65 bytes"},
		{`{"k":"` + strings.Repeat("v", 257) + `"}`, "tags.k", "at most 256"},
		{many(65), "tags", "more than 64"},
	} {
		_, err := Tags([]byte(tt.in), "tags")
		wantInvalid(t, err, tt.path, tt.words)
	}
}

// FuzzParseMessage holds that whatever a client sends is either refused for a stated
// reason or becomes JSON that means the same to everyone who reads it.
func FuzzParseMessage(f *testing.F) {
	for _, s := range []string{
		`{"messageId":"m","role":"ROLE_USER","parts":[{"text":"\ud83d\ude00"},{"raw":"-_"},{"url":"u"},{"data":[1e9, null]}]}`,
		`{"message_id":"m\u00e9","role":2,"parts":[{"text":"","media_type":"x","metadata":{}}],"reference_task_ids":["t"],"extensions":[]}`,
		`{"role":"agent","parts":[{"data":{"mediaType":{"media_type":0}},"filename":"\/"}],"metadata":{"":9007199254740993}}`,
		`{"messageId":"","role":null,"parts":[{}]}`, `{"parts":"`, `[`, `"`, ``, "\x00",
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, in []byte, protocol bool) {
		d := V1
		if protocol {
			d = Protocol
		}
		valid := rawjson.Check(in, 64) == nil
		m, err := ParseMessage(in, "m", d)
		var e *hub.Error
		if err != nil && (!errors.As(err, &e) || e.Kind != hub.Invalid || !strings.HasPrefix(e.Field, "m")) {
			t.Fatalf("error not for the client: %v", err)
		}
		if err != nil || !valid {
			return // unchecked input need only not panic
		}
		m.SetID("fresh")
		mustReadBack(t, m)
	})
}

// mustReadBack fails the test unless a message's body is stable and readable by
// other programs.
func mustReadBack(t *testing.T, m Message) {
	t.Helper()
	if err := rawjson.Check(m.Body, 64); err != nil {
		t.Fatalf("not valid JSON: %v\n%s", err, m.Body)
	}
	again, err := ParseMessage(m.Body, "", Protocol)
	if err != nil {
		t.Fatalf("canonical form is refused: %v\n%s", err, m.Body)
	}
	if string(again.Body) != string(m.Body) || again.ID != m.ID || again.FromAgent != m.FromAgent {
		t.Fatalf("not stable:\n%s\n%s", m.Body, again.Body)
	}
	v1 := AppendMessageV1(nil, m.Body)
	back, err := ParseMessage(v1, "", V1)
	if err != nil || string(back.Body) != string(m.Body) {
		t.Fatalf("/v1's form does not lead back: %v\n%s\n%s", err, v1, m.Body)
	}
	for _, part := range partsOf(t, m.Body) {
		if _, isRaw := part["raw"]; !isRaw {
			continue
		}
		var p a2a.Part
		raw, _ := json.Marshal(part)
		if err := json.Unmarshal(raw, &p); err != nil {
			t.Fatalf("other readers refuse the base64: %v\n%s", err, m.Body)
		}
	}
}

func partsOf(t *testing.T, body []byte) []map[string]json.RawMessage {
	t.Helper()
	var m struct{ Parts []map[string]json.RawMessage }
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatal(err)
	}
	return m.Parts
}

// message1K is a message of about 1 KB as clients send it.
func message1K() []byte {
	return []byte(`{"messageId":"0198c0de-0000-7000-8000-000000000001","contextId":"0198c0de-0000-7000-8000-000000000002","role":"ROLE_USER",` +
		`"parts":[{"text":"` + strings.Repeat("Summarise the report. ", 32) + `"},{"data":{"customer":4711,"tags":["a","b"]},"mediaType":"application/json"}],` +
		`"metadata":{"priority":"high","attempt":1},"extensions":["https://example.com/ext/v1"]}`)
}

func BenchmarkParseMessage(b *testing.B) {
	in := message1K()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseMessage(in, "message", Protocol); err != nil {
			b.Fatal(err)
		}
	}
}
