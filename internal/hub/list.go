package hub

import "encoding/json"

// EncodeList is a list of strings as stores keep it: a JSON array, empty for no strings.
func EncodeList(list []string) string {
	if len(list) == 0 {
		return ""
	}
	b, err := json.Marshal(list)
	if err != nil { // strings always are JSON
		return ""
	}
	return string(b)
}

// DecodeList is the list that EncodeList was given.
func DecodeList(s string) (list []string) {
	if s == "" || json.Unmarshal([]byte(s), &list) != nil {
		return nil // nothing but EncodeList writes it
	}
	return list
}
