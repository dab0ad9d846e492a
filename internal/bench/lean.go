package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"
)

// lean is an HTTP/1.1 client that costs next to nothing, so that what is measured
// is the server: one persistent connection, requests written as they are, and just
// enough parsing to find an answer's end. It is not for concurrent use.
type lean struct {
	c    net.Conn
	r    *bufio.Reader
	body []byte
}

// requestTime is longer than any poll; a server that is silent for longer is stuck.
const requestTime = 90 * time.Second

func dialLean(addr string) (*lean, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &lean{c: c, r: bufio.NewReaderSize(c, 4<<10)}, nil
}

func (l *lean) close() { _ = l.c.Close() }

// do sends a request and gives the answer's status and body, which is good until
// the next call.
func (l *lean) do(request []byte) (status int, body []byte, err error) {
	if err := l.write(request); err != nil {
		return 0, nil, err
	}
	return l.read()
}

func (l *lean) write(request []byte) error {
	if err := l.c.SetDeadline(time.Now().Add(requestTime)); err != nil {
		return err
	}
	_, err := l.c.Write(request)
	return err
}

func (l *lean) read() (status int, body []byte, err error) {
	line, err := l.r.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, nil, fmt.Errorf("no HTTP answer: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, fmt.Errorf("no status: %q", line)
	}
	length, chunked, err := l.header()
	switch {
	case err != nil:
		return status, nil, err
	case chunked:
		err = l.chunks()
	default:
		err = l.append(length)
	}
	return status, l.body, err
}

// header reads to the end of the header and empties the body.
func (l *lean) header() (length int, chunked bool, err error) {
	l.body = l.body[:0]
	for {
		line, err := l.r.ReadSlice('\n')
		if err != nil {
			return 0, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			return length, chunked, nil
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "Content-Length":
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, false, fmt.Errorf("no length: %q", line)
			}
		case "Transfer-Encoding":
			chunked = true
		}
	}
}

func (l *lean) append(n int) error {
	start := len(l.body)
	for cap(l.body) < start+n {
		l.body = append(l.body[:cap(l.body)], 0)
	}
	l.body = l.body[:start+n]
	_, err := io.ReadFull(l.r, l.body[start:])
	return err
}

func (l *lean) chunks() error {
	for {
		line, err := l.r.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseUint(string(bytes.TrimRight(line, "\r\n")), 16, 31)
		if err != nil {
			return fmt.Errorf("no chunk: %q", line)
		}
		if err := l.append(int(n)); err != nil {
			return err
		}
		if _, err := l.r.Discard(2); err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
	}
}

// request is the bytes of a request. The header lines end without a line end.
func request(method, target, token, header, body string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\n", method, target, token)
	if header != "" {
		b.WriteString(header + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// member is the first string member of a name in JSON that was written without
// blanks: good enough for answers whose form is known.
func member(body []byte, name string) []byte {
	_, rest, found := bytes.Cut(body, []byte(`"`+name+`":"`))
	if !found {
		return nil
	}
	value, _, _ := bytes.Cut(rest, []byte{'"'})
	return value
}

func unexpected(what string, status int, body []byte) error {
	if len(body) > 400 {
		body = body[:400]
	}
	return fmt.Errorf("%s: unexpected answer %d: %s", what, status, body)
}
