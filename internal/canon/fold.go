package canon

import (
	"errors"
	"fmt"
	"strings"

	"github.com/holdfast-hub/holdfast/internal/rawjson"
)

// Fold is the artifact after a chunk was appended to it (A2A section 4.2.2,
// append=true): the chunk's parts follow the artifact's; its name, description and
// extensions replace the artifact's if it has them; the members of its metadata are
// added, or replace those of the same name. An error means that one of the two is
// not canonical.
func Fold(artifact, chunk []byte) ([]byte, error) {
	return FoldAll([][]byte{artifact, chunk})
}

// FoldAll folds an artifact and the chunks appended to it, in their order. It takes
// time linear in their size, and gives a single one back as it is.
func FoldAll(chunks [][]byte) ([]byte, error) {
	switch len(chunks) {
	case 0:
		return nil, errors.New("folding no artifact")
	case 1:
		return chunks[0], nil
	}
	size := 0
	for _, c := range chunks {
		size += len(c)
	}
	parts := append(make([]byte, 0, size), '[')
	var last [artifactMembers]member
	var meta overlay
	for i, c := range chunks {
		var got [artifactMembers]member
		if err := collect(c, artifactFields[:], got[:]); err != nil {
			return nil, fmt.Errorf("folding chunk %d: %w", i, err)
		}
		if p := got[artifactParts].raw; len(p) > len(`[]`) {
			parts = append(comma(parts), p[1:len(p)-1]...)
		}
		if err := meta.add(got[artifactMetadata].raw); err != nil {
			return nil, fmt.Errorf("folding the metadata of chunk %d: %w", i, err)
		}
		for f := range last {
			if got[f].raw != nil && (f != artifactID || i == 0) {
				last[f] = got[f]
			}
		}
	}
	last[artifactParts].raw = append(parts, ']')
	last[artifactMetadata].raw = meta.object()
	return appendCanonical(make([]byte, 0, size), artifactFields[:], last[:]), nil
}

// appendCanonical appends an object of members that are canonical already.
func appendCanonical(dst []byte, fields []field, got []member) []byte {
	dst = append(dst, '{')
	for i, m := range got {
		if m.raw != nil {
			dst = appendKey(comma(dst), fields[i].name)
			dst = append(dst, m.raw...)
		}
	}
	return append(dst, '}')
}

// overlay puts objects on top of one another, member by member.
type overlay struct {
	only   []byte // the object, while there was one
	names  []string
	values map[string][]byte
}

// add lays an object on top; nil is none.
func (o *overlay) add(object []byte) error {
	switch {
	case object == nil:
		return nil
	case o.only == nil && o.values == nil:
		o.only = object
		return nil
	case o.values == nil:
		o.values = make(map[string][]byte)
		if err := o.put(o.only); err != nil {
			return err
		}
	}
	return o.put(object)
}

func (o *overlay) put(object []byte) error {
	return rawjson.Members(object, func(name string, value []byte) error {
		if _, known := o.values[name]; !known {
			name = strings.Clone(name) // it is only lent
			o.names = append(o.names, name)
			o.values[name] = value
			return nil
		}
		o.values[name] = value
		return nil
	})
}

// object is the result, with members in the order of their first appearance, or nil
// if nothing was added.
func (o *overlay) object() []byte {
	if o.values == nil {
		return o.only
	}
	dst := []byte{'{'}
	for _, name := range o.names {
		dst = rawjson.AppendText(comma(dst), name)
		dst = append(dst, ':')
		dst = append(dst, o.values[name]...)
	}
	return append(dst, '}')
}
