package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-hub/holdfast/client"
)

// maxInput bounds a file that is sent; the hub has a limit of its own.
const maxInput = 256 << 20

// messageJSON is a message as A2A writes it, or as /v1 does.
type messageJSON struct {
	client.Message
	Role2       string     `json:"role"`
	MessageID2  string     `json:"messageId"`
	Parts2      []partJSON `json:"parts"`
	References2 []string   `json:"referenceTaskIds"`
	TaskID      string     `json:"task_id"`
	TaskID2     string     `json:"taskId"`
	ContextID   string     `json:"context_id"`
	ContextID2  string     `json:"contextId"`
}

// partJSON is a part as A2A writes it, or as /v1 does.
type partJSON struct {
	client.Part
	MediaType2 string `json:"mediaType"`
}

// outgoing is a message and where it goes, if it says so itself.
type outgoing struct {
	message       client.Message
	task, context string
}

// parseMessage reads a message in either spelling.
func parseMessage(b []byte) (outgoing, error) {
	var m messageJSON
	if err := decodeOne(b, &m); err != nil {
		return outgoing{}, err
	}
	out := outgoing{message: m.Message, task: first(m.TaskID, m.TaskID2), context: first(m.ContextID, m.ContextID2)}
	out.message.MessageID = first(m.MessageID, m.MessageID2)
	out.message.Role = strings.ToLower(strings.TrimPrefix(m.Role2, "ROLE_"))
	out.message.Parts = plainParts(m.Parts2)
	if out.message.ReferenceTaskIDs == nil {
		out.message.ReferenceTaskIDs = m.References2
	}
	return out, nil
}

// parseParts reads the parts of a message in either spelling.
func parseParts(b []byte) ([]client.Part, error) {
	var parts []partJSON
	if err := decodeOne(b, &parts); err != nil {
		return nil, err
	}
	return plainParts(parts), nil
}

func plainParts(parts []partJSON) []client.Part {
	out := make([]client.Part, len(parts))
	for i, p := range parts {
		out[i] = p.Part
		out[i].MediaType = first(p.Part.MediaType, p.MediaType2)
	}
	return out
}

// decodeOne reads one JSON value that takes up all of b.
func decodeOne(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(v); err != nil {
		return inWords(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON value")
	}
	return nil
}

// inWords says what is wrong with JSON without the names of this program's types.
func inWords(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it ends too early")
	case !ok:
		return err
	}
	where := e.Field[strings.LastIndex(e.Field, ".")+1:]
	if where == "" {
		where = "it"
	}
	kind, known := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Slice: "an array", reflect.Struct: "an object", reflect.Map: "an object",
		reflect.Bool: "true or false", reflect.Int: "a whole number",
	}[e.Type.Kind()]
	if !known {
		kind = "something else"
	}
	return fmt.Errorf("%s has to be %s, not %s", where, kind, e.Value)
}

// parseData makes a data part of JSON, digit by digit as it is.
func parseData(s string) (client.Part, error) {
	var raw json.RawMessage
	if err := decodeOne([]byte(s), &raw); err != nil {
		return client.Part{}, err
	}
	return client.Part{Data: raw}, nil
}

// filePart makes a part of a file.
func (p *program) filePart(name string) (client.Part, error) {
	b, err := p.readInput(name, maxInput)
	if err != nil {
		return client.Part{}, err
	}
	shown := filepath.Base(name)
	if name == "-" {
		shown = ""
	}
	return client.File(shown, mediaType(name, b), b), nil
}

func mediaType(name string, content []byte) string {
	if t := mime.TypeByExtension(filepath.Ext(name)); t != "" {
		return t
	}
	return http.DetectContentType(content)
}

// outputPart makes a part of what a program wrote: a text if it is one.
func outputPart(b []byte) client.Part {
	if utf8.Valid(b) && !bytes.ContainsRune(b, 0) {
		return client.Text(string(bytes.TrimSuffix(b, []byte("\n"))))
	}
	return client.File("", http.DetectContentType(b), b)
}

// first is the first that is not empty.
func first(all ...string) string {
	for _, s := range all {
		if s != "" {
			return s
		}
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
