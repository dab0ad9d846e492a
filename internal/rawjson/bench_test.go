package rawjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// request is what a typical A2A client sends: a JSON-RPC call of about 1 KB, in
// the compact form in which the hub keeps it.
var request = compacted(`{
  "jsonrpc": "2.0",
  "id": "7f1c2a54-5c0e-4d43-9a57-0a6f1f1d6c3e",
  "method": "SendMessage",
  "params": {
    "tenant": "acme",
    "message": {
      "messageId": "0197a6d2-91d0-7c4e-8f3a-2b5de1a0c9f4",
      "contextId": "0197a6d2-0b1c-7a2e-b2f7-64c1b7d5e012",
      "taskId": "0197a6d2-3c77-7d10-9a41-e0d3a1f4b855",
      "role": "ROLE_USER",
      "parts": [
        {"text": "Please compare the two quarterly reports that are attached.\nFor each region give me:\n\t- revenue, against last year\n\t- the three largest customers\nand say which figures you are \"not sure\" about. Danke schön – Grüße aus Köln."},
        {"url": "https://files.example.com/reports/2026-q1.pdf", "filename": "2026-q1.pdf", "mediaType": "application/pdf"},
        {"data": {"regions": ["EMEA", "APAC", "AMER"], "minimum": 25000.5, "currency": "EUR", "draft": false}}
      ],
      "metadata": {"https://example.com/ext/trace/v1": {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}
    },
    "configuration": {"acceptedOutputModes": ["text/plain", "application/json"], "historyLength": 10, "returnImmediately": true},
    "metadata": null
  }
}`)

func compacted(s string) []byte {
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(s)); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// pick reads the members that a hot route needs from the request.
func pick(req []byte) (method, role string, history int64, err error) {
	var params, message []byte
	err = Members(req, func(name string, value []byte) (err error) {
		switch name {
		case "method":
			method, err = Text(value)
		case "params":
			params = value
		}
		return err
	})
	if err != nil {
		return
	}
	err = Members(params, func(name string, value []byte) error {
		switch name {
		case "message":
			message = value
		case "configuration":
			return Members(value, func(name string, value []byte) (err error) {
				if name == "historyLength" {
					history, err = Integer(value)
				}
				return err
			})
		}
		return nil
	})
	if err != nil {
		return
	}
	err = Members(message, func(name string, value []byte) (err error) {
		if name == "role" {
			role, err = Text(value)
		}
		return err
	})
	return
}

func BenchmarkCheck(b *testing.B) {
	prose := AppendText(nil, strings.Repeat("The quick brown fox jumps over the lazy dog. ", 1500))
	foreign := AppendText(nil, strings.Repeat("Съешь же ещё этих мягких булок, да выпей чаю. ", 800))
	inputs := []struct {
		name string
		b    []byte
	}{{"request", request}, {"ascii64K", prose}, {"cyrillic64K", foreign}}
	for _, in := range inputs {
		b.Run(in.name, func(b *testing.B) {
			b.SetBytes(int64(len(in.b)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Check(in.b, 64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkMembers walks the members of the request: "top" only the four
// outermost, "pick" as a route does.
func BenchmarkMembers(b *testing.B) {
	b.Run("top", func(b *testing.B) {
		b.SetBytes(int64(len(request)))
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			err := Members(request, func(string, []byte) error { n++; return nil })
			if err != nil || n != 4 {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("pick", func(b *testing.B) {
		b.SetBytes(int64(len(request)))
		b.ReportAllocs()
		for b.Loop() {
			if _, role, history, err := pick(request); err != nil || role != "ROLE_USER" || history != 10 {
				b.Fatal(role, history, err)
			}
		}
	})
}

// BenchmarkStandard is the same work by encoding/json, to compare with.
func BenchmarkStandard(b *testing.B) {
	b.Run("valid", func(b *testing.B) {
		b.SetBytes(int64(len(request)))
		b.ReportAllocs()
		for b.Loop() {
			if !json.Valid(request) {
				b.Fatal("not valid")
			}
		}
	})
	b.Run("unmarshal", func(b *testing.B) {
		b.SetBytes(int64(len(request)))
		b.ReportAllocs()
		for b.Loop() {
			var v struct {
				Method string
				Params struct {
					Message       struct{ Role string }
					Configuration struct{ HistoryLength int64 }
				}
			}
			if err := json.Unmarshal(request, &v); err != nil || v.Params.Message.Role != "ROLE_USER" {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkText(b *testing.B) {
	raw := AppendText(nil, strings.Repeat("A line of text, with \"quotes\".\n", 30))
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Text(raw); err != nil {
			b.Fatal(err)
		}
	}
}
