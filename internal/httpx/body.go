package httpx

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// bodyBase and bodyRate say how long a body may take: half a minute, and a second
	// more for each 64 KiB.
	bodyBase = 30 * time.Second
	bodyRate = 64 << 10
	// unknownLength is what a body without a length is taken for.
	unknownLength = 4 << 20
	// firstRead bounds what is allocated because a client says how much will come.
	firstRead = 64 << 10
)

// ReadBody reads the whole body of a request: TooLarge at max+1 bytes (at once if
// the request says so), Invalid if it is compressed, cut short or too slow. The
// slice is the caller's to keep. A large one takes its part of the hub.Room.
func ReadBody(w http.ResponseWriter, r *http.Request, max int64) ([]byte, error) {
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	if r.ContentLength > max {
		return nil, TooLarge(max)
	}
	if err := hub.Reserve(r.Context(), r.ContentLength); err != nil {
		return nil, err
	}
	body, err := readAll(r.Context(), r.Body, r.ContentLength, max)
	switch {
	case errors.Is(err, errOverLimit):
		return nil, TooLarge(max)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		return nil, hub.Wrap(hub.Invalid, err, "the request's body came too slowly; send it again over a faster connection, or a smaller one")
	case hub.KindOf(err) == hub.Unavailable:
		return nil, err
	case err != nil && r.Context().Err() != nil:
		return nil, r.Context().Err()
	case err != nil:
		return nil, hub.Wrap(hub.Invalid, err, "the request's body broke off; send it again")
	}
	return body, nil
}

var errOverLimit = errors.New("body over limit")

// readAll reads at most max bytes; length is what the request announced, or -1.
func readAll(ctx context.Context, r io.Reader, length, max int64) ([]byte, error) {
	if r == nil || r == http.NoBody {
		return nil, nil
	}
	size := int64(512)
	if length >= 0 {
		size = length + 1 // one more, so that the end is seen without growing
	}
	buf := make([]byte, 0, min(size, firstRead))
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > max {
			return nil, errOverLimit
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
		if len(buf) == cap(buf) {
			had := cap(buf)
			if length < 0 && hub.Large(had) {
				if err := hub.Reserve(ctx, int64(had)); err != nil {
					return nil, err
				}
			}
			buf = grow(buf, length)
		}
	}
}

// grow makes room: double, but no more than the announced length needs.
func grow(buf []byte, length int64) []byte {
	size := int64(cap(buf)) * 2
	if length >= int64(len(buf)) {
		size = min(size, length+1)
	}
	return append(make([]byte, 0, max(size, int64(len(buf))+1)), buf...)
}

// RequireJSON refuses a body that does not say that it is JSON: application/json,
// or any application/…+json. A browser cannot send that to another origin unasked.
func RequireJSON(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && (kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")) {
		return nil
	}
	return hub.InvalidField("Content-Type", "the body has to be JSON; send Content-Type: application/json")
}

// checkEncoding refuses compressed bodies.
func checkEncoding(r *http.Request) error {
	for _, e := range r.Header["Content-Encoding"] {
		if e != "" && !strings.EqualFold(e, "identity") {
			return hub.InvalidField("Content-Encoding", "compressed bodies are not understood; send the body as it is")
		}
	}
	return nil
}

// TooLarge is the error for a body of more than max bytes.
func TooLarge(max int64) *hub.Error {
	return hub.Errorf(hub.TooLarge, "the request's body is larger than %d bytes; send less, or a URL part in place of the content", max)
}

// bodyTime is how long the body of a request may take.
func bodyTime(length int64) time.Duration {
	if length < 0 {
		length = unknownLength
	}
	return bodyBase + time.Duration(min(length, 1<<30)/bodyRate)*time.Second
}

// limitBodyTime gives the body of a request its deadline, which also bounds how long
// the server waits for the rest of a body that nobody reads. net/http lifts it once
// the body has been read, so that it does not end the wait for the answer.
func limitBodyTime(rc *http.ResponseController, r *http.Request, after func(int64) time.Duration) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return
	}
	_ = rc.SetReadDeadline(time.Now().Add(after(r.ContentLength))) // a writer without deadlines is a test's
}
