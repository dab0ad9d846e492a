// Package identity knows addresses and tokens, and decides who may do what. It is
// the only place that turns a credential into a principal, and the only one that
// says whom a principal may call.
//
// What it reads it keeps for at most five seconds, and every write of this process
// empties those caches at once. A request's context ends when the token that it
// came with is revoked or expires, so open polls and streams end too.
package identity

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/holdfast-hub/holdfast/internal/hub"
)

const (
	// cacheFor is how old a cached token or address may be.
	cacheFor = 5 * time.Second
	// checkEvery is how often the tokens of open requests are looked at again.
	checkEvery = 5 * time.Second
	// cacheMax bounds each cache; one entry is a few hundred bytes.
	cacheMax = 10_000
)

// Options configure a Service. Only Store is required.
type Options struct {
	Store hub.Directory
	// Anonymous lets requests without a credential act as the address anonymous.
	Anonymous bool
	// Now is the clock; time.Now if nil.
	Now func() time.Time
	// Log gets what goes wrong in the background; discarded if nil.
	Log *slog.Logger
	// Deliveries learns of addresses that were changed; nil if the hub delivers nothing.
	Deliveries hub.Deliveries
	// Sealer seals the secrets of endpoints, and CheckURL judges where they lead, with an
	// Invalid error about the field "url". Without both there are no endpoints.
	Sealer   hub.Sealer
	CheckURL func(ctx context.Context, url string, private bool) error
	// NewID makes ids of addresses and tokens; UUIDv7 if nil.
	NewID func() string
}

// Service is the hub's directory of addresses and tokens. Make one with New, call
// EnsureAdmin before it serves, Start it, and Close it.
type Service struct {
	opt       Options
	tokens    *cache[[32]byte, grant]
	addresses *cache[string, *hub.Address]
	open      *registry
	endpoints sync.Mutex              // one is set at a time, as what is kept of the old one is read first
	anonymous atomic.Pointer[outcome] // set once EnsureAdmin knows the address
	stop      context.CancelFunc
	stopped   chan struct{}
}

// New makes a Service.
func New(opt Options) *Service {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.NewID == nil {
		opt.NewID = func() string { return uuid.Must(uuid.NewV7()).String() }
	}
	return &Service{
		opt:       opt,
		tokens:    newCache[[32]byte, grant](opt.Now),
		addresses: newCache[string, *hub.Address](opt.Now),
		open:      newRegistry(),
	}
}

// Start begins to watch the tokens of open requests, until Close.
func (s *Service) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stop, s.stopped = cancel, make(chan struct{})
	go func() {
		defer close(s.stopped)
		s.watch(ctx)
	}()
}

// Close ends the watch. Requests may still be open; their contexts are left alone.
func (s *Service) Close() {
	if s.stop == nil {
		return
	}
	s.stop()
	<-s.stopped
}

// Resolve finds a living address by handle or id. An unknown one is NotPermitted,
// the same answer as for one that may not be called. The address is shared: do not
// change it.
func (s *Service) Resolve(ctx context.Context, ref string) (*hub.Address, error) {
	a, generation, ok := s.addresses.get(ref)
	if ok {
		return a, nil
	}
	a, err := s.opt.Store.Address(ctx, ref)
	switch {
	case hub.KindOf(err) == hub.NotFound:
		return nil, hub.ErrNotPermitted()
	case err != nil:
		return nil, err
	}
	s.addresses.put(ref, a, generation)
	return a, nil
}

// MayCall reports whether p may send to a and read its own tasks there: the
// administrator may, everybody may call an open address, and an address may reach
// itself. Nobody calls the hub's own addresses.
func (s *Service) MayCall(p hub.Principal, a *hub.Address) bool {
	switch {
	case a.Kind == hub.KindHub || p.Address == "":
		return false
	case p.Admin() || p.Address == a.ID:
		return true
	}
	return a.Access == hub.Open
}

// changed forgets what was read before a write, so that nobody acts on it.
func (s *Service) changed() {
	s.addresses.clear()
	s.tokens.clear()
}
