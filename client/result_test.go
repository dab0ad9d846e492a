package client

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestWhatAHandlerReturnsIsAResult(t *testing.T) {
	type answer struct {
		Grade int    `json:"grade"`
		Note  string `json:"note"`
	}
	response := func(parts ...Part) Result {
		return Result{State: StateCompleted, Artifacts: []Artifact{{Name: "response", Parts: parts}}}
	}
	data := func(s string) Part { return Part{Data: json.RawMessage(s)} }
	own := Artifact{Name: "log", Parts: []Part{Text("x")}}
	var noArtifact *Artifact
	var noMap map[string]any
	var noStruct *answer
	tests := map[string]struct {
		v    any
		err  error
		want Result
	}{
		"nil":            {nil, nil, Result{State: StateCompleted}},
		"string":         {"done", nil, response(Text("done"))},
		"empty string":   {"", nil, response(Text(""))},
		"map":            {map[string]any{"a": 1}, nil, response(data(`{"a":1}`))},
		"struct":         {answer{9, "<ok>"}, nil, response(data(`{"grade":9,"note":"<ok>"}`))},
		"pointer":        {&answer{9, ""}, nil, response(data(`{"grade":9,"note":""}`))},
		"raw JSON":       {json.RawMessage(`{"n":9007199254740993}`), nil, response(data(`{"n":9007199254740993}`))},
		"number":         {7, nil, response(data(`7`))},
		"list":           {[]int{1, 2}, nil, response(data(`[1,2]`))},
		"bytes":          {[]byte("hi"), nil, response(File("", "application/octet-stream", []byte("hi")))},
		"parts":          {[]Part{Text("a"), Text("b")}, nil, response(Text("a"), Text("b"))},
		"artifact":       {own, nil, Result{State: StateCompleted, Artifacts: []Artifact{own}}},
		"artifacts":      {[]Artifact{own, own}, nil, Result{State: StateCompleted, Artifacts: []Artifact{own, own}}},
		"nil artifact":   {noArtifact, nil, Result{State: StateCompleted}},
		"nil map":        {noMap, nil, Result{State: StateCompleted}},
		"nil pointer":    {noStruct, nil, Result{State: StateCompleted}},
		"message":        {Message{Parts: []Part{Text("bye")}}, nil, Result{State: StateCompleted, Message: &Message{Role: "agent", Parts: []Part{Text("bye")}}}},
		"whole result":   {Result{State: StateRejected}, nil, Result{State: StateRejected}},
		"error":          {nil, errors.New("no disk"), failed("no disk")},
		"error wins":     {"half", errors.New("no disk"), failed("no disk")},
		"returned error": {errors.New("no disk"), nil, failed("no disk")},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, resultOf(tt.v, tt.err)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestWhatCannotBeEncodedFailsTheTask(t *testing.T) {
	for name, v := range map[string]any{
		"channel": make(chan int), "not a number": math.NaN(), "no parts": []Part{}, "message without parts": Message{},
	} {
		r := resultOf(v, nil)
		if r.State != StateFailed || r.Error == nil || !strings.Contains(*r.Error, "cannot be reported") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAFailureTextIsCutAtACharacter(t *testing.T) {
	for name, tt := range map[string]struct {
		in   string
		want int
	}{
		"short":     {"boom", 4},
		"at limit":  {strings.Repeat("é", 4000), 4000},
		"beyond":    {strings.Repeat("é", 4001), 4000},
		"astral":    {strings.Repeat("🍸", 5000), 4000},
		"not UTF-8": {"a\xff\xfeb", 3},
	} {
		got := *failed(tt.in).Error
		if n := utf8.RuneCountInString(got); n != tt.want || !utf8.ValidString(got) {
			t.Errorf("%s: %d characters, valid %v", name, n, utf8.ValidString(got))
		}
	}
	if got := *failed(" ").Error; strings.TrimSpace(got) == "" {
		t.Error("a failure without a text needs one")
	}
}

func TestDecodeReadsDataPartsAndJSONTexts(t *testing.T) {
	type in struct {
		A json.Number `json:"a"`
		B string      `json:"b"`
	}
	data := func(s string) Part { return Part{Data: json.RawMessage(s)} }
	for name, tt := range map[string]struct {
		parts []Part
		want  in
		fails bool
	}{
		"one data part":   {[]Part{Text("see"), data(`{"a":9007199254740993,"b":"x"}`)}, in{"9007199254740993", "x"}, false},
		"merged":          {[]Part{data(`{"a":1,"b":"x"}`), data(`{"a":9007199254740993}`)}, in{"9007199254740993", "x"}, false},
		"JSON as text":    {[]Part{Text(`{"a":1,"b":"x"}`)}, in{"1", "x"}, false},
		"neither":         {[]Part{Text(`hello`)}, in{}, true},
		"nothing":         {nil, in{}, true},
		"the wrong shape": {[]Part{data(`[1]`)}, in{}, true},
	} {
		var got in
		err := decodeParts(tt.parts, &got)
		if (err != nil) != tt.fails || got != tt.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	var s string
	if err := decodeParts([]Part{Text("a"), Text("b")}, &s); err != nil || s != "a\nb" {
		t.Errorf("%q, %v", s, err)
	}
}
