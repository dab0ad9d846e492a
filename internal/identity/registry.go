package identity

import (
	"context"
	"sync"
)

// registry knows the open requests of each token, so that they can be ended. It
// costs a request two short locked sections and no goroutine.
type registry struct {
	mu     sync.Mutex
	tokens map[string]*holder // by token id
}

// holder is a token with open requests, the head of a ring of them.
type holder struct {
	grant grant
	head  request
}

// request is an open request: a node of its token's ring, and the outcome that its
// context carries.
type request struct {
	outcome
	cancel     context.CancelCauseFunc
	prev, next *request
}

func newRegistry() *registry { return &registry{tokens: make(map[string]*holder)} }

// add enters an open request of a token.
func (g *registry) add(gr grant, r *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.tokens[gr.token]
	if h == nil {
		h = &holder{grant: gr}
		h.head.prev, h.head.next = &h.head, &h.head
		g.tokens[gr.token] = h
	}
	h.add(r)
}

func (h *holder) add(r *request) {
	r.prev, r.next = h.head.prev, &h.head
	r.prev.next, h.head.prev = r, r
}

// join enters one more request of a token that has open ones; false if it has none.
func (g *registry) join(token string, r *request) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.tokens[token]
	if h == nil {
		return false
	}
	h.add(r)
	return true
}

// remove takes a request out once it has been answered.
func (g *registry) remove(token string, r *request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.next == nil {
		return // it never was in
	}
	r.prev.next, r.next.prev = r.next, r.prev
	if h := g.tokens[token]; h != nil && h.head.next == &h.head {
		delete(g.tokens, token)
	}
}

// grants lists the tokens that have open requests.
func (g *registry) grants() []grant {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]grant, 0, len(g.tokens))
	for _, h := range g.tokens {
		list = append(list, h.grant)
	}
	return list
}

// cut ends the open requests of every token that which picks.
func (g *registry) cut(which func(grant) bool, cause error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.tokens {
		if !which(h.grant) {
			continue
		}
		for r := h.head.next; r != &h.head; r = r.next {
			r.cancel(cause)
		}
	}
}
