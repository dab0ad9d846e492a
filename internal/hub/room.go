package hub

import (
	"context"
	"sync/atomic"
	"time"
)

// Room bounds the memory that large messages and tasks take while requests carry them:
// a request that needs more than there is left is told to come back (invariant 11).
// What is small is not counted.
type Room struct{ free atomic.Int64 }

// roomFrom is from what size on something counts, in bytes.
const roomFrom = 1 << 20

// NewRoom makes a room of so many bytes.
func NewRoom(bytes int64) *Room {
	r := &Room{}
	r.free.Store(bytes)
	return r
}

type roomKey struct{}

// stay is what one request has taken.
type stay struct {
	room  *Room
	taken atomic.Int64
}

// Enter gives a request's context its place in the room; leave gives back all that the
// request took.
func (r *Room) Enter(ctx context.Context) (_ context.Context, leave func()) {
	s := &stay{room: r}
	return context.WithValue(ctx, roomKey{}, s), s.giveBack
}

func (s *stay) giveBack() {
	if n := s.taken.Swap(0); n > 0 {
		s.room.free.Add(n)
	}
}

// GiveBack gives back what a request has taken so far, because it holds nothing large
// any more although it goes on: it waits.
func GiveBack(ctx context.Context) {
	if s, ok := ctx.Value(roomKey{}).(*stay); ok {
		s.giveBack()
	}
}

// Large reports whether content of a size counts.
func Large(size int) bool { return size >= roomFrom }

// Reserve takes room for content of a size that a request is about to hold, several
// times over for its copies on the way. Unavailable when there is not enough; contexts
// without a room are not bounded.
func Reserve(ctx context.Context, size int64) error {
	s, ok := ctx.Value(roomKey{}).(*stay)
	if !ok || size < roomFrom {
		return nil
	}
	need := 4 * size
	if s.room.free.Add(-need) < 0 {
		s.room.free.Add(need)
		e := Errorf(Unavailable, "the hub is busy with other large messages and tasks; try again shortly")
		e.RetryAfter = time.Second
		return e
	}
	s.taken.Add(need)
	return nil
}
