package transfer

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// sum is a checksum of a set of rows in any order: the sum, modulo 2^256, of the SHA-256
// of each.
type sum struct {
	rows   int64
	digits [4]uint64 // least significant first
}

// add adds a row.
func (s *sum) add(row []any) error {
	text := make([]byte, 0, 256)
	for _, v := range row {
		var err error
		if text, err = appendValue(text, v); err != nil {
			return err
		}
	}
	hash := sha256.Sum256(text)
	var carry uint64
	for i := range s.digits {
		s.digits[i], carry = bits.Add64(s.digits[i], binary.LittleEndian.Uint64(hash[8*i:]), carry)
	}
	s.rows++
	return nil
}

// appendValue appends a value so that no two rows of a table look alike: with its type,
// and the length of what has one.
func appendValue(text []byte, v any) ([]byte, error) {
	switch x := v.(type) {
	case nil:
		return append(text, 'n'), nil
	case bool:
		if x {
			return append(text, 't'), nil
		}
		return append(text, 'f'), nil
	case int64:
		return binary.BigEndian.AppendUint64(append(text, 'i'), uint64(x)), nil
	case []byte:
		return append(binary.BigEndian.AppendUint64(append(text, 'b'), uint64(len(x))), x...), nil
	case [16]byte:
		return append(append(text, 'u'), x[:]...), nil
	}
	return nil, fmt.Errorf("a value of type %T cannot be copied", v)
}
