package canon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

func TestFoldAppendsAChunk(t *testing.T) {
	first := `{"artifactId":"a","name":"n","description":"d","parts":[{"text":"1"}],"metadata":{"x":1,"y":{"z":1}},"extensions":["urn:1"]}`
	for _, tt := range []struct{ name, chunk, want string }{
		{"parts follow", `{"artifactId":"a","parts":[{"text":"2"},{"data":[]}]}`,
			`{"artifactId":"a","name":"n","description":"d","parts":[{"text":"1"},{"text":"2"},{"data":[]}],"metadata":{"x":1,"y":{"z":1}},"extensions":["urn:1"]}`},
		{"what the chunk says replaces", `{"artifactId":"a","name":"n2","description":"d2","parts":[{"text":"2"}],"extensions":["urn:2"]}`,
			`{"artifactId":"a","name":"n2","description":"d2","parts":[{"text":"1"},{"text":"2"}],"metadata":{"x":1,"y":{"z":1}},"extensions":["urn:2"]}`},
		{"metadata is overlaid, not merged deeply", `{"artifactId":"a","parts":[{"text":"2"}],"metadata":{"y":{"w":9007199254740993},"v":null}}`,
			`{"artifactId":"a","name":"n","description":"d","parts":[{"text":"1"},{"text":"2"}],"metadata":{"x":1,"y":{"w":9007199254740993},"v":null},"extensions":["urn:1"]}`},
		{"names are compared as text", `{"artifactId":"a","parts":[{"text":"2"}],"metadata":{"\u0078":2}}`,
			`{"artifactId":"a","name":"n","description":"d","parts":[{"text":"1"},{"text":"2"}],"metadata":{"x":2,"y":{"z":1}},"extensions":["urn:1"]}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Fold([]byte(first), []byte(tt.chunk))
			if err != nil || string(got) != tt.want {
				t.Errorf("%v\n got %s\nwant %s", err, got, tt.want)
			}
		})
	}
}

func TestFoldAllOfOneAndNone(t *testing.T) {
	one := []byte(`{"artifactId":"a","parts":[{"text":"1"}]}`)
	if got, err := FoldAll([][]byte{one}); err != nil || !bytes.Equal(got, one) {
		t.Errorf("one chunk gives %s, %v", got, err)
	}
	if _, err := FoldAll(nil); err == nil {
		t.Error("no chunk gives no error")
	}
	if _, err := Fold(one, []byte(`{"parts`)); err == nil {
		t.Error("a torn chunk gives no error")
	}
}

func TestFoldAllOfTenThousandChunksIsLinear(t *testing.T) {
	const n = 10_000
	chunks, size := make([][]byte, n), 0
	for i := range chunks {
		chunks[i] = fmt.Appendf(nil, `{"artifactId":"a","parts":[{"text":"chunk %d"}],"metadata":{"k%d":%d,"last":%d}}`, i, i, i, i)
		size += len(chunks[i])
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := FoldAll(chunks)
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Parts    []json.RawMessage
		Metadata map[string]int
	}
	if err := json.Unmarshal(got, &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Parts) != n || len(a.Metadata) != n+1 || a.Metadata["last"] != n-1 {
		t.Errorf("%d chunks give %d parts and %d members", n, len(a.Parts), len(a.Metadata))
	}
	// Copying what is folded so far for every chunk would take thousands of times
	// the size.
	if used := after.TotalAlloc - before.TotalAlloc; used > 50*uint64(size) {
		t.Errorf("folding %d bytes allocated %d", size, used)
	}
}

// slowFold is Fold by the book, on decoded values.
func slowFold(artifact, chunk map[string]any) map[string]any {
	for _, k := range []string{"name", "description", "extensions"} {
		if v, ok := chunk[k]; ok {
			artifact[k] = v
		}
	}
	artifact["parts"] = append(artifact["parts"].([]any), chunk["parts"].([]any)...)
	if over, ok := chunk["metadata"].(map[string]any); ok {
		base, ok := artifact["metadata"].(map[string]any)
		if !ok {
			base = map[string]any{}
		}
		for k, v := range over {
			base[k] = v
		}
		artifact["metadata"] = base
	}
	return artifact
}

func decode(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

func FuzzFold(f *testing.F) {
	seeds := []string{
		`{"artifactId":"a","name":"n","parts":[{"text":"1"}],"metadata":{"x":1,"\u0079":9007199254740993}}`,
		`{"artifactId":"a","parts":[{"raw":"AQ"},{"data":{"a":[1.0,"\ud83d\ude00"]}}],"metadata":{"y":null,"":{}}}`,
		`{"artifactId":"a","description":"d","parts":[{"url":"u","mediaType":"m"}],"extensions":["e","f"],"metadata":{}}`,
	}
	for _, a := range seeds {
		for _, b := range seeds {
			f.Add([]byte(a), []byte(b), []byte(seeds[0]))
		}
	}
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		var chunks [][]byte
		for _, in := range [][]byte{a, b, c} {
			if rawjson.Check(in, 64) != nil {
				return
			}
			x, err := ParseArtifact(in, "", V1)
			if err != nil {
				return
			}
			x.SetID("a")
			chunks = append(chunks, x.Body)
		}
		got, err := FoldAll(chunks)
		if err != nil {
			t.Fatal(err)
		}
		want := slowFold(slowFold(decode(t, chunks[0]), decode(t, chunks[1])), decode(t, chunks[2]))
		if !reflect.DeepEqual(decode(t, got), want) {
			t.Fatalf("fold of %s is\n%s, want\n%v", chunks, got, want)
		}
		mustFoldStepwise(t, chunks, got)
		if again, err := ParseArtifact(got, "", Protocol); err != nil || !bytes.Equal(again.Body, got) {
			t.Fatalf("fold is not canonical: %v\n%s\n%s", err, got, again.Body)
		}
	})
}

// mustFoldStepwise holds that folding one by one gives the same bytes.
func mustFoldStepwise(t *testing.T, chunks [][]byte, want []byte) {
	t.Helper()
	got := chunks[0]
	for _, c := range chunks[1:] {
		var err error
		if got, err = Fold(got, c); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("step by step:\n%s\nat once:\n%s", got, want)
	}
}
