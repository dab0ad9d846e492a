package tunnel

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// steady is the body of a request that breaks off when its sender pauses for too long.
// There is a bound for a whole body, too; but a sender that sends next to nothing would
// keep others out for all of that time.
type steady struct {
	io.ReadCloser
	rc    *http.ResponseController
	limit time.Duration

	mu      sync.Mutex
	reading bool
	tooSlow bool
}

// Read implements io.Reader.
func (b *steady) Read(p []byte) (int, error) {
	b.set(true)
	t := time.AfterFunc(b.limit, b.cut)
	n, err := b.ReadCloser.Read(p)
	t.Stop()
	b.set(false)
	return n, err
}

func (b *steady) set(reading bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reading = reading
}

// cut ends the read that is under way.
func (b *steady) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.reading {
		return
	}
	if err := b.rc.SetReadDeadline(time.Now()); err == nil || !errors.Is(err, http.ErrNotSupported) {
		b.tooSlow = true
	}
}

// slow reports whether an error is that the body came too slowly.
func (b *steady) slow(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tooSlow || errors.Is(err, os.ErrDeadlineExceeded)
}
