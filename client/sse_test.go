package client

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

type plainEvent struct{ ID, Name, Data string }

// readAll reads events until the first error.
func readAll(r io.Reader, limit int) ([]plainEvent, error) {
	s := newSSEReader(r, limit)
	var all []plainEvent
	for {
		ev, err := s.next()
		if err != nil {
			return all, err
		}
		all = append(all, plainEvent{ev.id, ev.name, string(ev.data)})
	}
}

func TestSSEReader(t *testing.T) {
	tests := map[string]struct {
		in   string
		want []plainEvent
	}{
		"one event":                   {"id: 1\ndata: a\n\n", []plainEvent{{"1", "", "a"}}},
		"without spaces":              {"id:1\nevent:x\ndata:a\n\n", []plainEvent{{"1", "x", "a"}}},
		"only one space goes":         {"data:  a\n\n", []plainEvent{{"", "", " a"}}},
		"several data lines":          {"data: a\ndata\ndata: b\n\n", []plainEvent{{"", "", "a\n\nb"}}},
		"CR LF":                       {"id: 1\r\ndata: a\r\n\r\ndata: b\r\n\r\n", []plainEvent{{"1", "", "a"}, {"", "", "b"}}},
		"CR":                          {"data: a\r\rdata: b\r\r", []plainEvent{{"", "", "a"}, {"", "", "b"}}},
		"comments":                    {":\n\n: hello\ndata: a\n:\n\n", []plainEvent{{"", "", "a"}}},
		"byte order mark":             {"\ufeffdata: a\n\n", []plainEvent{{"", "", "a"}}},
		"an id goes no further":       {"id: 1\ndata: a\n\ndata: b\n\n", []plainEvent{{"1", "", "a"}, {"", "", "b"}}},
		"no data, no event":           {"id: 1\nevent: x\n\ndata: a\n\n", []plainEvent{{"", "", "a"}}},
		"empty data is an event":      {"data:\n\n", []plainEvent{{"", "", ""}}},
		"the unfinished is dropped":   {"data: a\n\ndata: b\n", []plainEvent{{"", "", "a"}}},
		"the unended line is dropped": {"data: a\n\ndata: b", []plainEvent{{"", "", "a"}}},
		"an id with NUL is ignored":   {"id: 1\x00\ndata: a\n\n", []plainEvent{{"", "", "a"}}},
		"unknown fields are ignored":  {"retry: 5\nfoo: x\ndata: a\n\n", []plainEvent{{"", "", "a"}}},
		"nothing":                     {"", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				got, err := readAll(r, 1000)
				if !errors.Is(err, io.EOF) {
					t.Errorf("err = %v, want EOF", err)
				}
				if d := cmp.Diff(tt.want, got); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestSSEReaderRefusesWhatIsTooLarge(t *testing.T) {
	const limit = 100
	for name, in := range map[string]string{
		"a line":       "data: " + strings.Repeat("x", limit) + "\n\n",
		"many lines":   strings.Repeat("data: "+strings.Repeat("x", 30)+"\n", 4) + "\n",
		"a comment":    ":" + strings.Repeat("x", 1<<16),
		"one line, CR": "data: " + strings.Repeat("x", limit) + "\r\r",
	} {
		if _, err := readAll(strings.NewReader(in), limit); !errors.Is(err, errEventTooLarge) {
			t.Errorf("%s: err = %v", name, err)
		}
	}
	if got, err := readAll(strings.NewReader("data: "+strings.Repeat("x", limit-6)+"\n\n"), limit); !errors.Is(err, io.EOF) || len(got) != 1 {
		t.Errorf("at the limit: %d events, %v", len(got), err)
	}
}

// However the bytes arrive, the events are the same; none exceeds the limit.
func FuzzSSEReader(f *testing.F) {
	for _, s := range []string{
		"id: 1\ndata: a\n\n", ":\n\ndata: a\r\n\r\n", "\ufeffdata:x\r\rdata", "data: a\ndata: b\n\nid: \x00\n\n", "\r\n\r\r\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		const limit = 64
		whole, err1 := readAll(strings.NewReader(string(in)), limit)
		split, err2 := readAll(iotest.OneByteReader(strings.NewReader(string(in))), limit)
		if d := cmp.Diff(whole, split); d != "" {
			t.Error(d)
		}
		if !errors.Is(err1, err2) {
			t.Errorf("%v in one piece, %v in many", err1, err2)
		}
		for _, ev := range whole {
			if len(ev.Data) > limit || strings.ContainsAny(ev.ID+ev.Name, "\r\n") {
				t.Errorf("%q", ev)
			}
		}
	})
}
