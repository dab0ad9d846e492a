package egress

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last uint16 }

// String gives the range as ParsePorts reads it.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// ParsePorts reads ports and ranges of ports with commas between, such as
// "8080,9000-9010", as --egress-allow-local takes them. Nothing gives no range.
func ParsePorts(s string) ([]PortRange, error) {
	var list []PortRange
	if strings.TrimSpace(s) == "" {
		return list, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, ok1 := parsePort(first)
		to, ok2 := parsePort(last)
		if !ok1 || !ok2 || from > to {
			return nil, fmt.Errorf("%q is no port or range of ports; write 8080 or 9000-9010, with commas between", part)
		}
		list = append(list, PortRange{from, to})
	}
	return list, nil
}

// parsePort reads a port from 1 to 65535, in digits without zeros before them.
func parsePort(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, false
	}
	return uint16(n), true
}

// within tells whether a port is in one of the ranges.
func within(list []PortRange, port uint16) bool {
	return slices.ContainsFunc(list, func(r PortRange) bool { return r.First <= port && port <= r.Last })
}

// otherProtocols are the ports of well-known services that do not speak HTTP and might
// take a request for something else, such as a mail. They are those that browsers
// refuse as well (the "bad ports" of the Fetch standard), in order.
var otherProtocols = []uint16{
	1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95,
	101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161,
	179, 389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563,
	587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060,
	5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
}

func speaksOther(port uint16) bool {
	_, found := slices.BinarySearch(otherProtocols, port)
	return found
}
