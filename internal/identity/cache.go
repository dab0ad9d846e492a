package identity

import (
	"sync"
	"time"
)

// cache keeps what was read from the store for cacheFor. It counts its generations,
// so that a value read before a write is not put in after it.
type cache[K comparable, V any] struct {
	now func() time.Time

	mu         sync.RWMutex
	generation uint64
	entries    map[K]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

func newCache[K comparable, V any](now func() time.Time) *cache[K, V] {
	return &cache[K, V]{now: now, entries: make(map[K]entry[V])}
}

// get gives the value if there is a fresh one, and the generation to put a newly
// read one with.
func (c *cache[K, V]) get(key K) (value V, generation uint64, ok bool) {
	c.mu.RLock()
	e, found := c.entries[key]
	generation = c.generation
	c.mu.RUnlock()
	if !found || c.now().After(e.until) {
		return value, generation, false
	}
	return e.value, generation, true
}

// put keeps a value unless the cache was cleared since generation. When full, it
// makes room by dropping some entry.
func (c *cache[K, V]) put(key K, value V, generation uint64) {
	until := c.now().Add(cacheFor)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.generation != generation {
		return
	}
	if _, known := c.entries[key]; !known && len(c.entries) >= cacheMax {
		for victim := range c.entries {
			delete(c.entries, victim)
			break
		}
	}
	c.entries[key] = entry[V]{value: value, until: until}
}

// current reports whether the cache has not been cleared since generation.
func (c *cache[K, V]) current(generation uint64) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.generation == generation
}

// clear forgets everything.
func (c *cache[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	clear(c.entries)
}
