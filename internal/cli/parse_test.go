package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/client"
	"github.com/holdfast-hub/holdfast/wire"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string][2]string{
		"@echo":                            {"", "echo"},
		"echo":                             {"", "echo"},
		"http://127.0.0.1:7420/a/echo":     {"http://127.0.0.1:7420", "echo"},
		"https://x.test/hub/a/echo/":       {"https://x.test/hub", "echo"},
		"":                                 {},
		"@":                                {},
		"a b":                              {},
		"a/b":                              {},
		"http://x.test/echo":               {},
		"http://x.test/a/":                 {},
		"http://x.test/a/echo/rpc":         {},
		"http://user:secret@x.test/a/echo": {},
		"http://x.test/a/echo?q":           {},
		"ftp://x.test/a/echo":              {},
		"http://x.test/a/%zz":              {},
	} {
		base, handle, err := parseAddress(in)
		if (err == nil) != (want[1] != "") || base != want[0] || handle != want[1] {
			t.Errorf("parseAddress(%q) = %q, %q, %v; want %q", in, base, handle, err, want)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range []string{"@echo", "echo", "http://x.test/a/echo", "http://x.test/p/a/e/", "http://", "@@", "://"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		base, handle, err := parseAddress(s)
		if err != nil {
			return
		}
		if handle == "" || strings.Contains(handle, "/") {
			t.Fatalf("%q gave the handle %q", s, handle)
		}
		if base == "" {
			return
		}
		again, handle2, err := parseAddress(base + "/a/" + handle)
		if err == nil && (!sameURL(again, base) || handle2 != handle) {
			t.Fatalf("%q gave %q and %q, and those %q and %q", s, base, handle, again, handle2)
		}
	})
}

func FuzzParseMessage(f *testing.F) {
	for _, s := range []string{
		`{"role":"ROLE_USER","parts":[{"text":"a"}]}`, `{"message_id":"m","parts":[{"raw":"aGk=","media_type":"x/y"}]}`,
		`{"messageId":"m","taskId":"t","contextId":"c","referenceTaskIds":["x"],"parts":[{"data":{"n":1},"mediaType":"a/b"}]}`,
		`{}`, `[]`, `null`, `{"parts":null}`, `{} {}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := parseMessage(b)
		if err == nil && strings.HasPrefix(out.message.Role, "role_") {
			t.Fatalf("%q gave the role %q", b, out.message.Role)
		}
		_, _ = parseParts(b) // must not panic
	})
}

// TestDemoFindsLoss makes sure that the demo's own checks fail when they should.
func TestDemoFindsLoss(t *testing.T) {
	text := "one two three four"
	end := func(state, result string) demoEnd {
		return demoEnd{asked: 1, progress: 4, task: &client.Task{Task: wire.Task{
			State: state, Artifacts: []client.Artifact{{Parts: []client.Part{client.Text(result)}}},
		}}}
	}
	broken := "out of memory"
	for name, c := range map[string]struct {
		expect func(string, demoEnd) error
		end    demoEnd
		bad    bool
	}{
		"report":             {expectReport, end("completed", report(text, 4)), false},
		"report of less":     {expectReport, end("completed", report(text, 3)), true},
		"unfinished report":  {expectReport, end("working", report(text, 4)), true},
		"asked":              {expectAsked, end("completed", "ONE TWO THREE FOUR"), false},
		"asked nothing":      {expectAsked, func() demoEnd { e := end("completed", "ONE TWO THREE FOUR"); e.asked = 0; return e }(), true},
		"spelled":            {expectSpelled, end("completed", "eno owt eerht ruof "), false},
		"spelled twice":      {expectSpelled, end("completed", "eno owt owt eerht ruof "), true},
		"failed otherwise":   {expectFailed, demoEnd{task: &client.Task{Task: wire.Task{State: "failed", Error: &broken}}}, true},
		"should have failed": {expectFailed, end("completed", refusal), true},
	} {
		if err := c.expect(text, c.end); (err != nil) != c.bad {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTailKeepsTheEnd(t *testing.T) {
	var x tail
	for range 100 {
		if _, err := x.Write([]byte(strings.Repeat("x", 99) + "\n")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := x.Write([]byte("the end\n")); err != nil {
		t.Fatal(err)
	}
	if s := x.String(); len(s) > maxTail || !strings.HasSuffix(s, "the end") || len(x.b) > 3*maxTail {
		t.Errorf("%d bytes of %d, ending with %q", len(s), len(x.b), s[len(s)-10:])
	}
}

func TestClassifyKeepsTimeoutsOfTheHubApart(t *testing.T) {
	p := &program{}
	slow := errors.Join(client.ErrUnreachable, context.DeadlineExceeded)
	if f := p.classify(t.Context(), slow); f.exit != exitUnreachable {
		t.Errorf("exit code %d", f.exit)
	}
	if f := p.classify(t.Context(), &client.Error{Status: 409, Code: "x", Message: "m", RequestID: "r"}); f.exit != exitConflict || f.code != "x" || f.requestID != "r" {
		t.Errorf("%+v", f)
	}
}
