package rawjson

import "strconv"

const (
	// deepest is the depth that Check never goes beyond. It goes one call
	// deeper for each level, and this keeps its stack to a few megabytes
	// whatever the caller asks for.
	deepest = 10_000
	// fewMembers is up to how many members an object's names are compared with
	// one another. Beyond it a map takes over, because the comparisons grow with
	// the square.
	fewMembers = 16
)

// maxDigits bounds the text of a number: others decode what passes here, and some of
// them, Python among them, refuse a document over a number of a few thousand digits.
const maxDigits = 1000

// Check reads b once and reports whether it is exactly one JSON value, with
// white space around it allowed, that the hub accepts:
//
//   - it follows RFC 8259;
//   - it is well-formed UTF-8, and its escape sequences hold no surrogate
//     without its partner;
//   - no object has two members of the same name, escape sequences resolved;
//   - objects and arrays are nested at most maxDepth deep, where [] is 1 deep
//     and a scalar 0. More than 10,000 is the same as 10,000.
//
// The character \u0000 is allowed, and so are numbers of any size: they are
// never converted.
//
// The error is always an [*Error]. Check does not allocate for ordinary input.
func Check(b []byte, maxDepth int) error {
	c := checker{b: b, maxDepth: max(0, min(maxDepth, deepest))}
	i, f := c.value(skipSpace(b, 0), 0)
	if f == noFault {
		if i = skipSpace(b, i); i == len(b) {
			return nil
		}
		f = faultTrailing
	}
	err := newError(b, i, f)
	if f == faultDepth {
		err.Msg = "nested deeper than " + strconv.Itoa(c.maxDepth) + " levels"
	}
	err.Path = pathOf(b, c.trail)
	return err
}

// checker is the state of one Check.
type checker struct {
	b        []byte
	maxDepth int
	// decoded holds the text of those names, in the open objects, that had
	// escape sequences.
	decoded []byte
	// trail collects the path of a fault while the calls return from it, so
	// that input without one pays nothing for paths.
	trail []step
}

// span is where a name's text is: in the input, or in checker.decoded.
type span struct {
	start, end int
	decoded    bool
}

// value reads the value that starts at i, inside of depth others.
func (c *checker) value(i, depth int) (end int, f fault) {
	if i >= len(c.b) || c.b[i] != '{' && c.b[i] != '[' {
		end, f := scanScalar(c.b, i)
		if end-i > maxDigits && c.b[i] != '"' && f == noFault {
			return i, faultLong
		}
		return end, f
	}
	if depth >= c.maxDepth {
		return i, faultDepth
	}
	if c.b[i] == '{' {
		return c.object(i, depth+1)
	}
	return c.array(i, depth+1)
}

// array reads the array whose bracket is at i.
func (c *checker) array(i, depth int) (end int, f fault) {
	i = skipSpace(c.b, i+1)
	if i < len(c.b) && c.b[i] == ']' {
		return i + 1, noFault
	}
	for n := 0; ; n++ {
		if i, f = c.value(i, depth); f != noFault {
			c.trail = append(c.trail, step{name: -1, index: n})
			return i, f
		}
		i = skipSpace(c.b, i)
		if i >= len(c.b) {
			return i, faultEnd
		}
		switch c.b[i] {
		case ',':
			i = skipSpace(c.b, i+1)
		case ']':
			return i + 1, noFault
		default:
			return i, faultArray
		}
	}
}

// object reads the object whose brace is at i.
func (c *checker) object(i, depth int) (end int, f fault) {
	i = skipSpace(c.b, i+1)
	if i < len(c.b) && c.b[i] == '}' {
		return i + 1, noFault
	}
	var seen nameSet
	text := len(c.decoded)
	for {
		name := i
		if i, f = c.name(i, &seen); f != noFault {
			return i, f
		}
		if i, f = c.value(i, depth); f != noFault {
			c.trail = append(c.trail, step{name: name})
			return i, f
		}
		i = skipSpace(c.b, i)
		if i >= len(c.b) {
			return i, faultEnd
		}
		switch c.b[i] {
		case ',':
			i = skipSpace(c.b, i+1)
		case '}':
			c.decoded = c.decoded[:text]
			return i + 1, noFault
		default:
			return i, faultObject
		}
	}
}

// name reads a member's name at i and the colon after it, and returns where
// the value starts.
func (c *checker) name(i int, seen *nameSet) (value int, f fault) {
	end, escaped, value, f := scanName(c.b, i)
	if f != noFault {
		return value, f
	}
	s := span{start: i + 1, end: end - 1}
	if escaped {
		from := len(c.decoded)
		c.decoded = unescape(c.decoded, c.b[s.start:s.end])
		s = span{start: from, end: len(c.decoded), decoded: true}
	}
	if !c.add(seen, s) {
		return i, faultDuplicate
	}
	return value, noFault
}

// nameSet is the names of one object: the first count of few, or all of them in
// many once they are no longer few. It lives on the stack of the call that reads
// the object, so that an ordinary object needs no memory of its own.
type nameSet struct {
	few   [fewMembers]span
	count int
	many  map[string]struct{}
}

// add notes the name at s and reports whether it is new to the object.
func (c *checker) add(seen *nameSet, s span) bool {
	if seen.many != nil {
		return c.addToMany(seen, s)
	}
	name := c.text(s)
	for _, other := range seen.few[:seen.count] {
		if other.end-other.start == len(name) && string(c.text(other)) == string(name) {
			return false
		}
	}
	if seen.count < fewMembers {
		seen.few[seen.count] = s
		seen.count++
		return true
	}
	seen.many = make(map[string]struct{}, 4*fewMembers)
	for _, other := range seen.few {
		c.addToMany(seen, other)
	}
	return c.addToMany(seen, s)
}

// addToMany is add for an object with many members.
func (c *checker) addToMany(seen *nameSet, s span) bool {
	before := len(seen.many)
	seen.many[string(c.text(s))] = struct{}{}
	return len(seen.many) > before
}

// text is the name at s, escape sequences resolved.
func (c *checker) text(s span) []byte {
	if s.decoded {
		return c.decoded[s.start:s.end]
	}
	return c.b[s.start:s.end]
}
