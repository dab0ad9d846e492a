package a2a

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

// TestReadRequest is the envelope of JSON-RPC 2.0 section 4: what is taken, what is
// refused with which error, and under which id the refusal goes out.
func TestReadRequest(t *testing.T) {
	const ok = reason("")
	deep := strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000)
	for _, c := range []struct {
		name, body string
		want       reason
		id         string // of the answer; empty for null
	}{
		{"string id", `{"jsonrpc":"2.0","id":"a","method":"GetTask","params":{}}`, ok, `"a"`},
		{"integer id", `{"jsonrpc":"2.0","id":7,"method":"GetTask"}`, ok, `7`},
		{"id kept as written", `{"jsonrpc":"2.0","id":1.0e0,"method":"GetTask"}`, ok, `1.0e0`},
		{"big id kept exactly", `{"jsonrpc":"2.0","id":9007199254740993,"method":"GetTask"}`, ok, `9007199254740993`},
		{"escaped id kept as written", `{"jsonrpc":"2.0","id":"\u0041","method":"GetTask"}`, ok, `"\u0041"`},
		{"null id", `{"jsonrpc":"2.0","id":null,"method":"GetTask"}`, ok, `null`},
		{"space around, unknown members", " \n" + `{"x":[1], "jsonrpc" : "2.0", "id" : 1, "method":"GetTask"}` + "\n", ok, `1`},

		{"empty", ``, parseError, ``},
		{"cut short", `{"jsonrpc":"2.0","id":1,"method":"GetTa`, parseError, ``},
		{"two values", `{} {}`, parseError, ``},
		{"not UTF-8", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}", parseError, ``},
		{"deeper than any parser", deep + deep, parseError, ``},

		{"batch", `[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]`, invalidRequest, ``},
		{"empty batch", `[]`, invalidRequest, ``},
		{"scalar", `"GetTask"`, invalidRequest, ``},
		{"no version", `{"id":1,"method":"GetTask"}`, invalidRequest, `1`},
		{"other version", `{"jsonrpc":"1.0","id":1,"method":"GetTask"}`, invalidRequest, `1`},
		{"version is a number", `{"jsonrpc":2.0,"id":1,"method":"GetTask"}`, invalidRequest, `1`},
		{"no method", `{"jsonrpc":"2.0","id":1}`, invalidRequest, `1`},
		{"method is a number", `{"jsonrpc":"2.0","id":1,"method":1}`, invalidRequest, `1`},
		{"method is empty", `{"jsonrpc":"2.0","id":1,"method":""}`, invalidRequest, `1`},
		{"no id", `{"jsonrpc":"2.0","method":"GetTask"}`, ok, ``},
		{"id is an object", `{"jsonrpc":"2.0","id":{},"method":"GetTask"}`, invalidRequest, ``},
		{"id is true", `{"jsonrpc":"2.0","id":true,"method":"GetTask"}`, invalidRequest, ``},
		{"id too long", `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 255) + `","method":"GetTask"}`, invalidRequest, ``},
		{"member twice", `{"jsonrpc":"2.0","id":1,"method":"GetTask","method":"CancelTask"}`, invalidRequest, `1`},

		{"lone surrogate", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"x":"\ud800"}}`, invalidParams, `1`},
		{"parameter twice", `{"jsonrpc":"2.0","id":"a","method":"GetTask","params":{"id":"1","id":"2"}}`, invalidParams, `"a"`},
		{"too deep", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":` + deep[10_000-64:10_000+64] + `}}`, ok, `1`},
		{"one too deep", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"x":` + deep[10_000-65:10_000+65] + `}}`, invalidParams, `1`},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, err := readRequest([]byte(c.body))
			var f *fault
			errors.As(err, &f)
			switch {
			case c.want == ok && err != nil:
				t.Fatalf("refused: %v", err)
			case c.want != ok && (f == nil || f.reason != c.want):
				t.Fatalf("got %v, want %s", err, c.want)
			case string(req.id) != c.id:
				t.Errorf("id %s, want %s", req.id, c.id)
			}
		})
	}
}

// TestInvalidParameterNamesItsField: a value that is JSON but not acceptable is
// refused with the path of the parameter.
func TestInvalidParameterNamesItsField(t *testing.T) {
	_, err := readRequest([]byte(`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"parts":[{"text":"\udc00"}]}}}`))
	var f *fault
	if !errors.As(err, &f) || f.field != "message.parts[0].text" {
		t.Errorf("got %+v, want the field message.parts[0].text", f)
	}
}

// TestErrorCodes pins the numbers of spec sections 5.4 and 9.5 and, below, our own.
func TestErrorCodes(t *testing.T) {
	for r, want := range map[reason][2]int{
		parseError: {-32700, 200}, invalidRequest: {-32600, 200}, methodNotFound: {-32601, 200},
		invalidParams: {-32602, 200}, internalError: {-32603, 500},
		taskNotFound: {-32001, 200}, taskNotCancelable: {-32002, 200}, pushNotSupported: {-32003, 200},
		unsupportedOperation: {-32004, 200}, contentTypeUnsupported: {-32005, 200}, versionNotSupported: {-32009, 200},

		unauthenticated: {-31401, 401}, unauthorized: {-31403, 403}, rateLimited: {-31429, 429}, unavailable: {-31503, 503},
		keyReused: {-32602, 200}, conflict: {-32602, 200}, tooLarge: {-32602, 413},
	} {
		if code, status := codeOf(r); code != want[0] || status != want[1] {
			t.Errorf("%s: %d with status %d, want %d with %d", r, code, status, want[0], want[1])
		}
	}
}

// TestKindsOfErrors: every kind of error that the hub knows has a reason of its own
// choosing, and only Internal is internal.
func TestKindsOfErrors(t *testing.T) {
	for k := hub.Internal + 1; k <= hub.Exists; k++ {
		if reasonOf(k) == internalError {
			t.Errorf("kind %d has no reason", k)
		}
	}
}

// TestErrorShape pins what clients parse (spec section 9.5).
func TestErrorShape(t *testing.T) {
	got := string(appendError(nil, []byte(`"1"`), &fault{reason: invalidParams, message: `say "x"`, field: "id"}))
	want := `{"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"say \"x\"","data":[` +
		`{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS","domain":"a2a-protocol.org"},` +
		`{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"id","description":"say \"x\""}]}]}}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if none := string(appendError(nil, nil, &fault{reason: parseError})); !strings.HasPrefix(none, `{"jsonrpc":"2.0","id":null,`) {
		t.Errorf("without an id: %s", none)
	}
}

// FuzzReadRequest: whatever comes, the outcome is a request or a fault, and its id
// can go into an answer.
func FuzzReadRequest(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}}`,
		`{"jsonrpc":"2.0","id":1e9999,"method":"GetTask","params":[]}`, `[]`, `{}`, `{"id":"\ud800"}`, `{"id":1,"id":2}`, "\x00", `{"params":{"a":{"a":1,"a":2}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := readRequest(body)
		var refused *fault
		if err != nil && !errors.As(err, &refused) {
			t.Fatalf("an error that is no fault: %v", err)
		}
		if answer := append(appendResponse(nil, req.id, "result"), `{}}`...); !json.Valid(answer) {
			t.Fatalf("not JSON: %s", answer)
		}
		if err == nil {
			for _, decode := range []func([]byte) error{
				func(p []byte) error { _, err := decodeSend(p); return err },
				func(p []byte) error { _, err := decodeTask(p); return err },
				func(p []byte) error { _, err := decodeList(p); return err },
			} {
				if err := decode(req.params); err != nil && hub.KindOf(err) != hub.Invalid {
					t.Fatalf("decoding: %v", err)
				}
			}
		}
	})
}
