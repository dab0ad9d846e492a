package remotea2a

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// upgrade turns a message or an artifact of 0.3 into one of 1.0: its parts have another
// form. What is none, or is of 1.0 already, stays as it is. All values are carried over
// as they were written.
func upgrade(raw []byte, v03 bool) []byte {
	if !v03 {
		return raw
	}
	return members(raw, func(name string, value []byte) (string, []byte) {
		switch name {
		case "kind":
			return "", nil
		case "parts":
			return name, elements(value, upgradePart)
		}
		return name, value
	})
}

// upgradePart turns one part of 0.3 into one of 1.0.
func upgradePart(raw []byte) []byte {
	var p struct {
		Kind     string
		File     json.RawMessage
		Metadata json.RawMessage
	}
	if json.Unmarshal(raw, &p) != nil || p.Kind == "" {
		return raw
	}
	if p.Kind != "file" {
		return members(raw, func(name string, value []byte) (string, []byte) {
			if name == "kind" {
				return "", nil
			}
			return name, value
		})
	}
	names := map[string]string{"bytes": "raw", "uri": "url", "name": "filename", "mimeType": "mediaType", "mime_type": "mediaType"}
	file := members(p.File, func(name string, value []byte) (string, []byte) { return names[name], value })
	if len(p.Metadata) == 0 || rawjson.KindOf(p.Metadata) != rawjson.Object || len(file) < 2 {
		return file
	}
	out := append(bytes.TrimSuffix(file, []byte("}")), `,"metadata":`...)
	return append(append(out, p.Metadata...), '}')
}

// downgrade turns a message of 1.0 into one of 0.3.
func downgrade(message []byte) []byte {
	out := members(message, func(name string, value []byte) (string, []byte) {
		switch name {
		case "role":
			return name, []byte(strings.ToLower(strings.Replace(string(value), "ROLE_", "", 1)))
		case "parts":
			return name, elements(value, downgradePart)
		}
		return name, value
	})
	return append([]byte(`{"kind":"message",`), out[1:]...)
}

// downgradePart turns one part of 1.0 into one of 0.3.
func downgradePart(raw []byte) []byte {
	var p map[string]json.RawMessage
	if json.Unmarshal(raw, &p) != nil {
		return raw
	}
	out := []byte(`{"kind":"`)
	add := func(name string, value json.RawMessage) {
		out = append(append(append(out, `,"`...), name...), `":`...)
		out = append(out, value...)
	}
	switch {
	case p["text"] != nil:
		out = append(out, `text"`...)
		add("text", p["text"])
	case p["data"] != nil && rawjson.KindOf(p["data"]) == rawjson.Object:
		out = append(out, `data"`...)
		add("data", p["data"])
	case p["data"] != nil: // which 0.3 knows objects of only
		out = append(out, `data"`...)
		add("data", append(append([]byte(`{"value":`), p["data"]...), '}'))
	default:
		out = append(out, `file","file":`...)
		names := map[string]string{"raw": "bytes", "url": "uri", "filename": "name", "mediaType": "mimeType"}
		out = append(out, members(raw, func(name string, value []byte) (string, []byte) { return names[name], value })...)
	}
	if p["metadata"] != nil {
		add("metadata", p["metadata"])
	}
	return append(out, '}')
}

// members makes an object of the members of another one: f gives the name and the value
// of each, an empty name for none. What is no object stays as it is.
func members(raw []byte, f func(name string, value []byte) (string, []byte)) []byte {
	out := []byte{'{'}
	err := rawjson.Members(raw, func(name string, value []byte) error {
		name, value = f(name, value)
		if name == "" {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(rawjson.AppendText(out, name), ':')
		out = append(out, value...)
		return nil
	})
	if err != nil {
		return raw
	}
	return append(out, '}')
}

// elements makes an array of the elements of another one. What is no array stays as it is.
func elements(raw []byte, f func(value []byte) []byte) []byte {
	out := []byte{'['}
	err := rawjson.Elements(raw, func(i int, value []byte) error {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, f(value)...)
		return nil
	})
	if err != nil {
		return raw
	}
	return append(out, ']')
}
